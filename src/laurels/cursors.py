"""Cursors: a place in a list as text that whoever gets it gives back as it is. Pure."""

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from laurels.errors import InvalidCursor

T = TypeVar("T")


def to_cursor(*parts: Any) -> str:
    """Text that holds these parts, and notices damage."""
    body = msgspec.json.encode(parts)
    return base64.urlsafe_b64encode(_checksum(body) + body).rstrip(b"=").decode()


def from_cursor(cursor: str, parts: type[T]) -> T:
    """The parts of a cursor, a tuple of the given types. Raises InvalidCursor for any other text."""
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if _checksum(raw[4:]) != raw[:4]:
            raise ValueError("checksum")
        return msgspec.json.decode(raw[4:], type=parts)
    except (ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise InvalidCursor("cursor", cursor, "is damaged; take it from a page as it is") from error


def _checksum(body: bytes) -> bytes:
    return binascii.crc32(body).to_bytes(4, "big")
