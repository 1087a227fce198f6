"""Faults that others shipped, each by its id. All of them through the public interface, on the engine of `--engine`."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from laurels import Laurels
from laurels.errors import InvalidInput, NotFound, NotReady, OutOfRange
from laurels.model import INT64_MAX, INT64_MIN, Entry

RANKINGS = {"competition": [1, 2, 2, 4], "dense": [1, 2, 2, 3], "ordinal": [1, 2, 3, 4]}


def game_of(*, dimensions: dict[str, Any] | None = None, **boards: dict[str, Any]) -> dict[str, Any]:
    return {"games": {"g": {"boards": boards, "dimensions": dimensions or {}}}}


def ids(entries: list[Entry]) -> list[str]:
    return [entry.player_id for entry in entries]


async def test_ties_competition(url: str) -> None:
    boards = {name: {"order": ["score desc"], "ranking": name} for name in RANKINGS}
    async with Laurels.open(url, config=game_of(**boards)) as laurels:
        game = laurels.game("g")
        await game.submit_many(["a", "b", "c", "d"], [30, 21, 21, 15])
        for name, ranks in RANKINGS.items():
            entries = await game.board(name).top()
            assert [entry.rank for entry in entries] == ranks
            assert [entry.position for entry in entries] == [1, 2, 3, 4]


async def test_ties_earlier_first(url: str) -> None:
    config = game_of(default={}, by_name={"order": ["score desc", "player_id asc"]})
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        for player in ("zed", "amy", "zed"):
            await game.submit(player, 50)
        assert ids(await game.board("default").top()) == ["zed", "amy"]
        assert ids(await game.board("by_name").top()) == ["amy", "zed"]
    async with Laurels.open(url) as laurels:
        assert ids(await laurels.game("g").board("default").top()) == ["zed", "amy"]


async def test_precision_64_bit(url: str) -> None:
    scores = {"me": 1009651914519660511, "rival": 1009651914519660512, "other": 1009651914519660544}
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        game = laurels.game("g")
        for player, score in scores.items():
            await game.submit(player, score)
        entries = await game.board("board").top()
        assert ids(entries) == ["other", "rival", "me"]
        assert [entry.position for entry in entries] == [1, 2, 3]
        decoded = json.loads(msgspec.json.encode(entries))
        assert {entry["player_id"]: entry["score"] for entry in decoded} == scores


async def test_negative_scores(url: str) -> None:
    scores = [-2, -3, 0, 1, 2, INT64_MIN, INT64_MAX]
    config = game_of(down={"order": ["score desc"]}, up={"order": ["score asc"]})
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        await game.submit_many([str(score) for score in scores], scores)
        assert [e.score for e in await game.board("down").top()] == [INT64_MAX, 2, 1, 0, -2, -3, INT64_MIN]
        assert [e.score for e in await game.board("up").top()] == [INT64_MIN, -3, -2, 0, 1, 2, INT64_MAX]
    async with Laurels.open(url) as laurels:  # the same from what the store keeps
        entries = await laurels.game("g").board("down").top()
        assert [entry.score for entry in entries] == [INT64_MAX, 2, 1, 0, -2, -3, INT64_MIN]


async def test_string_sort_keys(url: str) -> None:
    config = game_of(whole={"where": {"kind": "whole"}}, times={"where": {"kind": "time"}, "scale": 2})
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        for score in (900, 2800, 9, 10, -9, -10):
            await game.submit(f"p{score}", score, dimensions={"kind": "whole"})
        for time in (Decimal("1.5"), Decimal("1.25")):
            await game.submit(f"t{time}", time, dimensions={"kind": "time"})
        assert [e.score for e in await game.board("whole").top()] == [2800, 900, 10, 9, -9, -10]
        assert [e.score for e in await game.board("times").top()] == [Decimal("1.50"), Decimal("1.25")]


async def test_around_edges(url: str) -> None:
    async with Laurels.open(url, config=game_of(board={}, lone={"where": {"lone": "yes"}})) as laurels:
        game = laurels.game("g")
        await game.submit_many([f"p{n}" for n in range(1, 11)], [100 - n for n in range(1, 11)])
        await game.submit("solo", 1, dimensions={"lone": "yes"})
        await game.board("board").remove("solo")
        board = game.board("board")

        async def around(player: str, limit: int) -> list[int]:
            return [entry.position for entry in await board.around(player, limit)]

        assert await around("p2", 4) == [1, 2, 3, 4]
        assert await around("p1", 4) == [1, 2, 3, 4]
        assert await around("p10", 4) == [7, 8, 9, 10]
        assert await around("p5", 100) == list(range(1, 11))
        assert ids(await game.board("lone").around("solo", 4)) == ["solo"]


async def test_backward_paging(url: str) -> None:
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        game = laurels.game("g")
        await game.submit_many([f"p{n:02}" for n in range(25)], [n // 4 for n in range(25)])
        board = game.board("board")
        first = await board.page(10)
        second = await board.page(10, cursor=first.next)
        third = await board.page(10, cursor=second.next)
        assert [len(first), len(second), len(third), third.next] == [10, 10, 5, None]
        assert (await board.page(10, cursor=second.previous)).items == first.items
        assert (await board.page(10, cursor=third.previous)).items == second.items
        assert first.previous is None


async def test_paging_under_change(url: str) -> None:
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        game = laurels.game("g")
        players = [f"p{n:03}" for n in range(100)]
        await game.submit_many(players, [1000 - n for n in range(100)])
        board = game.board("board")
        page = await board.page(10)
        seen = ids(page.items)
        movers = players[20:25]
        await game.submit_many(movers, [5000] * 5)
        while page.next:
            page = await board.page(10, cursor=page.next)
            seen += ids(page.items)
        counts = Counter(seen)
        assert all(counts[player] == 1 for player in players if player not in movers)
        assert (await board.page(10, offset=10)).items[0].position == 11


async def test_retry_same_answer(url: str) -> None:
    async with Laurels.open(url, config=game_of(total={"policy": "sum"}, best={})) as laurels:
        game = laurels.game("g")
        await game.submit("other", 5)
        first = await game.submit("amy", 10, submission_id="once")
        await game.submit("amy", 7)
        await game.submit_many(["x", "y"], [100, 200])
        twice = await asyncio.gather(*(game.submit("amy", 10, submission_id="once") for _ in range(2)))
        assert twice == [first, first]
        # A repeat with another score is told what was stored, not what it sent.
        assert await game.submit("amy", 999, submission_id="once") == first
        new = await asyncio.gather(*(game.submit("bob", 3, submission_id="together") for _ in range(5)))
        assert all(answer == new[0] for answer in new)
        same_batch = await game.submit_many(["cat", "cat"], [1, 1], submission_ids=["in-batch", "in-batch"])
        assert same_batch[0] == same_batch[1]
        assert (await game.board("total").entry("cat")).entry.score == 1
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        assert await game.submit("amy", 10, submission_id="once") == first
        assert await game.submit("bob", 3, submission_id="together") == new[0]
        assert (await game.board("total").entry("amy")).entry.score == 17
        assert len(await game.history("amy")) == 2


async def test_deleted_then_back(url: str) -> None:
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        game = laurels.game("g")
        board = game.board("board")
        await game.submit_many(["amy", "bob"], [10, 6])
        assert await board.remove("amy")
        assert not await board.remove("amy")
        with pytest.raises(NotFound):
            await board.entry("amy")
        assert (await board.entry("bob")).entry.rank == 1
        await asyncio.gather(game.submit("amy", 5), game.submit("amy", 7))
        assert [(e.player_id, e.score, e.rank) for e in await board.top()] == [("amy", 7, 1), ("bob", 6, 2)]
        assert await board.count() == 2
    async with Laurels.open(url) as laurels:
        assert [e.score for e in await laurels.game("g").board("board").top()] == [7, 6]
        assert (await laurels.verify()).problems == []


async def test_lower_never_wins(url: str) -> None:
    rng = random.Random(1)
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        game = laurels.game("g")
        plays = [(f"p{player}", score) for player in range(50) for score in range(1, 201)]
        rng.shuffle(plays)
        for start in range(0, len(plays), 1000):
            await asyncio.gather(*(game.submit(player, score) for player, score in plays[start : start + 1000]))
        entries = await game.board("board").top(100)
        assert sorted(ids(entries)) == sorted(f"p{player}" for player in range(50))
        assert {entry.score for entry in entries} == {200}
        history = await game.history("p7", limit=1000)
        assert sorted(submission.score for submission in history) == list(range(1, 201))


async def test_equal_scores_kept(url: str) -> None:
    song = {
        "partition": ["track_id", "instrument", "difficulty", "modifiers"],
        "order": ["score desc", "player_id asc"],
    }
    dimensions = {"modifiers": {"type": "set", "none": ["none", "no-modifiers"]}}
    async with Laurels.open(url, config=game_of(song=song, dimensions=dimensions)) as laurels:
        game = laurels.game("g")
        spellings: list[Any] = [[], ["none"], "no-modifiers"]  # one board, however it is spelt
        for player, modifiers in zip(("zoe", "amy", "max"), spellings, strict=True):
            play = {"track_id": "t", "instrument": "guitar", "difficulty": "expert", "modifiers": modifiers}
            await game.submit(player, 12000, dimensions=play)
        board = game.board("song", track_id="t", instrument="guitar", difficulty="expert", modifiers=set())
        entries = await board.top()
        assert ids(entries) == ["amy", "max", "zoe"]
        assert {entry.score for entry in entries} == {12000}


@pytest.fixture(params=["UTC", "Etc/GMT-3"])
def process_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone that the process believes to be in."""
    with monkeypatch.context() as context:
        context.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


