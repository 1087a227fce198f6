"""Batches: submissions as columns, and the checks that bad input stops at. Pure.

One submission is a batch of one. What passes `checked_batch` is safe for everything behind it.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeGuard

from laurels.errors import InvalidInput, LimitExceeded, OutOfRange
from laurels.model import INT64_MAX, INT64_MIN, Dimension, DimensionValue, GameDefinition, Limits, Number
from laurels.windows import to_us

RESERVED_FIELDS = ("score", "accepted_at", "played_at", "player_id", "submission_id")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
DECIMAL_DIGITS_MAX = 18
UNDECLARED = Dimension()


@dataclass(slots=True)
class Batch:
    """Submissions of one game as columns of equal length. None stands for a value that a submission lacks.

    `played_at` is in microseconds since the epoch; sets are frozensets of text.
    """

    player_ids: list[str]
    scores: list[Number]
    submission_ids: list[str | None]
    played_at: list[int | None]
    dimensions: dict[str, list[DimensionValue | None]] = field(default_factory=dict)
    metrics: dict[str, list[Number | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.player_ids)

    def take(self, rows: Sequence[int]) -> "Batch":
        """The batch of the given rows."""
        return Batch(
            player_ids=[self.player_ids[row] for row in rows],
            scores=[self.scores[row] for row in rows],
            submission_ids=[self.submission_ids[row] for row in rows],
            played_at=[self.played_at[row] for row in rows],
            dimensions={name: [column[row] for row in rows] for name, column in self.dimensions.items()},
            metrics={name: [column[row] for row in rows] for name, column in self.metrics.items()},
        )

    def slice(self, start: int, stop: int) -> "Batch":
        """The batch of the rows from `start` to before `stop`."""
        return Batch(
            player_ids=self.player_ids[start:stop],
            scores=self.scores[start:stop],
            submission_ids=self.submission_ids[start:stop],
            played_at=self.played_at[start:stop],
            dimensions={name: column[start:stop] for name, column in self.dimensions.items()},
            metrics={name: column[start:stop] for name, column in self.metrics.items()},
        )

    @staticmethod
    def concatenate(batches: Sequence["Batch"]) -> "Batch":
        """All rows in turn. Columns that a batch lacks hold None for its rows."""
        if len(batches) == 1:
            return batches[0]
        whole = Batch(
            player_ids=[player_id for batch in batches for player_id in batch.player_ids],
            scores=[score for batch in batches for score in batch.scores],
            submission_ids=[submission_id for batch in batches for submission_id in batch.submission_ids],
            played_at=[instant for batch in batches for instant in batch.played_at],
        )
        for name in {name: None for batch in batches for name in batch.dimensions}:
            whole.dimensions[name] = [
                value for batch in batches for value in batch.dimensions.get(name) or [None] * len(batch)
            ]
        for name in {name: None for batch in batches for name in batch.metrics}:
            whole.metrics[name] = [
                value for batch in batches for value in batch.metrics.get(name) or [None] * len(batch)
            ]
        return whole


def checked_batch(
    definition: GameDefinition,
    limits: Limits,
    *,
    player_ids: Any,
    scores: Any,
    submission_ids: Any = None,
    played_at: Any = None,
    dimensions: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Batch:
    """A batch from what a caller gave: lists, tuples, numpy arrays or Arrow arrays; a dimension or metric may also be
    one value for all rows.

    Raises InvalidInput, OutOfRange or LimitExceeded that name the field and row. Numbers are int or Decimal.
    """
    ids = _values(player_ids, "player_ids")
    rows = len(ids)
    if rows == 0:
        raise InvalidInput("player_ids", [], "must have at least one row")
    if rows > limits.batch_rows_max:
        raise LimitExceeded("player_ids", rows, f"a batch has at most {limits.batch_rows_max} rows")
    check_ids(ids, "player_ids", limits.id_bytes_max)
    batch = Batch(
        player_ids=ids,
        scores=_numbers(_column(scores, "scores", rows), "scores", required=True),
        submission_ids=_submission_ids(submission_ids, rows, limits),
        played_at=_instants(played_at, rows),
    )
    if dimensions:
        _check_names(dimensions, "dimensions", limits.dimensions_max)
        for name, values in dimensions.items():
            declared = definition.dimensions.get(name, UNDECLARED)
            batch.dimensions[name] = _dimension(values, f"dimensions.{name}", rows, declared, limits)
    if metrics:
        _check_names(metrics, "metrics", limits.metrics_max)
        for name, values in metrics.items():
            if name in batch.dimensions:
                raise InvalidInput(f"metrics.{name}", name, "is a dimension of the same submission")
            column = [values] * rows if _is_one(values) else _column(values, f"metrics.{name}", rows)
            batch.metrics[name] = _numbers(column, f"metrics.{name}", required=False)
    return batch


def check_ids(ids: Sequence[Any], name: str, bytes_max: int) -> None:
    """Every id is text of 1 to `bytes_max` bytes in UTF-8. Any character may occur."""
    if not set(map(type, ids)) <= {str}:
        row = next(row for row, value in enumerate(ids) if type(value) is not str)
        raise InvalidInput(_at(name, row, ids), ids[row], "must be text")
    lengths = [*map(len, ids)]
    if min(lengths, default=1) > 0 and max(lengths, default=1) * 4 <= bytes_max and _encodes(ids):
        return
    for row, value in enumerate(ids):
        if not _encodes([value]):
            raise InvalidInput(_at(name, row, ids), value, "must be valid Unicode, without lone surrogates")
        if not 1 <= len(value.encode()) <= bytes_max:
            raise LimitExceeded(_at(name, row, ids), value, f"must have 1 to {bytes_max} bytes in UTF-8")


def checked_dimension(value: Any, name: str, declared: Dimension | None, limits: Limits) -> DimensionValue:
    """One value of a dimension in its canonical form: text, integer, boolean, or a frozenset of text."""
    return _dimension_value(value, name, declared or UNDECLARED, limits)


def _encodes(ids: Sequence[str]) -> bool:
    try:
        "".join(ids).encode()
    except UnicodeEncodeError:
        return False
    return True


def _at(name: str, row: int, column: Sequence[Any]) -> str:
    """The name of a value in a column; a column of one is named as a single value."""
    return f"{name}[{row}]" if len(column) > 1 else name.removesuffix("s") if "." not in name else name


def _is_one(values: Any) -> TypeGuard[Any]:
    """Whether a single value is given for all rows."""
    return isinstance(values, str | int | Decimal | float | frozenset | set | None)


def _values(column: Any, name: str) -> list[Any]:
    """A column as a list: numpy and pandas by tolist, Arrow by to_pylist."""
    if isinstance(column, list):
        return column
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            values = getattr(column, method)()
            if isinstance(values, list):
                return values
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | bytearray):
        return list(column)
    raise InvalidInput(name, column, "must be a column: a list, a numpy array or an Arrow array")


def _column(column: Any, name: str, rows: int) -> list[Any]:
    values = _values(column, name)
    if len(values) != rows:
        raise InvalidInput(name, len(values), f"must have as many rows as player_ids: {rows}")
    return values


def _numbers(column: list[Any], name: str, *, required: bool) -> list[Any]:
    kinds = set(map(type, column))
    if kinds == {int} and min(column) >= INT64_MIN and max(column) <= INT64_MAX:
        return column
    for row, value in enumerate(column):
        if value is None and not required:
            continue
        _check_number(value, _at(name, row, column))
    return column


def _check_number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        rule = "must be an integer or a Decimal"
        if isinstance(value, float):
            rule += "; floats are not exact, pass Decimal(str(value))"
        raise InvalidInput(name, value, rule)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise InvalidInput(name, value, "must be a finite number")
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if value and (exponent < -DECIMAL_DIGITS_MAX or value.adjusted() > 18):
            raise OutOfRange(name, value, f"has at most {DECIMAL_DIGITS_MAX} decimal digits and fits 64 bits")
    if not INT64_MIN <= value <= INT64_MAX:
        raise OutOfRange(name, value, f"must be from {INT64_MIN} to {INT64_MAX}")


def _submission_ids(column: Any, rows: int, limits: Limits) -> list[str | None]:
    if column is None:
        return [None] * rows
    values = [
        str(value) if isinstance(value, uuid.UUID) else value for value in _column(column, "submission_ids", rows)
    ]
    given = [value for value in values if value is not None]
    check_ids(given, "submission_ids", limits.id_bytes_max)
    for value in given:
        if value[0] == "@":
            raise InvalidInput("submission_id", value, "must not start with @, which marks ids that the server gave")
    return values


def _instants(column: Any, rows: int) -> list[int | None]:
    if column is None:
        return [None] * rows
    values = _column(column, "played_at", rows)
    instants: list[int | None] = []
    for row, value in enumerate(values):
        if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
            raise InvalidInput(_at("played_at", row, values), value, "must be a datetime with a time zone")
        instants.append(None if value is None else to_us(value))
    return instants


def _check_names(columns: Mapping[str, Any], kind: str, most: int) -> None:
    if len(columns) > most:
        raise LimitExceeded(kind, len(columns), f"a submission has at most {most}")
    for name in columns:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInput(kind, name, "a name has letters, digits, _ . and -, starts with a letter, at most 64")
        if name in RESERVED_FIELDS:
            raise InvalidInput(f"{kind}.{name}", name, "is the name of a field that every submission has")


def _dimension(values: Any, name: str, rows: int, declared: Dimension, limits: Limits) -> list[DimensionValue | None]:
    if _is_one(values) or (declared.type == "set" and isinstance(values, list | tuple) and _holds_text(values)):
        one = None if values is None else _dimension_value(values, name, declared, limits)
        return [one] * rows
    column = _column(values, name, rows)
    if declared.type == "text" and set(map(type, column)) == {str}:
        check_texts(column, name, limits.text_bytes_max)
        return column
    memo: dict[Any, DimensionValue] = {}
    checked: list[DimensionValue | None] = []
    for row, value in enumerate(column):
        if value is None:
            checked.append(None)
            continue
        key = (type(value), tuple(value) if isinstance(value, list | set) else value)
        try:
            known = memo.get(key)
        except TypeError:
            raise InvalidInput(_at(name, row, column), value, "must be text, an integer or a set of text") from None
        if known is None:
            known = memo[key] = _dimension_value(value, _at(name, row, column), declared, limits)
        checked.append(known)
    return checked


def _holds_text(values: Sequence[Any]) -> bool:
    """A list of text for a set dimension is one set, a list of lists a column of them."""
    return all(isinstance(value, str) for value in values)


def check_texts(values: Sequence[str], name: str, bytes_max: int) -> None:
    """Texts may be empty, unlike ids."""
    check_ids([value for value in values if value], name, bytes_max)


def _dimension_value(value: Any, name: str, declared: Dimension, limits: Limits) -> DimensionValue:
    if declared.type == "boolean":
        if not isinstance(value, bool):
            raise InvalidInput(name, value, "must be true or false")
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if declared.type == "set":
            raise InvalidInput(name, value, "must be a set of text")
        if not INT64_MIN <= value <= INT64_MAX:
            raise OutOfRange(name, value, f"must be from {INT64_MIN} to {INT64_MAX}")
        return value
    if declared.type == "integer":
        raise InvalidInput(name, value, "must be an integer")
    if isinstance(value, str) and declared.type != "set":
        check_texts([value], name, limits.text_bytes_max)
        return value
    if declared.type == "set" and isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple | set | frozenset):
        if len(value) > limits.set_items_max:
            raise LimitExceeded(name, len(value), f"a set has at most {limits.set_items_max} items")
        items = list(value)
        check_ids(items, name, limits.text_bytes_max)
        return frozenset(items).difference(declared.none)
    raise InvalidInput(name, value, "must be text, an integer or a set of text (booleans need a declared dimension)")
