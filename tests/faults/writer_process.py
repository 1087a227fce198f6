"""A process that submits without end and says what was acknowledged; the test kills it.

Run as: writer_process.py URL SEED. A line `ID PLAYER SCORE` follows each acknowledgement.
"""

import asyncio
import random
import sys

from laurels import Laurels

CONFIG = {
    "games": {
        "g": {
            "boards": {
                "best": {},
                "total": {"policy": "sum", "order": ["score desc"]},
                "latest": {"policy": "last"},
                "daily": {"policy": "count", "window": {"every": "day"}, "ranking": "dense"},
            }
        }
    }
}


async def main(url: str, seed: str) -> None:
    rng = random.Random(seed)
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        print("ready", flush=True)

        async def single(task: int) -> None:
            for number in range(1_000_000):
                name, player, score = f"{seed}-{task}-{number}", f"p{rng.randrange(500)}", rng.randrange(1_000)
                await game.submit(player, score, submission_id=name)
                print(name, player, score)
                sys.stdout.flush()

        async def batches() -> None:
            for number in range(1_000_000):
                names = [f"{seed}-b{number}-{n}" for n in range(1_500)]
                players = [f"p{rng.randrange(500)}" for _ in names]
                scores = [rng.randrange(1_000) for _ in names]
                await game.submit_many(players, scores, submission_ids=names)
                sys.stdout.write("".join(f"{n} {p} {s}\n" for n, p, s in zip(names, players, scores, strict=True)))
                sys.stdout.flush()
                await asyncio.sleep(rng.random() * 0.05)  # now and then idle, so that entries are written behind

        await asyncio.gather(batches(), *(single(task) for task in range(8)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
