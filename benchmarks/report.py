"""Make docs/benchmarks.md and its plots from docs/benchmarks/results.json.

python benchmarks/report.py
"""

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "benchmarks" / "results.json"
PAGE = DOCS / "benchmarks.md"

# What is claimed: key, benchmark, goal, whether more is better, and what it is.
CLAIMS = (
    ("rank_single_vs_redis", "rank_index", 100, True, "rank of one player, call after call: Redis ZREVRANK / ours"),
    ("rank_batch_vs_redis", "rank_index", 25, True, "rank in a batch of 1,000: ZREVRANK pipelined / ours"),
    ("upsert_batch_vs_redis", "rank_index", 7, True, "1,000 improvements in a batch: ZADD GT / ours"),
    ("top100_vs_redis", "rank_index", 20, True, "ids and scores of the first 100: ZREVRANGE / ours"),
    ("bytes_per_player_vs_redis", "rank_index", 0.38, False, "memory a player, all in: ours / MEMORY USAGE"),
    ("rank_vs_hash_floor", "rank_index", 4, False, "rank of one id in the kernel / hash map get of the same ids"),
    ("rank_growth_1m_to_10m", "rank_index", 1.7, False, "rank of one player among 10 million / among 1 million"),
    ("ingest_vs_sqlite_rows", "ingest", 10, True, "durable submit_many by 1,000 / history and best rows in SQLite"),
    ("ingest_sustained_ratio", "ingest", 0.8, True, "speed of the last million of 10 million / of the first"),
    ("concurrent_vs_serial", "ingest", 8, True, "64 tasks submitting singly / one task, all durable"),
    ("open_entries_per_s_vs_scan", "opening", 0.4, True, "entries a second to the first rank / bare scan of the rows"),
    ("submit_vs_dummy", "serving", 0.5, True, "plays a second over HTTP: ours / a handler that does nothing"),
    ("entry_vs_dummy", "serving", 0.6, True, "a player's entry over HTTP: ours / a handler that does nothing"),
    ("around_vs_dummy", "serving", 0.5, True, "ten around a player over HTTP: ours / a handler that does nothing"),
    ("top10_vs_dummy", "serving", 0.6, True, "the first ten over HTTP: ours / a handler that does nothing"),
    ("submit_vs_fastapi_redis", "serving", 3, True, "plays a second over HTTP: ours / FastAPI with a sorted set"),
    ("entry_vs_fastapi_redis", "serving", 4, True, "a player's entry over HTTP: ours / FastAPI with a sorted set"),
    ("submit_p99_vs_median", "serving", 4, False, "answers to single plays under full load: p99 / p50"),
    ("submit_p99_vs_median_during_batch", "serving", 4, False, "the same while somebody loads 10,000 at a time"),
    ("server_rss_mb", "serving", 180, False, "memory of the server with a million players after the load, MB"),
    ("live_p99_ms", "serving", 500, False, "a play is answered until the last subscriber has seen it, p99, ms"),
    ("live_lost", "serving", 0, False, "subscribers that missed something"),
)
BLUE, ORANGE, GREY = "#3b6fd4", "#d9702b", "#7a828e"


def table(results: dict[str, Any]) -> str:
    """What is claimed, what is the goal, what was measured, of the benchmarks that have been run."""
    lines = ["| what, in one run | goal | measured | |", "|---|---|---|---|"]
    for key, benchmark, goal, more, what in CLAIMS:
        if benchmark not in results:
            continue
        value = results[benchmark].get(key)
        met = value is not None and (value >= goal if more else value <= goal)
        measured = "not measured" if value is None else f"{value:g}"
        lines.append(f"| `{key}`: {what} | {'at least' if more else 'at most'} {goal:g} | {measured} | {'✓' * met} |")
    return "\n".join(lines)


