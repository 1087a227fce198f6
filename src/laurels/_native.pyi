"""The native kernel: interned player ids and the rank index of one board instance.

Integers travel in columns: a ``list[int]``, or any C-contiguous buffer of signed 64-bit integers
(``array('q')``, a numpy ``int64`` array). Ranks and positions are 1-based everywhere. A *place* is the
position of a submission in the log: a non-negative integer that grows with every submission.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from typing_extensions import Buffer

Ints: TypeAlias = Sequence[int] | Buffer

def are_texts(values: list[Any], least: int, most: int) -> bool:
    """Whether all values are plain `str` of `least` to `most` bytes in UTF-8."""

def are_submission_ids(values: list[Any], most: int) -> bool:
    """Whether each value is None or a plain `str` of 1 to `most` bytes in UTF-8 that does not start with @."""

def are_ints(values: list[Any]) -> bool:
    """Whether all values are plain `int` of signed 64 bits."""

class Ids:
    """Player ids, read once, for calls that take the same ones several times: `Players.chain`, `RankIndex.apply`."""

    def __init__(self, ids: Sequence[str]) -> None: ...
    def __len__(self) -> int: ...

class Players:
    """The player ids of one game, interned: every id is kept once and shared by all rank indexes of the game.

    Also remembers the place of each player's latest submission, which chains a player's history
    through the log. Safe to use from many threads.
    """

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def memory_bytes(self) -> int:
        """Bytes held: ids, table and places."""
    def load(self, ids: Sequence[str], places: Ints) -> None:
        """Intern ids and set the place of each one's latest submission (-1 for none); of a repeated id the last.
        A place that is settled and not yet written stays."""
    def last_places(self, ids: Sequence[str]) -> list[int]:
        """The place of each player's latest submission, -1 where there is none."""
    def chain(self, ids: Ids | Sequence[str], places: Ints) -> list[int]:
        """Record a submission of each player at the given places, in order, and return the place that each
        player's previous submission has (-1 for none). A player may occur several times: the second
        occurrence gets the first's place."""
    def settle(self) -> None:
        """What was chained since the last time stays, and is to be written."""
    def unchain(self) -> None:
        """Undo what was chained since the last `settle`."""
    def changed_place(self, player_id: str) -> int:
        """The place of a player's latest settled submission, -1 if there is none, or it is written."""
    def changes(self) -> Changes:
        """The players whose places are to be written."""
    def take(self, changes: Changes, limit: int) -> tuple[list[str], list[int]]:
        """Ids and places of the next `limit` of them, as they are now; without those that were written meanwhile."""
    def mark_clean(self, ids: Sequence[str], places: Ints) -> None:
        """These places were written."""
    def forget(self, player_id: str) -> None:
        """A player has no submission any more, and nothing to write."""
    def forget_places(self) -> None:
        """No player has a submission; the ids stay."""

class Changes:
    """Players in order of their ids (by UTF-8 bytes), whose changes are to be written. Taken slice by slice."""

    def __len__(self) -> int:
        """How many are left."""

class Rows:
    """Consecutive entries of a board instance, as columns in board order. Lists are made when asked for."""

    first_position: int
    @property
    def player_ids(self) -> list[str]: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def terms(self) -> list[list[int]]: ...
    def term(self, term: int) -> list[int]:
        """One of the terms, 0 being the first."""
    def __len__(self) -> int: ...

class Outcome:
    """What applying a batch of submissions did, row by row, as columns. Lists are made when asked for.

    Old and new describe the player's entry just before and just after the row was applied, rows being applied
    one after another. Without an entry before, `old_*` hold None. `total` is the number of entries after the row.
    A row that did not count leaves old equal to new.
    """

    def __len__(self) -> int: ...
    @property
    def counted(self) -> list[bool]: ...
    @property
    def old_values(self) -> list[int | None]: ...
    @property
    def new_values(self) -> list[int | None]: ...
    @property
    def old_ranks(self) -> list[int | None]: ...
    @property
    def new_ranks(self) -> list[int | None]: ...
    @property
    def old_positions(self) -> list[int | None]: ...
    @property
    def new_positions(self) -> list[int | None]: ...
    @property
    def totals(self) -> list[int]: ...
    def change(
        self, at: int
    ) -> tuple[bool, int | None, int | None, int | None, int | None, int | None, int | None, int]:
        """What one row did: counted, old and new value, old and new rank, old and new position, total."""
    def take(self, rows: list[int]) -> Outcome:
        """Some of the rows."""
    def pack(self, rows: Sequence[int]) -> bytes:
        """All of it as bytes, and a number for each row."""
    @staticmethod
    def unpack(data: bytes) -> tuple[list[int], Outcome]:
        """What `pack` was given. ValueError if these bytes are no such thing."""

