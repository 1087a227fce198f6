"""`laurels init`."""

from pathlib import Path

import click

from laurels.cli.session import DEFAULT_CONFIG
from laurels.errors import Conflict

EXAMPLE = """\
# Games and their boards. What a board can be: docs/boards.md; JSON Schema: docs/reference/config.schema.json.
# A board that is added or changed here is built from everything that was ever submitted.

[games.arcade]
title = "Arcade"

[games.arcade.boards.high_scores]               # the best score of each player; who got there first stays ahead

[games.arcade.boards.weekly]                    # the sum of a week's scores; eight finished weeks stay
policy = "sum"
window = { every = "week", timezone = "Europe/Berlin", keep = 8 }

[games.arcade.boards.level]                     # a list for each level
partition = ["level"]
order = ["score desc", "stars desc", "accepted_at asc"]

# [games.arcade.boards.fastest]                 # times in seconds, to the millisecond
# where = { mode = "time trial" }
# order = ["score asc"]
# scale = 3

# [limits]                                      # everything has one; these are the defaults
# batch_rows_max = 100000
# page_rows_max = 1000
# index_bytes_max = 4294967296
"""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=DEFAULT_CONFIG)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def init(path: Path, force: bool) -> None:
    """Write a commented laurels.toml to start from."""
    if path.exists() and not force:
        raise Conflict(f"{path} exists already; --force replaces it")
    path.write_text(EXAMPLE, encoding="utf-8")
    click.echo(f"wrote {path}; now try: laurels submit amy 12000 && laurels top high_scores")
