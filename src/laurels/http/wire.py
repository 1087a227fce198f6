"""What travels over HTTP besides the structs of `model`: bodies of requests, queries, and answers around lists. Pure.

Unknown fields are refused, so that a typing error in an optional field is noticed.
"""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

from laurels.model import (
    Answer,
    Board,
    Bucket,
    Dimension,
    Friend,
    InstanceName,
    Name,
    Number,
    Player,
    Standing,
    Submission,
)

T = TypeVar("T")

Instant: TypeAlias = Annotated[datetime, Meta(tz=True, description="RFC 3339, with an offset")]
Score: TypeAlias = Annotated[
    int | Decimal,
    Meta(description="A 64-bit integer or a decimal, exact; a number, or the same digits as text"),
]
DimensionIn: TypeAlias = str | int | bool | list[str] | None
EntryField: TypeAlias = Literal["rank", "position", "player_id", "score", "order", "name", "submission"]

BATCH_ROWS_MAX = 10_000


# --- bodies ---------------------------------------------------------------------------------------------------


class NewSubmission(Struct, forbid_unknown_fields=True, kw_only=True):
    """One finished play. With a `submission_id` of your own (a UUIDv7 is best) it is safe to send again."""

    player_id: str
    score: Score
    submission_id: str | None = None
    played_at: Instant | None = None
    dimensions: dict[str, DimensionIn] = {}
    metrics: dict[str, Score | None] = {}


class NewSubmissions(Struct, forbid_unknown_fields=True, kw_only=True):
    """Plays as columns of equal length, up to 10,000 rows; a dimension or metric may also be one value for all.
    All are accepted, or none."""

    player_ids: list[str]
    scores: list[Score]
    submission_ids: list[str | None] | None = None
    played_at: list[Instant | None] | None = None
    dimensions: dict[str, str | int | bool | list[DimensionIn] | None] = {}
    metrics: dict[str, int | Decimal | list[Score | None] | None] = {}


class GameChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """A game's title, the types of its dimensions, and boards to create or change. Boards left out stay."""

    title: str | None = None
    dimensions: dict[Name, Dimension] = {}
    boards: dict[Name, Board] = {}


class PlayerIds(Struct, forbid_unknown_fields=True, kw_only=True):
    """A list of players, such as somebody's friends."""

    player_ids: list[str]


