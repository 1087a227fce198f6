"""Whatever comes in, the answer is a 4xx that says what to mend, and the server stays well."""

import base64
import gzip
import json
import socket
import time
from typing import Any

import msgspec
import pytest
import zstandard

MAX, MIN = 2**63 - 1, -(2**63)
PLAY = {"player_id": "ada", "score": 5}
JSON = {"content-type": "application/json"}
MSGPACK = {"content-type": "application/msgpack"}
BODY_BYTES_MAX = 1 << 20


def post(game: Any, content: Any, path: str = "/submissions", role: str = "server", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return game.ask("POST", path, role, content=content, headers=JSON | named)


def refused(answer: Any, code: str = "invalid_input", status: int = 400, field: str | None = None) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert told["request_id"] == answer.headers["x-request-id"]
    if field is not None:
        assert told["field"] == field
        assert told["rule"]
    return told


# --- bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"player_id":"\xff","score":1}',
        b'{"player_id":"\\ud800","score":1}',
        b'{"player_id":"a","score":1}x',
        b'{"player_id":"a","score":NaN}',
        b'{"player_id":"a","score":Infinity}',
        b'{"player_id":"a","score":01}',
        b'{"player_id":"a","score":0x1}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[]",
        b"null",
        b"7",
        b'"text"',
    ],
    ids=lambda content: str(content[:30]),
)
def test_what_is_no_document_is_refused(game: Any, content: bytes) -> None:
    refused(post(game, content))
    assert game.get("/boards/best/top")["total"] == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"player_id": None}, "player_id"),
        ({"player_id": 7}, "player_id"),
        ({"player_id": ""}, "player_id"),
        ({"score": None}, "score"),
        ({"score": True}, "score"),
        ({"score": []}, "score"),
        ({"score": "many"}, "score"),
        ({"score": "NaN"}, "score"),
        ({"score": "Infinity"}, "score"),
        ({"submission_id": 7}, "submission_id"),
        ({"submission_id": ""}, "submission_id"),
        ({"submission_id": "x" * 129}, "submission_id"),
        ({"played_at": "yesterday"}, "played_at"),
        ({"played_at": "2026-01-01T00:00:00"}, "played_at"),
        ({"played_at": 7}, "played_at"),
        ({"dimensions": []}, "dimensions"),
        ({"metrics": {"stars": "many"}}, "metrics"),
        ({"scores": 7}, "scores"),
        ({"Score": 7}, "Score"),
    ],
    ids=str,
)
def test_a_field_that_is_wrong_is_named(game: Any, change: dict[str, Any], field: str) -> None:
    answer = game.ask("POST", "/submissions", "server", json=PLAY | change)
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == field, answer.text
    assert answer.json()["rule"]
    assert game.get("/boards/best/top")["total"] == 0


@pytest.mark.parametrize("name", ["player_id", "score"])
def test_a_field_that_is_missing_is_named(game: Any, name: str) -> None:
    body = {key: value for key, value in PLAY.items() if key != name}
    told = refused(game.ask("POST", "/submissions", "server", json=body), field=name)
    assert told["rule"] == "is required"


@pytest.mark.parametrize("score", [MAX + 1, MIN - 1, 10**30, "9223372036854775808", 1e300, "1e400", 1.5, "0.1"])
def test_numbers_that_do_not_fit_are_refused(game: Any, score: Any) -> None:
    told = refused(game.ask("POST", "/submissions", "server", json=PLAY | {"score": score}), "out_of_range")
    assert told["field"] == "score"


def test_a_number_of_a_million_digits_is_refused_soon(game: Any) -> None:
    for text in (b"9" * 500_000, b'"' + b"9" * 500_000 + b'"', b"1e999999999", b'"1e999999999"', b"1e-999999999"):
        began = time.monotonic()
        answer = post(game, b'{"player_id":"a","score":' + text + b"}")
        assert answer.status_code == 400, (text[:20], answer.text[:200])
        assert len(answer.content) < 2_000
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("score", [MAX, MIN, 0, -1, "7", "-9223372036854775808"])
def test_numbers_that_fit_come_back_digit_for_digit(game: Any, score: Any) -> None:
    assert game.submit("ada", score)["score"] == int(score)
    answer = game.ask("GET", "/boards/best/entries/ada", "read")
    assert json.loads(answer.text)["entry"]["score"] == int(score)


def test_decimals_are_exact_to_the_scale(served: Any) -> None:
    game = served.new_game(boards={"best": {"scale": 3}})
    answer = post(game, b'{"player_id":"ada","score":0.123}')
    assert answer.status_code == 201, answer.text
    assert b'"score":0.123' in game.ask("GET", "/boards/best/entries/ada", "read").content
    refused(post(game, b'{"player_id":"ada","score":0.1234}'), "out_of_range", field="score")
    refused(post(game, b'{"player_id":"ada","score":9223372036854775.808}'), "out_of_range", field="score")
    assert game.submit("bob", "9223372036854775.807")
    assert b"9223372036854775.807" in game.ask("GET", "/boards/best/entries/bob", "read").content


