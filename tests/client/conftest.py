"""A server process of its own for each test, and a proxy in front of it that breaks things on purpose."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from laurels.server import free_port

CONFIG = """
[games.demo.boards.best]
submit = "players"
where = { song = { exists = false } }
[games.demo.boards.songs]
partition = ["song"]
scale = 2
[games.other.boards.best]
[server]
port = PORT
heartbeat_s = 0.2
[server.live]
tick_s = 0.02

"""
READY_S = 60.0


class Server:
    """`laurels serve` on a store, which outlives it."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = ""
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        (folder / "laurels.toml").write_text(config.replace("PORT", str(self.port)))

    def start(self) -> None:
        store, config = f"sqlite:///{self._folder}/scores.db", str(self._folder / "laurels.toml")
        command = [sys.executable, "-c", "from laurels.cli import main; main()", "serve"]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--store", store, "--config", config, "--log-level", "warning"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = re.search(r"lk_\S+", line)
            if found is not None:
                self.key = found.group()
            if self.key and (found is not None or "reference:" in line):
                return
        raise AssertionError((self._folder / "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=READY_S)
            assert self._process.returncode == 0
            self._process = None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a file that do not stop it."""
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with a fresh store, that a test may stop and start."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


class Proxy:
    """TCP between a client and a server, that a test can make faulty.

    refuse          close connections as soon as they are made
    swallow         deliver so many requests, and close the connection instead of handing back the answer
    pause           hand nothing back any more, and keep connections open
    """

    def __init__(self, to_port: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.refuse = False
        self.swallow = 0
        self.pause = False
        self.connections = 0
        self._to_port = to_port
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listening: asyncio.Server | None = None

    def start(self) -> None:
        self._thread.start()
        self._call(self._listen())

    def stop(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Close all connections there are."""
        self._call(self._cut())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(READY_S)

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _end(self) -> None:
        assert self._listening is not None
        self._listening.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refuse:
            writer.transport.abort()
            return
        try:
            behind_reader, behind = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, behind}
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._pump(reader, behind), self._answers(behind_reader, writer))
        for one in (writer, behind):
            self._open.discard(one)
            one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        raise ConnectionError

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self.swallow:
                self.swallow -= 1
                raise ConnectionError
            if not self.pause:
                writer.write(data)
                await writer.drain()
        raise ConnectionError


@pytest.fixture
def new_proxy() -> Iterator[Callable[[int], Proxy]]:
    proxies: list[Proxy] = []

    def make(port: int) -> Proxy:
        proxy = Proxy(port)
        proxy.start()
        proxies.append(proxy)
        return proxy

    yield make
    for proxy in proxies:
        proxy.stop()
