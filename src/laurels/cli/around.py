"""`laurels around`."""

import click

from laurels.cli.session import Session, board_of, board_options, instance_title, with_session


@click.command()
@click.argument("board")
@click.argument("player")
@click.option("-n", "--limit", default=11, show_default=True)
@board_options
@with_session
def around(session: Session, board: str, player: str, limit: int, where: tuple[str, ...], at: str | None) -> None:
    """The entries around a PLAYER on a BOARD."""
    with session.laurels(read_only=True) as laurels:
        chosen = board_of(session.game(laurels), board, where, at)
        session.show_entries(chosen.around(player, limit), instance_title(chosen.name), marked=player)
