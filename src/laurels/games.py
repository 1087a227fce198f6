"""One game: submitting, players, boards. What a submission means is decided by the boards; this is the way through."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from laurels.answers import Answers
from laurels.batch import Batch, check_ids, check_texts, checked_batch, checked_dimension
from laurels.boards import Place, Ranker, place_from_key
from laurels.cursors import Cursors
from laurels.errors import (
    Conflict,
    Forbidden,
    InvalidCursor,
    InvalidInput,
    LaurelsError,
    LimitExceeded,
    NotFound,
    NotReady,
    StoreError,
)
from laurels.feed import Replay, entries_of_player
from laurels.index import GameState, Indexes, Instance, LiveBoard
from laurels.model import (
    Answer,
    Board,
    BoardInfo,
    DimensionValue,
    GameDefinition,
    InstanceInfo,
    Limits,
    Number,
    Page,
    Player,
    Standing,
    Submission,
)
from laurels.standings import BoardInstance
from laurels.stores.base import Entries, NewInstance, Progress, Store, given_id, place_of_given_id
from laurels.windows import from_us, to_us

LOAD_WAIT_S = 30.0
CATCH_UP_SEGMENTS = 64
ACCEPTED_WITHIN_US = 60_000_000


class Game:
    """The use cases of one game. Got from `Laurels.game`."""

    def __init__(
        self,
        state: GameState,
        store: Store,
        indexes: Indexes,
        limits: Limits,
        clock: Callable[[], int],
        cursors: Cursors,
    ) -> None:
        self._state = state
        self._store = store
        self._indexes = indexes
        self.limits = limits
        self.cursors = cursors
        self._clock = clock
        self._ready: dict[str, asyncio.Event] = {}
        self._failed: dict[str, Exception] = {}

    @property
    def name(self) -> str:
        """The game's id."""
        return self._state.name

    @property
    def definition(self) -> GameDefinition:
        """The game's definition as it stands."""
        return self._state.definition

    # --- submitting -----------------------------------------------------------------------------------------

    async def submit(
        self,
        player_id: str,
        score: Number,
        *,
        dimensions: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Number] | None = None,
        submission_id: str | None = None,
        played_at: datetime | None = None,
    ) -> Answer:
        """Submit one play. Durable, and counted on every board that it feeds, when this returns.

        With a `submission_id` of your own (a UUIDv7 is best, see `new_submission_id`) it is safe to repeat: it counts
        once, and every repeat gets the first answer. Raises InvalidInput that names the field, or StoreError; then send
        it again with the same submission_id.
        """
        definition = self._state.definition
        batch = checked_batch(
            definition,
            self.limits,
            player_ids=[player_id],
            scores=[score],
            submission_ids=[submission_id],
            played_at=[played_at],
            dimensions={name: [value] for name, value in (dimensions or {}).items()},
            metrics={name: [value] for name, value in (metrics or {}).items()},
        )
        return (await self.submit_batch(batch))[0]

    async def submit_many(
        self,
        player_ids: Any,
        scores: Any,
        *,
        submission_ids: Any = None,
        played_at: Any = None,
        dimensions: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> Answers:
        """Submit plays as columns: lists, numpy or Arrow arrays of equal length; a dimension or metric may be one value
        for all. All of them are accepted, in one commit, or none. Raises like `submit`, naming field and row."""
        batch = checked_batch(
            self._state.definition,
            self.limits,
            player_ids=player_ids,
            scores=scores,
            submission_ids=submission_ids,
            played_at=played_at,
            dimensions=dimensions,
            metrics=metrics,
        )
        return await self.submit_batch(batch)

    async def submit_batch(self, batch: Batch) -> Answers:
        """Submit a batch made by `checked_batch`, or columns of the same form by an importer."""
        accepted = await self._store.submit(self.name, batch)
        again = []
        if True in accepted.repeated:
            again = [row for row, repeated in enumerate(accepted.repeated) if repeated]
        stored: dict[int, Submission] = {}
        if again:
            found = await self._store.submissions(self.name, [accepted.places[row] for row in again])
            for row, submission in zip(again, found, strict=True):
                if submission is None:
                    raise Conflict(f"submission {batch.submission_ids[row]!r} was accepted before and has been erased")
                stored[row] = submission
        ids: list[Any] = batch.submission_ids
        if None in ids:
            ids = [given_id(place) if id is None else id for id, place in zip(ids, accepted.places, strict=True)]
        return Answers(batch, accepted, ids, stored)

    def check_batch(self, batch: Batch) -> None:
        """Raise InvalidInput if a board would refuse the batch as it stands. (A sum may still overflow later.)"""
        for board in self._state.boards.values():
            board.ranker.routes(batch, self._clock())

    def check_player_may_submit(self, batch: Batch, player_id: str) -> None:
        """Raise Forbidden unless a player may submit a checked batch: their own plays, which feed boards, all of them
        with `submit = "players"`. A server's board whose window opens within a minute counts as open."""
        if any(other != player_id for other in batch.player_ids):
            raise Forbidden("players submit their own plays only: player_id must be the one of the token")
        rankers = [board.ranker for board in list(self._state.boards.values())]
        defined = self._state.definition.boards
        rankers += [Ranker(name, defined[name]) for name in self._state.building if name in defined]
        now = self._clock()
        fed: set[int] = set()
        for ranker in rankers:
            routes = ranker.routes(batch, now)
            if ranker.definition.submit == "players":
                fed.update(row for route in routes for row in route.rows)
            elif routes or ranker.routes(batch, now + ACCEPTED_WITHIN_US):
                raise Forbidden(f"board {ranker.name} takes submissions from the game's server only")
        if len(fed) < len(batch):
            raise Forbidden("the submission feeds no board that players may submit to")

    # --- the log --------------------------------------------------------------------------------------------

    async def submission(self, submission_id: str) -> Submission:
        """A submission by its id. NotFound if there is none, or it was erased."""
        check_ids([submission_id], "submission_id", self.limits.id_bytes_max)
        place = await self._store.find_submission(self.name, submission_id)
        found = None if place is None else (await self._store.submissions(self.name, [place]))[0]
        if found is None or (place_of_given_id(submission_id) is not None and found.submission_id != submission_id):
            raise NotFound("submission", submission_id)
        return found

    async def history(self, player_id: str, limit: int = 50, cursor: str | None = None) -> Page[Submission]:
        """A player's submissions, newest first. `cursor` is the `next` of the page before."""
        check_ids([player_id], "player_id", self.limits.id_bytes_max)
        if not 1 <= limit <= self.limits.page_rows_max:
            raise LimitExceeded("limit", limit, f"must be from 1 to {self.limits.page_rows_max}")
        before = None if cursor is None else self._history_place(player_id, cursor)
        found = await self._store.history(self.name, player_id, before, limit + 1)
        more = len(found) > limit
        token = None
        if more:
            token = self.cursors.to_text(self.name, player_id, found[limit - 1][0])
        return Page(items=[submission for _, submission in found[:limit]], next=token)

    def _history_place(self, player_id: str, cursor: str) -> int:
        game, player, place = self.cursors.from_text(cursor, tuple[str, str, int])
        if (game, player) != (self.name, player_id):
            raise InvalidCursor("cursor", cursor, "belongs to another player or game")
        return place

    async def submissions(self) -> AsyncIterator[list[Submission]]:
        """The whole log of the game in order, in pieces, as of the moment of the call."""
        async for piece in self._store.log(self.name):
            yield [submission for _, submission in piece]

    # --- players and display attributes ---------------------------------------------------------------------

    async def describe(self, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Set what is displayed for players (field "player_id", attribute "name") or for values of a dimension.
        Replaces what was set for these values before."""
        check_ids(
            list(attributes), field, self.limits.id_bytes_max if field == "player_id" else self.limits.text_bytes_max
        )
        for value, some in attributes.items():
            texts = [text for pair in some.items() for text in pair]
            check_texts(texts, f"{field}[{value}]", self.limits.attributes_bytes_max)
            if sum(len(text.encode()) for text in texts) > self.limits.attributes_bytes_max:
                rule = f"attributes have at most {self.limits.attributes_bytes_max} bytes"
                raise LimitExceeded(f"{field}[{value}]", len(texts), rule)
        await self._store.describe(self.name, field, attributes)

    async def descriptions(self, field: str, values: Sequence[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""
        return await self._store.descriptions(self.name, field, values)

    async def player(self, player_id: str) -> Player:
        """What is known of a player apart from plays. NotFound if the game has never heard of them."""
        check_ids([player_id], "player_id", self.limits.id_bytes_max)
        attributes = (await self.descriptions("player_id", [player_id])).get(player_id)
        if attributes is None and not await self._store.history(self.name, player_id, None, 1):
            raise NotFound("player", player_id)
        attributes = attributes or {}
        return Player(
            player_id=player_id,
            name=attributes.pop("name", None),
            attributes=attributes,
            banned=player_id in self._state.banned,
        )

    async def standings(self, player_id: str) -> list[Standing]:
        """A player's entries across boards, each with its rank."""
        check_ids([player_id], "player_id", self.limits.id_bytes_max)
        boards = {board.id: board for board in self._state.boards.values()}
        written = await self._store.read(self._store.reader.instances_of_player, player_id)
        places = {(board_id, place_from_key(key)): None for board_id, key in written if board_id in boards}
        for board in boards.values():
            for instance in self._indexes.of_board(board):
                if instance.index.rank(player_id) is not None:
                    places[board.id, instance.place] = None
        found = []
        for board_id, place in places:
            board = boards[board_id]
            if not board.ranker.is_kept(place, self.instant(None)):
                continue
            at = None if place.window_start is None else from_us(place.window_start)
            partition = dict(zip(board.ranker.partition, place.partition, strict=True))
            try:
                found.append(await BoardInstance(self, board.name, at, partition).entry(player_id))
            except NotFound:
                continue  # removed meanwhile
        return found

    # --- boards ---------------------------------------------------------------------------------------------

    def board(self, name: str, /, *, at: datetime | None = None, **partition: Any) -> BoardInstance:
        """One instance of a board: its partition's values by name, and, with windows, the one that holds `at` (now, if
        not given). NotFound if there is no such board."""
        if at is not None and at.tzinfo is None:
            raise InvalidInput("at", at, "must be a datetime with a time zone")
        if name not in self._state.boards:
            self.board_info(name)
        return BoardInstance(self, name, at, partition)

    def boards(self) -> list[BoardInfo]:
        """All boards, ready or being built."""
        return [self.board_info(name) for name in sorted({*self._state.boards, *self._state.building})]

    def board_info(self, name: str) -> BoardInfo:
        """A board as it stands."""
        board = self._state.boards.get(name)
        progress = self._state.building.get(name)
        if board is None and progress is None:
            if name in self._failed:
                raise self._failed[name]
            raise NotFound("board", name, f"game {self.name} has {sorted(self._state.boards)}")
        definition = self._state.definition.boards[name] if board is None else board.saved.definition
        return BoardInfo(
            name=name,
            definition=definition,
            version=0 if board is None else board.saved.version,
            ready=board is not None,
            progress=1.0 if progress is None else progress,
        )

    async def instances(self, board_name: str) -> list[InstanceInfo]:
        """The instances of a board that have entries, with how many."""
        board = await self.ready_board(board_name)
        counts = {
            place_from_key(key): count
            for key, count in (await self._store.read(self._store.reader.count_entries, board.id)).items()
        }
        for instance in self._indexes.of_board(board):
            counts[instance.place] = len(instance.index)
        now = self.instant(None)
        found = [
            InstanceInfo(instance=board.ranker.instance_name(place), entries=count)
            for place, count in counts.items()
            if count and board.ranker.is_kept(place, now)
        ]
        return sorted(found, key=lambda info: msgspec.json.encode(info.instance, order="deterministic"))

    async def define_board(self, name: str, definition: Board, progress: Progress | None = None) -> BoardInfo:
        """Define a board, or change it. It is built from all submissions while new ones flow in, and shown when it is
        complete; until then an earlier definition stays. `progress(done, total)` counts segments of the log."""
        definition = Ranker(name, definition).definition  # raises if it makes no sense
        current = self._state.boards.get(name)
        if current is not None and current.saved.definition == definition and name not in self._state.building:
            return self.board_info(name)
        if name in self._state.building:
            raise Conflict(f"board {name} is being built; wait until it is ready")
        if current is not None and current.ranks_like(definition):
            await self._describe_board(current, definition)
            return self.board_info(name)
        if current is None and len(self._state.boards) >= self.limits.boards_per_game_max:
            raise LimitExceeded("boards", name, f"a game has at most {self.limits.boards_per_game_max}")
        self._state.building[name] = 0.0
        self._ready[name] = asyncio.Event()
        before = self._state.definition
        try:
            await self._define({**before.boards, name: definition})
            await self._build(name, definition, progress)
        except LaurelsError as error:  # whoever reads the board is told, and an earlier definition stays
            self._failed[name] = error
            with suppress(StoreError):
                await self._define(before.boards)
            raise
        finally:
            self._state.building.pop(name, None)
            self._ready.pop(name).set()
        self._failed.pop(name, None)
        return self.board_info(name)

    async def _describe_board(self, board: LiveBoard, definition: Board) -> None:
        """A definition that ranks as the board does: its entries stay as they are."""
        saved = msgspec.structs.replace(board.saved, definition=definition)
        before = self._state.definition
        try:
            await self._define({**before.boards, board.name: definition})
            await self._store.update_board(saved, lambda: board.describe(saved))
        except LaurelsError:
            with suppress(StoreError):
                await self._define(before.boards)
            raise

    async def _define(self, boards: dict[str, Board]) -> None:
        self._state.definition = msgspec.structs.replace(self._state.definition, boards=boards)
        await self._store.save_game(self.name, self._state.definition)

    async def _build(self, name: str, definition: Board, progress: Progress | None) -> None:
        """Work a board out from the log, near to its end beside the submissions, the rest between two groups; then have
        it written, and show it."""
        state, store = self._state, self._store
        loop = asyncio.get_running_loop()

        def report(done: int, total: int) -> None:
            state.building[name] = done / total if total else 1.0
            if progress is not None:
                loop.call_soon_threadsafe(progress, done, total)

        async def build() -> bool:
            saved = await store.save_board(self.name, name, definition)
            board = LiveBoard(saved)
            moderations = state.moderations
            replay = Replay(
                [board],
                lambda board, place: self._indexes.create(board, place).index,
                banned=set(state.banned),
                removals=await store.removals(self.name),
            )

            def replay_up_to(after: int, up_to: int) -> None:
                for segment in store.segments(after, up_to, self.name):
                    replay.apply(segment)
                    report(segment.seq, up_to)
                for instance in self._indexes.of_board(board):
                    self._indexes.touch(instance)

            def complete(seq: int) -> bool:
                if state.moderations != moderations:
                    return False
                replay_up_to(done, seq)
                return True

            def publish() -> None:
                replaced = state.boards.get(name)
                state.boards[name] = board
                if replaced is not None:
                    self._indexes.forget(self._indexes.of_board(replaced))

            try:
                done = 0
                last = await store.read(store.reader.last_seq)
                while last - done > CATCH_UP_SEGMENTS:
                    await store.read(replay_up_to, done, last)
                    done, last = last, await store.read(store.reader.last_seq)
                return await store.publish_board(saved, complete, publish)
            finally:
                if state.boards.get(name) is not board:
                    self._indexes.forget(self._indexes.of_board(board))

        while not await build():
            pass  # a ban or a removal meanwhile: it starts over, as a version of its own, with nothing of the first try

    async def drop_board(self, name: str) -> None:
        """Forget a board. The submissions stay, so that it can be defined again."""
        if name in self._state.building:
            raise Conflict(f"board {name} is being built; wait until it is ready")
        self.board_info(name)
        await self._define({key: value for key, value in self._state.definition.boards.items() if key != name})

        def publish() -> None:
            board = self._state.boards.pop(name, None)
            if board is not None:
                self._indexes.forget(self._indexes.of_board(board))

        await self._store.drop_board(self.name, name, publish)

    # --- moderation -----------------------------------------------------------------------------------------

    async def remove_entry(self, board_name: str, place_of: Callable[[LiveBoard], Place], player_id: str) -> bool:
        """Remove a player's entry from an instance: their submissions so far no longer count there."""
        check_ids([player_id], "player_id", self.limits.id_bytes_max)
        board = await self.ready_board(board_name)
        place = place_of(board)

        def removed() -> None:
            self._state.moderations += 1
            self._indexes.forget_player(player_id, lambda instance: instance.board is board and instance.place == place)

        return await self._store.remove_entry(self.name, board_name, board.id, place, player_id, removed)

    def banned(self) -> list[str]:
        """Who is banned."""
        return sorted(self._state.banned)

    async def ban(self, player_id: str, reason: str = "") -> None:
        """Hide a player from all boards. Their submissions stay in the log, and further ones are accepted into it."""
        check_ids([player_id], "player_id", self.limits.id_bytes_max)
        check_texts([reason], "reason", self.limits.text_bytes_max)

        def banned() -> None:
            self._state.banned.add(player_id)
            self._hide(player_id)

        await self._store.ban(self.name, player_id, reason, banned)

    async def unban(self, player_id: str) -> None:
        """Show a player again, as if never hidden. NotFound if they are not banned."""
        if player_id not in self._state.banned:
            raise NotFound("ban", player_id)
        restored: list[tuple[LiveBoard, Place, list[int], int]] = []

        def restore() -> tuple[list[NewInstance], list[Entries]]:
            store = self._store
            newest = store.latest_place(self.name, player_id)
            history = store.reader.history(self.name, newest, 2**62)[::-1]
            boards = list(self._state.boards.values())
            removals = store.reader.removals(self.name, player_id)
            restored[:] = entries_of_player(boards, history, removals)
            entries = [
                Entries(
                    self._indexes.create(board, place).id, [player_id], [[term] for term in terms], [latest], [False]
                )
                for board, place, terms, latest in restored
            ]
            return self._indexes.new_instances(), entries

        def unbanned() -> None:
            self._state.banned.discard(player_id)
            self._state.moderations += 1
            for board, place, terms, latest in restored:
                instance = self._indexes.create(board, place)
                instance.index.merge([player_id], [[term] for term in terms], [latest])
                self._indexes.touch(instance)

        await self._store.unban(self.name, player_id, restore, unbanned)

    async def remove_player(self, player_id: str) -> int:
        """Erase everything that is kept of a player: submissions, entries, names. How many submissions that were.

        That their submission ids were used stays known, as hashes, so that a late repeat does not bring one back.
        """
        check_ids([player_id], "player_id", self.limits.id_bytes_max)

        def removed() -> None:
            self._state.banned.discard(player_id)
            self._hide(player_id)

        return await self._store.remove_player(self.name, player_id, removed)

    def _hide(self, player_id: str) -> None:
        """Take a player out of all instances in memory; the store has done so with what it keeps."""
        self._state.moderations += 1
        self._indexes.forget_player(player_id, lambda instance: instance.board.game == self.name)

    # --- for reads ------------------------------------------------------------------------------------------

    def instant(self, at: datetime | None) -> int:
        """An instant in microseconds; now, if not given."""
        return self._clock() if at is None else to_us(at)

    def partition(self, values: Mapping[str, Any]) -> dict[str, DimensionValue]:
        """Values of dimensions in their canonical form."""
        declared = self._state.definition.dimensions
        return {
            name: checked_dimension(value, name, declared.get(name), self.limits)
            for name, value in values.items()
            if value is not None
        }

    def partition_from_texts(self, texts: Mapping[str, str]) -> dict[str, DimensionValue]:
        """Values of dimensions written as text, by their declared types: a set's items are separated by commas."""
        return {name: self._from_text(name, text) for name, text in texts.items()}

    def _from_text(self, name: str, text: str) -> DimensionValue:
        declared = self._state.definition.dimensions.get(name)
        kind = "text" if declared is None else declared.type
        if kind == "set":
            return frozenset(item for item in text.split(",") if item)
        if kind == "integer":
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
                raise InvalidInput(name, text, "must be an integer")
            return int(text)
        if kind == "boolean":
            values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            if text.lower() not in values:
                raise InvalidInput(name, text, "must be true or false")
            return values[text.lower()]
        return text

    def live_board(self, name: str) -> LiveBoard:
        """A board that can be read now. NotReady while it is built, NotFound if there is none."""
        board = self._state.boards.get(name)
        if board is not None:
            return board
        self.board_info(name)
        raise NotReady(f"board {name} is being built: {self._state.building[name]:.0%}")

    def board_at_hand(self, name: str) -> LiveBoard | None:
        """A board, if it can be read now."""
        return self._state.boards.get(name)

    def instance_at_hand(self, board: LiveBoard, place: Place) -> Instance | None:
        """An instance, if it is in memory, and no other process can have changed it."""
        return None if self._store.read_only else self._indexes.resident(board, place)

    async def ready_board(self, name: str) -> LiveBoard:
        """The same, waiting a while for a board that is being built."""
        event = self._ready.get(name)
        if event is not None and name not in self._state.boards:
            with suppress(TimeoutError):  # live_board says how far it is
                await asyncio.wait_for(event.wait(), LOAD_WAIT_S)
        return self.live_board(name)

    def resident(self, board: LiveBoard, place: Place) -> Instance | None:
        """An instance, if it is in memory."""
        return self._indexes.resident(board, place)

    def left_version(self, board: LiveBoard, place: Place) -> int:
        """The version that an instance had when it last left memory other than it had come; 0 if it never did."""
        return self._indexes.left_version(board, place)

    @property
    def moderated(self) -> int:
        """Grows when instances that are not in memory may have changed, and when a player is erased."""
        return self._indexes.moderated

    def newest_place(self, player_id: str) -> int:
        """The place of a player's newest submission as far as memory tells: it may still be on its way into the log. -1
        if memory knows of none."""
        return self._store.players(self.name).last_places([player_id])[0]

    async def newest(self, player_id: str, limit: int) -> list[tuple[int, Submission]]:
        """A player's newest submissions with their places, newest first."""
        return await self._store.history(self.name, player_id, None, limit)

    async def open_instance(self, board: LiveBoard, place: Place) -> Instance | None:
        """An instance, read from the store if need be. NotReady if that takes too long; it goes on meanwhile."""
        await self._store.refresh()
        instance = self._indexes.resident(board, place)
        if instance is not None:
            return instance
        loading = asyncio.ensure_future(self._store.read(self._indexes.open, board, place))
        try:
            return await asyncio.wait_for(asyncio.shield(loading), LOAD_WAIT_S)
        except TimeoutError:
            raise NotReady(f"board {board.name} is being loaded") from None

    async def details(
        self, instance: Instance, player_ids: list[str]
    ) -> tuple[dict[str, str | None], Sequence[Submission | None]]:
        """Names and the submissions that count, of players with entries in an instance."""
        pending = instance.index.pending_places(player_ids)
        reader = self._store.reader

        def fetch() -> tuple[dict[str, str | None], list[Submission | None]]:
            behind = [player_id for player_id, place in zip(player_ids, pending, strict=True) if place < 0]
            written = reader.entry_places(instance.id, behind) if behind else {}
            places = [
                written.get(player_id, -1) if place < 0 else place
                for player_id, place in zip(player_ids, pending, strict=True)
            ]
            names = reader.descriptions(self.name, "player_id", player_ids)
            return (
                {player_id: some.get("name") for player_id, some in names.items()},
                reader.submissions(self.name, places),
            )

        return await self._store.read(fetch)
