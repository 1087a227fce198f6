"""The process: how it starts, how it ends, and what is left when it is killed."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from laurels import Laurels
from laurels.config import ServerSettings
from laurels.errors import StoreFull
from laurels.http.app import App
from laurels.http.tracing import Tracer
from laurels.live import Hub


def load(game: Any, until: threading.Event) -> tuple[list[str], list[threading.Thread]]:
    """Submit until told otherwise, or until nobody answers; the ids that were acknowledged."""
    acknowledged: list[str] = []

    def work(number: int) -> None:
        for turn in range(100_000):
            if until.is_set():
                return
            play = {"player_id": f"p{turn % 7}", "score": turn, "submission_id": f"{number}-{turn}"}
            try:
                answer = game.ask("POST", "/submissions", "server", json=play)
            except Exception:
                return
            if answer.status_code == 201:
                acknowledged.append(answer.json()["submission_id"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    return acknowledged, threads


def kept(game: Any, ids: list[str]) -> int:
    """How many of these submissions the server knows."""
    return sum(game.ask("GET", f"/submissions/{id}", "server").status_code == 200 for id in ids)


def test_it_says_where_it_is_and_shows_its_first_key_once(new_served: Any) -> None:
    served = new_served().start()
    said = served.out.read_text()
    assert served.url in said
    assert f"{served.url}/docs" in said
    assert re.search(r"lk_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", said)
    assert served.operator not in served.log()
    assert served.ask("GET", "/v1/games", served.operator).json() == {"items": []}
    assert served.stop() == 0
    served.start()
    assert "lk_" not in served.out.read_text()
    assert served.ask("GET", "/v1/games", served.operator).status_code == 200
    assert served.stop() == 0


def test_health_and_metrics_are_told(game: Any) -> None:
    served = game.served
    for path in ("/health/live", "/health/ready"):
        assert served.ask("GET", path).json() == {"status": "ok"}
    game.submit("ada", 5)
    answer = served.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    route = 'method="POST",route="/v1/games/{game}/submissions",status="201"'
    assert re.search(re.escape(f"laurels_requests_total{{{route}}}") + r" [1-9]", answer.text)
    for name in ("laurels_request_seconds_bucket", "laurels_index_bytes", "laurels_queued_rows", "laurels_games"):
        assert name in answer.text
    assert game.name not in answer.text


def test_metrics_are_not_for_those_behind_a_proxy(game: Any) -> None:
    forwarded = {"x-forwarded-for": "203.0.113.7"}
    assert game.served.ask("GET", "/metrics", headers=forwarded).status_code == 401
    assert game.served.ask("GET", "/metrics", game.keys["admin"], headers=forwarded).status_code == 403
    assert game.served.ask("GET", "/metrics", game.served.operator, headers=forwarded).status_code == 200


def test_an_orderly_end_loses_nothing_that_was_acknowledged(new_served: Any) -> None:
    served = new_served().start()
    game = served.new_game()
    done = threading.Event()
    acknowledged, threads = load(game, done)
    time.sleep(1)
    served.process.terminate()
    assert served.process.wait(20) == 0
    done.set()
    for thread in threads:
        thread.join(20)
    assert len(acknowledged) > 20
    assert '"level":"error"' not in served.log()
    served.start()
    assert kept(game, acknowledged) == len(acknowledged)


def test_what_was_acknowledged_outlives_a_kill(new_served: Any) -> None:
    served = new_served().start()
    game = served.new_game()
    acknowledged, threads = load(game, threading.Event())
    time.sleep(1)
    served.kill()
    for thread in threads:
        thread.join(20)
    assert len(acknowledged) > 20
    served.start()
    assert kept(game, acknowledged) == len(acknowledged)
    assert game.get("/boards/best/top")["total"] == 7
    assert served.stop() == 0


def test_a_port_in_use_is_said_and_fails(new_served: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        served = new_served().start(port=taken.getsockname()[1], wait=False)
        assert served.ended() not in (0, -9)
    assert f"127.0.0.1:{served.port}" in served.log()
    assert "Traceback" not in served.log()
    assert served.out.read_text() == ""  # above all no key that nobody can use


def test_a_wrong_configuration_is_said_and_fails(new_served: Any) -> None:
    served = new_served("[server]\nheartbeat_s = 0\n").start(wait=False)
    assert served.ended() not in (0, -9)
    assert "heartbeat_s" in served.log()
    assert "Traceback" not in served.log()


def test_a_store_that_is_in_use_is_said_and_fails(new_served: Any) -> None:
    one = new_served().start()
    other = new_served()
    other.store = one.store
    other.start(wait=False)
    assert other.ended() not in (0, -9)
    assert "Traceback" not in other.log()
    assert one.ask("GET", "/health/ready").status_code == 200


def test_each_line_of_the_log_is_json_and_names_its_request(game: Any) -> None:
    game.ask("GET", "/boards", "read", headers={"x-request-id": "find-me"})
    time.sleep(0.1)
    lines = [json.loads(line) for line in game.served.log().splitlines()]
    found = next(line for line in lines if line.get("request_id") == "find-me")
    assert (found["status"], found["route"], found["level"]) == (200, "/v1/games/{game}/boards", "info")
    assert found["ms"] >= 0
    assert found["time"]


# --- the application by itself --------------------------------------------------------------------------------


async def ask(app: App, method: str, path: str, *headers: tuple[bytes, bytes]) -> tuple[int, dict[bytes, bytes], Any]:
    """One request by ASGI, where a test must reach inside."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    await app({**scope, "client": ("127.0.0.1", 1)}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])


