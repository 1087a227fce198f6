"""Token buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels.errors import RateLimited
from laurels.limits import Buckets, Limiter, Rate, RateLimits

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND


def test_a_burst_and_then_the_rate():
    buckets = Buckets("player", Rate(requests=20, burst=40))
    assert [buckets.take(("g", "amy"), NOW).allowed for _ in range(41)] == [True] * 40 + [False]
    refused = buckets.take(("g", "amy"), NOW)
    assert (refused.remaining, refused.full_in_s, refused.retry_after_s) == (0, 2, 0.05)
    with pytest.raises(RateLimited) as error:
        refused.check()
    assert error.value.retry_after_s == 0.05
    assert buckets.take(("g", "bob"), NOW).allowed  # everybody has a bucket of their own
    assert buckets.take(("g", "amy"), NOW + 50_000).allowed
    assert not buckets.take(("g", "amy"), NOW + 50_000).allowed
    assert [buckets.take(("g", "amy"), NOW + 60 * SECOND).allowed for _ in range(41)].count(True) == 40


def test_headers_say_what_is_left():
    limiter = Limiter(RateLimits())
    quota = limiter.take_of_player("g", "amy", NOW)
    assert quota is not None
    assert quota.headers() == {"RateLimit-Policy": '"player";q=40;w=2', "RateLimit": '"player";r=39;t=1'}
    assert limiter.take_of_key("k", NOW) is None
    of_key = Limiter(RateLimits(per_key=Rate(requests=600, window_s=60), per_player=None))
    quota = of_key.take_of_key("k", NOW)
    assert quota is not None
    assert quota.headers() == {"RateLimit-Policy": '"key";q=600;w=60', "RateLimit": '"key";r=599;t=1'}
    assert of_key.take_of_player("g", "amy", NOW) is None


def test_a_clock_that_is_set_back_locks_nobody_out():
    buckets = Buckets("key", Rate(requests=1, window_s=10))
    assert buckets.take(("k",), NOW).allowed
    earlier = NOW - 3_600 * SECOND
    assert buckets.take(("k",), earlier).retry_after_s <= 10
    assert buckets.take(("k",), earlier + 10 * SECOND).allowed


def test_memory_is_bounded():
    buckets = Buckets("player", Rate(requests=1), most=100)
    for number in range(1_000):
        buckets.take(("g", str(number)), NOW)
    assert len(buckets) == 100
    assert not buckets.take(("g", "999"), NOW).allowed  # the latest are known


@given(
    requests=st.integers(1, 50),
    window_s=st.integers(1, 60),
    burst=st.none() | st.integers(1, 50),
    waits=st.lists(st.integers(0, 3 * SECOND), max_size=200),
)
def test_never_more_than_the_burst_and_the_rate(requests, window_s, burst, waits):
    buckets = Buckets("key", Rate(requests=requests, window_s=window_s, burst=burst))
    now, allowed = NOW, []
    for wait in waits:
        now += wait
        quota = buckets.take(("k",), now)
        if quota.allowed:
            allowed.append(now)
        else:
            assert quota.remaining == 0
            assert quota.retry_after_s > 0
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            span_s = (allowed[last] - allowed[first]) / SECOND
            assert last - first + 1 <= (burst or requests) + span_s * requests / window_s + 1e-6
