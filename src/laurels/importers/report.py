"""What importers share: the report of an import, what they need of a game, and how they hand batches over."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from laurels.batch import Batch
from laurels.errors import ImportFailed, InvalidInput

# done, total: how many submissions of the file have been handed over, and how many there are.
Progress: TypeAlias = Callable[[int, int], None]


Row = TypeVar("Row")
ROWS_PER_BATCH = 1_000


class BadRow(Struct, frozen=True):
    """A row that was skipped: its number or id in the file (None: of the file as a whole), and what is wrong."""

    row: int | None
    reason: str


class ImportReport(Struct, kw_only=True):
    """What an import did. Every row of the source is counted once:
    `rows` = `submitted` + `repeated` + what was left out + what was skipped.

    source     the file or server
    submitted  rows that were accepted now
    repeated   rows whose submission_id was known already: nothing changed
    left_out   sound rows that don't count by the rules of the source, by reason
    skipped    bad rows; without `skip_bad` the first of them ends the import before anything is submitted
    notes      what was assumed, for a human
    """

    source: str
    rows: int = 0
    submitted: int = 0
    repeated: int = 0
    left_out: dict[str, int] = {}
    skipped: list[BadRow] = []
    notes: list[str] = []


class Accepted(Protocol):
    """The answers to a batch, as far as importers look at them."""

    @property
    def repeated(self) -> Sequence[bool]:
        """By row: its submission_id was known already, nothing changed."""


class Game(Protocol):
    """The game that an import goes to."""

    async def describe(self, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Set what is displayed for players or values of a dimension."""

    async def submit_batch(self, batch: Batch) -> Accepted:
        """Submit columns, all or none."""


class RowError(Exception):
    """A row of a source is wrong, with the reason."""


def check_rows(
    rows: Iterator[tuple[int, Row]], check: Callable[[list[Row]], None], report: ImportReport, skip_bad: bool
) -> None:
    """Check numbered rows, many at a time. The first bad one raises ImportFailed, or all are listed in the report.
    `check` raises RowError or InvalidInput."""
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        report.rows += len(chunk)
        try:
            check([row for _, row in chunk])
        except (RowError, InvalidInput):
            for number, row in chunk:  # one of them: find it
                try:
                    check([row])
                except (RowError, InvalidInput) as error:
                    if not skip_bad:
                        raise ImportFailed(report.source, number, str(error)) from error
                    report.skipped.append(BadRow(number, str(error)))


async def hand_over(
    game: Game, batches: Iterator[Batch], report: ImportReport, total: int, progress: Progress | None
) -> None:
    """Submit batches as they are read, on another thread, and count them in the report."""
    done = 0
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        repeated = sum((await game.submit_batch(batch)).repeated)
        report.repeated += repeated
        report.submitted += len(batch) - repeated
        done += len(batch)
        if progress is not None:
            progress(done, total)