class Profile(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is shown of a player: a name and free attributes. Replaces what was there."""

    name: str | None = None
    attributes: dict[str, str] = {}


class Ban(Struct, forbid_unknown_fields=True, kw_only=True):
    """Why a player is hidden."""

    reason: str = ""


class NewKey(Struct, forbid_unknown_fields=True, kw_only=True):
    """A key to make. `signer` keys sign player tokens and requests, and open nothing by themselves."""

    role: Literal["admin", "server", "read", "signer"]
    name: Annotated[str, Meta(max_length=128)] = ""
    expires_at: Instant | None = None


class NewToken(Struct, forbid_unknown_fields=True, kw_only=True):
    """Whom a token is for, and how long it lasts: at most a day."""

    player_id: str
    expires_in_s: Annotated[int, Meta(ge=1, le=86_400)] = 3_600


# --- queries --------------------------------------------------------------------------------------------------


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request without parameters."""


class BoardQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which instance: `where.<dimension>` for each dimension of the partition, `at` for an earlier window. `fields`
    lists what is told of an entry, separated by commas; `name` and `submission` cost a read of the store."""

    at: Instant | None = None
    fields: str = "rank,position,player_id,score"


class TopQuery(BoardQuery, frozen=True):
    """The first entries."""

    limit: int = 10


class PageQuery(BoardQuery, frozen=True):
    """A page: from the top, from a cursor of another page, or from an offset."""

    limit: int = 25
    cursor: str | None = None
    offset: int | None = None


class RangeQuery(BoardQuery, frozen=True):
    """Entries with low <= score <= high."""

    low: Score
    high: Score
    limit: int = 100


class AroundQuery(BoardQuery, frozen=True):
    """So many entries, with the player in the middle."""

    limit: int = 11


class HistogramQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many bars at most."""

    at: Instant | None = None
    buckets: int = 20


class PercentilesQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which percentiles, separated by commas."""

    at: Instant | None = None
    percentiles: str = "50,75,90,99"


class InstanceQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which instance."""

    at: Instant | None = None


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A page of a player's submissions, newest first."""

    limit: int = 50
    cursor: str | None = None


class BatchQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether to tell what each row did."""

    answers: bool = False


class DefineQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether to answer only when the board is complete."""

    wait: bool = True


# --- answers --------------------------------------------------------------------------------------------------


class Items(Struct, Generic[T], frozen=True, kw_only=True):
    """A whole list."""

    items: list[T]


class EntryView(Struct, frozen=True, omit_defaults=True):
    """Those fields of an entry that were asked for."""

    rank: int | None = None
    position: int | None = None
    player_id: str | None = None
    score: Number | None = None
    name: str | None = None
    order: dict[str, Any] | None = None
    submission: Submission | None = None


class UsualEntry(Struct, frozen=True):
    """The fields of an entry that nobody has to ask for: an EntryView with just these."""

    rank: int
    position: int
    player_id: str
    score: Number


class Listing(Struct, frozen=True, omit_defaults=True):
    """Entries of a board instance in order. True as of `as_of`; `total` is how many entries there are. `next` and
    `previous` are cursors, on pages only."""

    instance: InstanceName
    as_of: datetime
    total: int
    entries: list[EntryView]
    next: str | None = None
    previous: str | None = None


class StandingView(Struct, frozen=True):
    """One player's entry. `percentile` is the share of entries, in percent, at or below the player's rank."""

    instance: InstanceName
    as_of: datetime
    total: int
    percentile: float
    entry: EntryView


class Friends(Struct, frozen=True, kw_only=True):
    """Those of a list of players who have an entry, ranked among themselves and on the board."""

    instance: InstanceName
    as_of: datetime
    total: int
    friends: list[Friend]


class Histogram(Struct, frozen=True, kw_only=True):
    """How many entries have which value, lowest first."""

    instance: InstanceName
    as_of: datetime
    total: int
    buckets: list[Bucket]


class Percentile(Struct, frozen=True, kw_only=True):
    """The score that is better than or equal to so many percent of the entries, and the position where it stands."""

    percentile: float
    score: Number
    position: int


class Percentiles(Struct, frozen=True, kw_only=True):
    """Scores at percentiles, as asked for."""

    instance: InstanceName
    as_of: datetime
    total: int
    percentiles: list[Percentile]


class Accepted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that is durable and counted. `answers` if they were asked for."""

    accepted: int
    submission_ids: list[str]
    answers: list[Answer] | None = None


class GameInfo(Struct, frozen=True, kw_only=True):
    """A game, its title and the types of its dimensions; its boards have routes of their own."""

    game: str
    title: str | None
    dimensions: dict[str, Dimension]
    boards: list[str]


class BannedPlayer(Struct, frozen=True, kw_only=True):
    """Who is hidden."""

    player_id: str


class Erased(Struct, frozen=True, kw_only=True):
    """How many submissions were erased."""

    submissions: int


class Export(Struct, frozen=True, kw_only=True):
    """All that is kept of a player."""

    player: Player
    entries: list[Standing]
    submissions: list[Submission]


class KeyInfo(Struct, frozen=True, kw_only=True):
    """A key without its secret."""

    key_id: str
    role: str
    name: str
    created_at: datetime
    expires_at: datetime | None


class MadeKey(KeyInfo, frozen=True):
    """A key with its secret, shown this once."""

    key: str


class Token(Struct, frozen=True, kw_only=True):
    """A player token."""

    token: str
    expires_at: datetime


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the server can do its work, and if not, why."""

    status: Literal["ok", "stopping", "failing"]
    detail: str | None = None


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457). `code` is stable; `field` and `rule` say what to mend."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    field: str | None = None
    rule: str | None = None
    retry_after_s: float | None = None


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A topic to follow: `top`, `rank` of a player, `around` a player, or a player's `submissions`. `access_token` is
    for browsers, whose EventSource and WebSocket send no headers."""

    kind: Literal["top", "rank", "around", "submissions"] = "top"
    board: str | None = None
    at: Instant | None = None
    limit: int | None = None
    player_id: str | None = None
    names: bool = False
    resume: str | None = None
    access_token: str | None = None
