"""The native rank index beside a sorted list in plain Python, step by step, for all orders, policies and rankings."""

import random
import statistics
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from laurels._native import Outcome, Players, RankIndex, Rows
from laurels.model import INT64_MAX, INT64_MIN

POLICIES = ("best", "last", "first", "sum", "count", "min", "max")
RANKINGS = ("competition", "dense", "ordinal")
IDS = [*"abcdefgh", "ab", "a#b", "ünï", "😀"]
NUMBERS = st.integers(-3, 3) | st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX])


def new_index(players: Players | None = None, **changes: Any) -> RankIndex:
    spec: dict[str, Any] = {
        "descending": [True, False],
        "tie_terms": 1,
        "player_descending": False,
        "policy": "best",
        "value_term": 0,
        "ranking": "competition",
    }
    return RankIndex(Players() if players is None else players, **(spec | changes))  # an empty one is false


class Model:
    """What is right: entries in a dictionary, everything else worked out when asked."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.entries: dict[str, tuple[list[int], int]] = {}
        self.pending: dict[str, tuple[int, bool]] = {}

    def key(self, terms: list[int]) -> tuple[int, ...]:
        return tuple(-value if down else value for value, down in zip(terms, self.spec["descending"], strict=True))

    def order(self) -> list[str]:
        def place(player: str) -> tuple[Any, ...]:
            octets = (
                [-octet for octet in player.encode()] + [1] if self.spec["player_descending"] else list(player.encode())
            )
            return (self.key(self.entries[player][0]), octets)

        return sorted(self.entries, key=place)

    def rank(self, player: str) -> int:
        ties = self.spec["tie_terms"]
        mine = self.key(self.entries[player][0])[:ties]
        before = [self.key(terms)[:ties] for terms, _ in self.entries.values() if self.key(terms)[:ties] < mine]
        if self.spec["ranking"] == "ordinal":
            return self.order().index(player) + 1
        return 1 + (len(set(before)) if self.spec["ranking"] == "dense" else len(before))

    def standing(self, player: str) -> tuple[int, int, int] | None:
        if player not in self.entries:
            return None
        value = self.entries[player][0][self.spec["value_term"]]
        return value, self.rank(player), self.order().index(player) + 1

    def apply(self, player: str, terms: list[int], place: int) -> bool:
        at, policy = self.spec["value_term"], self.spec["policy"]
        if policy == "count":
            terms = [*terms[:at], 1, *terms[at + 1 :]]
        old, old_place = self.entries.get(player, (None, -1))
        if old is not None:
            counts = {
                "best": self.key(terms) < self.key(old),
                "first": False,
                "min": terms[at] < old[at],
                "max": terms[at] > old[at],
            }.get(policy, place > old_place)
            if not counts:
                return False
            if policy in ("sum", "count"):
                terms = [*terms[:at], old[at] + terms[at], *terms[at + 1 :]]
        self.entries[player] = (terms, place)
        self.pending[player] = (place, False)
        return True


SPECS = st.integers(1, 5).flatmap(
    lambda width: st.fixed_dictionaries(
        {
            "descending": st.lists(st.booleans(), min_size=width, max_size=width),
            "tie_terms": st.integers(1, width),
            "player_descending": st.booleans(),
            "policy": st.sampled_from(POLICIES),
            "value_term": st.integers(0, width - 1),
            "ranking": st.sampled_from(RANKINGS),
        }
    )
)


class Steps(RuleBasedStateMachine):
    """Random steps; after each one every answer is compared and every invariant checked."""

    @initialize(spec=SPECS)
    def start(self, spec: dict[str, Any]) -> None:
        self.model = Model(spec)
        self.index = new_index(**spec)
        self.place = 0

    def row(self, data: st.DataObject) -> tuple[str, list[int]]:
        terms = [data.draw(NUMBERS) for _ in self.model.spec["descending"]]
        return data.draw(st.sampled_from(IDS)), terms

    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        player, terms = self.row(data)
        self.place += 1
        policy, at = self.model.spec["policy"], self.model.spec["value_term"]
        if policy == "sum" and player in self.model.entries:
            total = self.model.entries[player][0][at] + terms[at]
            if not INT64_MIN <= total <= INT64_MAX:
                assert self.index.sum_overflow([player], [terms[at]]) == 0
                with pytest.raises(OverflowError):
                    self.index.apply([player], [[term] for term in terms], [self.place])
                return
        old = self.model.standing(player)
        counted = self.model.apply(player, terms, self.place)
        outcome = self.index.apply([player], [[term] for term in terms], [self.place])
        assert outcome.counted == [counted]
        assert standings(outcome) == [(old, self.model.standing(player))]
        assert outcome.totals == [len(self.model.entries)]
        again = self.index.apply([player], [[term] for term in terms], [self.place])
        assert again.counted == [False]

    @rule(player=st.sampled_from(IDS))
    def remove(self, player: str) -> None:
        self.place += 1
        there = self.model.entries.pop(player, None) is not None
        if there:
            self.model.pending[player] = (self.place, True)
        assert self.index.remove([player], [self.place]) == [there]

    @precondition(lambda self: self.model.pending)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        limit = data.draw(st.integers(1, 5))
        some = self.index.pending(limit)
        assert some.player_ids == sorted(self.model.pending, key=str.encode)[:limit]
        self.index.mark_clean(some.player_ids, [place - 1 for place in some.places])  # of an older state: nothing
        assert self.index.pending_count() == len(self.model.pending)
        self.index.mark_clean(some.player_ids, some.places)
        for player in some.player_ids:
            del self.model.pending[player]

    @rule()
    def reload(self) -> None:
        """From what a store would keep."""
        players = list(self.model.entries)
        columns = list(zip(*(self.model.entries[player][0] for player in players), strict=True))
        terms = [list(column) for column in columns] or [[] for _ in self.model.spec["descending"]]
        self.index = new_index(**self.model.spec)
        self.index.load(players, terms, [self.model.entries[player][1] for player in players])
        self.model.pending.clear()

    @invariant()
    def answers_are_right(self) -> None:
        if not hasattr(self, "model"):
            return
        model, index = self.model, self.index
        index.check()
        order = model.order()
        assert len(index) == len(order)
        ranks = [model.rank(player) for player in order]
        terms = [model.entries[player][0] for player in order]
        everything = (1, order, ranks, terms)
        assert unpacked(index.rows(1, 100)) == everything
        for at, player in enumerate(order):
            assert index.rank(player) == (ranks[at], at + 1)
            assert index.entry(player) == (ranks[at], at + 1, tuple(terms[at]))
            after, before = index.after(terms[at], player, 3), index.before(terms[at], player, 3)
            assert after.player_ids == order[at + 1 : at + 4]
            assert before.player_ids == order[max(0, at - 3) : at]
            assert before.ranks == ranks[max(0, at - 3) : at]
            for width in range(len(terms[at]) + 1):
                keys = [model.key(other)[:width] for other in terms]
                mine = model.key(terms[at])[:width]
                assert index.count_before(terms[at][:width]) == sum(key < mine for key in keys)
                assert index.count_through(terms[at][:width]) == sum(key <= mine for key in keys)
            for limit in (1, 2, 4, 5, 100):
                first = min(max(0, at - (limit - 1) // 2), max(0, len(order) - limit))
                assert index.around(player, limit).player_ids == order[first : first + limit]
        found = index.ranks([*IDS, "nobody"])
        assert found[1] == [order.index(player) + 1 if player in order else 0 for player in [*IDS, "nobody"]]
        for player in set(IDS) - set(order):
            assert index.rank(player) is index.entry(player) is index.around(player, 3) is None
        pending = index.pending()
        assert (
            dict(zip(pending.player_ids, zip(pending.places, pending.removed, strict=True), strict=True))
            == model.pending
        )
        assert pending.player_ids == sorted(model.pending, key=str.encode)
        places = [-1 if gone else place for place, gone in model.pending.values()]
        assert index.pending_places(list(model.pending)) == places


TestSteps = Steps.TestCase
TestSteps.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


def unpacked(rows: Rows) -> tuple[int, list[str], list[int], list[list[int]]]:
    return rows.first_position, rows.player_ids, rows.ranks, [list(row) for row in zip(*rows.terms, strict=True)]


def standings(outcome: Outcome) -> list[tuple[Any, Any]]:
    old = zip(outcome.old_values, outcome.old_ranks, outcome.old_positions, strict=True)
    new = zip(outcome.new_values, outcome.new_ranks, outcome.new_positions, strict=True)
    return [tuple(None if side[0] is None else side for side in both) for both in zip(old, new, strict=True)]


ROWS = st.lists(st.tuples(st.sampled_from(IDS), NUMBERS, NUMBERS), min_size=1, max_size=8)


@given(rows=ROWS, policy=st.sampled_from(POLICIES), order=st.randoms(use_true_random=False))
def test_merging_in_any_order_and_again_gives_the_same(rows: Any, policy: str, order: random.Random) -> None:
    placed = [(player, [a, b], place) for place, (player, a, b) in enumerate(rows)]

    def merged(some: list[Any]) -> tuple[Any, ...]:
        index = new_index(policy=policy)
        for player, terms, place in some:
            index.merge([player], [[term] for term in terms], [place])
            index.check()
        assert index.pending_count() == 0
        return unpacked(index.rows(1, 100))

    mixed = placed + [row for row in placed if order.random() < 0.5]
    order.shuffle(mixed)
    assert merged(mixed) == merged(placed)


@pytest.mark.parametrize("ranking", RANKINGS)
def test_large_boards_agree_with_a_sorted_list(ranking: str) -> None:
    rng = random.Random(ranking)
    spec = {"ranking": ranking, "descending": [True], "tie_terms": 1}
    index = new_index(**spec)
    scores: dict[str, int] = {}
    for _ in range(60):
        players = [f"player-{rng.randrange(20_000)}" for _ in range(1_000)]
        values = [rng.randrange(3_000) for _ in players]
        index.apply(players, [values], list(range(1_000)))
        for player, value in zip(players, values, strict=True):
            scores[player] = max(value, scores.get(player, value))
        gone = rng.sample(sorted(scores), 150)
        index.remove(gone, [0] * 150)
        for player in gone:
            del scores[player]
    index.check()
    order = sorted(scores, key=lambda player: (-scores[player], player))
    rows = index.rows(1, len(order) + 10)
    assert rows.player_ids == order
    assert rows.terms == [[scores[player] for player in order]]
    assert index.ranks(order) == (rows.ranks, list(range(1, len(order) + 1)))
    for position in rng.sample(range(1, len(order) + 1), 300):
        assert index.rows(position, 3).ranks == rows.ranks[position - 1 : position + 2]


def test_many_small_boards_share_their_players() -> None:
    players = Players()
    boards = [new_index(players) for _ in range(200)]
    ids = [f"player-{number}" for number in range(5_000)]
    rng = random.Random(1)
    for board in boards:
        some = rng.sample(ids, 100)
        board.load(some, [[rng.randrange(1_000) for _ in some], list(range(100))], list(range(100)))
        board.check()
    assert 4_000 < len(players) <= 5_000
    assert sum(board.memory_bytes() for board in boards) / (200 * 100) < 40


def test_boards_grow_from_few_to_many_of_the_game_s_players() -> None:
    players = Players()
    players.load([f"player-{number}" for number in range(10_000)], [-1] * 10_000)
    index = new_index(players)
    for start in range(0, 10_000, 500):  # one leaf, then a map of homes, then an array
        index.apply([f"player-{n}" for n in range(start, start + 500)], [[7] * 500, list(range(500))], list(range(500)))
        index.check()
    for start in range(0, 10_000, 500):
        index.remove([f"player-{n}" for n in range(start, start + 500)], [0] * 500)
        index.check()
    assert len(index) == 0
    assert unpacked(index.rows(1, 10)) == (1, [], [], [])


def test_a_board_stays_small_while_the_game_grows() -> None:
    players = Players()
    index = new_index(players)
    index.apply([f"early-{n}" for n in range(1_000)], [list(range(1_000)), [0] * 1_000], list(range(1_000)))
    players.load([f"late-{n}" for n in range(200_000)], [-1] * 200_000)
    index.apply(["late-199999"], [[500], [1]], [1_000])
    index.check()
    assert index.memory_bytes() / len(index) < 100
    assert index.rank("late-199999") == (500, 501)
    late = [f"late-{n}" for n in range(0, 200_000, 2)]  # and it may still become a large one
    index.load(late, [list(range(100_000)), [0] * 100_000], [0] * 100_000)
    index.check()


def test_one_player_s_rank_need_not_wait_for_a_whole_batch() -> None:
    index = new_index()
    size = 60_000
    ids = [f"player-{n}" for n in range(size)]
    index.load(ids, [list(range(size)), [0] * size], [0] * size)
    shares = []
    for turn in range(1, 8):
        columns = [array("q", range(turn * size, (turn + 1) * size)), array("q", [turn] * size)]
        took: list[float] = []

        def write(columns: list[Any] = columns, took: list[float] = took) -> None:
            start = time.perf_counter()
            index.apply(ids, columns, columns[1])
            took.append(time.perf_counter() - start)

        writer = threading.Thread(target=write)
        writer.start()
        longest = 0.0
        while writer.is_alive():
            start = time.perf_counter()
            assert index.rank("player-0") is not None
            longest = max(longest, time.perf_counter() - start)
        shares.append(longest / took[0])
    assert statistics.median(shares) < 0.5, shares


def test_what_is_merged_is_committed() -> None:
    index = new_index()
    index.apply(["a", "b", "c"], [[5, 5, 5], [1, 1, 1]], [1, 2, 3])
    index.remove(["a"], [4])
    assert index.merge(["a", "b", "c"], [[9, 9, 1], [1, 1, 1]], [5, 6, 7]) == [True, True, False]
    index.check()
    assert index.pending().player_ids == ["c"]
    assert index.rows(1, 9).player_ids == ["a", "b", "c"]


def test_an_empty_id_is_an_id() -> None:
    index = new_index()
    index.apply(["a", ""], [[2, 1], [0, 0]], [0, 1])
    assert index.ranks(["", "a", "b"]) == ([2, 1, 0], [2, 1, 0])
    assert index.rows(1, 9).player_ids == ["a", ""]
    index.apply(["", "a"], [[3, 3], [1, 0]], [2, 3])
    assert index.rows(1, 9).player_ids == ["a", ""]


def test_columns_may_be_buffers() -> None:
    index = new_index()
    index.apply(["a", "b"], [array("q", [1, 2]), np.array([5, 6])], np.array([0, 1]))
    assert index.rows(1, 9).terms == [[2, 1], [6, 5]]


def raises_on(call: Callable[[RankIndex], Any], error: type[Exception]) -> None:
    index = new_index()
    index.apply(["a"], [[1], [1]], [0])
    with pytest.raises(error):
        call(index)
    index.check()
    assert index.rank("a") == (1, 1)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda i: i.apply(["x"], [[1]], [0]), ValueError),
        (lambda i: i.apply(["x"], [[1], [1, 2]], [0]), ValueError),
        (lambda i: i.apply(["x"], [[1.5], [1]], [0]), TypeError),
        (lambda i: i.apply(["x"], [[True], [1]], [0]), TypeError),
        (lambda i: i.apply(["x"], [[None], [1]], [0]), TypeError),
        (lambda i: i.apply(["x"], [np.array([1.5]), [1]], [0]), TypeError),
        (lambda i: i.apply(["x"], [[2**63], [1]], [0]), OverflowError),
        (lambda i: i.apply(["x"], [b"\x01", [1]], [0]), TypeError),
        (lambda i: i.apply(["x"], [array("Q", [1]), [1]], [0]), TypeError),
        (lambda i: i.apply(["x", "y"], [np.zeros(4, np.int64)[::2], [1, 1]], [0, 1]), ValueError),
        (lambda i: i.apply(["x"], [[1], [1]], [-1]), ValueError),
        (lambda i: i.merge(["x"], [[1], [1]], [-1]), ValueError),
        (lambda i: i.remove(["a"], [-1]), ValueError),
        (lambda i: i.mark_clean(["a"], [-1]), ValueError),
        (lambda i: i.apply([5], [[1], [1]], [0]), TypeError),
        (lambda i: i.apply("x", [[1], [1]], [0]), TypeError),
        (lambda i: i.apply(["\ud800"], [[1], [1]], [0]), ValueError),
        (lambda i: i.apply(["x" * 70_000], [[1], [1]], [0]), ValueError),
        (lambda i: i.load(["x", "x"], [[1, 2], [1, 2]], [0, 1]), ValueError),
        (lambda i: i.rows(0, 5), ValueError),
        (lambda i: i.after([1], "a", 5), ValueError),
        (lambda i: i.count_before([1, 2, 3]), ValueError),
        (lambda i: new_index(policy="average"), ValueError),
        (lambda i: new_index(ranking="none"), ValueError),
        (lambda i: new_index(tie_terms=3), ValueError),
        (lambda i: new_index(descending=[True] * 6), ValueError),
    ],
)
def test_bad_input_changes_nothing(call: Callable[[RankIndex], Any], error: type[Exception]) -> None:
    raises_on(call, error)


def test_sums_are_checked_over_a_whole_batch() -> None:
    index = new_index(policy="sum", descending=[True])
    index.apply(["a"], [[INT64_MAX - 10]], [0])
    assert index.sum_overflow(["b", "a", "a"], [5, 6, 5]) == 2
    assert index.sum_overflow(["a", "a"], [6, 4]) is None
    with pytest.raises(OverflowError):
        index.apply(["b", "a", "a"], [[5, 6, 5]], [1, 2, 3])
    assert index.rows(1, 5).player_ids == ["a"]
    index.apply(["new", "new"], [[INT64_MIN + 1, -1]], [4, 5])
    assert index.entry("new") == (2, 2, (INT64_MIN,))


def test_readers_beside_a_writer() -> None:
    index = new_index(ranking="dense")
    ids = [f"player-{number}" for number in range(3_000)]
    index.apply(ids, [[0] * 3_000, list(range(3_000))], list(range(3_000)))
    stop = threading.Event()
    wrong: list[str] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            player = rng.choice(ids)
            if index.rank(player) is None:
                wrong.append(f"{player} is gone")
            rows = index.rows(rng.randrange(1, 3_000), 200)
            keys = list(zip([-score for score in rows.terms[0]], rows.terms[1], strict=True))
            if keys != sorted(keys) or len(set(rows.player_ids)) != len(keys):
                wrong.append("rows are not of one moment")
            positions = index.ranks(ids)[1]
            if sorted(positions) != list(range(1, 3_001)):
                wrong.append("positions are not of one moment")
            around = index.around(player, 9)
            if around is None or player not in around.player_ids:
                wrong.append("around misses the player")

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    rng = random.Random(9)
    for turn in range(150):
        some = rng.choices(ids, k=500)
        index.apply(some, [[rng.randrange(turn * 10 + 1) for _ in some], list(range(500))], list(range(500)))
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    index.check()
