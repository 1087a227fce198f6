"""The page of benchmarks is what the report makes of the kept figures, and the benchmarks run."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
TINY = {
    "rank_index": ["--players", "3000", "--repeats", "1", "--sizes", "500", "2000", "--no-floor"],
    "ingest": ["--players", "2000", "--rows", "8000", "--repeats", "1"],
    "opening": ["--entries", "3000", "--boards", "3", "--repeats", "1"],
    "serving": ["--quick"],
}


def report() -> Any:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "report.py")))


def test_page_is_made_from_the_figures() -> None:
    made = report()
    results = json.loads(made.RESULTS.read_text())
    assert made.PAGE.read_text() == made.page(results)
    for plot in ("growth", "memory", "sustained"):
        assert (made.RESULTS.parent / f"{plot}.svg").exists()


@pytest.mark.parametrize("name", TINY)
def test_benchmark_prints_its_claims(name: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *TINY[name]]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    result = json.loads(printed.strip().splitlines()[-1])
    assert result["benchmark"] == name
    whole = {"rank_vs_hash_floor", "rank_growth_1m_to_10m", "ingest_sustained_ratio"}  # of a full run
    assert {key for key, benchmark, *_ in report().CLAIMS if benchmark == name} - whole <= result.keys()
