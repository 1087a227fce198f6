"""Windows in time: which period an instant falls into, in a named zone. Pure: the instant comes in as an argument.

Instants are microseconds since 1970-01-01T00:00 UTC. Nothing closes a window: its bounds follow from the definition.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from laurels.errors import InvalidInput
from laurels.model import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST_MONDAY = datetime(1970, 1, 5)
CALENDAR_DAYS = {"day": 1, "week": 7}
ABSOLUTE_US = {"minute": 60_000_000, "hour": 3_600_000_000}
EVERY = re.compile(r"(?:([1-9][0-9]{0,5}) (minute|hour|day|week|month)s?)|(day|week|month)")
NOT_OF_THE_DATABASE = re.compile(r"(posix|right)/.*|localtime|posixrules|Factory")


def to_us(instant: datetime) -> int:
    """An aware datetime as microseconds since the epoch."""
    return (instant - EPOCH) // MICROSECOND


def from_us(us: int) -> datetime:
    """Microseconds since the epoch as an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=us)


FIRST_US = to_us(datetime(2, 1, 1, tzinfo=UTC))
END_US = to_us(datetime(9999, 1, 1, tzinfo=UTC))
CALENDAR_RULE = "must be in the years 2 to 9998"


def in_calendar(instant_us: int) -> bool:
    """Whether every zone's calendar can express an instant: the years 2 to 9998. Beyond them there are no windows."""
    return FIRST_US <= instant_us < END_US


class Span(NamedTuple):
    """One period: `start_us` <= instant < `end_us` (None: unbounded), its running number and its name.

    The first and the last period of a window with `start` and `end` are cut at these.
    """

    start_us: int | None
    end_us: int | None
    number: int
    label: str | None


