"""What subscribers of live topics are told. Ticks are made by hand."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from laurels import Board, Laurels
from laurels.config import LiveLimits
from laurels.errors import InvalidInput, LimitExceeded, NotFound, NotReady
from laurels.games import Game
from laurels.live import Connection, Hub, Message, Subscription, Topic, id_prefix
from laurels.model import Limits

CONFIG: dict[str, Any] = {
    "games": {
        "g": {
            "dimensions": {"modifiers": {"type": "set"}},
            "boards": {
                "best": {},
                "daily": {"window": {"every": "day", "keep": 1}},
                "songs": {"partition": ["track", "modifiers"]},
            },
        },
        "races": {"boards": {"time": {"order": ["score asc"], "scale": 3}}},
    }
}
ENCODER = msgspec.json.Encoder(decimal_format="number")


class Monotonic:
    """A clock for grace times."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(url: str, clock: Any = None, **limits: Any) -> AsyncIterator[tuple[Game, Hub]]:
    async with Laurels.open(url, config=CONFIG, clock=clock) as laurels:
        hub = Hub(laurels, LiveLimits(**limits), monotonic=Monotonic())
        yield laurels.game("g"), hub
        await hub.stop()


def told(subscription: Subscription) -> list[dict[str, Any]]:
    """All that there is to take now."""
    found = []
    while (message := subscription.take()) is not None:
        found.append(json.loads(message.body))
    return found


def ids(message: dict[str, Any]) -> list[str]:
    return [entry["player_id"] for entry in message["data"]["entries"]]


def plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(ENCODER.encode(value))


TOP = Topic(kind="top", board="best", limit=3)


# --- kinds ------------------------------------------------------------------------------------------------------


