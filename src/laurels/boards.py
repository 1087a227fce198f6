"""What a board definition means: which submissions feed which instances, and the order of their entries. Pure.

A `Ranker` is a checked definition, ready to take batches as columns. A submission feeds a board if it meets `where`
and carries every dimension of `partition` and every number that the order and the policy need.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from itertools import repeat
from typing import Any, NamedTuple

import msgspec

from laurels.batch import NAME, NAME_RULE, RESERVED_FIELDS, Batch
from laurels.errors import InvalidInput, LimitExceeded, NotFound, OutOfRange
from laurels.model import INT64_MAX, INT64_MIN, Board, Condition, DimensionValue, InstanceName, Number
from laurels.windows import Periods, from_us

TIME_FIELDS = ("accepted_at", "played_at")
PARTITION_DIMENSIONS_MAX = 8
AGGREGATES = ("sum", "count", "min", "max")
EXACT = Context(prec=60, Emin=-60, Emax=60, traps=[Inexact, InvalidOperation, Overflow])


class Term(NamedTuple):
    """One term of an order: the field, its direction, and its decimal digits."""

    field: str
    descending: bool
    scale: int


class Place(NamedTuple):
    """Which instance of a board: the values of its partition, and its window's start (microseconds; None without)."""

    partition: tuple[DimensionValue, ...]
    window_start: int | None


class Route(NamedTuple):
    """The rows of a batch that feed one instance, and their values for each order term."""

    place: Place
    rows: Sequence[int]
    terms: list[list[int]]


