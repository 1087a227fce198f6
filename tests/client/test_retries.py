"""What goes wrong on the way is mended by asking again, where that is safe, and never counts twice."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import msgspec
import pytest

from laurels import LaurelsError
from laurels.client import AsyncClient, Client, Retry, UnexpectedAnswer, Unreachable
from laurels.client.calls import Call, as_it_is
from laurels.client.tries import Tries
from laurels.errors import InvalidInput, NotFound, NotReady, RateLimited
from laurels.http.wire import Problem

QUICK = Retry(tries=8, total_s=60.0, first_s=0.02, most_s=0.2)


@pytest.fixture
def proxy(shared: Any, new_proxy: Callable[[int], Any]) -> Any:
    return new_proxy(shared.port)


@pytest.fixture
def client(shared: Any, proxy: Any) -> Iterator[Client]:
    with Client(proxy.url, shared.key, game="demo", retry=QUICK) as client:
        yield client


def test_a_submission_whose_answer_was_lost_counts_once(client: Client, proxy: Any) -> None:
    proxy.swallow = 2
    answer = client.submit("lost", 10)
    assert proxy.swallow == 0
    assert proxy.connections == 3
    (submission,) = client.history("lost").items
    assert submission.submission_id == answer.submission_id
    (change,) = [change for change in answer.changes if change.instance.board == "best"]
    assert (change.counted, change.old_rank) == (True, None), "the first answer comes back, not that of a repeat"


def test_a_batch_whose_answer_was_lost_counts_once(client: Client, proxy: Any) -> None:
    proxy.swallow = 1
    accepted = client.submit_many(["lots"] * 3, [1, 2, 3])
    assert sorted(one.submission_id for one in client.history("lots")) == sorted(accepted.submission_ids)


async def test_async_submissions_whose_answers_were_lost_count_once(shared: Any, proxy: Any) -> None:
    async with AsyncClient(proxy.url, shared.key, game="demo", retry=QUICK) as client:
        proxy.swallow = 5
        answers = await asyncio.gather(*(client.submit(f"many{n}", n) for n in range(10)))
        assert proxy.swallow == 0
        assert [answer.score for answer in answers] == list(range(10))
        for n in range(10):
            assert len(await client.history(f"many{n}")) == 1


def test_a_server_that_refuses_for_a_while_is_waited_for(proxy: Any, shared: Any) -> None:
    proxy.refuse = True
    timer = threading.Timer(1.0, lambda: setattr(proxy, "refuse", False))
    timer.start()
    retry = Retry(tries=1_000, first_s=0.05, most_s=0.1)
    with Client(proxy.url, shared.key, game="demo", retry=retry) as patient:
        assert patient.submit("patient", 1).score == 1
    timer.join()
    assert proxy.connections > 2


def test_a_server_that_never_answers_is_given_up(proxy: Any, shared: Any) -> None:
    proxy.pause = True
    with (
        Client(proxy.url, shared.key, game="demo", timeout_s=0.05, retry=Retry(tries=3, first_s=0.01)) as hasty,
        pytest.raises(Unreachable, match="tried 3 times"),
    ):
        hasty.top("best")
    assert proxy.connections == 3


def test_what_is_not_safe_is_sent_once(client: Client, proxy: Any) -> None:
    before = len(client.keys())
    proxy.swallow = 1
    with pytest.raises(Unreachable, match="tried once"):
        client.create_key("read")
    assert len(client.keys()) == before + 1


def test_a_deletion_whose_answer_was_lost_is_done(client: Client, proxy: Any) -> None:
    client.submit("gone", 1)
    proxy.swallow = 1
    client.remove("best", "gone")
    with pytest.raises(NotFound):
        client.entry("best", "gone")
    with pytest.raises(NotFound):
        client.remove("best", "gone")


def test_nobody_there() -> None:
    retry = Retry(tries=2, first_s=0.01)
    with Client("http://127.0.0.1:9", "lk_x", game="demo", retry=retry) as client, pytest.raises(Unreachable) as caught:
        client.top("best")
    assert caught.value.code == "unreachable"
    assert isinstance(caught.value, LaurelsError)


async def test_a_player_that_asks_too_often_is_slowed_down(shared: Any) -> None:
    async with AsyncClient(shared.url, shared.key, game="demo") as client:
        token = await client.player_token("eager")
    retry = Retry(tries=1_000, total_s=100.0)
    async with AsyncClient(shared.url, token.token, game="demo", retry=retry) as player:
        answers = await asyncio.gather(*(player.submit("eager", n) for n in range(60)))
    assert len({answer.submission_id for answer in answers}) == 60
    async with AsyncClient(shared.url, token.token, game="demo", retry=Retry(tries=1)) as hasty:
        with pytest.raises(RateLimited) as caught:
            await asyncio.gather(*(hasty.top("best") for _ in range(60)))
    assert caught.value.retry_after_s > 0


# --- answers that are made up ---------------------------------------------------------------------------------


class Script(ThreadingHTTPServer):
    """Answers requests with what it is told, in turn, and writes down what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, bytes, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Script

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append((f"{self.command} {self.path}", body, {k.lower(): v for k, v in self.headers.items()}))
        status, headers, content = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def script() -> Iterator[Script]:
    with Script() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


