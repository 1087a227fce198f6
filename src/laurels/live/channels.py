"""Channels: topics that somebody watches, each with what it published last and the ring of its messages."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Raw

from laurels.boards import Place
from laurels.errors import LaurelsError
from laurels.games import Game
from laurels.index import Instance, LiveBoard
from laurels.live.topics import (
    ENCODER,
    LIMITS,
    Envelope,
    ListChange,
    ListSnapshot,
    Message,
    PlayData,
    RankData,
    Topic,
)
from laurels.model import Entry, Submission
from laurels.standings import entry_of, percentile
from laurels.windows import from_us

if TYPE_CHECKING:
    from laurels.live.connections import Subscription
    from laurels.live.hub import Hub

RECENT = 10  # submissions of a snapshot
CONSISTENT_TRIES = 8


class State(NamedTuple):
    """What a channel shows: a version of an instance (0: nobody has fed it)."""

    board_id: int
    place: Place
    version: int


class View(NamedTuple):
    """A board instance to be read, and the instant of that."""

    board: LiveBoard
    instance: Instance | None
    state: State
    as_of: int


class Broken(LaurelsError):
    """A fault of Laurels ended a topic; the log says which."""

    code = "internal"


class Channel:
    """A topic that somebody watches: its messages, and who is told. `state` and what the kinds keep besides are as they
    were published last."""

    def __init__(self, hub: "Hub", topic: Topic) -> None:
        self.hub = hub
        self.topic = topic
        self.name = f"{hub.epoch}.{next(hub.numbers)}"
        self.seq = 0
        self.as_of = 0
        self.ended = False
        self.error: bytes | None = None
        self.state: Any = None
        self.subscribers: set[Subscription] = set()
        self.waiting: list[Subscription] = []
        self._ring: deque[Message] = deque()
        self._ring_bytes = 0
        self._snapshot: Raw | None = None

    # What the kinds do

    def whole(self) -> Any:
        """All that was published, as data of a snapshot."""
        raise NotImplementedError

    # Publishing

    def publish(self, type: str, data: Any, reason: str | None = None) -> None:
        """Tell all subscribers. The first time, there is nobody to tell: they get a snapshot."""
        self.seq += 1
        self._snapshot = None
        if self.seq == 1:
            return
        message = self._message(type, data, reason, self.as_of)
        self._ring.append(message)
        self._ring_bytes += len(message.body)
        self.hub.ring_bytes += len(message.body)
        limits = self.hub.limits
        while len(self._ring) > 1 and (
            len(self._ring) > limits.ring_messages_max
            or self._ring_bytes > limits.ring_bytes_max
            or self.hub.ring_bytes > limits.rings_bytes_max
        ):
            self._drop_first()
        self.wake()

    def _drop_first(self) -> None:
        size = len(self._ring.popleft().body)
        self._ring_bytes -= size
        self.hub.ring_bytes -= size

    def _message(self, type: str, data: Any, reason: str | None, as_of: int) -> Message:
        resume = f"{self.name}.{self.seq}"
        envelope = Envelope(type=type, seq=self.seq, resume=resume, as_of=from_us(as_of), reason=reason, data=data)
        return Message(type, self.seq, resume, ENCODER.encode(envelope))

    def wake(self) -> None:
        """There is something to take."""
        for subscriber in self.subscribers:
            subscriber.connection.wake()

    def admit_waiting(self) -> None:
        """Those who came between two ticks get their snapshot."""
        for subscriber in self.waiting:
            subscriber.admit()
        self.waiting.clear()

    def end(self, error: LaurelsError | None) -> None:
        """Nothing more will come."""
        if error is not None:
            self.error = ENCODER.encode({"type": "error", "code": error.code, "detail": str(error)})
        self.ended = True
        if not self.subscribers:
            self.let_go()
        self.admit_waiting()
        self.wake()

    def let_go(self) -> None:
        """Nobody will read the ring any more."""
        while self._ring:
            self._drop_first()

    # Taking

    def snapshot(self, reason: str) -> Message:
        """All that was published."""
        if self._snapshot is None:
            self._snapshot = Raw(ENCODER.encode(self.whole()))
        return self._message("snapshot", self._snapshot, reason, max(self.as_of, self.hub.as_of))

    def after(self, seq: int) -> Message | None:
        """The message that follows one; None if it is no longer there."""
        first = self.seq - len(self._ring) + 1
        return self._ring[seq + 1 - first] if seq + 1 >= first else None

    def seq_of(self, resume: str) -> int | None:
        """The seq in a token, if everything after it is still there."""
        name, _, digits = resume.rpartition(".")
        if name != self.name or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            return None
        seq = int(digits)
        return seq if self.seq - len(self._ring) <= seq <= self.seq else None


class BoardChannel(Channel):
    """A topic of a board instance."""

    def __init__(self, hub: "Hub", topic: Topic, game: Game) -> None:
        super().__init__(hub, topic)
        self._game = game
        self._names: dict[str, str | None] = {}

    async def update(self, view: View, *, names: bool) -> None:
        """Publish what is different in an instance; `names`: display names too. Call with the source's lock held."""
        before = self.state
        reason = None
        if before is not None and before.board_id != view.state.board_id:
            reason = "board"
        elif before is not None and before.place != view.state.place:
            reason = "window"
        await self._show(view, reason, names or reason is not None)
        self.state = view.state

    async def _show(self, view: View, reason: str | None, names: bool) -> None:
        raise NotImplementedError

    async def _named(self, player_ids: Sequence[str], anew: bool) -> dict[str, str | None]:
        """Display names, read if not known, or all of them."""
        if not self.topic.names:
            return {}
        wanted = [player_id for player_id in player_ids if anew or player_id not in self._names]
        found = await self._game.descriptions("player_id", wanted) if wanted else {}
        fresh = {player_id: found.get(player_id, {}).get("name") for player_id in wanted}
        return {
            player_id: fresh[player_id] if player_id in fresh else self._names[player_id] for player_id in player_ids
        }


