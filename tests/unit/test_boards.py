"""What a definition means: orders, scales, places, and which submissions feed which instances."""

import decimal
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laurels.batch import Batch
from laurels.boards import (
    Place,
    Ranker,
    place_from_key,
    place_key,
    scaled,
    sort_key,
    unscaled,
    values_of,
)
from laurels.errors import InvalidInput, LimitExceeded, NotFound, OutOfRange
from laurels.model import INT64_MAX, INT64_MIN, Board, Condition, Window
from laurels.windows import Periods, from_us, to_us

NOW = to_us(datetime(2026, 3, 29, tzinfo=UTC))
int64 = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX])


def ranker(**definition) -> Ranker:
    return Ranker("b", Board(**definition))


def batch(rows: list[dict]) -> Batch:
    """Rows of fields as columns."""

    def column(field, default=None):
        return [row.get(field, default) for row in rows]

    def columns(kind):
        names = {name: None for row in rows for name in row.get(kind, {})}
        return {name: [row.get(kind, {}).get(name) for row in rows] for name in names}

    return Batch(
        player_ids=column("player_id", "p"),
        scores=column("score", 0),
        submission_ids=column("submission_id"),
        played_at=column("played_at"),
        dimensions=columns("dimensions"),
        metrics=columns("metrics"),
    )


# --- sort keys -------------------------------------------------------------------------------------------------


@given(st.data(), st.lists(st.booleans(), min_size=1, max_size=5))
def test_key_order_is_tuple_order(data, descending):
    values = st.lists(int64, min_size=len(descending), max_size=len(descending))
    one, other = data.draw(values), data.draw(values)
    directed = [
        tuple(-value if down else value for value, down in zip(some, descending, strict=True)) for some in (one, other)
    ]
    keys = [sort_key(some, descending) for some in (one, other)]
    assert (keys[0] < keys[1]) == (directed[0] < directed[1])
    assert (keys[0] == keys[1]) == (one == other)
    assert [values_of(key, descending) for key in keys] == [one, other]
    assert len(keys[0]) == 8 * len(descending)


@pytest.mark.parametrize(
    "scores",
    [
        [900, 2800],
        [9, 10],
        [-10, -9],
        [Decimal("1.25"), Decimal("1.5")],
        [-3, -2, 0, 1, 2],
        [INT64_MIN, INT64_MIN + 1, 0, INT64_MAX],
    ],
)
def test_numbers_sort_as_numbers(scores):
    scale = 2 if any(isinstance(score, Decimal) for score in scores) else 0
    values = scaled(scores, scale, "score", "the board")
    keys = [sort_key([value], [False]) for value in values]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    down = [sort_key([value], [True]) for value in values]
    assert down == sorted(down, reverse=True)


def test_neighbours_beyond_2_to_the_53_are_distinct():
    scores = [1009651914519660511, 1009651914519660512, 1009651914519660544]
    assert [values_of(sort_key([score], [True]), [True])[0] for score in scores] == scores
    assert len({sort_key([score], [True]) for score in scores}) == 3


# --- scales ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scale", "want"),
    [
        (Decimal("1.50"), 1, 15),
        (Decimal("1.5"), 3, 1500),
        (Decimal("-0.001"), 3, -1),
        (Decimal("0E-50"), 0, 0),
        (Decimal("0E+50"), 2, 0),
        (Decimal("-0"), 2, 0),
        (Decimal("1E+3"), 0, 1000),
        (Decimal("1E+3"), 2, 100_000),
        (Decimal("1" + "0" * 70 + "E-65"), 0, 100_000),
        (Decimal("1." + "0" * 6000), 0, 1),
        (Decimal("9223372036854775.807"), 3, INT64_MAX),
        (Decimal("-9223372036854775.808"), 3, INT64_MIN),
        (INT64_MAX, 0, INT64_MAX),
        (7, 2, 700),
    ],
)
def test_scaling_is_exact(value, scale, want):
    assert scaled([value], scale, "score", "the board") == [want]
    assert scaled([value, 0], scale, "score", "the board") == [want, 0]
    assert unscaled(want, scale) == value


