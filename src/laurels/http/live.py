"""Live updates over WebSocket and Server-Sent Events: the same topics, the same messages."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from laurels.errors import InvalidInput, LaurelsError, LimitExceeded, Unauthenticated
from laurels.http.request import Receive, Request, Send, invalid
from laurels.http.routing import EVENTS, Headers, Response, Route
from laurels.http.wire import EventsQuery
from laurels.live import Connection, Subscription, Topic, id_prefix

logger = logging.getLogger("laurels.http")

FRAME_BYTES_MAX = 16_384
ID_MAX = 128


class Subscribe(Struct, tag_field="op", tag="subscribe", forbid_unknown_fields=True, kw_only=True):
    """Follow a topic under an id of the client's. `resume` is that of the last message that was received."""

    id: str
    topic: Topic
    resume: str | None = None


class Unsubscribe(Struct, tag_field="op", tag="unsubscribe", forbid_unknown_fields=True, kw_only=True):
    """Stop following."""

    id: str


class Ping(Struct, tag_field="op", tag="ping", forbid_unknown_fields=True, kw_only=True):
    """Is anybody there?"""


_frames: msgspec.json.Decoder[Subscribe | Unsubscribe | Ping] = msgspec.json.Decoder(Subscribe | Unsubscribe | Ping)
_encode = msgspec.json.Encoder().encode


class Socket:
    """One WebSocket and what it follows. What it receives is answered in turn; one task sends what is new, as fast as
    the reader reads."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._hub = request.app.hub
        self._send = send
        self._connection = Connection()
        self._followed: dict[str, tuple[Subscription, bytes]] = {}  # with how its messages begin

    async def received(self, text: str | bytes) -> None:
        """A frame from the client. Mistakes are answered; the connection stays."""
        id = None
        try:
            if len(text) > FRAME_BYTES_MAX:
                raise LimitExceeded("frame", len(text), f"has at most {FRAME_BYTES_MAX} bytes")
            frame = _decoded(text)
            if isinstance(frame, Ping):
                await self.send(b'{"type":"pong"}')
                return
            id = frame.id
            if isinstance(frame, Subscribe):
                await self._subscribe(frame)
            else:
                self._unsubscribe(id)
        except LaurelsError as error:
            await self.send(_error(id, error))

    async def _subscribe(self, frame: Subscribe) -> None:
        if frame.id in self._followed:
            raise InvalidInput("id", frame.id, "is in use on this connection")
        if not 1 <= len(frame.id) <= ID_MAX:
            raise LimitExceeded("id", frame.id, f"has 1 to {ID_MAX} characters")
        subscription = await subscribe(self._request, frame.topic, frame.resume, self._connection)
        self._followed[frame.id] = (subscription, id_prefix(frame.id))
        self._connection.wake()

    def _unsubscribe(self, id: str) -> None:
        if id not in self._followed:
            raise InvalidInput("id", id, "follows nothing on this connection")
        self._followed.pop(id)[0].close()

    async def tell(self) -> None:
        """Send what is new, for ever."""
        while True:
            await self._connection.wait()
            for id, (subscription, prefix) in list(self._followed.items()):
                while (message := subscription.take()) is not None:
                    await self.send(message.with_id(prefix))
                if subscription.ended:
                    self._followed.pop(id, None)

    async def beat(self) -> None:
        """Heartbeats, until the server stops, or whoever's key or token it is may no longer ask."""
        app = self._request.app
        code, reason = 1001, "the server stops; connect again"
        while not await app.stopped_within(app.settings.heartbeat_s):
            try:
                app.authenticate(self._request)
            except Unauthenticated as error:
                code, reason = 4401, str(error)
                break
            await self.send(self._hub.heartbeat())
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def send(self, message: bytes) -> None:
        """A text frame."""
        await self._send({"type": "websocket.send", "text": message.decode()})

    def close(self) -> None:
        """Follow nothing any more."""
        self._followed.clear()
        self._connection.close()


def _decoded(text: str | bytes) -> Subscribe | Unsubscribe | Ping:
    try:
        return _frames.decode(text)
    except msgspec.ValidationError as error:
        raise invalid(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput("frame", None, f"is malformed: {error}") from error


def _error(id: str | None, error: LaurelsError) -> bytes:
    told: dict[str, Any] = {"type": "error", "code": error.code, "detail": str(error)}
    told |= {name: getattr(error, name) for name in ("field", "rule") if hasattr(error, name)}
    return _encode(told if id is None else {"id": id, **told})


async def subscribe(
    request: Request, topic: Topic, resume: str | None, connection: Connection | None = None
) -> Subscription:
    """Follow a topic, if whoever asks may."""
    if topic.kind == "submissions":
        request.check_may_read(topic.player_id or "")
    return await request.app.hub.subscribe(request.names[0], topic, resume, connection)


async def serve_websocket(request: Request, receive: Receive, send: Send) -> None:
    """A WebSocket from its handshake to its end."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    socket = Socket(request, send)

    async def receiving() -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            await socket.received(message.get("bytes") or b"" if text is None else text)

    try:
        await _until_first([receiving, socket.tell, socket.beat])
    finally:
        socket.close()


async def _until_first(works: "list[Callable[[], Coroutine[Any, Any, None]]]") -> None:
    """Run works until one of them ends, however it does: the other side has left, or is not wanted any more."""
    tasks = [asyncio.create_task(work()) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, ConnectionError | RuntimeError | Unauthenticated):
                logger.error("a live connection failed", exc_info=ended)


# --- Server-Sent Events ---------------------------------------------------------------------------------------


async def follow(request: Request, query: EventsQuery) -> Response:
    """Follow one topic as Server-Sent Events, or several over a WebSocket at the same address.

    The events are `snapshot`, `change`, `error`, `heartbeat`; their data are the messages of the WebSocket. `id` is
    what Last-Event-ID resumes from, which browsers do by themselves.
    """
    topic = Topic(
        kind=query.kind,
        board=query.board,
        where=dict(request.game.partition_from_texts(request.where)),
        at=query.at,
        player_id=query.player_id,
        limit=query.limit,
        names=query.names,
    )
    resume = request.header(b"last-event-id") or query.resume
    return Response(content=await subscribe(request, topic, resume), media_type=EVENTS)


async def serve_events(
    request: Request, subscription: Subscription, receive: Receive, send: Send, headers: Headers
) -> None:
    """A stream of events until either side ends it."""
    app = request.app
    headers += [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def part(body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})

    async def telling() -> None:
        async for message in subscription:
            resume = b"id: %s\n" % message.resume.encode() if message.resume else b""
            await part(b"event: %s\n%sdata: %s\n\n" % (message.type.encode(), resume, message.body))

    async def beating() -> None:
        while not await app.stopped_within(app.settings.heartbeat_s):
            app.authenticate(request)
            await part(b"event: heartbeat\ndata: %s\n\n" % app.hub.heartbeat())

    async def leaving() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    try:
        await _until_first([telling, beating, leaving])
    finally:
        subscription.close()
        with suppress(ConnectionError, RuntimeError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


ROUTES = [
    Route(
        method="GET",
        path="/v1/games/{game}/live",
        handler=follow,
        summary="Follow changes",
        tag="live",
        role="read",
        players=True,
        query=EventsQuery,
        where=True,
        answer=None,
    ),
]
