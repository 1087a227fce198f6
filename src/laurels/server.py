"""The server process: a store, the HTTP application, live updates, and an orderly end."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from laurels.config import Config, ServerSettings
from laurels.errors import StoreUnavailable
from laurels.http.app import App
from laurels.http.tracing import tracer
from laurels.live import Hub
from laurels.service import Laurels

logger = logging.getLogger("laurels.server")

DRAIN_S = 10.0
DRAIN_STEP_S = 0.02
YOUNG_MAX = 10_000  # objects until the garbage collector looks


class JsonLines(logging.Formatter):
    """One JSON object a line, with the request's id where there is one."""

    _fields = ("request_id", "route", "status", "ms", "client")

    def format(self, record: logging.LogRecord) -> str:
        """A record as JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: record.__dict__[name] for name in self._fields if name in record.__dict__}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Structured logs where they are collected, plain lines on a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    root = logging.getLogger("laurels")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


async def serve(
    url: str,
    config: Config,
    *,
    ready: "Callable[[Laurels, str], Awaitable[None]] | None" = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve a store until a signal comes (or `stop` is set). `ready` is called once with the address to ask.

    An orderly end: no new requests, those under way are answered, live subscribers are told, what is behind is written.
    """
    from granian.constants import Interfaces
    from granian.server.embed import Server

    settings = config.server
    stop = stop or asyncio.Event()
    _on_signals(stop)
    _check_address(settings)
    async with Laurels.open(url, config=config) as laurels:
        hub = Hub(laurels, settings.live)
        await hub.start()
        app = App(laurels, hub, settings, tracer=tracer())
        server = Server(
            app,
            address=settings.host,
            port=settings.port,
            interface=Interfaces.ASGINL,
            backlog=1_024,
            backpressure=settings.requests_in_flight_max,
            log_enabled=False,
            ssl_cert=_path(settings.tls_certificate),
            ssl_key=_path(settings.tls_key),
        )
        serving = asyncio.create_task(server.serve())
        try:
            await _until_listening(settings, serving)
            if ready is not None:
                await ready(laurels, address(settings))
            _spare_collector()
            logger.info("serving %s on %s", url, address(settings))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([stopping, serving], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if serving.done():
                serving.result()
        finally:
            await _drain(app, hub, server, serving)
        answered = app.metrics.answered()
    logger.info("stopped: %d requests were answered, and all that was acknowledged is durable and written", answered)


def _spare_collector() -> None:
    """What is there once the server listens stays: have the garbage collector look at requests only, and less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 20)


async def _drain(app: App, hub: Hub, server: Any, serving: "asyncio.Task[None]") -> None:
    logger.info("stopping: %d requests are under way", app.in_flight)
    app.stop()
    await hub.stop()
    for _ in range(int(DRAIN_S / DRAIN_STEP_S)):
        if not app.in_flight:
            break
        await asyncio.sleep(DRAIN_STEP_S)
    if app.in_flight:
        logger.warning("%d requests did not end in %.0f s", app.in_flight, DRAIN_S)
    server.stop()
    with suppress(asyncio.CancelledError, Exception):
        await asyncio.wait_for(serving, DRAIN_S)


def free_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """A port that nobody listens on: the one that is wanted, if it can be had, or any."""
    for port in (wanted, 0):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((host, port))
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise StoreUnavailable(f"{host} has no free port")


def address(settings: ServerSettings) -> str:
    """Where the server is, as a browser wants it."""
    scheme = "https" if settings.tls_certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{settings.port}"


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _check_address(settings: ServerSettings) -> None:
    """Nobody listens there yet. Raises StoreUnavailable, before the store is opened and a first key is made."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        raise StoreUnavailable(f"{settings.host}:{settings.port} can't be listened on: {error.strerror}") from error


async def _until_listening(settings: ServerSettings, serving: "asyncio.Task[None]") -> None:
    """Until connections are taken. Raises StoreUnavailable if the address can't be had."""
    for _ in range(500):
        if serving.done():
            error = serving.exception()
            raise StoreUnavailable(f"{settings.host}:{settings.port} can't be listened on: {error}")
        try:
            _, writer = await asyncio.open_connection(settings.host, settings.port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return
    raise StoreUnavailable(f"{settings.host}:{settings.port} can't be listened on")


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread
            loop.add_signal_handler(number, stop.set)


def run(url: str, config: Config, ready: "Callable[[Laurels, str], Awaitable[None]] | None" = None) -> None:
    """Serve until a signal comes, on the fastest loop there is."""
    try:
        import uvloop as loops
    except ImportError:
        asyncio.run(serve(url, config, ready=ready))
    else:
        loops.run(serve(url, config, ready=ready))
    # granian's threads outlive its server, and the interpreter's own end would trip over them. All is closed by now.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
