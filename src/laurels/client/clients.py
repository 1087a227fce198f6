"""The two clients: the same verbs, one awaited and one at once, over a pool of connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from copy import copy
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from laurels.client.answers import Entries
from laurels.client.calls import Call
from laurels.client.live import Address, Live
from laurels.client.live_sync import LiveSync
from laurels.client.tries import Retry, Tries
from laurels.client.verbs import Verbs
from laurels.errors import InvalidInput
from laurels.model import Page, Submission

T = TypeVar("T")
Key = str | Callable[[], str]
CONNECTIONS_MAX = 100


def _user_agent() -> str:
    try:
        return f"laurels-python/{version('laurels')}"
    except PackageNotFoundError:
        return "laurels-python"


class _Settings(Verbs):
    """What both clients are made from.

    url        of the server, such as http://127.0.0.1:8080
    key        an API key or a player's token, or a function that gives one that counts now
    game       whose boards and players are meant
    timeout_s  how long one try may wait for the server
    retry      how often to try again
    """

    def __init__(
        self,
        url: str,
        key: Key = "",
        *,
        game: str | None = None,
        timeout_s: float = 10.0,
        retry: Retry | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput("url", url, "begins with http:// or https://")
        self.url = url.rstrip("/")
        self.game = game
        self.retry = retry or Retry()
        self._key = key
        self._timeout_s = timeout_s
        self._connections_max = connections_max
        self._connect()

    def _connect(self) -> None:
        raise NotImplementedError

    def for_game(self, name: str) -> Self:
        """The same client for another game; they share their connections, and closing one closes both."""
        other = copy(self)
        other.game = name
        return other

    def _pool(self) -> dict[str, Any]:
        limits = httpx.Limits(max_connections=self._connections_max, max_keepalive_connections=self._connections_max)
        return {"limits": limits, "headers": {"user-agent": _user_agent()}, "follow_redirects": False}

    def _headers(self) -> dict[str, str]:
        key = self._key() if callable(self._key) else self._key
        return {"authorization": f"Bearer {key}"} if key else {}

    def _request(self, tries: Tries[Any]) -> dict[str, Any]:
        call = tries.call
        return {
            "method": call.method,
            "url": self.url + call.target,
            "content": call.body,
            "headers": call.headers | self._headers(),
            "timeout": tries.timeout_s(),
        }

    def _address(self) -> Address:
        return Address(url=self.url, path=self._in_game("live"), headers=self._headers, user_agent=_user_agent())


class AsyncClient(_Settings):
    """A client whose verbs are awaited. Use `async with AsyncClient(url, key, game=...) as client`, or `await
    client.close()` at the end. One client serves many tasks at once."""

    def _connect(self) -> None:
        self._http = httpx.AsyncClient(**self._pool())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call, again if need be, and read its answer."""
        tries = Tries(call, self.retry, self._timeout_s)
        while True:
            try:
                response = await self._http.request(**self._request(tries))
            except httpx.TransportError as error:
                wait = tries.failed(error)
            else:
                wait = tries.answered(response)
                if tries.is_done:
                    return tries.value
            await asyncio.sleep(wait)

    async def pages(self, board: str, limit: int = 100, **read: Any) -> AsyncIterator[Entries]:
        """All pages of a board instance, from the top; arguments as of `page`."""
        cursor = None
        while True:
            page = await self.page(board, limit, cursor, **read)
            yield page
            cursor = page.next
            if cursor is None:
                return

    async def history_pages(self, player_id: str, limit: int = 100) -> AsyncIterator[Page[Submission]]:
        """All pages of a player's submissions, newest first."""
        cursor = None
        while True:
            page = await self.history(player_id, limit, cursor)
            yield page
            cursor = page.next
            if cursor is None:
                return

    def follow(self, **settings: Any) -> Live:
        """Follow boards and players as they change: `async with client.follow() as live`. Settings as of `Live`."""
        return Live(self._address(), **settings)


class Client(_Settings):
    """A client without async, safe to use from several threads. Use `with Client(url, key, game=...) as client`, or
    `client.close()` at the end."""

    def _connect(self) -> None:
        self._http = httpx.Client(**self._pool())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a call, again if need be, and read its answer."""
        tries = Tries(call, self.retry, self._timeout_s)
        while True:
            try:
                response = self._http.request(**self._request(tries))
            except httpx.TransportError as error:
                wait = tries.failed(error)
            else:
                wait = tries.answered(response)
                if tries.is_done:
                    return tries.value
            time.sleep(wait)

    def pages(self, board: str, limit: int = 100, **read: Any) -> Iterator[Entries]:
        """All pages of a board instance, from the top; arguments as of `page`."""
        cursor = None
        while True:
            page = self.page(board, limit, cursor, **read)
            yield page
            cursor = page.next
            if cursor is None:
                return

    def history_pages(self, player_id: str, limit: int = 100) -> Iterator[Page[Submission]]:
        """All pages of a player's submissions, newest first."""
        cursor = None
        while True:
            page = self.history(player_id, limit, cursor)
            yield page
            cursor = page.next
            if cursor is None:
                return

    def follow(self, **settings: Any) -> LiveSync:
        """Follow boards and players as they change: `with client.follow() as live`. Settings as of `Live`."""
        return LiveSync(self._address(), **settings)
