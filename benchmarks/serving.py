"""`laurels serve` under load, beside a dummy on the same server and beside the usual tutorial on FastAPI and Redis.

    python benchmarks/serving.py [--players 1000000] [--repeats 10] [--seconds 2] [--only load|live] [--quick]

One process of ours with one game, one board of so many players, and a key of role server; everything on 127.0.0.1 and
on one machine with the load, which is wrk with one thread and 64 connections. Slices of two seconds alternate between
the servers, and every other turn goes backwards. JSON on the last line: medians over the slices, best slices (`_best`),
and ratios, each the median of the ratios within a turn. null is what could not be measured.

    submit    POST of one play: authenticated, durable, ranked, answered with ranks before and after, known for ever
    entry     GET of one player's entry with rank and percentile
    around    GET of ten entries around a player
    top10     GET of the first ten entries

    X_per_second, X_p50_ms, X_p99_ms           ours
    X_vs_dummy            requests a second, ours / rivals/dummy.py: a raw ASGI handler on granian, embedded in a uvloop
                          loop as ours is, that decodes the same body and sends the very bytes that ours had answered
    X_vs_fastapi_redis    ours / rivals/tutorial.py: FastAPI on one uvicorn worker (uvloop, httptools), redis-py with
                          hiredis, a sorted set in memory only; its submit is one ZADD GT that asks for no rank
    submit_p99_vs_median                       p99 of the answers to single plays / p50 in the same slice
    submit_p99_vs_median_during_batch          the same while another client posts 10,000 plays a request, one request
                                               after the other with pauses
    server_rss_mb                              memory of our process at the end of the load
    live_p50_ms, live_p99_ms                   from the answer to a play that changes the top 10 until the last of
                                               `live_subscribers` WebSockets has the message that contains it
    live_lost                                  subscribers that missed something; see serving_subscribers.py
"""

import argparse
import http.client
import importlib.util
import json
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from serving_load import SCENARIOS, Load, Slice

from laurels import new_submission_id
from laurels.server import free_port
from laurels.sync import Laurels

HERE = Path(__file__).parent
BATCH = 10_000
BATCH_PAUSE_S = 0.2
SETTLE_S = 1.0
READERS = 2  # processes that the subscribers are spread over
CHANGES_PER_SECOND = 20
CONFIG = "[games.g.boards.best]\n"
PATHS = {
    "submit": "/v1/games/g/submissions",
    "entry": "/v1/games/g/boards/best/entries/{}",
    "around": "/v1/games/g/boards/best/entries/{}/around?limit=10",
    "top10": "/v1/games/g/boards/best/top?limit=10",
}
NOT_MEASURED = {f"{scenario}_vs_{rival}": None for scenario in SCENARIOS for rival in ("dummy", "fastapi_redis")} | {
    "submit_p99_vs_median": None,
    "submit_p99_vs_median_during_batch": None,
    "server_rss_mb": None,
}


def player(number: int) -> str:
    return f"player-{number:08}"


# --- servers ---------------------------------------------------------------------------------------------------


class Server:
    """A server that was started here, on a port of its own."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.name = name
        self.process = process
        self.port = port
        self._log = log

    def until_listening(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self.process.returncode}:\n{self._log.read_text()[-4_000:]}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        raise SystemExit(f"{self.name} does not listen after {seconds:g} s:\n{self._log.read_text()[-4_000:]}")

    def rss_mb(self) -> int | None:
        """What the process has in memory now, where the system tells."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) // 1024
        return None


@contextmanager
def started(name: str, command: list[str], port: int, folder: Path) -> Iterator[Server]:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        server = Server(name, process, port, log)
        if port:
            server.until_listening()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def laurels(*arguments: str) -> list[str]:
    """The command line of Laurels in this interpreter."""
    return [sys.executable, "-c", "from laurels.cli import main; main()", *arguments]


