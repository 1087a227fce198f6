"""What is watched, what is told of it, and how much of it there may be."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from laurels.model import Entry, Submission

Kind: TypeAlias = Literal["top", "rank", "around", "submissions"]
LIMITS = {"top": 10, "around": 11}  # if a topic says none
ENCODER = msgspec.json.Encoder(decimal_format="number")


class Topic(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to watch.

    top          the first `limit` entries of a board instance
    rank         one player's entry there
    around       `limit` entries with the player in the middle
    submissions  a player's submissions, as they come in

    `where` and `at` say which instance, as in reads; without `at`, boards with windows are followed from window to
    window. `names` adds display names, as they were when the topic last began or an entry came into view.
    """

    kind: Kind
    board: str | None = None
    where: dict[str, Any] = {}
    at: datetime | None = None
    player_id: str | None = None
    limit: int | None = None
    names: bool = False


class ListSnapshot(Struct, frozen=True, kw_only=True):
    """A list (top, around) as it stands."""

    total: int
    entries: list[Entry]


class ListChange(Struct, frozen=True, kw_only=True):
    """What is different: drop `removed`, put in `entries` by their player, sort by position."""

    total: int
    removed: list[str]
    entries: list[Entry]


class RankData(Struct, frozen=True, kw_only=True):
    """A player's entry as it stands; None without one."""

    total: int
    entry: Entry | None
    percentile: float | None


class PlayData(Struct, frozen=True, kw_only=True):
    """A player's submissions, oldest first: the latest ones in a snapshot, the new ones in a change."""

    submissions: list[Submission]


class Message(Struct, frozen=True):
    """What a subscriber is told. `body` is the JSON of it, but for the id that the subscriber gave its topic.

    type     snapshot, change, or error (the last of its topic)
    resume   goes back with a later subscription, so that it goes on after this message
    """

    type: str
    seq: int
    resume: str
    body: bytes

    def with_id(self, prefix: bytes) -> bytes:
        """The body with an id, put in front by a prefix made by `id_prefix`."""
        return prefix + self.body[1:]


class Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it is encoded. A snapshot's `reason`: start; gap (messages before it are missing); window, board
    (another window has begun, the board has another definition: what was shown before is over)."""

    type: str
    seq: int
    resume: str
    as_of: datetime
    reason: str | None = None
    data: Any


def id_prefix(id: str) -> bytes:
    """How a message begins for a subscriber that calls its topic `id`."""
    return b'{"id":' + ENCODER.encode(id) + b","
