"""A bad network for a while: every submission counts once, and what was followed is what is there."""

import asyncio
import random
import time
from typing import Any

import pytest

from laurels.client import AsyncClient, Retry

PLAYERS = [f"p{n}" for n in range(6)]
EACH = 80
PATIENT = Retry(tries=10_000, total_s=100.0, first_s=0.005, most_s=0.05)


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_bad_network(shared: Any, new_proxy: Any, seed: int) -> None:
    choose = random.Random(seed)
    proxy, game = new_proxy(shared.port), f"chaos{seed}"
    async with AsyncClient(shared.url, shared.key, game=game) as direct:
        await direct.define_game(game, {"boards": {"best": {}, "total": {"policy": "sum", "order": ["score desc"]}}})
        client = AsyncClient(proxy.url, shared.key, game=game, timeout_s=2.0, retry=PATIENT)
        async with client, client.follow(heartbeat_s=0.4, retry=PATIENT) as live:
            top = live.top("best", 4)
            total = live.top("total", 10)
            rank = live.rank("total", "p0")
            plays = live.submissions("p0")

            async def submit(player: str) -> None:
                for score in range(EACH):
                    if score % 3:
                        await client.submit(player, score)
                    else:
                        await client.submit_many([player], [score])

            async def break_things() -> None:
                while True:
                    await asyncio.sleep(choose.uniform(0.0, 0.04))
                    fault = choose.choice(["cut", "swallow", "refuse"])
                    if fault == "cut":
                        await asyncio.to_thread(proxy.cut)
                    elif fault == "swallow":
                        proxy.swallow = choose.randint(1, 5)
                    else:
                        proxy.refuse = True
                        await asyncio.sleep(choose.uniform(0.0, 0.03))
                        proxy.refuse = False

            breaking = asyncio.create_task(break_things())
            await asyncio.gather(*map(submit, PLAYERS))
            breaking.cancel()
            await asyncio.gather(breaking, return_exceptions=True)
            proxy.refuse, proxy.swallow = False, 0

            for player in PLAYERS:
                history = await direct.history(player, 1_000)
                assert [submission.score for submission in history] == list(range(EACH))[::-1]
            expected_top = (await direct.top("best", 4, also=["order"])).entries
            expected_total = (await direct.top("total", 10, also=["order"])).entries
            standing = await direct.entry("total", "p0", also=["order"])
            assert standing.entry.score == sum(range(EACH))
            recent = (await direct.history("p0", 10)).items[::-1]

            def is_there() -> bool:
                followed = (top.entries, total.entries, rank.entry, plays.submissions)
                return followed == (expected_top, expected_total, standing.entry, recent)

            ends = time.monotonic() + 60
            while not is_there():
                assert time.monotonic() < ends, "what was followed is not what is there"
                await asyncio.sleep(0.02)
            assert live.connections > 1
            assert proxy.connections > live.connections