def preloaded(folder: Path, players: int) -> str:
    """A store with one game and its board of so many players, made without the server."""
    config = folder / "laurels.toml"
    config.write_text(CONFIG)
    url = f"sqlite:///{folder}/g.db"
    rng = random.Random(5)
    with Laurels.open(url, config=config) as opened:
        game = opened.game("g")
        for first in range(1, players + 1, BATCH):
            names = [player(n) for n in range(first, min(players + 1, first + BATCH))]
            game.submit_many(names, [rng.randrange(1_000_000_000) for _ in names])
    return url


def new_key(url: str) -> str:
    """A key of role server for the game, made without the server."""
    command = laurels("keys", "create", "server", "--game", "g", "--store", url, "--json")
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"no key could be made: {made.stdout}{made.stderr}")
    return str(json.loads(made.stdout)["key"])


@contextmanager
def our_server(folder: Path, players: int) -> Iterator[tuple[Server, str]]:
    """Ours, with its board in memory, and a key to ask it."""
    start = time.perf_counter()
    url = preloaded(folder, players)
    key = new_key(url)
    print(f"  {players:,} players are in the store after {time.perf_counter() - start:.1f} s", flush=True)
    port = free_port()
    command = laurels("serve", "--store", url, "--config", str(folder / "laurels.toml"), "--port", str(port))
    with started("laurels", command, port, folder) as server:
        start = time.perf_counter()
        while (status := ask(server, key, "GET", "/health/ready")[0]) == 503 and time.perf_counter() - start < 60:
            time.sleep(0.1)
        if status != 200:
            raise SystemExit(f"laurels is not ready: {status}")
        ask_well(server, key, "GET", PATHS["entry"].format(player(1)))
        print(f"  ours is ready, its board read, after {time.perf_counter() - start:.1f} s", flush=True)
        yield server, key


@contextmanager
def dummy_server(folder: Path, answers: dict[str, bytes]) -> Iterator[Server]:
    (folder / "answers").mkdir(exist_ok=True)
    for name, answer in answers.items():
        (folder / "answers" / name).write_bytes(answer)
    port = free_port()
    command = [sys.executable, str(HERE / "rivals" / "dummy.py"), "--port", str(port)]
    with started("dummy", [*command, "--answers", str(folder / "answers")], port, folder) as server:
        yield server


@contextmanager
def tutorial_server(folder: Path, players: int) -> Iterator[Server]:
    import redis

    path = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    with started("redis", [*command, "--dir", str(folder)], 0, folder):
        client = redis.Redis(unix_socket_path=str(path))
        for _ in range(200):
            with suppress(redis.ConnectionError):
                client.ping()
                break
            time.sleep(0.05)
        rng = random.Random(5)
        for first in range(1, players + 1, BATCH):
            names = [player(n) for n in range(first, min(players + 1, first + BATCH))]
            client.zadd("board", {name: rng.randrange(1_000_000_000) for name in names})
        client.close()
        port = free_port()
        command = [sys.executable, str(HERE / "rivals" / "tutorial.py"), "--port", str(port), "--redis", str(path)]
        with started("fastapi_redis", command, port, folder) as server:
            yield server


def missing() -> list[str]:
    """What is not installed; each with what is left out and how to get it."""
    lacks = []
    if not shutil.which("wrk"):
        lacks.append("wrk: measuring live updates only (Debian: apt-get install wrk)")
    if not shutil.which("redis-server"):
        lacks.append("redis-server: measuring without FastAPI and Redis (Debian: apt-get install redis-server)")
    lacks.extend(
        f"{name}: measuring without FastAPI and Redis (pip install --group bench)"
        for name in ("fastapi", "uvicorn", "httptools", "redis", "hiredis")
        if importlib.util.find_spec(name) is None
    )
    return lacks


# --- asking ----------------------------------------------------------------------------------------------------