async def test_top_begins_with_a_snapshot_and_goes_on_with_changes(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit_many(["amy", "bob", "cat", "dan"], [40, 30, 20, 10])
        top = await hub.subscribe("g", TOP)
        (snapshot,) = told(top)
        assert snapshot["type"] == "snapshot"
        assert snapshot["reason"] == "start"
        assert snapshot["data"]["total"] == 4
        assert snapshot["data"]["entries"] == plain(await game.board("best").top(3, details=False))
        await hub.tick()
        assert told(top) == []
        await game.submit("dan", 35)
        await hub.tick()
        (change,) = told(top)
        assert change["type"] == "change"
        assert change["seq"] == snapshot["seq"] + 1
        assert change["data"]["removed"] == ["cat"]
        assert [(entry["player_id"], entry["position"]) for entry in change["data"]["entries"]] == [
            ("dan", 2),
            ("bob", 3),
        ]
        assert "reason" not in change
        assert change["as_of"].endswith("Z")


async def test_messages_carry_decimals_as_numbers_and_instants_as_text(url: str) -> None:
    async with opened(url) as (_, hub):
        await hub.laurels.game("races").submit("amy", Decimal("12.345"))
        time = await hub.subscribe("races", Topic(kind="top", board="time"))
        message = time.take()
        assert message is not None
        assert b'"score":12.345' in message.body
        assert message.with_id(id_prefix('a"b')).startswith(b'{"id":"a\\"b","type":"snapshot","seq":1,')
        assert json.loads(message.with_id(id_prefix("x")))["id"] == "x"


async def test_rank_follows_one_player(url: str) -> None:
    async with opened(url) as (game, hub):
        rank = await hub.subscribe("g", Topic(kind="rank", board="best", player_id="amy"))
        (nothing,) = told(rank)
        assert nothing["data"] == {"total": 0, "entry": None, "percentile": None}
        await game.submit_many(["amy", "bob"], [10, 20])
        await hub.tick()
        (change,) = told(rank)
        standing = await game.board("best").entry("amy", details=False)
        assert change["data"] == plain(
            {"total": standing.total, "entry": standing.entry, "percentile": standing.percentile}
        )
        await game.submit("bob", 15)  # no better
        await hub.tick()
        assert told(rank) == []


async def test_around_keeps_the_player_in_the_middle(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit_many([f"p{n}" for n in range(9)], [90 - n for n in range(9)])
        around = await hub.subscribe("g", Topic(kind="around", board="best", player_id="p4", limit=3))
        gone = await hub.subscribe("g", Topic(kind="around", board="best", player_id="nobody", limit=3))
        assert ids(told(around)[0]) == ["p3", "p4", "p5"]
        assert told(gone)[0]["data"] == {"total": 9, "entries": []}
        await game.submit("p4", 100)
        await hub.tick()
        (change,) = told(around)
        assert sorted(change["data"]["removed"]) == ["p3", "p5"]
        assert ids(change) == ["p4", "p0", "p1"]


async def test_submissions_of_a_player_come_in_order(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit_many(["amy"] * 12, list(range(12)))
        plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        (snapshot,) = told(plays)
        assert [play["score"] for play in snapshot["data"]["submissions"]] == list(range(2, 12))
        await game.submit("bob", 1)
        await hub.tick()
        assert told(plays) == []
        await game.submit("amy", 5)
        await game.submit("amy", 3)
        await _tick_until_settled(hub)
        (change,) = told(plays)
        assert [play["score"] for play in change["data"]["submissions"]] == [5, 3]
        late = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        assert [play["score"] for play in told(late)[0]["data"]["submissions"]][-3:] == [11, 5, 3]


async def test_submissions_that_feed_no_board_are_told(url: str) -> None:
    async with Laurels.open(url, config={"games": {"g": {}}}) as laurels:
        hub = Hub(laurels)
        plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        assert told(plays)[0]["data"] == {"submissions": []}
        await laurels.game("g").submit("amy", 5)
        await _tick_until_settled(hub)
        assert [play["score"] for play in told(plays)[0]["data"]["submissions"]] == [5]
        await hub.stop()


async def test_submission_that_is_just_being_committed_is_told_when_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as (game, hub):
        await game.submit("amy", 5)
        await hub.tick()

        async def nothing_yet(*_: Any) -> list[Any]:
            return []

        with monkeypatch.context() as patch:
            patch.setattr(game, "newest", nothing_yet)
            plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
            assert told(plays)[0]["data"] == {"submissions": []}
        await hub.tick()
        assert [play["score"] for play in told(plays)[0]["data"]["submissions"]] == [5]


async def test_more_submissions_than_a_change_holds_are_told_as_a_gap(url: str) -> None:
    async with opened(url, rows_max=20) as (game, hub):
        await game.submit("amy", 1)
        plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        told(plays)
        await game.submit_many(["amy"] * 21, list(range(21)))
        await _tick_until_settled(hub)
        (snapshot,) = told(plays)
        assert (snapshot["type"], snapshot["reason"]) == ("snapshot", "gap")
        assert [play["score"] for play in snapshot["data"]["submissions"]] == list(range(11, 21))


async def test_erased_player_has_no_submissions(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit("amy", 1)
        plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        told(plays)
        await game.remove_player("amy")
        await _tick_until_settled(hub)
        (snapshot,) = told(plays)
        assert snapshot["type"] == "snapshot"
        assert snapshot["data"] == {"submissions": []}
        await game.submit("amy", 2)
        await _tick_until_settled(hub)
        assert [play["score"] for play in told(plays)[0]["data"]["submissions"]] == [2]


async def _tick_until_settled(hub: Hub) -> None:
    """A submission is acknowledged and its place settled at the same time; what was read meanwhile is read again."""
    await hub.tick()
    await hub.tick()


async def test_names_are_told_if_asked_for(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit("amy", 1)
        await game.describe("player_id", {"amy": {"name": "Amy"}, "bob": {"name": "Bob"}})
        without = await hub.subscribe("g", TOP)
        named = await hub.subscribe("g", Topic(kind="top", board="best", limit=3, names=True))
        rank = await hub.subscribe("g", Topic(kind="rank", board="best", player_id="amy", names=True))
        assert "name" not in told(without)[0]["data"]["entries"][0]
        assert told(named)[0]["data"]["entries"][0]["name"] == "Amy"
        assert told(rank)[0]["data"]["entry"]["name"] == "Amy"
        await game.submit("bob", 2)
        await hub.tick()
        assert [entry["name"] for entry in told(named)[0]["data"]["entries"]] == ["Bob", "Amy"]
        await game.describe("player_id", {"amy": {"name": "Amelia"}})
        late = await hub.subscribe("g", Topic(kind="top", board="best", limit=3, names=True))
        assert [entry["name"] for entry in told(late)[0]["data"]["entries"]] == ["Bob", "Amelia"]
        assert [entry["name"] for entry in told(named)[0]["data"]["entries"]] == ["Amelia"]


async def test_topics_that_make_no_sense_are_refused(url: str) -> None:
    async with opened(url) as (_, hub):
        for topic, field in (
            (Topic(kind="top"), "board"),
            (Topic(kind="top", board="best", player_id="amy"), "player_id"),
            (Topic(kind="rank", board="best"), "player_id"),
            (Topic(kind="rank", board="best", player_id="amy", limit=3), "limit"),
            (Topic(kind="top", board="best", limit=0), "limit"),
            (Topic(kind="top", board="best", limit=101), "limit"),
            (Topic(kind="top", board="best", where={"track": "x"}), "track"),
            (Topic(kind="submissions", player_id="amy", board="best"), "board"),
            (Topic(kind="submissions", player_id="amy", names=True), "names"),
            (Topic(kind="submissions", player_id=""), "player_id"),
        ):
            with pytest.raises(InvalidInput) as caught:
                await hub.subscribe("g", topic)
            assert caught.value.field == field
        with pytest.raises(NotFound):
            await hub.subscribe("g", Topic(kind="top", board="none"))
        with pytest.raises(NotFound):
            await hub.subscribe("other", TOP)
        assert hub.subscriber_count == 0
        assert hub.topic_count == 0


async def test_partitions_are_topics_of_their_own(url: str) -> None:
    async with opened(url) as (game, hub):
        where = {"track": "a", "modifiers": ["x", "y"]}
        mine = await hub.subscribe("g", Topic(kind="top", board="songs", where=where))
        same = await hub.subscribe("g", Topic(kind="top", board="songs", where={**where, "modifiers": ["y", "x"]}))
        other = await hub.subscribe("g", Topic(kind="top", board="songs", where={**where, "track": "b"}))
        assert hub.topic_count == 2
        for one in (mine, same, other):
            told(one)
        await game.submit("amy", 1, dimensions=where)
        await hub.tick()
        assert ids(told(mine)[0]) == ids(told(same)[0]) == ["amy"]
        assert told(other) == []


# --- coalescing, resuming, falling behind -----------------------------------------------------------------------


async def test_all_between_two_ticks_is_one_message(url: str) -> None:
    async with opened(url) as (game, hub):
        top = await hub.subscribe("g", TOP)
        told(top)
        for score in range(20):
            await game.submit("amy", score)
        await hub.tick()
        (change,) = told(top)
        assert change["data"]["entries"][0]["score"] == 19
        await game.submit("bob", 5)
        await game.board("best").remove("bob")
        await hub.tick()
        assert told(top) == []  # as it was


async def test_resume_gives_what_was_missed_and_nothing_else(url: str) -> None:
    async with opened(url) as (game, hub):
        first = await hub.subscribe("g", TOP)
        stays = await hub.subscribe("g", TOP)
        tokens = [message["resume"] for message in told(first)]
        seqs = [message["seq"] for message in told(stays)]
        for score in range(5):
            await game.submit("amy", score)
            await hub.tick()
            tokens += [message["resume"] for message in told(first)]
        seqs += [message["seq"] for message in told(stays)]
        assert seqs == list(range(1, 7))
        first.close()
        for at, token in enumerate(tokens):
            again = await hub.subscribe("g", TOP, resume=token)
            missed = told(again)
            assert [message["seq"] for message in missed] == seqs[at + 1 :]
            assert all(message["type"] == "change" for message in missed)
            again.close()


async def test_resume_of_a_topic_that_nobody_watched_meanwhile(url: str) -> None:
    async with opened(url) as (game, hub):
        top = await hub.subscribe("g", TOP)
        token = told(top)[0]["resume"]
        top.close()
        await game.submit("amy", 1)
        await hub.tick()
        await game.submit("bob", 2)
        again = await hub.subscribe("g", TOP, resume=token)
        (change,) = told(again)
        assert (change["type"], change["seq"], ids(change)) == ("change", 2, ["bob", "amy"])


@pytest.mark.parametrize(
    "wrong", ["", "x", "a.b.c", "{name}.99", "{name}.-1", "{name}.", "{name}.1e3", "{name}.\u0661"]
)
async def test_resume_from_elsewhere_is_a_gap(url: str, wrong: str) -> None:
    async with opened(url) as (_, hub):
        top = await hub.subscribe("g", TOP)
        name = told(top)[0]["resume"].rpartition(".")[0]
        again = await hub.subscribe("g", TOP, resume=wrong.replace("{name}", name))
        (snapshot,) = told(again)
        assert (snapshot["type"], snapshot["reason"]) == ("snapshot", "gap")


async def test_topic_is_let_go_after_its_grace(url: str) -> None:
    async with opened(url, grace_s=60) as (game, hub):
        monotonic: Any = hub._monotonic
        top = await hub.subscribe("g", TOP)
        token = told(top)[0]["resume"]
        await game.submit("amy", 1)
        await hub.tick()
        top.close()
        assert hub.ring_bytes > 0
        monotonic.now = 59
        await hub.tick()
        again = await hub.subscribe("g", TOP, resume=token)
        assert [message["type"] for message in told(again)] == ["change"]
        again.close()
        monotonic.now = 130
        await hub.tick()
        assert (hub.topic_count, hub.ring_bytes, hub.subscriber_count) == (0, 0, 0)
        late = await hub.subscribe("g", TOP, resume=token)
        assert [message["reason"] for message in told(late)] == ["gap"]


async def test_slow_subscriber_is_told_that_it_missed_some(url: str) -> None:
    async with opened(url, ring_messages_max=4) as (game, hub):
        slow, fast = await hub.subscribe("g", TOP), await hub.subscribe("g", TOP)
        told(slow), told(fast)
        seqs = []
        for score in range(10):
            await game.submit("amy", score)
            await hub.tick()
            seqs += [message["seq"] for message in told(fast)]
        assert seqs == list(range(2, 12))
        (snapshot,) = told(slow)
        assert (snapshot["type"], snapshot["reason"], snapshot["seq"]) == ("snapshot", "gap", 11)
        assert snapshot["data"]["entries"][0]["score"] == 9
        await game.submit("amy", 10)
        await hub.tick()
        assert [message["seq"] for message in told(slow)] == [12]


async def test_rings_are_bounded_by_their_bytes(url: str) -> None:
    async with opened(url, ring_bytes_max=2_000, rings_bytes_max=2_500) as (game, hub):
        some = [await hub.subscribe("g", TOP), await hub.subscribe("g", Topic(kind="top", board="best", limit=4))]
        for score in range(50):
            await game.submit("amy", score)
            await hub.tick()
            assert hub.ring_bytes <= 2_500
        assert [[message["type"] for message in told(one)][-1] for one in some] == ["snapshot", "snapshot"]


async def test_newcomer_sees_what_was_acknowledged(url: str) -> None:
    async with opened(url) as (game, hub):
        first = await hub.subscribe("g", TOP)
        told(first)
        await hub.tick()
        await game.submit("amy", 1)
        second = await hub.subscribe("g", TOP)
        assert ids(told(second)[0]) == ["amy"]
        assert ids(told(first)[0]) == ["amy"]
        await game.submit("bob", 2)
        third = await hub.subscribe("g", TOP)  # a second time within a tick: it waits
        assert told(third) == []
        await hub.tick()
        assert ids(told(third)[0]) == ["bob", "amy"]
        assert [message["type"] for message in told(second)] == ["change"]


async def test_waiting_newcomer_can_leave(url: str) -> None:
    async with opened(url) as (game, hub):
        first = await hub.subscribe("g", TOP)
        await game.submit("amy", 1)
        second = await hub.subscribe("g", TOP)
        second.close()
        await hub.tick()
        assert [message["seq"] for message in told(first)] == [2]
        assert told(second) == []
        assert hub.subscriber_count == 1


# --- windows, definitions, moderation ---------------------------------------------------------------------------


async def test_next_window_begins_with_a_snapshot(url: str, clock: Any) -> None:
    async with opened(url, clock) as (game, hub):
        await game.submit("amy", 1)
        today = await hub.subscribe("g", Topic(kind="top", board="daily"))
        this_day = await hub.subscribe("g", Topic(kind="top", board="daily", at=clock.now))
        assert ids(told(today)[0]) == ids(told(this_day)[0]) == ["amy"]
        await hub.tick()
        clock.advance(days=1)
        await hub.tick()
        (turned,) = told(today)
        assert (turned["type"], turned["reason"], turned["seq"]) == ("snapshot", "window", 2)
        assert turned["data"] == {"total": 0, "entries": []}
        assert told(this_day) == []
        await game.submit("bob", 2)
        await hub.tick()
        assert ids(told(today)[0]) == ["bob"]
        clock.advance(days=1)
        await hub.tick()
        assert told(today)[0]["reason"] == "window"
        (error,) = told(this_day)  # no longer kept
        assert (error["type"], error["code"]) == ("error", "not_found")
        assert this_day.ended


async def test_redefined_board_begins_with_a_snapshot(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit_many(["amy", "bob"], [1, 2])
        top = await hub.subscribe("g", TOP)
        assert ids(told(top)[0]) == ["bob", "amy"]
        await game.define_board("best", Board(order=("score asc",)))
        await hub.tick()
        (snapshot,) = told(top)
        assert (snapshot["type"], snapshot["reason"]) == ("snapshot", "board")
        assert ids(snapshot) == ["amy", "bob"]
        await game.define_board("best", Board(partition=("track",)))
        await hub.tick()
        (error,) = told(top)
        assert (error["type"], error["code"]) == ("error", "invalid_input")
        assert top.ended


async def test_dropped_board_ends_its_topics(url: str) -> None:
    async with opened(url) as (game, hub):
        top = await hub.subscribe("g", TOP)
        rank = await hub.subscribe("g", Topic(kind="rank", board="best", player_id="amy"))
        told(top), told(rank)
        await game.submit("amy", 1)
        await hub.tick()
        await game.drop_board("best")
        await hub.tick()
        assert [message["type"] for message in told(top)] == ["change", "error"]
        assert [message["type"] for message in told(rank)] == ["change", "error"]
        assert await top.next() is None
        assert hub.topic_count == hub.subscriber_count == hub.ring_bytes == 0
        await game.define_board("best", Board())
        again = await hub.subscribe("g", TOP)
        assert ids(told(again)[0]) == ["amy"]


async def test_bans_and_removals_are_changes(url: str) -> None:
    async with opened(url) as (game, hub):
        await game.submit_many(["amy", "bob", "cat", "dan"], [4, 3, 2, 1])
        top = await hub.subscribe("g", TOP)
        told(top)
        await game.ban("amy")
        await hub.tick()
        (change,) = told(top)
        assert (change["data"]["removed"], change["data"]["total"]) == (["amy"], 3)
        assert ids(change) == ["bob", "cat", "dan"]
        await game.unban("amy")
        await hub.tick()
        assert ids(told(top)[0]) == ["amy", "bob", "cat"]
        await game.board("best").remove("bob")
        await hub.tick()
        (change,) = told(top)
        assert (change["data"]["removed"], ids(change)) == (["bob"], ["cat", "dan"])
        await game.remove_player("cat")
        await hub.tick()
        assert told(top)[0]["data"]["removed"] == ["cat"]


async def test_instances_that_are_not_in_memory_are_watched_too(url: str) -> None:
    config = {**CONFIG, "limits": Limits(index_bytes_max=1)}
    async with Laurels.open(url, config=msgspec.to_builtins(config)) as laurels:
        game, hub = laurels.game("g"), Hub(laurels)
        board = game.live_board("best")
        await game.submit_many(["amy", "bob"], [2, 1])
        top = await hub.subscribe("g", TOP)
        assert ids(told(top)[0]) == ["amy", "bob"]

        def evicted(_: int) -> None:
            laurels._indexes.unwritten()  # takes notice that nothing is
            laurels._indexes.evict()

        async def evict() -> None:
            await laurels._store.settled(evicted)
            assert game.resident(board, board.ranker.place({}, 0)) is None

        await evict()
        await hub.tick()
        assert told(top) == []
        await game.ban("amy")
        await evict()
        await hub.tick()
        assert told(top)[0]["data"]["removed"] == ["amy"]
        await evict()
        await game.submit("cat", 9)
        await hub.tick()
        assert ids(told(top)[0]) == ["cat", "bob"]
        await hub.stop()


async def test_followers_are_told_what_another_process_wrote(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as writer, Laurels.open(url, read_only=True) as reader:
        hub = Hub(reader)
        top = await hub.subscribe("g", TOP)
        plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        told(top), told(plays)
        await writer.game("g").submit("amy", 1)
        await hub.tick()
        assert ids(told(top)[0]) == ["amy"]
        assert [play["score"] for play in told(plays)[0]["data"]["submissions"]] == [1]
        await hub.stop()


# --- limits, connections, the end -------------------------------------------------------------------------------


async def test_limits(url: str) -> None:
    async with opened(url, subscribers_max=3, topics_max=2, topics_per_connection_max=2) as (_, hub):
        connection = Connection()
        one = await hub.subscribe("g", TOP, connection=connection)
        await hub.subscribe("g", Topic(kind="top", board="best", limit=4), connection=connection)
        with pytest.raises(LimitExceeded):
            await hub.subscribe("g", TOP, connection=connection)
        with pytest.raises(NotReady):
            await hub.subscribe("g", Topic(kind="top", board="best", limit=5))
        await hub.subscribe("g", TOP)
        with pytest.raises(NotReady):
            await hub.subscribe("g", TOP)
        one.close()
        await hub.subscribe("g", TOP)
        connection.close()
        assert hub.subscriber_count == 2


async def test_one_wait_for_all_topics_of_a_connection(url: str) -> None:
    async with opened(url) as (game, hub):
        connection = Connection()
        top = await hub.subscribe("g", TOP, connection=connection)
        rank = await hub.subscribe("g", Topic(kind="rank", board="best", player_id="amy"), connection=connection)
        await connection.wait()  # for the snapshots
        told(top), told(rank)
        waiting = asyncio.create_task(connection.wait())
        await hub.tick()
        await asyncio.sleep(0)
        assert not waiting.done()
        await game.submit("amy", 1)
        await hub.tick()
        await waiting
        assert len(told(top)) == len(told(rank)) == 1
        waiting = asyncio.create_task(connection.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await game.submit("amy", 2)
        await hub.tick()
        await connection.wait()  # what came meanwhile is not lost
        waiting = asyncio.create_task(connection.wait())
        await asyncio.sleep(0)
        connection.close()
        await waiting


async def test_many_subscribers_share_one_message(url: str) -> None:
    async with opened(url) as (game, hub):
        many = [await hub.subscribe("g", TOP) for _ in range(2_000)]
        for one in many:
            assert one.take() is not None
        readers = [asyncio.create_task(one.next()) for one in many]
        await asyncio.sleep(0)
        await game.submit("amy", 1)
        await hub.tick()
        messages = await asyncio.gather(*readers)
        assert len({id(message) for message in messages}) == 1
        assert isinstance(messages[0], Message)
        assert messages[0].seq == 2


async def test_stop_ends_all(url: str) -> None:
    async with opened(url) as (_, hub):
        await hub.start()
        top = await hub.subscribe("g", TOP)

        async def read() -> int:
            return len([message async for message in top])

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await hub.stop()
        assert await reading == 1
        with pytest.raises(NotReady):
            await hub.subscribe("g", TOP)


async def test_hub_looks_by_itself(url: str) -> None:
    async with opened(url, tick_s=0.01) as (game, hub):
        await hub.start()
        top = await hub.subscribe("g", TOP)
        assert await top.next() is not None
        await game.submit("amy", 1)
        message = await top.next()
        assert message is not None
        assert message.type == "change"


async def test_heartbeat_says_up_to_when_all_was_told(url: str, clock: Any) -> None:
    async with opened(url, clock) as (_, hub):
        clock.advance(seconds=5)
        await hub.tick()
        assert json.loads(hub.heartbeat()) == {"type": "heartbeat", "as_of": "2026-12-01T12:00:05Z"}


async def test_failing_store_is_asked_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as (game, hub):
        top = await hub.subscribe("g", Topic(kind="top", board="best", names=True))
        told(top)
        await game.submit("amy", 1)

        async def fail(*_: Any) -> Any:
            raise NotReady("later")

        with monkeypatch.context() as patch:
            patch.setattr(game, "descriptions", fail)
            await hub.tick()
            assert told(top) == []
        await hub.tick()
        assert ids(told(top)[0]) == ["amy"]


async def test_slow_topic_holds_up_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as (game, hub):
        await game.submit("amy", 1)
        slow = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        quick = await hub.subscribe("g", TOP)
        told(slow), told(quick)
        released = asyncio.Event()
        newest = game.newest

        async def newest_later(player_id: str, limit: int) -> Any:
            await released.wait()
            return await newest(player_id, limit)

        monkeypatch.setattr(game, "newest", newest_later)
        before = json.loads(hub.heartbeat())["as_of"]
        for score in (2, 3):
            await game.submit("amy", score)
            await hub.tick(0)
            assert told(quick)[0]["data"]["entries"][0]["score"] == score
        assert json.loads(hub.heartbeat())["as_of"] == before  # not all is told
        released.set()
        await hub.tick()
        await _tick_until_settled(hub)
        assert [play["score"] for message in told(slow) for play in message["data"]["submissions"]] == [2, 3]
        assert json.loads(hub.heartbeat())["as_of"] > before


async def test_connection_that_closes_while_it_subscribes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as (game, hub):
        released = asyncio.Event()
        ready_board = game.ready_board

        async def ready_later(name: str) -> Any:
            await released.wait()
            return await ready_board(name)

        monkeypatch.setattr(game, "ready_board", ready_later)
        connection = Connection()
        joining = asyncio.create_task(hub.subscribe("g", TOP, connection=connection))
        cancelled = asyncio.create_task(hub.subscribe("g", TOP))
        await asyncio.sleep(0)
        connection.close()
        cancelled.cancel()
        released.set()
        with pytest.raises(NotReady):
            await joining
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (hub.subscriber_count, len(connection.subscriptions)) == (0, 0)
        hub._monotonic.now = 100.0  # type: ignore[attr-defined]
        await hub.tick()
        assert hub.topic_count == 0


async def test_watching_ends_with_an_error_where_a_bug_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as (game, hub):
        top = await hub.subscribe("g", TOP)
        plays = await hub.subscribe("g", Topic(kind="submissions", player_id="amy"))
        told(top), told(plays)

        async def broken(*_: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(game, "newest", broken)
        await game.submit("amy", 1)
        await hub.tick()
        (error,) = told(plays)
        assert (error["type"], error["code"]) == ("error", "internal")
        assert [message["type"] for message in told(top)] == ["change"]
