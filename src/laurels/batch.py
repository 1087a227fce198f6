"""Batches: submissions as columns, and the checks that bad input stops at. Pure.

One submission is a batch of one. What passes `checked_batch` is safe for everything behind it.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal, DecimalException, InvalidOperation, Overflow, Rounded
from typing import Any, TypeGuard

from laurels._native import are_ints, are_submission_ids, are_texts
from laurels.errors import InvalidInput, LimitExceeded, OutOfRange
from laurels.model import INT64_MAX, INT64_MIN, Dimension, DimensionValue, GameDefinition, Limits, Number
from laurels.windows import CALENDAR_RULE, in_calendar, to_us

RESERVED_FIELDS = ("score", "accepted_at", "played_at", "player_id", "submission_id")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
DECIMAL_DIGITS_MAX = 18
UNDECLARED = Dimension()
NAME_RULE = "a name has letters, digits, _ . and -, starts with a letter or _, and has at most 64 characters"
COLUMN_RULE = "must be a column: a list, a numpy array or an Arrow array"
# Raises for a Decimal that is not plainly within the limits: 18 digits after the point, below 10**18, 19 digits in all.
PLAIN = Context(prec=19, Emin=0, Emax=17, traps=[Rounded, Overflow, InvalidOperation])


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
    one value for all rows. A list is always a column; one set for all rows is a `set` or `frozenset`.

    Raises InvalidInput, OutOfRange or LimitExceeded that name the field and row. Numbers are int or Decimal.
    """
    ids = _column(player_ids, "player_ids", 1, limits.batch_rows_max)
    rows = len(ids)
    check_ids(ids, "player_ids", limits.id_bytes_max)
    batch = Batch(
        player_ids=ids,
        scores=_numbers(_column(scores, "scores", rows, rows), "scores", required=True),
        submission_ids=_submission_ids(submission_ids, rows, limits),
        played_at=_instants(played_at, rows),
    )
    if dimensions is not None:
        _check_names(dimensions, "dimensions", limits.dimensions_max)
        for name, values in dimensions.items():
            declared = definition.dimensions.get(name, UNDECLARED)
            batch.dimensions[name] = _dimension(values, f"dimensions.{name}", rows, declared, limits)
    if metrics is not None:
        _check_names(metrics, "metrics", limits.metrics_max)
        for name, values in metrics.items():
            if name in batch.dimensions:
                raise InvalidInput(f"metrics.{name}", name, "is a dimension of the same submission")
            if _is_one(values):
                batch.metrics[name] = [None if values is None else _number(values, f"metrics.{name}")] * rows
            else:
                column = _column(values, f"metrics.{name}", rows, rows)
                batch.metrics[name] = _numbers(column, f"metrics.{name}", required=False)
    return batch


def check_ids(ids: Sequence[Any], name: str, bytes_max: int) -> None:
    """Every id is text of 1 to `bytes_max` bytes in UTF-8. Any character may occur."""
    _check_texts(ids, name, 1, bytes_max)


def check_texts(values: Sequence[Any], name: str, bytes_max: int) -> None:
    """Texts may be empty, unlike ids."""
    _check_texts(values, name, 0, bytes_max)


def checked_dimension(value: Any, name: str, declared: Dimension | None, limits: Limits) -> DimensionValue:
    """One value of a dimension in its canonical form: text, integer, boolean, or a frozenset of text."""
    return _dimension_value(value, name, declared or UNDECLARED, limits)


def _check_texts(values: Sequence[Any], name: str, least: int, most: int) -> None:
    if are_texts(values if type(values) is list else list(values), least, most):
        return
    for row, value in enumerate(values):
        if type(value) is not str:
            raise InvalidInput(_at(name, row, values), value, "must be text")
        size = _bytes(value)
        if size is None:
            raise InvalidInput(_at(name, row, values), value, "must be valid Unicode, without lone surrogates")
        if not least <= size <= most:
            rule = f"must have 1 to {most} bytes in UTF-8" if least else f"must have at most {most} bytes in UTF-8"
            raise LimitExceeded(_at(name, row, values), value, rule)