async def test_it_is_not_ready_when_its_store_has_stopped_or_it_stops(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Laurels.open(url) as laurels:
        app = App(laurels, Hub(laurels), ServerSettings())
        assert (await ask(app, "GET", "/health/ready"))[0] == 200
        monkeypatch.setattr(laurels, "failure", lambda: StoreFull("no space left in /somewhere"))
        status, _, told = await ask(app, "GET", "/health/ready")
        assert (status, told) == (503, {"status": "failing", "detail": "store_full"})
        app.stop()
        status, _, told = await ask(app, "GET", "/health/ready")
        assert (status, told["status"]) == (503, "stopping")
        assert (await ask(app, "GET", "/health/live"))[0] == 200


async def test_a_store_that_fails_is_told_as_503_with_a_time_to_wait(url: str) -> None:
    async with Laurels.open(url, config={"games": {"g": {"boards": {"best": {}}}}}) as laurels:
        _, key = await laurels.create_key("read", "g")
        app = App(laurels, Hub(laurels), ServerSettings())
    status, headers, told = await ask(
        app, "GET", "/v1/games/g/boards/best/entries/ada", (b"authorization", b"Bearer " + key.encode())
    )
    assert (status, told["code"]) == (503, "store_unavailable")
    assert int(headers[b"retry-after"]) >= 1


async def test_a_fault_of_ours_is_told_without_its_details(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Laurels.open(url) as laurels:
        app = App(laurels, Hub(laurels), ServerSettings())

        def fail() -> None:
            raise RuntimeError("a secret detail")

        monkeypatch.setattr(laurels, "failure", fail)
        status, _, told = await ask(app, "GET", "/health/ready")
        assert (status, told["code"]) == (500, "internal")
        assert "secret" not in json.dumps(told)


@pytest.fixture
def spans() -> tuple[Tracer, Callable[[], Any]]:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracer(provider), exporter.get_finished_spans


async def test_each_request_is_a_span_under_its_callers(url: str, spans: Any) -> None:
    tracer, finished = spans
    async with Laurels.open(url) as laurels:
        app = App(laurels, Hub(laurels), ServerSettings(), tracer=tracer)
        parent = (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        await ask(app, "GET", "/health/live", parent)
        await ask(app, "GET", "/v1/games/g/boards")
    one, other = finished()
    assert one.name == "GET /health/live"
    assert f"{one.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{one.parent.span_id:016x}" == "b7ad6b7169203331"
    assert one.attributes["http.response.status_code"] == 200
    assert other.attributes["http.route"] == "/v1/games/{game}/boards"
    assert other.attributes["http.response.status_code"] == 401