def test_msgpack_goes_in_and_out(game: Any) -> None:
    body = msgspec.msgpack.encode(PLAY | {"score": MAX})
    answer = game.ask(
        "POST", "/submissions", "server", content=body, headers=MSGPACK | {"accept": MSGPACK["content-type"]}
    )
    assert answer.status_code == 201, answer.text
    assert answer.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(answer.content)["score"] == MAX
    for bad in (b"", b"\xc1", b"\x81", b"\x91" * 100_000, body[:-1], body + b"\x00", msgspec.msgpack.encode([1])):
        refused(game.ask("POST", "/submissions", "server", content=bad, headers=MSGPACK))
    nan = msgspec.msgpack.encode(PLAY | {"score": float("nan")})
    assert game.ask("POST", "/submissions", "server", content=nan, headers=MSGPACK).status_code == 400


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/x-www-form-urlencoded", "", "x"])
def test_other_kinds_of_content_are_refused(game: Any, kind: str) -> None:
    answer = game.ask("POST", "/submissions", "server", content=json.dumps(PLAY), headers={"content-type": kind})
    refused(answer, "unsupported_media_type", 415, "content-type")


def test_json_with_a_charset_is_json(game: Any) -> None:
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        answer = game.ask("POST", "/submissions", "server", content=json.dumps(PLAY), headers={"content-type": kind})
        assert answer.status_code == 201


# --- size -----------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused(game: Any) -> None:
    refused(post(game, b" " * (BODY_BYTES_MAX + 1)), "body_too_large", 413)
    assert post(game, json.dumps(PLAY).encode().ljust(BODY_BYTES_MAX)).status_code == 201


