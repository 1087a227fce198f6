"""The hub: it has topics watched, looks at them tick by tick, and lets go of them."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from laurels.batch import check_ids
from laurels.config import LiveLimits
from laurels.errors import InvalidInput, LaurelsError, LimitExceeded, NotReady, StoreError
from laurels.games import Game
from laurels.live.channels import Broken, Channel
from laurels.live.connections import Connection, Subscription
from laurels.live.sources import CHANNELS_AT_ONCE, FOREVER_US, BoardSource, PlaySource, Source
from laurels.live.topics import ENCODER, LIMITS, Topic
from laurels.service import Laurels
from laurels.windows import from_us

logger = logging.getLogger("laurels.live")


class Hub:
    """All topics of one process. `start` has it look by itself; without that, `tick` does so once."""

    def __init__(
        self, laurels: Laurels, limits: LiveLimits | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.laurels = laurels
        self.limits = limits or LiveLimits()
        self.epoch = secrets.token_hex(6)
        self.numbers = iter(range(1, 2**63))
        self.as_of = laurels.now()
        self.ring_bytes = 0
        self._monotonic = monotonic
        self._sources: dict[Any, Source] = {}
        self._source_of: dict[Channel, tuple[Any, Source]] = {}
        self._subscribers = 0
        self._idle: dict[Channel, float] = {}  # since when nobody watches; longest ago first
        self._early: set[Channel] = set()  # those that were looked at for a newcomer since the last tick
        self._looking: set[asyncio.Task[None]] = set()
        self._seen_version = -1
        self._turn_us = FOREVER_US
        self._again = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    # --- subscribing ----------------------------------------------------------------------------------------

    async def subscribe(
        self, game: str, topic: Topic, resume: str | None = None, connection: Connection | None = None
    ) -> Subscription:
        """Watch a topic of a game. A snapshot comes first, or, with the `resume` of a message got earlier, what was
        missed since then, if that is still known.

        Raises what reads of the board raise, LimitExceeded for too much in one topic or connection, NotReady when the
        process has as many subscribers as it may.
        """
        connection = connection or Connection()
        if self._stopped:
            raise NotReady("live topics have ended")
        if len(connection.subscriptions) >= self.limits.topics_per_connection_max:
            rule = f"a connection has at most {self.limits.topics_per_connection_max}"
            raise LimitExceeded("topic", len(connection.subscriptions) + 1, rule)
        if self._subscribers >= self.limits.subscribers_max:
            raise NotReady(f"there are {self.limits.subscribers_max} subscribers, which is the limit", 5.0)
        subscription = Subscription(self, connection)
        connection.subscriptions.add(subscription)
        self._subscribers += 1
        try:
            await self._join(subscription, self.laurels.game(game), topic, resume)
        except BaseException:
            connection.subscriptions.discard(subscription)
            self._subscribers -= 1
            raise
        return subscription

    async def _join(self, subscription: Subscription, game: Game, topic: Topic, resume: str | None) -> None:
        key = await self._checked(game, topic)
        channel_key = _channel_key(topic)
        while True:
            source = self._sources.get(key)
            if source is None:
                kind = PlaySource if topic.kind == "submissions" else BoardSource
                source = self._sources[key] = kind(self, game, topic)
            async with source.lock:
                if source.ended:
                    continue
                try:
                    channel, waits = await self._opened(key, source, channel_key, topic)
                except BaseException:
                    self._discard(key, source)
                    raise
                if self._stopped or subscription.ended:  # meanwhile
                    if not channel.subscribers:
                        self._idle.setdefault(channel, self._monotonic())
                    raise NotReady("live topics have ended")
                self._idle.pop(channel, None)
                subscription.join(channel, resume, waits=waits)
                return

    async def _opened(self, key: Any, source: Source, channel_key: str, topic: Topic) -> tuple[Channel, bool]:
        """A channel that shows what is there now. So that newcomers do not have it published more often than twice a
        tick, some must wait for the next: then the second value is true."""
        channel = source.channels.get(channel_key)
        if channel is None:
            if len(self._source_of) >= self.limits.topics_max:
                raise NotReady(f"there are {self.limits.topics_max} topics, which is the limit", 5.0)
            channel = source.new_channel(topic)
            await source.look(channel)
            source.channels[channel_key] = channel
            self._source_of[channel] = (key, source)
            self._early.add(channel)
            return channel, False
        now_us = self.laurels.now()
        is_fresh, is_early = source.is_fresh(channel, now_us), channel in self._early
        if is_fresh and (is_early or not topic.names):
            channel.as_of = max(channel.as_of, now_us)
            return channel, False
        if is_early:
            source.look_soon()
            self.look_again()
            return channel, True
        self._early.add(channel)
        await source.look(channel, names=topic.names)
        return channel, False

    async def _checked(self, game: Game, topic: Topic) -> Any:
        """The key of a topic's source. Raises InvalidInput, naming the field, for a topic that makes no sense."""
        needed = {"top": ("board",), "submissions": ("player_id",)}.get(topic.kind, ("board", "player_id"))
        for field in ("board", "player_id"):
            value = getattr(topic, field)
            if (value is not None) != (field in needed):
                raise InvalidInput(field, value, f"a topic of kind {topic.kind} has {' and '.join(needed)}")
        if topic.player_id is not None:
            check_ids([topic.player_id], "player_id", game.limits.id_bytes_max)
        if topic.limit is not None:
            if topic.kind not in LIMITS:
                raise InvalidInput("limit", topic.limit, "goes with top and around")
            if not 1 <= topic.limit <= self.limits.rows_max:
                raise LimitExceeded("limit", topic.limit, f"must be from 1 to {self.limits.rows_max}")
        if topic.at is not None and topic.at.tzinfo is None:
            raise InvalidInput("at", topic.at, "must be a datetime with a time zone")
        if topic.board is None:
            for field, value in (("where", topic.where), ("at", topic.at), ("names", topic.names)):
                if value:
                    raise InvalidInput(field, value, "goes with a board")
            return game.name, topic.player_id
        await game.ready_board(topic.board)
        where = game.partition(topic.where)
        values = frozenset((name, type(value).__name__, value) for name, value in where.items())
        return game.name, topic.board, values, topic.at

    def left(self, channel: Channel) -> None:
        """A subscriber has gone."""
        self._subscribers -= 1
        if not channel.subscribers:
            if channel.ended:
                channel.let_go()
            elif channel in self._source_of:
                self._idle[channel] = self._monotonic()

    @property
    def subscriber_count(self) -> int:
        """How many subscriptions there are."""
        return self._subscribers

    @property
    def topic_count(self) -> int:
        """How many topics are watched, or can still be resumed."""
        return len(self._source_of)

    def heartbeat(self) -> bytes:
        """A message that says nothing has changed up to now: `as_of` goes for everything that was sent before."""
        return ENCODER.encode({"type": "heartbeat", "as_of": from_us(self.as_of)})

    # --- looking --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Look by itself from now on."""
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """No more messages: all subscriptions end. To be called before the store is closed."""
        self._stopped = True
        tasks = [task for task in (self._task, *self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for key, source in list(self._sources.items()):
            self._end(key, source, None)

    async def _run(self) -> None:
        while True:
            started = self._monotonic()
            try:
                await self.tick(self.limits.tick_s)
            except LaurelsError as error:  # the store; the next tick may find it well again
                logger.warning("live topics could not be looked at: %s", error)
            except Exception:
                logger.exception("live topics could not be looked at")
            took = self._monotonic() - started
            await asyncio.sleep(max(self.limits.tick_s - took, took))  # others have their half of the time

    async def tick(self, wait_s: float | None = None) -> None:
        """Look once, and publish what has changed. What must be read from the store may take longer than `wait_s`; then
        it is published when it is there."""
        await self.laurels.refresh()
        self._early.clear()
        self._drop_idle()
        now_us = self.laurels.now()
        version = self.laurels.version
        if version == self._seen_version and now_us < self._turn_us and not self._again:
            self.as_of = now_us
            return
        self._seen_version, self._turn_us, self._again = version, FOREVER_US, False
        for number, (key, source) in enumerate(list(self._sources.items()), start=1):
            if not any(channel.subscribers for channel in source.channels.values()):
                continue  # whoever comes has it looked at
            if source.lock.locked():
                self.look_again()
            elif source.has_news(now_us):
                if source.is_at_hand():
                    await self._look(key, source)
                else:
                    task = asyncio.create_task(self._look(key, source))
                    self._looking.add(task)
                    task.add_done_callback(self._looking.discard)
            else:
                for channel in source.channels.values():
                    channel.admit_waiting()
            if number % CHANNELS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if self._looking:
            await asyncio.wait(self._looking, timeout=wait_s)
        if self._looking:
            self.look_again()
        if not self._again:
            self.as_of = now_us

    def look_again(self) -> None:
        """The next tick looks, whether anything was applied or not."""
        self._again = True

    def turns_at(self, instant_us: int) -> None:
        """At this instant a window ends."""
        self._turn_us = min(self._turn_us, instant_us)

    async def _look(self, key: Any, source: Source) -> None:
        async with source.lock:
            if source.ended:
                return
            try:
                await source.look()
            except (NotReady, StoreError) as error:  # what was told so far stays true as of then
                logger.warning("a live topic could not be read, and will be again: %s", error)
                self.look_again()
                return
            except LaurelsError as error:
                self._end(key, source, error)
                return
            except Exception:
                logger.exception("a live topic ends")
                self._end(key, source, Broken("something went wrong; subscribe again"))
                return
            for channel in source.channels.values():
                channel.admit_waiting()

    # --- letting go -----------------------------------------------------------------------------------------

    def _drop_idle(self) -> None:
        now = self._monotonic()
        for channel, since in list(self._idle.items()):
            if now - since < self.limits.grace_s:
                return
            key, source = self._source_of[channel]
            if source.lock.locked():
                continue
            del self._idle[channel]
            del self._source_of[channel]
            source.channels.pop(_channel_key(channel.topic))
            channel.end(None)
            channel.let_go()
            self._discard(key, source)

    def _end(self, key: Any, source: Source, error: LaurelsError | None) -> None:
        """Nothing more will come from a source."""
        for channel in source.channels.values():
            self._source_of.pop(channel, None)
            self._idle.pop(channel, None)
            channel.end(error)
        source.channels.clear()
        self._discard(key, source)

    def _discard(self, key: Any, source: Source) -> None:
        """A source without topics goes."""
        if not source.channels:
            source.ended = True
            if self._sources.get(key) is source:
                del self._sources[key]


def _channel_key(topic: Topic) -> str:
    """Which of its source's channels a topic is."""
    return f"{topic.kind} {topic.limit or LIMITS.get(topic.kind)} {topic.names} {topic.player_id}"
