"""One request, as handlers see it: the path's names, the query, the body, who asks."""

import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import zstandard

from laurels.auth import Principal, may_read_player
from laurels.config import refusal, value_at
from laurels.errors import Forbidden, InvalidInput
from laurels.games import Game
from laurels.http.errors import BodyTooLarge, UnsupportedMediaType
from laurels.http.routing import Route
from laurels.limits import Quota
from laurels.service import Laurels

if TYPE_CHECKING:
    from laurels.http.app import App

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SHOWN_BYTES_MAX = 65_536
DRAINED_BYTES_MAX = 4 << 20
JSON, MSGPACK = "application/json", "application/msgpack"


class Request:
    """A request whose route is found and whose sender is known."""

    __slots__ = ("app", "headers", "names", "principal", "quota", "request_id", "route", "scope", "where")

    def __init__(self, scope: Scope, headers: dict[bytes, bytes], request_id: str, app: "App") -> None:
        self.scope = scope
        self.headers = headers
        self.request_id = request_id
        self.app = app
        self.route: Route | None = None
        self.names: tuple[str, ...] = ()  # what stands in the path's braces, in turn
        self.principal: Principal
        self.quota: Quota | None = None
        self.where: Mapping[str, str] = {}

    @property
    def laurels(self) -> Laurels:
        """What is served."""
        return self.app.laurels

    def header(self, name: bytes) -> str | None:
        """A header's text, None if it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def game(self) -> Game:
        """The game that the path names."""
        return self.app.laurels.game(self.names[0])

    def check_may_read(self, player_id: str) -> None:
        """Raise Forbidden unless the sender may read what is kept of a player."""
        if not may_read_player(self.principal, self.names[0], player_id):
            raise Forbidden("a player's token is for that player only")


# --- the query ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def parsed_query(raw: bytes, kind: type[msgspec.Struct]) -> tuple[Any, dict[str, str]]:
    """A query string as its struct, and the values after `where.` by dimension. The same strings come again and again.

    Raises InvalidInput that names the parameter.
    """
    values: dict[str, str] = {}
    where: dict[str, str] = {}
    for pair in raw.split(b"&"):
        if not pair:
            continue
        name, _, value = pair.partition(b"=")
        key, text = _text(name, "query"), _text(value, "query")
        into = where if key.startswith("where.") else values
        key = key.removeprefix("where.") if into is where else key
        if key in into:
            raise InvalidInput(key, text, "is given twice")
        into[key] = text
    try:
        return msgspec.convert(values, kind, strict=False), where
    except msgspec.ValidationError as error:
        raise invalid(error, values) from error


def _text(raw: bytes, name: str) -> str:
    try:
        return unquote(raw.replace(b"+", b" ").decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput(name, raw, "must be percent-encoded UTF-8") from None


def invalid(error: msgspec.ValidationError, document: Any = None) -> InvalidInput:
    """What a struct refuses, naming the field as whoever asks wrote it."""
    field, rule = refusal(error, "body")
    field = field.replace("[...]", "") or "body"
    for start, plainly in (
        ("object contains unknown field", "is not a field here"),
        ("object missing required field", "is required"),
    ):
        if rule.startswith(start):
            name = rule.split("`")[1]
            field, rule = name if field == "body" else f"{field}.{name}", plainly
            break
    return InvalidInput(field, value_at(document, field), rule)


# --- the body -------------------------------------------------------------------------------------------------


async def read_body(request: Request, receive: Receive, bytes_max: int) -> bytes:
    """The whole body, decompressed. Raises BodyTooLarge as soon as it is."""
    length = request.headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length) > bytes_max):
        if length.isdigit() and int(length) <= bytes_max + DRAINED_BYTES_MAX:
            # A connection that ends with a body half read takes the answer along: read what is not much.
            while (await receive()).get("more_body"):
                pass
        raise BodyTooLarge(bytes_max)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > bytes_max:
                raise BodyTooLarge(bytes_max)
        body = b"".join(parts)
    if len(body) > bytes_max:
        raise BodyTooLarge(bytes_max)
    encoding = request.headers.get(b"content-encoding")
    return body if encoding in (None, b"identity") else _decompressed(body, encoding, bytes_max)


def _decompressed(body: bytes, encoding: bytes, bytes_max: int) -> bytes:
    """A compressed body, which must not grow beyond the limit either."""
    try:
        if encoding == b"gzip":
            inflate = zlib.decompressobj(wbits=31)
            plain = inflate.decompress(body, bytes_max + 1)
            if not inflate.eof and len(plain) <= bytes_max:
                raise InvalidInput("body", None, "ends within its gzip stream")
        elif encoding == b"zstd":
            with zstandard.ZstdDecompressor().stream_reader(body) as reader:
                plain = reader.read(bytes_max + 1)
        else:
            raise UnsupportedMediaType("content-encoding", encoding.decode("latin-1"), "identity, gzip or zstd")
    except zlib.error as error:
        raise InvalidInput("body", None, f"is not gzip: {error}") from error
    except zstandard.ZstdError as error:
        raise InvalidInput("body", None, f"is not zstd: {error}") from error
    if len(plain) > bytes_max:
        raise BodyTooLarge(bytes_max)
    return plain


def _plain(body: bytes, form: Any) -> Any:
    """A small body without types, to tell which value was wrong."""
    if len(body) > SHOWN_BYTES_MAX:
        return None
    try:
        return form.decode(body)
    except (ValueError, RecursionError):
        return None


def decoded(request: Request, body: bytes, route: Route) -> Any:
    """The body as the route's struct. Raises InvalidInput that names the field, UnsupportedMediaType."""
    kind = request.headers.get(b"content-type", b"application/json")
    form: Any = msgspec.json
    decoder: Any = route.json_decoder
    if kind != b"application/json":
        media = kind.split(b";")[0].strip().lower()
        if media in (b"application/msgpack", b"application/x-msgpack", b"application/vnd.msgpack"):
            form, decoder = msgspec.msgpack, route.msgpack_decoder
        elif media != b"application/json":
            raise UnsupportedMediaType("content-type", kind.decode("latin-1"), f"{JSON} or {MSGPACK}")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(error, _plain(body, form)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("body", None, f"is malformed: {error}") from error
    except RecursionError:
        raise InvalidInput("body", None, "is nested too deeply") from None
