"""Load by wrk for serving.py: one thread, 64 connections that stay open, a Lua script for each scenario.

Every request is of a random player; a submission has a random score and a submission id of its own, a UUIDv7 as clients
make them. An answer that is not 2xx or 3xx ends the run (serving.py looks at one answer of each kind first).
"""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

CONNECTIONS = 64
SCENARIOS = ("submit", "entry", "around", "top10")

COMMON = """
local ffi = require("ffi")
ffi.cdef[[typedef struct { long seconds; long microseconds; } timeval_t; int gettimeofday(timeval_t *, void *);]]
local now, random, format, floor = ffi.new("timeval_t"), math.random, string.format, math.floor
local headers = "Host: 127.0.0.1\\r\\nAuthorization: Bearer @KEY@\\r\\n"
math.randomseed(@SEED@)

local function player()
    return format("player-%08d", random(1, @PLAYERS@))
end

local function get(path)
    return "GET /v1/games/g/boards/best/" .. path .. " HTTP/1.1\\r\\n" .. headers .. "\\r\\n"
end

function done(summary, latency, requests)
    local errors = summary.errors
    print(format('{"requests":%d,"microseconds":%d,"status":%d,"broken":%d,"timeout":%d,"p50":%d,"p99":%d,"max":%d}',
        summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write,
        errors.timeout, latency:percentile(50), latency:percentile(99), latency.max))
end
"""
REQUESTS = {
    "submit": """
local head = "POST /v1/games/g/submissions HTTP/1.1\\r\\n" .. headers .. "Content-Type: application/json\\r\\n"

local function uuid7()
    ffi.C.gettimeofday(now, nil)
    local ms = tonumber(now.seconds) * 1000 + floor(tonumber(now.microseconds) / 1000)
    return format("%08x-%04x-7%03x-%04x-%06x%06x", floor(ms / 65536), ms % 65536, random(0, 4095),
        random(32768, 49151), random(0, 16777215), random(0, 16777215))
end

function request()
    local body = format('{"player_id":"%s","score":%d,"submission_id":"%s"}', player(), random(0, 999999999), uuid7())
    return head .. "Content-Length: " .. #body .. "\\r\\n\\r\\n" .. body
end
""",
    "entry": 'function request() return get("entries/" .. player()) end',
    "around": 'function request() return get("entries/" .. player() .. "/around?limit=10") end',
    "top10": 'local all = get("top?limit=10") function request() return all end',
}


class Slice(NamedTuple):
    """What wrk saw in some seconds."""

    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class Load:
    """Runs wrk; `folder` is for its scripts."""

    def __init__(self, folder: Path, key: str, players: int) -> None:
        self._folder = folder
        self._key = key
        self._players = players
        self._seed = 0

    def run(self, scenario: str, port: int, seconds: int) -> Slice:
        """One slice of a scenario against one server. Ends the run if any request failed."""
        script = self._folder / f"{scenario}.lua"
        self._seed += 1
        text = COMMON.replace("@KEY@", self._key).replace("@SEED@", str(self._seed))
        script.write_text(text.replace("@PLAYERS@", str(self._players)) + REQUESTS[scenario])
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script)]
        run = subprocess.run(
            [*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, timeout=seconds + 30
        )
        lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
        if run.returncode or not lines:
            raise SystemExit(f"wrk failed at {scenario}: {run.stdout}{run.stderr}")
        seen = json.loads(lines[-1])
        if seen["status"] or seen["broken"] or seen["timeout"] or not seen["requests"]:
            raise SystemExit(
                f"{scenario} on port {port}: of {seen['requests']} requests {seen['status']} were answered with"
                f" an error, {seen['broken']} broke off, {seen['timeout']} took longer than two seconds"
            )
        return Slice(
            seen["requests"] / seen["microseconds"] * 1e6, seen["p50"] / 1e3, seen["p99"] / 1e3, seen["max"] / 1e3
        )
