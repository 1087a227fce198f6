"""Faults that others shipped, each by its id, as somebody meets them over HTTP."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
import websockets

from laurels.model import INT64_MAX, INT64_MIN

RANKINGS = {"competition": [1, 2, 2, 4], "dense": [1, 2, 2, 3], "ordinal": [1, 2, 3, 4]}


def ids(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["player_id"] for entry in entries]


def positions(entries: list[dict[str, Any]]) -> list[int]:
    return [entry["position"] for entry in entries]


def test_ties_competition(served: Any) -> None:
    game = served.new_game(boards={name: {"order": ["score desc"], "ranking": name} for name in RANKINGS})
    game.submit_many(["a", "b", "c", "d"], [30, 21, 21, 15])
    for name, ranks in RANKINGS.items():
        entries = game.get(f"/boards/{name}/top")["entries"]
        assert [entry["rank"] for entry in entries] == ranks
        assert positions(entries) == [1, 2, 3, 4]


def test_ties_earlier_first(new_served: Any) -> None:
    served = new_served().start()
    game = served.new_game(boards={"default": {}, "by_name": {"order": ["score desc", "player_id asc"]}})
    for player in ("zed", "amy", "zed"):
        game.submit(player, 50)
    for _ in range(2):
        assert ids(game.get("/boards/default/top")["entries"]) == ["zed", "amy"]
        assert ids(game.get("/boards/by_name/top")["entries"]) == ["amy", "zed"]
        assert served.stop() == 0
        served.start()


def test_precision_64_bit(game: Any) -> None:
    scores = {"me": 1009651914519660511, "rival": 1009651914519660512, "other": 1009651914519660544}
    for player, score in scores.items():
        game.submit(player, score)
    answer = game.ask("GET", "/boards/best/top", "read")
    for score in scores.values():
        assert f'"score":{score}' in answer.text
    entries = answer.json()["entries"]
    assert ids(entries) == ["other", "rival", "me"]
    assert positions(entries) == [1, 2, 3]


def test_negative_scores(served: Any) -> None:
    game = served.new_game(boards={"down": {"order": ["score desc"]}, "up": {"order": ["score asc"]}})
    scores = [-2, -3, 0, 1, 2, INT64_MIN, INT64_MAX]
    game.submit_many([str(score) for score in scores], scores)
    down = [entry["score"] for entry in game.get("/boards/down/top")["entries"]]
    assert down == [INT64_MAX, 2, 1, 0, -2, -3, INT64_MIN]
    assert [entry["score"] for entry in game.get("/boards/up/top")["entries"]] == down[::-1]


def test_negate_lowest(served: Any) -> None:
    game = served.new_game(boards={"up": {"order": ["score asc"]}})
    game.submit_many(["low", "next", "zero", "high"], [INT64_MIN, INT64_MIN + 1, 0, INT64_MAX])
    found = game.get("/boards/up/range", low=INT64_MIN, high=INT64_MAX)["entries"]
    assert ids(found) == ["low", "next", "zero", "high"]


def test_around_edges(game: Any) -> None:
    game.submit_many([f"p{number}" for number in range(1, 11)], list(range(100, 90, -1)))

    def around(player: str, limit: int) -> list[int]:
        return positions(game.get(f"/boards/best/entries/{player}/around", limit=limit)["entries"])

    assert around("p2", 4) == around("p1", 4) == [1, 2, 3, 4]
    assert around("p10", 4) == [7, 8, 9, 10]
    assert around("p5", 100) == list(range(1, 11))
    for number in range(2, 11):
        game.ask("DELETE", f"/boards/best/entries/p{number}")
    assert around("p1", 4) == [1]


def test_backward_paging(game: Any) -> None:
    game.submit_many([f"p{number:02}" for number in range(25)], [number // 4 for number in range(25)])
    first = game.get("/boards/best/entries", limit=10)
    second = game.get("/boards/best/entries", limit=10, cursor=first["next"])
    third = game.get("/boards/best/entries", limit=10, cursor=second["next"])
    assert positions(third["entries"]) == list(range(21, 26))
    assert "next" not in third
    back = game.get("/boards/best/entries", limit=10, cursor=second["previous"])
    assert back["entries"] == first["entries"]


def test_paging_under_change(game: Any) -> None:
    game.submit_many([f"p{number:03}" for number in range(100)], list(range(1_000, 900, -1)))
    page = game.get("/boards/best/entries", limit=10)
    seen = ids(page["entries"])
    moved = [f"p{number:03}" for number in range(20, 25)]
    game.submit_many(moved, [2_000] * 5)
    while "next" in page:
        page = game.get("/boards/best/entries", limit=10, cursor=page["next"])
        seen += ids(page["entries"])
    assert seen == [f"p{number:03}" for number in range(100) if f"p{number:03}" not in moved]
    assert ids(game.get("/boards/best/entries", limit=10, offset=0)["entries"])[:5] == moved


def test_retry_same_answer(new_served: Any) -> None:
    served = new_served().start()
    game = served.new_game(boards={"sum": {"policy": "sum"}})
    play = {"player_id": "ada", "score": 10, "submission_id": "one"}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: game.ask("POST", "/submissions", "server", json=play), range(2)))
    assert served.stop() == 0
    served.start()
    answers.append(game.ask("POST", "/submissions", "server", json=play))
    assert [answer.status_code for answer in answers] == [201] * 3
    assert answers[0].json() == answers[1].json() == answers[2].json()
    assert game.get("/boards/sum/entries/ada")["entry"]["score"] == 10


def test_deleted_then_back(game: Any) -> None:
    game.submit_many(["ada", "bob"], [10, 6])
    assert game.ask("DELETE", "/boards/best/entries/ada").status_code == 204
    assert game.get("/boards/best/top")["total"] == 1
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda score: game.submit("ada", score), (5, 7)))
    top = game.get("/boards/best/top")
    assert [(entry["player_id"], entry["score"], entry["rank"]) for entry in top["entries"]] == [
        ("ada", 7, 1),
        ("bob", 6, 2),
    ]
    assert top["total"] == 2


def test_lower_never_wins(game: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: game.submit("ada", number * 77 % 101), range(1, 101)))
    assert game.get("/boards/best/top")["total"] == 1
    assert game.get("/boards/best/entries/ada")["entry"]["score"] == 100
    assert len(game.get("/players/ada/submissions", limit=200)["items"]) == 100


def test_equal_scores_kept(served: Any) -> None:
    board = {"partition": ["track"], "order": ["score desc", "player_id asc"]}
    game = served.new_game(boards={"track": board})
    for player in ("zed", "amy"):
        game.submit(player, 12_000, dimensions={"track": "x"})
    assert ids(game.get("/boards/track/top", **{"where.track": "x"})["entries"]) == ["amy", "zed"]


def test_overflow_refused(served: Any) -> None:
    game = served.new_game(boards={"sum": {"policy": "sum"}})
    game.submit("ada", 9223372036854775800)
    for score in (100, 9223372036854775808, 0.5, 10**30):
        answer = game.ask("POST", "/submissions", "server", json={"player_id": "ada", "score": score})
        assert (answer.status_code, answer.json()["code"]) == (400, "out_of_range"), answer.text
        assert answer.json()["field"].startswith("score")
    assert game.get("/boards/sum/entries/ada")["entry"]["score"] == 9223372036854775800
    assert len(game.get("/players/ada/submissions")["items"]) == 1


async def live_entry(game: Any, board: str, player: str) -> Any:
    url = f"ws://127.0.0.1:{game.served.port}{game.path}/live"
    headers = {"authorization": f"Bearer {game.keys['read']}"}
    async with websockets.connect(url, additional_headers=headers) as socket:
        topic = {"kind": "rank", "board": board, "player_id": player}
        await socket.send(json.dumps({"op": "subscribe", "id": "a", "topic": topic}))
        while True:
            message = json.loads(await asyncio.wait_for(socket.recv(), 5))
            if message["type"] == "snapshot":
                return message["data"]["entry"]


@pytest.mark.parametrize("ranking", RANKINGS)
def test_rank_from_one_and_answer_equals_list(served: Any, ranking: str) -> None:
    game = served.new_game(boards={"best": {"ranking": ranking, "order": ["score desc"]}})
    told = {}
    for number in range(10):
        told[f"p{number}"] = game.submit(f"p{number}", 50 - number // 2 * 10)["changes"][0]
    top = {entry["player_id"]: entry for entry in game.get("/boards/best/top")["entries"]}
    page = game.get("/boards/best/entries", limit=100)["entries"]
    assert min(entry["rank"] for entry in page) == min(entry["position"] for entry in page) == 1
    assert page == list(top.values())
    for player, change in told.items():
        entry = game.get(f"/boards/best/entries/{player}")["entry"]
        around = game.get(f"/boards/best/entries/{player}/around", limit=1)["entries"][0]
        standing = game.get(f"/players/{player}/entries")["items"][0]["entry"]
        assert entry == around == top[player]
        assert (change["new_rank"], change["new_position"]) == (entry["rank"], entry["position"])
        assert (standing["rank"], standing["position"]) == (entry["rank"], entry["position"])
    for player in ("p0", "p3", "p9"):
        live = asyncio.run(live_entry(game, "best", player))
        assert {name: live[name] for name in top[player]} == top[player]


def test_names_with_dots(game: Any) -> None:
    names = ["a.b", "x ft. y", "a#b", "PLAYER#1", "ünï", "../x", "🏆" * 25]
    game.submit_many(names, list(range(len(names))))
    for score, name in enumerate(names):
        entry = game.get(f"/boards/best/entries/{quote(name, safe='').replace('.', '%2E')}")["entry"]
        assert (entry["player_id"], entry["score"]) == (name, score)


def test_no_phantom_zero(served: Any) -> None:
    game = served.new_game(boards={"times": {"order": ["score asc"]}})
    game.submit("ada", 5)
    game.ask("PUT", "/players/bob", "server", json={"name": "Bob"})
    friends = game.ask("POST", "/boards/times/players", "read", json={"player_ids": ["ada", "bob"]}).json()
    assert len(friends["friends"]) == 1
    assert game.get("/boards/times/top")["total"] == 1
    assert game.ask("GET", "/boards/times/entries/bob", "read").status_code == 404


def test_best_is_one_run(served: Any) -> None:
    game = served.new_game(boards={"best": {"order": ["score desc", "stars desc"]}})
    for score, stars, shown in ((100, 2, 2), (90, 5, 2), (100, 3, 3)):
        game.submit("ada", score, metrics={"stars": stars})
        entry = game.get("/boards/best/entries/ada", fields="score,order,submission")["entry"]
        assert (entry["score"], entry["order"]["stars"], entry["submission"]["metrics"]["stars"]) == (100, shown, shown)


def test_yarg_two_bests(served: Any) -> None:
    boards = {
        "score": {"partition": ["instrument"]},
        "percent": {"partition": ["instrument"], "order": ["percent desc"], "scale": {"percent": 1}},
    }
    game = served.new_game(boards=boards)
    for instrument, score, percent in (
        ("guitar", 120_000, "91.0"),
        ("guitar", 118_000, "99.5"),
        ("keys", 130_000, "80"),
    ):
        game.submit("ada", score, dimensions={"instrument": instrument}, metrics={"percent": percent})
    guitar = {"where.instrument": "guitar"}
    assert game.get("/boards/score/entries/ada", **guitar)["entry"]["score"] == 120_000
    assert game.get("/boards/percent/entries/ada", fields="order", **guitar)["entry"]["order"]["percent"] == 99.5
    assert game.get("/boards/score/entries/ada", **{"where.instrument": "keys"})["entry"]["score"] == 130_000
