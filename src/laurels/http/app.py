"""The application: from a request to its answer, one way through.

    route -> who asks -> may they -> how often -> query and body -> handler -> document -> headers

It is plain ASGI 3, so any server of that kind runs it; `laurels.server` runs it on granian.
"""

import asyncio
import gzip
import logging
import re
import secrets
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec
import zstandard

from laurels.auth import Principal, require
from laurels.config import ServerSettings
from laurels.errors import InvalidInput, LaurelsError, Unauthenticated
from laurels.http import errors
from laurels.http.errors import InternalError, MethodNotAllowed
from laurels.http.live import serve_events, serve_websocket
from laurels.http.metrics import Metrics
from laurels.http.request import Receive, Request, Scope, Send, decoded, parsed_query, read_body
from laurels.http.routes import ROUTES
from laurels.http.routing import EVENTS, Headers, Response, Route, Router
from laurels.http.tracing import Tracer
from laurels.limits import Limiter
from laurels.live import Hub
from laurels.service import Laurels

logger = logging.getLogger("laurels.http")

COMPRESSED_FROM_BYTES = 1_024
REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")

_json = msgspec.json.Encoder(decimal_format="number", order="deterministic")
_msgpack = msgspec.msgpack.Encoder(decimal_format="string", order="deterministic")


