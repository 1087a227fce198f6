"""Defining boards, and which instances they have."""

import asyncio
from typing import Any

from laurels.auth import Role
from laurels.http.request import Request
from laurels.http.routing import Response, Route
from laurels.http.wire import DefineQuery, Items
from laurels.model import Board, BoardInfo, InstanceInfo


async def list_boards(request: Request) -> Items[BoardInfo]:
    """All boards of a game, ready or being built."""
    return Items(items=request.game.boards())


async def get_board(request: Request) -> BoardInfo:
    """A board as it stands."""
    info: BoardInfo = request.game.board_info(request.names[1])
    return info


async def put_board(request: Request, query: DefineQuery, definition: Board) -> Response:
    """Define a board, or change it: it is built from all submissions ever, and shown when it is complete."""
    game, name = request.game, request.names[1]
    is_new = all(board.name != name for board in game.boards())
    task = asyncio.ensure_future(game.define_board(name, definition))
    if query.wait:
        return Response(content=await asyncio.shield(task), status=201 if is_new else 200)
    request.app.keep(task)
    await asyncio.wait([task], timeout=0.05)
    if task.done():
        return Response(content=task.result(), status=201 if is_new else 200)
    return Response(content=game.board_info(name), status=202)


async def delete_board(request: Request) -> Response:
    """Forget a board. The submissions stay, so that it can be defined again."""
    await request.game.drop_board(request.names[1])
    return Response(status=204)


async def list_instances(request: Request) -> Items[InstanceInfo]:
    """The instances of a board that have entries."""
    return Items(items=await request.game.instances(request.names[1]))


def _route(method: str, path: str, handler: Any, summary: str, role: Role, **more: Any) -> Route:
    example = {"names": {"board": "best"}, **more.pop("example", {})}
    return Route(
        method=method,
        path=f"/v1/games/{{game}}/boards{path}",
        handler=handler,
        summary=summary,
        tag="boards",
        role=role,
        example=example,
        **more,
    )


ROUTES = [
    _route("GET", "", list_boards, "List boards", "read", players=True, answer=Items[BoardInfo]),
    _route("GET", "/{board}", get_board, "Get a board", "read", players=True, answer=BoardInfo),
    _route(
        "PUT",
        "/{board}",
        put_board,
        "Define or change a board",
        "admin",
        query=DefineQuery,
        body=Board,
        answer=BoardInfo,
        statuses=(201, 202),
        example={
            "names": {"board": "weekly"},
            "body": {"window": {"every": "week"}, "policy": "sum", "submit": "players"},
        },
    ),
    _route("GET", "/{board}/instances", list_instances, "List a board's instances", "read", answer=Items[InstanceInfo]),
    _route(
        "DELETE",
        "/{board}",
        delete_board,
        "Forget a board",
        "admin",
        status=204,
        example={"names": {"board": "weekly"}},
    ),
]
