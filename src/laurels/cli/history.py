"""`laurels history`."""

import click

from laurels.cli.session import Session, shown, with_session


@click.command()
@click.argument("player")
@click.option("-n", "--limit", default=20, show_default=True)
@click.option("--cursor", help="Go on from the `next` of the page before.")
@with_session
def history(session: Session, player: str, limit: int, cursor: str | None) -> None:
    """A PLAYER's submissions, newest first."""
    with session.laurels(read_only=True) as laurels:
        page = session.game(laurels).history(player, limit, cursor)
        if session.json:
            session.show_json(page)
            return
        rows = [
            [
                submission.accepted_at,
                submission.score,
                " ".join(f"{name}={shown(value)}" for name, value in submission.dimensions.items()) or None,
                " ".join(f"{name}={shown(value)}" for name, value in submission.metrics.items()) or None,
                submission.submission_id,
            ]
            for submission in page
        ]
        session.show_table(["accepted at (UTC)", ">score", "dimensions", "metrics", "submission"], rows, player)
        if page.next:
            click.echo(f"more: --cursor {page.next}")
