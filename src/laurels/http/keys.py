"""Keys and player tokens."""

import msgspec

from laurels.auth import ApiKey
from laurels.http.request import Request
from laurels.http.routing import Response, Route
from laurels.http.wire import Items, KeyInfo, MadeKey, NewKey, NewToken, Token


def _info(key: ApiKey) -> KeyInfo:
    return msgspec.convert(key, KeyInfo, from_attributes=True)


def _made(key: ApiKey, text: str) -> MadeKey:
    return MadeKey(**msgspec.structs.asdict(_info(key)), key=text)


async def list_keys(request: Request) -> Items[KeyInfo]:
    """The keys of a game, without their secrets."""
    return Items(items=[_info(key) for key in request.laurels.keys(request.game.name)])


async def make_key(request: Request, new: NewKey) -> MadeKey:
    """Make a key. Its text is shown this once."""
    key, text = await request.laurels.create_key(
        new.role, game=request.game.name, name=new.name, expires_at=new.expires_at
    )
    return _made(key, text)


async def rotate_key(request: Request) -> MadeKey:
    """Give a key a new secret; the old one ends at once."""
    key, text = await request.laurels.rotate_key(request.names[1], request.names[0])
    return _made(key, text)


async def revoke_key(request: Request) -> Response:
    """End a key at once."""
    await request.laurels.revoke_key(request.names[1], request.names[0])
    return Response(status=204)


async def make_token(request: Request, new: NewToken) -> Token:
    """A token with which one player reads, and submits for themselves where boards allow it."""
    game, laurels = request.names[0], request.laurels
    token, expires_at = await laurels.player_token(game, new.player_id, new.expires_in_s)
    return Token(token=token, expires_at=expires_at)


ROUTES = [
    Route(
        method="GET",
        path="/v1/games/{game}/keys",
        handler=list_keys,
        summary="List keys",
        tag="keys",
        role="admin",
        answer=Items[KeyInfo],
    ),
    Route(
        method="POST",
        path="/v1/games/{game}/keys",
        handler=make_key,
        summary="Make a key",
        tag="keys",
        role="admin",
        body=NewKey,
        answer=MadeKey,
        status=201,
        example={"body": {"role": "read", "name": "the web site"}},
    ),
    Route(
        method="POST",
        path="/v1/games/{game}/keys/{key_id}/rotate",
        handler=rotate_key,
        summary="Give a key a new secret",
        tag="keys",
        role="admin",
        answer=MadeKey,
        status=201,
        example={"names": {"key_id": "{made}"}},
    ),
    Route(
        method="DELETE",
        path="/v1/games/{game}/keys/{key_id}",
        handler=revoke_key,
        summary="Revoke a key",
        tag="keys",
        role="admin",
        status=204,
        example={"names": {"key_id": "{made}"}},
    ),
    Route(
        method="POST",
        path="/v1/games/{game}/tokens",
        handler=make_token,
        summary="Make a player token",
        tag="keys",
        role="server",
        body=NewToken,
        answer=Token,
        status=201,
        example={"body": {"player_id": "ada", "expires_in_s": 900}},
    ),
]
