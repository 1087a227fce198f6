"""`laurels players`: show, ban, unban, remove."""

import click

from laurels.cli.session import Session, instance_title, with_session


@click.group()
def players() -> None:
    """Look at a player, or moderate."""


@players.command()
@click.argument("player")
@with_session
def show(session: Session, player: str) -> None:
    """A PLAYER's entries across boards."""
    with session.laurels(read_only=True) as laurels:
        game = session.game(laurels)
        known, standings = game.player(player), game.standings(player)
        if session.json:
            session.show_json({"player": known, "standings": standings})
            return
        rows = [[instance_title(s.instance), s.entry.rank, s.total, s.entry.score] for s in standings]
        title = (f"{known.name} ({player})" if known.name else player) + (", banned" if known.banned else "")
        session.show_table(["board", ">rank", ">of", ">score"], rows, title)


@players.command()
@click.argument("player")
@click.option("--reason", default="", help="Kept with the ban.")
@with_session
def ban(session: Session, player: str, reason: str) -> None:
    """Hide a PLAYER from all boards; the submissions stay."""
    with session.laurels() as laurels:
        session.game(laurels).ban(player, reason)
    _done(session, f"{player} is banned", player=player, banned=True)


@players.command()
@click.argument("player")
@with_session
def unban(session: Session, player: str) -> None:
    """Show a banned PLAYER again."""
    with session.laurels() as laurels:
        session.game(laurels).unban(player)
    _done(session, f"{player} is shown again", player=player, banned=False)


@players.command()
@click.argument("player")
@click.confirmation_option(prompt="Erase this player's submissions and entries for good?")
@with_session
def remove(session: Session, player: str) -> None:
    """Erase everything that is kept of a PLAYER."""
    with session.laurels() as laurels:
        erased = session.game(laurels).remove_player(player)
    _done(session, f"{player}: {erased:,} submissions erased", player=player, submissions=erased)


def _done(session: Session, text: str, **facts: object) -> None:
    if session.json:
        session.show_json(facts)
    else:
        click.echo(text)