@pytest.mark.parametrize(
    ("value", "scale", "kind"),
    [
        (Decimal("1.25"), 1, OutOfRange),
        (Decimal("1E-30"), 18, OutOfRange),
        (Decimal("1E-999999999"), 18, OutOfRange),
        (Decimal("1E+30"), 0, OutOfRange),
        (Decimal("1E+999999999"), 0, OutOfRange),
        (Decimal("9" * 6000), 0, OutOfRange),
        (Decimal("0." + "9" * 6000), 18, OutOfRange),
        (Decimal("9223372036854775.808"), 3, OutOfRange),
        (2**63, 0, OutOfRange),
        (INT64_MIN - 1, 0, OutOfRange),
        (INT64_MAX, 1, OutOfRange),
        (Decimal("NaN"), 0, InvalidInput),
        (Decimal("sNaN"), 2, InvalidInput),
        (Decimal("-Infinity"), 2, InvalidInput),
        (True, 0, InvalidInput),
        (1.5, 1, InvalidInput),
        ("1", 0, InvalidInput),
        (None, 0, InvalidInput),
    ],
)
def test_what_does_not_fit_is_refused_with_its_row(value, scale, kind):
    with pytest.raises(InvalidInput) as caught:
        scaled([1, value], scale, "scores", "board b", [4, 7], 100)
    assert type(caught.value) is kind
    assert (caught.value.field, caught.value.value) == ("scores[107]", value)
    with pytest.raises(kind) as caught:
        scaled([value], scale, "low", "the board")
    assert caught.value.field == "low"


@given(
    st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.integers(-(10**19), 10**19), max_size=5),
    st.integers(0, 18),
)
def test_scaling_agrees_with_fractions(values, scale):
    assume(all(not isinstance(value, Decimal) or abs(value.adjusted()) < 100 for value in values))
    exact = [Fraction(value) * 10**scale for value in values]
    fits = [number.denominator == 1 and INT64_MIN <= number <= INT64_MAX for number in exact]
    if all(fits):
        column = scaled(values, scale, "score", "the board")
        assert column == exact
        assert [unscaled(value, scale) for value in column] == values
    else:
        with pytest.raises(OutOfRange) as caught:
            scaled(values, scale, "scores", "the board", range(len(values)))
        assert caught.value.field == f"scores[{fits.index(False)}]"


@given(int64, st.integers(0, 18))
def test_scaling_and_back_is_the_identity_in_any_decimal_context(value, scale):
    with decimal.localcontext(decimal.Context(prec=3)):
        number = unscaled(value, scale)
        assert scaled([number], scale, "score", "the board") == [value]
    assert Fraction(number) * 10**scale == value
    assert type(number) is (Decimal if scale else int)


# --- places ----------------------------------------------------------------------------------------------------

dimension_values = (
    st.text(max_size=5)
    | st.sampled_from(["1", "true", "[]", '","', "\0", "../x", "😀" * 100, "a#b", "ünï"])
    | int64
    | st.booleans()
    | st.frozensets(st.text(max_size=3), max_size=3)
)
places = st.builds(Place, st.lists(dimension_values, max_size=3).map(tuple), st.none() | int64)


def exact(place: Place):
    return [(type(value), value) for value in place.partition], place.window_start


@given(places, places)
def test_a_place_has_one_key_and_a_key_one_place(one, other):
    assert exact(place_from_key(place_key(one))) == exact(one)
    assert (place_key(one) == place_key(other)) == (exact(one) == exact(other))


def test_a_set_has_one_key():
    assert place_key(Place((frozenset(["b", "a", "ü"]),), None)) == '[[["a","b","ü"]],null]'


