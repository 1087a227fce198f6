"""The rank index, beside a Redis sorted set through redis-py with hiredis over a unix socket, and beside a hash map.

    python benchmarks/rank_index.py [--players 1000000] [--repeats 5] [--sizes 10000 100000 1000000 10000000]

One board of so many players, ids like player-00000001, order score desc, accepted_at asc. Each measurement alternates
with its rival in the same run; names and scores are made before the clock starts. JSON on the last line: medians,
minima (`_min`) and ratios. A turn of either side takes some milliseconds, so that both are measured warm.

    rank_single       rank of one player, call after call           ZREVRANK
    rank_batch        ranks of 1,000 players in one call            ZREVRANK pipelined by 1,000
    upsert_batch      1,000 random improvements in one call, each told its ranks before and after    ZADD GT of 1,000
    top100            ids and scores of the first 100 as lists      ZREVRANGE WITHSCORES
    rank_vs_hash_floor    the kernel's rank of one id / hashbrown's get of the same ids in the same order
    growth            the same on boards of other sizes, in turn

"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from laurels._native import Players, RankIndex, Rows

BATCH = 1_000
SINGLES = 5_000
TURN = 10  # batches one after the other


def player(number: int) -> str:
    return f"player-{number:08}"


def ns_per(work: Callable[[], Any], times: int) -> float:
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / times


class Ours:
    """A board as the service makes it."""

    def __init__(self, players: int, seed: int) -> None:
        rng = random.Random(seed)
        self.players = Players()
        self.index = RankIndex(
            self.players,
            descending=[True, False],
            tie_terms=1,
            player_descending=False,
            policy="best",
            value_term=0,
            ranking="competition",
        )
        self.time = 1_796_000_000_000_000
        self.load_s = 0.0
        for first in range(0, players, 10_000):
            names = [player(n) for n in range(first, min(players, first + 10_000))]
            scores = [rng.randrange(1_000_000_000) for _ in names]
            times = list(range(self.time, self.time + len(names)))
            self.time += len(names)
            start = time.perf_counter()
            self.index.apply(names, [scores, times], times)
            self.load_s += time.perf_counter() - start
        self.written()

    def written(self) -> None:
        """As after the store has written what is behind."""
        pending = self.index.pending()
        self.index.mark_clean(pending.player_ids, pending.places)

    def improve(self, names: list[str], scores: list[int]) -> None:
        times = list(range(self.time, self.time + len(names)))
        self.time += len(names)
        self.index.apply(names, [scores, times], times)

    def bytes_per_player(self) -> float:
        return (self.index.memory_bytes() + self.players.memory_bytes()) / len(self.index)


class Redis:
    """A Redis server of our own on a unix socket, with the same board."""

    def __init__(self, folder: Path, players: int, seed: int) -> None:
        import redis

        socket = folder / "redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"]
        self._server = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=str(socket))
        try:
            self._fill(players, seed)
        except BaseException:
            self.close()
            raise

    def _fill(self, players: int, seed: int) -> None:
        import redis

        for _ in range(200):
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        rng = random.Random(seed)
        for first in range(0, players, 10_000):
            names = [player(n) for n in range(first, min(players, first + 10_000))]
            self.client.zadd("board", {name: rng.randrange(1_000_000_000) for name in names})

    def ranks(self, names: list[str]) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for name in names:
            pipeline.zrevrank("board", name)
        pipeline.execute()

    def bytes_per_player(self, players: int) -> float:
        return float(self.client.memory_usage("board", samples=0)) / players

    def close(self) -> None:
        self.client.close()
        self._server.terminate()
        self._server.wait()


def read(rows: Rows | None) -> tuple[list[str], list[int]]:
    """Ids and scores as Python has them: that much Redis gives as well."""
    assert rows is not None
    return rows.player_ids, rows.term(0)


def measured(ours: Ours, redis: Redis | None, players: int, repeats: int) -> dict[str, Any]:
    rng = random.Random(7)
    figures: dict[str, list[float]] = {}

    def note(key: str, value: float) -> None:
        figures.setdefault(key, []).append(value)

    for _ in range(repeats):
        some = [player(rng.randrange(players)) for _ in range(SINGLES)]
        rank = ours.index.rank
        note("rank_single_ns", ns_per(lambda: [rank(name) for name in some], SINGLES))  # noqa: B023
        if redis:
            few = some[:500]
            zrevrank = redis.client.zrevrank
            note("redis_rank_single_ns", ns_per(lambda: [zrevrank("board", name) for name in few], 500))  # noqa: B023
        for _ in range(3):
            turn = [[player(rng.randrange(players)) for _ in range(BATCH)] for _ in range(TURN)]
            better = [[rng.randrange(1_000_000_000, 2_000_000_000) for _ in range(BATCH)] for _ in turn]
            note("rank_batch_ns", ns_per(lambda: [ours.index.ranks(batch) for batch in turn], TURN * BATCH))  # noqa: B023
            if redis:
                note("redis_rank_batch_ns", ns_per(lambda: [redis.ranks(batch) for batch in turn[:2]], 2 * BATCH))  # noqa: B023
            pairs = list(zip(turn, better, strict=True))
            note("upsert_batch_ns", ns_per(lambda: [ours.improve(*pair) for pair in pairs], TURN * BATCH))  # noqa: B023
            if redis:
                members = [dict(zip(*pair, strict=True)) for pair in pairs]
                zadd = partial(redis.client.zadd, "board", gt=True)
                note("redis_upsert_batch_ns", ns_per(lambda: [zadd(some) for some in members], TURN * BATCH))  # noqa: B023
            note("top100_ns", ns_per(lambda: [read(ours.index.rows(1, 100)) for _ in range(200)], 200))
            if redis:
                top = partial(redis.client.zrevrange, "board", 0, 99, withscores=True)
                note("redis_top100_ns", ns_per(lambda: [top() for _ in range(20)], 20))  # noqa: B023
            names = turn[0][:200]
            note("around_10_ns", ns_per(lambda: [read(ours.index.around(name, 10)) for name in names], 200))  # noqa: B023
    ours.written()
    result: dict[str, Any] = {key: round(statistics.median(values)) for key, values in figures.items()}
    result |= {f"{key}_min": round(min(values)) for key, values in figures.items()}
    result["bytes_per_player"] = round(ours.bytes_per_player(), 1)
    result["load_s"] = round(ours.load_s, 2)
    result["load_ns"] = round(ours.load_s / players * 1e9)
    ratios = {
        "rank_single_vs_redis": "rank_single_ns",
        "rank_batch_vs_redis": "rank_batch_ns",
        "upsert_batch_vs_redis": "upsert_batch_ns",
        "top100_vs_redis": "top100_ns",
    }
    for key, figure in ratios.items():
        result[key] = round(result[f"redis_{figure}"] / result[figure], 1) if redis else None
    if redis:
        result["redis_bytes_per_player"] = round(redis.bytes_per_player(players), 1)
        result["bytes_per_player_vs_redis"] = round(result["bytes_per_player"] / result["redis_bytes_per_player"], 2)
    else:
        result["bytes_per_player_vs_redis"] = None
    return result


def growth(sizes: list[int], repeats: int) -> dict[str, Any]:
    """The same calls on boards of several sizes, in turn."""
    boards = []
    for size in sizes:
        print(f"  a board of {size:,} players", flush=True)
        boards.append(Ours(size, seed=2))
    rng = random.Random(11)
    figures: dict[str, list[list[float]]] = {}

    def note(key: str, at: int, value: float) -> None:
        figures.setdefault(key, [[] for _ in sizes])[at].append(value)

    for _ in range(repeats * 6):
        for at, (size, board) in enumerate(zip(sizes, boards, strict=True)):
            batches = [[player(rng.randrange(size)) for _ in range(BATCH)] for _ in range(3)]
            better = [rng.randrange(1_000_000_000, 2_000_000_000) for _ in range(BATCH)]
            rank = board.index.rank
            note("rank_single_ns", at, ns_per(lambda: [rank(name) for name in batches[0]], BATCH))  # noqa: B023
            note("rank_batch_ns", at, ns_per(lambda: board.index.ranks(batches[1]), BATCH))  # noqa: B023
            note("upsert_batch_ns", at, ns_per(lambda: board.improve(batches[2], better), BATCH))  # noqa: B023
            note("top100_ns", at, ns_per(lambda: [read(board.index.rows(1, 100)) for _ in range(5)], 5))  # noqa: B023
    for board in boards:
        board.written()
        board.index.check()
    medians = {key: [round(statistics.median(values)) for values in columns] for key, columns in figures.items()}
    result: dict[str, Any] = {
        "growth": {
            "players": sizes,
            **medians,
            "load_ns": [round(board.load_s / size * 1e9) for size, board in zip(sizes, boards, strict=True)],
            "bytes_per_player": [round(board.bytes_per_player(), 1) for board in boards],
        }
    }
    if 1_000_000 in sizes and 10_000_000 in sizes:
        small, large = sizes.index(1_000_000), sizes.index(10_000_000)
        for key, figure in (
            ("rank_growth_1m_to_10m", "rank_single_ns"),
            ("rank_batch_growth_1m_to_10m", "rank_batch_ns"),
        ):
            result[key] = round(medians[figure][large] / medians[figure][small], 2)
    return result


def floor(players: int) -> dict[str, Any]:
    """The kernel alone beside a hash map, in one process without Python."""
    if not shutil.which("cargo"):
        print("cargo is not installed: measuring without the hash map (https://rustup.rs)")
        return {"rank_vs_hash_floor": None}
    command = ["cargo", "bench", "--quiet", "--locked", "--no-default-features", "--bench", "rank_floor"]
    native = Path(__file__).parent.parent / "native"
    run = subprocess.run(
        [*command, "--manifest-path", str(native / "Cargo.toml"), "--", str(players)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"CARGO_TARGET_DIR": str(native.parent / "target")},
    )
    figures: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--players", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="also measure boards of these sizes, in turn")
    parser.add_argument("--no-floor", action="store_true", help="leave out the hash map, which is built with cargo")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "rank_index", "players": options.players}
    ours = Ours(options.players, seed=1)
    with tempfile.TemporaryDirectory(prefix="laurels-redis-") as name:
        redis = None
        if shutil.which("redis-server"):
            redis = Redis(Path(name), options.players, seed=1)
        else:
            print("redis-server is not installed: measuring without the rival (Debian: apt-get install redis-server)")
        try:
            result |= measured(ours, redis, options.players, options.repeats)
        finally:
            if redis:
                redis.close()
    ours.index.check()
    if not options.no_floor:
        result |= floor(options.players)
    if options.sizes:
        del ours
        result |= growth(options.sizes, options.repeats)
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for key, value in result.items():
        print(f"{key:30} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
