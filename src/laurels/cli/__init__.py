"""The command line: `laurels COMMAND`. One file a command; `session` has what they share."""

import click

from laurels.cli.around import around
from laurels.cli.backup import backup
from laurels.cli.boards import boards
from laurels.cli.completion import completion
from laurels.cli.demo import demo
from laurels.cli.export import export
from laurels.cli.history import history
from laurels.cli.import_ import import_
from laurels.cli.init import init
from laurels.cli.keys import keys
from laurels.cli.players import players
from laurels.cli.rank import rank
from laurels.cli.serve import serve
from laurels.cli.session import Commands
from laurels.cli.submit import submit
from laurels.cli.top import top
from laurels.cli.verify import verify


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="laurels")
def main() -> None:
    """Exact, live leaderboards over a durable log of submissions.

    \b
    Exit codes: 0 done, 1 failed (verify found problems, an import met a bad row),
    2 wrong usage, 3 not found, 4 bad input, 5 the store can't be used.
    """


for command in (
    init,
    boards,
    import_,
    submit,
    top,
    rank,
    around,
    history,
    players,
    keys,
    export,
    verify,
    backup,
    keys,
    serve,
    demo,
    completion,
):
    main.add_command(command)