async def test_month_window_zone(url: str, clock: Any, process_zone: str) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    second = timedelta(seconds=1)
    zoned = {"timezone": "Europe/Berlin"}
    boards = {every: {"window": {"every": every, **zoned}, "policy": "count"} for every in ("day", "month")}
    clock.now = datetime(2026, 3, 1, tzinfo=UTC)
    async with Laurels.open(url, config=game_of(**boards), clock=clock) as laurels:
        game = laurels.game("g")

        async def play(name: str, instant: datetime) -> None:
            clock.now = instant
            await game.submit(name, 1)

        for day, hours in ((datetime(2026, 3, 29), 23), (datetime(2026, 10, 25), 25)):
            start = day.replace(tzinfo=berlin).astimezone(UTC)
            end = (day + timedelta(days=1)).replace(tzinfo=berlin).astimezone(UTC)
            assert end - start == timedelta(hours=hours)
            await play("before", start - second)
            await play("first", start + second)
            await play("last", end - second)
            await play("after", end + second)
            board = game.board("day", at=start)
            assert sorted(ids(await board.top())) == ["first", "last"], day
            assert (board.name.window_start, board.name.window_end) == (start, end)
            assert board.name.window_label == f"{day:%Y-%m-%d}"
        midnight = datetime(2026, 11, 1, tzinfo=berlin).astimezone(UTC)
        await play("old", midnight - second)
        await play("new", midnight + second)
        old, new = game.board("month", at=midnight - second), game.board("month", at=midnight)
        assert "old" in ids(await old.top())
        assert ids(await new.top()) == ["new"]
        assert (old.name.window_label, new.name.window_label) == ("2026-10", "2026-11")


