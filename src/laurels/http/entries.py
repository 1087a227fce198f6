"""Reading boards: top, pages, around a player, ranges, friends, distributions."""

from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import Any, get_args

from laurels.errors import InvalidInput, NotFound
from laurels.http.request import Request
from laurels.http.routing import Headers, Response, Route
from laurels.http.wire import (
    AroundQuery,
    BoardQuery,
    EntryField,
    EntryView,
    Friends,
    Histogram,
    HistogramQuery,
    InstanceQuery,
    Listing,
    PageQuery,
    Percentile,
    Percentiles,
    PercentilesQuery,
    PlayerIds,
    RangeQuery,
    StandingView,
    TopQuery,
    UsualEntry,
)
from laurels.standings import BoardInstance, View

FIELDS = frozenset(get_args(EntryField))
USUAL = frozenset(("rank", "position", "player_id", "score"))
DETAILS = frozenset(("name", "submission"))
PERCENTILES_MAX = 100


def board_of(request: Request, at: datetime | None) -> BoardInstance:
    """The instance that a request means."""
    game = request.game
    try:
        board = BoardInstance(game, request.names[1], at, game.partition_from_texts(request.where))
        _ = board.name  # which checks the partition
    except InvalidInput as error:
        raise type(error)(f"where.{error.field}", error.value, error.rule) from error  # as it is written here
    return board


@lru_cache(maxsize=256)
def _fields(text: str) -> frozenset[str]:
    fields = frozenset(text.split(","))
    if not fields.issubset(FIELDS):
        raise InvalidInput("fields", text, f"are some of {', '.join(get_args(EntryField))}, separated by commas")
    return fields


def _asked(request: Request, query: BoardQuery) -> tuple[BoardInstance, frozenset[str], bool]:
    """The instance and the fields of an entry that are asked for, and whether these need a read of the store."""
    fields = _fields(query.fields)
    return board_of(request, query.at), fields, not fields.isdisjoint(DETAILS)


def entries_of(view: View, fields: frozenset[str]) -> list[Any]:
    """Those fields of a view's entries."""
    if fields == USUAL:
        return list(map(UsualEntry, view.ranks, view.positions, view.player_ids, view.scores))
    count = len(view)
    columns: list[Any] = [
        view.ranks if "rank" in fields else repeat(None, count),
        view.positions if "position" in fields else repeat(None, count),
        view.player_ids if "player_id" in fields else repeat(None, count),
        view.scores if "score" in fields else repeat(None, count),
        map(view.names.get, view.player_ids) if "name" in fields else repeat(None, count),
        view.orders if "order" in fields else repeat(None, count),
        view.submissions or () if "submission" in fields else repeat(None, count),
    ]
    return list(map(EntryView, *columns))


def _changed(request: Request, view: View, fields: frozenset[str]) -> tuple[Headers, bool]:
    """The headers that tell one state of an instance from another, and whether whoever asks does not know this one yet.
    Names change without the instance, so answers with names have none."""
    if view.instance is None or "name" in fields:
        return [], True
    etag = b'W/"%s-%x"' % (request.app.epoch, view.instance.version)
    headers = [(b"etag", etag), (b"cache-control", b"private, no-cache")]
    known = request.headers.get(b"if-none-match")
    if known is None:
        return headers, True
    return headers, known != b"*" and etag not in [one.strip() for one in known.split(b",")]


def _listing(request: Request, view: View, fields: frozenset[str]) -> Response:
    headers, is_new = _changed(request, view, fields)
    if not is_new:
        return Response(status=304, headers=headers)
    entries = entries_of(view, fields)
    as_of = datetime.now(UTC)
    listing = Listing(view.name, as_of, view.total, entries, view.next, view.previous)
    return Response(content=listing, headers=headers)


async def top(request: Request, query: TopQuery) -> Any:
    """The first entries of a board instance."""
    board, fields, details = _asked(request, query)
    view = await board.view_top(query.limit, details=details)
    return _listing(request, view, fields)


async def page(request: Request, query: PageQuery) -> Any:
    """A page of a board instance. Cursors are places in the order: rows that do not move are neither missed nor shown
    twice."""
    board, fields, details = _asked(request, query)
    view = await board.view_page(query.limit, query.cursor, query.offset, details=details)
    return _listing(request, view, fields)


async def score_range(request: Request, query: RangeQuery) -> Any:
    """The entries whose score is between two."""
    board, fields, details = _asked(request, query)
    view = await board.view_range(query.low, query.high, query.limit, details=details)
    return _listing(request, view, fields)


