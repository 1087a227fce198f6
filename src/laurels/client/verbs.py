"""The verbs of both clients, each written once: what it sends and what it returns."""

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

import msgspec

from laurels.client.answers import Entries, More, read_order
from laurels.client.calls import Call, as_it_is, call, column_or_constant, columns
from laurels.errors import InvalidInput
from laurels.http.wire import (
    Accepted,
    BannedPlayer,
    Erased,
    Export,
    Friends,
    GameInfo,
    Health,
    Histogram,
    Items,
    KeyInfo,
    MadeKey,
    Percentile,
    Percentiles,
    Token,
)
from laurels.ids import new_submission_id
from laurels.model import (
    Answer,
    Board,
    BoardInfo,
    Bucket,
    DimensionValue,
    Friend,
    GameDefinition,
    InstanceInfo,
    Number,
    Page,
    Player,
    Standing,
    Submission,
)

if TYPE_CHECKING:
    from laurels.client.clients import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
Where = Mapping[str, DimensionValue]


class Verb(Generic[P, T]):
    """A method that makes a call, and has its client send it: awaited from an AsyncClient, at once from a Client."""

    def __init__(self, make: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Self: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[P, T]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        if client is None:
            return self

        @functools.wraps(self._make)
        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._make(client, *args, **kwargs))

        return bound


def _entries(found: Entries) -> Entries:
    read_order(found.entries)
    return found


def _standing(found: Standing) -> Standing:
    read_order([found.entry])
    return found


def _standings(found: Items[Standing]) -> list[Standing]:
    read_order(standing.entry for standing in found.items)
    return found.items


def _friends(found: Friends) -> list[Friend]:
    read_order(friend.entry for friend in found.friends)
    return found.friends


def _export(found: Export) -> Export:
    read_order(standing.entry for standing in found.entries)
    return found


