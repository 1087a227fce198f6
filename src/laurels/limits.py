"""How often somebody may ask: token buckets by key and by player, and the headers that say so. Pure; the time comes in.

A bucket is one number: the instant at which it would be full again. Memory is bounded; what was used longest ago goes.
"""

from typing import Annotated, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from laurels.errors import RateLimited

BUCKETS_MAX = 65_536
Kind: TypeAlias = Literal["key", "player"]


class Rate(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """So many `requests` in `window_s` seconds, over time; `burst` may come at once (`requests`, if not given)."""

    requests: Annotated[int, Meta(ge=1, le=1_000_000)]
    window_s: Annotated[int, Meta(ge=1, le=86_400)] = 1
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class RateLimits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How often each key and each player may ask; None: as often as they like."""

    per_key: Rate | None = None
    per_player: Rate | None = Rate(requests=20, window_s=1, burst=40)


class Quota(NamedTuple):
    """What a request was told: whether it may go on, and the headers to send with the answer."""

    allowed: bool
    remaining: int
    full_in_s: int
    retry_after_s: float
    policy: str
    kind: Kind

    def headers(self) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers)."""
        return {"RateLimit-Policy": self.policy, "RateLimit": f'"{self.kind}";r={self.remaining};t={self.full_in_s}'}

    def check(self) -> None:
        """Raise RateLimited if the request may not go on."""
        if not self.allowed:
            raise RateLimited(f"too many requests of this {self.kind}", self.retry_after_s)


class Buckets:
    """The token buckets of one kind of caller."""

    def __init__(self, kind: Kind, rate: Rate, most: int = BUCKETS_MAX) -> None:
        self._kind = kind
        self._most = most
        burst = rate.burst or rate.requests
        self._interval = rate.window_s * 1_000_000_000 // rate.requests  # nanoseconds for one request
        self._capacity = burst * self._interval
        self._full_at: dict[tuple[str, ...], int] = {}
        self._policy = f'"{kind}";q={burst};w={_seconds_up(self._capacity)}'

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, who: tuple[str, ...], now_us: int) -> Quota:
        """Take one request out of somebody's bucket, if it has one."""
        now = now_us * 1_000
        # A clock that was set back never locks anybody out for longer than an empty bucket does.
        full_at = min(max(self._full_at.pop(who, 0), now), now + self._capacity)
        wait = full_at + self._interval - self._capacity - now
        allowed = wait <= 0
        if allowed:
            full_at += self._interval
        while len(self._full_at) >= self._most:
            self._full_at.pop(next(iter(self._full_at)))
        self._full_at[who] = full_at
        remaining = (now + self._capacity - full_at) // self._interval
        return Quota(allowed, remaining, _seconds_up(full_at - now), max(0.0, wait / 1e9), self._policy, self._kind)


class Limiter:
    """The buckets of all kinds."""

    def __init__(self, limits: RateLimits, most: int = BUCKETS_MAX) -> None:
        self._keys = None if limits.per_key is None else Buckets("key", limits.per_key, most)
        self._players = None if limits.per_player is None else Buckets("player", limits.per_player, most)

    def take_of_key(self, key_id: str, now_us: int) -> Quota | None:
        """A request that was sent with a key; None if there is no limit."""
        return None if self._keys is None else self._keys.take((key_id,), now_us)

    def take_of_player(self, game: str, player_id: str, now_us: int) -> Quota | None:
        """A request that was sent with a player's token; None if there is no limit."""
        return None if self._players is None else self._players.take((game, player_id), now_us)


def _seconds_up(nanoseconds: int) -> int:
    return -(-nanoseconds // 1_000_000_000)