class Pending:
    """Entries that changed since they were last marked clean, in order of player id (by UTF-8 bytes), as columns."""

    player_ids: list[str]
    terms: list[list[int]]  # 0 in every term of a removed entry
    places: list[int]
    removed: list[bool]
    def __len__(self) -> int: ...

class RankIndex:
    """The ranked entries of one board instance: an ordered set of (terms, player id), one entry a player.

    `descending` has one flag for each order term (1 to 5). Entries are ordered by their terms in turn, each
    ascending or descending, then by player id (UTF-8 bytes; descending if `player_descending`). Two entries tie when
    their first `tie_terms` terms are equal. `ranking` is "competition" (1,2,2,4), "dense" (1,2,2,3) or
    "ordinal" (rank = position). `policy` says what a further submission of a player does to the entry:

    best   it replaces the entry if it stands strictly before it in the order (terms only)
    last   it replaces the entry if its place is higher
    first  it counts only if there is no entry
    sum    its `value_term` is added to the entry's; the other terms are replaced; only if its place is higher
    count  the same with 1 instead of its value
    min    it replaces the entry if its `value_term` is strictly smaller
    max    the same, strictly greater

    One writer and any number of readers may use it at once: each call sees a consistent state. Batches may be split
    into short critical sections, so that readers are not kept waiting. The GIL is released in batch calls.
    """

    def __init__(
        self,
        players: Players,
        *,
        descending: Sequence[bool],
        tie_terms: int,
        player_descending: bool,
        policy: str,
        value_term: int,
        ranking: str,
    ) -> None: ...
    def __len__(self) -> int: ...
    def memory_bytes(self) -> int:
        """Bytes held by this index, without the shared `Players`."""

    # Writing
    def load(self, ids: Sequence[str], terms: Sequence[Ints], places: Ints) -> None:
        """Replace the contents by these entries (each id once, any order). Nothing becomes pending.
        ValueError if an id occurs twice."""
    def load_rows(self, portions: Iterable[list[tuple[Any, ...]]]) -> None:
        """The same from rows (player id, place, term, term, ...) as a database hands them out, in lists of some
        thousands: one list is taken at a time, and the next is asked for when it has been."""
    def apply(self, ids: Ids | Sequence[str], terms: Sequence[Ints], places: Ints) -> Outcome:
        """Apply submissions in turn, by the policy. Places grow from row to row. A changed entry becomes pending
        with the row's place. Applying a row again changes nothing (last, sum and count compare places).
        OverflowError, before anything is changed, if a sum would leave 64 bits."""
    def sum_overflow(self, ids: Sequence[str], values: Ints) -> int | None:
        """The first row whose value, added in turn to the players' sums, would leave 64 bits; None if all fit."""
    def merge(self, ids: Sequence[str], terms: Sequence[Ints], places: Ints) -> list[bool]:
        """Take over committed entries from elsewhere, in any order and any number of times: for best, min, max the
        better one stays, for first the lower place, else the higher place. Says which rows changed something.
        Nothing becomes pending, and what it changed is pending no more."""
    def remove(self, ids: Sequence[str], places: Ints) -> list[bool]:
        """Remove the players' entries; says which were there. Those become pending as removed."""
    def clear(self) -> None:
        """Remove everything, pending included."""

    # Written behind
    def pending_count(self) -> int: ...
    def pending(self, limit: int | None = None) -> Pending:
        """The entries not yet written (at most `limit` of them, lowest ids first)."""
    def changes(self) -> Changes:
        """The players whose entries are not yet written."""
    def take(self, changes: Changes, limit: int) -> Pending:
        """The entries of the next `limit` of them, as they are now; without those that were written meanwhile."""
    def pending_places(self, ids: Sequence[str]) -> list[int]:
        """The place of each player's unwritten entry, -1 where there is none or it is removed."""
    def mark_clean(self, ids: Sequence[str], places: Ints) -> None:
        """Entries were written with these places; those that changed since stay pending."""

    # Reading
    def rank(self, player_id: str) -> tuple[int, int] | None:
        """(rank, position) of a player. O(log n)."""
    def entry(self, player_id: str) -> tuple[int, int, tuple[int, ...]] | None:
        """(rank, position, terms) of a player. O(log n)."""
    def ranks(self, ids: Sequence[str]) -> tuple[list[int], list[int]]:
        """Ranks and positions of many players, 0 where a player has no entry, seen at one moment."""
    def entries(self, ids: Sequence[str]) -> tuple[list[int], list[int], list[list[int]]]:
        """Ranks, positions and term columns of many players, 0 where a player has no entry, seen at one moment."""
    def rows(self, first_position: int, limit: int) -> Rows:
        """Up to `limit` entries from a position (1-based). Empty beyond the end. O(log n + limit)."""
    def around(self, player_id: str, limit: int) -> Rows | None:
        """`limit` consecutive entries with the player in the middle, shifted at the edges so that there are
        `limit` of them if the board has as many. With an even limit the player has one more below than above:
        limit 4 around position 5 is 4 to 7; around 1 or 2 it is 1 to 4; around the last of 10 it is 7 to 10."""
    def after(self, terms: Sequence[int], player_id: str, limit: int) -> Rows:
        """The first `limit` entries strictly after a place in the order, which need not be taken."""
    def before(self, terms: Sequence[int], player_id: str, limit: int) -> Rows:
        """The last `limit` entries strictly before a place in the order, in board order."""
    def count_before(self, prefix: Sequence[int]) -> int:
        """How many entries stand before the first entry whose leading terms equal `prefix` (or would)."""
    def count_through(self, prefix: Sequence[int]) -> int:
        """How many entries stand before or share the leading terms `prefix`."""
    def check(self) -> None:
        """Prove every invariant; AssertionError with what is wrong. O(n log n)."""

