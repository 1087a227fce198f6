"""`laurels export`."""

from pathlib import Path

import click

from laurels.cli.session import Session, board_options, dimensions, instant, with_session
from laurels.importers.export import export_entries, export_submissions


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--board", help="Export the entries of a board instead of the submissions.")
@board_options
@with_session
def export(session: Session, path: Path, board: str | None, where: tuple[str, ...], at: str | None) -> None:
    """Write all submissions of a game to PATH, a .jsonl or .parquet file."""
    with session.laurels(read_only=True) as laurels, session.progress("exporting") as progress:
        game = session.game(laurels)
        told = None if progress is None else lambda rows: progress(rows, rows)
        if board is None:
            rows = game.run(lambda inner: export_submissions(inner, path, told))
        else:
            values = dimensions(game, where, "--where")
            moment = None if at is None else instant(at, "--at")
            rows = game.run(lambda inner: export_entries(inner.board(board, at=moment, **values), path, told))
    if session.json:
        session.show_json({"path": str(path), "rows": rows})
    else:
        click.echo(f"{path}: {rows:,} {'entries' if board else 'submissions'}")
