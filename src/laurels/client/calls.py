"""Calls: what is sent for a verb, and how its answer is read. Pure; `clients` sends them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from laurels.errors import InvalidInput

A = TypeVar("A")
T = TypeVar("T")

JSON, MSGPACK = "application/json", "application/msgpack"


def _item(value: Any) -> Any:
    """A scalar of an array as the plain value that it is."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} can't be sent")


_encode_json = msgspec.json.Encoder(decimal_format="string", enc_hook=_item).encode
_encode_msgpack = msgspec.msgpack.Encoder(decimal_format="string", enc_hook=_item).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request.

    target      path and query, encoded
    answer      the type of the answer; None if there is none
    shape       makes what the verb returns out of the answer
    repeatable  whether it does the same when it arrives twice, so that it may be sent again when nobody knows whether
                it arrived
    statuses    those that hold an answer besides 200 to 299
    """

    method: str
    target: str
    answer: Any = None
    shape: Callable[[Any], T]
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    statuses: tuple[int, ...] = ()

    def read(self, content_type: str, body: bytes) -> T:
        """What the verb returns. Raises msgspec.MsgspecError for an answer of another form."""
        if self.answer is None:
            return self.shape(None)
        return self.shape(_decoder(self.answer, content_type.startswith(MSGPACK))(body))


@lru_cache(maxsize=256)
def _decoder(kind: Any, is_msgpack: bool) -> Callable[[bytes], Any]:
    """Numbers without a type are exact too: integers, or decimals with all their digits."""
    if is_msgpack:
        return msgspec.msgpack.Decoder(kind).decode
    return msgspec.json.Decoder(kind, float_hook=Decimal).decode


def call(
    method: str,
    path: tuple[str, ...],
    answer: type[A],
    shape: Callable[[A], T],
    *,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    packed: bool = False,
    repeatable: bool | None = None,
    statuses: tuple[int, ...] = (),
) -> Call[T]:
    """A call. `path` is in segments, which may hold any character; a query's and a body's fields that are None are left
    out. `packed`: as msgpack, both ways."""
    target = "/" + "/".join(map(segment, path))
    if query:
        texts = {name: text_of(value) for name, value in query.items() if value is not None}
        target += "?" + urlencode(texts) if texts else ""
    headers = {"accept": f"{MSGPACK}, application/problem+json" if packed else JSON}
    content = None
    if body is not None:
        if isinstance(body, dict):
            body = {name: value for name, value in body.items() if value is not None}
        try:
            content = _encode_msgpack(body) if packed else _encode_json(body)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput("body", None, f"can't be sent: {error}") from error
        headers["content-type"] = MSGPACK if packed else JSON
    return Call(
        method=method,
        target=target,
        answer=None if answer is type(None) else answer,
        shape=shape,
        headers=headers,
        body=content,
        repeatable=method != "POST" if repeatable is None else repeatable,
        statuses=statuses,
    )


def as_it_is(answer: A) -> A:
    """For verbs that return the answer itself."""
    return answer


def segment(text: str) -> str:
    """A segment of a path. Dots are encoded where they would mean a folder."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def text_of(value: Any) -> str:
    """A value as queries have it: a set's items with commas, instants in RFC 3339."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return value
    if isinstance(value, set | frozenset | list | tuple):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return ",".join(map(text_of, items))
    return str(value)


def columns(values: Any) -> Any:
    """A column as a list: of any sequence, of an array as well."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return cast(list[Any], listed)


def column_or_constant(value: Any, rows: int) -> Any:
    """What a batch may have for a dimension or metric: a list with one value a row, or one value for all. A set is one
    value, which travels as a list, so it is written out for each row."""
    if isinstance(value, set | frozenset):
        return [sorted(value)] * rows
    if value is None or isinstance(value, str | int | float | Decimal):
        return value
    return columns(value)