class App:
    """Serves one `Laurels`, which is open as long as the application runs."""

    def __init__(self, laurels: Laurels, hub: Hub, settings: ServerSettings, *, tracer: Tracer | None = None) -> None:
        self.laurels = laurels
        self.hub = hub
        self.settings = settings
        self.router = Router(ROUTES)
        self.metrics = Metrics(laurels, hub, self.router.routes)
        self.limiter = Limiter(settings.rate_limits)
        self.epoch = secrets.token_hex(4).encode()  # etags of another process are of other states
        self.in_flight = 0
        self._stopping = asyncio.Event()
        self._tracer = tracer
        self._requests = 0
        self._kept: set[asyncio.Future[Any]] = set()

    @property
    def is_stopping(self) -> bool:
        """Whether no new requests are wanted."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Have streams end, and be not ready from now on."""
        self._stopping.set()

    async def stopped_within(self, seconds: float) -> bool:
        """Wait so long; whether the server stops meanwhile."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    def keep(self, work: "asyncio.Future[Any]") -> None:
        """Have work go on after its request has been answered."""
        self._kept.add(work)
        work.add_done_callback(self._done)

    def _done(self, work: "asyncio.Future[Any]") -> None:
        self._kept.discard(work)
        if not work.cancelled() and work.exception() is not None:
            logger.warning("work beside requests failed: %s", work.exception())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            self.in_flight += 1
            try:
                await self._http(scope, receive, send)
            finally:
                self.in_flight -= 1
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request = self._request(scope)
        span = None if self._tracer is None else self._tracer.start(request)
        try:
            response = await self._response(request, receive)
            status, headers, body = self._document(request, response)
        except LaurelsError as error:
            status, headers, body = self._problem(request, error)
        except Exception:
            logger.exception("a request failed", extra={"request_id": request.request_id})
            status, headers, body = self._problem(request, InternalError())
        self._finish_headers(request, headers)
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        else:
            await serve_events(request, body, receive, send, headers)
        seconds = time.perf_counter() - started
        self.metrics.observe(request.route, status, seconds)
        if span is not None and self._tracer is not None:
            self._tracer.end(span, request.route, status)
        if self.settings.access_log:
            self._log(request, status, seconds)

    def _request(self, scope: Scope) -> Request:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        if given is not None and REQUEST_ID.fullmatch(given):
            request_id = given.decode()
        else:
            self._requests += 1
            request_id = f"{self.epoch.decode()}-{self._requests:x}"
        return Request(scope, headers, request_id, self)

    # --- the way through --------------------------------------------------------------------------------------

    async def _response(self, request: Request, receive: Receive) -> Any:
        scope = request.scope
        if scope["method"] == "OPTIONS":
            return self._preflight(request)
        request.route, request.names = route, _ = self.router.find(scope["method"], scope["raw_path"])
        self.admit(request)
        arguments = self._parsed(request, route)
        if route.body is None:
            return await route.handler(request, *arguments)
        body = await read_body(request, receive, route.body_bytes_max)
        if b"laurels-signature" in request.headers:
            self._check_signature(request, body)
        return await route.handler(request, *arguments, decoded(request, body, route))

    def admit(self, request: Request) -> None:
        """Who asks, may they, and not too often. Raises Unauthenticated, Forbidden, RateLimited."""
        route = request.route
        assert route is not None
        if route.role is None:
            return
        now_us = time.time_ns() // 1_000
        principal = self.authenticate(request, now_us)
        game = request.names[0] if request.names else principal.game
        if principal.kind == "player":
            require(principal, "player" if route.players else route.role, game)
            quota = self.limiter.take_of_player(principal.game or "", principal.player_id or "", now_us)
        else:
            require(principal, route.role, game)
            quota = self.limiter.take_of_key(principal.key_id, now_us)
        if quota is not None:
            request.quota = quota
            quota.check()

    def authenticate(self, request: Request, now_us: int | None = None) -> Principal:
        """Who asks, at an instant (now, if not given). Raises Unauthenticated."""
        authorization = request.headers.get(b"authorization")
        if authorization is None:
            text = _access_token(request)
        elif authorization[:7].lower() == b"bearer ":
            text = authorization[7:].decode("latin-1")
        else:
            raise Unauthenticated("the Authorization header must be: Bearer <key or token>")
        now_us = time.time_ns() // 1_000 if now_us is None else now_us
        principal = request.principal = self.laurels.keyring.authenticate(text, now_us)
        return principal

    def _parsed(self, request: Request, route: Route) -> tuple[Any, ...]:
        query, where = parsed_query(request.scope["query_string"], route.query)
        if where and not route.where:
            name, value = next(iter(where.items()))
            raise InvalidInput(f"where.{name}", value, "is not a parameter here")
        request.where = where
        return (query,) if route.takes_query else ()

    def _check_signature(self, request: Request, body: bytes) -> None:
        scope = request.scope
        header = request.header(b"laurels-signature") or ""
        keyring, path = self.laurels.keyring, scope["raw_path"].decode("latin-1")
        keyring.check_signature(header, scope["method"], path, body, request.names[0], time.time_ns() // 1_000)

    def _preflight(self, request: Request) -> Response:
        """What a browser asks before it lets a page of elsewhere ask."""
        methods = self.router.methods(request.scope["raw_path"])
        origin = request.headers.get(b"origin")
        if origin is None or b"access-control-request-method" not in request.headers:
            raise MethodNotAllowed("OPTIONS", methods)
        headers: Headers = []
        if self._allows(origin):
            allowed = b"authorization, content-type, idempotency-key, laurels-signature, x-request-id, last-event-id"
            headers = [
                (b"access-control-allow-methods", ", ".join(methods).encode()),
                (b"access-control-allow-headers", allowed),
                (b"access-control-max-age", b"3600"),
            ]
        return Response(status=204, headers=headers)

    def _allows(self, origin: bytes) -> bool:
        allowed = self.settings.cors_origins
        return "*" in allowed or origin.decode("latin-1") in allowed

    # --- the answer -------------------------------------------------------------------------------------------

    def _document(self, request: Request, response: Any) -> tuple[int, Headers, Any]:
        """The status, the headers, and the body as bytes; of a stream of events what it follows."""
        status, headers, media_type, content = 200, [], None, response
        if request.route is not None:
            status = request.route.status
        if isinstance(response, Response):
            status = response.status or status
            headers, content, media_type = response.headers, response.content, response.media_type
        if content is None or status in (204, 304):
            return status, headers, b""
        if media_type is not None:
            headers.append((b"content-type", media_type.encode()))
            body = content
        elif b"msgpack" in request.headers.get(b"accept", b""):
            headers.append((b"content-type", b"application/msgpack"))
            body = _msgpack.encode(content)
        else:
            headers.append((b"content-type", b"application/json"))
            body = _json.encode(content)
        if media_type != EVENTS and len(body) >= COMPRESSED_FROM_BYTES and b"accept-encoding" in request.headers:
            body = _compressed(request, headers, body)
        return status, headers, body

    def _problem(self, request: Request, error: LaurelsError) -> tuple[int, Headers, bytes]:
        told = errors.problem(error, request.request_id)
        if told.status == 500 and not isinstance(error, InternalError):
            logger.error("a request failed", exc_info=error, extra={"request_id": request.request_id})
        headers = [(b"content-type", b"application/problem+json"), *errors.headers(error, told)]
        return told.status, headers, _json.encode(told)

    def _finish_headers(self, request: Request, headers: Headers) -> None:
        headers.append((b"x-request-id", request.request_id.encode()))
        if request.quota is not None:
            headers += [(name.lower().encode(), text.encode()) for name, text in request.quota.headers().items()]
        origin = request.headers.get(b"origin")
        if origin is not None and self._allows(origin):
            exposed = b"etag, ratelimit, ratelimit-policy, retry-after, x-request-id"
            headers += [
                (b"access-control-allow-origin", b"*" if "*" in self.settings.cors_origins else origin),
                (b"access-control-expose-headers", exposed),
                (b"vary", b"Origin"),
            ]

    def _log(self, request: Request, status: int, seconds: float) -> None:
        """Paths without queries, which may hold tokens."""
        scope, route = request.scope, request.route
        logger.info(
            "%s %s %d",
            scope["method"],
            scope["raw_path"].decode("latin-1"),
            status,
            extra={
                "request_id": request.request_id,
                "route": None if route is None else route.path,
                "status": status,
                "ms": round(seconds * 1e3, 3),
                "client": (scope.get("client") or ("",))[0],
            },
        )

    # --- WebSocket --------------------------------------------------------------------------------------------

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request(scope)
        try:
            request.route, request.names = self.router.find("GET", scope["raw_path"])
            if request.route.tag != "live":
                raise MethodNotAllowed("a WebSocket", self.router.methods(scope["raw_path"]))
            self.admit(request)
            _ = request.game
        except LaurelsError as error:
            await _refuse(scope, send, *self._problem(request, error))
            return
        await serve_websocket(request, receive, send)


def _access_token(request: Request) -> str:
    """What a browser gives in the query where it can't set headers; for live updates only."""
    if request.route is not None and request.route.tag == "live":
        for pair in request.scope["query_string"].split(b"&"):
            if pair.startswith(b"access_token="):
                return unquote(pair[13:].decode("latin-1"))
    raise Unauthenticated("send a key or a token: Authorization: Bearer <key or token>")


@lru_cache(maxsize=256)
def _accepted(header: bytes) -> frozenset[bytes]:
    """The encodings that a header accepts: those with q=0 it declines."""
    found = set()
    for one in header.lower().split(b","):
        name, _, weight = one.replace(b" ", b"").partition(b";q=")
        if weight.strip(b"0.") or not weight:
            found.add(name)
    return frozenset(found)


def _compressed(request: Request, headers: Headers, body: bytes) -> bytes:
    """The body as the client likes it best: zstd, gzip, or as it is."""
    accepted = _accepted(request.headers[b"accept-encoding"])
    if b"zstd" in accepted:
        encoding, body = b"zstd", zstandard.ZstdCompressor(level=3).compress(body)
    elif b"gzip" in accepted:
        encoding, body = b"gzip", gzip.compress(body, compresslevel=4, mtime=0)
    else:
        return body
    headers += [(b"content-encoding", encoding), (b"vary", b"Accept-Encoding")]
    return body


async def _refuse(scope: Scope, send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Answer a handshake with an error as any request would be, where the server can."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": 4_000 + status, "reason": ""})