async def around(request: Request, query: AroundQuery) -> Any:
    """The entries around a player, shifted at the edges of the board."""
    board, fields, details = _asked(request, query)
    view = await board.view_around(request.names[2], query.limit, details=details)
    return _listing(request, view, fields)


async def entry(request: Request, query: BoardQuery) -> Any:
    """One player's entry with rank and percentile."""
    board, fields, details = _asked(request, query)
    view = await board.view_around(request.names[2], 1, details=details)
    headers, is_new = _changed(request, view, fields)
    if not is_new:
        return Response(status=304, headers=headers)
    shown = entries_of(view, fields)[0]
    standing = StandingView(view.name, datetime.now(UTC), view.total, view.percentile(0), shown)
    return Response(content=standing, headers=headers)


async def remove_entry(request: Request, query: InstanceQuery) -> Response:
    """Remove a player's entry: what they have submitted so far no longer counts in this instance."""
    player_id = request.names[2]
    if not await board_of(request, query.at).remove(player_id):
        raise NotFound("entry", player_id)
    return Response(status=204)


async def friends(request: Request, query: InstanceQuery, some: PlayerIds) -> Friends:
    """Those of a list of players who have an entry, ranked among themselves."""
    board = board_of(request, query.at)
    found = await board.players(some.player_ids, details=False)
    return Friends(instance=board.name, as_of=datetime.now(UTC), total=await board.count(), friends=found)


async def histogram(request: Request, query: HistogramQuery) -> Histogram:
    """How many entries have which score."""
    board = board_of(request, query.at)
    found = await board.histogram(query.buckets)
    return Histogram(instance=board.name, as_of=datetime.now(UTC), total=await board.count(), buckets=found)


async def percentiles(request: Request, query: PercentilesQuery) -> Percentiles:
    """Which score is better than so many percent of the entries."""
    board = board_of(request, query.at)
    wanted = _percentiles(query.percentiles)
    total, found = await board.percentiles(wanted)
    return Percentiles(
        instance=board.name,
        as_of=datetime.now(UTC),
        total=total,
        percentiles=[
            Percentile(percentile=percentile, score=entry.score, position=entry.position)
            for percentile, entry in zip(wanted, found, strict=False)
        ],
    )


def _percentiles(text: str) -> list[float]:
    parts = text.split(",")
    try:
        wanted = [float(part) for part in parts]
    except ValueError:
        wanted = []
    if not 1 <= len(wanted) <= PERCENTILES_MAX or not all(0 <= one <= 100 for one in wanted):
        raise InvalidInput("percentiles", text, f"are 1 to {PERCENTILES_MAX} numbers from 0 to 100 with commas")
    return wanted


def _read(path: str, handler: Any, summary: str, query: Any, answer: Any, example: dict[str, Any]) -> Route:
    return Route(
        method="GET",
        path=f"/v1/games/{{game}}/boards/{{board}}/{path}",
        handler=handler,
        summary=summary,
        tag="entries",
        role="read",
        players=True,
        query=query,
        where=True,
        answer=answer,
        example={"names": {"board": "best", "player_id": "ada"}, **example},
    )


ROUTES = [
    _read("top", top, "The first entries", TopQuery, Listing, {"query": {"limit": 3}}),
    _read("entries", page, "A page of entries", PageQuery, Listing, {"query": {"limit": 2}}),
    _read("range", score_range, "Entries by score", RangeQuery, Listing, {"query": {"low": 3000, "high": 5000}}),
    _read("entries/{player_id}", entry, "One player's entry", BoardQuery, StandingView, {}),
    _read("entries/{player_id}/around", around, "Around a player", AroundQuery, Listing, {"query": {"limit": 3}}),
    _read("histogram", histogram, "The distribution of scores", HistogramQuery, Histogram, {"query": {"buckets": 5}}),
    _read("percentiles", percentiles, "Scores at percentiles", PercentilesQuery, Percentiles, {}),
    Route(
        method="POST",
        path="/v1/games/{game}/boards/{board}/players",
        handler=friends,
        summary="Friends, ranked among themselves",
        tag="entries",
        role="read",
        players=True,
        query=InstanceQuery,
        where=True,
        body=PlayerIds,
        answer=Friends,
        example={"names": {"board": "best"}, "body": {"player_ids": ["ada", "bob", "somebody-else"]}},
    ),
    Route(
        method="DELETE",
        path="/v1/games/{game}/boards/{board}/entries/{player_id}",
        handler=remove_entry,
        summary="Remove a player's entry",
        tag="entries",
        role="admin",
        query=InstanceQuery,
        where=True,
        status=204,
        example={"names": {"board": "best", "player_id": "cyd"}},
    ),
]
