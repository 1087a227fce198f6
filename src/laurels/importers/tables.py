"""Tables into a game: CSV, JSONL and Parquet.

A row is a submission. Its fields are `player_id` and `score`, and, where there are any, `submission_id`, `played_at`
(ISO 8601), `name` (the player's display name), `dimensions.NAME` and `metrics.NAME`. A mapping says which column holds
which field; a column that is named like a field needs none. In JSONL, `dimensions` and `metrics` may be objects.

Without a `submission_id` a row gets one from the file's contents and its number, so that importing the same file again
changes nothing. Numbers are exact: integers, or decimals as they are written. A float of a Parquet file is taken as the
shortest decimal that stands for it; as a score only if it is a whole number.
"""

import asyncio
import csv
import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from laurels.batch import Batch, checked_batch
from laurels.errors import ImportFailed, InvalidInput
from laurels.importers import report as reports
from laurels.importers.report import ROWS_PER_BATCH, ImportReport, Progress, RowError, check_rows, hand_over
from laurels.model import GameDefinition, Limits

FIELDS = ("player_id", "score", "submission_id", "played_at", "name")
PREFIXES = ("dimensions.", "metrics.")
IGNORED = ("accepted_at",)  # of our own export: it is given anew

_json = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)


class Game(reports.Game, Protocol):
    """The game that a table goes to."""

    limits: Limits

    @property
    def definition(self) -> GameDefinition:
        """Its dimensions' types."""

    def check_batch(self, batch: Batch) -> None:
        """Raise InvalidInput if a board would refuse the batch."""


