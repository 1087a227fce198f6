"""Kill -9 during ingest: what was acknowledged is there, once, and everything adds up."""

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from laurels import Laurels

WRITER = Path(__file__).with_name("writer_process.py")


def run_and_kill(url: str, seed: str, seconds: float) -> list[tuple[str, str, int]]:
    """What a writer acknowledged before it was killed."""
    acknowledged: list[tuple[str, str, int]] = []
    with subprocess.Popen([sys.executable, str(WRITER), url, seed], stdout=subprocess.PIPE, text=True) as writer:
        output = writer.stdout
        assert output is not None
        assert output.readline() == "ready\n"

        def collect() -> None:
            for line in output:
                if line.endswith("\n"):  # the last one may be cut
                    name, player, score = line.split()
                    acknowledged.append((name, player, int(score)))

        collecting = threading.Thread(target=collect)
        collecting.start()
        time.sleep(seconds)
        writer.kill()
        collecting.join()
    return acknowledged


async def check(url: str, acknowledged: list[tuple[str, str, int]]) -> None:
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        kept = Counter[str]()
        totals = Counter[str]()
        plays = {}
        async for piece in game.submissions():
            for submission in piece:
                kept[submission.submission_id] += 1
                totals[submission.player_id] += submission.score
                plays[submission.submission_id] = (submission.player_id, submission.score)
        assert [name for name, count in kept.items() if count > 1] == []
        assert [name for name, player, score in acknowledged if plays.get(name) != (player, score)] == []
        board = {entry.player_id: entry.score for entry in await game.board("total").top(1_000, details=False)}
        assert board == totals
        names, players, scores = zip(*acknowledged[-500:], strict=True)
        again = await game.submit_many(list(players), list(scores), submission_ids=list(names))
        assert all(again.repeated)
        assert (await laurels.verify()).problems == []


@pytest.mark.parametrize("seed", range(3))
def test_killed_writer_loses_nothing(url: str, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged: list[tuple[str, str, int]] = []
    for round_number in range(2):  # the second one recovers what the first one left, and is killed as well
        acknowledged += run_and_kill(url, f"{seed}.{round_number}", 0.2 + rng.random() * 1.5)
    assert acknowledged
    asyncio.run(check(url, acknowledged))


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
def test_killed_twenty_times(url: str) -> None:
    rng = random.Random(20)
    acknowledged: list[tuple[str, str, int]] = []
    for round_number in range(20):
        acknowledged += run_and_kill(url, f"long.{round_number}", rng.random() * 3)
        asyncio.run(check(url, acknowledged))
