"""The checks that bad input stops at."""

import decimal
import enum
import string
import uuid
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laurels.batch import Batch, check_ids, check_texts, checked_batch, checked_dimension
from laurels.errors import InvalidInput, LimitExceeded, OutOfRange
from laurels.model import INT64_MAX, INT64_MIN, Dimension, GameDefinition, Limits
from laurels.windows import to_us

GAME = GameDefinition(
    dimensions={
        "modifiers": Dimension(type="set", none=("none", "no-modifiers")),
        "level": Dimension(type="integer"),
        "ranked": Dimension(type="boolean"),
        "track": Dimension(type="text"),
    }
)
LIMITS = Limits()
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def check(player_ids=("p",), scores=None, limits=LIMITS, **columns) -> Batch:
    if scores is None:
        scores = [1] * len(player_ids)
    return checked_batch(GAME, limits, player_ids=player_ids, scores=scores, **columns)


def refused(kind=InvalidInput, **columns) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        check(**columns)
    assert type(caught.value) is kind
    assert caught.value.rule
    return caught.value


# --- ids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "a.b",
        "x ft. y",
        "a#b",
        "PLAYER#1",
        "ünï",
        "../x",
        "😀" * 32,
        "a\0b",
        " ",
        "\n",
        "%",
        "'; --",
        "x" * 128,
        "e\u0301",
    ],
)
def test_any_text_of_1_to_128_bytes_is_an_id(name):
    batch = check([name, "other"], submission_ids=[name, None], dimensions={"track": [name, "x"]})
    assert batch.player_ids == [name, "other"]
    assert batch.submission_ids == [name, None]
    assert batch.dimensions["track"] == [name, "x"]


def test_100_emoji_are_an_id_where_the_limit_allows_it():
    assert refused(LimitExceeded, player_ids=["😀" * 100]).rule == "must have 1 to 128 bytes in UTF-8"
    assert check(["😀" * 100], limits=Limits(id_bytes_max=400)).player_ids == ["😀" * 100]
    check_texts(["😀" * 100], "name", LIMITS.text_bytes_max)


@pytest.mark.parametrize("good", ["ok", "ü"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("", LimitExceeded),
        ("x" * 129, LimitExceeded),
        ("ü" * 65, LimitExceeded),
        ("😀" * 33, LimitExceeded),
        ("\ud800", InvalidInput),
        ("a\udfff" * 60, InvalidInput),
        (None, InvalidInput),
        (5, InvalidInput),
        (True, InvalidInput),
        (b"p", InvalidInput),
        (["p"], InvalidInput),
        (1.5, InvalidInput),
    ],
)
def test_a_bad_id_is_named_with_its_row(value, kind, good):
    error = refused(kind, player_ids=[good, value, good])
    assert (error.field, error.value) == ("player_ids[1]", value)
    assert refused(kind, player_ids=[value]).field == "player_id"
    if value is not None:
        error = refused(kind, player_ids=[good] * 3, submission_ids=[None, good, value])
        assert (error.field, error.value) == ("submission_ids[2]", value)


def test_ids_that_the_server_gives_can_not_be_taken():
    assert refused(player_ids=["a", "b"], submission_ids=[None, "@1"]).field == "submission_ids[1]"
    assert refused(player_ids=["a"], submission_ids=["@1"]).field == "submission_id"


def test_uuids_are_text():
    one = uuid.UUID(int=1)
    assert check(["a", "b"], submission_ids=[one, None]).submission_ids == [str(one), None]


@given(st.lists(st.text(string.printable + "üé😀\0", max_size=40), max_size=8), st.integers(1, 140))
def test_check_ids_counts_bytes(ids, most):
    bad = [row for row, value in enumerate(ids) if not 1 <= len(value.encode()) <= most]
    if bad:
        with pytest.raises(LimitExceeded) as caught:
            check_ids(ids, "ids", most)
        assert caught.value.value == ids[bad[0]]
        assert caught.value.field == (f"ids[{bad[0]}]" if len(ids) > 1 else "id")
    else:
        check_ids(ids, "ids", most)


def test_texts_may_be_empty_and_errors_count_all_rows():
    check_texts(["", "x"], "reason", 5)
    with pytest.raises(LimitExceeded) as caught:
        check_texts(["", "", "xxxxxx"], "texts", 5)
    assert caught.value.field == "texts[2]"
    assert caught.value.rule == "must have at most 5 bytes in UTF-8"


