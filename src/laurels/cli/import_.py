"""`laurels import`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from laurels import games
from laurels.cli.session import Session, dimensions, split_pairs, with_session
from laurels.importers import yarg, yarg_game
from laurels.importers.redis import import_sorted_set
from laurels.importers.report import ImportReport, Progress
from laurels.importers.tables import import_table
from laurels.sync import Game, Laurels

FORMATS = ("yarg", "csv", "jsonl", "parquet", "redis")


@click.command("import")
@click.argument("source")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="[default: as the name says]")
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Which column holds a field; repeat.")
@click.option("-d", "--dimension", multiple=True, metavar="NAME=VALUE", help="For all members of a Redis sorted set.")
@click.option("--zone", help="IANA zone of times without an offset  [default for YARG: this machine's]")
@click.option("--replays", type=click.Path(exists=True, file_okay=False, path_type=Path), help="YARG's replay files.")
@click.option("--skip-bad", is_flag=True, help="Leave bad rows out, and report them.")
@click.option("--dry-run", is_flag=True, help="Only check.")
@with_session
def import_(
    session: Session,
    source: str,
    kind: str | None,
    mapping: tuple[str, ...],
    dimension: tuple[str, ...],
    zone: str | None,
    replays: Path | None,
    skip_bad: bool,
    dry_run: bool,
) -> None:
    """Import SOURCE: YARG's scores.db, a .csv, .jsonl or .parquet file, or redis://host:port/db/key.

    Importing again changes nothing. Fields of tables: player_id, score, submission_id, played_at, name,
    dimensions.NAME, metrics.NAME. A bad row ends the import before anything is submitted, unless --skip-bad.
    """
    kind = kind or kind_of(source)
    work: Any
    with session.laurels() as laurels, session.progress("importing") as progress:
        if kind == "yarg":
            work = partial(_yarg, source=source, zone=zone, replays=replays, skip_bad=skip_bad, dry_run=dry_run)
            game = yarg_game_of(session, laurels)
        else:
            game = session.game(laurels)
            if kind == "redis":
                values = dimensions(game, dimension, "--dimension")
                work = partial(import_sorted_set, url=source, dimensions=values, skip_bad=skip_bad, dry_run=dry_run)
            else:
                columns = split_pairs(mapping, "--map")
                work = partial(import_table, path=source, format=kind, mapping=columns, zone=zone)
                work = partial(work, skip_bad=skip_bad, dry_run=dry_run)
        report = game.run(lambda inner: work(inner, progress=progress))
    show(session, report)


async def _yarg(
    game: games.Game,
    *,
    source: str,
    zone: str | None,
    replays: Path | None,
    skip_bad: bool,
    dry_run: bool,
    progress: Progress | None,
) -> ImportReport:
    if not dry_run:
        return await yarg.import_scores(game, source, zone=zone, replays=replays, skip_bad=skip_bad, progress=progress)
    with yarg.read(source, zone=zone, replays=replays, skip_bad=skip_bad) as file:
        found = file.report
        return ImportReport(
            source=source, rows=found.rows, left_out=found.left_out, skipped=found.bad_rows, notes=found.notes()
        )


def kind_of(source: str) -> str:
    """What a source is, by its name."""
    if source.startswith(("redis://", "rediss://")):
        return "redis"
    kind = {".db": "yarg", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}.get(
        Path(source).suffix.lower()
    )
    if kind is None:
        raise click.BadParameter(f"{source}: say what it is with --format", param_hint="SOURCE")
    return kind


def yarg_game_of(session: Session, laurels: Laurels) -> Game:
    """The game that YARG's scores go to; defined with its boards if there is none."""
    name = session.game_name or "yarg"
    if name in laurels.games():
        return laurels.game(name)
    return laurels.define_game(name, yarg_game.GAME)


def show(session: Session, report: ImportReport) -> None:
    """What an import did."""
    if session.json:
        session.show_json(report)
        return
    rows: list[tuple[str, int]] = [
        ("rows", report.rows),
        ("submitted", report.submitted),
        ("known already", report.repeated),
    ]
    rows += [(f"left out: {reason}", count) for reason, count in report.left_out.items()]
    rows.append(("skipped as bad", len(report.skipped)))
    session.show_table([report.source, ">"], rows)
    for note in report.notes:
        click.echo(f"note: {note}")
    for bad in report.skipped[:20]:
        click.echo(f"skipped row {bad.row}: {bad.reason}", err=True)
    if len(report.skipped) > 20:
        click.echo(f"... and {len(report.skipped) - 20:,} more; --json lists them all", err=True)