def ask(server: Server, key: str, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        return _asked(connection, key, method, path, None if body is None else json.dumps(body).encode())
    finally:
        connection.close()


def ask_well(server: Server, key: str, method: str, path: str, body: Any = None) -> bytes:
    """The answer, which must be 200 or 201."""
    status, answer = ask(server, key, method, path, body)
    if status not in (200, 201):
        raise SystemExit(f"{server.name} answered {status} to {method} {path}: {answer.decode(errors='replace')}")
    return answer


def _asked(
    connection: http.client.HTTPConnection, key: str, method: str, path: str, body: bytes | None
) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}"} | ({} if body is None else {"Content-Type": "application/json"})
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.read()


def sample(server: Server, key: str, players: int) -> dict[str, bytes]:
    """An answer of each kind: what the dummy sends, and proof that a server answers well before it is under load."""
    middle = player(players // 2)
    play = {"player_id": middle, "score": 500_000_000, "submission_id": new_submission_id()}
    return {
        name: ask_well(server, key, "POST", path, play)
        if name == "submit"
        else ask_well(server, key, "GET", path.format(middle))
        for name, path in PATHS.items()
    }


class BatchClient:
    """Posts batches one after the other, with pauses, on a thread."""

    def __init__(self, server: Server, key: str, players: int) -> None:
        self._server = server
        self._key = key
        self._rng = random.Random(9)
        self._players = players
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []
        self.failure: str | None = None
        self._scores = json.dumps([self._rng.randrange(1_000_000_000) for _ in range(BATCH)])

    def _body(self) -> bytes:
        """Random players, ids in the order of time; the scores are the same each time, so that making a body takes
        little from those who are measured."""
        numbers = self._rng.choices(range(1, self._players + 1), k=BATCH)
        names = '","'.join([player(n) for n in numbers])
        stamp, tail = f"{time.time_ns() // 1_000_000:012x}", self._rng.randrange(2**32)
        ids = '","'.join([f"{stamp[:8]}-{stamp[8:]}-7000-8000-{tail:08x}{n:04x}" for n in range(BATCH)])
        return f'{{"player_ids":["{names}"],"scores":{self._scores},"submission_ids":["{ids}"]}}'.encode()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=60)
        try:
            while not self._stop.is_set():
                body = self._body()
                start = time.perf_counter()
                status, answer = _asked(connection, self._key, "POST", PATHS["submit"] + "/batch", body)
                if status != 201:
                    raise OSError(f"{status}: {answer.decode(errors='replace')[:500]}")
                self.seconds.append(time.perf_counter() - start)
                self._stop.wait(BATCH_PAUSE_S)
        except (OSError, http.client.HTTPException) as error:
            self.failure = f"a batch was not answered well: {error}"
        finally:
            connection.close()

    def __enter__(self) -> "BatchClient":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure:
            raise SystemExit(self.failure)


# --- load ------------------------------------------------------------------------------------------------------


