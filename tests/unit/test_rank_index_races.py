"""Readers beside writers: what one call answers is of one moment, whatever the writers are at."""

import itertools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import Any

import pytest

from laurels._native import Players, RankIndex, Rows

# The team is written in one turn and with equal terms each time: who sees a part of it changed sees a torn state.
TEAM = [f"team-{n}" for n in range(8)]
# Residents are never removed, and their entries only get better.
RESIDENTS = [f"resident-{n}" for n in range(80)]
# Guests come and go, each for the first time at some time during the run.
GUESTS = [f"guest-{n}-{'ü' * (n % 30)}" for n in range(240)]
EVERYONE = TEAM + RESIDENTS + GUESTS
READERS = 3
TURNS = 1_500

Key = tuple[int, int, bytes]


def key(terms: Sequence[int], player: str) -> Key:
    """The order of both boards: score down, time up, then id."""
    score, time = terms
    return -score, time, player.encode()


@dataclass
class Board:
    """One index, and what must be in it."""

    index: RankIndex
    adds: bool
    dense: bool
    entries: dict[str, tuple[int, int]] = field(default_factory=dict)
    pending: dict[str, tuple[int, bool]] = field(default_factory=dict)  # the place, and whether it was removed
    place: int = 0

    def take(self, committed: bool, ids: list[str], rows: list[tuple[int, int]]) -> None:
        """Apply or merge rows, and compare what the index says of each."""
        if committed and self.adds:  # what comes from elsewhere is a whole sum
            sums = [self.entries.get(player, (0, 0))[0] for player in ids]
            rows = [(before + score, time) for before, (score, time) in zip(sums, rows, strict=True)]
        places = list(range(self.place + 1, self.place + 1 + len(ids)))
        self.place += len(ids)
        expected = []
        for player, (score, time), place in zip(ids, rows, places, strict=True):
            old = self.entries.get(player)
            takes = self.adds or old is None or (-score, time) < (-old[0], old[1])
            expected.append(takes)
            if takes:
                added_to = old[0] if old and self.adds and not committed else 0
                self.entries[player] = (added_to + score, time)
                if committed:
                    self.pending.pop(player, None)
                else:
                    self.pending[player] = (place, False)
        terms = [[score for score, _ in rows], [time for _, time in rows]]
        did = self.index.merge(ids, terms, places) if committed else self.index.apply(ids, terms, places).counted
        assert did == expected

    def remove(self, ids: list[str]) -> None:
        self.place += 1
        expected = [self.entries.pop(player, None) is not None for player in ids]
        self.pending |= {player: (self.place, True) for player, there in zip(ids, expected, strict=True) if there}
        assert self.index.remove(ids, [self.place] * len(ids)) == expected

    def mark_clean(self, ids: list[str]) -> None:
        places = [self.pending.pop(player, (0, False))[0] for player in ids]
        self.index.mark_clean(ids, places)


