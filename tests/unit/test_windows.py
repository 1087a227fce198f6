"""Which period an instant falls into."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels.errors import InvalidInput
from laurels.model import Window
from laurels.windows import END_US, FIRST_US, Periods, from_us, to_us

HOUR_US = 3_600_000_000
SECOND_US = 1_000_000
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Havana",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Pacific/Chatham",
]


def us(text: str, zone: str = "UTC") -> int:
    return to_us(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def at(window: Window, instant_us: int):
    span = Periods(window).at(instant_us)
    assert span is not None
    return span


windows = st.builds(
    Window,
    every=st.one_of(
        st.sampled_from(["day", "week", "month"]),
        st.builds(
            "{} {}".format,
            st.integers(1, 200),
            st.sampled_from(["minutes", "hours", "days", "weeks", "months", "hour"]),
        ),
    ),
    timezone=st.sampled_from(ZONES),
    origin=st.none()
    | st.datetimes(datetime(1990, 1, 1), datetime(2050, 1, 1)).map(
        lambda moment: moment.replace(day=moment.day % 28 + 1)
    ),
)
instants = st.integers(us("1971-01-01"), us("2100-01-01"))


@pytest.mark.parametrize(
    ("every", "local", "start", "end", "label"),
    [
        ("day", "2026-03-28T23:59:59", "2026-03-28T00:00", "2026-03-29T00:00", "2026-03-28"),
        ("day", "2026-03-29T00:00:01", "2026-03-29T00:00", "2026-03-30T00:00", "2026-03-29"),
        ("day", "2026-03-29T23:59:59", "2026-03-29T00:00", "2026-03-30T00:00", "2026-03-29"),
        ("day", "2026-10-24T23:59:59", "2026-10-24T00:00", "2026-10-25T00:00", "2026-10-24"),
        ("day", "2026-10-25T00:00:01", "2026-10-25T00:00", "2026-10-26T00:00", "2026-10-25"),
        ("day", "2026-10-25T23:59:59", "2026-10-25T00:00", "2026-10-26T00:00", "2026-10-25"),
        ("week", "2026-03-29T23:59:59", "2026-03-23T00:00", "2026-03-30T00:00", "2026-W13"),
        ("week", "2026-10-25T23:59:59", "2026-10-19T00:00", "2026-10-26T00:00", "2026-W43"),
        ("week", "2027-01-03T12:00:00", "2026-12-28T00:00", "2027-01-04T00:00", "2026-W53"),
        ("month", "2026-03-31T23:59:59", "2026-03-01T00:00", "2026-04-01T00:00", "2026-03"),
        ("month", "2026-11-01T00:00:01", "2026-11-01T00:00", "2026-12-01T00:00", "2026-11"),
    ],
)
def test_calendar_periods_follow_the_local_clock(every, local, start, end, label):
    span = at(Window(every=every, timezone="Europe/Berlin"), us(local, "Europe/Berlin"))
    assert (span.start_us, span.end_us) == (us(start, "Europe/Berlin"), us(end, "Europe/Berlin"))
    assert span.label == label


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/Sao_Paulo", "2018-11-04", 23),
        ("America/Sao_Paulo", "2018-02-17", 25),
        ("Africa/Cairo", "2024-04-26", 23),
        ("Asia/Beirut", "2022-03-27", 23),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("Pacific/Apia", "2011-12-29", 24),
        ("Pacific/Apia", "2011-12-31", 24),
    ],
)
def test_a_day_lasts_as_long_as_its_clocks_say(zone, day, hours):
    noon = us(f"{day}T12:00", zone)
    span = at(Window(every="day", timezone=zone), noon)
    assert span.end_us - span.start_us == hours * HOUR_US
    assert span.label == day
    assert at(Window(every="day", timezone=zone), span.start_us - 1).label != day
    assert at(Window(every="day", timezone=zone), span.end_us).label != day


@pytest.mark.parametrize(
    ("zone", "before"),
    [("America/Sao_Paulo", "2018-11-03"), ("Africa/Cairo", "2024-04-25"), ("Asia/Beirut", "2022-03-26")],
)
def test_where_midnight_is_skipped_the_day_starts_when_the_clocks_change(zone, before):
    end = at(Window(every="day", timezone=zone), us(f"{before}T12:00", zone)).end_us
    assert from_us(end).astimezone(ZoneInfo(zone)).hour == 1
    assert from_us(end - 1).astimezone(ZoneInfo(zone)).date().isoformat() == before


def test_a_day_that_a_zone_skips_holds_no_instant():
    window = Window(every="day", timezone="Pacific/Apia")
    before = at(window, us("2011-12-29T12:00", "Pacific/Apia"))
    after = at(window, before.end_us)
    assert after.label == "2011-12-31"
    assert after.number == before.number + 2
    skipped = Periods(window).numbered(before.number + 1)
    assert skipped.start_us == skipped.end_us
    assert skipped.label == "2011-12-30"


def test_a_season_of_six_weeks():
    window = Window(every="6 weeks", origin=datetime(2026, 1, 5), keep=2)
    periods = Periods(window)
    starts = [periods.numbered(number).start_us for number in range(4)]
    assert starts == [us("2026-01-05"), us("2026-02-16"), us("2026-03-30"), us("2026-05-11")]
    assert [periods.at(start).label for start in starts] == ["2026-01-05", "2026-02-16", "2026-03-30", "2026-05-11"]
    assert periods.at(us("2026-01-04T23:59:59")).number == -1
    assert periods.oldest_kept(us("2026-05-11")) == 1


def test_months_count_from_a_day_of_the_month():
    span = at(Window(every="3 months", origin=datetime(2026, 1, 28, 6), timezone="Europe/Berlin"), us("2026-05-01"))
    assert span.start_us == us("2026-04-28T06:00", "Europe/Berlin")
    assert span.end_us == us("2026-07-28T06:00", "Europe/Berlin")
    with pytest.raises(InvalidInput) as caught:
        Periods(Window(every="month", origin=datetime(2026, 1, 29)))
    assert caught.value.field == "window.origin"


@pytest.mark.parametrize(("every", "length"), [("6 hours", 6 * HOUR_US), ("90 minutes", 90 * 60 * SECOND_US)])
def test_hours_and_minutes_are_absolute(every, length):
    window = Window(every=every, timezone="Europe/Berlin")
    for day in ("2026-03-29T00:30", "2026-10-25T02:30"):
        span = at(window, us(day, "Europe/Berlin"))
        assert span.end_us - span.start_us == length


def test_an_hour_that_comes_twice_has_two_names():
    window = Window(every="1 hour", timezone="Europe/Berlin")
    first = at(window, us("2026-10-25T02:30", "Europe/Berlin"))
    second = at(window, first.end_us)
    assert (first.label, second.label) == ("2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00")
    assert at(Window(every="1 hour"), us("2026-10-25T02:30")).label == "2026-10-25T02:00Z"


def test_origin_with_an_offset_is_an_instant_and_without_one_a_local_time():
    local = Window(every="1 day", timezone="Asia/Tokyo", origin=datetime(2026, 1, 1, 4))
    fixed = Window(every="1 day", timezone="Asia/Tokyo", origin=datetime(2025, 12, 31, 19, tzinfo=UTC))
    assert at(local, us("2026-06-01")) == at(fixed, us("2026-06-01"))
    assert at(local, us("2026-06-01")).label == "2026-06-01T04:00"


def test_start_and_end_bound_a_season():
    periods = Periods(Window(start=datetime(2026, 1, 1), end=datetime(2026, 2, 1), timezone="Asia/Tokyo"))
    start, end = us("2026-01-01", "Asia/Tokyo"), us("2026-02-01", "Asia/Tokyo")
    assert periods.at(start - 1) is None
    assert periods.at(end) is None
    assert periods.at(start) == periods.at(end - 1) == (start, end, 0, None)
    assert Periods(Window(start=datetime(2026, 1, 1))).at(us("2090-01-01")).end_us is None
    assert Periods(Window(end=datetime(2026, 1, 1))).at(us("1990-01-01")).start_us is None


def test_periods_are_cut_at_start_and_end():
    start, end = us("2026-01-07T12:00"), us("2026-01-21T12:00")
    periods = Periods(Window(every="week", start=from_us(start), end=from_us(end)))
    first, last = periods.at(start), periods.at(end - 1)
    assert (first.start_us, first.end_us, first.label) == (start, us("2026-01-12"), "2026-W02")
    assert (last.start_us, last.end_us, last.label) == (us("2026-01-19"), end, "2026-W04")
    assert periods.at(first.start_us) == first
    assert periods.at(start - 1) is None
    assert periods.at(end) is None


def test_keep_counts_finished_periods():
    periods = Periods(Window(every="day", keep=1, end=datetime(2026, 1, 10)))
    today = periods.at(us("2026-01-09T12:00")).number
    assert periods.oldest_kept(us("2026-01-09T12:00")) == today - 1
    assert periods.oldest_kept(us("2026-01-10")) == today  # the last day is finished too
    assert periods.oldest_kept(us("2050-01-10")) == today
    assert Periods(Window(every="day")).oldest_kept(us("2026-01-09")) is None
    assert Periods(Window(every="day", keep=0)).oldest_kept(us("2026-01-09T01:00")) == today


@given(windows, instants)
def test_periods_tile_time(window, instant):
    periods = Periods(window)
    span = periods.at(instant)
    assert span.start_us <= instant < span.end_us
    assert periods.at(span.end_us).start_us == span.end_us
    assert periods.at(span.start_us - 1).end_us == span.start_us
    assert Periods(window).at(span.start_us) == span == Periods(window).at(span.end_us - 1)
    assert periods.numbered(span.number) == span


@given(windows, instants)
def test_names_are_unique_and_numbers_are_in_order(window, instant):
    periods = Periods(window)
    number = periods.at(instant).number
    spans = [periods.numbered(number + step) for step in range(-30, 31)]
    assert len({span.label for span in spans}) == len(spans)
    for span, following in pairwise(spans):
        assert span.end_us == following.start_us
        assert span.start_us <= span.end_us


@given(st.sampled_from(ZONES), instants, st.sampled_from(["day", "week", "month"]))
def test_a_period_holds_the_dates_of_its_name(zone, instant, every):
    periods = Periods(Window(every=every, timezone=zone))
    label = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}[every]
    local = from_us(instant).astimezone(ZoneInfo(zone))
    span = periods.at(instant)
    repeated = local.replace(tzinfo=None) < from_us(span.start_us).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if repeated:  # clocks went back over midnight: that hour belongs to the day that had begun
        assert instant - span.start_us < 2 * HOUR_US
    else:
        assert local.strftime(label) == span.label


@pytest.mark.parametrize(
    "every", ["day", "week", "month", "1 minute", "999999 minutes", "999999 hours", "999999 weeks", "999999 months"]
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Apia"])
def test_far_instants_and_long_periods_are_no_overflow(every, zone):
    periods = Periods(Window(every=every, timezone=zone, keep=100_000))
    for moment in (datetime.min, datetime(1, 12, 31), datetime(9999, 1, 1), datetime.max):
        assert periods.at(to_us(moment.replace(tzinfo=UTC))) is None
    for instant in (FIRST_US, us("1970-01-01"), us("2026-01-01"), END_US - 1):
        span = periods.at(instant)
        assert FIRST_US <= span.start_us <= instant < span.end_us <= END_US
        assert periods.at(span.start_us) == span
        assert span.label
        assert periods.numbered(periods.oldest_kept(instant)).start_us <= instant


def test_instants_and_microseconds_are_inverse():
    for moment in (datetime.min, datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 1, 1), datetime.max):
        assert from_us(to_us(moment.replace(tzinfo=UTC))) == moment.replace(tzinfo=UTC)
    assert to_us(datetime(1970, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))) == 0


@pytest.mark.parametrize(
    ("window", "field"),
    [
        (Window(), "window"),
        (Window(keep=1), "window.keep"),
        (Window(keep=1, start=datetime(2026, 1, 1)), "window.keep"),
        (Window(origin=datetime(2026, 1, 1)), "window.origin"),
        (Window(every="fortnight"), "window.every"),
        (Window(every="hour"), "window.every"),
        (Window(every="0 days"), "window.every"),
        (Window(every="day\n"), "window.every"),
        (Window(every="day", start=datetime(2026, 1, 2), end=datetime(2026, 1, 2)), "window.end"),
        (Window(every="day", start=datetime(2026, 1, 2), end=datetime(2026, 1, 1)), "window.end"),
        (Window(every="day", start=datetime.min), "window.start"),
        (Window(every="day", end=datetime.max), "window.end"),
        (Window(every="day", origin=datetime.min), "window.origin"),
        *(
            (Window(every="day", timezone=zone), "window.timezone")
            for zone in (
                "",
                "Europe",
                "Europe/Atlantis",
                "../UTC",
                "/etc/passwd",
                "UTC\0",
                "\ud800",
                "x" * 5000,
                "localtime",
                "posixrules",
                "right/UTC",
                "posix/UTC",
            )
        ),
    ],
)
def test_a_window_that_makes_no_sense_names_its_field(window, field):
    with pytest.raises(InvalidInput) as caught:
        Periods(window)
    assert caught.value.field == field


PROGRAM = """
from laurels.model import Window
from laurels.windows import Periods
for every in ("day", "week", "month", "6 weeks", "5 hours"):
    periods = Periods(Window(every=every, timezone="Europe/Berlin"))
    for instant in range(1_774_000_000_000_000, 1_793_000_000_000_000, 777_777_777_777):
        print(periods.at(instant))
"""


def test_the_zone_of_the_process_does_not_matter():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "TZ": zone, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for zone in ("UTC", "Asia/Tokyo", "America/New_York")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("Span") > 100


def test_one_second_either_side_of_every_midnight_of_a_year():
    zone = ZoneInfo("Europe/Berlin")
    periods = Periods(Window(every="day", timezone="Europe/Berlin"))
    for day in range(365):
        date = datetime(2026, 1, 1) + timedelta(days=day)
        midnight = to_us(date.replace(tzinfo=zone))
        assert periods.at(midnight).label == periods.at(midnight + SECOND_US).label == f"{date:%Y-%m-%d}"
        assert periods.at(midnight - SECOND_US).label == f"{date - timedelta(days=1):%Y-%m-%d}"
