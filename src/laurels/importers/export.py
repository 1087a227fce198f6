"""A game's submissions, or a board's entries, into JSONL or Parquet.

A file is written beside its final name and takes that name when it is complete. What JSONL holds, `import_table` reads
back; Parquet holds scores as integers, or as decimals where a score has any.
"""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import msgspec

from laurels.errors import InvalidInput
from laurels.model import Entry, Page, Submission

ENTRIES_PER_PAGE = 1_000
_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")


class Game(Protocol):
    """Where submissions come from."""

    def submissions(self) -> AsyncIterator[list[Submission]]:
        """The whole log in order."""


class Board(Protocol):
    """Where entries come from."""

    async def page(
        self, limit: int = 25, cursor: str | None = None, offset: int | None = None, *, details: bool = True
    ) -> Page[Entry]:
        """A page of the board."""


Pieces = Callable[[], AsyncIterator[list[Any]]]


async def export_submissions(game: Game, path: str | Path, progress: Callable[[int], None] | None = None) -> int:
    """Write all submissions of a game; how many there were. `progress` is told the number so far."""
    return await _export(game.submissions, Path(path), progress)


async def export_entries(board: Board, path: str | Path, progress: Callable[[int], None] | None = None) -> int:
    """Write all entries of a board instance in its order; how many there were."""

    async def pages() -> AsyncIterator[list[Entry]]:
        page = await board.page(ENTRIES_PER_PAGE)
        while page.items:
            yield page.items
            if page.next is None:
                return
            page = await board.page(ENTRIES_PER_PAGE, page.next)

    return await _export(pages, Path(path), progress)


async def _export(pieces: Pieces, path: Path, progress: Callable[[int], None] | None) -> int:
    writers = {".jsonl": _write_jsonl, ".ndjson": _write_jsonl, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise InvalidInput("path", str(path), "must end in .jsonl or .parquet")
    unfinished = path.with_name(path.name + ".partial")
    try:
        rows = await writer(pieces, unfinished, progress)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


async def _write_jsonl(pieces: Pieces, path: Path, progress: Callable[[int], None] | None) -> int:
    rows = 0
    with path.open("wb") as file:
        async for piece in pieces():
            file.write(b"".join(_encoder.encode(item) + b"\n" for item in piece))
            rows += len(piece)
            if progress is not None:
                progress(rows)
    return rows


async def _write_parquet(pieces: Pieces, path: Path, progress: Callable[[int], None] | None) -> int:
    """Reads twice: first to learn the columns and their types."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidInput("path", str(path), "needs pyarrow: pip install 'laurels[arrow]'") from error
    kinds: dict[str, set[type]] = {}
    async for piece in pieces():
        for item in piece:
            for name, value in _flat(item).items():
                kinds.setdefault(name, set()).add(type(value))
    schema = pyarrow.schema([(name, _arrow_type(pyarrow, some)) for name, some in kinds.items()])
    mixed = {name for name in kinds if schema.field(name).type == pyarrow.string() and kinds[name] - {str, type(None)}}
    rows = 0
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        async for piece in pieces():
            columns: dict[str, list[Any]] = {name: [] for name in kinds}
            for item in piece:
                flat = _flat(item)
                for name, column in columns.items():
                    column.append(_cell(flat.get(name), name in mixed))
            if piece:
                writer.write_table(pyarrow.table(columns, schema=schema))
            rows += len(piece)
            if progress is not None:
                progress(rows)
    return rows


def _flat(item: Submission | Entry) -> dict[str, Any]:
    """A row: one level of names."""
    row: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(item).items():
        if isinstance(value, dict):
            prefix = "" if name == "order" else f"{name}."
            row |= {f"{prefix}{key}": inner for key, inner in value.items()}
        elif isinstance(value, Submission):
            row |= {f"submission.{key}": inner for key, inner in _flat(value).items()}
        else:
            row[name] = value
    return row


def _arrow_type(pyarrow: Any, kinds: set[type]) -> Any:
    kinds = kinds - {type(None)}
    if kinds <= {int}:
        return pyarrow.int64()
    if kinds <= {int, Decimal}:
        return pyarrow.decimal128(38, 18)
    if kinds <= {datetime}:
        return pyarrow.timestamp("us", tz="UTC")
    if kinds <= {bool}:
        return pyarrow.bool_()
    if kinds <= {frozenset}:
        return pyarrow.list_(pyarrow.string())
    return pyarrow.string()


def _cell(value: Any, as_text: bool) -> Any:
    if isinstance(value, frozenset):
        value = sorted(value)
    if as_text and value is not None and not isinstance(value, str):
        return _encoder.encode(value).decode()
    return value