async def test_season_length(url: str, clock: Any) -> None:
    window = {"every": "6 weeks", "origin": datetime(2026, 1, 5), "timezone": "UTC", "keep": 2}
    config = {**game_of(season={"window": window}), "limits": {"index_bytes_max": 1}}
    clock.now = datetime(2026, 1, 4, 23, tzinfo=UTC)
    async with Laurels.open(url, config=config, clock=clock) as laurels:
        game = laurels.game("g")
        starts = [datetime(2026, 1, 5, tzinfo=UTC) + timedelta(weeks=6 * n) for n in range(4)]
        for n, start in enumerate(starts):
            clock.now = start
            await game.submit_many([f"p{i}" for i in range(50)], [i * (n + 1) for i in range(50)])
            clock.now = start + timedelta(weeks=6, seconds=-1)
            await game.submit("late", n)
            assert game.board("season").name.window_start == start
            assert await game.board("season").count() == 51
        before = {start: await game.board("season", at=start).top(100) for start in starts[1:]}
        for start in starts[1:]:  # finished ones stay readable, whatever has left memory meanwhile
            assert await game.board("season", at=start).top(100) == before[start]
        with pytest.raises(NotFound, match="no longer kept"):
            await game.board("season", at=starts[0]).top()
    async with Laurels.open(url, clock=clock) as laurels:
        assert await laurels.game("g").board("season", at=starts[1]).top(100) == before[starts[1]]
        assert len(await laurels.game("g").instances("season")) == 3


