"""The leaderboard of the usual tutorial: FastAPI, pydantic models, a Redis sorted set through redis-py.

    python benchmarks/rivals/tutorial.py --port 8002 --redis /tmp/redis.sock

On uvicorn with one worker, uvloop and httptools; redis-py with hiredis over a unix socket. A submission is one ZADD GT,
without asking for the rank afterwards; nothing is authenticated, remembered or written to disk. Paths and bodies are
those of `laurels serve`.
"""

import argparse

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from redis.asyncio import Redis

BOARD = "board"


class Submission(BaseModel):
    player_id: str
    score: int
    submission_id: str | None = None


class Entry(BaseModel):
    rank: int
    player_id: str
    score: int


class Listing(BaseModel):
    entries: list[Entry]


def application(redis: Redis) -> FastAPI:
    app = FastAPI()

    async def listed(first: int, count: int) -> Listing:
        rows = await redis.zrevrange(BOARD, first, first + count - 1, withscores=True)
        return Listing(
            entries=[
                Entry(rank=rank, player_id=player_id, score=int(score))
                for rank, (player_id, score) in enumerate(rows, first + 1)
            ]
        )

    @app.post("/v1/games/g/submissions", status_code=201)
    async def submit(submission: Submission) -> Submission:
        await redis.zadd(BOARD, {submission.player_id: submission.score}, gt=True)
        return submission

    @app.get("/v1/games/g/boards/best/top")
    async def top(limit: int = 10) -> Listing:
        return await listed(0, limit)

    @app.get("/v1/games/g/boards/best/entries/{player_id}")
    async def entry(player_id: str) -> Entry:
        async with redis.pipeline(transaction=False) as pipeline:
            rank, score = await pipeline.zrevrank(BOARD, player_id).zscore(BOARD, player_id).execute()
        if rank is None:
            raise HTTPException(404, "no such player")
        return Entry(rank=rank + 1, player_id=player_id, score=int(score))

    @app.get("/v1/games/g/boards/best/entries/{player_id}/around")
    async def around(player_id: str, limit: int = 11) -> Listing:
        rank = await redis.zrevrank(BOARD, player_id)
        if rank is None:
            raise HTTPException(404, "no such player")
        return await listed(max(0, rank - limit // 2), limit)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--redis", required=True, help="path of the unix socket")
    options = parser.parse_args()
    uvicorn.run(
        application(Redis(unix_socket_path=options.redis, decode_responses=True)),
        host="127.0.0.1",
        port=options.port,
        loop="uvloop",
        http="httptools",
        workers=1,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
