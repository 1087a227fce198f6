"""HTTP stacks for Python side by side, with handlers that only decode and answer: what decision 0003 rests on.

    python benchmarks/stacks.py [--seconds 3] [--repeats 3]

Each stack is one process with one worker on uvloop, under wrk with one thread and 64 connections: a POST of a play of
120 bytes with a bearer token, and a GET of ten rows. The stacks take turns. JSON on the last line: requests a second,
medians. Needs blacksheep, starlette, fastapi and uvicorn besides what the server needs; stacks that are missing are
left out.
"""

import argparse
import importlib.util
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STACKS = ["granian-rsgi", "granian-asgi", "granian-blacksheep", "uvicorn-asgi", "uvicorn-starlette", "uvicorn-fastapi"]
NEEDS = {"blacksheep": "blacksheep", "starlette": "starlette", "fastapi": "fastapi"}
ROWS = [{"rank": n, "position": n, "player_id": f"player-{n:08}", "score": 1_000_000 - n} for n in range(1, 11)]
SCRIPT = """
wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer lk_abcdefghijkl_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"player_id":"player-00004711","score":123456,"submission_id":"01935f2e-7a00-7000-8000-000000000001"}'
"""


def application(kind: str) -> Any:
    import msgspec

    class Play(msgspec.Struct):
        player_id: str
        score: int
        submission_id: str
        metrics: dict[str, int] = {}

    decoder, encode = msgspec.json.Decoder(Play), msgspec.json.Encoder().encode
    json_type = [(b"content-type", b"application/json")]

    def answered(play: Play) -> bytes:
        return encode({"submission_id": play.submission_id, "player_id": play.player_id, "score": play.score})

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            body = answered(decoder.decode((await receive())["body"]))
        else:
            body = encode({"entries": ROWS})
        headers = [*json_type, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def rsgi(scope: Any, protocol: Any) -> None:
        body = answered(decoder.decode(await protocol())) if scope.method == "POST" else encode({"entries": ROWS})
        protocol.response_bytes(200, [("content-type", "application/json")], body)

    if kind == "asgi":
        return asgi
    if kind == "rsgi":
        return rsgi
    if kind == "blacksheep":
        from blacksheep import Application, Content, Request, Response

        app = Application()

        @app.router.post("/")
        async def post(request: Request) -> Response:
            return Response(200, content=Content(b"application/json", answered(decoder.decode(await request.read()))))

        @app.router.get("/")
        async def get(request: Request) -> Response:
            return Response(200, content=Content(b"application/json", encode({"entries": ROWS})))

        return app
    if kind == "starlette":
        from starlette.applications import Starlette
        from starlette.requests import Request as StarletteRequest
        from starlette.responses import Response as StarletteResponse
        from starlette.routing import Route

        async def either(request: StarletteRequest) -> StarletteResponse:
            if request.method == "POST":
                body = answered(decoder.decode(await request.body()))
            else:
                body = encode({"entries": ROWS})
            return StarletteResponse(body, media_type="application/json")

        return Starlette(routes=[Route("/", either, methods=["GET", "POST"])])
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Model(BaseModel):
        player_id: str
        score: int
        submission_id: str
        metrics: dict[str, int] = {}

    api = FastAPI()

    async def create(play: Model) -> dict[str, Any]:
        return {"submission_id": play.submission_id, "player_id": play.player_id, "score": play.score}

    async def read() -> dict[str, Any]:
        return {"entries": ROWS}

    create.__annotations__["play"] = Model
    api.post("/")(create)
    api.get("/")(read)
    return api


def run(stack: str, port: int) -> None:
    """Serve a stack until this process is ended."""
    import uvloop

    server, _, kind = stack.partition("-")
    if server == "uvicorn":
        import uvicorn

        uvicorn.run(application(kind), port=port, log_level="error", loop="uvloop", http="httptools")
        return
    from granian.constants import Interfaces
    from granian.server.embed import Server

    async def serve() -> None:
        interface = (
            Interfaces.RSGI if kind == "rsgi" else Interfaces.ASGI if kind == "blacksheep" else Interfaces.ASGINL
        )
        await Server(application(kind), port=port, interface=interface, log_enabled=False, backlog=1_024).serve()

    uvloop.run(serve())


def measured(port: int, seconds: int, script: Path | None) -> float:
    command = ["wrk", "-t1", "-c64", f"-d{seconds}s", f"http://127.0.0.1:{port}/"]
    if script is not None:
        command[1:1] = ["-s", str(script)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in out, out
    return float(next(line for line in out.splitlines() if line.startswith("Requests/sec")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", nargs=2, metavar=("STACK", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run[0], int(options.run[1]))
        return
    if not shutil.which("wrk"):
        raise SystemExit("wrk is not installed (Debian: apt-get install wrk)")
    there = [s for s in STACKS if importlib.util.find_spec(NEEDS.get(s.partition("-")[2], "granian"))]
    servers, figures = {}, {stack: {"post": [], "get": []} for stack in there}
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "post.lua"
        script.write_text(SCRIPT)
        try:
            for stack in there:
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
                command = [sys.executable, __file__, "--run", stack, str(port)]
                servers[stack] = (port, subprocess.Popen(command, stdout=subprocess.DEVNULL))
            time.sleep(3)
            for _ in range(options.repeats):
                for stack, (port, _process) in servers.items():
                    figures[stack]["post"].append(measured(port, options.seconds, script))
                    figures[stack]["get"].append(measured(port, options.seconds, None))
        finally:
            for _, process in servers.values():
                process.terminate()
                process.wait()
    result = {
        stack: {verb: round(statistics.median(values)) for verb, values in verbs.items()}
        for stack, verbs in figures.items()
    }
    for stack, verbs in result.items():
        print(f"{stack:20} POST {verbs['post']:>8,}/s   GET {verbs['get']:>8,}/s")
    print(json.dumps({"benchmark": "stacks", **result}))


if __name__ == "__main__":
    main()