# --- numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "score",
    [
        INT64_MIN,
        INT64_MAX,
        0,
        Decimal("1.50"),
        Decimal("0E-50"),
        Decimal("-0"),
        Decimal("1E+18"),
        Decimal("0.000000000000000001"),
        Decimal("9223372036854775807"),
        Decimal("-9223372036854775808"),
        Decimal("123456789012345678.123456789012345678"),
    ],
)
def test_exact_numbers_are_kept_as_they_are(score):
    for scores in ([score], [score, score], [score, 1]):
        batch = check(["p"] * len(scores), scores, metrics={"m": scores})
        assert str(batch.scores[0]) == str(score)
        assert str(batch.metrics["m"][0]) == str(score)


@pytest.mark.parametrize(
    ("score", "kind"),
    [
        (2**63, OutOfRange),
        (-(2**63) - 1, OutOfRange),
        (10**1000, OutOfRange),
        (Decimal("9223372036854775808"), OutOfRange),
        (Decimal("9223372036854775807.5"), OutOfRange),
        (Decimal("1E+19"), OutOfRange),
        (Decimal("1E+30"), OutOfRange),
        (Decimal("1E+999999"), OutOfRange),
        (Decimal("1E-19"), OutOfRange),
        (Decimal("1E-999999"), OutOfRange),
        (Decimal("1." + "0" * 19), OutOfRange),
        (Decimal("9" * 5000), OutOfRange),
        (Decimal("NaN"), InvalidInput),
        (Decimal("sNaN"), InvalidInput),
        (Decimal("Infinity"), InvalidInput),
        (Decimal("-Infinity"), InvalidInput),
        (1.0, InvalidInput),
        (float("nan"), InvalidInput),
        (float("inf"), InvalidInput),
        (True, InvalidInput),
        (False, InvalidInput),
        ("12", InvalidInput),
        (1j, InvalidInput),
        (b"1", InvalidInput),
        ([1], InvalidInput),
        (np.int64(1), InvalidInput),
    ],
)
def test_a_bad_number_is_named_with_its_row(score, kind):
    for other in (1, Decimal("1.5")):
        error = refused(kind, player_ids=["p"] * 3, scores=[other, other, score])
        assert error.field == "scores[2]"
        assert error.value is score
    assert refused(kind, scores=[score]).field == "score"
    assert refused(kind, player_ids=["p"] * 2, metrics={"stars": [1, score]}).field == "metrics.stars[1]"
    assert refused(kind, metrics={"stars": [score]}).field == "metrics.stars"
    if not isinstance(score, list | bytes | complex | np.generic):
        assert refused(kind, player_ids=["p"] * 2, metrics={"stars": score}).field == "metrics.stars"


def test_a_score_must_be_there_a_metric_may_be_missing():
    assert refused(player_ids=["a", "b"], scores=[1, None]).field == "scores[1]"
    assert check(["a", "b"], metrics={"m": [None, 1], "n": None}).metrics == {"m": [None, 1], "n": [None, None]}


def test_the_decimal_context_of_the_caller_does_not_matter():
    with decimal.localcontext(decimal.Context(prec=2, traps=[decimal.Inexact, decimal.Rounded])):
        assert check(["a"], [Decimal("12345.678")]).scores == [Decimal("12345.678")]


class Number(int):
    pass


class Instrument(enum.StrEnum):
    GUITAR = "guitar"


def test_subclasses_become_plain_values():
    batch = check(
        ["a"], [Number(5)], metrics={"m": Number(6)}, dimensions={"track": Instrument.GUITAR, "level": Number(7)}
    )
    values = [batch.scores[0], batch.metrics["m"][0], batch.dimensions["track"][0], batch.dimensions["level"][0]]
    assert values == [5, 6, "guitar", 7]
    assert [type(value) for value in values] == [int, int, str, int]


# --- columns ---------------------------------------------------------------------------------------------------


