"""Everything that Laurels raises: one small tree, each class with a stable `code`.

The same codes travel in HTTP problem details. A message says what was wrong, where, and the rule.
"""

from typing import Any, ClassVar


class LaurelsError(Exception):
    """The root of the tree."""

    code: ClassVar[str] = "error"


class InvalidInput(LaurelsError, ValueError):
    """A value breaks a rule. Nothing was changed.

    `field` names the value the way the caller wrote it (`score`, `dimensions.modifiers`, `scores[17]`), `value` is
    what was given, `rule` says what is right.
    """

    code = "invalid_input"

    def __init__(self, field: str, value: Any, rule: str) -> None:
        self.field = field
        self.value = value
        self.rule = rule
        super().__init__(f"{field}: {shown(value)}: {rule}")


class OutOfRange(InvalidInput):
    """A number does not fit: beyond 64 bits, more digits than the scale, a sum that would overflow."""

    code = "out_of_range"


class LimitExceeded(InvalidInput):
    """More of something than the limits allow. Nothing is ever cut short instead."""

    code = "limit_exceeded"


class InvalidCursor(InvalidInput):
    """A page token that is damaged, or belongs to another board or game."""

    code = "invalid_cursor"


class NotFound(LaurelsError, LookupError):
    """The thing asked for does not exist."""

    code = "not_found"

    def __init__(self, kind: str, name: str, reason: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"no {kind} {name!r}" + (f": {reason}" if reason else ""))


class Conflict(LaurelsError):
    """The request contradicts what is there."""

    code = "conflict"


class NotReady(LaurelsError):
    """The answer exists but can't be given yet; ask again in `retry_after_s` seconds."""

    code = "not_ready"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class Unauthenticated(LaurelsError):
    """Nobody that is known: a key or token that is missing, wrong, expired or revoked. The message never shows it."""

    code = "unauthenticated"


class Forbidden(LaurelsError):
    """Known, but not allowed to do this."""

    code = "forbidden"


class RateLimited(LaurelsError):
    """Too many requests; ask again in `retry_after_s` seconds."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class StoreError(LaurelsError):
    """The engine could not do it. A submission in flight was either committed or it was not: send it again with
    the same submission_id."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The engine is closed, stopping, or does not answer."""

    code = "store_unavailable"


class StoreFull(StoreError):
    """No space left. Reads go on; nothing that was not safe has been acknowledged."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The store was opened read-only, or the file can't be written."""

    code = "store_read_only"


class StoreOwned(StoreError):
    """Another process owns the file; the message names it."""

    code = "store_owned"


class StoreVersion(StoreError):
    """The file was written by a newer version of Laurels, or is not a Laurels file."""

    code = "store_version"


class StoreDamaged(StoreError):
    """The file is damaged: a page, a row of the log, or a checksum is wrong."""

    code = "store_damaged"


class ImportFailed(LaurelsError):
    """An import met a bad row and nothing was imported. Names file, row and reason."""

    code = "import_failed"

    def __init__(self, path: str, row: int | None, reason: str) -> None:
        self.path = path
        self.row = row
        self.reason = reason
        where = path if row is None else f"{path}, row {row}"
        super().__init__(f"{where}: {reason}")


def shown(value: Any) -> str:
    """A value as messages show it: its repr, cut to a readable length."""
    try:
        text = repr(value)
    except Exception:  # of a number too long to print, or of somebody's class
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."
