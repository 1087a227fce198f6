"""Who may do what: every route, every role; and nothing crosses games."""

import base64
import hashlib
import hmac
import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from laurels.http.routes import ROUTES
from laurels.http.routing import Route

EVERYBODY = ["nobody", "player", "read", "server", "admin", "operator"]

# The least role, and whether a player's token will do. Not taken from the routes, but what was decided.
TABLE = {
    "GET /v1/games": ("read", False),
    "PUT /v1/games/{game}": ("operator", False),
    "GET /v1/games/{game}": ("read", True),
    "GET /v1/games/{game}/boards": ("read", True),
    "GET /v1/games/{game}/boards/{board}": ("read", True),
    "PUT /v1/games/{game}/boards/{board}": ("admin", False),
    "DELETE /v1/games/{game}/boards/{board}": ("admin", False),
    "GET /v1/games/{game}/boards/{board}/instances": ("read", False),
    "POST /v1/games/{game}/submissions": ("server", True),
    "POST /v1/games/{game}/submissions/batch": ("server", False),
    "GET /v1/games/{game}/submissions/{submission_id}": ("server", False),
    "GET /v1/games/{game}/boards/{board}/top": ("read", True),
    "GET /v1/games/{game}/boards/{board}/entries": ("read", True),
    "GET /v1/games/{game}/boards/{board}/range": ("read", True),
    "GET /v1/games/{game}/boards/{board}/entries/{player_id}": ("read", True),
    "GET /v1/games/{game}/boards/{board}/entries/{player_id}/around": ("read", True),
    "DELETE /v1/games/{game}/boards/{board}/entries/{player_id}": ("admin", False),
    "POST /v1/games/{game}/boards/{board}/players": ("read", True),
    "GET /v1/games/{game}/boards/{board}/histogram": ("read", True),
    "GET /v1/games/{game}/boards/{board}/percentiles": ("read", True),
    "GET /v1/games/{game}/players/{player_id}": ("read", True),
    "PUT /v1/games/{game}/players/{player_id}": ("server", False),
    "DELETE /v1/games/{game}/players/{player_id}": ("admin", False),
    "GET /v1/games/{game}/players/{player_id}/submissions": ("read", True),
    "GET /v1/games/{game}/players/{player_id}/entries": ("read", True),
    "GET /v1/games/{game}/players/{player_id}/export": ("server", True),
    "GET /v1/games/{game}/bans": ("admin", False),
    "PUT /v1/games/{game}/bans/{player_id}": ("admin", False),
    "DELETE /v1/games/{game}/bans/{player_id}": ("admin", False),
    "GET /v1/games/{game}/keys": ("admin", False),
    "POST /v1/games/{game}/keys": ("admin", False),
    "POST /v1/games/{game}/keys/{key_id}/rotate": ("admin", False),
    "DELETE /v1/games/{game}/keys/{key_id}": ("admin", False),
    "POST /v1/games/{game}/tokens": ("server", False),
    "GET /v1/games/{game}/live": ("read", True),
    "GET /health/live": (None, False),
    "GET /health/ready": (None, False),
    "GET /metrics": (None, False),
    "GET /openapi.json": (None, False),
    "GET /docs": (None, False),
}

GAME_ROUTES = [route for route in ROUTES if "{game}" in route.path]


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def ask(game: Any, route: Route, role: str | None) -> Any:
    """Ask for a route in a way that can succeed, with somebody's key."""
    name, body = named(route), route.example.get("body", {})
    player = "ada"
    if name.startswith("DELETE"):  # there is something to delete
        player = f"bob-{uuid.uuid4().hex[:8]}"
        game.ask("PUT", "/boards/best", "admin", json={"submit": "players"})
        game.submit(player, 1)
        game.ask("PUT", f"/bans/{player}" if "bans" in name else "/bans/cyd", "admin", json={})
    path = route.path.replace("{game}", game.name).replace("{board}", "best").replace("{player_id}", player)
    if "{key_id}" in path:
        game.new_key("read", "spare")
        path = path.replace("{key_id}", game.key_ids["spare"])
    if "{submission_id}" in path:
        path = path.replace("{submission_id}", game.submit("ada", 7)["submission_id"])
    if "/submissions" in path:
        body = {key: value for key, value in body.items() if not key.startswith("submission_id")}
    query: dict[str, Any] = {"low": 0, "high": 10} if path.endswith("/range") else {}
    if route.path.endswith("{game}/live"):
        query = {"board": "best"}
    key = None if role in (None, "nobody") else game.keys.get(role, role)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    content = {} if route.body is None else {"json": body}
    with game.served.client.stream(route.method, path, params=query, headers=headers, **content) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


