"""Following topics over one WebSocket that is connected again whenever it breaks, and goes on where it was."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import websockets
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect

from laurels.client.calls import segment
from laurels.client.problems import UnexpectedAnswer, Unreachable, error_of, error_of_topic, problem_in
from laurels.client.topics import Hole, ListTopic, PlayTopic, RankTopic, Told, Topic
from laurels.client.tries import BUSY, Retry
from laurels.client.verbs import Where
from laurels.errors import LaurelsError, NotReady, StoreError

logger = logging.getLogger("laurels.client")

MESSAGE_BYTES_MAX = 16 << 20
CLOSE_S = 1.0
T = TypeVar("T", bound=Topic[Any])

_told = msgspec.json.Decoder(Told)
_encode = msgspec.json.Encoder().encode


class Address(Struct, frozen=True, kw_only=True):
    """Where live updates come from, and who asks."""

    url: str
    path: tuple[str, ...]
    headers: Callable[[], dict[str, str]]
    user_agent: str

    @property
    def socket_url(self) -> str:
        """The address of the WebSocket."""
        return "ws" + self.url.removeprefix("http") + "/" + "/".join(map(segment, self.path))


class Live:
    """Topics followed together. Use `async with client.follow() as live`; it is entered when there is a connection.

    heartbeat_s      a connection that is silent for so long is asked whether anybody is there
    heartbeats_max   and after so many times as long it is dead
    retry            how patiently to connect: for the first time within `tries` and `total_s`, then for ever
    """

    def __init__(
        self,
        address: Address,
        *,
        heartbeat_s: float = 15.0,
        heartbeats_max: float = 2.5,
        open_timeout_s: float = 10.0,
        retry: Retry | None = None,
    ) -> None:
        self.connections = 0  # how often it was connected
        self._address = address
        self._heartbeat_s = heartbeat_s
        self._silence_s = heartbeat_s * heartbeats_max
        self._open_timeout_s = open_timeout_s
        self._retry = retry or Retry()
        self._topics: dict[Topic[Any], str] = {}  # with the id that each has on this connection
        self._by_id: dict[str, Topic[Any]] = {}
        self._numbers = 0
        self._failures: dict[Topic[Any], int] = {}
        self._frames: asyncio.Queue[bytes] | None = None
        self._first: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    # --- for readers ------------------------------------------------------------------------------------------

    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        names: bool = False,
    ) -> ListTopic:
        """Follow the first entries of a board instance; without `at`, from window to window."""
        return self._follow(ListTopic, kind="top", board=board, limit=limit, where=where, at=at, names=names)

    def around(
        self,
        board: str,
        player_id: str,
        limit: int = 11,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        names: bool = False,
    ) -> ListTopic:
        """Follow the entries around a player."""
        return self._follow(
            ListTopic,
            kind="around",
            board=board,
            player_id=player_id,
            limit=limit,
            where=where,
            at=at,
            names=names,
        )

    def rank(
        self,
        board: str,
        player_id: str,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        names: bool = False,
    ) -> RankTopic:
        """Follow a player's rank."""
        return self._follow(RankTopic, kind="rank", board=board, player_id=player_id, where=where, at=at, names=names)

    def submissions(self, player_id: str) -> PlayTopic:
        """Follow a player's submissions."""
        return self._follow(PlayTopic, kind="submissions", player_id=player_id)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._frames is not None

    async def __aenter__(self) -> Self:
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._guarded(self._first))
        try:
            await asyncio.shield(self._first)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Follow nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for topic in list(self._topics):
            topic.end()

    # --- topics -----------------------------------------------------------------------------------------------

    def _follow(self, make: Callable[[dict[str, Any], Callable[[Topic[Any]], None]], T], **spec: Any) -> T:
        topic = make({name: value for name, value in spec.items() if value is not None}, self._leave)
        if self._error is not None or self._task is None or self._task.done():
            raise self._error or Unreachable("there are no live updates: use async with client.follow() as live")
        self._topics[topic] = ""
        self._subscribe(topic)
        return topic

    def _leave(self, topic: Topic[Any]) -> None:
        id = self._topics.pop(topic, "")
        self._failures.pop(topic, None)
        if self._by_id.pop(id, None) is not None:
            self._send({"op": "unsubscribe", "id": id})
        topic.end()

    def _subscribe(self, topic: Topic[Any]) -> None:
        """Under an id that was never used, so that what was sent under the one before is told apart."""
        if topic not in self._topics or self._frames is None:
            return
        self._numbers += 1
        id = self._topics[topic] = str(self._numbers)
        self._by_id[id] = topic
        frame = {"op": "subscribe", "id": id, "topic": topic.spec}
        self._send(frame if topic.resume is None else frame | {"resume": topic.resume})

    def _send(self, frame: dict[str, Any]) -> None:
        if self._frames is not None:
            self._frames.put_nowait(_encode(frame))

    def _received(self, text: str | bytes) -> None:
        told = _told.decode(text)
        if told.type == "heartbeat":
            for topic in self._by_id.values():
                if topic.as_of is not None and told.as_of is not None:
                    topic.as_of = max(topic.as_of, told.as_of)
            return
        found = self._by_id.get(told.id or "")
        if found is None:
            return  # of a topic that was left, or a pong
        if told.type == "error":
            self._failed(found, told)
            return
        try:
            found.take(told)
        except Hole as hole:
            logger.warning("a live topic is fetched again: %s", hole)
            del self._by_id[self._topics[found]]
            self._send({"op": "unsubscribe", "id": told.id})
            self._subscribe(found)
        else:
            self._failures.pop(found, None)

    def _failed(self, topic: Topic[Any], told: Told) -> None:
        """The server ends a topic: for good, or for now."""
        del self._by_id[self._topics[topic]]
        error = error_of_topic(told.code, told.detail, told.field, told.rule)
        if isinstance(error, NotReady | StoreError) or error.code == "internal":
            number = self._failures[topic] = self._failures.get(topic, 0) + 1
            asyncio.get_running_loop().call_later(self._retry.wait_s(number), self._subscribe_again, topic)
        else:
            self._topics.pop(topic)
            topic.end(error)

    def _subscribe_again(self, topic: Topic[Any]) -> None:
        if self._topics.get(topic) not in self._by_id:
            self._subscribe(topic)

    # --- the connection ---------------------------------------------------------------------------------------

    async def _guarded(self, first: "asyncio.Future[None]") -> None:
        """Nobody waits in vain, whatever goes wrong here."""
        try:
            await self._run(first)
        except Exception as error:
            self._fail(first, error)

    async def _run(self, first: "asyncio.Future[None]") -> None:
        """Connect, again and again, until it is closed or not wanted."""
        number, ends = 0, time.monotonic() + self._retry.total_s
        while True:
            began = time.monotonic()
            error, told_s = await self._connection(first)
            if first.done() and isinstance(error, UnexpectedAnswer):
                error = None  # something in between, while the server is away
            was_steady = first.done() and time.monotonic() - began > self._retry.most_s
            number = 1 if was_steady else number + 1
            wait = max(self._retry.wait_s(number), told_s)
            if not first.done() and error is None and (number >= self._retry.tries or time.monotonic() + wait >= ends):
                error = Unreachable(f"{self._address.socket_url} can't be connected to")
            if error is not None:
                self._fail(first, error)
                return
            await asyncio.sleep(wait)

    def _fail(self, first: "asyncio.Future[None]", error: Exception) -> None:
        self._error = error
        if not first.done():
            first.set_exception(error)
        for topic in list(self._topics):
            topic.end(error)
        self._topics.clear()

    async def _connection(self, first: "asyncio.Future[None]") -> tuple[LaurelsError | None, float]:
        """One connection until it breaks. The error if there is no use in another, and how long to wait at least."""
        try:
            async with connect(
                self._address.socket_url,
                additional_headers=self._address.headers(),
                user_agent_header=self._address.user_agent,
                open_timeout=self._open_timeout_s,
                close_timeout=CLOSE_S,
                ping_interval=None,  # heartbeats tell
                max_size=MESSAGE_BYTES_MAX,
            ) as socket:
                await self._connected(socket, first)
        except websockets.InvalidStatus as refused:
            return _refusal(refused)
        except (OSError, TimeoutError, EOFError, websockets.WebSocketException, msgspec.MsgspecError) as broken:
            logger.info("a live connection broke: %s: %s", type(broken).__name__, broken)
        finally:
            self._frames = None
            self._by_id.clear()
        return None, 0.0

    async def _connected(self, socket: ClientConnection, first: "asyncio.Future[None]") -> None:
        self.connections += 1
        frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._frames = frames
        for topic in self._topics:
            self._subscribe(topic)
        if not first.done():
            first.set_result(None)

        async def sending() -> None:
            while True:
                await socket.send((await frames.get()).decode())

        async def receiving() -> None:
            heard = time.monotonic()
            while True:
                left = heard + self._silence_s - time.monotonic()
                try:
                    async with asyncio.timeout(min(left, self._heartbeat_s)):
                        text = await socket.recv()
                except TimeoutError:
                    if left <= self._heartbeat_s:
                        raise
                    self._send({"op": "ping"})
                else:
                    heard = time.monotonic()
                    self._received(text)

        try:
            await _until_first(sending(), receiving())
        except TimeoutError:
            socket.transport.abort()  # nobody would answer that it closes
            raise


async def _until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run works until one of them ends; raises what ended it."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _refusal(refused: websockets.InvalidStatus) -> tuple[LaurelsError | None, float]:
    """What a handshake was refused with."""
    response = refused.response
    status = response.status_code
    problem = problem_in(response.headers.get("content-type", ""), bytes(response.body or b""))
    if status == 429 or status in BUSY:
        told_s = None if problem is None else problem.retry_after_s
        return None, told_s or 0.0
    if problem is not None:
        return (error_of(problem) if status < 500 else None), 0.0
    return UnexpectedAnswer(f"the WebSocket was refused with status {status}"), 0.0
