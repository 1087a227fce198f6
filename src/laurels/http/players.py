"""Players: what is known of them, hiding and erasing them."""

from typing import Any

from laurels.auth import Role
from laurels.http.request import Request
from laurels.http.routing import Response, Route
from laurels.http.wire import Ban, BannedPlayer, Erased, Export, HistoryQuery, Items, Profile
from laurels.model import Page, Player, Standing, Submission

EXPORT_PAGE = 1_000


def _only_self(request: Request) -> str:
    """The player that the path names; players may ask of themselves only."""
    request.check_may_read(request.names[1])
    return request.names[1]


async def get_player(request: Request) -> Player:
    """What is known of a player apart from plays."""
    player: Player = await request.game.player(_only_self(request))
    return player


async def put_player(request: Request, profile: Profile) -> Player:
    """Set what is shown of a player."""
    game, player_id = request.game, request.names[1]
    attributes = dict(profile.attributes)
    if profile.name is not None:
        attributes["name"] = profile.name
    await game.describe("player_id", {player_id: attributes})
    player: Player = await game.player(player_id)
    return player


async def history(request: Request, query: HistoryQuery) -> Page[Submission]:
    """A player's submissions, newest first."""
    page: Page[Submission] = await request.game.history(_only_self(request), query.limit, query.cursor)
    return page


async def entries(request: Request) -> Items[Standing]:
    """A player's entries across boards, each with its rank."""
    return Items(items=await request.game.standings(_only_self(request)))


async def export(request: Request) -> Export:
    """All that is kept of a player, in one document."""
    game, player_id = request.game, _only_self(request)
    player = await game.player(player_id)
    submissions: list[Submission] = []
    cursor = None
    while True:
        page = await game.history(player_id, EXPORT_PAGE, cursor)
        submissions.extend(page.items)
        cursor = page.next
        if cursor is None:
            break
    return Export(player=player, entries=await game.standings(player_id), submissions=submissions)


async def erase(request: Request) -> Erased:
    """Erase everything that is kept of a player: submissions, entries, name."""
    return Erased(submissions=await request.game.remove_player(request.names[1]))


async def list_bans(request: Request) -> Items[BannedPlayer]:
    """Who is hidden from the boards."""
    return Items(items=[BannedPlayer(player_id=player_id) for player_id in request.game.banned()])


async def ban(request: Request, why: Ban) -> Response:
    """Hide a player from all boards. Their submissions stay, and further ones are accepted."""
    await request.game.ban(request.names[1], why.reason)
    return Response(status=204)


async def unban(request: Request) -> Response:
    """Show a player again, as if never hidden."""
    await request.game.unban(request.names[1])
    return Response(status=204)


def _route(method: str, path: str, handler: Any, summary: str, role: Role, **more: Any) -> Route:
    example = {"names": {"player_id": "ada"}, **more.pop("example", {})}
    return Route(
        method=method,
        path=f"/v1/games/{{game}}/{path}",
        handler=handler,
        summary=summary,
        tag=path.split("/")[0],
        role=role,
        example=example,
        **more,
    )


PLAYER = "players/{player_id}"
ROUTES = [
    _route(
        "PUT",
        PLAYER,
        put_player,
        "Set a player's name and attributes",
        "server",
        body=Profile,
        answer=Player,
        example={"body": {"name": "Ada", "attributes": {"country": "GB"}}},
    ),
    _route("GET", PLAYER, get_player, "Get a player", "read", players=True, answer=Player),
    _route(
        "GET",
        PLAYER + "/submissions",
        history,
        "A player's submissions",
        "read",
        players=True,
        query=HistoryQuery,
        answer=Page[Submission],
    ),
    _route("GET", PLAYER + "/entries", entries, "A player's entries", "read", players=True, answer=Items[Standing]),
    _route("GET", PLAYER + "/export", export, "All that is kept of a player", "server", players=True, answer=Export),
    _route("PUT", "bans/{player_id}", ban, "Hide a player", "admin", body=Ban, status=204, example={"body": {}}),
    _route("GET", "bans", list_bans, "List hidden players", "admin", answer=Items[BannedPlayer]),
    _route("DELETE", "bans/{player_id}", unban, "Show a player again", "admin", status=204),
    _route("DELETE", PLAYER, erase, "Erase a player", "admin", answer=Erased, example={"names": {"player_id": "bob"}}),
]