# --- definitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        ({"partition": ("a", "b", "a")}, "partition"),
        ({"partition": ("score",)}, "partition"),
        ({"partition": ("player_id",)}, "partition"),
        ({"partition": ("a b",)}, "partition[0]"),
        ({"partition": ("a\n",)}, "partition[0]"),
        ({"partition": "ab"}, "partition"),
        ({"order": ()}, "order"),
        ({"order": ("a", "b", "c", "d", "e")}, "order"),
        ({"order": ("score desc", "score asc")}, "order"),
        ({"order": ("score", "accepted_at", "accepted_at")}, "order"),
        ({"order": ("player_id asc",)}, "order"),
        ({"order": ("player_id asc", "score desc")}, "order"),
        ({"order": ("score desc", "player_id asc", "accepted_at asc")}, "order"),
        ({"order": ("score desc", "submission_id asc")}, "order"),
        ({"order": ("score up",)}, "order[0]"),
        ({"order": ("score desc\n",)}, "order[0]"),
        ({"order": ("score asc\n",)}, "order[0]"),
        ({"order": ("stars desc",), "policy": "sum"}, "order"),
        ({"order": ("stars desc",), "policy": "count"}, "order"),
        ({"order": ("stars desc",), "policy": "min", "of": "stars"}, "order"),
        ({"order": ("accepted_at asc",), "policy": "max"}, "order"),
        ({"policy": "average"}, "policy"),
        ({"ranking": "random"}, "ranking"),
        ({"of": "stars"}, "of"),
        ({"of": "stars", "policy": "count"}, "of"),
        ({"of": "stars\n", "policy": "sum"}, "of"),
        ({"of": "accepted_at", "policy": "sum"}, "of"),
        ({"of": "player_id", "policy": "max"}, "of"),
        ({"scale": 19}, "scale"),
        ({"scale": -1}, "scale"),
        ({"scale": {"score": 19}}, "scale[...]"),
        ({"scale": {"stars": 1}}, "scale"),
        ({"scale": {"accepted_at": 1}}, "scale"),
        ({"scale": {"a b": 1}}, "scale"),
        ({"scale": 2, "policy": "count"}, "scale"),
        ({"scale": {"score": 2}, "policy": "count"}, "scale"),
        ({"where": {"player_id": "x"}}, "where.player_id"),
        ({"where": {"accepted_at": 5}}, "where.accepted_at"),
        ({"where": {"x": Condition()}}, "where.x"),
        ({"where": {"x": Condition(exists=False, eq=1)}}, "where.x"),
        ({"where": {"x": Condition(ge=float("nan"))}}, "where"),
        ({"where": {"x": Condition(ge=float("inf"))}}, "where"),
        ({"where": {"x": Decimal("1.5")}}, "where"),
        ({"where": {"x": None}}, "where[...]"),
        ({"where": {"x": {1, 2}}}, "where[...]"),
        ({"where": {"x y": 1}}, "where"),
        ({"title": "\ud800"}, "title"),
        ({"title": object()}, "title"),
        ({"window": Window()}, "window"),
        ({"window": Window(every="hour")}, "window.every"),
        ({"window": Window(every="day", timezone="Europe/Atlantis")}, "window.timezone"),
        ({"window": Window(every="day", timezone=5)}, "window.timezone"),
        ({"window": Window(every="day", keep=-1)}, "window.keep"),
        ({"window": Window(keep=3)}, "window.keep"),
        ({"window": Window(every="month", origin=datetime(2026, 1, 31))}, "window.origin"),
        ({"window": Window(start=datetime(2026, 1, 1), end=datetime(2025, 1, 1))}, "window.end"),
    ],
)
def test_a_definition_that_makes_no_sense_names_its_field(definition, field):
    with pytest.raises(InvalidInput) as caught:
        Ranker("b", Board(**definition))
    assert caught.value.field == f"boards.b.{field}"
    assert caught.value.rule


def test_a_partition_has_a_limit():
    with pytest.raises(LimitExceeded) as caught:
        ranker(partition=tuple(f"d{i}" for i in range(9)))
    assert caught.value.field == "boards.b.partition"


@pytest.mark.parametrize("name", ["", "a b", "1", "a\n", "x" * 65, "ü", None, 5])
def test_a_board_has_a_name(name):
    with pytest.raises(InvalidInput) as caught:
        Ranker(name, Board())
    assert caught.value.field == "boards"


