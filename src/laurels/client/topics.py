"""Topics as a reader has them: what was told, and the state that it adds up to. No I/O."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from laurels.client.answers import read_order
from laurels.model import Entry, Submission

UPDATES_MAX = 256  # that wait for a reader
RECENT = 10  # submissions that are kept

D = TypeVar("D", bound="ListData | RankData | PlayData")


class ListData(Struct, frozen=True, kw_only=True):
    """Of a snapshot, the list as it stands; of a change, the entries that are new or different, and who left."""

    total: int
    entries: list[Entry]
    removed: list[str] = []


class RankData(Struct, frozen=True, kw_only=True):
    """A player's entry as it stands; None without one."""

    total: int
    entry: Entry | None
    percentile: float | None


class PlayData(Struct, frozen=True, kw_only=True):
    """A player's submissions, oldest first: the latest ones of a snapshot, the new ones of a change."""

    submissions: list[Submission]


class Update(Struct, Generic[D], frozen=True, kw_only=True):
    """What a topic was told.

    A snapshot's `reason`: start; gap (updates before it are missing); window, board (another window has begun, the
    board has another definition: what was shown before is over).
    """

    type: Literal["snapshot", "change"]
    seq: int
    as_of: datetime
    reason: str | None = None
    data: D


class Told(Struct, frozen=True, kw_only=True):
    """A message of the server."""

    type: str
    id: str | None = None
    seq: int = 0
    resume: str = ""
    as_of: datetime | None = None
    reason: str | None = None
    data: Raw = Raw()
    code: str = ""
    detail: str = ""
    field: str | None = None
    rule: str | None = None


class Hole(Exception):
    """A message does not follow the one before it."""


class Topic(Generic[D]):
    """Something that is followed. Iterate over it for its updates, or look at its state, which is always that of the
    last message that came, whether its update was taken or not.

    as_of   the instant of which the state is true; None before the first snapshot
    gaps    how often updates were missing
    """

    _decoder: msgspec.json.Decoder[D]

    def __init__(self, spec: dict[str, Any], close: "Callable[[Topic[Any]], None]") -> None:
        self.spec = spec
        self.as_of: datetime | None = None
        self.resume: str | None = None
        self.gaps = 0
        self.ended = False
        self.error: Exception | None = None
        self._seq = 0
        self._close = close
        self._updates: deque[Update[D]] = deque()
        self._news = asyncio.Event()

    # --- for readers ------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait for the first snapshot. Raises what is the matter if there will be none."""
        while self.as_of is None and not self._is_over():
            await self._wait()

    async def next(self, timeout_s: float | None = None) -> Update[D] | None:
        """The next update; None if none comes in time, or none will. Raises the error that ended it."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._updates and not self._is_over():
                    await self._wait()
        except TimeoutError:
            return None
        return self._updates.popleft() if self._updates else None

    def __aiter__(self) -> AsyncIterator[Update[D]]:
        return self

    async def __anext__(self) -> Update[D]:
        update = await self.next()
        if update is None:
            raise StopAsyncIteration
        return update

    def close(self) -> None:
        """Follow it no more."""
        self._close(self)

    def _is_over(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.ended

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    # --- for whoever gets the messages ------------------------------------------------------------------------

    def take(self, told: Told) -> None:
        """A message has come. Raises Hole, and changes nothing, if it is not the next one."""
        if told.as_of is None:
            raise msgspec.ValidationError("a message without as_of")
        if told.type == "change" and self.resume is not None and told.seq <= self._seq:
            return  # known already
        starts_anew = told.type == "snapshot" and told.reason in ("start", "gap")
        if not starts_anew and (self.resume is None or told.seq != self._seq + 1):
            raise Hole(f"message {told.seq} after {self._seq}")
        data = self._decoder.decode(told.data)
        self._read(data)
        self.absorb(told.type == "snapshot", data)
        self._seq, self.resume, self.as_of = told.seq, told.resume, told.as_of
        kind: Literal["snapshot", "change"] = "snapshot" if told.type == "snapshot" else "change"
        if told.reason == "gap":
            self.gaps += 1
        self._updates.append(Update(type=kind, seq=told.seq, as_of=told.as_of, reason=told.reason, data=data))
        if len(self._updates) > UPDATES_MAX:  # nobody takes them: what is there now instead
            self.gaps += 1
            self._updates.clear()
            self._updates.append(
                Update(type="snapshot", seq=told.seq, as_of=told.as_of, reason="gap", data=self.whole())
            )
        self._news.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will come."""
        if not self.ended:
            self.ended, self.error = True, error
        self._news.set()

    # --- what the kinds do ------------------------------------------------------------------------------------

    def absorb(self, is_snapshot: bool, data: D) -> None:
        """Bring the state up to date."""
        raise NotImplementedError

    def whole(self) -> D:
        """The state as data of a snapshot."""
        raise NotImplementedError

    def _read(self, data: Any) -> None:
        entries: Iterable[Entry | None] = getattr(data, "entries", ())
        read_order(entry for entry in (*entries, getattr(data, "entry", None)) if entry is not None)


class ListTopic(Topic[ListData]):
    """The top of a board, or the entries around a player: `total`, and `entries` in order as they stand."""

    _decoder = msgspec.json.Decoder(ListData, float_hook=Decimal)

    def __init__(self, spec: dict[str, Any], close: Callable[[Topic[Any]], None]) -> None:
        super().__init__(spec, close)
        self.total = 0
        self.entries: list[Entry] = []

    def absorb(self, is_snapshot: bool, data: ListData) -> None:
        """Put in what is new or changed, drop who left."""
        by_player = {} if is_snapshot else {entry.player_id: entry for entry in self.entries}
        for player_id in data.removed:
            by_player.pop(player_id, None)
        by_player |= {entry.player_id: entry for entry in data.entries}
        self.total, self.entries = data.total, sorted(by_player.values(), key=lambda entry: entry.position)

    def whole(self) -> ListData:
        """The list as it stands."""
        return ListData(total=self.total, entries=self.entries)


class RankTopic(Topic[RankData]):
    """One player's `entry` (None without one), its `percentile`, and how many entries there are."""

    _decoder = msgspec.json.Decoder(RankData, float_hook=Decimal)

    def __init__(self, spec: dict[str, Any], close: Callable[[Topic[Any]], None]) -> None:
        super().__init__(spec, close)
        self.total = 0
        self.entry: Entry | None = None
        self.percentile: float | None = None

    def absorb(self, is_snapshot: bool, data: RankData) -> None:
        """Each message tells all."""
        self.total, self.entry, self.percentile = data.total, data.entry, data.percentile

    def whole(self) -> RankData:
        """The entry as it stands."""
        return RankData(total=self.total, entry=self.entry, percentile=self.percentile)


class PlayTopic(Topic[PlayData]):
    """A player's latest `submissions`, oldest first."""

    _decoder = msgspec.json.Decoder(PlayData, float_hook=Decimal)

    def __init__(self, spec: dict[str, Any], close: Callable[[Topic[Any]], None]) -> None:
        super().__init__(spec, close)
        self.submissions: list[Submission] = []

    def absorb(self, is_snapshot: bool, data: PlayData) -> None:
        """Add what is new; what is old goes."""
        known = [] if is_snapshot else self.submissions
        self.submissions = [*known, *data.submissions][-RECENT:]

    def whole(self) -> PlayData:
        """The latest submissions."""
        return PlayData(submissions=self.submissions)
