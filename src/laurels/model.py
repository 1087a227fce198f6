"""The data of Laurels: what is submitted, what boards are, what reads return. No I/O, no clock.

Instants are timezone-aware `datetime` in public structs. Numbers are exact: `int`, or `Decimal` with a scale.
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct, field

Number: TypeAlias = int | Decimal
DimensionValue: TypeAlias = str | int | bool | frozenset[str]
Policy: TypeAlias = Literal["best", "last", "first", "sum", "count", "min", "max"]
Ranking: TypeAlias = Literal["competition", "dense", "ordinal"]

T = TypeVar("T")

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


# --- definitions (TOML, JSON or code) --------------------------------------------------------------------------


class Condition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a field must satisfy; all that is given must hold. A field that is missing satisfies only
    `exists = false`."""

    eq: str | int | float | bool | list[str] | None = None
    ne: str | int | float | bool | list[str] | None = None
    in_: list[str | int | float | bool] | None = field(default=None, name="in")
    ge: int | float | None = None
    gt: int | float | None = None
    le: int | float | None = None
    lt: int | float | None = None
    subset_of: list[str] | None = None
    superset_of: list[str] | None = None
    exists: bool | None = None


Every: TypeAlias = Annotated[
    str, Meta(pattern=r"^(day|week|month|[1-9][0-9]{0,5} (minute|hour|day|week|month)s?)$(?!\n)")
]


class Window(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """When a submission counts, by its `accepted_at`.

    `every` repeats: "day", "week", "month" (calendar periods of `timezone`; weeks start on Monday), or a number of
    "minutes", "hours", "days", "weeks", "months" counted from `origin`. Days, weeks and months follow the zone's
    calendar, so a day is 23 or 25 hours long when its clocks change. `keep` is how many finished instances stay
    (all, if not given). Without `every`, `start` and `end` bound one instance: a season, a tournament.
    `origin`, `start` and `end` without an offset are local times of `timezone`.
    """

    every: Every | None = None
    timezone: str = "UTC"
    origin: datetime | None = None
    keep: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    start: datetime | None = None
    end: datetime | None = None


OrderTerm: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}( (asc|desc))?$(?!\n)")]
Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$(?!\n)")]
Scale: TypeAlias = Annotated[int, Meta(ge=0, le=18)]


class Board(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The definition of a board: which submissions it ranks, and how.

    where      conditions by field (a dimension, a metric, or `score`); a plain value means equality
    partition  the dimensions whose every combination of values is a list of its own
    window     a period, see `Window`; all-time if not given
    order      1 to 4 terms "field asc|desc": score, a metric, played_at, accepted_at, player_id (desc if not said)
    policy     which of a player's submissions count: best (by the order), last, first, or their sum, count, min, max
    of         the number that sum, min and max take: `score` or a metric
    ranking    how ties share ranks: competition 1,2,2,4; dense 1,2,2,3; ordinal 1,2,3,4
    scale      decimal digits of the score, or of each field used in the order
    submit     who may submit what feeds it: the game's server, or players too, each for themselves
    """

    title: str | None = None
    where: dict[Name, Condition | str | int | float | bool] = {}
    partition: tuple[Name, ...] = ()
    window: Window | None = None
    order: Annotated[tuple[OrderTerm, ...], Meta(min_length=1, max_length=4)] = ("score desc", "accepted_at asc")
    policy: Policy = "best"
    of: Name = "score"
    ranking: Ranking = "competition"
    scale: Scale | dict[Name, Scale] = 0
    submit: Literal["server", "players"] = "server"


class Dimension(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What values a dimension takes. `none` lists spellings of the empty set ("none", "no-modifiers")."""

    type: Literal["text", "integer", "boolean", "set"] = "text"
    none: tuple[str, ...] = ()


class GameDefinition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A game: its boards, and the dimensions that need a declared type."""

    title: str | None = None
    dimensions: dict[Name, Dimension] = {}
    boards: dict[Name, Board] = {}


class Limits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How much of everything there may be. Beyond a limit: an error, never a truncation."""

    id_bytes_max: int = 128
    text_bytes_max: int = 1024
    dimensions_max: int = 32
    metrics_max: int = 64
    set_items_max: int = 64
    batch_rows_max: int = 100_000
    page_rows_max: int = 1_000
    players_max: int = 1_000
    buckets_max: int = 1_000
    boards_per_game_max: int = 256
    keys_per_game_max: int = 1_000
    attributes_bytes_max: int = 4_096
    queued_rows_max: int = 200_000
    index_bytes_max: int = 4 * 2**30


# --- what goes in and what is kept ----------------------------------------------------------------------------


class Submission(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished play, as the log keeps it.

    `played_at` is the client's clock, `accepted_at` the server's; the latter never runs backwards within a log.
    """

    submission_id: str
    player_id: str
    score: Number
    accepted_at: datetime
    played_at: datetime | None = None
    dimensions: dict[str, DimensionValue] = {}
    metrics: dict[str, Number] = {}


class InstanceName(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which board instance: the board, the values of its partition, and the start of its window."""

    board: str
    partition: dict[str, DimensionValue] = {}
    window_start: datetime | None = None
    window_end: datetime | None = None
    window_label: str | None = None


class InstanceInfo(Struct, frozen=True, kw_only=True):
    """A board instance and how many entries it has."""

    instance: InstanceName
    entries: int


class EntryChange(Struct, frozen=True, kw_only=True):
    """What one submission did to one board instance. Ranks and positions are None where there is no entry.

    If it did not count, old and new are the same.
    """

    instance: InstanceName
    counted: bool
    old_score: Number | None
    new_score: Number | None
    old_rank: int | None
    new_rank: int | None
    old_position: int | None
    new_position: int | None
    total: int


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a submission: durable, and the same however often it is sent."""

    submission_id: str
    player_id: str
    score: Number
    accepted_at: datetime
    changes: list[EntryChange]


# --- what reads return ----------------------------------------------------------------------------------------


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One player's standing in a board instance.

    `rank` is shared by ties as the board says; `position` is unique. `name` is the player's display name.
    `order` holds the values of the board's order terms, numbers or instants. `submission` is the play that counts (of a
    sum or count: the latest), None if it was not asked for.
    """

    rank: int
    position: int
    player_id: str
    score: Number
    name: str | None = None
    order: dict[str, Any] = {}
    submission: Submission | None = None


class Standing(Struct, frozen=True, kw_only=True):
    """One player's entry with what surrounds it: `percentile` is the share of entries, in percent, that stand at or
    below the player's rank (100 for the first), `total` how many entries there are."""

    instance: InstanceName
    entry: Entry
    percentile: float
    total: int


class Friend(Struct, frozen=True, kw_only=True):
    """A player ranked among a given list of players (`rank`, `position`) and on the whole board (`entry`)."""

    rank: int
    position: int
    entry: Entry


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a longer list. `next` and `previous` are cursors: places in the order, not offsets, so rows that did not
    move are neither missed nor shown twice while others move. None where there is nothing more."""

    items: list[T]
    next: str | None = None
    previous: str | None = None
    total: int | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Bucket(Struct, frozen=True, kw_only=True):
    """A bar of a histogram: entries with `low` <= value <= `high`."""

    low: Number
    high: Number
    count: int


class BoardInfo(Struct, frozen=True, kw_only=True):
    """A board as it stands: `ready` once it covers all submissions; `progress` goes from 0 to 1 while it is built."""

    name: str
    definition: Board
    version: int
    ready: bool
    progress: float


class Player(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a player apart from plays: display name and free attributes."""

    player_id: str
    name: str | None = None
    attributes: dict[str, str] = {}
    banned: bool = False
