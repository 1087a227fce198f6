"""Live updates: what a reader has is what is there, whatever happens to the connection in between."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from laurels.client import AsyncClient, Client, Retry
from laurels.errors import Forbidden, LaurelsError, LimitExceeded, NotFound, Unauthenticated

QUICK = Retry(tries=20, total_s=60.0, first_s=0.02, most_s=0.1)


async def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait for something that comes by itself."""
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, "it did not come"
        await asyncio.sleep(0.01)


def players(topic: Any) -> list[tuple[str, Any]]:
    return [(entry.player_id, entry.score) for entry in topic.entries]


@pytest.fixture
async def direct(server: Any) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, server.key, game="demo", retry=Retry(tries=100, most_s=0.2)) as client:
        yield client


async def test_each_topic_follows_what_happens(direct: AsyncClient) -> None:
    await direct.submit_many(["ada", "bob", "cyd"], [30, 20, 10])
    async with direct.follow(retry=QUICK) as live:
        top = live.top("best", 2)
        around = live.around("best", "cyd", 3)
        rank = live.rank("best", "cyd")
        plays = live.submissions("cyd")
        for topic in (top, around, rank, plays):
            update = await topic.next(60)
            assert update is not None
            assert (update.type, update.reason) == ("snapshot", "start")
        assert players(top) == [("ada", 30), ("bob", 20)]
        assert (rank.entry and rank.entry.rank, rank.total) == (3, 3)
        await direct.submit("cyd", 40)
        await until(lambda: players(top) == [("cyd", 40), ("ada", 30)])
        await until(lambda: [one.score for one in plays.submissions] == [10, 40])
        await until(lambda: rank.entry is not None and rank.entry.rank == 1)
        await until(lambda: [name for name, _ in players(around)] == ["cyd", "ada", "bob"])
        update = await top.next(60)
        assert update is not None
        assert update.type == "change"
        assert update.data.removed == ["bob"]
        assert [entry.player_id for entry in update.data.entries] == ["cyd", "ada"]
        seen = top.as_of
        await until(lambda: top.as_of != seen)  # heartbeats say that nothing has happened


async def test_a_server_that_beats_seldom_is_asked(direct: AsyncClient) -> None:
    async with direct.follow(heartbeat_s=0.05, heartbeats_max=10, retry=QUICK) as live:
        top = live.top("best")
        await top.ready()
        await asyncio.sleep(1.0)
        assert live.connections == 1


async def test_sets_and_other_games(server: Any, direct: AsyncClient) -> None:
    board = {"partition": ["mods", "hard"]}
    await direct.define_game("third", {"dimensions": {"mods": {"type": "set"}, "hard": {"type": "boolean"}}})
    client = direct.for_game("third")
    await client.define_board("modded", board)
    async with client.follow() as live:
        topic = live.top("modded", where={"mods": frozenset({"b", "a"}), "hard": True})
        await topic.ready()
        await client.submit("ada", 1, dimensions={"mods": {"a", "b"}, "hard": True})
        await until(lambda: players(topic) == [("ada", 1)])
        await client.drop_board("modded")
        await until(lambda: topic.ended)
        assert isinstance(topic.error, NotFound)


async def test_partitions_and_decimals(direct: AsyncClient) -> None:
    async with direct.follow() as live:
        topic = live.top("songs", where={"song": "x"}, names=True)
        await topic.ready()
        await direct.submit("ada", Decimal("1.25"), dimensions={"song": "x"})
        await until(lambda: players(topic) == [("ada", Decimal("1.25"))])
        assert isinstance(topic.entries[0].score, Decimal)


