"""Cursors: a place in a list as text that whoever gets it gives back as it is. Pure.

They are signed, so that nobody else can make one.
"""

import base64
import hmac
from typing import Any, TypeVar

import msgspec

from laurels.errors import InvalidCursor

T = TypeVar("T")

SIGNATURE_BYTES = 16


class Cursors:
    """Makes cursors, and takes back those that it or another with the same secret made."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is the store's, so that cursors outlive a restart."""
        self._key = hmac.digest(secret, b"laurels cursors", "sha256")

    def to_text(self, *parts: Any) -> str:
        """Text that holds these parts."""
        body = msgspec.json.encode(parts)
        return _text(self._signature(body) + body)

    def from_text(self, cursor: str, parts: type[T]) -> T:
        """The parts of a cursor, a tuple of the given types. Raises InvalidCursor for any other text."""
        try:
            raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            signature, body = raw[:SIGNATURE_BYTES], raw[SIGNATURE_BYTES:]
            if not hmac.compare_digest(self._signature(body), signature) or _text(raw) != cursor:
                raise ValueError("signature")
            return msgspec.json.decode(body, type=parts)
        except (ValueError, AttributeError, msgspec.MsgspecError) as error:
            raise InvalidCursor("cursor", cursor, "is damaged; take it from a page as it is") from error

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")[:SIGNATURE_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
