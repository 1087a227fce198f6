"""What goes with answers: etags, compression, origins, rate limits, methods."""

import gzip
import json
from typing import Any

import pytest
import zstandard

ORIGIN = "https://play.example"


def raw(game: Any, path: str, **headers: str) -> tuple[Any, bytes]:
    """An answer with its body as it came over the wire."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named["authorization"] = f"Bearer {game.keys['read']}"
    with game.served.client.stream("GET", game.path + path, headers=named) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize("path", ["top", "entries", "range?low=0&high=9", "entries/ada", "entries/ada/around"])
def test_what_has_not_changed_is_not_sent_again(game: Any, path: str) -> None:
    game.submit("ada", 5)
    first = game.ask("GET", f"/boards/best/{path}", "read")
    etag = first.headers["etag"]
    for known in (etag, f'"other", {etag}', "*"):
        again = game.ask("GET", f"/boards/best/{path}", "read", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    assert game.ask("GET", f"/boards/best/{path}", "read", headers={"if-none-match": '"other"'}).status_code == 200
    game.submit("bob", 6)
    changed = game.ask("GET", f"/boards/best/{path}", "read", headers={"if-none-match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag
    assert changed.json()["total"] == 2


def test_an_etag_holds_for_its_representation_only(game: Any) -> None:
    game.submit("ada", 5)
    one = game.ask("GET", "/boards/best/top", "read").headers["etag"]
    for path in ("/boards/best/top?limit=1", "/boards/best/entries"):
        assert game.ask("GET", path, "read").headers["etag"]
    game.ask("PUT", "/bans/ada", "admin", json={})
    assert game.ask("GET", "/boards/best/top", "read", headers={"if-none-match": one}).json()["total"] == 0
    game.ask("DELETE", "/bans/ada", "admin")
    assert game.ask("GET", "/boards/best/top", "read", headers={"if-none-match": one}).json()["total"] == 1


def test_a_board_defined_anew_has_another_etag(game: Any) -> None:
    game.submit("ada", 5)
    game.submit("ada", 3)
    etag = game.ask("GET", "/boards/best/top", "read").headers["etag"]
    for policy in ("sum", "last", "best"):
        if game.ask("PUT", "/boards/best", "admin", json={"policy": policy}).status_code != 200:
            continue
        answer = game.ask("GET", "/boards/best/top", "read", headers={"if-none-match": etag})
        assert answer.status_code == 200
        assert answer.json()["entries"][0]["score"] == {"sum": 8, "last": 3, "best": 5}[policy]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_long_answers_are_compressed_for_those_who_can(game: Any, encoding: str) -> None:
    game.submit_many([f"player-{number}" for number in range(100)], list(range(100)))
    answer, body = raw(game, "/boards/best/top?limit=100", accept_encoding=encoding)
    assert answer.headers["content-encoding"] == encoding
    assert "accept-encoding" in answer.headers["vary"].lower()
    plain = (
        gzip.decompress(body) if encoding == "gzip" else zstandard.ZstdDecompressor().decompressobj().decompress(body)
    )
    assert len(json.loads(plain)["entries"]) == 100
    assert len(body) < len(plain)
    answer, body = raw(game, "/boards/best/top?limit=100", accept_encoding="identity")
    assert "content-encoding" not in answer.headers
    assert len(json.loads(body)["entries"]) == 100


def test_an_encoding_that_is_declined_is_not_used(game: Any) -> None:
    game.submit_many([f"player-{number}" for number in range(100)], list(range(100)))
    for accepted in ("gzip;q=0", "zstd;q=0, gzip;q=0", "br", ""):
        answer, body = raw(game, "/boards/best/top?limit=100", accept_encoding=accepted)
        assert "content-encoding" not in answer.headers, accepted
        assert json.loads(body)
    answer, _ = raw(game, "/boards/best/top?limit=100", accept_encoding="zstd;q=0, gzip")
    assert answer.headers["content-encoding"] == "gzip"


def test_short_answers_go_as_they_are(game: Any) -> None:
    answer, body = raw(game, "/boards/best/top", accept_encoding="gzip, zstd")
    assert "content-encoding" not in answer.headers
    assert int(answer.headers["content-length"]) == len(body)


# --- origins --------------------------------------------------------------------------------------------------


def preflight(game: Any, origin: str, method: str = "POST") -> Any:
    headers = {"origin": origin, "access-control-request-method": method}
    return game.served.client.options(game.path + "/submissions", headers=headers)


def test_pages_of_the_origins_that_are_configured_may_ask(game: Any) -> None:
    answer = preflight(game, ORIGIN)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"]
    for header in ("authorization", "content-type", "idempotency-key"):
        assert header in answer.headers["access-control-allow-headers"]
    for status, role in ((200, "read"), (401, None)):
        answer = game.ask("GET", "", role, headers={"origin": ORIGIN})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "origin" in answer.headers["vary"].lower()
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://play.example.evil.example", "http://play.example"]
)
def test_pages_of_other_origins_get_no_leave(game: Any, origin: str) -> None:
    for answer in (preflight(game, origin), game.ask("GET", "", "read", headers={"origin": origin})):
        assert not [name for name in answer.headers if name.startswith("access-control-allow")]


def test_all_origins_may_ask_if_so_configured(new_served: Any) -> None:
    served = new_served('[server]\ncors_origins = ["*"]\n').start()
    answer = served.ask("GET", "/health/live", headers={"origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


# --- rate limits ----------------------------------------------------------------------------------------------

LIMITED = """
[server.rate_limits]
per_key = {requests = 1, window_s = 60, burst = 20}
per_player = {requests = 1, window_s = 60, burst = 3}
"""


def test_who_asks_too_often_is_told_to_wait(new_served: Any) -> None:
    game = new_served(LIMITED).start().new_game(boards={"best": {"submit": "players"}})
    tokens = [game.token("ada"), game.token("ada")]
    for left in (2, 1, 0):
        answer = game.ask("GET", "", tokens[left % 2])
        assert answer.status_code == 200
        assert answer.headers["ratelimit-policy"].startswith('"player";q=3;w=')
        assert answer.headers["ratelimit"].startswith(f'"player";r={left};t=')
    for token in tokens:
        answer = game.ask("GET", "", token)
        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert 0 < answer.json()["retry_after_s"] <= 60
        assert answer.headers["ratelimit"].startswith('"player";r=0;t=')
    assert game.ask("POST", "/submissions", tokens[0], json={"player_id": "ada", "score": 1}).status_code == 429
    assert game.ask("GET", "", game.token("bob")).status_code == 200
    statuses = [game.ask("GET", "", "read").status_code for _ in range(22)]
    assert statuses == [200] * 20 + [429] * 2
    assert game.get("/boards/best/top", "admin")["total"] == 0
    assert game.served.ask("GET", "/health/ready").status_code == 200


# --- methods --------------------------------------------------------------------------------------------------


def test_head_is_get_without_its_body(game: Any) -> None:
    for path in ("", "/boards/best/top"):
        head, get = game.ask("HEAD", path, "read"), game.ask("GET", path, "read")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.headers.get("etag") == get.headers.get("etag")
    assert game.ask("HEAD", "/boards/none/top", "read").status_code == 404
    assert game.ask("HEAD", "", None).status_code == 401
    assert game.ask("HEAD", "/live?board=best", "read", headers={}).status_code in (200, 405)


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "TRACE", "BREW"])
def test_a_method_that_is_not_for_a_path_is_told_which_are(game: Any, method: str) -> None:
    answer = game.ask(method, "/submissions", "server")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


def test_options_tells_what_a_path_can_be_asked_for(game: Any) -> None:
    answer = game.ask("OPTIONS", "/submissions", None)
    assert answer.status_code in (204, 405)
    assert "POST" in answer.headers["allow"]
    assert game.ask("OPTIONS", "/none/of/these/paths", None).status_code == 404


def test_every_answer_has_a_request_id_of_its_own(game: Any) -> None:
    ids = [game.ask("GET", path, role).headers["x-request-id"] for path in ("", "/none/") for role in ("read", None)]
    assert len(set(ids)) == 4


def test_answers_are_of_the_kind_that_is_accepted(game: Any) -> None:
    for accept, kind in (
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("application/msgpack", "application/msgpack"),
        ("text/html", "application/json"),
    ):
        assert game.ask("GET", "", "read", headers={"accept": accept}).headers["content-type"] == kind