async def test_a_cut_connection_goes_on_where_it_was(server: Any, direct: AsyncClient, new_proxy: Any) -> None:
    proxy = new_proxy(server.port)
    client = AsyncClient(proxy.url, server.key, game="demo")
    async with client, client.follow(retry=QUICK) as live:
        top, plays = live.top("best", 50), live.submissions("p1")
        await top.ready()
        await plays.ready()
        for turn in range(5):
            proxy.refuse = True
            proxy.cut()
            await direct.submit_many([f"p{n}" for n in range(turn, turn + 5)], range(turn * 10, turn * 10 + 5))
            proxy.refuse = False
            await until(lambda turn=turn: len(top.entries) == turn + 5)
        await until(lambda: len(plays.submissions) == 2)
        expected = (await direct.top("best", 50, also=["order"])).entries
        await until(lambda: top.entries == expected)
        assert live.connections >= 6
        assert (top.gaps, plays.gaps) == (0, 0)
        seqs = []
        while (update := await top.next(0.0)) is not None:
            seqs.append(update.seq)
            assert update.reason in (None, "start")
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_a_silent_connection_is_given_up(server: Any, direct: AsyncClient, new_proxy: Any) -> None:
    proxy = new_proxy(server.port)
    client = AsyncClient(proxy.url, server.key, game="demo")
    async with client, client.follow(heartbeat_s=0.4, heartbeats_max=2.5, retry=QUICK) as live:
        top = live.top("best")
        await top.ready()
        assert live.connections == 1
        proxy.pause = True
        await direct.submit("ada", 1)
        await until(lambda: not live.is_connected)
        proxy.pause = False
        await until(lambda: players(top) == [("ada", 1)])


async def test_a_server_that_starts_again_tells_of_the_gap(server: Any, direct: AsyncClient) -> None:
    await direct.submit("ada", 1)
    async with direct.follow(retry=QUICK) as live:
        top = live.top("best")
        await top.ready()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await direct.submit("bob", 2)
        await until(lambda: players(top) == [("bob", 2), ("ada", 1)])
        assert top.gaps == 1
        reasons = []
        while (update := await top.next(0.0)) is not None:
            reasons.append(update.reason)
        assert reasons[:2] == ["start", "gap"]