@pytest.fixture
def open_game(served: Any) -> Any:
    game = served.new_game(boards={"best": {"submit": "players"}})
    game.submit("ada", 10)
    game.keys["player"] = game.token("ada")
    return game


def test_the_table_has_every_route() -> None:
    assert sorted(map(named, ROUTES)) == sorted(TABLE)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_a_route_is_for_its_roles_only(open_game: Any, route: Route) -> None:
    least, players = TABLE[named(route)]
    for role in EVERYBODY:
        if least is None:
            may = True
        elif role == "player":
            may = players
        else:
            may = EVERYBODY.index(role) >= EVERYBODY.index(least)
        answer = ask(open_game, route, role)
        if may:
            assert answer.status_code in (200, 201, 204), role
        else:
            code = "unauthenticated" if role == "nobody" else "forbidden"
            assert answer.json()["code"] == code, (role, answer.text)
            assert answer.status_code == (401 if role == "nobody" else 403)
            assert answer.headers["content-type"] == "application/problem+json"
            assert ("www-authenticate" in answer.headers) is (role == "nobody")


@pytest.mark.parametrize("route", GAME_ROUTES, ids=named)
def test_no_key_or_token_of_another_game_opens_anything(open_game: Any, served: Any, route: Route) -> None:
    other = served.new_game(boards={"best": {"submit": "players"}})
    other.submit("ada", 10)
    strangers = {role: other.keys[role] for role in ("admin", "server", "read")} | {"player": other.token("ada")}
    for role, key in strangers.items():
        answer = ask(open_game, route, key)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (role, answer.text)
        assert other.name not in answer.text


def test_a_signers_key_opens_nothing(game: Any) -> None:
    for path in ("", "/boards", "/keys"):
        assert game.ask("GET", path, "signer").status_code == 401


def test_lists_of_games_tell_nobody_of_others_games(game: Any, served: Any) -> None:
    other = served.new_game()
    seen = served.ask("GET", "/v1/games", game.keys["read"]).json()["items"]
    assert [one["game"] for one in seen] == [game.name]
    everything = {one["game"] for one in served.ask("GET", "/v1/games", served.operator).json()["items"]}
    assert {game.name, other.name} <= everything


def test_a_game_that_is_not_there_looks_like_one_that_is_anothers(game: Any, served: Any) -> None:
    other = served.new_game()
    answers = [served.ask("GET", f"/v1/games/{name}/boards", game.keys["admin"]) for name in (other.name, "no-game")]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert served.ask("GET", "/v1/games/no-game/boards", served.operator).status_code == 404