class Ranker:
    """A board definition, checked and ready.

    `terms` are what entries are ordered by before the player id: those of the definition, and, where these leave out
    the score, the score last (higher first), so that every entry carries it. The first `tie_terms` terms decide ties.
    """

    def __init__(self, name: str, definition: Board) -> None:
        """Raises InvalidInput, naming the field of the definition, if it makes no sense."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInput("boards", name, NAME_RULE)
        where = f"boards.{name}"
        self.name = name
        self.definition = definition = _checked(where, definition)
        self._tests = [_condition(f"{where}.where", key, test) for key, test in definition.where.items()]
        self.partition = definition.partition
        if len(set(self.partition)) != len(self.partition):
            raise InvalidInput(f"{where}.partition", list(self.partition), "must not name a dimension twice")
        if len(self.partition) > PARTITION_DIMENSIONS_MAX:
            raise LimitExceeded(
                f"{where}.partition", list(self.partition), f"has at most {PARTITION_DIMENSIONS_MAX} dimensions"
            )
        for dimension in self.partition:
            if dimension in RESERVED_FIELDS or not NAME.fullmatch(dimension):
                raise InvalidInput(f"{where}.partition", dimension, "must be a dimension")
        self.periods = None if definition.window is None else Periods(definition.window, f"{where}.window")
        self.policy = definition.policy
        if definition.of != "score" and self.policy not in ("sum", "min", "max"):
            raise InvalidInput(f"{where}.of", definition.of, "goes with policy sum, min or max")
        if (definition.of in RESERVED_FIELDS and definition.of != "score") or not NAME.fullmatch(definition.of):
            raise InvalidInput(f"{where}.of", definition.of, "must be score or a metric")
        if self.policy == "count" and _scale(definition, "score") != 0:
            raise InvalidInput(f"{where}.scale", definition.scale, "a count has no decimal digits")
        self.terms, self.player_descending = _order(where, definition)
        fields = [term.field for term in self.terms]
        self.tie_terms = max(1, next((i for i, name in enumerate(fields) if name in TIME_FIELDS), len(fields)))
        if "score" not in fields:
            if self.policy in AGGREGATES:
                raise InvalidInput(
                    f"{where}.order", list(definition.order), f"must contain score, the {self.policy} that it ranks"
                )
            self.terms = (*self.terms, Term("score", True, _scale(definition, "score")))
            fields.append("score")
        self.value_term = fields.index("score")
        if isinstance(definition.scale, dict):
            for name_of_scale in definition.scale:
                if name_of_scale in TIME_FIELDS or name_of_scale not in (*fields, definition.of):
                    raise InvalidInput(f"{where}.scale", name_of_scale, "must be a number that the order names")

        # The one instance of a board without partition and windows, and its name.
        self.only_place = Place((), None) if not self.partition and self.periods is None else None
        self._only_name = InstanceName(board=name)

    # --- writing: columns to routes -------------------------------------------------------------------------

    def routes(self, batch: Batch, accepted_at: int, row_offset: int = 0) -> list[Route]:
        """Which instances a batch feeds, with the term values of its rows.

        Row i was accepted at `accepted_at` + i microseconds, and counts as played then if `played_at` is not given.
        Error messages count rows from `row_offset`.
        Raises OutOfRange for a number with more digits than the scale, or beyond 64 bits once scaled.
        """
        rows = self._matching(batch)
        if not rows:
            return []
        routes = []
        for partition, of_partition in self._by_partition(batch, rows):
            for window_start, of_window in self._by_window(of_partition, accepted_at):
                terms = [self._column(term, batch, of_window, accepted_at, row_offset) for term in self.terms]
                routes.append(Route(Place(partition, window_start), of_window, terms))
        return routes

    def _matching(self, batch: Batch) -> Sequence[int]:
        rows: Sequence[int] = range(len(batch))
        for key, test in self._tests:
            column = _column_of(batch, key)
            if column is None:
                if not test(None):
                    return []
                continue
            if _is_constant(column):
                if not test(column[0]):
                    return []
                continue
            rows = [row for row in rows if test(column[row])]
        columns: list[Sequence[Any] | None] = [batch.dimensions.get(name) for name in self.partition]
        columns += [batch.metrics.get(name) for name in self._needed()]
        for column in columns:
            if column is None:
                return []
            if None in column:
                rows = [row for row in rows if column[row] is not None]
        return rows

    def _needed(self) -> list[str]:
        """The metrics without which a submission does not feed the board."""
        fields = [term.field for term in self.terms if term.field not in TIME_FIELDS]
        numbers = [self.definition.of if name == "score" else name for name in fields]
        return [name for name in numbers if name != "score"]

    def _by_partition(self, batch: Batch, rows: Sequence[int]) -> list[tuple[tuple[Any, ...], Sequence[int]]]:
        columns = [batch.dimensions[name] for name in self.partition]
        if all(_is_constant(column) for column in columns):
            return [(tuple(column[0] for column in columns), rows)]
        if len(rows) < len(batch):
            columns = [[column[row] for row in rows] for column in columns]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row, key in zip(rows, zip(*columns, strict=True), strict=True):
            group = groups.get(key)
            if group is None:
                groups[key] = [row]
            else:
                group.append(row)
        return list(groups.items())

    def _by_window(self, rows: Sequence[int], accepted_at: int) -> list[tuple[int | None, Sequence[int]]]:
        """Rows are accepted in order, so those of a window follow each other."""
        if self.periods is None:
            return [(None, rows)]
        parts: list[tuple[int | None, Sequence[int]]] = []
        at = 0
        while at < len(rows):
            instant = accepted_at + rows[at]
            span = self.periods.at(instant)
            if span is None:
                opens = self.periods.start_us
                if opens is None or opens <= instant:
                    break
                at = bisect_left(rows, opens - accepted_at, at)
                continue
            end = len(rows) if span.end_us is None else bisect_left(rows, span.end_us - accepted_at, at)
            parts.append((span.start_us, rows[at:end]))
            at = end
        return parts

    def _column(self, term: Term, batch: Batch, rows: Sequence[int], accepted_at: int, row_offset: int) -> list[int]:
        if term.field == "accepted_at":
            if isinstance(rows, range):
                return list(range(accepted_at + rows.start, accepted_at + rows.stop))
            return [accepted_at + row for row in rows]
        if term.field == "played_at":
            played_at = batch.played_at
            return [accepted_at + row if played_at[row] is None else played_at[row] for row in rows]  # type: ignore[misc]
        name = term.field
        if name == "score":
            if self.policy == "count":
                return [1] * len(rows)
            name = self.definition.of
        column = batch.scores if name == "score" else batch.metrics[name]
        values = column if len(rows) == len(batch) else [column[row] for row in rows]
        if term.scale == 0 and set(map(type, values)) == {int}:
            return values  # type: ignore[return-value]  # 64 bits, as all of a batch
        who = f"board {self.name}"
        if len(batch) == 1 and row_offset == 0:
            return scaled(values, term.scale, name if name == "score" else f"metrics.{name}", who)  # type: ignore[arg-type]
        name = "scores" if name == "score" else f"metrics.{name}"
        return scaled(values, term.scale, name, who, rows, row_offset)  # type: ignore[arg-type]

    # --- reading: names to places, values to numbers --------------------------------------------------------

    def place(self, partition: Mapping[str, DimensionValue], instant_us: int) -> Place:
        """The instance with these partition values, in the window that holds an instant.

        Raises InvalidInput for a missing or unknown dimension, NotFound for an instant outside the window's bounds.
        """
        values = []
        for name in self.partition:
            value = partition.get(name)
            if value is None:
                raise InvalidInput(name, None, f"board {self.name} needs it: its partition is {list(self.partition)}")
            values.append(value)
        for name in partition:
            if name not in self.partition:
                raise InvalidInput(name, partition[name], f"board {self.name} has the partition {list(self.partition)}")
        if self.periods is None:
            return Place(tuple(values), None)
        span = self.periods.at(instant_us)
        if span is None:
            raise NotFound("window", self.name, "the instant is outside its start and end")
        return Place(tuple(values), span.start_us)

    def is_kept(self, place: Place, now_us: int) -> bool:
        """Whether a window's instance is still kept at an instant."""
        if self.periods is None or place.window_start is None:
            return True
        oldest = self.periods.oldest_kept(now_us)
        span = self.periods.at(place.window_start)
        return oldest is None or span is None or span.number >= oldest

    def instance_name(self, place: Place) -> InstanceName:
        """An instance as answers name it."""
        if self.only_place is not None:
            return self._only_name
        span = None
        if self.periods is not None:
            span = self.periods.at(place.window_start) if place.window_start is not None else self.periods.numbered(0)
        return InstanceName(
            board=self.name,
            partition=dict(zip(self.partition, place.partition, strict=True)),
            window_start=None if span is None or span.start_us is None else from_us(span.start_us),
            window_end=None if span is None or span.end_us is None else from_us(span.end_us),
            window_label=None if span is None else span.label,
        )

    @property
    def score_scale(self) -> int:
        """Decimal digits of the score."""
        return self.terms[self.value_term].scale

    def score(self, value: int) -> Number:
        """The value of the score term as a number."""
        return unscaled(value, self.score_scale)

    def order_values(self, terms: Sequence[int]) -> dict[str, Any]:
        """The term values of an entry by field."""
        return {
            term.field: from_us(value) if term.field in TIME_FIELDS else unscaled(value, term.scale)
            for term, value in zip(self.terms, terms, strict=True)
        }