async def test_a_reader_that_takes_nothing_is_told_of_a_gap(
    direct: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurels.client.topics.UPDATES_MAX", 3)
    async with direct.follow() as live:
        rank = live.rank("best", "ada")
        await rank.ready()
        for score in range(8):
            await direct.submit("ada", score)
            await until(lambda score=score: rank.entry is not None and rank.entry.score == score)
        updates = []
        while (update := await rank.next(0.0)) is not None:
            updates.append(update)
        assert len(updates) <= 4
        assert updates[0].reason == "gap"
        assert updates[-1].data.entry.score == 7


async def test_topics_that_make_no_sense(server: Any, direct: AsyncClient) -> None:
    async with direct.follow() as live:
        nowhere = live.top("nowhere")
        with pytest.raises(NotFound):
            await nowhere.ready()
        endless = live.top("best", 1_000_000)
        with pytest.raises(LimitExceeded) as caught:
            async for _ in endless:
                pass
        assert caught.value.field == "limit"
        assert caught.value.rule
        good = live.top("best")
        await good.ready()
        good.close()
        assert await good.next(0.0) is not None
        assert await good.next(60) is None
        assert [update async for update in good] == []
    with pytest.raises(LaurelsError):
        live.top("best")


async def test_whoever_may_not_is_told_at_once(server: Any, direct: AsyncClient) -> None:
    async with AsyncClient(server.url, "lk_nobody", game="demo") as nobody:
        with pytest.raises(Unauthenticated):
            async with nobody.follow():
                pass
    async with AsyncClient(server.url, server.key, game="nowhere") as lost:
        with pytest.raises(NotFound):
            async with lost.follow():
                pass
    token = await direct.player_token("ada")
    async with AsyncClient(server.url, token.token, game="demo") as player, player.follow() as live:
        with pytest.raises(Forbidden):
            await live.submissions("bob").ready()
        await live.submissions("ada").ready()


async def test_a_revoked_key_ends_it(server: Any, direct: AsyncClient) -> None:
    made = await direct.create_key("read")
    async with AsyncClient(server.url, made.key, game="demo") as reader, reader.follow(retry=QUICK) as live:
        topic = live.top("best")
        await topic.ready()
        await direct.revoke_key(made.key_id)
        assert await topic.next(60) is not None
        with pytest.raises(Unauthenticated):
            await topic.next(60)
        with pytest.raises(Unauthenticated):
            live.rank("best", "ada")


async def test_a_key_that_is_replaced_goes_on(server: Any, direct: AsyncClient) -> None:
    made = await direct.create_key("read")
    keys = [made.key]
    async with AsyncClient(server.url, lambda: keys[-1], game="demo") as reader, reader.follow(retry=QUICK) as live:
        topic = live.top("best")
        await topic.ready()
        keys.append((await direct.rotate_key(made.key_id)).key)
        await until(lambda: live.connections == 2 and live.is_connected)
        await direct.submit("ada", 1)
        await until(lambda: players(topic) == [("ada", 1)])
        assert topic.gaps == 0


def test_without_async(server: Any) -> None:
    with Client(server.url, server.key, game="demo") as client:
        client.submit("ada", 1)
        with client.follow() as live:
            top = live.top("best")
            first = top.next(60)
            assert first is not None
            assert first.reason == "start"
            client.submit("bob", 2)
            for update in top:
                assert update.type == "change"
                break
            assert [entry.player_id for entry in top.state.entries] == ["bob", "ada"]
            rank, around, plays = live.rank("best", "ada"), live.around("best", "ada"), live.submissions("ada")
            assert all(topic.next(60) is not None for topic in (rank, around, plays))
            top.close()
            assert top.next(60) is None
            ended: list[Any] = []
            waiting = threading.Thread(target=lambda: ended.append(list(rank)))
            waiting.start()
        waiting.join(60)
        assert ended == [[]]
        assert top.next() is None
        with pytest.raises(LaurelsError):
            live.top("best")


# --- a server that makes mistakes -----------------------------------------------------------------------------


class Mistaken:
    """Answers what it is told, and writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: list[list[dict[str, Any]]] = []

    async def serve(self, socket: ServerConnection) -> None:
        async for text in socket:
            frame = json.loads(text)
            self.asked.append(frame)
            if frame["op"] == "subscribe" and self.answers:
                for message in self.answers.pop(0):
                    await socket.send(json.dumps({"id": frame["id"], **message}))


def message(type: str, seq: int, entry: int, reason: str | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"type": type, "seq": seq, "resume": f"e.1.{seq}", "as_of": "2026-12-01T12:00:00Z"}
    told["data"] = {
        "total": 1,
        "removed": [],
        "entries": [{"rank": 1, "position": 1, "player_id": "a", "score": entry}],
    }
    return told | ({} if reason is None else {"reason": reason})


async def test_a_hole_is_never_accepted() -> None:
    mistaken = Mistaken()
    mistaken.answers = [
        [message("snapshot", 4, 1, "start"), message("change", 5, 2), message("change", 7, 3), message("change", 8, 4)],
        [message("change", 5, 9), message("change", 6, 5), message("change", 7, 6)],
    ]
    async with serve(mistaken.serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        client = AsyncClient(f"http://127.0.0.1:{port}", game="demo")
        async with client, client.follow(retry=QUICK) as live:
            top = live.top("best")
            seen = []
            while len(seen) < 4:
                update = await top.next(60)
                assert update is not None
                seen.append((update.seq, update.data.entries[0].score))
    assert seen == [(4, 1), (5, 2), (6, 5), (7, 6)]
    first, unsubscribe, again = mistaken.asked[:3]
    assert (first["op"], unsubscribe["op"], again["op"]) == ("subscribe", "unsubscribe", "subscribe")
    assert unsubscribe["id"] == first["id"]
    assert again["id"] != first["id"]
    assert (first.get("resume"), again["resume"]) == (None, "e.1.5")


async def test_a_refusal_of_something_in_between_is_sat_out() -> None:
    mistaken, refusals = Mistaken(), [(404, "<html>"), (500, ""), (503, "")]
    mistaken.answers = [[message("snapshot", 1, 1, "start")], [message("change", 2, 2)]]

    def refuse(connection: ServerConnection, request: Any) -> Any:
        is_first = not mistaken.asked
        return None if is_first or not refusals else connection.respond(*refusals.pop(0))

    async with serve(mistaken.serve, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        client = AsyncClient(f"http://127.0.0.1:{port}", game="demo")
        async with client, client.follow(retry=QUICK) as live:
            top = live.top("best")
            await top.ready()
            for connection in list(server.connections):
                connection.transport.abort()
            await until(lambda: players(top) == [("a", 2)])
    assert refusals == []
    assert mistaken.asked[-1]["resume"] == "e.1.1"


async def test_what_is_not_ready_is_asked_for_again() -> None:
    mistaken = Mistaken()
    mistaken.answers = [
        [{"type": "error", "code": "not_ready", "detail": "too many"}],
        [message("snapshot", 1, 1, "start")],
        [],
    ]
    async with serve(mistaken.serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        client = AsyncClient(f"http://127.0.0.1:{port}", game="demo")
        async with client, client.follow(retry=QUICK) as live:
            await asyncio.wait_for(live.top("best").ready(), 60)
    assert [frame["op"] for frame in mistaken.asked] == ["subscribe", "subscribe"]
