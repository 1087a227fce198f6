"""Whatever happens, a reader that starts from a snapshot and takes what it is told in turn has what is there."""

import asyncio
import json
import tempfile
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from laurels import Board, Laurels
from laurels.config import LiveLimits
from laurels.errors import LaurelsError, NotFound
from laurels.live import Hub, Subscription, Topic

PLAYERS = [f"p{n}" for n in range(8)]
BOARDS = [Board(), Board(policy="sum", order=("score desc",)), Board(ranking="dense", order=("score asc",))]
CONFIG = {
    "games": {
        "g": {
            "boards": {
                "best": {},
                "total": {"policy": "sum", "order": ["score desc"]},
                "hourly": {"policy": "last", "window": {"every": "1 hour"}},
            }
        }
    }
}
TOPICS = [
    Topic(kind="top", board="best", limit=3),
    Topic(kind="top", board="total", limit=20),
    Topic(kind="top", board="hourly", limit=4, names=True),
    Topic(kind="around", board="best", player_id="p0", limit=3),
    Topic(kind="around", board="hourly", player_id="p1", limit=4),
    Topic(kind="rank", board="total", player_id="p2"),
    Topic(kind="submissions", player_id="p3"),
]
ENCODER = msgspec.json.Encoder(decimal_format="number")


