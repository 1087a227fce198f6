"""`laurels backup`."""

from pathlib import Path

import click

from laurels.cli.session import Session, with_session


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@with_session
def backup(session: Session, path: Path) -> None:
    """Copy the store to PATH, complete and of one moment. Works while another process has it."""
    with session.laurels(read_only=True) as laurels, session.progress("copying") as progress:
        laurels.backup(path, progress)
    size = path.stat().st_size
    if session.json:
        session.show_json({"path": str(path), "bytes": size})
    else:
        click.echo(f"{path}: {size:,} bytes")
