"""Tries: when a call is sent again, and when it is over. Without I/O, so that both clients share it."""

import random
import time
from email.utils import parsedate_to_datetime
from typing import Generic, TypeVar, cast

import httpx
import msgspec
from msgspec import Struct

from laurels.client.calls import Call
from laurels.client.problems import UnexpectedAnswer, Unreachable, error_of, problem_in

T = TypeVar("T")

NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
BUSY = (502, 503, 504)


class Retry(Struct, frozen=True, kw_only=True):
    """How often to ask again, and how patiently.

    `tries` at most, all within about `total_s` seconds. Between them `first_s` doubles up to `most_s`, a random part of
    it; a server that says how long to wait is given that long.
    """

    tries: int = 8
    total_s: float = 30.0
    first_s: float = 0.1
    most_s: float = 5.0

    def wait_s(self, number: int) -> float:
        """How long to wait after try `number`, counted from 1. Random, so that clients do not come back all at once."""
        return random.uniform(0.5, 1.0) * min(self.most_s, self.first_s * 2.0 ** min(number - 1, 60))


class Tries(Generic[T]):
    """The tries of one call. After each, `failed` or `answered` says how long to wait for the next, or raises."""

    def __init__(self, call: Call[T], retry: Retry, timeout_s: float) -> None:
        self.call = call
        self.is_done = False
        self._retry = retry
        self._timeout_s = timeout_s
        self._ends = time.monotonic() + retry.total_s
        self._number = 1
        self._may_have_arrived = False
        self._value: T | None = None

    @property
    def value(self) -> T:
        """What the verb returns, when it is done."""
        return cast(T, self._value)

    def timeout_s(self) -> float:
        """How long this try may take."""
        return max(0.001, min(self._timeout_s, self._ends - time.monotonic()))

    def failed(self, error: httpx.TransportError) -> float:
        """There was no answer. How long to wait; raises Unreachable when it is over."""
        is_safe = self.call.repeatable or isinstance(error, NEVER_SENT)
        if isinstance(error, httpx.UnsupportedProtocol) or not is_safe:
            raise self._unreachable(error) from error
        if not isinstance(error, NEVER_SENT):
            self._may_have_arrived = True
        wait = self._next(None)
        if wait is None:
            raise self._unreachable(error) from error
        return wait

    def answered(self, response: httpx.Response) -> float:
        """There was an answer: then `is_done` and `value` are set. Otherwise how long to wait; raises what the answer
        says when it is over."""
        status, content_type = response.status_code, response.headers.get("content-type", "")
        if 200 <= status < 300 or status in self.call.statuses:
            try:
                self._value = self.call.read(content_type, response.content)
            except msgspec.MsgspecError as error:
                if status < 300:
                    raise UnexpectedAnswer(f"{self._what} was answered with something else: {error}") from error
            else:
                self.is_done = True
                return 0.0
        problem = problem_in(content_type, response.content)
        if status == 404 and self.call.method == "DELETE" and self.call.answer is None and self._may_have_arrived:
            self.is_done = True  # the try before did it, and its answer got lost
            return 0.0
        if status == 429 or (status in BUSY and self.call.repeatable):
            if status != 429:
                self._may_have_arrived = True
            told = None if problem is None else problem.retry_after_s
            wait = self._next(told if told is not None else _retry_after_s(response))
            if wait is not None:
                return wait
        if problem is not None:
            raise error_of(problem)
        if status == 429 or status in BUSY:
            raise Unreachable(f"{self._what} was answered with status {status}")
        raise UnexpectedAnswer(f"{self._what} was answered with status {status}, and not by Laurels")

    def _next(self, told_s: float | None) -> float | None:
        """How long to wait for the next try; None if there is to be none."""
        wait = max(self._retry.wait_s(self._number), told_s or 0.0)
        if self._number >= self._retry.tries or time.monotonic() + wait >= self._ends:
            return None
        self._number += 1
        return wait

    @property
    def _what(self) -> str:
        return f"{self.call.method} {self.call.target.partition('?')[0]}"

    def _unreachable(self, error: Exception) -> Unreachable:
        tries = "once" if self._number == 1 else f"{self._number} times"
        return Unreachable(f"{self._what}, tried {tries}: {type(error).__name__}: {error}")


def _retry_after_s(response: httpx.Response) -> float | None:
    """The header, in seconds or as a date."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
