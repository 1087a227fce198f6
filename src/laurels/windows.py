"""Windows in time: which period an instant falls into, in a named zone. Pure: the instant comes in as an argument.

Instants are microseconds since 1970-01-01T00:00 UTC. Nothing closes a window: its bounds follow from the definition.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from laurels.errors import InvalidInput
from laurels.model import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST_MONDAY = datetime(1970, 1, 5)
CALENDAR_DAYS = {"day": 1, "week": 7}
ABSOLUTE_US = {"minute": 60_000_000, "hour": 3_600_000_000}


def to_us(instant: datetime) -> int:
    """An aware datetime as microseconds since the epoch."""
    return (instant - EPOCH) // MICROSECOND


def from_us(us: int) -> datetime:
    """Microseconds since the epoch as an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=us)


class Span(NamedTuple):
    """One period: `start_us` <= instant < `end_us` (None: unbounded), its running number and its name."""

    start_us: int | None
    end_us: int | None
    number: int
    label: str | None


class Periods:
    """The periods of one window definition."""

    def __init__(self, window: Window, field: str = "window") -> None:
        """Raises InvalidInput, naming `field`, for a definition that makes no sense."""
        self.keep = window.keep
        try:
            self._zone = ZoneInfo(window.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InvalidInput(
                f"{field}.timezone", window.timezone, "must be a zone of the IANA time zone database"
            ) from error
        self._start_us = None if window.start is None else self._instant(window.start)
        self._end_us = None if window.end is None else self._instant(window.end)
        if self._start_us is not None and self._end_us is not None and self._start_us >= self._end_us:
            raise InvalidInput(f"{field}.end", window.end, "must be after start")
        self._unit: str | None = None
        self._count = 1
        if window.every is not None:
            match = re.fullmatch(r"(?:([1-9][0-9]{0,5}) )?(minute|hour|day|week|month)s?", window.every)
            if match is None:
                raise InvalidInput(f"{field}.every", window.every, 'must be like "day", "week", "month" or "6 weeks"')
            self._count = int(match[1] or 1)
            self._unit = match[2]
        elif window.keep is not None or window.origin is not None:
            raise InvalidInput(field, window, "keep and origin need every")
        elif window.start is None and window.end is None:
            raise InvalidInput(field, window, "must have every, start or end")
        self._origin_local = self._local_origin(window.origin)
        self._origin_us = self._local_to_us(self._origin_local)
        if self._unit == "month" and self._origin_local.day > 28:
            raise InvalidInput(f"{field}.origin", window.origin, "must be on day 1 to 28 for months")
        self._named = self._count == 1 and window.origin is None and self._unit in ("day", "week", "month")
        self._latest: Span | None = None

    def at(self, instant_us: int) -> Span | None:
        """The period that holds an instant; None outside start and end."""
        if (self._start_us is not None and instant_us < self._start_us) or (
            self._end_us is not None and instant_us >= self._end_us
        ):
            return None
        latest = self._latest
        if latest is not None and latest.start_us is not None and latest.end_us is not None:
            if latest.start_us <= instant_us < latest.end_us:
                return latest
        if self._unit is None:
            return Span(self._start_us, self._end_us, 0, None)
        number = self._guess(instant_us)
        while instant_us < self._boundary_us(number):
            number -= 1
        while instant_us >= self._boundary_us(number + 1):
            number += 1
        self._latest = span = self.numbered(number)
        return span

    def numbered(self, number: int) -> Span:
        """The period with a running number (0 starts at the origin)."""
        if self._unit is None:
            return Span(self._start_us, self._end_us, 0, None)
        start_us = self._boundary_us(number)
        return Span(start_us, self._boundary_us(number + 1), number, self._label(start_us))

    def oldest_kept(self, instant_us: int) -> int | None:
        """The running number of the oldest period that `keep` leaves at an instant; None if all stay."""
        if self._unit is None or self.keep is None:
            return None
        if self._end_us is not None and instant_us >= self._end_us:
            instant_us = self._end_us - 1
        span = self.at(instant_us)
        return None if span is None else span.number - self.keep

    def _instant(self, moment: datetime) -> int:
        return to_us(moment if moment.tzinfo is not None else moment.replace(tzinfo=self._zone))

    def _local_origin(self, origin: datetime | None) -> datetime:
        if origin is None:
            return datetime(1970, 1, 1) if self._unit == "month" else FIRST_MONDAY
        return origin if origin.tzinfo is None else origin.astimezone(self._zone).replace(tzinfo=None)

    def _local_to_us(self, local: datetime) -> int:
        return to_us(local.replace(tzinfo=self._zone))

    def _local(self, instant_us: int) -> datetime:
        return from_us(instant_us).astimezone(self._zone).replace(tzinfo=None)

    def _guess(self, instant_us: int) -> int:
        """A period number at or beside the right one."""
        if self._unit in ABSOLUTE_US:
            return (instant_us - self._origin_us) // (ABSOLUTE_US[self._unit] * self._count)
        local = self._local(instant_us)
        if self._unit == "month":
            origin = self._origin_local
            return ((local.year - origin.year) * 12 + local.month - origin.month) // self._count
        assert self._unit is not None
        return (local - self._origin_local) // timedelta(days=CALENDAR_DAYS[self._unit] * self._count)

    def _boundary_us(self, number: int) -> int:
        """Where a period starts."""
        assert self._unit is not None
        if self._unit in ABSOLUTE_US:
            return self._origin_us + number * ABSOLUTE_US[self._unit] * self._count
        origin = self._origin_local
        if self._unit == "month":
            months = origin.year * 12 + origin.month - 1 + number * self._count
            local = datetime.combine(date(months // 12, months % 12 + 1, origin.day), origin.time())
        else:
            local = origin + timedelta(days=CALENDAR_DAYS[self._unit] * self._count * number)
        return self._local_to_us(local)

    def _label(self, start_us: int) -> str:
        start = self._local(start_us)
        if not self._named:
            return start.isoformat(timespec="minutes" if start.time() != time(0) else "auto").removesuffix("T00:00:00")
        if self._unit == "day":
            return f"{start:%Y-%m-%d}"
        if self._unit == "month":
            return f"{start:%Y-%m}"
        year, week, _ = start.isocalendar()
        return f"{year}-W{week:02}"