async def test_yarg_two_bests(url: str) -> None:
    partition = ["track_id", "instrument"]
    config = game_of(
        score={"partition": partition},
        percent={"partition": partition, "order": ["percent desc"], "scale": {"percent": 2}},
    )
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        plays = (("guitar", 120000, "91.0"), ("guitar", 118000, "99.5"), ("keys", 130000, "80"))
        for instrument, score, percent in plays:
            play = {"track_id": "t", "instrument": instrument}
            await game.submit("amy", score, dimensions=play, metrics={"percent": Decimal(percent)})
        by_score = (await game.board("score", track_id="t", instrument="guitar").top())[0]
        by_percent = (await game.board("percent", track_id="t", instrument="guitar").top())[0]
        assert (by_score.score, by_score.submission.metrics["percent"]) == (120000, Decimal("91.0"))
        assert (by_percent.order["percent"], by_percent.score) == (Decimal("99.5"), 118000)
        assert [e.score for e in await game.board("score", track_id="t", instrument="keys").top()] == [130000]


async def test_overflow_refused(new_url: Callable[[], str]) -> None:
    async with Laurels.open(new_url(), config=game_of(times={"scale": 2})) as laurels:
        game = laurels.game("g")
        for bad in (INT64_MAX + 1, INT64_MIN - 1, INT64_MAX):  # the last does not fit once it has two decimals
            with pytest.raises(OutOfRange, match="score"):
                await game.submit("amy", bad)
        with pytest.raises(OutOfRange, match=r"score.*2 decimal digits"):
            await game.submit("amy", Decimal("1.255"))
        for nonsense in (float("nan"), 1.5, True, Decimal("NaN"), Decimal("Infinity"), None, "12"):
            with pytest.raises(InvalidInput, match="score"):
                await game.submit("amy", nonsense)  # type: ignore[arg-type]
        assert await game.board("times").count() == 0
        assert len(await game.history("amy")) == 0
    async with Laurels.open(new_url(), config=game_of(total={"policy": "sum"})) as laurels:
        game = laurels.game("g")
        await game.submit("amy", 9223372036854775800)
        answers = await asyncio.gather(
            game.submit("amy", 100), game.submit("bob", 1), return_exceptions=True
        )  # committed together: the one fails, the other does not
        assert isinstance(answers[0], OutOfRange)
        assert answers[0].field == "score"
        assert (await game.board("total").entry("amy")).entry.score == 9223372036854775800
        assert (await game.board("total").entry("bob")).entry.score == 1
        assert len(await game.history("amy")) == 1


async def test_rank_from_one(url: str) -> None:
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        game = laurels.game("g")
        answer = await game.submit("amy", 3)
        board = game.board("board")
        found = {
            (entry.rank, entry.position)
            for entry in (
                *await board.top(),
                (await board.entry("amy")).entry,
                *await board.around("amy"),
                *await board.page(),
                *await board.range(0, 10),
                *(friend.entry for friend in await board.players(["amy"])),
            )
        }
        assert found == {(1, 1)}
        assert (answer.changes[0].new_rank, answer.changes[0].new_position) == (1, 1)


@pytest.mark.parametrize(
    "name", ["a.b", "x ft. y", "a#b", "PLAYER#1", "ünï", "../x", "😀" * 100, "a/b", "a\x00b", " ", "%", "'", '"']
)
async def test_names_with_dots(url: str, name: str) -> None:
    neighbours = ["a", "PLAYER", "x", "1", "..", name + "!", name * 2 if len(name) < 9 else "z"]
    config = {**game_of(board={"partition": ["track"]}), "limits": {"id_bytes_max": 512}}
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        await game.submit(name, 7, dimensions={"track": name}, submission_id=name)
        await game.describe("player_id", {name: {"name": "😀" * 100}})
        for neighbour in neighbours:
            await game.submit(neighbour, 1, dimensions={"track": neighbour}, submission_id=neighbour)
        board = game.board("board", track=name)
        assert [(e.player_id, e.name, e.score) for e in await board.top()] == [(name, "😀" * 100, 7)]
        assert (await game.submission(name)).player_id == name
        assert [s.submission_id for s in await game.history(name)] == [name]
        assert [s.instance.partition for s in await game.standings(name)] == [{"track": name}]
        assert await game.remove_player(name) == 1
        assert await game.board("board", track=neighbours[0]).count() == 1
    async with Laurels.open(url) as laurels:
        assert await laurels.game("g").board("board", track=name).top() == []
        assert (await laurels.verify()).problems == []