Row: TypeAlias = tuple[int, ...]  # rank, position, then the terms


class ListChannel(BoardChannel):
    """Topics top and around."""

    def __init__(self, hub: "Hub", topic: Topic, game: Game) -> None:
        super().__init__(hub, topic, game)
        self._limit = topic.limit or LIMITS[topic.kind]
        self._board: LiveBoard
        self._total = 0
        self._rows: dict[str, Row] = {}

    async def _show(self, view: View, reason: str | None, names: bool) -> None:
        total, rows = self._read(view.instance)
        if rows == self._rows and total == self._total and not reason and not names and self.seq:
            self.as_of = view.as_of
            return
        named = await self._named(list(rows), names)
        old_rows, old_names, old_total = self._rows, self._names, self._total
        self.as_of, self._board = view.as_of, view.board
        self._total, self._rows, self._names = total, rows, named
        if reason:
            self.publish("snapshot", self.whole(), reason)
            return
        changed = [id for id, row in rows.items() if row != old_rows.get(id) or named.get(id) != old_names.get(id)]
        removed = [id for id in old_rows if id not in rows]
        if changed or removed or total != old_total or not self.seq:
            self.publish("change", ListChange(total=total, removed=removed, entries=self._entries(changed)))

    def _read(self, instance: Instance | None) -> tuple[int, dict[str, Row]]:
        if instance is None:
            return 0, {}
        index, player_id = instance.index, self.topic.player_id
        total, found = 0, None
        for _ in range(CONSISTENT_TRIES):
            total = len(index)
            found = index.rows(1, self._limit) if player_id is None else index.around(player_id, self._limit)
            if len(index) == total:
                break
        if found is None or not len(found):
            return total, {}
        first = found.first_position
        rows = zip(found.ranks, range(first, first + len(found)), *found.terms, strict=True)
        return total, dict(zip(found.player_ids, rows, strict=True))

    def _entries(self, player_ids: Iterable[str]) -> list[Entry]:
        ranker = self._board.ranker
        entries = []
        for player_id in player_ids:
            rank, position, *terms = self._rows[player_id]
            entries.append(entry_of(ranker, player_id, rank, position, terms, self._names.get(player_id)))
        return entries

    def whole(self) -> ListSnapshot:
        """The list as it was published."""
        return ListSnapshot(total=self._total, entries=self._entries(self._rows))


class RankChannel(BoardChannel):
    """Topic rank."""

    def __init__(self, hub: "Hub", topic: Topic, game: Game) -> None:
        super().__init__(hub, topic, game)
        self._player_id = topic.player_id or ""
        self._read_last: Any = None
        self._data = RankData(total=0, entry=None, percentile=None)

    async def _show(self, view: View, reason: str | None, names: bool) -> None:
        read = self._read(view.board, view.instance)
        if read == self._read_last and not reason and not names:
            self.as_of = view.as_of
            return
        total, ahead, found = read
        named = await self._named([self._player_id], names)
        data = RankData(total=total, entry=None, percentile=None)
        if found is not None:
            rank, position, terms = found
            entry = entry_of(view.board.ranker, self._player_id, rank, position, terms, named.get(self._player_id))
            data = RankData(total=total, entry=entry, percentile=percentile(total, ahead))
        self.as_of = view.as_of
        self._names, self._read_last = named, read
        old, self._data = self._data, data
        if reason:
            self.publish("snapshot", data, reason)
        elif data != old or not self.seq:
            self.publish("change", data)

    def _read(
        self, board: LiveBoard, instance: Instance | None
    ) -> tuple[int, int, tuple[int, int, tuple[int, ...]] | None]:
        """How many entries there are, how many of them are ahead, and the player's."""
        if instance is None:
            return 0, 0, None
        index, total, ahead, found = instance.index, 0, 0, None
        for _ in range(CONSISTENT_TRIES):
            total = len(index)
            found = index.entry(self._player_id)
            if found is not None:
                ahead = index.count_before(found[2][: board.ranker.tie_terms])
            if len(index) == total and index.entry(self._player_id) == found:
                break
        return total, ahead, found

    def whole(self) -> RankData:
        """The entry as it was published."""
        return self._data


CHANNELS: dict[str, type[BoardChannel]] = {"top": ListChannel, "around": ListChannel, "rank": RankChannel}


class PlayChannel(Channel):
    """Topic submissions. `place` is that of the newest submission that was published."""

    def __init__(self, hub: "Hub", topic: Topic, game: Game) -> None:
        super().__init__(hub, topic)
        self._game = game
        self._player_id = topic.player_id or ""
        self._recent: list[Submission] = []
        self.place = -1

    async def update(self, as_of: int) -> None:
        """Publish what is new."""
        most = self.hub.limits.rows_max
        found = (await self._game.newest(self._player_id, most + 1))[::-1]
        self.as_of = as_of
        new = [submission for place, submission in found if place > self.place]
        # More than a change holds, or what was there before has been erased: it begins anew.
        anew = len(found) > most if self.place < 0 else all(place != self.place for place, _ in found)
        if anew:
            new, self._recent = [], [submission for _, submission in found]
        self._recent = [*self._recent, *new][-RECENT:]
        self.place = found[-1][0] if found else -1
        if anew and self.seq:
            self.publish("snapshot", self.whole(), "gap")
        elif new or not self.seq:
            self.publish("change", PlayData(submissions=new))

    def whole(self) -> PlayData:
        """The latest submissions that were published."""
        return PlayData(submissions=self._recent)
