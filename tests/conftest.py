"""What all tests share: which engine they run on, a clock that they set, and a running server."""

import itertools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from laurels.server import free_port
from laurels.windows import to_us

ENGINES = ("sqlite",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=ENGINES, default="sqlite", help="the engine that store tests run on")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--engine")


@pytest.fixture
def new_url(engine: str, tmp_path: Path) -> Callable[[], str]:
    """A function that gives the URL of a fresh, empty store."""
    numbers = itertools.count()
    return lambda: f"{engine}:///{tmp_path}/store-{next(numbers)}.db"


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 1, 12, tzinfo=UTC)

    def __call__(self) -> int:
        return to_us(self.now)

    def advance(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- a running server -----------------------------------------------------------------------------------------

ROLES = ("admin", "server", "read", "signer")
SERVE = "import sys; from laurels.cli import main; sys.argv[0] = 'laurels'; main()"
SERVER_CONFIG = """
[server]
access_log = true
cors_origins = ["https://play.example"]
heartbeat_s = 0.5
[server.rate_limits.per_player]
requests = 200
[server.live]
tick_s = 0.02
topics_per_connection_max = 4
"""


def segment(text: str) -> str:
    """A name as one segment of a path. Dots too, since clients resolve `..` by themselves."""
    return quote(text, safe="").replace(".", "%2E")


class Served:
    """One process of `laurels serve`, from outside: its address, its output, its keys."""

    def __init__(self, folder: Path, config: str = SERVER_CONFIG, **environment: str) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/laurels.db"
        self.config = folder / "laurels.toml"
        self.config.write_text(config, encoding="utf-8")
        self.environment = environment
        self.secrets: list[str] = []  # what must never be in the output
        self.operator = ""
        self.runs = 0
        self.process: subprocess.Popen[bytes]

    def start(self, *arguments: str, port: int | None = None, wait: bool = True) -> "Served":
        """Start it; again after `stop` or `kill`, on the same store."""
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.runs += 1
        self.out, self.err = self.folder / f"out-{self.runs}", self.folder / f"err-{self.runs}"
        command = [sys.executable, "-c", SERVE, "serve", "--store", self.store, "--config", str(self.config)]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), "--log-format", "json", *arguments],
                stdout=out,
                stderr=err,
                cwd=self.folder,
                env={**os.environ, **self.environment},
            )
        if wait:
            self._await_ready()
        return self

    def _await_ready(self) -> None:
        until = time.monotonic() + 30
        while "/docs" not in self.out.read_text() or (not self.operator and "once: " not in self.out.read_text()):
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < until, "the server did not become ready"
            time.sleep(0.02)
        if not self.operator:
            self.operator = self.out.read_text().split("once: ")[1].strip()
            self.secrets.append(self.operator)
        self.client = httpx.Client(base_url=self.url, timeout=20)

    def stop(self) -> int:
        """Ask it to end in order; its exit code."""
        self.process.terminate()
        return self.ended()

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    def ended(self) -> int:
        code = self.process.wait(30)
        if hasattr(self, "client"):
            self.client.close()
        return code

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("err-*")))

    def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {**more.pop("headers", {})}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return self.client.request(method, path, headers=headers, **more)

    def new_game(self, **definition: Any) -> "ServedGame":
        """A game of its own, with a key of each role."""
        return ServedGame(self, f"game-{uuid.uuid4().hex[:10]}", definition or {"boards": {"best": {}}})


class ServedGame:
    """A game on a running server, and a key of each role. Paths are below the game's."""

    def __init__(self, served: Served, name: str, definition: dict[str, Any]) -> None:
        self.served = served
        self.name = name
        self.path = f"/v1/games/{segment(name)}"
        self.keys: dict[str, str] = {"operator": served.operator}
        self.key_ids: dict[str, str] = {}
        made = self.ask("PUT", "", "operator", json=definition)
        assert made.status_code == 201, made.text
        for role in ROLES:
            self.new_key(role)

    def new_key(self, role: str, name: str = "", **more: Any) -> str:
        made = self.ask("POST", "/keys", "operator", json={"role": role, "name": name, **more})
        assert made.status_code == 201, made.text
        self.served.secrets.append(made.json()["key"])
        self.keys[name or role] = made.json()["key"]
        self.key_ids[name or role] = made.json()["key_id"]
        return self.keys[name or role]

    def token(self, player_id: str) -> str:
        made = self.ask("POST", "/tokens", "server", json={"player_id": player_id})
        assert made.status_code == 201, made.text
        token: str = made.json()["token"]
        self.served.secrets.append(token)
        self.keys[f"player {player_id}"] = token
        return token

    def ask(self, method: str, path: str, role: str | None = "admin", **more: Any) -> httpx.Response:
        return self.served.ask(method, self.path + path, None if role is None else self.keys.get(role, role), **more)

    def get(self, path: str, role: str = "read", **query: Any) -> Any:
        """The document at a path, which must be there."""
        answer = self.ask("GET", path, role, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def submit(self, player_id: str, score: Any, role: str = "server", **more: Any) -> Any:
        answer = self.ask("POST", "/submissions", role, json={"player_id": player_id, "score": score, **more})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def submit_many(self, player_ids: list[str], scores: list[Any], **more: Any) -> Any:
        body = {"player_ids": player_ids, "scores": scores, **more}
        answer = self.ask("POST", "/submissions/batch", "server", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for all tests that need nothing special of it. In the end nothing secret may be in its output."""
    one = Served(tmp_path_factory.mktemp("served")).start()
    yield one
    code = one.stop()
    log = one.log()
    assert code == 0, log
    assert not [secret for secret in one.secrets if secret[-43:] in log]
    assert "access_token" not in log
    assert not [line for line in log.splitlines() if '"level":"error"' in line]


@pytest.fixture
def new_served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """A function that makes servers of a test's own, which end with it."""
    made: list[Served] = []

    def new(config: str = SERVER_CONFIG, **environment: str) -> Served:
        folder = tmp_path / f"served-{len(made)}"
        folder.mkdir()
        made.append(Served(folder, config, **environment))
        return made[-1]

    yield new
    for one in made:
        if hasattr(one, "process") and one.process.poll() is None:
            one.kill()


@pytest.fixture
def game(served: Served) -> ServedGame:
    """A game with one board, `best`."""
    return served.new_game()