class Verbs:
    """What can be asked. Names and arguments are those of `laurels.games.Game` and `laurels.standings.BoardInstance`
    where these have them; which instance of a board is said by `where` and `at`."""

    game: str | None

    def _in_game(self, *path: str) -> tuple[str, ...]:
        if self.game is None:
            raise InvalidInput("game", None, "name the game: AsyncClient(url, key, game=...), or client.for_game(...)")
        return ("v1", "games", self.game, *path)

    def _read(
        self,
        path: tuple[str, ...],
        where: Where | None,
        at: datetime | None,
        also: Sequence[More] | None,
        **query: Any,
    ) -> Call[Entries]:
        query |= _instance(where, at, also)
        return call("GET", self._in_game("boards", *path), Entries, _entries, query=query)

    # --- submissions ------------------------------------------------------------------------------------------

    @Verb
    def submit(
        self,
        player_id: str,
        score: Number,
        *,
        dimensions: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Number] | None = None,
        submission_id: str | None = None,
        played_at: datetime | None = None,
    ) -> Call[Answer]:
        """Submit one play: durable, and counted on every board that it feeds, when this returns. It counts once,
        however often it had to be sent."""
        body = {
            "player_id": player_id,
            "score": score,
            "submission_id": submission_id or new_submission_id(),
            "played_at": played_at,
            "dimensions": dimensions,
            "metrics": metrics,
        }
        return call("POST", self._in_game("submissions"), Answer, as_it_is, body=body, repeatable=True)

    @Verb
    def submit_many(
        self,
        player_ids: Any,
        scores: Any,
        *,
        submission_ids: Any = None,
        played_at: Any = None,
        dimensions: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        answers: bool = False,
    ) -> Call[Accepted]:
        """Submit plays as columns, up to 10,000: all are accepted, or none. A dimension or metric may be one value for
        all. `answers` asks for what each did."""
        player_ids = columns(player_ids)
        rows = len(player_ids)
        ids = [None] * rows if submission_ids is None else columns(submission_ids)
        body = {
            "player_ids": player_ids,
            "scores": columns(scores),
            "submission_ids": [new_submission_id() if one is None else one for one in ids],
            "played_at": None if played_at is None else columns(played_at),
            "dimensions": {name: column_or_constant(value, rows) for name, value in (dimensions or {}).items()},
            "metrics": {name: column_or_constant(value, rows) for name, value in (metrics or {}).items()},
        }
        return call(
            "POST",
            self._in_game("submissions", "batch"),
            Accepted,
            as_it_is,
            query={"answers": True} if answers else None,
            body=body,
            packed=True,
            repeatable=True,
        )

    @Verb
    def submission(self, submission_id: str) -> Call[Submission]:
        """A submission by its id."""
        return call("GET", self._in_game("submissions", submission_id), Submission, as_it_is)

    # --- reading boards ---------------------------------------------------------------------------------------

    @Verb
    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        also: Sequence[More] = (),
    ) -> Call[Entries]:
        """The first entries. `also` asks for more of each: its name, its order, its submission."""
        return self._read((board, "top"), where, at, also, limit=limit)

    @Verb
    def page(
        self,
        board: str,
        limit: int = 25,
        cursor: str | None = None,
        offset: int | None = None,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        also: Sequence[More] = (),
    ) -> Call[Entries]:
        """A page: from the top, from a cursor of another page, or from an offset. `pages` goes through all."""
        return self._read((board, "entries"), where, at, also, limit=limit, cursor=cursor, offset=offset)

    @Verb
    def range(
        self,
        board: str,
        low: Number,
        high: Number,
        limit: int = 100,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        also: Sequence[More] = (),
    ) -> Call[Entries]:
        """The entries with low <= score <= high."""
        return self._read((board, "range"), where, at, also, low=low, high=high, limit=limit)

    @Verb
    def around(
        self,
        board: str,
        player_id: str,
        limit: int = 11,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        also: Sequence[More] = (),
    ) -> Call[Entries]:
        """So many entries, with the player in the middle."""
        return self._read((board, "entries", player_id, "around"), where, at, also, limit=limit)

    @Verb
    def entry(
        self,
        board: str,
        player_id: str,
        *,
        where: Where | None = None,
        at: datetime | None = None,
        also: Sequence[More] = (),
    ) -> Call[Standing]:
        """A player's entry with rank and percentile."""
        path = self._in_game("boards", board, "entries", player_id)
        return call("GET", path, Standing, _standing, query=_instance(where, at, also))

    @Verb
    def remove(
        self, board: str, player_id: str, *, where: Where | None = None, at: datetime | None = None
    ) -> Call[None]:
        """Remove a player's entry: what they have submitted so far no longer counts in this instance."""
        path = self._in_game("boards", board, "entries", player_id)
        return call("DELETE", path, type(None), as_it_is, query=_instance(where, at))

    @Verb
    def players(
        self, board: str, player_ids: Sequence[str], *, where: Where | None = None, at: datetime | None = None
    ) -> Call[list[Friend]]:
        """Those of a list of players who have an entry, ranked among themselves and on the board."""
        return call(
            "POST",
            self._in_game("boards", board, "players"),
            Friends,
            _friends,
            query=_instance(where, at),
            body={"player_ids": list(player_ids)},
            repeatable=True,
        )

    @Verb
    def histogram(
        self, board: str, buckets: int = 20, *, where: Where | None = None, at: datetime | None = None
    ) -> Call[list[Bucket]]:
        """How many entries have which score, lowest first."""
        query = {"buckets": buckets, **_instance(where, at)}
        return call(
            "GET", self._in_game("boards", board, "histogram"), Histogram, lambda found: found.buckets, query=query
        )

    @Verb
    def percentiles(
        self,
        board: str,
        percentiles: Sequence[float] = (50, 75, 90, 99),
        *,
        where: Where | None = None,
        at: datetime | None = None,
    ) -> Call[list[Percentile]]:
        """Which score is better than or equal to so many percent of the entries."""
        query = {"percentiles": list(percentiles), **_instance(where, at)}
        path = self._in_game("boards", board, "percentiles")
        return call("GET", path, Percentiles, lambda found: found.percentiles, query=query)

    # --- boards -----------------------------------------------------------------------------------------------

    @Verb
    def boards(self) -> Call[list[BoardInfo]]:
        """All boards, ready or being built."""
        return call("GET", self._in_game("boards"), Items[BoardInfo], lambda found: found.items)

    @Verb
    def board_info(self, board: str) -> Call[BoardInfo]:
        """A board as it stands."""
        return call("GET", self._in_game("boards", board), BoardInfo, as_it_is)

    @Verb
    def define_board(self, board: str, definition: Board | Mapping[str, Any], *, wait: bool = True) -> Call[BoardInfo]:
        """Define a board, or change it. Returns when it is complete, or, with `wait=False`, when it is begun."""
        query = None if wait else {"wait": False}
        return call("PUT", self._in_game("boards", board), BoardInfo, as_it_is, query=query, body=_plain(definition))

    @Verb
    def drop_board(self, board: str) -> Call[None]:
        """Forget a board. The submissions stay, so that it can be defined again."""
        return call("DELETE", self._in_game("boards", board), type(None), as_it_is)

    @Verb
    def instances(self, board: str) -> Call[list[InstanceInfo]]:
        """The instances of a board that have entries."""
        return call("GET", self._in_game("boards", board, "instances"), Items[InstanceInfo], lambda found: found.items)

    # --- players ----------------------------------------------------------------------------------------------

    @Verb
    def player(self, player_id: str) -> Call[Player]:
        """What is known of a player apart from plays."""
        return call("GET", self._in_game("players", player_id), Player, as_it_is)

    @Verb
    def set_player(
        self, player_id: str, name: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> Call[Player]:
        """Set what is shown of a player, instead of what was there."""
        body = {"name": name, "attributes": attributes}
        return call("PUT", self._in_game("players", player_id), Player, as_it_is, body=body)

    @Verb
    def history(self, player_id: str, limit: int = 50, cursor: str | None = None) -> Call[Page[Submission]]:
        """A page of a player's submissions, newest first. `history_pages` goes through all."""
        query = {"limit": limit, "cursor": cursor}
        return call("GET", self._in_game("players", player_id, "submissions"), Page[Submission], as_it_is, query=query)

    @Verb
    def standings(self, player_id: str) -> Call[list[Standing]]:
        """A player's entries across boards."""
        return call("GET", self._in_game("players", player_id, "entries"), Items[Standing], _standings)

    @Verb
    def export(self, player_id: str) -> Call[Export]:
        """All that is kept of a player."""
        return call("GET", self._in_game("players", player_id, "export"), Export, _export)

    @Verb
    def erase(self, player_id: str) -> Call[int]:
        """Erase everything that is kept of a player. Returns how many submissions there were."""
        return call("DELETE", self._in_game("players", player_id), Erased, lambda found: found.submissions)

    @Verb
    def bans(self) -> Call[list[str]]:
        """Who is hidden from the boards."""
        return call(
            "GET", self._in_game("bans"), Items[BannedPlayer], lambda found: [one.player_id for one in found.items]
        )

    @Verb
    def ban(self, player_id: str, reason: str = "") -> Call[None]:
        """Hide a player from all boards."""
        return call("PUT", self._in_game("bans", player_id), type(None), as_it_is, body={"reason": reason})

    @Verb
    def unban(self, player_id: str) -> Call[None]:
        """Show a player again, as if never hidden."""
        return call("DELETE", self._in_game("bans", player_id), type(None), as_it_is)

    # --- keys and tokens --------------------------------------------------------------------------------------

    @Verb
    def keys(self) -> Call[list[KeyInfo]]:
        """The keys of the game, without their secrets."""
        return call("GET", self._in_game("keys"), Items[KeyInfo], lambda found: found.items)

    @Verb
    def create_key(
        self,
        role: Literal["admin", "server", "read", "signer"],
        name: str = "",
        expires_at: datetime | None = None,
    ) -> Call[MadeKey]:
        """Make a key. Its text is told this once, so this is not sent again when the answer is lost."""
        body = {"role": role, "name": name, "expires_at": expires_at}
        return call("POST", self._in_game("keys"), MadeKey, as_it_is, body=body)

    @Verb
    def rotate_key(self, key_id: str) -> Call[MadeKey]:
        """Give a key a new secret; the old one ends at once."""
        return call("POST", self._in_game("keys", key_id, "rotate"), MadeKey, as_it_is)

    @Verb
    def revoke_key(self, key_id: str) -> Call[None]:
        """End a key at once."""
        return call("DELETE", self._in_game("keys", key_id), type(None), as_it_is)

    @Verb
    def player_token(self, player_id: str, expires_in_s: int = 3_600) -> Call[Token]:
        """A token with which one player reads, and submits for themselves where boards allow it."""
        body = {"player_id": player_id, "expires_in_s": expires_in_s}
        return call("POST", self._in_game("tokens"), Token, as_it_is, body=body, repeatable=True)

    # --- games and the server ---------------------------------------------------------------------------------

    @Verb
    def games(self) -> Call[list[GameInfo]]:
        """All games to an operator, to others their own."""
        return call("GET", ("v1", "games"), Items[GameInfo], lambda found: found.items)

    @Verb
    def game_info(self) -> Call[GameInfo]:
        """The client's game: its title, its dimensions, the names of its boards."""
        return call("GET", self._in_game(), GameInfo, as_it_is)

    @Verb
    def define_game(self, name: str, definition: GameDefinition | Mapping[str, Any] | None = None) -> Call[GameInfo]:
        """Create a game, or change it. Boards that are left out stay."""
        return call("PUT", ("v1", "games", name), GameInfo, as_it_is, body=_plain(definition or {}))

    @Verb
    def health(self) -> Call[Health]:
        """Whether the server can take submissions, and if not, why."""
        return call("GET", ("health", "ready"), Health, as_it_is, statuses=(503,))


def _instance(where: Where | None, at: datetime | None, also: Sequence[More] | None = None) -> dict[str, Any]:
    """The parameters that say which instance, and what of its entries."""
    query: dict[str, Any] = {f"where.{name}": value for name, value in (where or {}).items()}
    query["at"] = at
    if also:
        query["fields"] = ["rank", "position", "player_id", "score", *also]
    return query


def _plain(definition: Any) -> Any:
    """A definition as plain data, for either form that it may be given in."""
    return msgspec.to_builtins(definition, builtin_types=(datetime,))