def test_columns_may_come_from_numpy_and_arrow():
    pa = pytest.importorskip("pyarrow")
    want = check(["a", "b"], [1, 2], metrics={"m": [3, None]}, dimensions={"track": ["x", "y"]}, played_at=[NOW, None])
    got = check(
        pa.array(["a", "b"]),
        np.array([1, 2], dtype="int32"),
        metrics={"m": pa.array([3, None])},
        dimensions={"track": pa.array(["x", "y"]).dictionary_encode()},
        played_at=pa.array([NOW, None], type=pa.timestamp("us", tz="UTC")),
    )
    assert got == want
    assert check(np.array(["a", "b"]), pa.chunked_array([[1], [2]]), metrics={"m": (3, None)}).scores == [1, 2]
    assert check(["a"], pa.array([Decimal("1.50")], type=pa.decimal128(10, 2))).scores == [Decimal("1.50")]
    assert refused(OutOfRange, player_ids=["a"], scores=np.array([2**63], dtype="uint64")).field == "score"
    assert refused(player_ids=["a"], scores=np.array([1.0])).field == "score"
    assert refused(player_ids=["a"], played_at=np.array(["2026-01-01"], dtype="datetime64[ns]")).field == "played_at"


@pytest.mark.parametrize(
    "column", ["ab", b"ab", {"a": 1, "b": 2}, {1, 2}, 5, np.int64(5), np.array(5), iter([1, 2]), object()]
)
def test_what_is_no_column_is_refused(column):
    assert refused(player_ids=column, scores=[1, 2]).field == "player_ids"
    assert refused(player_ids=["a", "b"], scores=column).field == "scores"


@pytest.mark.parametrize("rows", [0, 1, 3, 10**15, 10**30])
def test_columns_have_equal_lengths(rows):
    column = range(rows)
    assert refused(player_ids=["a", "b"], scores=column).field == "scores"
    for name in ("submission_ids", "played_at"):
        assert refused(player_ids=["a", "b"], **{name: column}).field == name
    assert refused(player_ids=["a", "b"], dimensions={"track": column}).field == "dimensions.track"
    assert refused(player_ids=["a", "b"], metrics={"m": column}).field == "metrics.m"


def test_a_batch_has_rows_and_not_too_many():
    assert refused(player_ids=[]).field == "player_ids"
    error = refused(LimitExceeded, player_ids=["a", "b", "c"], limits=Limits(batch_rows_max=2))
    assert (error.field, error.value) == ("player_ids", 3)
    assert refused(LimitExceeded, player_ids=range(10**15), scores=[1]).field == "player_ids"


def test_later_changes_of_the_callers_lists_change_nothing():
    ids, scores, names, tracks = ["a", "b"], [1, 2], ["i", "j"], ["x", "y"]
    batch = check(ids, scores, submission_ids=names, dimensions={"track": tracks}, metrics={"m": scores})
    for column in (ids, scores, names, tracks):
        column.clear()
    assert (batch.player_ids, batch.scores, batch.submission_ids) == (["a", "b"], [1, 2], ["i", "j"])
    assert (batch.dimensions, batch.metrics) == ({"track": ["x", "y"]}, {"m": [1, 2]})


# --- instants --------------------------------------------------------------------------------------------------


class Nowhere(tzinfo):
    def utcoffset(self, moment):
        return None


class Broken(tzinfo):
    def utcoffset(self, moment):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("moment", "kind"),
    [
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), OutOfRange),
        (datetime.min.replace(tzinfo=UTC), OutOfRange),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), OutOfRange),
        (datetime(2026, 1, 1), InvalidInput),
        (datetime(2026, 1, 1, tzinfo=Nowhere()), InvalidInput),
        (datetime(2026, 1, 1, tzinfo=Broken()), InvalidInput),
        (NOW.date(), InvalidInput),
        ("2026-01-01T00:00Z", InvalidInput),
        (0, InvalidInput),
    ],
)
def test_a_bad_instant_is_named_with_its_row(moment, kind):
    error = refused(kind, player_ids=["a", "b"], played_at=[NOW, moment])
    assert (error.field, error.value) == ("played_at[1]", moment)
    assert refused(kind, player_ids=["a"], played_at=[moment]).field == "played_at"


def test_instants_are_microseconds():
    tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    assert check(["a", "b", "c"], played_at=[NOW, tokyo, None]).played_at == [to_us(NOW), to_us(NOW), None]


# --- dimensions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling",
    ["none", "no-modifiers", [], (), set(), frozenset(), ["none"], {"none", "no-modifiers"}, ["none", "none"]],
)
def test_the_empty_set_has_one_form(spelling):
    assert check(["a"], dimensions={"modifiers": [spelling]}).dimensions["modifiers"] == [frozenset()]
    assert checked_dimension(spelling, "modifiers", GAME.dimensions["modifiers"], LIMITS) == frozenset()


