"""Errors as answers: problem details (RFC 9457) with the codes of `laurels.errors`."""

from typing import ClassVar

from laurels.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    LaurelsError,
    NotFound,
    NotReady,
    RateLimited,
    StoreError,
    Unauthenticated,
)
from laurels.http.wire import Problem


class MethodNotAllowed(LaurelsError):
    """The path is there, but not for this method."""

    code = "method_not_allowed"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        super().__init__(f"{method} is not for this path; {', '.join(allowed)} is")


class BodyTooLarge(LaurelsError):
    """The body has more bytes than the route takes."""

    code = "body_too_large"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the body has more than {bytes_max} bytes")


class UnsupportedMediaType(LaurelsError):
    """The body is in a format that nobody reads here."""

    code = "unsupported_media_type"

    def __init__(self, header: str, value: str, supported: str) -> None:
        self.field = header
        self.rule = f"must be {supported}"
        super().__init__(f"{header}: {value!r}: {self.rule}")


class InternalError(LaurelsError):
    """A fault of the server; the log has it under the request's id."""

    code: ClassVar[str] = "internal"


STATUS: tuple[tuple[type[LaurelsError], int, str], ...] = (
    (InvalidInput, 400, "Invalid input"),
    (Unauthenticated, 401, "Not authenticated"),
    (Forbidden, 403, "Forbidden"),
    (NotFound, 404, "Not found"),
    (MethodNotAllowed, 405, "Method not allowed"),
    (Conflict, 409, "Conflict"),
    (BodyTooLarge, 413, "Body too large"),
    (UnsupportedMediaType, 415, "Unsupported media type"),
    (RateLimited, 429, "Too many requests"),
    (NotReady, 503, "Not ready"),
    (StoreError, 503, "Store unavailable"),
)


def problem(error: LaurelsError, request_id: str) -> Problem:
    """What whoever asked is told."""
    status, title = next(
        ((status, title) for kind, status, title in STATUS if isinstance(error, kind)), (500, "Internal error")
    )
    retry_after_s = getattr(error, "retry_after_s", 1.0 if isinstance(error, StoreError) else None)
    return Problem(
        type=f"urn:laurels:error:{error.code}",
        title=title,
        status=status,
        detail="the server failed; its log tells why" if status == 500 else str(error),
        code=error.code if status != 500 else InternalError.code,
        request_id=request_id,
        field=getattr(error, "field", None),
        rule=getattr(error, "rule", None),
        retry_after_s=retry_after_s,
    )


def headers(error: LaurelsError, told: Problem) -> list[tuple[bytes, bytes]]:
    """What goes with it."""
    found = []
    if told.retry_after_s is not None:
        found.append((b"retry-after", str(max(1, -int(-told.retry_after_s // 1))).encode()))
    if told.status == 401:
        found.append((b"www-authenticate", b'Bearer realm="laurels"'))
    if isinstance(error, MethodNotAllowed):
        found.append((b"allow", ", ".join(error.allowed).encode()))
    return found