def load(ours: Server, key: str, rivals: list[Server], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All scenarios against all servers, in turn."""
    wrk = Load(folder, key, options.players)
    servers = [ours, *rivals]
    slices: dict[tuple[str, str], list[Slice]] = {}
    if options.repeats > 1:
        for server in servers:
            for scenario in SCENARIOS:
                wrk.run(scenario, server.port, 1)  # warm
    for turn in range(options.repeats):
        for scenario in SCENARIOS:
            for server in servers if turn % 2 == 0 else reversed(servers):
                seen = wrk.run(scenario, server.port, options.seconds)
                slices.setdefault((server.name, scenario), []).append(seen)
                if server is ours and scenario == "submit":
                    time.sleep(SETTLE_S)  # what it still writes would be taken from the next
        rates = {name: f"{some[-1].per_second:,.0f}" for (name, what), some in slices.items() if what == "submit"}
        print(f"  turn {turn + 1}, submissions a second: {rates}", flush=True)
    result = beside_rivals(slices)
    result |= beside_batches(ours, key, wrk, options)
    result["server_rss_mb"] = ours.rss_mb()
    return result


def beside_rivals(slices: dict[tuple[str, str], list[Slice]]) -> dict[str, Any]:
    """Medians of ours, rates of the rivals, ratios."""
    result: dict[str, Any] = {}
    for scenario in SCENARIOS:
        some = slices["laurels", scenario]
        result[f"{scenario}_per_second"] = round(statistics.median(one.per_second for one in some))
        result[f"{scenario}_per_second_best"] = round(max(one.per_second for one in some))
        result[f"{scenario}_p50_ms"] = round(statistics.median(one.p50_ms for one in some), 2)
        result[f"{scenario}_p99_ms"] = round(statistics.median(one.p99_ms for one in some), 2)
        result[f"{scenario}_max_ms"] = round(max(one.max_ms for one in some), 1)
        for rival in ("dummy", "fastapi_redis"):
            if theirs := slices.get((rival, scenario)):
                result |= beside_rival(scenario, rival, some, theirs)
    result["submit_p99_vs_median"] = tail(slices["laurels", "submit"])
    return result


def beside_rival(scenario: str, rival: str, ours: list[Slice], theirs: list[Slice]) -> dict[str, Any]:
    ratios = [one.per_second / other.per_second for one, other in zip(ours, theirs, strict=True)]
    return {
        f"{rival}_{scenario}_per_second": round(statistics.median(one.per_second for one in theirs)),
        f"{rival}_{scenario}_per_second_best": round(max(one.per_second for one in theirs)),
        f"{scenario}_vs_{rival}": round(statistics.median(ratios), 2),
    }


def beside_batches(ours: Server, key: str, wrk: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Single plays while somebody loads many."""
    with BatchClient(ours, key, options.players) as batches:
        some = [wrk.run("submit", ours.port, options.seconds) for _ in range(options.repeats)]
    return {
        "submit_p99_vs_median_during_batch": tail(some),
        "submit_per_second_during_batch": round(statistics.median(one.per_second for one in some)),
        "submit_p50_during_batch_ms": round(statistics.median(one.p50_ms for one in some), 2),
        "submit_p99_during_batch_ms": round(statistics.median(one.p99_ms for one in some), 2),
        "batches": len(batches.seconds),
        "batch_p50_ms": round(statistics.median(batches.seconds) * 1e3, 1),
        "batch_max_ms": round(max(batches.seconds) * 1e3, 1),
    }


def tail(slices: list[Slice]) -> float:
    return round(statistics.median(one.p99_ms / one.p50_ms for one in slices), 2)


# --- live ------------------------------------------------------------------------------------------------------


def live(ours: Server, key: str, options: argparse.Namespace) -> dict[str, Any]:
    """Subscribers of the top 10 while plays change it; each play beats all before it."""
    with ExitStack() as stack:
        readers = [
            stack.enter_context(
                _reader(ours, key, options.subscribers // READERS + (n < options.subscribers % READERS))
            )
            for n in range(READERS)
        ]
        for reader in readers:
            assert reader.stdout is not None
            if reader.stdout.readline() != "ready\n":
                raise SystemExit("the subscribers did not get through")
        print(f"  {options.subscribers:,} subscribers have their snapshot", flush=True)
        scores, answered = change_top(ours, key, options)
        time.sleep(2)
        top = json.loads(ask_well(ours, key, "GET", PATHS["top10"]))["entries"]
        over = {"scores": scores, "top": [[entry["player_id"], entry["score"]] for entry in top]}
        told = [json.loads(reader.communicate(json.dumps(over) + "\n")[0]) for reader in readers]
    if over["top"][0][1] != scores[-1]:
        raise SystemExit(f"the last play does not lead: {over['top'][0]} instead of {scores[-1]}")
    lost = sum((Counter(one["lost"]) for one in told), Counter())
    last = zip(*(one["last"] for one in told), strict=True)
    spent = [(max(some) - at) / 1e6 for some, at in zip(last, answered, strict=True) if all(some)]
    return {
        "live_subscribers": options.subscribers,
        "live_changes": len(scores),
        "live_p50_ms": round(statistics.median(spent), 1) if spent else None,
        "live_p99_ms": round(statistics.quantiles(spent, n=100, method="inclusive")[98], 1) if spent else None,
        "live_max_ms": round(max(spent), 1) if spent else None,
        "live_messages": sum(one["messages"] for one in told),
        "live_lost": lost.total(),
        "live_lost_by": dict(lost),
        "live_server_rss_mb": ours.rss_mb(),
    }


def change_top(ours: Server, key: str, options: argparse.Namespace) -> tuple[list[int], list[int]]:
    """Plays at an even pace, each by another player and the best so far; the scores, and when each was answered."""
    top = json.loads(ask_well(ours, key, "GET", PATHS["top10"]))["entries"]
    changes = round(options.live_seconds * CHANGES_PER_SECOND)
    names = [player(n) for n in random.Random(3).sample(range(1, options.players + 1), changes)]
    scores = [top[0]["score"] + 1 + n for n in range(changes)]
    answered = []
    connection = http.client.HTTPConnection("127.0.0.1", ours.port, timeout=60)
    start = time.monotonic()
    for n, (name, score) in enumerate(zip(names, scores, strict=True)):
        time.sleep(max(0, start + n / CHANGES_PER_SECOND - time.monotonic()))
        play = {"player_id": name, "score": score, "submission_id": new_submission_id()}
        status, answer = _asked(connection, key, "POST", PATHS["submit"], json.dumps(play).encode())
        answered.append(time.monotonic_ns())
        if status != 201:
            raise SystemExit(f"a play was answered with {status}: {answer.decode(errors='replace')}")
    connection.close()
    return scores, answered


@contextmanager
def _reader(ours: Server, key: str, subscribers: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / "serving_subscribers.py"), "--port", str(ours.port), "--key", key]
    command += ["--subscribers", str(subscribers)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


# --- all -------------------------------------------------------------------------------------------------------


def measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = dict(NOT_MEASURED) if options.only != "live" else {}
    lacks = missing()
    for lack in lacks:
        print(f"{lack.partition(':')[0]} is not installed:{lack.partition(':')[2]}")
    with our_server(folder, options.players) as (ours, key):
        if options.only != "live" and shutil.which("wrk"):
            with ExitStack() as stack:
                answers = sample(ours, key, options.players)
                rivals = [stack.enter_context(dummy_server(folder, answers))]
                if not any("without FastAPI" in lack for lack in lacks):
                    rivals.append(stack.enter_context(tutorial_server(folder, options.players)))
                for rival in rivals:
                    sample(rival, key, options.players)
                result["answer_bytes"] = {name: len(answer) for name, answer in answers.items()}
                result |= load(ours, key, rivals, folder, options)
        if options.only != "load":
            result |= live(ours, key, options)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--players", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--seconds", type=int, help="length of a slice")
    parser.add_argument("--subscribers", type=int)
    parser.add_argument("--live-seconds", type=float, help="how long the top 10 changes, 20 times a second")
    parser.add_argument("--only", choices=("load", "live"), help="requests, or live updates")
    parser.add_argument("--quick", action="store_true", help="small sizes, where they are not given")
    full = {"players": 1_000_000, "repeats": 10, "seconds": 2, "subscribers": 2_000, "live_seconds": 20.0}
    quick = {"players": 20_000, "repeats": 1, "seconds": 1, "subscribers": 100, "live_seconds": 2.0}
    options = parser.parse_args()
    for name, value in (quick if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # an end in order: what was started here ends too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the processes that are started here inherit it
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)) if hard > 0 else 65_536, hard))
    result: dict[str, Any] = {"benchmark": "serving", "players": options.players}
    with tempfile.TemporaryDirectory(prefix="laurels-serving-") as name:
        result |= measured(Path(name), options)
    for key, value in result.items():
        print(f"{key:36} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