def test_sets_have_no_order_and_no_repeats():
    column = [["a", "b"], ("b", "a"), {"a", "b"}, frozenset("ab"), ["b", "a", "b"], ["a", "none", "b"], None, "a"]
    checked = check(["p"] * len(column), dimensions={"modifiers": column}).dimensions["modifiers"]
    assert checked == [frozenset("ab")] * 6 + [None, frozenset("a")]


def test_a_list_is_a_column_and_a_set_is_one_value():
    assert check(["p", "q"], dimensions={"modifiers": ["a", "b"]}).dimensions["modifiers"] == [{"a"}, {"b"}]
    assert check(["p", "q"], dimensions={"modifiers": {"a", "b"}}).dimensions["modifiers"] == [{"a", "b"}] * 2
    assert refused(player_ids=["p", "q"], dimensions={"modifiers": ["a"]}).field == "dimensions.modifiers"


def test_one_value_may_stand_for_all_rows():
    batch = check(["p", "q"], dimensions={"track": "x", "level": 5, "ranked": True, "other": None}, metrics={"m": 3})
    assert batch.dimensions == {"track": ["x", "x"], "level": [5, 5], "ranked": [True, True], "other": [None, None]}
    assert batch.metrics == {"m": [3, 3]}


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("ranked", 1, InvalidInput),
        ("ranked", "true", InvalidInput),
        ("level", True, InvalidInput),
        ("level", "5", InvalidInput),
        ("level", 2**63, OutOfRange),
        ("level", Decimal(5), InvalidInput),
        ("track", True, InvalidInput),
        ("track", 1.5, InvalidInput),
        ("track", float("nan"), InvalidInput),
        ("track", "x" * 1025, LimitExceeded),
        ("track", "\ud800", InvalidInput),
        ("track", -(2**63) - 1, OutOfRange),
        ("track", {"a": 1}, InvalidInput),
        ("track", b"x", InvalidInput),
        ("modifiers", 5, InvalidInput),
        ("modifiers", [5], InvalidInput),
        ("modifiers", [["a"]], InvalidInput),
        ("modifiers", ["a", None], InvalidInput),
        ("modifiers", [""], LimitExceeded),
        ("modifiers", ["\ud800"], InvalidInput),
        ("modifiers", [str(item) for item in range(65)], LimitExceeded),
        ("undeclared", False, InvalidInput),
        ("undeclared", [[]], InvalidInput),
        ("undeclared", object(), InvalidInput),
    ],
)
def test_a_bad_dimension_is_named_with_its_row(name, value, kind):
    good = {"ranked": False, "level": 1, "track": "x", "modifiers": ["x"]}.get(name, "x")
    error = refused(kind, player_ids=["p"] * 3, dimensions={name: [good, None, value]})
    assert error.field == f"dimensions.{name}[2]"
    assert refused(kind, dimensions={name: [value]}).field == f"dimensions.{name}"


def test_one_and_true_are_told_apart():
    assert refused(player_ids=["p", "q"], dimensions={"level": [1, True]}).field == "dimensions.level[1]"


@pytest.mark.parametrize("kind", ["dimensions", "metrics"])
def test_names_of_columns(kind):
    assert refused(**{kind: [1]}).field == kind
    assert refused(**{kind: np.array([1, 2])}).field == kind
    for name in ("", "a b", "1a", "ü", "a\n", "x" * 65, 5, None, "\ud800"):
        assert refused(**{kind: {name: 1}}).field == kind
    for name in ("score", "player_id", "accepted_at", "played_at", "submission_id"):
        assert refused(**{kind: {name: 1}}).field == f"{kind}.{name}"
    most = LIMITS.dimensions_max if kind == "dimensions" else LIMITS.metrics_max
    assert refused(LimitExceeded, **{kind: {f"n{i}": 1 for i in range(most + 1)}}).value == most + 1
    check(**{kind: {f"n{i}": 1 for i in range(most)}})


def test_a_name_is_a_dimension_or_a_metric():
    assert refused(dimensions={"speed": 1}, metrics={"speed": 1}).field == "metrics.speed"


# --- rows of batches -------------------------------------------------------------------------------------------


def test_take_slice_and_concatenate():
    whole = check(
        ["a", "b", "c"],
        [1, 2, 3],
        submission_ids=["x", None, "z"],
        metrics={"m": [1, None, 3]},
        played_at=[NOW, None, NOW],
    )
    other = check(["d"], [4], dimensions={"track": ["t"]})
    assert whole.take([2, 0]).player_ids == ["c", "a"]
    assert whole.slice(1, 3) == whole.take([1, 2])
    assert Batch.concatenate([whole.slice(0, 1), whole.slice(1, 3)]) == whole
    assert Batch.concatenate([whole]) is whole
    both = Batch.concatenate([whole, other])
    assert both.player_ids == ["a", "b", "c", "d"]
    assert both.metrics == {"m": [1, None, 3, None]}
    assert both.dimensions == {"track": [None, None, None, "t"]}
    assert both.played_at == [to_us(NOW), None, to_us(NOW), None]


