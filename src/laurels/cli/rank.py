"""`laurels rank`."""

import click

from laurels.cli.session import Session, board_of, board_options, instance_title, label, with_session


@click.command()
@click.argument("board")
@click.argument("player")
@board_options
@with_session
def rank(session: Session, board: str, player: str, where: tuple[str, ...], at: str | None) -> None:
    """A PLAYER's rank on a BOARD."""
    with session.laurels(read_only=True) as laurels:
        standing = board_of(session.game(laurels), board, where, at).entry(player)
        if session.json:
            session.show_json(standing)
            return
        entry = standing.entry
        session.show_table(
            ["player", ">rank", ">position", ">of", ">percentile", ">score"],
            [[label(entry), entry.rank, entry.position, standing.total, standing.percentile, entry.score]],
            instance_title(standing.instance),
        )
