"""The least a Python server can do: read the request, decode the body, send constant bytes back.

    python benchmarks/rivals/dummy.py --port 8001 --answers folder

A raw ASGI handler on granian as `laurels serve` runs it: embedded in a uvloop loop of one process, no ASGI lifespan,
the same backlog. The body is decoded with msgspec into a struct of the same fields. `--answers` is a folder of answers
that the real server gave: submit, entry, around, top10.
"""

import argparse
from collections.abc import Awaitable, Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from granian.constants import Interfaces
from granian.server.embed import Server


class NewSubmission(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    player_id: str
    score: int | Decimal
    submission_id: str | None = None
    played_at: datetime | None = None
    dimensions: dict[str, str | int | bool | list[str] | None] = {}
    metrics: dict[str, int | Decimal | None] = {}


def application(answers: Path) -> Callable[..., Awaitable[None]]:
    submitted, entry, around, top = ((answers / name).read_bytes() for name in ("submit", "entry", "around", "top10"))
    decoder = msgspec.json.Decoder(NewSubmission)

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["method"] == "POST":
            message = await receive()
            body = message["body"]
            while message.get("more_body"):
                message = await receive()
                body += message["body"]
            decoder.decode(body)
            status, answer = 201, submitted
        else:
            path = scope["path"]
            status, answer = 200, top if path.endswith("/top") else around if path.endswith("/around") else entry
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    options = parser.parse_args()

    async def serve() -> None:
        server = Server(
            application(options.answers),
            address="127.0.0.1",
            port=options.port,
            interface=Interfaces.ASGINL,
            backlog=1_024,
            backpressure=1_024,
            log_enabled=False,
        )
        await server.serve()

    uvloop.run(serve())


if __name__ == "__main__":
    main()