def write(board: Board, seed: int) -> None:
    rng = random.Random(seed)
    for turn in range(TURNS):
        known = (RESIDENTS + GUESTS)[: len(RESIDENTS) + len(GUESTS) * (turn + 1) // TURNS]
        team = TEAM if rng.random() < 0.5 else []  # first, so that it is in one turn
        ids = team + rng.choices(known, k=rng.randrange(200))
        action = rng.random()
        if action < 0.75:
            same = (rng.randrange(1, 40), rng.randrange(50))
            rows = [same if player in TEAM else (rng.randrange(1, 40), rng.randrange(50)) for player in ids]
            board.take(action < 0.2, ids, rows)
        elif action < 0.9:
            board.remove([player for player in ids if player not in RESIDENTS])
        else:
            board.mark_clean(ids)


def check_ranks(board: Board, scores: list[int], ranks: list[int], positions: list[int]) -> None:
    """Consecutive entries: of the first one the rank is taken as it is, except at the top of the board."""
    assert positions == list(range(positions[0], positions[0] + len(scores))) if positions else not scores
    for at, (score, rank, position) in enumerate(zip(scores, ranks, positions, strict=True)):
        assert 1 <= rank <= position <= len(EVERYONE)
        if position == 1:
            assert rank == 1
        elif at and scores[at - 1] == score:
            assert rank == ranks[at - 1]
        elif at:
            assert rank == (ranks[at - 1] + 1 if board.dense else position)


def check_rows(board: Board, rows: Rows, limit: int) -> list[Key]:
    players, ranks, (scores, times) = rows.player_ids, rows.ranks, rows.terms
    assert len(rows) == len(players) == len(scores) == len(times) <= limit
    keys = [key(terms, player) for *terms, player in zip(scores, times, players, strict=True)]
    assert all(one < following for one, following in itertools.pairwise(keys))
    assert len(set(players)) == len(players)
    check_ranks(board, scores, ranks, list(range(rows.first_position, rows.first_position + len(rows))))
    return keys


def check_entries(
    board: Board, ids: Sequence[str], ranks: list[int], positions: list[int], terms: list[list[int]]
) -> dict[str, tuple[int, int]]:
    """Many players, each of whom has an entry or zeros; all there are, if `ids` is everyone."""
    columns = zip(ids, ranks, positions, *terms, strict=True)
    there = {}
    for player, rank, position, score, time in columns:
        if position:
            assert 1 <= rank <= position <= len(EVERYONE)
            there[player] = (position, rank, score, time)
        else:
            assert (rank, score, time) == (0, 0, 0)
            assert player not in RESIDENTS
    best = sorted(there, key=lambda player: there[player][0])
    for one, other in itertools.pairwise(best):
        (position, rank, *its), (next_position, next_rank, *next_its) = there[one], there[other]
        assert position < next_position
        assert key(its, one) < key(next_its, other)
        assert (rank == next_rank) == (its[0] == next_its[0])
        assert rank <= next_rank
    if len(ids) == len(EVERYONE):
        check_ranks(
            board, [there[one][2] for one in best], [there[one][1] for one in best], [there[one][0] for one in best]
        )
    team = {there[player][2:] if player in there else None for player in ids if player in TEAM}
    assert len(team) <= 1, f"a part of a turn was seen: {team}"
    return {player: (score, time) for player, (_, _, score, time) in there.items()}


class Reader:
    """One look after the other, each kind in its turn."""

    def __init__(self, board: Board, seed: int) -> None:
        self.board = board
        self.index = board.index
        self.rng = random.Random(seed)
        self.seen: dict[str, tuple[int, int]] = {}

    def rank(self) -> None:
        player = self.rng.choice(EVERYONE)
        found = self.index.rank(player)
        if found is None:
            assert player not in RESIDENTS
        else:
            rank, position = found
            assert 1 <= rank <= position <= len(EVERYONE)

    def entry(self) -> None:
        player = self.rng.choice(EVERYONE)
        found = self.index.entry(player)
        if found is None:
            assert player not in RESIDENTS
        else:
            rank, position, terms = found
            assert 1 <= rank <= position <= len(EVERYONE)
            self.sees({player: (terms[0], terms[1])})

    def sees(self, entries: dict[str, tuple[int, int]]) -> None:
        for player in RESIDENTS:
            if player in entries:
                before = self.seen.get(player, (0, 1_000))
                assert key(entries[player], player) <= key(before, player), "an older state was seen after a newer one"
                self.seen[player] = entries[player]

    def ranks(self) -> None:
        ids = EVERYONE if self.rng.random() < 0.5 else self.rng.sample(EVERYONE, 50)
        ranks, positions = self.index.ranks(ids)
        pairs = sorted(pair for pair in zip(positions, ranks, strict=True) if pair != (0, 0))
        assert len({position for position, _ in pairs}) == len(pairs) >= sum(one in RESIDENTS for one in ids)
        assert all(1 <= rank <= position for position, rank in pairs)
        assert [rank for _, rank in pairs] == sorted(rank for _, rank in pairs)
        if ids is EVERYONE:
            assert [position for position, _ in pairs] == list(range(1, len(pairs) + 1))
        where = {position for player, position in zip(ids, positions, strict=True) if player in TEAM}
        assert 0 not in where or where == {0}, "a part of a turn was seen"

    def entries(self) -> None:
        ids = EVERYONE if self.rng.random() < 0.5 else TEAM + self.rng.sample(EVERYONE[len(TEAM) :], 50)
        self.sees(check_entries(self.board, ids, *self.index.entries(ids)))

    def rows(self) -> None:
        first, limit = self.rng.randrange(1, 120), self.rng.choice([1, 7, 100, 300])  # 200 and more are a batch
        rows = self.index.rows(first, limit)
        assert rows.first_position == first
        check_rows(self.board, rows, limit)
        assert len(rows) >= min(limit, len(RESIDENTS) - first + 1)

    def all_rows(self) -> None:
        rows = self.index.rows(1, len(EVERYONE) + 1)
        check_rows(self.board, rows, len(EVERYONE))
        entries = dict(zip(rows.player_ids, zip(*rows.terms, strict=True), strict=True))
        assert entries.keys() >= set(RESIDENTS)
        assert len({entries.get(player) for player in TEAM}) == 1, "a part of a turn was seen"
        self.sees(entries)

    def around(self) -> None:
        player, limit = self.rng.choice(EVERYONE), self.rng.choice([1, 4, 9, 300])
        rows = self.index.around(player, limit)
        if rows is None:
            assert player not in RESIDENTS
            return
        check_rows(self.board, rows, limit)
        assert len(rows) >= min(limit, len(RESIDENTS))
        # At the lower edge, which moves meanwhile, there are more above; fewer only at the upper one.
        assert rows.player_ids.index(player) >= (limit - 1) // 2 or rows.first_position == 1

    def after_and_before(self) -> None:
        terms, player = [self.rng.randrange(60), self.rng.randrange(50)], self.rng.choice(EVERYONE)
        limit = self.rng.choice([1, 20, 300])
        assert all(
            one > key(terms, player) for one in check_rows(self.board, self.index.after(terms, player, limit), limit)
        )
        before = self.index.before(terms, player, limit)
        assert all(one < key(terms, player) for one in check_rows(self.board, before, limit))
        assert len(before) == limit or before.first_position == 1

    def counts(self) -> None:
        score = self.rng.randrange(60)
        assert 0 <= self.index.count_before([score]) <= len(EVERYONE)
        assert len(RESIDENTS) <= self.index.count_before([-1]) <= len(EVERYONE)
        assert len(RESIDENTS) <= self.index.count_through([]) <= len(EVERYONE)
        assert len(RESIDENTS) <= len(self.index) <= len(EVERYONE)

    def pending(self) -> None:
        limit = self.rng.choice([None, 10])
        pending = self.index.pending(limit)
        ids = [player.encode() for player in pending.player_ids]
        assert len(ids) == len(pending.places) == len(pending.removed) <= (limit or len(EVERYONE))
        assert ids == sorted(set(ids))
        assert min(pending.places, default=0) >= 0
        rows = list(zip(pending.player_ids, pending.removed, *pending.terms, strict=True))
        assert all((score, time) == (0, 0) for _, removed, score, time in rows if removed)
        assert not any(removed for player, removed, *_ in rows if player in RESIDENTS)
        if limit is None:
            team = [tuple(row) for player, *row in rows if player in TEAM]
            assert len(team) in (0, len(TEAM)), "a part of a turn was seen"
            assert len(set(team)) <= 1, "a part of a turn was seen"
        assert 0 <= self.index.pending_count() <= len(EVERYONE)

    def looks(self) -> list[Callable[[], None]]:
        return [
            self.rank,
            self.entry,
            self.ranks,
            self.entries,
            self.rows,
            self.all_rows,
            self.around,
            self.after_and_before,
            self.counts,
            self.pending,
            self.index.check,
        ]


def read(boards: list[Board], seed: int, writers: list[Future[None]]) -> int:
    looks = [look for board in boards for look in Reader(board, seed).looks()]
    rounds = 0
    while rounds < 3 or not all(writer.done() for writer in writers):
        for look in looks:
            look()
        rounds += 1
    return rounds


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Threads take turns a hundred times as often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 100)
    yield
    sys.setswitchinterval(interval)