def _bytes(text: str) -> int | None:
    """The length in UTF-8; None if it can't be written in it."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def _at(name: str, row: int, column: Sequence[Any]) -> str:
    """The name of a value in a column; a column of one is named as a single value."""
    return f"{name}[{row}]" if len(column) > 1 else name.removesuffix("s") if "." not in name else name


def _is_one(values: Any) -> TypeGuard[Any]:
    """Whether a single value is given for all rows."""
    return isinstance(values, str | int | Decimal | float | frozenset | set | None)


def _column(column: Any, name: str, least: int, most: int) -> list[Any]:
    """A column of `least` to `most` rows as a list of its own: numpy and pandas by tolist, Arrow by to_pylist."""
    try:
        rows = len(column)
        values = _listed(column) if least <= rows <= most else None
    except Exception as error:  # whatever an object of another library does, it is not a column
        raise InvalidInput(name, column, COLUMN_RULE) from error
    if rows < least == 1:
        raise InvalidInput(name, rows, "must have at least one row")
    if not least <= rows <= most:
        if least == most:
            raise InvalidInput(name, rows, f"must have as many rows as player_ids: {most}")
        raise LimitExceeded(name, rows, f"a batch has at most {most} rows")
    if values is None or len(values) != rows:
        raise InvalidInput(name, column, COLUMN_RULE)
    return values


def _listed(column: Any) -> list[Any] | None:
    if type(column) is list:
        return column.copy()
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            values = getattr(column, method)()
            return values if type(values) is list else None
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | bytearray | memoryview):
        return list(column)
    return None


def _numbers(column: list[Any], name: str, *, required: bool) -> list[Any]:
    if are_ints(column):
        return column
    if set(map(type, column)) == {Decimal}:
        try:
            if all(map(Decimal.is_finite, map(PLAIN.plus, column))):
                return column
        except DecimalException:
            pass  # one of them may be at fault: find it
    return [
        None if value is None and not required else _number(value, _at(name, row, column))
        for row, value in enumerate(column)
    ]


def _number(value: Any, name: str) -> Number:
    """One number as a plain int or Decimal."""
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
    if type(value) in (int, Decimal):
        return value
    return int(value) if isinstance(value, int) else Decimal(value)


def _submission_ids(column: Any, rows: int, limits: Limits) -> list[str | None]:
    if column is None:
        return [None] * rows
    values = _column(column, "submission_ids", rows, rows)
    if are_submission_ids(values, limits.id_bytes_max):
        return values
    if uuid.UUID in set(map(type, values)):
        values = [str(value) if type(value) is uuid.UUID else value for value in values]
    # Where there is none, any text will do for the check, so that errors still count rows from the first.
    texts = ["-" if value is None else value for value in values]
    check_ids(texts, "submission_ids", limits.id_bytes_max)
    for row, value in enumerate(texts):
        if value[0] == "@":
            rule = "must not start with @, which marks ids that the server gave"
            raise InvalidInput(_at("submission_ids", row, texts), value, rule)
    return values


def _instants(column: Any, rows: int) -> list[int | None]:
    if column is None:
        return [None] * rows
    values = _column(column, "played_at", rows, rows)
    return [
        None if value is None else _instant(value, _at("played_at", row, values)) for row, value in enumerate(values)
    ]


def _instant(value: Any, name: str) -> int:
    try:
        instant_us = to_us(value) if isinstance(value, datetime) and value.utcoffset() is not None else None
    except Exception:  # a time zone of another library may do anything
        instant_us = None
    if type(instant_us) is not int:
        raise InvalidInput(name, value, "must be a datetime with a time zone")
    if not in_calendar(instant_us):
        raise OutOfRange(name, value, CALENDAR_RULE)
    return instant_us


def _check_names(columns: Any, kind: str, most: int) -> None:
    if not isinstance(columns, Mapping):
        raise InvalidInput(kind, columns, "must be columns by name")
    if len(columns) > most:
        raise LimitExceeded(kind, len(columns), f"a submission has at most {most}")
    for name in columns:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInput(kind, name, NAME_RULE)
        if name in RESERVED_FIELDS:
            raise InvalidInput(f"{kind}.{name}", name, "is the name of a field that every submission has")


def _dimension(values: Any, name: str, rows: int, declared: Dimension, limits: Limits) -> list[DimensionValue | None]:
    if _is_one(values):
        one = None if values is None else _dimension_value(values, name, declared, limits)
        return [one] * rows
    column = _column(values, name, rows, rows)
    if declared.type == "text" and are_texts(column, 0, limits.text_bytes_max):
        return column
    if declared.type in ("text", "integer") and are_ints(column):
        return column
    memo: dict[Any, DimensionValue] = {}
    checked: list[DimensionValue | None] = []
    for row, value in enumerate(column):
        if value is None:
            checked.append(None)
            continue
        kind = type(value)
        try:
            key = (kind, tuple(value) if kind in (list, tuple, set, frozenset) else value)
            known = memo.get(key)
        except Exception:  # it can't be hashed: no value of a dimension
            known = key = None
        if known is None:
            known = _dimension_value(value, _at(name, row, column), declared, limits)
            if key is not None:
                memo[key] = known
        checked.append(known)
    return checked


def _dimension_value(value: Any, name: str, declared: Dimension, limits: Limits) -> DimensionValue:
    if declared.type == "boolean":
        if not isinstance(value, bool):
            raise InvalidInput(name, value, "must be true or false")
        return value
    if declared.type == "integer" or (declared.type == "text" and isinstance(value, int)):
        if isinstance(value, bool) or not isinstance(value, int):
            rule = (
                "must be an integer" if declared.type == "integer" else "must be declared as boolean for true and false"
            )
            raise InvalidInput(name, value, rule)
        if not INT64_MIN <= value <= INT64_MAX:
            raise OutOfRange(name, value, f"must be from {INT64_MIN} to {INT64_MAX}")
        return int(value)
    if isinstance(value, str):
        text = str.__str__(value)  # of an enumeration: its value
        if declared.type == "text":
            check_texts([text], name, limits.text_bytes_max)
            return text
        value = [text]
    if isinstance(value, list | tuple | set | frozenset):
        if len(value) > limits.set_items_max:
            raise LimitExceeded(name, len(value), f"a set has at most {limits.set_items_max} items")
        items = [str.__str__(item) if isinstance(item, str) else item for item in value]
        for item in items:
            check_ids([item], name, limits.text_bytes_max)
        return frozenset(items).difference(declared.none)
    expected = "a set of text" if declared.type == "set" else "text, an integer or a set of text"
    raise InvalidInput(name, value, f"must be {expected}")
