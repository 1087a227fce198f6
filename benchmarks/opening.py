"""From opening a file to the first rank, beside a bare scan of the same rows through Python's sqlite3.

    python benchmarks/opening.py [--entries 1000000] [--repeats 3] [--boards 1000]

Both sides read what the other has just read, so the file is in the system's memory for both. `--boards` says how many
further instances of 100 players are in the file: opening must not read them. JSON on the last line.
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
from pathlib import Path
from typing import Any

from laurels import Laurels

ROWS = 10_000
SMALL = 100


CONFIG: dict[str, Any] = {
    "games": {"big": {"boards": {"best": {}}}, "small": {"boards": {"by-mode": {"partition": ["mode"]}}}}
}


async def fill(url: str, entries: int, boards: int) -> float:
    rng = random.Random(3)
    async with Laurels.open(url, config=CONFIG) as laurels:
        start = time.perf_counter()
        for first in range(0, entries, ROWS):
            names = [f"player-{n:08}" for n in range(first, min(entries, first + ROWS))]
            await laurels.game("big").submit_many(names, [rng.randrange(1_000_000_000) for _ in names])
            if first // ROWS % 100 == 99:
                print(f"  {first + ROWS:,} entries", flush=True)
        filled = time.perf_counter() - start
        if boards:
            names = [f"player-{n:08}" for n in range(SMALL)] * boards
            modes = [mode for mode in range(boards) for _ in range(SMALL)]
            for first in range(0, len(names), ROWS):
                some = slice(first, first + ROWS)
                scores = [rng.randrange(1_000_000_000) for _ in names[some]]
                await laurels.game("small").submit_many(names[some], scores, dimensions={"mode": modes[some]})
    return filled


def scan(path: Path) -> int:
    """The entries of the big board, as Python gets them: it has the first instance."""
    connection = sqlite3.connect(path)
    cursor = connection.execute(
        "SELECT player_id, place, term1, term2 FROM entries WHERE instance ="
        " (SELECT i.id FROM instances i JOIN boards b ON b.id = i.board WHERE b.name = 'best')"
    )
    rows = 0
    while some := cursor.fetchmany(2_000):
        rows += len(some)
    connection.close()
    return rows


async def measured(folder: Path, entries: int, repeats: int, boards: int) -> dict[str, Any]:
    path = folder / "boards.db"
    url = f"sqlite:///{path}"
    filled = await fill(url, entries, boards)
    opened, ready, scanned, small = [], [], [], []
    for _ in range(repeats):
        start = time.perf_counter()
        rows = scan(path)
        scanned.append(time.perf_counter() - start)
        assert rows == entries, (rows, entries)
        start = time.perf_counter()
        async with Laurels.open(url) as laurels:
            opened.append(time.perf_counter() - start)
            assert await laurels.game("big").board("best").entry("player-00000007", details=False)
            ready.append(time.perf_counter() - start)
            if boards:
                start = time.perf_counter()
                await laurels.game("small").board("by-mode", mode=boards // 2).top(10, details=False)
                small.append(time.perf_counter() - start)
    ratios = [scan_s / ready_s for scan_s, ready_s in zip(scanned, ready, strict=True)]
    return {
        "benchmark": "opening",
        "entries": entries,
        "boards": boards,
        "fill_per_second": round(entries / filled),
        "open_s": round(statistics.median(opened), 3),
        "open_to_first_rank_s": round(statistics.median(ready), 2),
        "open_to_first_rank_s_min": round(min(ready), 2),
        "open_entries_per_s": round(entries / statistics.median(ready)),
        "scan_s": round(statistics.median(scanned), 2),
        "scan_s_min": round(min(scanned), 2),
        "open_entries_per_s_vs_scan": round(statistics.median(ratios), 2),
        "small_board_first_top_ms": round(statistics.median(small) * 1e3, 2) if small else None,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--boards", type=int, default=1_000, help="further instances of 100 players")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="laurels-opening-") as name:
        result = asyncio.run(measured(Path(name), options.entries, options.repeats, options.boards))
    for key, value in result.items():
        print(f"{key:30} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