EMPTY = (200, {}, b'{"items": []}')


def problem(status: int, code: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    told = Problem(type=f"urn:{code}", title="t", status=status, detail="d", code=code, request_id="r-1", **more)
    return status, {"content-type": "application/problem+json"}, msgspec.json.encode(told)


@pytest.mark.parametrize(
    "trouble",
    [
        (502, {}, b"<html>"),
        (503, {}, b""),
        (504, {}, b""),
        (429, {"retry-after": "0"}, b""),
        problem(429, "rate_limited", retry_after_s=0.01),
        problem(503, "not_ready", retry_after_s=0.01),
        problem(503, "store_unavailable"),
    ],
    ids=lambda trouble: f"{trouble[0]}-{len(trouble[2])}",
)
def test_what_passes_is_tried_again(script: Script, trouble: tuple[int, dict[str, str], bytes]) -> None:
    script.answers = [trouble, trouble, EMPTY]
    with Client(script.url, "lk_x", game="a b", retry=QUICK) as client:
        assert client.boards() == []
    assert [asked[0] for asked in script.asked] == ["GET /v1/games/a%20b/boards"] * 3
    headers = script.asked[0][2]
    assert headers["authorization"] == "Bearer lk_x"
    assert headers["user-agent"].startswith("laurels-python")


def test_repeats_have_the_same_submission_id(script: Script) -> None:
    script.answers = [(503, {}, b""), (502, {}, b""), problem(400, "out_of_range", field="score", rule="r")]
    with Client(script.url, "lk_x", game="demo", retry=QUICK) as client, pytest.raises(InvalidInput):
        client.submit("ada", 1)
    ids = {msgspec.json.decode(body)["submission_id"] for _, body, _ in script.asked}
    assert len(script.asked) == 3
    assert len(ids) == 1


def test_a_rate_limit_is_no_reason_to_hurry(script: Script) -> None:
    script.answers = [problem(429, "rate_limited", retry_after_s=3_600.0)]
    with Client(script.url, "lk_x", game="demo", retry=QUICK) as client, pytest.raises(RateLimited) as caught:
        client.create_key("read")
    assert caught.value.retry_after_s == 3_600.0
    script.answers = [problem(429, "rate_limited", retry_after_s=0.01), problem(503, "not_ready", retry_after_s=9.0)]
    with Client(script.url, "lk_x", game="demo", retry=QUICK) as client, pytest.raises(NotReady) as not_ready:
        client.create_key("read")
    assert not_ready.value.retry_after_s == 9.0


@pytest.mark.parametrize(("status", "body"), [(500, b"oops"), (200, b"<html>"), (200, b'{"items": 1}'), (302, b"")])
def test_answers_of_others_are_told_apart(script: Script, status: int, body: bytes) -> None:
    script.answers = [(status, {}, body)]
    with Client(script.url, "lk_x", game="demo", retry=QUICK) as client, pytest.raises(UnexpectedAnswer):
        client.boards()


def test_a_code_of_a_later_version_is_an_error_all_the_same(script: Script) -> None:
    script.answers = [problem(418, "teapot", field="pot", rule="is tea")]
    with Client(script.url, "lk_x", game="demo") as client, pytest.raises(LaurelsError) as caught:
        client.boards()
    assert type(caught.value) is LaurelsError
    assert (caught.value.code, str(caught.value), vars(caught.value)["field"]) == ("teapot", "d", "pot")


def test_tries_are_bounded_by_number_and_by_time() -> None:
    call = Call(method="GET", target="/", shape=as_it_is)
    few = Tries(call, Retry(tries=3), 1.0)
    few.failed(httpx.ReadTimeout(""))
    few.failed(httpx.ReadTimeout(""))
    with pytest.raises(Unreachable):
        few.failed(httpx.ReadTimeout(""))
    with pytest.raises(Unreachable):
        Tries(call, Retry(total_s=0.01), 1.0).failed(httpx.ReadTimeout(""))
    assert Tries(call, Retry(total_s=0.5), 10.0).timeout_s() <= 0.5


def test_waits_grow_to_their_limit() -> None:
    retry = Retry(first_s=1.0, most_s=10.0)
    for number, most in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (10_000, 10.0)]:
        assert most / 2 <= retry.wait_s(number) <= most
