"""`laurels top`."""

import click

from laurels.cli.session import Session, board_of, board_options, instance_title, with_session


@click.command()
@click.argument("board")
@click.option("-n", "--limit", default=10, show_default=True)
@click.option("--offset", default=0, show_default=True, help="Entries to leave out from the top.")
@board_options
@with_session
def top(session: Session, board: str, limit: int, offset: int, where: tuple[str, ...], at: str | None) -> None:
    """The first entries of a BOARD."""
    with session.laurels(read_only=True) as laurels:
        chosen = board_of(session.game(laurels), board, where, at)
        page = chosen.page(limit, offset=offset)
        session.show_entries(page.items, f"{instance_title(chosen.name)}: {page.total:,} entries")
