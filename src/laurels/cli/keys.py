"""`laurels keys`: create, list, revoke, rotate."""

from typing import Any

import click
import msgspec

from laurels.auth import ApiKey, KeyRole
from laurels.cli.session import Session, instant, with_session

ROLES = ("operator", "admin", "server", "read", "signer")


@click.group()
def keys() -> None:
    """Who may ask the server: API keys, and keys that sign."""


@keys.command()
@click.argument("role", type=click.Choice(ROLES))
@click.option("--name", default="", help="What it is for, to tell keys apart.")
@click.option("--expires", metavar="TIME", help="ISO 8601 time from which on it counts no more  [default: never]")
@with_session
def create(session: Session, role: KeyRole, name: str, expires: str | None) -> None:
    """Make a key with a ROLE; its text is shown once. An operator's key is for all games."""
    expires_at = None if expires is None else instant(expires, "--expires")
    with session.laurels() as laurels:
        game = None if role == "operator" else session.game(laurels).name
        key, text = laurels.create_key(role, game, name, expires_at)
    _show_once(session, key, text)


@keys.command("list")
@with_session
def list_(session: Session) -> None:
    """List keys: those of a game that is named, else all. Never their secrets."""
    with session.laurels(read_only=True) as laurels:
        game = None if session.game_name is None else session.game(laurels).name
        found = laurels.keys(game)
    if session.json:
        session.show_json(found)
        return
    rows = [[key.key_id, key.game, key.role, key.name or None, key.created_at, key.expires_at] for key in found]
    session.show_table(["key", "game", "role", "name", "created", "expires"], rows)


@keys.command()
@click.argument("key")
@with_session
def revoke(session: Session, key: str) -> None:
    """A KEY, given by its id, counts no more, nor does what it signed."""
    with session.laurels() as laurels:
        laurels.revoke_key(key, session.game_name)
    if session.json:
        session.show_json({"key_id": key, "revoked": True})
    else:
        click.echo(f"{key} is revoked")


@keys.command()
@click.argument("key")
@with_session
def rotate(session: Session, key: str) -> None:
    """Give a KEY a new secret, shown once; the earlier one counts no more."""
    with session.laurels() as laurels:
        rotated, text = laurels.rotate_key(key, session.game_name)
    _show_once(session, rotated, text)


def _show_once(session: Session, key: ApiKey, text: str) -> None:
    if session.json:
        facts: dict[str, Any] = msgspec.structs.asdict(key)
        session.show_json({**facts, "key": text})
        return
    click.echo(text)
    click.echo(f"the {key.role} key {key.key_id}; its text is not shown again", err=True)
