"""The one interface that every engine implements, and what it guarantees.

Atomicity   A batch is committed whole or not at all. An answer means that it is durable.
Idempotency A submission_id counts once, for ever. A repeat, at the same moment or after a restart, gets the first
            answer.
Order       The log has one order: the place of a submission grows with its acceptance, and `accepted_at` never runs
            backwards, whatever the machine's clock does. The feed applies submissions in this order.
Visibility  Nothing is applied before it is durable. A submission is applied before it is acknowledged, so whoever has
            the answer reads it in every board.
Faults      An engine that fails raises a `StoreError`. The submission was then either committed or not, and the caller
            finds out by sending it again with the same submission_id.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from laurels._native import Ids, Players, SubmissionIds
from laurels._native import Outcome as Changes
from laurels.auth import KeptKey
from laurels.batch import Batch
from laurels.boards import Place, unscaled
from laurels.errors import LaurelsError
from laurels.model import Board, EntryChange, GameDefinition, InstanceName, Submission

T = TypeVar("T")
Progress = Callable[[int, int], None]

ROW_BITS = 10
SEGMENT_ROWS_MAX = 1 << ROW_BITS


def place_of(seq: int, row: int) -> int:
    """The place of a row of a segment: it grows along the log."""
    return seq << ROW_BITS | row


def given_id(place: int) -> str:
    """The submission id that the server gives: it says where the row lies."""
    return f"@{place:x}"


def place_of_given_id(submission_id: str) -> int | None:
    """The place that a given id says, None for any other id."""
    digits = submission_id[1:]
    if submission_id[:1] != "@" or not 1 <= len(digits) <= 15 or _canonical_digits(digits) != digits:
        return None
    return int(digits, 16)


def _canonical_digits(digits: str) -> str | None:
    """Canonical digits, so that one submission has one id."""
    try:
        return f"{int(digits, 16):x}"
    except ValueError:
        return None


def seq_and_row(place: int) -> tuple[int, int]:
    """The segment and row of a place."""
    return place >> ROW_BITS, place & ((1 << ROW_BITS) - 1)


@dataclass(slots=True)
class Segment:
    """Consecutive submissions of one game, committed together. Row r of the log was accepted at `accepted_at` + r
    microseconds; the batch starts with row `first_row`."""

    seq: int
    game: str
    accepted_at: int
    batch: Batch
    first_row: int = 0
    _ids: Ids | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def ids(self) -> Ids:
        """The batch's player ids, as the kernel has read them."""
        if self._ids is None:
            self._ids = Ids(self.batch.player_ids)
        return self._ids

    @property
    def places(self) -> range:
        """The places of the batch's rows."""
        return range(self.first_place, self.first_place + len(self.batch))

    @property
    def first_place(self) -> int:
        """The place of the batch's first row."""
        return place_of(self.seq, self.first_row)


@dataclass(slots=True)
class Effect:
    """What rows of a segment did to one board instance: `changes` has one for each of `rows`."""

    instance: InstanceName
    scale: int
    rows: Sequence[int]
    changes: Changes

    def change(self, row: int) -> EntryChange | None:
        """The effect of one row of the segment, None if it did not feed this instance."""
        at = bisect_left(self.rows, row)
        if at == len(self.rows) or self.rows[at] != row:
            return None
        counted, old, new, old_rank, new_rank, old_position, new_position, total = self.changes.change(at)
        return EntryChange(
            instance=self.instance,
            counted=counted,
            old_score=None if old is None else unscaled(old, self.scale),
            new_score=None if new is None else unscaled(new, self.scale),
            old_rank=old_rank,
            new_rank=new_rank,
            old_position=old_position,
            new_position=new_position,
            total=total,
        )

    def take(self, kept: Sequence[int]) -> "Effect":
        """The effect of some of the rows, given by where they stand in `rows`."""
        return Effect(self.instance, self.scale, [self.rows[at] for at in kept], self.changes.take(list(kept)))


class Outcome(Protocol):
    """What a segment did. Looked into when asked for, so that a bulk load that asks for nothing pays nothing."""

    def effects(self) -> list[Effect]:
        """By board instance."""


@dataclass(slots=True)
class Accepted:
    """A batch that is in the log: the place and the instant (microseconds) of each row, whether it was there before,
    and what the rows did."""

    places: Sequence[int]
    accepted_at: Sequence[int]
    repeated: list[bool]
    outcomes: Mapping[int, Outcome]  # by seq

    def row(self, row: int) -> "Accepted":
        """The same of one row."""
        return Accepted((self.places[row],), (self.accepted_at[row],), [self.repeated[row]], self.outcomes)


@dataclass(slots=True)
class Entries:
    """Entries of one board instance as columns."""

    instance_id: int
    player_ids: list[str]
    terms: list[list[int]]
    places: list[int]
    removed: list[bool]