@pytest.mark.parametrize(
    ("order", "fields", "tie_terms", "value_term", "player_descending"),
    [
        (("score desc", "accepted_at asc"), ["score", "accepted_at"], 1, 0, False),
        (("score desc",), ["score"], 1, 0, False),
        (("score desc", "player_id desc"), ["score"], 1, 0, True),
        (("score desc", "player_id asc"), ["score"], 1, 0, False),
        (("score desc", "stars desc", "played_at asc", "hits"), ["score", "stars", "played_at", "hits"], 2, 0, False),
        (("stars desc", "score desc"), ["stars", "score"], 2, 1, False),
        (("stars desc",), ["stars", "score"], 1, 1, False),
        (("stars desc", "accepted_at asc"), ["stars", "accepted_at", "score"], 1, 2, False),
        (("stars desc", "misses asc", "player_id desc"), ["stars", "misses", "score"], 2, 2, True),
        (("accepted_at asc",), ["accepted_at", "score"], 1, 1, False),
        (("played_at desc", "score asc"), ["played_at", "score"], 1, 1, False),
        (("accepted_at", "score", "stars", "misses"), ["accepted_at", "score", "stars", "misses"], 1, 1, False),
    ],
)
def test_ties_are_decided_before_the_first_time(order, fields, tie_terms, value_term, player_descending):
    made = ranker(order=order)
    assert [term.field for term in made.terms] == fields
    assert made.tie_terms == tie_terms
    assert made.value_term == value_term
    assert made.player_descending is player_descending


def test_directions():
    terms = ranker(order=["score asc", "stars desc", "misses"]).terms
    assert [term.descending for term in terms] == [False, True, True]
    assert ranker(order=["stars asc"]).terms[-1] == ("score", True, 0)


def test_scales():
    assert [term.scale for term in ranker(order=("score", "stars", "accepted_at"), scale=3).terms] == [3, 0, 0]
    both = ranker(order=("score", "stars", "accepted_at"), scale={"stars": 2})
    assert [term.scale for term in both.terms] == [0, 2, 0]
    of = ranker(policy="sum", of="seconds", scale={"seconds": 3})
    assert of.score_scale == 3
    assert of.score(1500) == Decimal("1.500")
    assert both.order_values([5, 250, NOW]) == {"score": 5, "stars": Decimal("2.50"), "accepted_at": from_us(NOW)}


# --- routes ----------------------------------------------------------------------------------------------------


def feeds(condition, value) -> bool:
    """What a condition means, said plainly."""
    if not isinstance(condition, Condition):
        condition = Condition(eq=condition)

    def plain(operand):
        if isinstance(operand, list):
            return frozenset(operand)
        return Decimal(repr(operand)) if isinstance(operand, float) else operand

    def same(operand):
        return isinstance(value, bool) == isinstance(operand, bool) and value == plain(operand)

    if value is None:
        return condition.exists is False
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return (
        condition.exists is not False
        and (condition.eq is None or same(condition.eq))
        and (condition.ne is None or not same(condition.ne))
        and (condition.in_ is None or any(map(same, condition.in_)))
        and (condition.ge is None or (number and value >= plain(condition.ge)))
        and (condition.gt is None or (number and value > plain(condition.gt)))
        and (condition.le is None or (number and value <= plain(condition.le)))
        and (condition.lt is None or (number and value < plain(condition.lt)))
        and (condition.subset_of is None or (isinstance(value, frozenset) and value <= set(condition.subset_of)))
        and (condition.superset_of is None or (isinstance(value, frozenset) and value >= set(condition.superset_of)))
    )


def expected(made: Ranker, rows: list[dict], accepted_at: int) -> dict:
    """The instances that rows feed, one row after the other."""
    board = made.definition
    found: dict = {}
    for row, fields in enumerate(rows):
        dimensions, metrics = fields.get("dimensions", {}), fields.get("metrics", {})
        values = {**metrics, **dimensions, "score": fields["score"]}
        if not all(feeds(condition, values.get(name)) for name, condition in board.where.items()):
            continue
        partition = tuple(dimensions.get(name) for name in board.partition)
        if None in partition:
            continue
        played_at = fields.get("played_at")
        numbers = {
            **metrics,
            "score": 1 if board.policy == "count" else {**metrics, "score": fields["score"]}.get(board.of),
            "accepted_at": accepted_at + row,
            "played_at": accepted_at + row if played_at is None else played_at,
        }
        if any(numbers.get(term.field) is None for term in made.terms):
            continue
        start = None
        if board.window is not None:
            span = Periods(board.window).at(accepted_at + row)
            if span is None:
                continue
            start = span.start_us
        terms = [int(numbers[term.field] * 10**term.scale) for term in made.terms]
        found.setdefault(Place(partition, start), []).append((row, terms))
    return found