class Reader:
    """One who watches: comes and goes, may be slow, and believes nothing but what it is told."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.subscription: Subscription | None = None
        self.resume: str | None = None
        self.seq = 0
        self.data: dict[str, Any] = {}

    async def connect(self, hub: Hub) -> None:
        if self.subscription is None:
            self.subscription = await hub.subscribe("g", self.topic, resume=self.resume)

    def disconnect(self) -> None:
        if self.subscription is not None:
            self.subscription.close()
            self.subscription = None

    def take(self, most: int) -> None:
        while self.subscription is not None and most:
            message = self.subscription.take()
            if message is None:
                break
            most -= 1
            told = json.loads(message.body)
            assert told["type"] in ("snapshot", "change"), told
            assert (told["seq"], told["resume"]) == (message.seq, message.resume)
            if told.get("reason") not in ("start", "gap"):
                assert told["seq"] == self.seq + 1, "a seq is missing, repeated, or out of order"
            self.seq, self.resume = told["seq"], told["resume"]
            if told["type"] == "snapshot" or self.topic.kind == "rank":
                self.data = told["data"]
            elif self.topic.kind == "submissions":
                self.data["submissions"] += told["data"]["submissions"]
            else:
                self.absorb(told["data"])

    def absorb(self, change: dict[str, Any]) -> None:
        """As the documents tell a client to do it."""
        by_player = {entry["player_id"]: entry for entry in self.data["entries"]}
        for player_id in change["removed"]:
            del by_player[player_id]
        for entry in change["entries"]:
            by_player[entry["player_id"]] = entry
        entries = sorted(by_player.values(), key=lambda entry: entry["position"])
        self.data = {"total": change["total"], "entries": entries}


async def right(laurels: Laurels, topic: Topic) -> Any:
    """What the board itself says."""
    game = laurels.game("g")
    if topic.kind == "submissions":
        plays = (await game.history(str(topic.player_id), limit=200)).items
        return {"submissions": plays[::-1]}
    board = game.board(str(topic.board))
    total = await board.count()
    try:
        if topic.kind == "top":
            entries = await board.top(topic.limit or 10, details=topic.names)
        elif topic.kind == "around":
            entries = await board.around(str(topic.player_id), topic.limit or 11, details=False)
        else:
            standing = await board.entry(str(topic.player_id), details=False)
            return {"total": total, "entry": standing.entry, "percentile": standing.percentile}
    except NotFound:
        if topic.kind == "rank":
            return {"total": total, "entry": None, "percentile": None}
        entries = []
    return {"total": total, "entries": [msgspec.structs.replace(entry, submission=None) for entry in entries]}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now


players = st.sampled_from(PLAYERS)
readers = st.integers(0, 2 * len(TOPICS) - 1)
steps = st.one_of(
    st.tuples(st.just("submit"), st.lists(st.tuples(players, st.integers(-5, 20)), min_size=1, max_size=6)),
    st.tuples(st.just("submit"), st.lists(st.tuples(players, st.integers(-5, 20)), min_size=1, max_size=6)),
    st.tuples(st.just("remove"), st.tuples(st.sampled_from(["best", "total", "hourly"]), players)),
    st.tuples(st.just("ban"), players),
    st.tuples(st.just("erase"), players),
    st.tuples(st.just("define"), st.sampled_from(BOARDS)),
    st.tuples(st.just("hour"), st.integers(0, 60)),
    st.tuples(st.just("grace"), st.integers(1, 90)),
    st.tuples(st.just("evict"), st.none()),
    st.tuples(st.just("tick"), st.none()),
    st.tuples(st.just("tick"), st.none()),
    st.tuples(st.just("connect"), readers),
    st.tuples(st.just("disconnect"), readers),
    st.tuples(st.just("take"), st.tuples(readers, st.integers(1, 9))),
)


class Run:
    """A store, a hub, two readers of each topic, and the steps."""

    def __init__(self, laurels: Laurels, clock: Clock) -> None:
        self.laurels = laurels
        self.game = laurels.game("g")
        self.clock = clock
        self.monotonic = 0.0
        limits = LiveLimits(ring_messages_max=4, ring_bytes_max=3_000, rings_bytes_max=9_000)
        self.hub = Hub(laurels, limits, monotonic=lambda: self.monotonic)
        self.readers = [Reader(topic) for topic in TOPICS for _ in range(2)]

    async def step(self, name: str, argument: Any) -> None:
        game = self.game
        if name == "submit":
            await game.submit_many([player for player, _ in argument], [score for _, score in argument])
        elif name == "remove":
            await game.board(argument[0]).remove(argument[1])
        elif name == "ban":
            await (game.unban(argument) if argument in game.banned() else game.ban(argument))
        elif name == "erase":
            await game.remove_player(argument)
        elif name == "define":
            await game.define_board("best", argument)
        elif name == "hour":
            self.clock.now += argument * 60_000_000
        elif name == "grace":
            self.monotonic += argument
        elif name == "evict":
            await self.laurels._store.settled(self.evict)
        elif name == "tick":
            await self.hub.tick()
        elif name == "connect":
            await self.readers[argument].connect(self.hub)
        elif name == "disconnect":
            self.readers[argument].disconnect()
        elif name == "take":
            self.readers[argument[0]].take(argument[1])

    def evict(self, _: int) -> None:
        indexes = self.laurels._indexes
        indexes.unwritten()
        indexes._bytes_max, before = 1, indexes._bytes_max
        indexes.evict()
        indexes._bytes_max = before

    async def check(self) -> None:
        """All that are there, once they have taken what there is."""
        for reader in self.readers:
            await reader.connect(self.hub)
        for _ in range(3):
            await self.hub.tick()
        for reader in self.readers:
            reader.take(1_000)
            expected = json.loads(ENCODER.encode(await right(self.laurels, reader.topic)))
            found = dict(reader.data)
            if reader.topic.kind == "submissions":  # a snapshot holds the latest ten
                shown = len(found["submissions"])
                assert shown >= min(10, len(expected["submissions"]))
                expected = {"submissions": expected["submissions"][-shown:] if shown else []}
            assert found == expected, reader.topic
        assert self.hub.ring_bytes <= 9_000 + 3_000 * len(TOPICS)


def run(work: Callable[[Run], Any]) -> None:
    async def opened() -> None:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            async with Laurels.open(f"sqlite:///{folder}/store.db", config=CONFIG, clock=clock) as laurels:
                a_run = Run(laurels, clock)
                await work(a_run)
                for reader in a_run.readers:
                    reader.disconnect()
                await a_run.hub.stop()
                assert (a_run.hub.subscriber_count, a_run.hub.topic_count, a_run.hub.ring_bytes) == (0, 0, 0)

    asyncio.run(opened())


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=60))
def test_snapshot_and_changes_give_the_list(todo: list[tuple[str, Any]]) -> None:
    async def work(a_run: Run) -> None:
        for reader in a_run.readers[::2]:
            await reader.connect(a_run.hub)
        for number, (name, argument) in enumerate(todo, start=1):
            await a_run.step(name, argument)
            if number % 20 == 0:
                await a_run.check()
        await a_run.check()

    run(work)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(st.tuples(players, st.integers(-5, 20)), min_size=1, max_size=6), min_size=5, max_size=30))
def test_while_others_submit(batches: list[list[tuple[str, int]]]) -> None:
    """Ticks, newcomers and submissions all at once: nobody waits for anybody."""

    async def work(a_run: Run) -> None:
        async def submit() -> None:
            for batch in batches:
                await a_run.step("submit", batch)
                await asyncio.sleep(0)

        async def come_and_go(reader: Reader) -> None:
            for number in range(len(batches)):
                await reader.connect(a_run.hub)
                await asyncio.sleep(0)
                reader.take(number % 3)
                if number % 4 == 3:
                    reader.disconnect()

        async def tick() -> None:
            for _ in batches:
                await a_run.hub.tick(0.0)

        try:
            await asyncio.gather(submit(), submit(), tick(), *map(come_and_go, a_run.readers))
        except LaurelsError as error:
            raise AssertionError(error) from error
        await a_run.check()

    run(work)
