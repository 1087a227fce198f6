"""Live updates over WebSocket and Server-Sent Events: the same topics, the same messages."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import websockets

KINDS: dict[str, dict[str, Any]] = {
    "top": {"kind": "top", "board": "best", "limit": 3},
    "rank": {"kind": "rank", "board": "best", "player_id": "ada"},
    "around": {"kind": "around", "board": "best", "player_id": "ada", "limit": 3},
    "submissions": {"kind": "submissions", "player_id": "ada"},
}


class Socket:
    """A WebSocket of a test."""

    def __init__(self, link: Any) -> None:
        self.link = link

    async def send(self, op: str, **more: Any) -> None:
        await self.link.send(json.dumps({"op": op, **more}))

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next message, heartbeats apart unless they are asked for."""
        async with asyncio.timeout(5):
            while True:
                message: dict[str, Any] = json.loads(await self.link.recv())
                if message["type"] in kinds or (not kinds and message["type"] != "heartbeat"):
                    return message

    async def subscribe(self, id: str, topic: dict[str, Any], **more: Any) -> dict[str, Any]:
        await self.send("subscribe", id=id, topic=topic, **more)
        return await self.next()

    async def closed(self) -> int:
        with contextlib.suppress(websockets.ConnectionClosed):
            async with asyncio.timeout(5):
                while True:
                    await self.link.recv()
        code: int = self.link.close_code
        return code


@contextlib.asynccontextmanager
async def connected(game: Any, role: str = "read", query: str = "") -> AsyncIterator[Socket]:
    url = f"ws://127.0.0.1:{game.served.port}{game.path}/live{query}"
    headers = {} if query else {"authorization": f"Bearer {game.keys.get(role, role)}"}
    async with websockets.connect(url, additional_headers=headers) as link:
        yield Socket(link)