class NewInstance(Struct, frozen=True):
    """A board instance that the store does not know yet."""

    instance_id: int
    board_id: int
    place: Place


class SavedBoard(Struct, frozen=True, kw_only=True):
    """A version of a board as the store keeps it. `ready`: its entries cover the log up to where they are written."""

    board_id: int
    game: str
    name: str
    version: int
    definition: Board
    ready: bool


class Catalog(Struct, frozen=True, kw_only=True):
    """Everything small that the store keeps: games, boards, bans, keys."""

    games: dict[str, GameDefinition]
    boards: list[SavedBoard]
    bans: dict[str, set[str]]
    keys: list[KeptKey] = []


class Removal(Struct, frozen=True):
    """A player's submissions up to `place` do not count in one instance of a board."""

    game: str
    board: str
    instance: Place
    player_id: str
    place: int


class Unwritten(Protocol):
    """Changed entries on their way to the store. However many there are, they are handed over a slice at a time."""

    def sort(self) -> int:
        """Bring them into the order of their keys; how many there are. Takes its time: call it once, on any thread."""

    def take(self, rows: int) -> list[Entries]:
        """The next, up to so many rows, as they are now; nothing at the end. For the writer's thread."""


class Feed(Protocol):
    """Who takes what is committed, in order, and knows the entries that are not yet written. Called by the store's
    writer only."""

    def admit(self, segments: Sequence[Segment]) -> None:
        """Raise InvalidInput if these can't be applied, one after the other (a sum would overflow)."""

    def apply(self, segment: Segment) -> Outcome:
        """Apply a durable segment. Applying it again changes nothing."""

    def unwritten_count(self) -> int:
        """How many entries changed since they were last written."""

    def new_instances(self) -> list[NewInstance]:
        """The instances that the store must learn before it is given entries of theirs."""

    def unwritten(self) -> Unwritten:
        """The entries that changed since they were last written."""

    def written(self, instances: Sequence[NewInstance], entries: Sequence[Entries]) -> None:
        """These are durable now."""

    def expired(self, now_us: int) -> list[tuple[int, int]]:
        """(board, oldest window start still kept) of each board that keeps only some windows."""


