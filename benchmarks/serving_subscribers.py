"""The subscribers of serving.py: many WebSockets to one topic, read by one process with as little work as can be.

    python benchmarks/serving_subscribers.py --port 8000 --key lk_... --subscribers 1000

Plain sockets and a frame reader of its own, because two thousand readers of a library would be what is measured. While
it runs, a message costs one look into a dictionary: all have the same topic, so they get the same bytes.

Prints `ready` when all have their snapshot. When all is over it reads one line from stdin, {"scores": [...], "top":
[[player_id, score], ...]}: what was submitted, each score higher than all before, and the top 10 as it stands.
Prints one line of JSON:

    last     for each score, CLOCK_MONOTONIC in ns when the last subscriber had a message with it, or with a later one
    lost     how many subscribers lost something, by what: a gap in seq, a second snapshot, a closed connection, a list
             put together from the messages that is not the top 10, a score that never came
"""

import argparse
import base64
import json
import os
import selectors
import socket
import sys
import time
from collections import Counter
from typing import Any

import msgspec

TOPIC = {"kind": "top", "board": "best", "limit": 10}
TEXT, CLOSE, PING, PONG = 0x81, 0x88, 0x89, 0x8A


class EntryIn(msgspec.Struct):
    player_id: str
    position: int
    score: int


class Data(msgspec.Struct):
    entries: list[EntryIn] = []
    removed: list[str] = []


class Message(msgspec.Struct):
    """What the server sends; heartbeats have no seq."""

    type: str
    seq: int = 0
    detail: str = ""
    data: Data = msgspec.field(default_factory=Data)

    def highest(self) -> int:
        return max((entry.score for entry in self.data.entries), default=-1)


def frame(opcode: int, payload: bytes) -> bytes:
    """A frame of a client: masked, with a mask of zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
    return bytes([opcode]) + length + bytes(4) + payload


class Subscriber:
    """One WebSocket: what came, and when."""

    def __init__(self, port: int, key: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.open = True
        self.messages: list[Message] = []
        self.times: list[int] = []
        nonce = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /v1/games/g/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {nonce}\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.rest:
            some = self.socket.recv(65_536)
            if not some:
                raise SystemExit(f"the server closed a connection instead of a handshake: {self.rest!r}")
            self.rest += some
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise SystemExit(f"the server refused a WebSocket: {head.decode()} {self.rest.decode()}")
        self.socket.sendall(frame(TEXT, json.dumps({"op": "subscribe", "id": "a", "topic": TOPIC}).encode()))
        self.socket.setblocking(False)

    def payloads(self) -> list[bytes]:
        """The text messages that are there to be read. Answers pings."""
        try:
            some = self.socket.recv(262_144)
        except BlockingIOError:
            return []
        except OSError:
            some = b""
        if not some:
            self.open = False
            return []
        data = self.rest + some if self.rest else some
        found, at, end = [], 0, len(data)
        while end - at >= 2:
            opcode, size, start = data[at], data[at + 1], at + 2
            if size >= 126:
                wide = 2 if size == 126 else 8
                start += wide
                size = int.from_bytes(data[at + 2 : start], "big")
            if start + size > end or start > end:
                break
            at = start + size
            if opcode == TEXT:
                found.append(data[start:at])
            elif opcode == PING:
                self.socket.send(frame(PONG, data[start:at]))
            elif opcode == CLOSE:
                self.open = False
            elif opcode != PONG:
                raise SystemExit(f"a frame that this reader does not know: {opcode:#x}")
        self.rest = data[at:]
        return found

    def lost(self, scores: list[int], top: list[list[Any]]) -> str | None:
        """What this subscriber lost, if anything."""
        if not self.open:
            return "closed"
        seq, entries = self.messages[0].seq - 1, {}
        for number, message in enumerate(self.messages):
            if (message.type == "snapshot") != (number == 0):
                return "snapshot"
            seq += 1
            if message.seq != seq:
                return "gap"
            for player_id in message.data.removed:
                entries.pop(player_id, None)
            entries |= {entry.player_id: entry for entry in message.data.entries}
        stands = sorted(entries.values(), key=lambda entry: entry.position)
        if [[entry.player_id, entry.score] for entry in stands] != top:
            return "differs"
        return None if max(message.highest() for message in self.messages) >= max(scores) else "score"


class Readers:
    """All subscribers of this process."""

    def __init__(self, subscribers: list[Subscriber]) -> None:
        self.subscribers = subscribers
        self._known: dict[bytes, Message] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        for subscriber in subscribers:
            self._selector.register(subscriber.socket, selectors.EVENT_READ, subscriber)

    def read(self, seconds: float) -> bool:
        """Take what is there. True if something is there on stdin."""
        told = False
        for key, _ in self._selector.select(seconds):
            subscriber = key.data
            if subscriber is None:
                told = True
                continue
            payloads = subscriber.payloads()
            now = time.monotonic_ns()
            for payload in payloads:
                message = self._known.get(payload)
                if message is None:
                    message = self._known[payload] = msgspec.json.decode(payload, type=Message)
                if message.type in ("snapshot", "change"):
                    subscriber.messages.append(message)
                    subscriber.times.append(now)
                elif message.type == "error":
                    raise SystemExit(f"the server refused a subscription: {payload.decode()}")
            if not subscriber.open:
                self._selector.unregister(subscriber.socket)
        return told

    def until_told(self) -> dict[str, Any]:
        """Until stdin says what was submitted; then what is still on its way."""
        while not self.read(1):
            pass
        over: dict[str, Any] = json.loads(sys.stdin.readline())
        self._selector.unregister(sys.stdin)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            self.read(0.1)
        return over

    def until_ready(self, seconds: float) -> None:
        """Until every subscriber has its snapshot."""
        deadline = time.monotonic() + seconds
        while waiting := sum(not subscriber.messages for subscriber in self.subscribers):
            if time.monotonic() > deadline:
                raise SystemExit(f"{waiting} of {len(self.subscribers)} subscribers got no snapshot in {seconds:g} s")
            self.read(0.1)

    def last(self, scores: list[int]) -> list[int]:
        """When the last subscriber had each score, or a later one. 0 if somebody never had it."""
        latest = [0] * len(scores)
        for subscriber in self.subscribers:
            reached = 0
            for message, now in zip(subscriber.messages, subscriber.times, strict=True):
                highest = message.highest()
                while reached < len(scores) and scores[reached] <= highest:
                    latest[reached] = max(latest[reached], now)
                    reached += 1
            for never in range(reached, len(scores)):
                latest[never] = sys.maxsize
        return [0 if moment == sys.maxsize else moment for moment in latest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--subscribers", type=int, default=1_000)
    options = parser.parse_args()
    readers = Readers([Subscriber(options.port, options.key) for _ in range(options.subscribers)])
    readers.until_ready(60)
    print("ready", flush=True)
    over = readers.until_told()
    lost = Counter(subscriber.lost(over["scores"], over["top"]) for subscriber in readers.subscribers)
    del lost[None]
    last = readers.last(over["scores"])
    print(json.dumps({"last": last, "lost": lost, "messages": sum(len(one.messages) for one in readers.subscribers)}))


if __name__ == "__main__":
    main()