def routed(made: Ranker, rows: list[dict], accepted_at: int) -> dict:
    found: dict = {}
    for route in made.routes(batch(rows), accepted_at):
        assert route.place not in found
        assert len(route.rows) > 0
        columns = list(zip(*route.terms, strict=True))
        found[route.place] = [(row, list(terms)) for row, terms in zip(route.rows, columns, strict=True)]
    return found


sets = st.frozensets(st.sampled_from("abc"), max_size=3)
values = st.sampled_from(["x", "y", 1, 0, -5, True, False]) | sets
operands = st.sampled_from(["x", "y", 1, 0, 1.5, True, False]) | sets.map(sorted)
bounds = st.none() | st.sampled_from([-5, 0, 1, 1.5, 0.1, 10**30])
conditions = st.one_of(
    st.sampled_from(["x", 1, 1.5, True]),
    st.builds(Condition, eq=operands),
    st.builds(Condition, ne=operands),
    st.builds(Condition, in_=st.lists(st.sampled_from(["x", 1, 1.5, True]), max_size=3)),
    st.builds(Condition, exists=st.booleans()),
    st.builds(Condition, ge=bounds, lt=bounds, exists=st.just(True)),
    st.builds(Condition, gt=bounds, le=bounds, exists=st.just(True)),
    st.builds(Condition, subset_of=sets.map(sorted)),
    st.builds(Condition, superset_of=sets.map(sorted), ne=st.none() | sets.map(sorted)),
)
decimals = st.integers(-(10**6), 10**6) | st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-1))
window_definitions = st.none() | st.sampled_from(
    [
        Window(every="day"),
        Window(every="week", timezone="Europe/Berlin", start=from_us(NOW + 1)),
        Window(every="1 minute", end=from_us(NOW + 3)),
        Window(start=from_us(NOW + 1), end=from_us(NOW + 2)),
        Window(start=from_us(NOW + 2)),
        Window(end=from_us(NOW + 2)),
    ]
)


@st.composite
def definitions(draw):
    policy = draw(st.sampled_from(["best", "last", "first", "sum", "count", "min", "max"]))
    fields = draw(st.permutations(["score", "m", "n", "accepted_at", "played_at"]))[: draw(st.integers(1, 3))]
    if policy in ("sum", "count", "min", "max") and "score" not in fields:
        fields.append("score")
    of = draw(st.sampled_from(["score", "m"])) if policy in ("sum", "min", "max") else "score"
    return Board(
        where=draw(st.dictionaries(st.sampled_from(["d", "e", "m", "q", "score"]), conditions, max_size=2)),
        partition=tuple(draw(st.permutations(["d", "e"]))[: draw(st.integers(0, 2))]),
        window=draw(window_definitions),
        order=tuple(f"{field} {draw(st.sampled_from(['asc', 'desc']))}" for field in fields),
        policy=policy,
        of=of,
        scale={
            field: 1
            for field in ("m", "n", "score")
            if field in (*fields, of) and not (field == "score" == of and policy == "count")
        },
    )


@st.composite
def batches(draw):
    size = draw(st.integers(1, 8))
    constant = draw(st.booleans())
    kinds = {
        name: draw(st.sampled_from([st.sampled_from("xy"), st.integers(0, 1), st.booleans(), sets])) for name in "de"
    }
    rows = []
    for row in range(size):
        if constant and row:
            rows.append({**rows[0], "score": draw(decimals)})
            continue
        rows.append(
            {
                "score": draw(decimals),
                "played_at": draw(st.none() | st.integers(NOW - 9, NOW + 9)),
                "dimensions": {name: draw(kind) for name, kind in kinds.items() if draw(st.integers(0, 5))},
                "metrics": {name: draw(decimals) for name in "mn" if draw(st.integers(0, 5))},
            }
        )
    return rows