async def test_best_is_one_run(url: str) -> None:
    config = game_of(board={"order": ["score desc", "stars desc"]})
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        for score, stars, right in ((100, 2, (100, 2)), (90, 5, (100, 2)), (100, 3, (100, 3))):
            await game.submit("amy", score, metrics={"stars": stars, "combo": score + stars})
            entry = (await game.board("board").entry("amy")).entry
            assert (entry.score, entry.order["stars"]) == right
            assert entry.submission.metrics == {"stars": right[1], "combo": sum(right)}


async def test_no_phantom_zero(url: str) -> None:
    async with Laurels.open(url, config=game_of(times={"order": ["score asc"]})) as laurels:
        game = laurels.game("g")
        await game.describe("player_id", {"watcher": {"name": "Only watching"}})
        await game.submit("amy", 61)
        board = game.board("times")
        assert ids(await board.top()) == ["amy"]
        assert await board.count() == 1
        assert [friend.entry.player_id for friend in await board.players(["watcher", "amy"])] == ["amy"]
        with pytest.raises(NotFound, match="watcher"):
            await board.entry("watcher")


@pytest.mark.parametrize("ranking", RANKINGS)
async def test_answer_equals_list(url: str, ranking: str) -> None:
    rng = random.Random(ranking)
    async with Laurels.open(url, config=game_of(board={"ranking": ranking})) as laurels:
        game = laurels.game("g")
        board = game.board("board")
        for number in range(50):
            player = f"p{number}"
            answer = await game.submit(player, rng.randrange(5))
            change = answer.changes[0]
            told = (change.new_rank, change.new_position)
            top = {entry.player_id: (entry.rank, entry.position) for entry in await board.top(100)}
            around = {entry.player_id: (entry.rank, entry.position) for entry in await board.around(player, 5)}
            entry = (await board.entry(player)).entry
            page = {e.player_id: (e.rank, e.position) for e in await board.page(10, offset=max(0, entry.position - 3))}
            assert told == top[player] == around[player] == page[player] == (entry.rank, entry.position)
            assert all(top[other] == place for other, place in (around | page).items())
            assert change.total == len(top)


async def test_dense_under_races(url: str) -> None:
    boards = {name: {"ranking": name, "policy": "last", "order": ["score desc"]} for name in RANKINGS}
    async with Laurels.open(url, config=game_of(**boards)) as laurels:
        game = laurels.game("g")

        async def write(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(150):
                await game.submit(f"p{rng.randrange(200)}", rng.randrange(10))

        await asyncio.gather(*(write(seed) for seed in range(8)))
        for name in RANKINGS:
            entries = await game.board(name).top(500)
            scores = [entry.score for entry in entries]
            assert scores == sorted(scores, reverse=True)
            right = {
                "competition": [scores.index(score) + 1 for score in scores],
                "dense": [sorted(set(scores), reverse=True).index(score) + 1 for score in scores],
                "ordinal": list(range(1, len(scores) + 1)),
            }
            assert [entry.rank for entry in entries] == right[name]
        assert (await laurels.verify()).problems == []


async def test_negate_lowest(url: str) -> None:
    scores = [INT64_MIN, INT64_MIN + 1, 0, INT64_MAX]
    config = game_of(down={"order": ["score desc"]}, up={"order": ["score asc"]})
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        await game.submit_many(["a", "b", "c", "d"], scores)
        assert [e.score for e in await game.board("up").top()] == scores
        assert [e.score for e in await game.board("down").top()] == scores[::-1]
        assert len({tuple(e.order.values()) for e in await game.board("up").top()}) == 4


async def test_unknown_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 100_000
    async with Laurels.open(url, config=game_of(board={})) as laurels:
        await laurels.game("g").submit_many([f"p{n:06}" for n in range(rows)], range(rows))
    async with Laurels.open(url) as laurels:  # asked at once, it waits and is right
        standing = await laurels.game("g").board("board").entry("p000000")
        assert (standing.entry.rank, standing.total) == (rows, rows)
    monkeypatch.setattr("laurels.games.LOAD_WAIT_S", 0.0)
    async with Laurels.open(url) as laurels:  # not given the time, it says so rather than guess
        board = laurels.game("g").board("board")
        with pytest.raises(NotReady) as raised:
            await board.entry("p000000")
        assert raised.value.retry_after_s > 0
        monkeypatch.setattr("laurels.games.LOAD_WAIT_S", 30.0)
        assert (await board.entry("p000000")).entry.rank == rows
