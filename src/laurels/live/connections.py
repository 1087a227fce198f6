"""Connections and subscriptions: who watches, and how far each has come."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from laurels.live.channels import Channel
from laurels.live.topics import Message

if TYPE_CHECKING:
    from laurels.live.hub import Hub


class Connection:
    """Whoever watches some topics at once. A transport takes all there is from each of `subscriptions`, then waits."""

    def __init__(self) -> None:
        self.subscriptions: set[Subscription] = set()
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """There may be something to take."""
        self._is_woken = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until there may be something to take that was not there at the last `wait`. For one task at a time."""
        if not self._is_woken:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._is_woken = False

    def close(self) -> None:
        """Watch nothing any more."""
        for subscription in list(self.subscriptions):
            subscription.close()


class Subscription:
    """One topic as one connection watches it. Got from `Hub.subscribe`."""

    def __init__(self, hub: "Hub", connection: Connection) -> None:
        self.connection = connection
        self.ended = False
        self._hub = hub
        self._channel: Channel | None = None
        self._seq = 0
        self._owed: str | None = None
        self._waits_for: str | None = None

    def join(self, channel: Channel, resume: str | None, *, waits: bool) -> None:
        """From here on there is something to take; `waits`: the snapshot, after the next tick only."""
        self._channel = channel
        channel.subscribers.add(self)
        seq = None if resume is None else channel.seq_of(resume)
        self._seq = channel.seq if seq is None else seq
        if seq is None:
            reason = "start" if resume is None else "gap"
            self._waits_for = reason
            if waits:
                channel.waiting.append(self)
            else:
                self.admit()
        elif seq < channel.seq:
            self.connection.wake()

    def admit(self) -> None:
        """A snapshot is the next to be taken."""
        self._owed, self._waits_for = self._waits_for, None
        self.connection.wake()

    def take(self) -> Message | None:
        """The next message, if there is one now. When there is none, `ended` says whether one can still come."""
        channel = self._channel
        if channel is None or self._waits_for is not None:
            return None
        if self._owed is None and self._seq < channel.seq:
            message = channel.after(self._seq)
            if message is not None:
                self._seq += 1
                return message
            self._owed = "gap"
        if self._owed is not None:
            message = channel.snapshot(self._owed)
            self._seq, self._owed = channel.seq, None
            return message
        if channel.ended:
            self.ended = True
            self.close()
            if channel.error is not None:
                return Message("error", channel.seq, "", channel.error)
        return None

    async def next(self) -> Message | None:
        """The next message; None when there will be no more. For a connection with one topic."""
        while True:
            message = self.take()
            if message is not None or self.ended:
                return message
            await self.connection.wait()

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.next()) is not None:
            yield message

    def close(self) -> None:
        """Watch it no more. What it was about can be resumed for a while."""
        self.ended = True
        self.connection.subscriptions.discard(self)
        self.connection.wake()
        channel, self._channel = self._channel, None
        if channel is not None:
            if self._waits_for is not None:
                channel.waiting.remove(self)
            channel.subscribers.discard(self)
            self._hub.left(channel)