@given(definitions(), batches(), st.integers(NOW - 5, NOW + 5))
def test_routes_agree_with_one_row_after_the_other(definition, rows, accepted_at):
    made = Ranker("b", definition)
    assert routed(made, rows, accepted_at) == expected(made, rows, accepted_at)


@pytest.mark.parametrize(
    ("condition", "value", "want"),
    [
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (Condition(ne=True), 1, True),
        (Condition(in_=[1]), True, False),
        (1, Decimal("1.0"), True),
        (1.1, Decimal("1.1"), True),
        (Condition(ge=0.1), Decimal("0.1"), True),
        (Condition(gt=0.1), Decimal("0.1"), False),
        (Condition(lt=10**30), 5, True),
        (Condition(ge=0), "5", False),
        (Condition(ge=0), True, False),
        (Condition(ne="x"), None, False),
        (Condition(exists=False), None, True),
        (Condition(exists=False), "x", False),
        (Condition(exists=True), "", True),
        (Condition(eq=[]), frozenset(), True),
        (Condition(eq=["a", "b"]), frozenset("ba"), True),
        (Condition(subset_of=["a", "b"]), frozenset(), True),
        (Condition(subset_of=["a", "b"]), frozenset("abc"), False),
        (Condition(subset_of=["a"]), "a", False),
        (Condition(superset_of=[]), frozenset(), True),
        (Condition(superset_of=["a"]), frozenset("ab"), True),
        (Condition(in_=[]), 1, False),
    ],
)
def test_conditions(condition, value, want):
    dimensions = {} if value is None else {"d": value}
    made = ranker(where={"d": condition})
    assert bool(made.routes(batch([{"dimensions": dimensions}]), NOW)) is want
    others = [{"dimensions": dimensions}, {"dimensions": {"d": "other"}}, {"dimensions": {}}]
    assert any(0 in route.rows for route in made.routes(batch(others), NOW)) is want


def test_a_metric_is_no_partition_and_a_dimension_no_number():
    rows = [{"score": 1, "metrics": {"speed": 5}}, {"score": 2, "dimensions": {"speed": 7}}]
    by_dimension, by_metric = ranker(partition=("speed",)), ranker(order=("speed desc",))
    assert routed(by_dimension, rows[:1], NOW) == {}
    assert routed(by_metric, rows[1:], NOW) == {}
    assert routed(by_dimension, rows, NOW) == {Place((7,), None): [(1, [2, NOW + 1])]}
    assert routed(by_metric, rows, NOW) == {Place((), None): [(0, [5, 1])]}
    both = ranker(where={"speed": Condition(ge=5)})
    assert [row for row, _ in routed(both, rows, NOW)[Place((), None)]] == [0, 1]


def test_a_batch_crosses_midnight():
    made = ranker(window=Window(every="day", timezone="Europe/Berlin"))
    midnight = to_us(datetime(2026, 3, 28, 23, tzinfo=UTC))
    found = routed(made, [{"score": 1}] * 5, midnight - 2)
    assert [(place.window_start, [row for row, _ in rows]) for place, rows in found.items()] == [
        (midnight - 24 * 3_600_000_000, [0, 1]),
        (midnight, [2, 3, 4]),
    ]


def test_a_season_within_a_batch():
    made = ranker(window=Window(start=from_us(NOW + 2), end=from_us(NOW + 4)))
    assert [row for row, _ in routed(made, [{"score": 1}] * 6, NOW)[Place((), NOW + 2)]] == [2, 3]
    assert made.routes(batch([{}]), NOW - 5) == made.routes(batch([{}]), NOW + 5) == []


def test_a_best_entry_needs_every_number_of_the_order():
    made = ranker(order=("score desc", "stars desc"))
    rows = [{"score": 1}, {"score": 2, "metrics": {"stars": 3}}]
    assert routed(made, rows, NOW) == {Place((), None): [(1, [2, 3])]}
    assert routed(made, rows[:1], NOW) == {}


