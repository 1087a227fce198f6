"""Following topics without async: an event loop on a thread of its own does it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from laurels.client.live import Address, Live
from laurels.client.problems import Unreachable
from laurels.client.topics import ListTopic, PlayTopic, RankTopic, Topic, Update

K = TypeVar("K", bound=Topic[Any])
T = TypeVar("T")


class TopicSync(Generic[K]):
    """A topic to iterate over. `state` is the topic itself, with `entries`, `entry` or `submissions` as they stand."""

    def __init__(self, live: "LiveSync", topic: K) -> None:
        self.state = topic
        self._live = live

    def next(self, timeout_s: float | None = None) -> Update[Any] | None:
        """The next update; None if none comes in time, or none will."""
        return None if self._live.is_closed else self._live.run(self.state.next(timeout_s))

    def __iter__(self) -> Iterator[Update[Any]]:
        while (update := self.next()) is not None:
            yield update

    def close(self) -> None:
        """Follow it no more."""
        self._live.run(_done(self.state.close))


class LiveSync:
    """See `Live`. Use `with client.follow() as live`."""

    def __init__(self, address: Address, **settings: Any) -> None:
        self._inner = Live(address, **settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="laurels-live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self._inner.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._inner.close())
        self._stop()

    def _stop(self) -> None:
        self.run(_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def is_closed(self) -> bool:
        """Whether there will be nothing more."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that the loop does."""
        if self._loop.is_closed():
            work.close()
            raise Unreachable("live updates have ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def top(self, *args: Any, **kwargs: Any) -> TopicSync[ListTopic]:
        """See `Live.top`."""
        return TopicSync(self, self.run(_done(lambda: self._inner.top(*args, **kwargs))))

    def around(self, *args: Any, **kwargs: Any) -> TopicSync[ListTopic]:
        """See `Live.around`."""
        return TopicSync(self, self.run(_done(lambda: self._inner.around(*args, **kwargs))))

    def rank(self, *args: Any, **kwargs: Any) -> TopicSync[RankTopic]:
        """See `Live.rank`."""
        return TopicSync(self, self.run(_done(lambda: self._inner.rank(*args, **kwargs))))

    def submissions(self, player_id: str) -> TopicSync[PlayTopic]:
        """See `Live.submissions`."""
        return TopicSync(self, self.run(_done(lambda: self._inner.submissions(player_id))))


async def _done(work: Callable[[], T]) -> T:
    """A plain function's work, where the loop is."""
    return work()


async def _others() -> None:
    """Whoever still waits is told that it is over."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=1.0) if others else None
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
