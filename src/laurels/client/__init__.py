"""Clients of a Laurels server: `AsyncClient`, and `Client` without async. Needs the extra `client`."""

try:
    import httpx as _httpx  # noqa: F401
    import websockets as _websockets  # noqa: F401
except ImportError as error:
    raise ImportError(f"the client needs more packages: pip install 'laurels[client]' ({error})") from error

from laurels.client.answers import Entries
from laurels.client.clients import AsyncClient, Client
from laurels.client.problems import UnexpectedAnswer, Unreachable
from laurels.client.tries import Retry

__all__ = ["AsyncClient", "Client", "Entries", "Retry", "UnexpectedAnswer", "Unreachable"]