def page(results: dict[str, Any]) -> str:
    """The page as text."""
    rank, ingest, opening, machine = (results[key] for key in ("rank_index", "ingest", "opening", "machine"))
    growth = rank["growth"]
    sizes = "".join(f" {_count(size)} |" for size in growth["players"])
    rows = "\n".join(
        f"| {what} |" + "".join(f" {value:,} |" for value in growth[key])
        for key, what in (
            ("rank_single_ns", "rank of one player from Python, ns"),
            ("rank_batch_ns", "rank in a batch of 1,000, ns each"),
            ("upsert_batch_ns", "improvement in a batch of 1,000, ns each"),
            ("top100_ns", "first 100 with scores, ns"),
            ("load_ns", "arrival of a player, by 10,000, ns"),
            ("bytes_per_player", "bytes a player, all in"),
        )
    )
    beside = "\n".join(
        f"| {what} | {rank[key]:,} | {_number(rank.get(f'redis_{key}'))} |"
        for key, what in (
            ("rank_single_ns", "rank of one player, ns"),
            ("rank_batch_ns", "rank in a batch of 1,000, ns each"),
            ("upsert_batch_ns", "improvement in a batch of 1,000, ns each"),
            ("top100_ns", "first 100 with scores, ns"),
            ("around_10_ns", "ten around a player, ns"),
            ("bytes_per_player", "bytes a player"),
        )
    )
    redis = f"Redis {machine['redis']}" if machine["redis"] else "no Redis"
    return f"""# Benchmarks

Made by `make bench` on {results["date"]} (do not edit: benchmarks/report.py writes this page from
[results.json](benchmarks/results.json)). Machine: {machine["cpu"]}, {machine["cores"]} cores,
{machine["memory_gib"]} GiB, {machine["system"]}, Python {machine["python"]}, SQLite {machine["sqlite"]}, {redis},
Rust {machine["rust"]}. Figures of shared machines move by tens of percent from run to run; ratios within one run, where
both sides take turns, move less.

{table(results)}

## Ranks

One board, ids like player-00000001, order `score desc, accepted_at asc`. Redis is asked through redis-py with hiredis
over a unix socket; both sides get ids and scores that were made before the clock started, and hand out Python objects.

| with {_count(rank["players"])} players | ours | Redis |
|---|---|---|
{beside}

An improvement tells rank, position and value before and after, which ZADD does not. Without Python, the rank of one id
takes {_number(rank.get("native_rank_ns"))} ns, and the get of the same id from a hash map
{_number(rank.get("hash_get_ns"))} ns.

| players |{sizes}
|---|{"---|" * len(growth["players"])}
{rows}

![Nanoseconds by number of players](benchmarks/growth.svg)
![Bytes a player by number of players](benchmarks/memory.svg)

## Submissions

`submit_many` by 1,000 with submission ids, one call after the other: each call is answered when its rows are durable,
ranked and known for ever. Beside it the same rows written to SQLite as a history row and an upsert of the best row.

| | |
|---|---|
| submissions a second, median and best | {ingest["ingest_per_second"]:,}, {ingest["ingest_per_second_best"]:,} |
| the same with eight calls under way | {ingest["ingest_per_second_8_in_flight"]:,} |
| rows straight into SQLite a second, median and best | {ingest["sqlite_rows_per_second"]:,}, \
{ingest["sqlite_rows_per_second_best"]:,} |
| acknowledgement of 1,000, p50 and p99 | {ingest["acknowledged_p50_ms"]} ms, {ingest["acknowledged_p99_ms"]} ms |
| while {ingest["sustained_millions"]} million land: p50, p99, longest | {ingest["sustained_p50_ms"]} ms, \
{ingest["sustained_p99_ms"]} ms, {ingest["sustained_max_ms"]} ms |
| a second by 10,000 without ids | {ingest["load_per_second"]:,} |
| single submissions a second: one task, 64 tasks | {ingest["serial_per_second"]:,}, \
{ingest["concurrent_64_per_second"]:,} |
| most memory of the process after each million, MB | {", ".join(map(str, ingest["sustained_peak_rss_mb"]))} |

![Submissions a second, million by million](benchmarks/sustained.svg)

## Opening

A file with {_count(opening["entries"])} entries on one board, and another board of {opening["boards"]:,} instances of
100 players.

| | |
|---|---|
| open the file | {opening["open_s"]} s |
| from there to the first rank on the large board | {opening["open_to_first_rank_s"]} s, \
{opening["open_entries_per_s"]:,} entries a second |
| bare scan of the same rows in Python | {opening["scan_s"]} s |
| first top ten of a small instance | {opening["small_board_first_top_ms"]} ms |
{over_http(results["serving"]) if "serving" in results else ""}"""