def new_board(players: Players, policy: str, ranking: str) -> Board:
    index = RankIndex(
        players,
        descending=[True, False],
        tie_terms=1,
        player_descending=False,
        policy=policy,
        value_term=0,
        ranking=ranking,
    )
    board = Board(index, adds=policy == "sum", dense=ranking == "dense")
    board.take(False, RESIDENTS, [(1, 99)] * len(RESIDENTS))
    return board


@pytest.mark.usefixtures("short_turns")
def test_each_answer_is_of_one_moment() -> None:
    players = Players()
    boards = [new_board(players, "best", "competition"), new_board(players, "sum", "dense")]
    with ThreadPoolExecutor(len(boards) + READERS) as threads:
        writers = [threads.submit(write, board, seed) for seed, board in enumerate(boards)]
        readers = [threads.submit(read, boards, seed, writers) for seed in range(READERS)]
        wait_for(writers + readers)
    for each in writers + readers:
        each.result()
    for board in boards:
        board.index.check()
        rows = board.index.rows(1, len(EVERYONE) + 1)
        check_rows(board, rows, len(EVERYONE))
        assert dict(zip(rows.player_ids, zip(*rows.terms, strict=True), strict=True)) == board.entries
        pending = board.index.pending()
        columns = zip(pending.player_ids, pending.places, pending.removed, strict=True)
        assert {player: (place, removed) for player, place, removed in columns} == board.pending
        terms = [board.entries.get(player, (0, 0)) for player in pending.player_ids]
        assert list(zip(*pending.terms, strict=True)) == terms


