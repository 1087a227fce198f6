"""Names of players, boards, games and submissions may hold any character; none reaches another's."""

from typing import Any
from urllib.parse import quote

import pytest

ODD = [
    "a/b",
    "a#b",
    "a%2Fb",
    "%",
    "%00",
    "a b",
    " lead",
    "a+b",
    "a?b=c&d",
    "..",
    ".",
    "../x",
    "./",
    "//",
    "a.b",
    "x ft. y",
    "PLAYER#1",
    "ünï",
    "u\u0308",
    "ü",
    "日本語",
    "🏆" * 25,
    "a;b:c,d@e!$&'()*=",
    '"quoted"',
    "back\\slash",
    "<b>",
    "top",
    "entries",
    "around",
    "batch",
    "null",
    "a\nb",
    "a\r\nb: c",
    "\x01\x7f",
    "a\x00b",
    "\x00",
]


def one(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def test_players_of_any_name_are_told_apart_on_every_path(game: Any) -> None:
    game.submit_many(ODD, list(range(len(ODD))))
    for score, player in enumerate(ODD):
        assert game.get(f"/boards/best/entries/{one(player)}")["entry"]["player_id"] == player
        assert game.get(f"/boards/best/entries/{one(player)}")["entry"]["score"] == score
        around = game.get(f"/boards/best/entries/{one(player)}/around", limit=1)
        assert [entry["player_id"] for entry in around["entries"]] == [player]
        history = game.get(f"/players/{one(player)}/submissions")
        assert [(play["player_id"], play["score"]) for play in history["items"]] == [(player, score)]
        named = game.ask("PUT", f"/players/{one(player)}", "server", json={"name": player})
        assert named.status_code == 200, named.text
        assert game.get(f"/players/{one(player)}")["name"] == player
    listed = game.get("/boards/best/entries", limit=100, fields="player_id,name")["entries"]
    assert listed == [{"player_id": player, "name": player} for player in reversed(ODD)]


def test_odd_players_are_banned_removed_and_erased_alone(game: Any) -> None:
    game.submit_many(ODD, list(range(len(ODD))))
    left = list(ODD)
    for number, player in enumerate(ODD):
        path = (f"/bans/{one(player)}", f"/boards/best/entries/{one(player)}", f"/players/{one(player)}")[number % 3]
        method = ("PUT", "DELETE", "DELETE")[number % 3]
        answer = game.ask(method, path, "admin", **({"json": {}} if method == "PUT" else {}))
        assert answer.status_code in (200, 204), answer.text
        left.remove(player)
        shown = game.get("/boards/best/entries", limit=100)["entries"]
        assert sorted(entry["player_id"] for entry in shown) == sorted(left)
    banned = [one["player_id"] for one in game.get("/bans", "admin")["items"]]
    assert sorted(banned) == sorted(ODD[::3])


@pytest.mark.parametrize("submission_id", ["a/b", "..", "a b", "ünï", "%2F", "#1", "x" * 64])
def test_submissions_are_found_by_any_id(game: Any, submission_id: str) -> None:
    assert game.submit("ada", 5, submission_id=submission_id)["submission_id"] == submission_id
    assert game.get(f"/submissions/{one(submission_id)}", "server")["submission_id"] == submission_id


@pytest.mark.parametrize("name", ["", "x" * 1_000])
def test_names_with_nothing_in_them_or_too_much_are_refused(game: Any, name: str) -> None:
    answer = game.ask("POST", "/submissions", "server", json={"player_id": name, "score": 1})
    assert answer.status_code == 400
    assert answer.json()["field"].startswith("player_id")
    if name:
        assert game.ask("GET", f"/boards/best/entries/{one(name)}", "read").status_code in (400, 404)
        assert game.ask("PUT", f"/players/{one(name)}", "server", json={}).status_code == 400


def test_a_path_that_is_no_utf8_is_refused(game: Any) -> None:
    for bad in ("%FF", "%C3%28", "%ED%A0%80"):
        answer = game.ask("GET", f"/players/{bad}", "read")
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (400, "invalid_input", "path")
