"""Games: what there is, and creating them."""

from laurels.games import Game
from laurels.http.request import Request
from laurels.http.routing import Response, Route
from laurels.http.wire import GameChange, GameInfo, Items
from laurels.model import GameDefinition


def _info(game: Game) -> GameInfo:
    definition = game.definition
    return GameInfo(
        game=game.name,
        title=definition.title,
        dimensions=definition.dimensions,
        boards=[board.name for board in game.boards()],
    )


async def list_games(request: Request) -> Items[GameInfo]:
    """All games to an operator, to others their own."""
    laurels, own = request.laurels, request.principal.game
    return Items(items=[_info(laurels.game(name)) for name in laurels.games() if own in (None, name)])


async def get_game(request: Request) -> GameInfo:
    """A game."""
    return _info(request.game)


async def put_game(request: Request, change: GameChange) -> Response:
    """Create a game, or change it. Boards that are left out stay."""
    laurels, name = request.laurels, request.names[0]
    is_new = name not in laurels.games()
    definition = GameDefinition(title=change.title, dimensions=change.dimensions, boards=change.boards)
    game = await laurels.define_game(name, definition)
    return Response(content=_info(game), status=201 if is_new else 200)


ROUTES = [
    Route(
        method="GET",
        path="/v1/games",
        handler=list_games,
        summary="List games",
        tag="games",
        role="read",
        answer=Items[GameInfo],
    ),
    Route(
        method="PUT",
        path="/v1/games/{game}",
        handler=put_game,
        summary="Create or change a game",
        tag="games",
        role="operator",
        body=GameChange,
        answer=GameInfo,
        statuses=(201,),
        example={"body": {"title": "Demo", "boards": {"best": {"policy": "best", "submit": "players"}}}},
    ),
    Route(
        method="GET",
        path="/v1/games/{game}",
        handler=get_game,
        summary="Get a game",
        tag="games",
        role="read",
        players=True,
        answer=GameInfo,
    ),
]
