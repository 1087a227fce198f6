"""Routes: which handler answers a method and a path, and what it takes and gives. OpenAPI is made from the same."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from laurels.auth import Role
from laurels.errors import InvalidInput, NotFound
from laurels.http.errors import MethodNotAllowed
from laurels.http.wire import NoQuery

BODY_BYTES_MAX = 1 << 20
Headers = list[tuple[bytes, bytes]]
EVENTS = "text/event-stream"


@dataclass(slots=True, kw_only=True)
class Response:
    """What a handler answers when it is more than a document with the route's status."""

    content: Any = None
    status: int | None = None
    headers: Headers = field(default_factory=list)
    media_type: str | None = None  # the content is bytes of this kind


@dataclass(slots=True, kw_only=True, eq=False)
class Route:
    """One verb on one kind of path.

    `path` has names in braces, of which the first is the game. `role` is the least that the sender must be, None for
    everybody. `example` says how the documentation shows it: the path's names, the query, the body.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    summary: str
    tag: str
    role: Role | None
    answer: Any = None
    status: int = 200
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    body_bytes_max: int = BODY_BYTES_MAX
    where: bool = False  # takes `where.<dimension>` parameters
    players: bool = False  # whether a player's own token may do it
    statuses: tuple[int, ...] = ()  # with which it may succeed besides `status`
    example: dict[str, Any] = field(default_factory=dict)
    json_decoder: msgspec.json.Decoder[Any] = field(init=False)
    msgpack_decoder: msgspec.msgpack.Decoder[Any] = field(init=False)
    number: int = field(init=False, default=0)  # by which it is counted

    takes_query: bool = field(init=False)

    def __post_init__(self) -> None:
        self.takes_query = self.query is not NoQuery
        if self.body is not None:
            self.json_decoder = msgspec.json.Decoder(self.body)
            self.msgpack_decoder = msgspec.msgpack.Decoder(self.body)


class _Node:
    """A place in the tree of paths: what may follow, and the routes that end here."""

    __slots__ = ("any", "routes", "words")

    def __init__(self) -> None:
        self.words: dict[bytes, _Node] = {}
        self.any: _Node | None = None
        self.routes: dict[str, Route] = {}


class Router:
    """Finds routes. Paths are split before they are decoded, so an id may hold any character, `/` too."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._root = _Node()
        for number, route in enumerate(routes):
            route.number = number
            node = self._root
            for part in route.path.strip("/").split("/"):
                if part.startswith("{"):
                    node.any = node.any or _Node()
                    node = node.any
                else:
                    node = node.words.setdefault(part.encode(), _Node())
            assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
            node.routes[route.method] = route

    def methods(self, raw_path: bytes) -> tuple[str, ...]:
        """What a path can be asked for. Raises NotFound, InvalidInput."""
        return tuple(self._walk(raw_path)[0].routes)

    def find(self, method: str, raw_path: bytes) -> tuple[Route, tuple[str, ...]]:
        """The route and the path's names. Raises NotFound, MethodNotAllowed, InvalidInput."""
        node, names = self._walk(raw_path)
        route = node.routes.get(method) or (node.routes.get("GET") if method == "HEAD" else None)
        if route is None:
            raise MethodNotAllowed(method, tuple(node.routes))
        return route, tuple(names)

    def _walk(self, raw_path: bytes) -> tuple[_Node, list[str]]:
        node = self._root
        names = []
        for part in raw_path[1:].split(b"/"):
            following = node.words.get(part)
            if following is None:
                following = node.any
                if following is None or not part:
                    raise _not_found(raw_path)
                names.append(_decoded(part) if b"%" in part else part.decode("ascii", "replace"))
            node = following
        if not node.routes:
            raise _not_found(raw_path)
        return node, names


def _not_found(raw_path: bytes) -> NotFound:
    return NotFound("path", raw_path.decode("ascii", "replace")[:200])


def _decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise InvalidInput("path", part, "must be percent-encoded UTF-8") from None