class Torn:
    """An index that answers from two moments: every second column is of another one."""

    def __init__(self, index: RankIndex, later: RankIndex) -> None:
        self.index = index
        self.later = later

    def __getattr__(self, name: str) -> Any:
        return getattr(self.index, name)

    def entries(self, ids: list[str]) -> Any:
        ranks, positions, _ = self.index.entries(ids)
        return ranks, positions, self.later.entries(ids)[2]

    def ranks(self, ids: list[str]) -> Any:
        half = len(TEAM) // 2
        (ranks, positions), (later_ranks, later_positions) = self.index.ranks(ids), self.later.ranks(ids)
        return ranks[:half] + later_ranks[half:], positions[:half] + later_positions[half:]

    def rows(self, first_position: int, limit: int) -> Any:
        return TornRows(self.index.rows(first_position, limit), self.later.rows(first_position, limit))


class TornRows:
    """Players of one moment with ranks and terms of another."""

    def __init__(self, rows: Rows, later: Rows) -> None:
        self.first_position = rows.first_position
        self.player_ids = rows.player_ids
        self.ranks = later.ranks[: len(rows)]
        self.terms = [column[: len(rows)] for column in later.terms]

    def __len__(self) -> int:
        return len(self.player_ids)


@pytest.mark.parametrize("look", ["entries", "ranks", "rows", "all_rows"])
@pytest.mark.parametrize(("policy", "ranking"), [("best", "competition"), ("sum", "dense")])
def test_an_answer_of_two_moments_is_told(policy: str, ranking: str, look: str) -> None:
    boards = [new_board(Players(), policy, ranking) for _ in range(2)]
    rng = random.Random(5)
    rows = [(rng.randrange(2, 40), rng.randrange(50)) for _ in RESIDENTS]
    for board in boards:
        board.take(False, RESIDENTS, rows)
    reader = Reader(boards[0], 1)
    getattr(reader, look)()
    boards[1].take(False, TEAM + RESIDENTS[:40], [(50, 1)] * 48)
    reader.index = Torn(boards[0].index, boards[1].index)  # type: ignore[assignment]
    with pytest.raises(AssertionError):
        repeat(getattr(reader, look), 10)


def repeat(look: Callable[[], None], times: int) -> None:
    for _ in range(times):
        look()