def place_key(place: Place) -> str:
    """The canonical text of an instance, one for each place: what the store keys it by."""
    values = [sorted(value) if isinstance(value, frozenset) else value for value in place.partition]
    return json.dumps([values, place.window_start], ensure_ascii=False, separators=(",", ":"))


def place_from_key(key: str) -> Place:
    """The inverse of `place_key`."""
    values, window_start = json.loads(key)
    return Place(tuple(frozenset(v) if isinstance(v, list) else v for v in values), window_start)


def sort_key(values: Sequence[int], descending: Sequence[bool]) -> bytes:
    """Order-preserving bytes: comparing them compares the values in turn, each in its direction. 8 bytes a value."""
    key = bytearray()
    for value, down in zip(values, descending, strict=True):
        word = value + 2**63
        key += ((2**64 - 1 - word) if down else word).to_bytes(8, "big")
    return bytes(key)


def values_of(key: bytes, descending: Sequence[bool]) -> list[int]:
    """The inverse of `sort_key`."""
    words = [int.from_bytes(key[start : start + 8], "big") for start in range(0, len(key), 8)]
    return [((2**64 - 1 - word) if down else word) - 2**63 for word, down in zip(words, descending, strict=True)]


def scaled(
    values: Sequence[Number], scale: int, name: str, who: str, rows: Sequence[int] | None = None, row_offset: int = 0
) -> list[int]:
    """Exact numbers as integers of 10**-scale. Raises OutOfRange for what has more digits or leaves 64 bits."""
    try:
        return _all_scaled(values, scale)
    except (DecimalException, ValueError, OverflowError, TypeError):
        pass  # one of them is at fault: find it
    column = []
    for i, value in enumerate(values):
        where = name if rows is None else f"{name}[{row_offset + rows[i]}]"
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise InvalidInput(where, value, "must be an integer or a Decimal")
        if isinstance(value, Decimal) and not value.is_finite():
            raise InvalidInput(where, value, "must be a finite number")
        exact = value * 10**scale if isinstance(value, int) else _times_power(value, scale)
        if exact is None:
            raise OutOfRange(where, value, f"{who} keeps {scale} decimal digits")
        if not INT64_MIN <= exact <= INT64_MAX:
            raise OutOfRange(where, value, f"{who} holds 64-bit integers" + (f" of 10**-{scale}" if scale else ""))
        column.append(exact)
    return column