def test_a_count_counts_whatever_the_score():
    rows = [{"score": Decimal("1.234")}, {"score": 5}]
    assert routed(ranker(policy="count"), rows, NOW) == {Place((), None): [(0, [1, NOW]), (1, [1, NOW + 1])]}


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        ({"scale": 1}, "score"),
        ({"order": ("stars", "score")}, "metrics.stars"),
        ({"policy": "sum", "of": "stars"}, "metrics.stars"),
    ],
)
def test_more_digits_than_the_scale_are_refused_with_their_row(definition, field):
    made = ranker(**definition)
    row = {"score": Decimal("1.25") if field == "score" else 1, "metrics": {"stars": Decimal("1.5")}}
    good = {"score": 1, "metrics": {"stars": 1}}
    with pytest.raises(OutOfRange) as caught:
        made.routes(batch([row]), NOW)
    assert caught.value.field == field
    with pytest.raises(OutOfRange) as caught:
        made.routes(batch([good, good, row]), NOW, 1000)
    assert caught.value.field == {"score": "scores[1002]"}.get(field, "metrics.stars[1002]")
    assert "board b" in caught.value.rule


# --- reading ---------------------------------------------------------------------------------------------------


def test_a_place_needs_its_whole_partition_and_nothing_else():
    made = ranker(partition=("track", "level"))
    assert made.place({"level": 1, "track": "x"}, NOW) == Place(("x", 1), None)
    for partition, field in (({"track": "x"}, "level"), ({"track": "x", "level": 1, "mode": "y"}, "mode")):
        with pytest.raises(InvalidInput) as caught:
            made.place(partition, NOW)
        assert caught.value.field == field


@pytest.mark.parametrize("moment", [datetime.min, datetime(2025, 1, 1), datetime(2027, 1, 1), datetime.max])
def test_there_is_no_place_outside_a_season(moment):
    made = ranker(window=Window(every="week", start=datetime(2026, 1, 1), end=datetime(2026, 2, 1)))
    with pytest.raises(NotFound):
        made.place({}, to_us(moment.replace(tzinfo=UTC)))
    with pytest.raises(NotFound):
        ranker(window=Window(every="week")).place({}, to_us(datetime.min.replace(tzinfo=UTC)) - 1)


@given(window_definitions, st.integers(NOW - 5, NOW + 5))
def test_a_place_is_found_again_by_its_name(window, instant):
    made = ranker(window=window, partition=("d",))
    try:
        place = made.place({"d": "x"}, instant)
    except NotFound:
        return
    name = made.instance_name(place)
    assert name.board == "b"
    assert name.partition == {"d": "x"}
    assert name.window_start == (None if place.window_start is None else from_us(place.window_start))
    assert (name.window_label is None) == (window is None or window.every is None)
    if name.window_start is not None:
        assert made.place({"d": "x"}, to_us(name.window_start)) == place
    if name.window_end is not None:
        assert name.window_end > from_us(instant)
    assert place_from_key(place_key(place)) == place


def test_keep_says_how_many_finished_instances_stay():
    day = 24 * 3_600_000_000
    made = ranker(window=Window(every="day", keep=2))
    kept = [made.is_kept(Place((), NOW - days * day), NOW) for days in range(5)]
    assert kept == [True, True, True, False, False]
    assert ranker().is_kept(Place((), None), NOW)
    assert ranker(window=Window(every="day")).is_kept(Place((), NOW - 999 * day), NOW)


def test_keep_counts_the_cut_first_period_too():
    made = ranker(window=Window(every="week", keep=1, start=datetime(2026, 1, 7)))
    first = made.place({}, to_us(datetime(2026, 1, 7, tzinfo=UTC)))
    assert made.instance_name(first).window_label == "2026-W02"
    assert made.is_kept(first, to_us(datetime(2026, 1, 13, tzinfo=UTC)))
    assert not made.is_kept(first, to_us(datetime(2026, 1, 20, tzinfo=UTC)))
