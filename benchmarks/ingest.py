"""Durable ingest on the embedded engine, beside writing rows to SQLite directly.

    python benchmarks/ingest.py [--players 1000000] [--rows 1200000] [--repeats 3] [--last-million 10]

Every submission has an id of its own, made beforehand in the order of time; it is durable, ranked and answered before
the next call. Each measurement alternates with its rival in the same run. JSON on the last line: medians, ratios.

    ingest_vs_sqlite_rows    submit_many by 1,000, one call after the other / the same batches as a history row and an
                             upsert of the best row each, straight into SQLite in one transaction, as durable
    ingest_sustained_ratio   the last million of many / the first
    concurrent_vs_serial     64 tasks that submit singly / one task
"""

import argparse
import asyncio
import json
import random
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laurels import Laurels, new_submission_id
from laurels.games import Game

BATCH = 1_000
CONFIG: dict[str, Any] = {"games": {"g": {"boards": {"best": {}}}}}


def player(number: int) -> str:
    return f"player-{number:08}"


class Plays:
    """Random plays of a fixed set of players, the same for both sides; ids in time order, made beforehand."""

    def __init__(self, players: int, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._names = [player(n) for n in range(players)]

    def batch(self, rows: int = BATCH) -> tuple[list[str], list[int], list[str]]:
        players = self._rng.choices(self._names, k=rows)
        scores = [self._rng.randrange(1_000_000_000) for _ in range(rows)]
        return players, scores, [new_submission_id() for _ in range(rows)]


class DirectRows:
    """The rival: a history row and an upsert of the best row for each submission, in one transaction a batch."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -262144;"
            "CREATE TABLE history (id TEXT PRIMARY KEY, player TEXT, score INTEGER, at INTEGER) WITHOUT ROWID;"
            "CREATE TABLE best (player TEXT PRIMARY KEY, score INTEGER, at INTEGER) WITHOUT ROWID;"
        )

    def submit(self, players: list[str], scores: list[int], ids: list[str]) -> None:
        now = time.time_ns() // 1_000
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "INSERT INTO history VALUES (?, ?, ?, ?)",
            [(i, p, s, now) for i, p, s in zip(ids, players, scores, strict=True)],
        )
        self._db.executemany(
            "INSERT INTO best VALUES (?, ?, ?) ON CONFLICT (player)"
            " DO UPDATE SET score = excluded.score, at = excluded.at"
            " WHERE excluded.score > best.score",
            [(p, s, now) for p, s in zip(players, scores, strict=True)],
        )
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


async def batches(folder: Path, players: int, rows: int, repeats: int) -> dict[str, Any]:
    """submit_many by 1,000 and the rival by 1,000, in turn."""
    plays = Plays(players)
    ours: list[float] = []
    theirs: list[float] = []
    latencies: list[float] = []
    rival = DirectRows(folder / "rows.db")
    async with Laurels.open(f"sqlite:///{folder}/ours.db", config=CONFIG) as laurels:
        game = laurels.game("g")
        slices = max(1, rows // repeats // BATCH // 4)
        for _ in range(repeats * 4):
            prepared = [plays.batch() for _ in range(slices)]
            start = time.perf_counter()
            for names, scores, ids in prepared:
                before = time.perf_counter()
                await game.submit_many(names, scores, submission_ids=ids)
                latencies.append(time.perf_counter() - before)
            ours.append((time.perf_counter() - start) / slices / BATCH)
            prepared = [plays.batch() for _ in range(slices)]
            theirs.append(seconds(lambda: [rival.submit(*batch) for batch in prepared]) / slices / BATCH)  # noqa: B023
        in_flight = await concurrently(game, [plays.batch() for _ in range(400)])
        best = game.board("best")
        name = (await best.top(1, details=False))[0].player_id
        start = time.perf_counter()
        for _ in range(200):
            await best.entry(name, details=False)
        rank_us = (time.perf_counter() - start) / 200 * 1e6
        start = time.perf_counter()
        for _ in range(200):
            await best.around(name, 10)
        around_us = (time.perf_counter() - start) / 200 * 1e6
        entries = await best.count()
        index_bytes = laurels.memory_bytes()
        start = time.perf_counter()
        report = await laurels.verify()
        verify_s = time.perf_counter() - start
    rival.close()
    start = time.perf_counter()
    async with Laurels.open(f"sqlite:///{folder}/ours.db") as laurels:
        await laurels.game("g").board("best").entry(name, details=False)
        open_s = time.perf_counter() - start
    return {
        "ingest_per_second": round(1 / statistics.median(ours)),
        "ingest_per_second_best": round(1 / min(ours)),
        "ingest_per_second_8_in_flight": round(in_flight),
        "sqlite_rows_per_second": round(1 / statistics.median(theirs)),
        "sqlite_rows_per_second_best": round(1 / min(theirs)),
        "ingest_vs_sqlite_rows": round(statistics.median(theirs) / statistics.median(ours), 2),
        "acknowledged_p50_ms": round(statistics.median(latencies) * 1e3, 2),
        "acknowledged_p99_ms": round(statistics.quantiles(latencies, n=100)[98] * 1e3, 2),
        "entries": entries,
        "index_bytes_per_player": round(index_bytes / entries, 1),
        "entry_us": round(rank_us, 1),
        "around_10_us": round(around_us, 1),
        "open_to_first_rank_s": round(open_s, 2),
        "verify_s": round(verify_s, 2),
        "verify_problems": len(report.problems),
    }


async def concurrently(game: Game, batches: list[tuple[list[str], list[int], list[str]]]) -> float:
    """Submissions a second with eight calls under way at any time."""
    waiting = iter(batches)

    async def task() -> None:
        for names, scores, ids in waiting:
            await game.submit_many(names, scores, submission_ids=ids)

    start = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(8)))
    return len(batches) * BATCH / (time.perf_counter() - start)


async def load(folder: Path, players: int) -> dict[str, Any]:
    """One submission for each of many players, in batches of 10,000 without ids."""
    async with Laurels.open(f"sqlite:///{folder}/load.db", config=CONFIG) as laurels:
        game = laurels.game("g")
        rng = random.Random(5)
        start = time.perf_counter()
        for first in range(0, players, 10_000):
            names = [player(n) for n in range(first, min(players, first + 10_000))]
            await game.submit_many(names, [rng.randrange(1_000_000_000) for _ in names])
        load_s = time.perf_counter() - start
        assert await game.board("best").count() == players
        start = time.perf_counter()
        problems = (await laurels.verify()).problems
        verify_s = time.perf_counter() - start
        start = time.perf_counter()
        answer = await game.submit(player(players), 500_000_000)
        middle = (await game.board("best").around(player(players), 10))[4].position
        submit_s = time.perf_counter() - start
    return {
        "load_players": players,
        "load_s": round(load_s, 2),
        "load_per_second": round(players / load_s),
        "load_verify_s": round(verify_s, 2),
        "load_verify_problems": len(problems),
        "submit_and_around_ms": round(submit_s * 1e3, 2),
        "submitted_position": answer.changes[0].new_position,
        "around_position": middle,
    }


async def singles(folder: Path) -> dict[str, Any]:
    """One task that submits singly, and 64 of them, in turn; all durable."""
    serial: list[float] = []
    concurrent: list[float] = []
    async with Laurels.open(f"sqlite:///{folder}/singles.db", config=CONFIG) as laurels:
        game = laurels.game("g")

        async def task(name: str, plays: int) -> None:
            for number in range(plays):
                await game.submit(name, number)

        for _ in range(5):
            start = time.perf_counter()
            await task("alone", 200)
            serial.append(200 / (time.perf_counter() - start))
            start = time.perf_counter()
            await asyncio.gather(*(task(f"p{n}", 50) for n in range(64)))
            concurrent.append(3_200 / (time.perf_counter() - start))
    return {
        "serial_per_second": round(statistics.median(serial)),
        "concurrent_64_per_second": round(statistics.median(concurrent)),
        "concurrent_vs_serial": round(statistics.median(concurrent) / statistics.median(serial), 1),
    }


async def sustained(folder: Path, players: int, millions: int) -> dict[str, Any]:
    """The speed of the last million of many against the first."""
    plays = Plays(players, seed=2)
    speeds: list[float] = []
    latencies: list[float] = []
    memory: list[int] = []
    async with Laurels.open(f"sqlite:///{folder}/sustained.db", config=CONFIG) as laurels:
        game = laurels.game("g")
        for _ in range(millions):
            spent = 0.0
            for _ in range(1_000_000 // BATCH):
                names, scores, ids = plays.batch()
                before = time.perf_counter()
                await game.submit_many(names, scores, submission_ids=ids)
                latencies.append(time.perf_counter() - before)
                spent += latencies[-1]
            speeds.append(1_000_000 / spent)
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
            print(f"  million {len(speeds)}: {speeds[-1]:,.0f} submissions/s", flush=True)
    return {
        "ingest_sustained_ratio": round(speeds[-1] / speeds[0], 2),
        "sustained_millions": millions,
        "sustained_per_second": [round(speed) for speed in speeds],
        "sustained_peak_rss_mb": memory,
        "sustained_p50_ms": round(statistics.median(latencies) * 1e3, 2),
        "sustained_p99_ms": round(statistics.quantiles(latencies, n=100)[98] * 1e3, 2),
        "sustained_max_ms": round(max(latencies) * 1e3, 1),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--players", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=1_200_000, help="submissions on each side")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--last-million", type=int, default=0, help="also ingest this many millions in one go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="laurels-ingest-") as name:
        folder = Path(name)
        result: dict[str, Any] = {"benchmark": "ingest", "players": options.players, "batch": BATCH}
        result |= await load(folder, options.players)
        result |= await singles(folder)
        result |= await batches(folder, options.players, options.rows, options.repeats)
        if options.last_million:
            result |= await sustained(folder, options.players, options.last_million)
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for key, value in result.items():
        print(f"{key:28} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())