def unscaled(value: int, scale: int) -> Number:
    """An integer of 10**-scale as an exact number: int without decimals, else Decimal with `scale` digits."""
    return value if scale == 0 else EXACT.scaleb(Decimal(value), -scale)


def _all_scaled(values: Sequence[Number], scale: int) -> list[int]:
    """The fast way, for plain numbers that all fit. Raises one error or another if some do not."""
    kinds = set(map(type, values))
    if kinds <= {int}:
        column: Sequence[int] = values if scale == 0 else [value * 10**scale for value in values]  # type: ignore
    elif kinds <= {int, Decimal}:
        column = list(map(int, map(EXACT.to_integral_exact, map(EXACT.scaleb, map(Decimal, values), repeat(scale)))))
    else:
        raise TypeError(kinds)
    if column and not (min(column) >= INT64_MIN and max(column) <= INT64_MAX):
        raise OverflowError
    return column  # type: ignore[return-value]


def _times_power(value: Decimal, scale: int) -> int | None:
    """value * 10**scale if it is an integer, exactly; None if digits would be lost. Never rounds, never blows up."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return 0
    if value.adjusted() + scale > 19:
        return 2**64  # beyond 64 bits whatever the digits
    shift = exponent + scale
    if shift < 0:
        if any(digits[shift:]):
            return None
        digits, shift = digits[:shift], 0
    number = int("".join(map(str, digits))) * int(10**shift)
    return -number if sign else number


def _checked(where: str, definition: Board) -> Board:
    """A definition as it is read back from where it is kept; one made in code has not been checked by its types."""
    try:
        plain = msgspec.convert(msgspec.to_builtins(definition, builtin_types=(datetime, Decimal, object)), Board)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        path = path.rpartition(" in ")[2].strip("`").removeprefix("$")  # "`key` in `$.scale`" is about a key
        value = getattr(definition, path.removeprefix(".").partition(".")[0].partition("[")[0], definition)
        raise InvalidInput(where + path, value, message[0].lower() + message[1:]) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(where, definition, f"must be plain data: {error}") from error
    for name in Board.__struct_fields__:
        given = getattr(definition, name)
        try:
            kept = msgspec.json.decode(msgspec.json.encode(Board(**{name: given})), type=Board)
        except (TypeError, ValueError, OverflowError, RecursionError):
            kept = None
        if kept is None or getattr(kept, name) != getattr(plain, name):
            raise InvalidInput(f"{where}.{name}", given, "must be plain data that JSON keeps: text, finite numbers")
    return plain


def _order(where: str, definition: Board) -> tuple[tuple[Term, ...], bool]:
    """The terms before player_id, and whether player_id goes down."""
    terms: list[Term] = []
    for position, text in enumerate(definition.order):
        name, _, direction = text.partition(" ")
        if not NAME.fullmatch(name) or direction not in ("", "asc", "desc"):
            raise InvalidInput(f"{where}.order", text, 'must be like "score desc"')
        descending = direction != "asc"
        if name in [term.field for term in terms]:
            raise InvalidInput(f"{where}.order", list(definition.order), f"names {name} twice")
        if name == "submission_id":
            raise InvalidInput(f"{where}.order", text, "must be score, a metric, a time or player_id")
        if name == "player_id":
            if position == 0:
                raise InvalidInput(f"{where}.order", text, "player_id can't be the first term")
            if position < len(definition.order) - 1:
                raise InvalidInput(f"{where}.order", definition.order[-1], "nothing can follow player_id: it is unique")
            return tuple(terms), descending
        terms.append(Term(name, descending, 0 if name in TIME_FIELDS else _scale(definition, name)))
    return tuple(terms), False


def _scale(definition: Board, name: str) -> int:
    if isinstance(definition.scale, int):
        return definition.scale if name == "score" else 0
    if name == "score" and definition.of != "score" and definition.of in definition.scale:
        return definition.scale[definition.of]
    return definition.scale.get(name, 0)


def _column_of(batch: Batch, name: str) -> Sequence[Any] | None:
    """The values of a field that conditions may name."""
    if name == "score":
        return batch.scores
    dimension, metric = batch.dimensions.get(name), batch.metrics.get(name)
    if dimension is None or metric is None:
        return metric if dimension is None else dimension
    # Submissions of several callers committed together: to one it is a dimension, to another a metric.
    return [one if one is not None else other for one, other in zip(dimension, metric, strict=True)]


def _is_constant(column: Sequence[Any]) -> bool:
    return column[-1] == column[0] and column.count(column[0]) == len(column)


def _condition(where: str, name: str, condition: Any) -> tuple[str, Callable[[Any], bool]]:
    """A field and the test of its value."""
    if name in RESERVED_FIELDS and name != "score":
        raise InvalidInput(f"{where}.{name}", name, "conditions are about dimensions, metrics and score")
    if not NAME.fullmatch(name):
        raise InvalidInput(where, name, "must name a dimension, a metric or score")
    if not isinstance(condition, Condition):
        condition = Condition(eq=condition)
    tests: list[Callable[[Any], bool]] = []
    if condition.eq is not None:
        equal = _operand(condition.eq)
        tests.append(lambda value: _same(value, equal))
    if condition.ne is not None:
        unequal = _operand(condition.ne)
        tests.append(lambda value: not _same(value, unequal))
    if condition.in_ is not None:
        among = [_operand(value) for value in condition.in_]
        tests.append(lambda value: any(_same(value, one) for one in among))
    for operator, bound in (("ge", condition.ge), ("gt", condition.gt), ("le", condition.le), ("lt", condition.lt)):
        if bound is not None:
            tests.append(_comparison(operator, _operand(bound)))
    if condition.subset_of is not None:
        larger = frozenset(condition.subset_of)
        tests.append(lambda value: isinstance(value, frozenset) and value <= larger)
    if condition.superset_of is not None:
        smaller = frozenset(condition.superset_of)
        tests.append(lambda value: isinstance(value, frozenset) and value >= smaller)
    if not tests and condition.exists is None:
        raise InvalidInput(f"{where}.{name}", {}, "must have a condition: eq, ne, in, ge, gt, le, lt, subset_of, ...")
    if condition.exists is False:
        if tests:
            raise InvalidInput(f"{where}.{name}", condition, "exists = false goes with no other condition")
        return name, lambda value: value is None
    if len(tests) == 1:
        only = tests[0]
        return name, lambda value: value is not None and only(value)
    return name, lambda value: value is not None and all(test(value) for test in tests)


def _comparison(operator: str, bound: Any) -> Callable[[Any], bool]:
    def is_number(value: Any) -> bool:
        return type(value) in (int, Decimal)

    return {
        "ge": lambda value: is_number(value) and value >= bound,
        "gt": lambda value: is_number(value) and value > bound,
        "le": lambda value: is_number(value) and value <= bound,
        "lt": lambda value: is_number(value) and value < bound,
    }[operator]


def _same(value: Any, operand: Any) -> bool:
    """Equality that tells true from 1."""
    return bool(value == operand) and isinstance(value, bool) == isinstance(operand, bool)


def _operand(value: Any) -> Any:
    """A value of a definition as submissions hold it: lists are sets, decimals are exact as they are written."""
    if isinstance(value, list):
        return frozenset(value)
    return Decimal(repr(value)) if isinstance(value, float) else value
