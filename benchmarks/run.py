"""Run all benchmarks, one after the other, and write docs/benchmarks.md from what they print.

    python benchmarks/run.py [--quick] [--large] [--only rank_index]

In full it takes about 40 minutes, with a board of 10 million players and a log of 10 million submissions, some 6 GB
of memory and 4 GB of disk. `--large` adds a board of 50 million (8 GB more), `--quick` takes small sizes and a few
minutes and writes nothing. What was measured is kept in docs/benchmarks/results.json; report.py makes the page from it.
"""

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).parent
FULL = {
    "rank_index": ["--sizes", "10000", "100000", "1000000", "10000000"],
    "ingest": ["--last-million", "10"],
    "opening": ["--entries", "10000000"],
    "serving": [],
}
QUICK = {
    "rank_index": ["--players", "100000", "--repeats", "2", "--sizes", "10000", "100000"],
    "ingest": ["--players", "100000", "--rows", "120000", "--repeats", "1"],
    "opening": ["--entries", "200000", "--boards", "100"],
    "serving": ["--quick"],
}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = platform.processor() or platform.machine()
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    memory = int(meminfo.read_text().split()[1]) // 2**20 if meminfo.exists() else None
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "redis": _version(["redis-server", "--version"]),
        "rust": _version(["rustc", "--version"]),
    }


def _version(command: list[str]) -> str | None:
    try:
        words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return next((word.removeprefix("v=") for word in words if word.removeprefix("v=")[:1].isdigit()), None)


def run(name: str, arguments: list[str]) -> dict[str, Any]:
    """Run one benchmark, show what it prints, return the JSON of its last line."""
    print(f"== {name} {' '.join(arguments)}", flush=True)
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            if not line.startswith("{"):
                print("  " + line, end="", flush=True)
            last = line
    if process.returncode:
        raise SystemExit(f"{name} failed ({process.returncode})")
    result: dict[str, Any] = json.loads(last)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes; the page stays as it is")
    parser.add_argument("--large", action="store_true", help="also a board of 50 million players")
    parser.add_argument("--only", choices=FULL, help="run this one again, and keep the other figures")
    options = parser.parse_args()
    start = time.monotonic()
    results: dict[str, Any] = json.loads(report.RESULTS.read_text()) if options.only else {}
    results |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    for name, arguments in (QUICK if options.quick else FULL).items():
        if options.only not in (None, name):
            continue
        extra = ["50000000"] if options.large and name == "rank_index" else []
        results[name] = run(name, [*arguments, *extra])
        print(f"  {time.monotonic() - start:.0f} s so far", flush=True)
    print(report.table(results))
    if not options.quick:
        report.RESULTS.parent.mkdir(exist_ok=True)
        report.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report.write(results)
        print(f"written: {report.PAGE.name}, and what it shows")


if __name__ == "__main__":
    main()