def test_ids_cursors_and_keys_of_one_game_mean_nothing_in_another(game: Any, served: Any) -> None:
    other = served.new_game()
    for one in (game, other):
        one.submit_many([f"p{number}" for number in range(9)], list(range(9)))
        for number in range(3):
            one.submit("p0", number)
    play = other.submit("ada", 5, submission_id="shared")
    assert game.ask("GET", "/submissions/shared", "server").status_code == 404
    assert game.submit("bob", 6, submission_id="shared")["submission_id"] == play["submission_id"]
    assert other.get("/submissions/shared", "server")["player_id"] == "ada"

    cursor = other.get("/boards/best/entries", limit=2)["next"]
    answer = game.ask("GET", "/boards/best/entries", "read", params={"limit": 2, "cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")
    cursor = other.get("/players/p0/submissions", limit=2)["next"]
    answer = game.ask("GET", "/players/p0/submissions", "read", params={"limit": 2, "cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")

    foreign = other.key_ids["read"]
    assert game.ask("DELETE", f"/keys/{foreign}").status_code == 404
    assert game.ask("POST", f"/keys/{foreign}/rotate").status_code == 404
    assert other.get("/boards/best/top", "read")["total"] == 10
    assert foreign not in [key["key_id"] for key in game.get("/keys", "admin")["items"]]


# --- players --------------------------------------------------------------------------------------------------


def test_a_player_submits_for_themselves_where_every_board_allows_it(served: Any) -> None:
    game = served.new_game(boards={"open": {"submit": "players"}, "shut": {"where": {"mode": "ranked"}}})
    token = game.token("ada")
    assert game.submit("ada", 5, token, dimensions={"mode": "casual"})["changes"][0]["new_rank"] == 1
    refused = game.ask(
        "POST", "/submissions", token, json={"player_id": "ada", "score": 6, "dimensions": {"mode": "ranked"}}
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert game.get("/boards/open/entries/ada")["entry"]["score"] == 5


def test_a_player_is_refused_where_a_board_is_for_servers(game: Any) -> None:
    token = game.token("ada")
    refused = game.ask("POST", "/submissions", token, json={"player_id": "ada", "score": 5})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert game.get("/boards/best/top")["total"] == 0


def test_a_player_submits_for_nobody_else(open_game: Any) -> None:
    refused = open_game.ask("POST", "/submissions", "player", json={"player_id": "bob", "score": 99})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert open_game.get("/boards/best/top")["total"] == 1


@pytest.mark.parametrize("path", ["", "/submissions", "/entries", "/export"])
def test_a_player_reads_of_themselves_only(open_game: Any, path: str) -> None:
    open_game.submit("bob", 3)
    assert open_game.ask("GET", f"/players/ada{path}", "player").status_code == 200
    refused = open_game.ask("GET", f"/players/bob{path}", "player")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


def test_a_player_follows_their_own_submissions_only(open_game: Any) -> None:
    query = {"kind": "submissions", "player_id": "bob"}
    assert open_game.ask("GET", "/live", "player", params=query).status_code == 403


def test_a_token_ends_with_the_key_that_signed_it(game: Any) -> None:
    signer = game.keys["signer"]
    token = token_of(signer, game.name)
    assert game.ask("GET", "/boards", token).status_code == 200
    assert game.ask("DELETE", f"/keys/{game.key_ids['signer']}").status_code == 204
    assert game.ask("GET", "/boards", token).status_code == 401


# --- keys that no longer count --------------------------------------------------------------------------------


def test_a_revoked_key_ends_at_once(game: Any) -> None:
    assert game.ask("GET", "/boards", "read").status_code == 200
    assert game.ask("DELETE", f"/keys/{game.key_ids['read']}").status_code == 204
    assert game.ask("GET", "/boards", "read").status_code == 401
    assert game.ask("DELETE", f"/keys/{game.key_ids['read']}").status_code == 404


def test_a_rotated_key_has_another_secret(game: Any) -> None:
    made = game.ask("POST", f"/keys/{game.key_ids['read']}/rotate").json()
    game.served.secrets.append(made["key"])
    assert made["key_id"] == game.key_ids["read"]
    assert game.ask("GET", "/boards", "read").status_code == 401
    assert game.ask("GET", "/boards", made["key"]).status_code == 200


def test_an_expired_key_ends(game: Any) -> None:
    expires = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    key = game.new_key("read", "short", expires_at=expires)
    assert game.ask("GET", "/boards", key).status_code == 200
    time.sleep(1.1)
    answer = game.ask("GET", "/boards", key)
    assert (answer.status_code, answer.json()["detail"]) == (401, "the key has expired")


def test_a_key_is_shown_once_and_listed_without_its_secret(game: Any) -> None:
    listed = game.ask("GET", "/keys")
    assert {one["role"] for one in listed.json()["items"]} == {"admin", "server", "read", "signer"}
    assert not [key for key in game.keys.values() if key in listed.text or key[-43:] in listed.text]


# --- tokens and signatures that are no good -------------------------------------------------------------------


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token_of(signer: str, game: str, *, header: Any = None, alg: str = "sha256", **changes: Any) -> str:
    """A player's token, made by hand."""
    _, key_id, secret = signer.split("_", 2)
    now = int(time.time())
    claims = {"iss": "laurels", "aud": game, "sub": "ada", "iat": now, "exp": now + 600} | changes
    head = {"alg": "HS256", "kid": key_id, "typ": "JWT"} if header is None else {"kid": key_id, **header}
    signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
    return f"{signed}.{b64(hmac.digest(secret.encode(), signed.encode(), alg))}"


def test_tokens_that_are_wrong_in_any_way_are_refused(game: Any, served: Any) -> None:
    signer, now = game.keys["signer"], int(time.time())
    assert game.ask("GET", "/boards", token_of(signer, game.name)).status_code == 200
    other = served.new_game()
    good = token_of(signer, game.name)
    head, body, signature = good.split(".")
    bad = {
        "expired": token_of(signer, game.name, iat=now - 700, exp=now - 100),
        "too long": token_of(signer, game.name, exp=now + 90_000),
        "of the future": token_of(signer, game.name, iat=now + 300, exp=now + 600),
        "not yet": token_of(signer, game.name, nbf=now + 300),
        "another issuer": token_of(signer, game.name, iss="somebody"),
        "another game's name": token_of(signer, other.name),
        "no player": token_of(signer, game.name, sub=""),
        "a number as player": token_of(signer, game.name, sub=7),
        "no end": token_of(signer, game.name, exp=None),
        "alg none": token_of(signer, game.name, header={"alg": "none"}),
        "alg HS512": token_of(signer, game.name, header={"alg": "HS512"}, alg="sha512"),
        "a key in the header": token_of(signer, game.name, header={"alg": "HS256", "jwk": {"kty": "oct"}}),
        "no signature": f"{head}.{body}.",
        "a changed signature": f"{head}.{body}.{'A' * 43}",
        "a changed body": f"{head}.{b64(b'{}')}.{signature}",
        "of a key that signs nothing": token_of(game.keys["server"], game.name),
        "of no key": token_of(f"lk_{'a' * 12}_{'b' * 43}", game.name),
        "words": "a b c",
        "unicode": "ünï",
        "long": "x" * 8_000,
    }
    for what, token in bad.items():
        headers = {"authorization": b"Bearer " + token.encode()}
        answer = game.served.client.get(game.path + "/boards", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), what
        assert token not in answer.text


def test_other_ways_to_authenticate_are_refused(game: Any) -> None:
    for value in ("", "Basic YTpi", "Bearer", game.keys["read"]):
        answer = game.served.client.get(game.path + "/boards", headers={"authorization": value})
        assert answer.status_code == 401, value
    in_query = game.served.client.get(game.path + "/boards", params={"access_token": game.keys["read"]})
    assert in_query.status_code in (400, 401)


def signed(game: Any, body: bytes, *, t: int | None = None, nonce: str | None = None, path: str = "") -> str:
    _, key_id, secret = game.keys["signer"].split("_", 2)
    t = int(time.time()) if t is None else t
    nonce = nonce or uuid.uuid4().hex
    text = f"{t}.{nonce}.POST.{path or game.path + '/submissions'}.".encode() + body
    return f"t={t},n={nonce},k={key_id},v1={hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()}"


def test_signatures_count_once_and_for_what_they_signed(game: Any, served: Any) -> None:
    body = b'{"player_id":"ada","score":5}'

    def post(signature: str, content: bytes = body, to: Any = game) -> Any:
        headers = {"laurels-signature": signature, "content-type": "application/json"}
        return to.ask("POST", "/submissions", "server", content=content, headers=headers)

    time.sleep(max(0.0, 6 - (time.time() - served.config.stat().st_mtime)))  # nonces of before the start are unknown
    good = signed(game, body)
    assert post(good).status_code == 201
    bad = {
        "again": post(good),
        "another body": post(signed(game, body), body.replace(b"5", b"6")),
        "another path": post(signed(game, body, path="/v1/games/other/submissions")),
        "too old": post(signed(game, body, t=int(time.time()) - 301)),
        "of the future": post(signed(game, body, t=int(time.time()) + 30)),
        "a short nonce": post(signed(game, body, nonce="short")),
        "nothing": post("nothing"),
        "another game's key": post(signed(served.new_game(), body, path=game.path + "/submissions")),
    }
    for what, answer in bad.items():
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), what
    assert len(game.get("/players/ada/submissions")["items"]) == 1
