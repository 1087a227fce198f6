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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from msgspec import Struct

from laurels.batch import Batch
from laurels.boards import Place, unscaled
from laurels.model import Board, EntryChange, GameDefinition, InstanceName, Submission

T = TypeVar("T")
Progress = Callable[[int, int], None]

ROW_BITS = 10
SEGMENT_ROWS_MAX = 1 << ROW_BITS


def place_of(seq: int, row: int) -> int:
    """The place of a row of a segment: it grows along the log."""
    return seq << ROW_BITS | row


@dataclass(slots=True)
class Segment:
    """Consecutive submissions of one game, committed together. Row r of the log was accepted at `accepted_at` + r
    microseconds; the batch starts with row `first_row`."""

    seq: int
    game: str
    accepted_at: int
    batch: Batch
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def first_place(self) -> int:
        """The place of the batch's first row."""
        return place_of(self.seq, self.first_row)


class Effect(Struct, frozen=True, kw_only=True):
    """What the rows of a segment did to one board instance, as columns (see `_native.Outcome`)."""

    instance: InstanceName
    scale: int
    rows: list[int]
    counted: list[bool]
    old_values: list[int | None]
    new_values: list[int | None]
    old_ranks: list[int | None]
    new_ranks: list[int | None]
    old_positions: list[int | None]
    new_positions: list[int | None]
    totals: list[int]

    def change(self, row: int) -> EntryChange | None:
        """The effect of one row of the segment, None if it did not feed this instance."""
        at = bisect_left(self.rows, row)
        if at == len(self.rows) or self.rows[at] != row:
            return None
        old, new = self.old_values[at], self.new_values[at]
        return EntryChange(
            instance=self.instance,
            counted=self.counted[at],
            old_score=None if old is None else unscaled(old, self.scale),
            new_score=None if new is None else unscaled(new, self.scale),
            old_rank=self.old_ranks[at],
            new_rank=self.new_ranks[at],
            old_position=self.old_positions[at],
            new_position=self.new_positions[at],
            total=self.totals[at],
        )


class Outcome(Protocol):
    """What a segment did. Columns are made when asked for, so that a bulk load that asks for nothing pays nothing."""

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
    """Everything small that the store keeps: games, boards, bans."""

    games: dict[str, GameDefinition]
    boards: list[SavedBoard]
    bans: dict[str, set[str]]


class Removal(Struct, frozen=True):
    """A player's submissions up to `place` do not count in one instance of a board."""

    game: str
    board: str
    instance: Place
    player_id: str
    place: int


class Feed(Protocol):
    """Who takes what is committed, in order, and knows the entries that are not yet written. Called by the store's
    writer only."""

    def admit(self, segments: Sequence[Segment]) -> None:
        """Raise InvalidInput if these can't be applied, one after the other (a sum would overflow)."""

    def apply(self, segment: Segment) -> Outcome:
        """Apply a durable segment. Applying it again changes nothing."""

    def unwritten_count(self) -> int:
        """How many entries changed since they were last written."""

    def unwritten(self) -> tuple[list[NewInstance], list[Entries]]:
        """All of them, in the order of their keys, and the instances that the store must learn first."""

    def written(self, instances: Sequence[NewInstance], entries: Sequence[Entries]) -> None:
        """These are durable now."""

    def expired(self, now_us: int) -> list[tuple[int, int]]:
        """(board, oldest window start still kept) of each board that keeps only some windows."""


class Store(Protocol):
    """Where data rests. Opened with `open_store`; used by one event loop; closed once."""

    read_only: bool

    async def close(self) -> None:
        """Write what is behind, then let go of the engine."""

    # The log
    async def submit(self, game: str, batch: Batch) -> Accepted:
        """Commit a checked batch and have it applied. Durable when it returns."""

    async def submissions(self, game: str, places: Sequence[int]) -> list[Submission | None]:
        """Submissions by place; None for one that was erased."""

    async def find_submission(self, game: str, submission_id: str) -> int | None:
        """The place of a submission, None if the game has none of that id."""

    async def history(self, game: str, player_id: str, before: int | None, limit: int) -> list[tuple[int, Submission]]:
        """A player's submissions with their places, newest first, from before a place."""

    def log(self, game: str, after_place: int = -1) -> AsyncIterator[list[tuple[int, Submission]]]:
        """All submissions of a game in order, in pieces, as of the moment of the call."""

    # Definitions
    def catalog(self) -> Catalog:
        """Games, boards and bans as they are kept."""

    async def save_game(self, name: str, definition: GameDefinition) -> None:
        """Create or change a game (its boards are saved one by one)."""

    # Moderation
    async def describe(self, game: str, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Set the display attributes of players or of a dimension's values."""

    async def descriptions(self, game: str, field: str, values: Iterable[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""

    # Upkeep
    async def backup(self, path: str, progress: Progress | None = None) -> None:
        """A complete copy, consistent at one moment, while work goes on."""


class OwnerNote(Struct, frozen=True):
    """Who owns a file: told to whoever else tries."""

    pid: int
    host: str
    since: datetime
    command: str