def over_http(serving: dict[str, Any]) -> str:
    """The section on `laurels serve`."""
    rates = "\n".join(
        f"| {what} | {_number(serving.get(f'{key}_per_second'))} |"
        f" {_number(serving.get(f'{key}_p50_ms'))} ms, {_number(serving.get(f'{key}_p99_ms'))} ms |"
        f" {_number(serving.get(f'dummy_{key}_per_second'))} |"
        f" {_number(serving.get(f'fastapi_redis_{key}_per_second'))} |"
        for key, what in (
            ("submit", "submit a play"),
            ("entry", "a player's entry"),
            ("around", "ten around a player"),
            ("top10", "the first ten"),
        )
    )
    during = "".join(
        f"| {what} | {_number(serving.get(key))} |\n"
        for key, what in (
            ("submit_per_second_during_batch", "plays a second while somebody loads 10,000 at a time"),
            ("submit_p50_during_batch_ms", "... p50, ms"),
            ("submit_p99_during_batch_ms", "... p99, ms"),
            ("batch_p50_ms", "a request of 10,000 plays meanwhile, p50, ms"),
            ("server_rss_mb", "memory of the server after the load, MB"),
            ("live_subscribers", "WebSockets subscribed to the first ten, which change 20 times a second"),
            ("live_p50_ms", "from the answer to a play until the last of them has seen it, p50, ms"),
            ("live_p99_ms", "... p99, ms"),
            ("live_lost", "subscribers that missed something"),
        )
    )
    return f"""
## Over HTTP

`laurels serve` with one board of {_count(serving["players"])} players, one process, asked by wrk over 64 connections on
the same machine. The dummy is a raw ASGI handler on the same granian and uvloop that decodes the same body and sends
back constant bytes, those that ours had answered. The tutorial is FastAPI on one uvicorn worker with a Redis sorted
set, in memory only: it authenticates nobody, and its submission does not ask for a rank.

| requests a second | ours | p50, p99 | dummy | tutorial |
|---|---|---|---|---|
{rates}

| | |
|---|---|
{during}"""


def _count(number: int) -> str:
    return f"{number // 1_000_000} million" if number >= 1_000_000 else f"{number:,}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def plots(results: dict[str, Any], folder: Path) -> None:
    """The plots as SVG files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "laurels", "svg.fonttype": "none", "font.family": "sans-serif"})
    growth, ingest = results["rank_index"]["growth"], results["ingest"]
    players = growth["players"]
    lines = {
        "rank, one call": growth["rank_single_ns"],
        "rank, in a batch": growth["rank_batch_ns"],
        "improvement, in a batch": growth["upsert_batch_ns"],
        "arrival": growth["load_ns"],
    }
    _plot(folder / "growth.svg", "ns", "players", players, lines)
    _plot(
        folder / "memory.svg", "bytes a player", "players", players, {"ids, keys, counts": growth["bytes_per_player"]}
    )
    millions = list(range(1, len(ingest["sustained_per_second"]) + 1))
    speeds = {"durable, ranked, answered": ingest["sustained_per_second"]}
    _plot(folder / "sustained.svg", "submissions a second", "million", millions, speeds, log=False)


def _plot(path: Path, unit: str, along: str, x: list[int], lines: dict[str, list[float]], *, log: bool = True) -> None:
    """Few colours, a label at the end of each line, legible on light and on dark."""
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    for (label, values), colour in zip(lines.items(), (BLUE, ORANGE, GREY, "#3f9a6b"), strict=False):
        axes.plot(x, values, marker="o", markersize=4, color=colour)
        axes.annotate(label, (x[-1], values[-1]), (8, 0), textcoords="offset points", color=colour, va="center")
    if log:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel(along, color=GREY)
    axes.set_title(unit, loc="left", color=GREY, fontsize=10)
    axes.tick_params(colors=GREY)
    axes.grid(axis="y", color=GREY, alpha=0.25)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def write(results: dict[str, Any]) -> None:
    """The page and its plots."""
    PAGE.write_text(page(results))
    plots(results, RESULTS.parent)


if __name__ == "__main__":
    write(json.loads(RESULTS.read_text()))
