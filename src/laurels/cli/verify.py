"""`laurels verify`."""

import click
import msgspec

from laurels.cli.session import Session, with_session


@click.command()
@click.option("--read-only", is_flag=True, help="Check a store that another process has.")
@with_session
def verify(session: Session, read_only: bool) -> None:
    """Work everything out again from the log and compare. Exit code 1 if anything is wrong."""
    with session.laurels(read_only=read_only) as laurels, session.progress("verifying") as progress:
        report = laurels.verify(progress)
    if session.json:
        session.show_json({**msgspec.structs.asdict(report), "ok": report.ok})
    else:
        click.echo(
            f"{report.submissions:,} submissions, {report.instances:,} board instances, {report.entries:,} entries"
        )
        for problem in report.problems:
            click.echo(f"wrong: {problem}")
        click.echo("everything adds up" if report.ok else f"{len(report.problems)} problems")
    click.get_current_context().exit(0 if report.ok else 1)