class Periods:
    """The periods of one window definition."""

    def __init__(self, window: Window, field: str = "window") -> None:
        """Raises InvalidInput, naming `field`, for a definition that makes no sense."""
        self.keep = window.keep
        self._zone = _zone(window.timezone, f"{field}.timezone")
        self.start_us = self._instant(window.start, f"{field}.start")
        self.end_us = self._instant(window.end, f"{field}.end")
        if self.start_us is not None and self.end_us is not None and self.start_us >= self.end_us:
            raise InvalidInput(f"{field}.end", window.end, "must be after start")
        self._unit: str | None = None
        self._count = 1
        if window.every is not None:
            match = EVERY.fullmatch(window.every)
            if match is None:
                raise InvalidInput(f"{field}.every", window.every, 'must be like "day", "week", "month" or "6 weeks"')
            self._count = int(match[1] or 1)
            self._unit = match[2] or match[3]
        elif window.keep is not None:
            raise InvalidInput(f"{field}.keep", window.keep, "needs every")
        elif window.origin is not None:
            raise InvalidInput(f"{field}.origin", window.origin, "needs every")
        elif window.start is None and window.end is None:
            raise InvalidInput(field, window, "must have every, start or end")
        origin_us = self._instant(window.origin, f"{field}.origin")
        if origin_us is None:
            self._origin_local = datetime(1970, 1, 1) if self._unit == "month" else FIRST_MONDAY
            self._origin_us = self._local_to_us(self._origin_local)
        else:
            self._origin_local = self._local(origin_us)
            self._origin_us = origin_us
            if window.origin is not None and window.origin.tzinfo is None:
                self._origin_local = window.origin.replace(fold=0)  # as written, also if clocks skip it
        if self._unit == "month" and self._origin_local.day > 28:
            raise InvalidInput(f"{field}.origin", window.origin, "must be on day 1 to 28 for months")
        self._named = self._count == 1 and window.origin is None and self._unit in ("day", "week", "month")
        self._latest: tuple[int, int, Span] | None = None

    def at(self, instant_us: int) -> Span | None:
        """The period that holds an instant; None outside start and end, and outside the years 2 to 9998."""
        latest = self._latest
        if latest is not None and latest[0] <= instant_us < latest[1]:
            return latest[2]
        if (
            not in_calendar(instant_us)
            or (self.start_us is not None and instant_us < self.start_us)
            or (self.end_us is not None and instant_us >= self.end_us)
        ):
            return None
        if self._unit is None:
            return Span(self.start_us, self.end_us, 0, None)
        number = self._guess(instant_us)
        while instant_us < self._boundary_us(number):
            number -= 1
        while instant_us >= self._boundary_us(number + 1):
            number += 1
        span = self.numbered(number)
        if span.start_us is not None and span.end_us is not None:
            self._latest = (span.start_us, span.end_us, span)
        return span

    def numbered(self, number: int) -> Span:
        """The period with a running number (0 starts at the origin)."""
        if self._unit is None:
            return Span(self.start_us, self.end_us, 0, None)
        start_us, end_us = self._boundary_us(number), self._boundary_us(number + 1)
        label = self._label(number, start_us)
        if self.start_us is not None and start_us < self.start_us < end_us:
            start_us = self.start_us
        if self.end_us is not None and start_us < self.end_us < end_us:
            end_us = self.end_us
        return Span(start_us, end_us, number, label)

    def oldest_kept(self, instant_us: int) -> int | None:
        """The running number of the oldest period that `keep` leaves at an instant; None if all stay."""
        if self._unit is None or self.keep is None:
            return None
        over = self.end_us is not None and instant_us >= self.end_us  # then the last period is a finished one
        span = self.at(self.end_us - 1 if over and self.end_us is not None else instant_us)
        return None if span is None else span.number - self.keep + over

    def _instant(self, moment: datetime | None, field: str) -> int | None:
        if moment is None:
            return None
        instant_us = to_us(moment if moment.utcoffset() is not None else moment.replace(tzinfo=self._zone))
        if not in_calendar(instant_us):
            raise InvalidInput(field, moment, CALENDAR_RULE)
        return instant_us

    def _local_to_us(self, local: datetime) -> int:
        # A time that clocks skip counts from before the change, so a skipped midnight is the moment of the change;
        # a time that comes twice means the first.
        return to_us(local.replace(tzinfo=self._zone))

    def _local(self, instant_us: int) -> datetime:
        return from_us(instant_us).astimezone(self._zone).replace(tzinfo=None, fold=0)

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
        """Where a period starts, as far as the calendar goes."""
        assert self._unit is not None
        if self._unit in ABSOLUTE_US:
            start_us = self._origin_us + number * ABSOLUTE_US[self._unit] * self._count
        else:
            local = self._local_start(number)
            if local is None:
                return FIRST_US if number < 0 else END_US
            start_us = self._local_to_us(local)
        return min(max(start_us, FIRST_US), END_US)

    def _local_start(self, number: int) -> datetime | None:
        """Where a period of days, weeks or months starts by the calendar; None beyond the years that dates have."""
        assert self._unit is not None
        origin = self._origin_local
        try:
            if self._unit == "month":
                months = origin.year * 12 + origin.month - 1 + number * self._count
                return datetime.combine(date(months // 12, months % 12 + 1, origin.day), origin.time())
            return origin + timedelta(days=CALENDAR_DAYS[self._unit] * self._count * number)
        except (OverflowError, ValueError):
            return None

    def _label(self, number: int, start_us: int) -> str:
        """The name of a period, which no other one has."""
        if self._unit in ABSOLUTE_US:
            moment = from_us(start_us).astimezone(self._zone)  # with its offset: an hour can come twice
            return moment.isoformat(timespec=_precision(moment)).removesuffix("+00:00") + (
                "" if moment.utcoffset() else "Z"
            )
        start = self._local_start(number) or self._local(start_us)
        if self._named and self._unit == "month":
            return f"{start.year:04}-{start.month:02}"
        if self._named and self._unit == "week":
            year, week, _ = start.isocalendar()
            return f"{year:04}-W{week:02}"
        return start.isoformat(timespec=_precision(start)).removesuffix("T00:00")


def _precision(moment: datetime) -> str:
    return "auto" if moment.second or moment.microsecond else "minutes"


def _zone(name: str, field: str) -> ZoneInfo:
    try:
        if not NOT_OF_THE_DATABASE.fullmatch(name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise InvalidInput(field, name, "must be a zone of the IANA time zone database")