async def import_table(
    game: Game,
    path: str | Path,
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    zone: str | None = None,
    skip_bad: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Submit the rows of a file. `format` is csv, jsonl or parquet (else the name's ending says it), `mapping` column
    by field, `zone` the IANA zone of times without an offset.

    The whole file is checked first: a bad row raises ImportFailed with its number and the reason, and nothing is
    imported; with `skip_bad` it is listed in the report instead. `dry_run` only checks.
    """
    table = _Table(game, Path(path), format, dict(mapping or {}), zone)
    found = await asyncio.to_thread(table.check, skip_bad)
    if dry_run:
        return found
    total = found.rows - len(found.skipped)
    bad = {row.row for row in found.skipped}
    await hand_over(game, table.batches(bad), found, total, progress)
    names = list(table.names.items())
    for start in range(0, len(names), ROWS_PER_BATCH):
        await game.describe(
            "player_id", {player_id: {"name": name} for player_id, name in names[start : start + ROWS_PER_BATCH]}
        )
    return found


class _Table:
    """One file, read twice: once to check it, once to hand it over."""

    def __init__(self, game: Game, path: Path, format: str | None, mapping: dict[str, str], zone: str | None) -> None:
        kind = format or path.suffix.removeprefix(".").lower()
        readers: dict[str, Callable[[Path], Iterator[tuple[int, dict[str, Any]]]]] = {
            "csv": _csv_rows,
            "jsonl": _jsonl_rows,
            "ndjson": _jsonl_rows,
            "parquet": _parquet_rows,
        }
        if kind not in readers:
            raise InvalidInput("format", kind, "must be csv, jsonl or parquet")
        for field in mapping:
            if field not in FIELDS and not field.startswith(PREFIXES):
                raise InvalidInput(
                    "mapping", field, f"must be one of {', '.join(FIELDS)}, dimensions.NAME, metrics.NAME"
                )
        try:
            self._zone = None if zone is None else ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidInput("zone", zone, "must be a zone of the IANA time zone database") from error
        self._game = game
        self._path = path
        self._columns = {column: field for field, column in mapping.items()}
        self._read = readers[kind]
        self._digest = ""
        self.names: dict[str, str] = {}

    def check(self, skip_bad: bool) -> ImportReport:
        """Read it all; raises ImportFailed for the first bad row, or lists them."""
        self._digest = _digest_of(self._path)
        found = ImportReport(source=str(self._path))
        unknown: dict[str, None] = {}
        check_rows(self._rows(unknown), lambda rows: self._game.check_batch(self._batch(rows)), found, skip_bad)
        if unknown:
            found.notes.append(f"columns that are no fields were left out: {', '.join(unknown)}")
        if found.rows == 0:
            found.notes.append("the file has no rows")
        return found

    def batches(self, bad: set[int | None]) -> Iterator[Batch]:
        """The good rows."""
        rows = ((number, row) for number, row in self._rows({}) if number not in bad)
        while chunk := list(islice(rows, ROWS_PER_BATCH)):
            yield self._batch([row for _, row in chunk])

    def _rows(self, unknown: dict[str, None]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows by field, with their numbers."""
        try:
            for number, row in self._read(self._path):
                fields: dict[str, Any] = {"row": number}
                for column, value in row.items():
                    field = self._columns.get(column, column)
                    if isinstance(value, dict) and f"{column}." in PREFIXES:
                        fields |= {f"{column}.{name}": inner for name, inner in value.items()}
                    elif field in FIELDS or field.startswith(PREFIXES):
                        fields[field] = value
                    elif column not in IGNORED:
                        unknown[column] = None
                yield number, fields
        except OSError as error:
            raise ImportFailed(str(self._path), None, f"can't be read: {error.strerror}") from error

    def _batch(self, rows: list[dict[str, Any]]) -> Batch:
        """Rows as columns, checked."""
        names = {name: None for row in rows for name in row if name.startswith(PREFIXES)}
        definition = self._game.definition
        dimensions, metrics = {}, {}
        for name in names:
            prefix, _, short = name.partition(".")
            if prefix == "dimensions":
                declared = definition.dimensions.get(short)
                kind = "text" if declared is None else declared.type
                dimensions[short] = [_dimension(row.get(name), kind) for row in rows]
            else:
                metrics[short] = [_number(row.get(name), name) for row in rows]
        player_ids = [_text(row.get("player_id")) for row in rows]
        for player_id, row in zip(player_ids, rows, strict=True):
            if row.get("name"):
                self.names[player_id] = str(row["name"])
        return checked_batch(
            definition,
            self._game.limits,
            player_ids=player_ids,
            scores=[_score(row.get("score")) for row in rows],
            submission_ids=[self._submission_id(row) for row in rows],
            played_at=[self._instant(row.get("played_at")) for row in rows],
            dimensions=dimensions,
            metrics=metrics,
        )

    def _submission_id(self, row: dict[str, Any]) -> str:
        given = row.get("submission_id")
        if given in (None, "") or str(given).startswith("@"):  # of our own export: another store's places
            return f"{self._digest}-{row['row']}"
        return str(given)

    def _instant(self, value: Any) -> datetime | None:
        if value is None or value == "":
            return None
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError as error:
            raise RowError(f"played_at: {value!r}: must be a time in ISO 8601") from error
        if moment.tzinfo is None:
            if self._zone is None:
                raise RowError(f"played_at: {value}: has no offset; say which zone it is in")
            moment = moment.replace(tzinfo=self._zone)
        return moment


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True, restkey="")
        try:
            for row in reader:
                if "" in row or None in row.values():
                    raise ImportFailed(str(path), reader.line_num, "has another number of cells than the header")
                yield reader.line_num, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ImportFailed(str(path), reader.line_num, f"is not CSV in UTF-8: {error}") from error


def _jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield number, _json.decode(line)
                except msgspec.MsgspecError as error:
                    raise ImportFailed(str(path), number, f"is not a JSON object: {error}") from error


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    parquet = _pyarrow_parquet()
    number = 0
    if not path.exists():
        raise FileNotFoundError(2, "no such file")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_PER_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ValueError, OSError) as error:  # pyarrow's errors are of these kinds
        raise ImportFailed(str(path), None, f"is not Parquet: {error}") from error


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidInput("format", "parquet", "needs pyarrow: pip install 'laurels[arrow]'") from error
    return pyarrow.parquet


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _dimension(value: Any, kind: str) -> Any:
    if value is None or (value == "" and kind != "set"):
        return None
    if isinstance(value, list | tuple):
        return frozenset(value)
    if isinstance(value, str) and kind == "set":
        return frozenset(item.strip() for item in value.split(",") if item.strip())
    if isinstance(value, str) and kind == "integer":
        return _number(value, "dimension")
    if isinstance(value, str) and kind == "boolean":
        return {"true": True, "false": False, "1": True, "0": False}.get(value.lower(), value)
    return value


def _score(value: Any) -> Any:
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > 2**53:
            raise RowError(f"score: {value!r}: is a float that is no whole number; keep scores as integers or decimals")
        return int(value)
    return _number(value, "score")


def _number(value: Any, name: str) -> Any:
    if value is None or value == "":
        return None
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return Decimal(value)
        except InvalidOperation as error:
            raise RowError(f"{name}: {value!r}: must be a number") from error
    return value


def _digest_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError as error:
        raise ImportFailed(str(path), None, f"can't be read: {error.strerror}") from error