def test_a_body_said_to_be_huge_is_refused_before_it_comes(game: Any) -> None:
    with socket.create_connection(("127.0.0.1", game.served.port), timeout=10) as link:
        head = f"POST {game.path}/submissions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {game.keys['server']}\r\n"
        link.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{{".encode())
        assert link.recv(1_000).startswith(b"HTTP/1.1 413")


def test_a_chunked_body_is_read_and_no_further_than_it_may(game: Any) -> None:
    whole = json.dumps(PLAY).encode()
    assert post(game, iter([whole[:5], whole[5:]])).status_code == 201
    with socket.create_connection(("127.0.0.1", game.served.port), timeout=10) as link:
        head = f"POST {game.path}/submissions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {game.keys['server']}\r\n"
        link.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        try:
            while sent < 64 << 20:
                link.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                sent += 0x10000
        except (ConnectionError, TimeoutError):
            pass
        assert sent < 16 << 20
    assert game.get("/boards/best/top")["total"] == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bodies_are_read_and_bombs_are_not(game: Any, encoding: str) -> None:
    def packed(raw: bytes) -> bytes:
        return gzip.compress(raw) if encoding == "gzip" else zstandard.compress(raw)

    def send(raw: bytes) -> Any:
        return post(game, raw, content_encoding=encoding)

    whole = json.dumps(PLAY).encode()
    assert send(packed(whole)).status_code == 201
    refused(send(packed(b" " * (64 << 20))), "body_too_large", 413)
    refused(send(packed(whole)[:-9]))
    refused(send(whole))
    refused(send(b""))
    refused(send(packed(b"") * 3))


def test_a_zstd_body_that_wants_a_huge_window_is_refused(game: Any) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    answer = post(game, packer.compress(json.dumps(PLAY).encode()) + packer.flush(), content_encoding="zstd")
    assert answer.status_code == 400, answer.text


def test_other_encodings_are_refused(game: Any) -> None:
    told = refused(post(game, b"x", content_encoding="br"), "unsupported_media_type", 415, "content-encoding")
    assert "gzip" in told["rule"]


def test_batches_have_their_own_limits(game: Any) -> None:
    def send(**body: Any) -> Any:
        return game.ask("POST", "/submissions/batch", "server", json=body)

    assert send(player_ids=["a"] * 10_000, scores=list(range(10_000))).json()["accepted"] == 10_000
    refused(send(player_ids=["a"] * 10_001, scores=[1] * 10_001), "limit_exceeded", field="player_ids")
    assert send(player_ids=[], scores=[]).status_code == 400
    for body in (
        {"player_ids": ["a", "b"], "scores": [1]},
        {"player_ids": ["a"], "scores": [1], "submission_ids": ["x", "y"]},
        {"player_ids": ["a"], "scores": [1], "played_at": []},
        {"player_ids": ["a"], "scores": [1], "metrics": {"stars": [1, 2]}},
        {"player_ids": ["a", ""], "scores": [1, 2]},
        {"player_ids": ["a", "b"], "scores": [1, None]},
        {"player_ids": ["a", "b"], "scores": [1, MAX + 1]},
        {"player_ids": ["a", "b"], "scores": [1, "x"]},
        {"player_ids": ["a"], "scores": 1},
    ):
        told = send(**body)
        assert told.status_code == 400, body
        assert told.json()["field"], body
    assert len(game.get("/players/b/submissions")["items"]) == 0


# --- queries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("top?limit=0", "limit"),
        ("top?limit=-1", "limit"),
        ("top?limit=1001", "limit"),
        ("top?limit=x", "limit"),
        ("top?limit=", "limit"),
        ("top?limit=1.5", "limit"),
        ("top?limit=99999999999999999999", "limit"),
        ("top?limit=1&limit=2", "limit"),
        ("top?unknown=1", "unknown"),
        ("top?access_token=x", "access_token"),
        ("top?where.track=x", "where.track"),
        ("top?where.at=x", "where.at"),
        ("top?where.name=x", "where.name"),
        ("top?where.=x", "where."),
        ("entries/ada?where.track=x", "where.track"),
        ("histogram?where.track=x", "where.track"),
        ("top?at=yesterday", "at"),
        ("top?at=2026-01-01T00:00:00", "at"),
        ("top?fields=rank,nonsense", "fields"),
        ("top?fields=", "fields"),
        ("top?%FF=1", "query"),
        ("top?at=%FF", "query"),
        ("entries?offset=-1", "offset"),
        ("entries?offset=x", "offset"),
        ("entries?offset=99999999999999999999", "offset"),
        ("range", "low"),
        ("range?low=1", "high"),
        ("range?low=x&high=2", "low"),
        ("range?low=NaN&high=2", "low"),
        ("histogram?buckets=0", "buckets"),
        ("histogram?buckets=1001", "buckets"),
        ("percentiles?percentiles=", "percentiles"),
        ("percentiles?percentiles=101", "percentiles"),
        ("percentiles?percentiles=nan", "percentiles"),
        ("percentiles?percentiles=50,,60", "percentiles"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(game: Any, path: str, field: str) -> None:
    game.submit("ada", 5)
    answer = game.ask("GET", f"/boards/best/{path}", "read")
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == field, answer.text
    assert answer.json()["rule"]


def test_a_dimension_that_is_missing_is_named_as_it_is_written(served: Any) -> None:
    game = served.new_game(boards={"best": {"partition": ["at", "level"]}}, dimensions={"level": {"type": "integer"}})
    game.submit("ada", 5, dimensions={"at": "home", "level": 3})
    assert game.get("/boards/best/top", **{"where.at": "home", "where.level": 3})["total"] == 1
    for query, field in (
        ({}, "where.at"),
        ({"where.at": "home"}, "where.level"),
        ({"where.at": "home", "where.level": "x"}, "where.level"),
        ({"where.at": "home", "where.level": 10**19}, "where.level"),
        ({"where.at": "home", "where.level": 3, "where.x": 1}, "where.x"),
        ({"where.at": "x" * 2_000, "where.level": 3}, "where.at"),
    ):
        answer = game.ask("GET", "/boards/best/top", "read", params=query)
        assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text


def test_an_instant_with_a_plus_in_its_offset_must_be_encoded_and_then_counts(game: Any) -> None:
    assert game.get("/boards/best/top", at="2026-01-01T00:00:00+01:00")


def test_cursors_that_are_damaged_forged_or_of_elsewhere_are_refused(served: Any) -> None:
    game = served.new_game(boards={"best": {}, "worst": {"order": ["score asc"]}})
    game.submit_many([f"p{number}" for number in range(9)], list(range(9)))
    good = game.get("/boards/best/entries", limit=2)["next"]
    assert game.get("/boards/best/entries", limit=2, cursor=good)["entries"][0]["position"] == 3
    forged = base64.urlsafe_b64encode(bytes(16) + b'["best",1]').decode().rstrip("=")
    play = game.submit("p0", 0)["submission_id"]
    game.submit("p0", 1)
    history = game.get("/players/p0/submissions", limit=1)["next"]
    for cursor in (
        good[:-1],
        good + "A",
        good[::-1],
        good.swapcase(),
        "x",
        "%00",
        "ü",
        forged,
        play,
        history,
        "A" * 5_000,
    ):
        refused(game.ask("GET", "/boards/best/entries", "read", params={"cursor": cursor}), "invalid_cursor")
    refused(game.ask("GET", "/boards/worst/entries", "read", params={"cursor": good}), "invalid_cursor")
    refused(game.ask("GET", "/players/p1/submissions", "read", params={"cursor": history}), "invalid_cursor")
    refused(game.ask("GET", "/players/p0/submissions", "read", params={"cursor": good}), "invalid_cursor")
    both = game.ask("GET", "/boards/best/entries", "read", params={"cursor": good, "offset": 2})
    assert both.status_code == 400


# --- headers --------------------------------------------------------------------------------------------------


def test_idempotency_keys_are_submission_ids(game: Any) -> None:
    def send(key: str, **more: Any) -> Any:
        return game.ask("POST", "/submissions", "server", json=PLAY | more, headers={"idempotency-key": key})

    first = send("one").json()
    assert first["submission_id"] == "one"
    assert send('"one"').json() == first
    assert send("one", submission_id="one").json() == first
    refused(send("one", submission_id="two"), field="submission_id")
    for bad in ("", "x" * 129):
        refused(send(bad), field="submission_id", code=send(bad).json()["code"])
    assert len(game.get("/players/ada/submissions")["items"]) == 1


def test_a_repeat_that_says_something_else_is_a_conflict_or_the_first_answer(game: Any) -> None:
    first = game.submit("ada", 5, submission_id="one")
    answer = game.ask("POST", "/submissions", "server", json={"player_id": "ada", "score": 6, "submission_id": "one"})
    assert answer.status_code in (201, 409)
    assert answer.status_code == 409 or answer.json() == first
    assert game.get("/boards/best/entries/ada")["entry"]["score"] == 5


def test_request_ids_come_back_if_they_are_harmless(game: Any) -> None:
    for id in ("abc-1", "A.b_c:d", "x" * 64):
        assert game.ask("GET", "", "read", headers={"x-request-id": id}).headers["x-request-id"] == id
    for id in ("", "a b", "x" * 65, "a,b", "<b>", '"', "a\tb", "\xfc"):
        answer = game.ask("GET", "", "read", headers={"x-request-id": id.encode("latin-1")})
        assert answer.headers["x-request-id"] != id
        assert answer.status_code == 200
    raw = raw_answer(
        game, b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\rInjected: yes\r\nConnection: close\r\n\r\n"
    )
    assert b"njected: yes" not in raw


def raw_answer(game: Any, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", game.served.port), timeout=10) as link:
        link.sendall(text)
        parts = []
        while part := link.recv(65_536):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    "target",
    [
        b"//",
        b"/v1//games",
        b"/v1/games/",
        b"/v1/games/%zz",
        b"/v1/games/x/../../metrics",
        b"/%2e%2e/metrics",
        b"*",
        b"http://x/v1/games",
    ],
)
def test_odd_targets_are_answered(game: Any, target: bytes) -> None:
    head = b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    raw = raw_answer(game, head + f"Authorization: Bearer {game.keys['read']}\r\n\r\n".encode())
    assert raw.startswith((b"HTTP/1.1 40", b"HTTP/1.1 200")), raw[:100]
    assert b"laurels_requests" not in raw


def test_what_is_no_http_ends_the_connection_only(game: Any) -> None:
    for raw in (b"\x16\x03\x01\x02\x00", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100):
        raw_answer(game, raw)
    assert game.served.ask("GET", "/health/ready").status_code == 200


def test_names_of_games_and_boards_keep_their_rule(served: Any) -> None:
    for name in ("a b", "A" * 200, "%00", "-"):
        answer = served.ask("PUT", f"/v1/games/{name}", served.operator, json={})
        assert answer.status_code in (201, 400), answer.text
    game = served.new_game()
    for body in (
        {"policy": "nonsense"},
        {"order": []},
        {"order": ["score up"]},
        {"scale": 99},
        {"window": {"every": "x"}},
        {"partition": [""]},
        {"unknown": 1},
        {"where": {"": 1}},
        {"window": {"timezone": "Mars/One"}},
    ):
        answer = game.ask("PUT", "/boards/new", "admin", json=body)
        assert answer.status_code == 400, (body, answer.text)
        assert answer.json()["field"], body
    assert [board["name"] for board in game.get("/boards")["items"]] == ["best"]


def test_nothing_secret_is_logged(game: Any) -> None:
    key, token = game.keys["read"], game.token("ada")
    game.ask("GET", f"/boards/best/top?access_token={key}", None)
    game.ask("GET", f"/live?access_token={token}&kind=rank", None)
    game.ask("GET", "/boards/best/top?secret-query=1", "read")
    game.ask("POST", "/submissions", key + "x", content=b"secret-body", headers=JSON)
    time.sleep(0.2)
    log = game.served.log() + game.served.out.read_text().replace(game.served.operator, "")
    assert f"{game.path}/boards/best/top" in log
    for secret in (*game.keys.values(), "secret-query", "secret-body", "access_token"):
        assert secret not in log
