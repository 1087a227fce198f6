"""A thread beside the writer's, for what takes long and needs no transaction: sorting what is written behind."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
Slices = Iterator[int]  # work in slices: each step does one, and says how many rows it wrote


class Beside:
    """Runs one thing at a time, while the writer goes on with its groups."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="laurels-beside")
        self._at_once = False
        self.is_busy = False

    def run(self, work: Callable[[], T]) -> Generator[int, None, T]:
        """Have work done: slices without rows until it is, then its result."""
        future = self._thread.submit(work)
        self.is_busy = True
        try:
            while not (future.done() or self._at_once):
                yield 0
            return future.result()
        finally:
            self.is_busy = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Meanwhile the writer waits for what it has asked for."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def stop(self) -> None:
        """End the thread."""
        self._thread.shutdown()