# --- anything at all -------------------------------------------------------------------------------------------


class Hostile:
    """Fails at whatever is asked of it, except to be shown."""

    def __len__(self):
        raise RuntimeError("len")

    def __hash__(self):
        raise RuntimeError("hash")

    def __eq__(self, other):
        raise RuntimeError("eq")

    def tolist(self):
        raise RuntimeError("tolist")


class Growing(list):
    def __len__(self):
        return 1


def arrow_arrays():
    pa = pytest.importorskip("pyarrow")
    return [pa.array([1, 2]), pa.array(["a"]), pa.array([None]), pa.array([[1], None]), pa.table({"a": [1]})]


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, INT64_MAX + 1, INT64_MIN])
    | st.floats()
    | st.decimals()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.text(max_size=20)
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["\ud800", "\0", "", "x" * 2000, "😀" * 100, "@1", "none"])
    | st.binary(max_size=5)
    | st.complex_numbers()
    | st.uuids()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.builds(np.int64, st.integers(-5, 5))
    | st.sampled_from([np.array(1), np.array([[1, 2]]), np.array([]), np.array(["a"]), np.ma.masked_array([1], [True])])
    | st.sampled_from([np.array([np.datetime64("NaT", "s")]), np.zeros(1, dtype="i4,f4"), np.ndarray])
    | st.just(np.float64("nan"))
    | st.builds(Hostile)
    | st.just(Growing([1, 2]))
    | st.sampled_from([object, len, ..., NotImplemented, range(10**12), memoryview(b"a")])
    | st.deferred(lambda: st.sampled_from(arrow_arrays()))
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
        | st.frozensets(st.text(max_size=3), max_size=3)
    ),
    max_leaves=6,
)
named = st.dictionaries(
    st.sampled_from(["track", "level", "ranked", "modifiers", "other", "score", "", "x y"]) | st.text(max_size=3),
    anything,
    max_size=3,
)


@given(
    player_ids=st.just(["p"]) | st.just(["p", "q"]) | anything,
    scores=st.just([1]) | st.just([1, Decimal(2)]) | anything,
    submission_ids=st.none() | anything,
    played_at=st.none() | anything,
    dimensions=st.none() | named | anything,
    metrics=st.none() | named | anything,
)
@example(["p"], [1], None, None, {"track": [Hostile()]}, None)
@example(["p"], [1], None, [Hostile()], None, {"m": Hostile()})
def test_bad_input_is_nothing_but_invalid_input(player_ids, scores, submission_ids, played_at, dimensions, metrics):
    try:
        batch = checked_batch(
            GAME,
            Limits(batch_rows_max=1000),
            player_ids=player_ids,
            scores=scores,
            submission_ids=submission_ids,
            played_at=played_at,
            dimensions=dimensions,
            metrics=metrics,
        )
    except InvalidInput as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert refusal.rule
        assert refusal.field.split("[")[0].split(".")[0] in {
            *("player_id", "player_ids", "score", "scores", "submission_id", "submission_ids", "played_at"),
            *("dimensions", "metrics"),
        }
        return
    rows = len(batch)
    assert {type(value) for value in batch.player_ids} == {str}
    assert {type(value) for value in batch.scores} <= {int, Decimal}
    assert {type(value) for value in batch.submission_ids} <= {str, type(None)}
    assert {type(value) for value in batch.played_at} <= {int, type(None)}
    for column in batch.dimensions.values():
        assert len(column) == rows
        assert {type(value) for value in column} <= {str, int, bool, frozenset, type(None)}
    for column in batch.metrics.values():
        assert len(column) == rows
        assert {type(value) for value in column} <= {int, Decimal, type(None)}


@given(anything, st.sampled_from([*GAME.dimensions.values(), None]))
def test_a_dimension_of_a_request_is_checked_the_same_way(value, declared):
    try:
        checked = checked_dimension(value, "track", declared, LIMITS)
    except InvalidInput as error:
        checked = error.field
    assert checked == "track" or type(checked) in (str, int, bool, frozenset)