class Reads(Protocol):
    """What is kept, read at once. Blocks, so it is called on a reader's thread (`Store.read`); safe on any thread."""

    def last_seq(self) -> int:
        """The seq of the newest segment, 0 if there is none."""

    def submissions(self, game: str, places: Sequence[int]) -> list[Submission | None]:
        """Submissions by place; None for one that was erased or is another game's."""

    def history(self, game: str, newest: int, limit: int) -> list[tuple[int, Submission]]:
        """A player's submissions with their places, from the place of one of them backwards."""

    def last_places(self, game: str) -> tuple[list[str], list[int]]:
        """Every player of a game and the place of their latest submission, as far as it is written."""

    def instance_id(self, board_id: int, place: Place) -> int | None:
        """The id of a board instance, None if none was written."""

    def last_instance_id(self) -> int:
        """The highest id of any instance, 0 if there is none."""

    def entries(self, instance_id: int, terms: int) -> Iterable[list[tuple[Any, ...]]]:
        """All written entries of an instance, in portions: player id, place, then so many terms."""

    def entry_places(self, instance_id: int, player_ids: Sequence[str]) -> dict[str, int]:
        """The places of the submissions that count, by player, as far as they are written."""

    def count_entries(self, board_id: int) -> dict[str, int]:
        """How many entries each written instance of a board has, by place key."""

    def instances_of_player(self, player_id: str) -> list[tuple[int, str]]:
        """(board, place key) of each instance in which a player has a written entry."""

    def removals(self, game: str, player_id: str | None = None) -> list[Removal]:
        """Removed entries of a game, or of one of its players."""

    def descriptions(self, game: str, field: str, values: Iterable[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""


class Store(Protocol):
    """Where data rests; used by one event loop, closed once. What raises, raises a StoreError."""

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""

    @property
    def reader(self) -> Reads:
        """What is kept."""

    @property
    def secret(self) -> bytes:
        """32 random bytes, made once for each store: what it gives out is signed with keys derived from them. A store
        that has none yet and is open read-only has some that last until it is closed."""

    def catalog(self) -> Catalog:
        """Games, boards, bans and keys as they are kept. Blocks."""

    def players(self, game: str) -> Players:
        """The interned player ids of a game, shared by its rank indexes."""

    def recover(self, feed: Feed) -> int:
        """Have the feed apply what was committed but not written behind; how many submissions. Blocks."""

    def start(self, reload: Callable[[], None]) -> None:
        """Answer requests from now on. Read-only, `reload` is called when another process has written."""

    async def close(self) -> None:
        """Answer what waits, write what is behind, let go of the engine."""

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run blocking work on a reader's thread."""

    def failure(self) -> LaurelsError | None:
        """Why nothing can be submitted any more until the store is opened again; None if it can."""

    @property
    def queued_rows(self) -> int:
        """How many submissions wait to be committed."""

    async def refresh(self) -> None:
        """Read-only: see what another process has written since the last read."""

    # The log
    async def submit(self, game: str, batch: Batch) -> Accepted:
        """Commit a checked batch and have it applied. Durable when it returns. Waits while too much is queued."""

    async def submissions(self, game: str, places: Sequence[int]) -> list[Submission | None]:
        """Submissions by place; None for one that was erased."""

    async def has_submissions(self, game: str) -> bool:
        """Whether a game's log holds anything."""

    async def find_submission(self, game: str, submission_id: str) -> int | None:
        """The place of a submission, None if the game has none of that id."""

    async def history(self, game: str, player_id: str, before: int | None, limit: int) -> list[tuple[int, Submission]]:
        """A player's submissions with their places, newest first, from before a place (one of theirs)."""

    def log(self, game: str, after_place: int = -1) -> AsyncIterator[list[tuple[int, Submission]]]:
        """All submissions of a game in order, in pieces, as of the moment of the call."""

    def segments(self, after_seq: int, up_to_seq: int | None = None, game: str | None = None) -> Iterator[Segment]:
        """Segments as columns, in order. Blocks."""

    def latest_place(self, game: str, player_id: str) -> int:
        """The place of a player's latest submission, -1 if there is none. Blocks."""

    def all_ids(self, game: str) -> tuple[SubmissionIds, int]:
        """The submission ids of a game that are kept apart from the log, and up to which segment they go. Blocks."""

    async def settled(self, work: Callable[[int], T]) -> T:
        """Call `work` with the newest seq, between two groups of submissions, with everything written behind."""

    # Definitions
    async def save_game(self, name: str, definition: GameDefinition) -> None:
        """Create or change a game (its boards are saved one by one)."""

    async def save_board(self, game: str, name: str, definition: Board) -> SavedBoard:
        """Keep a new version of a board, not yet ready."""

    async def update_board(self, board: SavedBoard, updated: Callable[[], None]) -> None:
        """Keep another definition of a version of a board, with the entries as they are, then call `updated`."""

    async def publish_board(
        self, board: SavedBoard, complete: Callable[[int], bool], publish: Callable[[], None]
    ) -> bool:
        """Between two groups of submissions: have a board completed up to the newest segment, keep that it is ready and
        its entries written, retire older versions, call `publish`. False, and nothing done, if `complete` says so."""

    async def drop_board(self, game: str, name: str, publish: Callable[[], None]) -> None:
        """Forget a board and its entries, then call `publish`. The submissions stay."""

    # Keys
    async def save_key(self, key: KeptKey) -> None:
        """Keep a key, in place of an earlier one of its id. Durable when it returns."""

    async def delete_key(self, key_id: str) -> bool:
        """Forget a key; whether there was one. Durable when it returns."""

    # Moderation and display; the last argument brings memory in line, between two groups
    async def remove_entry(
        self, game: str, board: str, board_id: int, place: Place, player_id: str, removed: Callable[[], None]
    ) -> bool:
        """A player's submissions so far no longer count in an instance; whether there was an entry."""

    async def ban(self, game: str, player_id: str, reason: str, banned: Callable[[], None]) -> None:
        """Hide a player from all boards of a game; their submissions stay in the log."""

    async def unban(
        self,
        game: str,
        player_id: str,
        restored: Callable[[], tuple[list[NewInstance], list[Entries]]],
        unbanned: Callable[[], None],
    ) -> None:
        """Show a player again, with the entries that `restored` works out from the log."""

    async def remove_player(self, game: str, player_id: str, removed: Callable[[], None]) -> int:
        """Erase everything kept of a player, the submissions in the log too; how many those were."""

    async def removals(self, game: str, player_id: str | None = None) -> list[Removal]:
        """Removed entries of a game, or of one of its players."""

    async def describe(self, game: str, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Set the display attributes of players or of a dimension's values."""

    async def descriptions(self, game: str, field: str, values: Iterable[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""

    # Upkeep
    async def backup(self, path: str, progress: Progress | None = None) -> None:
        """A complete copy, consistent at one moment, while work goes on. Conflict if `path` exists."""

    async def compact(self) -> None:
        """Give space that is no longer used back. Submissions wait meanwhile."""

    def damage(self) -> list[str]:
        """What the engine's own check finds wrong. Blocks."""


class OwnerNote(Struct, frozen=True):
    """Who owns a file: told to whoever else tries."""

    pid: int
    host: str
    since: datetime
    command: str