@contextlib.asynccontextmanager
async def events(game: Any, topic: dict[str, Any], role: str | None = "read", **headers: str) -> AsyncIterator[Any]:
    """A stream of events: each with its lines by name."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if role is not None:
        sent["authorization"] = f"Bearer {game.keys.get(role, role)}"
    async with (
        httpx.AsyncClient(base_url=game.served.url, timeout=10) as client,
        client.stream("GET", f"{game.path}/live", params=topic, headers=sent) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        yield parts(answer)


async def parts(answer: httpx.Response, beats: bool = False) -> AsyncIterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
        elif event:
            yield event
            event = {}


async def next_event(stream: Any, *kinds: str) -> dict[str, Any]:
    async with asyncio.timeout(5):
        while True:
            event: dict[str, Any] = await anext(stream)
            if event["event"] in (kinds or ("snapshot", "change", "error")):
                return event


async def ended(stream: Any) -> None:
    """Wait until a stream of events ends."""
    async with asyncio.timeout(5):
        async for _ in stream:
            pass


def timeless(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in ("id", "as_of")}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_tells_the_same_over_both(game: Any, kind: str) -> None:
    game.submit("ada", 5)
    async with connected(game) as socket, events(game, KINDS[kind]) as stream:
        snapshot = await socket.subscribe("a", KINDS[kind])
        event = await next_event(stream)
        assert (snapshot["id"], snapshot["type"], event["event"]) == ("a", "snapshot", "snapshot")
        assert snapshot["data"] == event["data"]["data"]
        assert event["id"] == event["data"]["resume"]
        for score in (7, 9):
            game.submit("ada", score)
            change, event = await socket.next(), await next_event(stream)
            assert (change["type"], event["event"]) == ("change", "change")
            assert timeless(change) == timeless(event["data"])
            assert change["seq"] == snapshot["seq"] + 1
            assert event["id"] == change["resume"] != snapshot["resume"]
            snapshot = change
    if kind == "submissions":
        assert [play["score"] for play in change["data"]["submissions"]] == [9]
    elif kind == "rank":
        assert (change["data"]["entry"]["score"], change["data"]["total"]) == (9, 1)
    else:
        assert change["data"]["entries"][0]["score"] == 9
        assert change["data"]["removed"] == []


async def test_a_reader_who_applies_changes_has_the_list_as_it_stands(game: Any) -> None:
    topic = {"kind": "top", "board": "best", "limit": 5}
    async with connected(game) as socket:
        snapshot = await socket.subscribe("a", topic)
        shown = {entry["player_id"]: entry for entry in snapshot["data"]["entries"]}
        for number in range(30):
            game.submit(f"p{number % 9}", number * 37 % 101)
            if number % 7 == 6:
                game.ask("DELETE", f"/boards/best/entries/p{number % 9}")
        until = game.get("/boards/best/top", limit=5)["entries"]
        for _ in range(60):
            with contextlib.suppress(TimeoutError):
                message = json.loads(await asyncio.wait_for(socket.link.recv(), 0.3))
                if message["type"] in ("change", "snapshot"):
                    for player in message["data"].get("removed", list(shown)):
                        shown.pop(player, None)
                    shown |= {entry["player_id"]: entry for entry in message["data"]["entries"]}
            listed = sorted(shown.values(), key=lambda entry: entry["position"])
            if [(e["player_id"], e["score"], e["rank"]) for e in listed] == [
                (e["player_id"], e["score"], e["rank"]) for e in until
            ]:
                return
        pytest.fail(f"{listed} is not {until}")


async def test_a_reader_who_comes_back_goes_on_where_it_was(game: Any) -> None:
    topic = KINDS["submissions"]
    async with connected(game) as watcher:
        await watcher.subscribe("w", topic)  # by whom each change is seen to be published
        async with connected(game) as socket:
            resume = (await socket.subscribe("a", topic))["resume"]
        published = []
        for score in (1, 2):
            game.submit("ada", score)
            published.append(timeless(await watcher.next()))
        async with connected(game) as socket, events(game, topic, last_event_id=resume) as stream:
            messages = [await socket.subscribe("b", topic, resume=resume), await socket.next()]
            assert [message["type"] for message in messages] == ["change", "change"]
            assert list(map(timeless, messages)) == published
            assert [timeless((await next_event(stream))["data"]) for _ in range(2)] == published
        async with events(game, topic | {"resume": messages[0]["resume"]}) as stream:
            assert timeless((await next_event(stream))["data"]) == published[1]


@pytest.mark.parametrize("resume", ["x", "", "a.b.c", "00.1.5", "é", "9" * 300])
async def test_a_resume_that_means_nothing_begins_anew(game: Any, resume: str) -> None:
    game.submit("ada", 5)
    async with connected(game) as socket:
        message = await socket.subscribe("a", KINDS["rank"], resume=resume)
        assert (message["type"], message["reason"]) == ("snapshot", "gap")


async def test_a_resume_of_another_games_topic_begins_anew(game: Any, served: Any) -> None:
    other = served.new_game()
    async with connected(other) as theirs, connected(game) as ours:
        foreign = (await theirs.subscribe("a", KINDS["top"]))["resume"]
        other.submit("secret", 1)
        assert (await theirs.next())["type"] == "change"
        message = await ours.subscribe("a", KINDS["top"], resume=foreign)
        assert (message["type"], message["reason"]) == ("snapshot", "gap")
        assert message["data"]["entries"] == []


async def test_nothing_is_told_of_other_games(game: Any, served: Any) -> None:
    other = served.new_game()
    async with connected(game) as socket:
        await socket.subscribe("a", KINDS["top"])
        other.submit("ada", 5)
        game.submit("bob", 1)
        assert [entry["player_id"] for entry in (await socket.next())["data"]["entries"]] == ["bob"]
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connected(other, game.keys["read"]):
            pass
    assert refused.value.response.status_code == 403


async def test_what_is_no_longer_followed_is_silent(game: Any) -> None:
    async with connected(game) as socket:
        await socket.subscribe("a", KINDS["rank"])
        await socket.subscribe("b", KINDS["top"])
        await socket.send("unsubscribe", id="a")
        game.submit("ada", 5)
        assert (await socket.next())["id"] == "b"
        await socket.send("ping")
        assert (await socket.next())["type"] == "pong"
        assert (await socket.subscribe("a", KINDS["rank"]))["type"] == "snapshot"  # the id is free again


BAD_FRAMES = [
    "",
    "nonsense",
    "[]",
    "{}",
    "null",
    '{"op":"dance"}',
    '{"op":"subscribe"}',
    '{"op":"subscribe","id":"a"}',
    '{"op":"subscribe","id":7,"topic":{"kind":"top","board":"best"}}',
    '{"op":"subscribe","id":"","topic":{"kind":"top","board":"best"}}',
    '{"op":"subscribe","id":"' + "x" * 200 + '","topic":{"kind":"top","board":"best"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"nonsense"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"rank","board":"best"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"none"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","limit":0}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","limit":1000000}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","limit":"x"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","where":{"x":"y"}}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","where":{"x":{"y":[]}}}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","where":{"at":"y"}}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","at":"2026-01-01T00:00:00"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best","at":"yesterday"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"rank","board":"best","player_id":""}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"submissions","player_id":"' + "x" * 2_000 + '"}}',
    '{"op":"subscribe","id":"a","topic":{"kind":"top","board":"best"},"resume":7}',
    '{"op":"unsubscribe","id":"none"}',
    '{"op":"ping","more":1}',
    "[" * 10_000,
    '{"op":"ping","x":"' + "x" * 20_000 + '"}',
]


@pytest.mark.parametrize("frame", BAD_FRAMES, ids=lambda frame: frame[:80])
async def test_a_bad_frame_is_answered_and_the_connection_stays(game: Any, frame: str) -> None:
    async with connected(game) as socket:
        await socket.link.send(frame)
        told = await socket.next()
        assert told["type"] == "error"
        assert told["code"] in ("invalid_input", "limit_exceeded", "not_found", "out_of_range")
        assert told["detail"]
        await socket.send("ping")
        assert (await socket.next())["type"] == "pong"


async def test_binary_frames_are_read_or_refused_alike(game: Any) -> None:
    async with connected(game) as socket:
        await socket.link.send(b'{"op":"ping"}')
        assert (await socket.next())["type"] == "pong"
        await socket.link.send(b"\xff\x00")
        assert (await socket.next())["type"] == "error"


async def test_an_id_names_one_topic_at_a_time(game: Any) -> None:
    async with connected(game) as socket:
        await socket.subscribe("a", KINDS["top"])
        told = await socket.subscribe("a", KINDS["rank"])
        assert (told["id"], told["type"], told["code"]) == ("a", "error", "invalid_input")


async def test_a_connection_follows_so_many_topics_and_no_more(game: Any) -> None:
    async with connected(game) as socket:
        for number in range(4):  # as configured
            assert (await socket.subscribe(str(number), KINDS["top"]))["type"] == "snapshot"
        told = await socket.subscribe("5", KINDS["top"])
        assert (told["type"], told["code"]) == ("error", "limit_exceeded")
        await socket.send("unsubscribe", id="0")
        assert (await socket.subscribe("5", KINDS["top"]))["type"] == "snapshot"


async def test_a_player_follows_only_their_own_submissions(game: Any) -> None:
    token = game.token("ada")
    async with connected(game, token) as socket:
        assert (await socket.subscribe("a", KINDS["submissions"]))["type"] == "snapshot"
        assert (await socket.subscribe("b", KINDS["top"]))["type"] == "snapshot"
        told = await socket.subscribe("c", {"kind": "submissions", "player_id": "bob"})
        assert (told["type"], told["code"]) == ("error", "forbidden")


@pytest.mark.parametrize(
    ("path", "role", "status"),
    [
        ("/live", None, 401),
        ("/live", "signer", 401),
        ("/live", "lk_nonsense", 401),
        ("/boards", "read", 405),
        ("/none", "read", 404),
    ],
)
async def test_a_handshake_that_is_refused_says_why(game: Any, path: str, role: str | None, status: int) -> None:
    headers = {} if role is None else {"authorization": f"Bearer {game.keys.get(role, role)}"}
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(
            f"ws://127.0.0.1:{game.served.port}{game.path}{path}", additional_headers=headers
        ):
            pass
    assert refused.value.response.status_code == status


async def test_browsers_may_send_their_token_in_the_query(game: Any) -> None:
    token = game.token("ada")
    async with connected(game, query=f"?access_token={token}") as socket:
        assert (await socket.subscribe("a", KINDS["top"]))["type"] == "snapshot"
    async with events(game, KINDS["top"] | {"access_token": token}, None) as stream:
        assert (await next_event(stream))["event"] == "snapshot"


async def test_where_nothing_happens_there_are_heartbeats(game: Any) -> None:
    async with connected(game) as socket, events(game, KINDS["top"]) as stream:
        beats = [await socket.next("heartbeat") for _ in range(2)]
        assert beats[0]["as_of"] < beats[1]["as_of"]
        event = await next_event(stream, "heartbeat")
        assert event["data"]["type"] == "heartbeat"
        assert "id" not in event


async def test_a_revoked_key_ends_what_it_opened(game: Any) -> None:
    async with connected(game) as socket, events(game, KINDS["top"]) as stream:
        await socket.subscribe("a", KINDS["top"])
        assert (await next_event(stream))["event"] == "snapshot"
        assert game.ask("DELETE", f"/keys/{game.key_ids['read']}").status_code == 204
        game.submit("ada", 5)
        assert await socket.closed() == 4401
        await ended(stream)


async def test_a_server_that_stops_says_so(new_served: Any) -> None:
    served = new_served().start()
    game = served.new_game()
    async with connected(game) as socket, events(game, KINDS["top"]) as stream:
        await socket.subscribe("a", KINDS["top"])
        assert (await next_event(stream))["event"] == "snapshot"
        served.process.terminate()
        assert await socket.closed() == 1001
        await ended(stream)
    assert await asyncio.to_thread(served.ended) == 0
    assert '"level":"error"' not in served.log()


async def test_windows_and_boards_that_go_end_or_begin_their_topics(game: Any) -> None:
    async with connected(game) as socket:
        await socket.subscribe("a", KINDS["top"])
        assert game.ask("DELETE", "/boards/best").status_code == 204
        told = await socket.next()
        assert (told["id"], told["type"]) == ("a", "error")
        assert told["code"] == "not_found"
        await socket.send("ping")
        assert (await socket.next())["type"] == "pong"


async def test_a_slow_reader_skips_to_how_things_stand_and_holds_up_nobody(game: Any) -> None:
    topic = {"kind": "top", "board": "best", "limit": 100}
    url = f"ws://127.0.0.1:{game.served.port}{game.path}/live"
    headers = {"authorization": f"Bearer {game.keys['read']}"}
    async with (
        websockets.connect(url, additional_headers=headers, max_queue=1, ping_interval=None) as slow,
        connected(game) as quick,
    ):
        await slow.send(json.dumps({"op": "subscribe", "id": "s", "topic": topic}))
        await quick.subscribe("q", topic)
        names = [f"player-{number:03}" + "x" * 100 for number in range(100)]
        for turn in range(40):
            game.submit_many(names, [turn * 1_000 + number for number in range(100)])
            assert (await quick.next())["type"] in ("change", "snapshot")
        last: dict[str, Any] = {}
        want = 39 * 1_000 + 99
        shown = 0
        for _ in range(2_000):
            last = json.loads(await asyncio.wait_for(slow.recv(), 5))
            if last["type"] in ("change", "snapshot"):
                shown = max([shown, *(entry["score"] for entry in last["data"]["entries"])])
            if shown == want:
                break
        assert shown == want