class PackedRows:
    """Columns of equal length, at most 65,536 rows, packed into bytes: a segment of the log. A value is text, a signed
    64-bit int, a bool, a Decimal, a frozenset of text or None, and is made anew when it is asked for."""

    names: list[str]
    erased: list[int]  # rows whose values are gone, in order
    @staticmethod
    def pack(columns: list[tuple[str, list[Any]]]) -> bytes:
        """Named columns as bytes."""
    def __init__(self, data: bytes) -> None:
        """From what `pack` or `without` made. ValueError if these bytes are no such thing; it may come only when a
        damaged value is asked for."""
    def __len__(self) -> int:
        """How many rows there are, the erased ones included."""
    def row(self, row: int) -> list[Any] | None:
        """The values of one row, one for each column; None if it was erased."""
    def columns(self, start: int, stop: int) -> list[list[Any]]:
        """The columns of the rows from `start` to before `stop`, of which none may be erased."""
    def without(self, rows: list[int]) -> bytes:
        """As bytes, with these rows erased too."""

def merge_places(chunk: bytes | None, ids: list[str], places: list[int]) -> list[tuple[str, bytes]]:
    """A chunk of the places of players' latest submissions, packed in order of their ids (columns player_id and place),
    once those of some have changed (-1: is gone): as one chunk or several, each with its first id."""

class IdRun:
    """A sorted run of submission ids on its way to the store. Keys and places are big-endian bytes, 16 and 8 each."""

    least: bytes
    greatest: bytes
    filter: bytes
    def __len__(self) -> int: ...
    def chunks(self, first: int, limit: int) -> list[tuple[bytes, bytes, bytes]]:
        """Up to `limit` chunks (first key, keys, places) from one on."""

class SubmissionIds:
    """The submission ids of one game and their places in the log: recent ones in memory, older ones in sorted runs that
    the store keeps. Memory holds a filter of each run, 2 bytes an id, that tells where to look."""

    def __init__(self) -> None: ...
    @property
    def recent_count(self) -> int: ...
    def memory_bytes(self) -> int: ...
    @staticmethod
    def key(id: str) -> bytes:
        """The 16-byte key of an id: the value of a canonical lower-case UUID, else a hash."""
    @staticmethod
    def search(keys: bytes, places: bytes, key: bytes) -> int:
        """The place of a key in one chunk of a run, -1 if it isn't there."""
    def find(self, ids: list[str | None]) -> tuple[list[int], list[tuple[int, int]]]:
        """For each id its place, -1 if memory doesn't know it; and (row, run) for each run that may hold it."""
    def repeats(self, ids: list[str | None]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(row, place) of each id that memory knows, (row, ~first) of each that an earlier row `first` has; and
        (row, run) for each run that may hold one of the others."""
    def insert(self, ids: list[str | None], first_place: int) -> None:
        """Remember ids; row i has place `first_place` + i."""
    def freeze(self) -> IdRun:
        """The recent ids as a run for the store to keep; with those of an earlier `freeze` that nothing came of."""
    def adopt(self, number: int, run: IdRun, replaced: list[int]) -> None:
        """The store has committed a run: it stands for the ids frozen last, or for the runs that it replaces."""
    def add_run(self, number: int, least: bytes, greatest: bytes, filter: bytes) -> None:
        """Take up a run that the store has kept."""
    def absorb(self, keys: bytes, places: bytes) -> None:
        """Remember the keys of a chunk of a run, to look many ids up in memory."""
    @staticmethod
    def merge(chunks: Iterable[tuple[bytes, bytes]]) -> IdRun:
        """One run from the chunks (keys, places) of several."""
