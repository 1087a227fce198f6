"""What all commands share: the options that say which store and game, output as a table or as JSON, exit codes."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from laurels.errors import ImportFailed, InvalidInput, LaurelsError, NotFound, StoreError
from laurels.model import DimensionValue, Entry, InstanceName, Number
from laurels.sync import BoardInstance, Game, Laurels

DEFAULT_STORE = "sqlite:///laurels.db"
DEFAULT_CONFIG = Path("laurels.toml")
T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

_encoder = msgspec.json.Encoder(decimal_format="number", order="deterministic")


class Commands(click.Group):
    """A group whose commands end in one clear line and an exit code when Laurels raises an error."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(context)
        except LaurelsError as error:
            if "--json" in sys.argv or context.meta.get("json"):
                document = {"error": {"code": error.code, "message": str(error)}}
                click.echo(msgspec.json.encode(document).decode(), err=True)
            else:
                click.echo(f"error: {printable(str(error))}", err=True)
            context.exit(exit_code(error))
        except BrokenPipeError:  # whoever read the output has seen enough
            sys.stderr.close()
            context.exit(0)


def exit_code(error: LaurelsError) -> int:
    """The exit code that an error ends a command with."""
    kinds = ((ImportFailed, 1), (NotFound, 3), (InvalidInput, 4), (StoreError, 5))
    return next((code for kind, code in kinds if isinstance(error, kind)), 1)


@dataclass(slots=True)
class Session:
    """The options that all commands have."""

    store: str
    config: Path | None
    game_name: str | None
    json: bool

    @contextmanager
    def laurels(self, *, read_only: bool = False) -> Iterator[Laurels]:
        """The store, open. Read-only commands work while another process has it."""
        with Laurels.open(self.store, config=config_path(self.config), read_only=read_only) as laurels:
            yield laurels

    def game(self, laurels: Laurels) -> Game:
        """The game that is meant: the one named, or the only one."""
        if self.game_name is not None:
            return laurels.game(self.game_name)
        games = laurels.games()
        if len(games) == 1:
            return laurels.game(games[0])
        rule = (
            f"name one with --game: {games}" if games else "there is none: define one in laurels.toml, see laurels init"
        )
        raise InvalidInput("game", None, rule)

    # --- output ---------------------------------------------------------------------------------------------

    def show_json(self, value: Any) -> None:
        """One JSON document on one line; numbers are exact."""
        click.echo(_encoder.encode(value).decode())

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
        """A table; plain and aligned where the output is no terminal. Columns that start with ">" align right."""
        console = Console(highlight=False)
        cells = [[printable(shown(cell)) for cell in row] for row in rows]
        names = [column.removeprefix(">") for column in columns]
        right = [column.startswith(">") for column in columns]
        if not console.is_terminal:
            _print_plain(names, right, cells, title)
            return
        table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left")
        for name, to_right in zip(names, right, strict=True):
            table.add_column(name, justify="right" if to_right else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        if title:
            console.print(Text(printable(title), style="bold"))
        console.print(table)

    def show_entries(self, entries: Sequence[Entry], title: str, marked: str | None = None) -> None:
        """Rows of a board, as a table or as JSON."""
        if self.json:
            self.show_json(entries)
            return
        fields = [name for name in (entries[0].order if entries else {}) if name != "score"]
        columns = [">rank", ">position", "player", ">score", *(f">{name}" for name in fields)]
        rows = [
            [entry.rank, entry.position, label(entry, marked), entry.score, *(entry.order[name] for name in fields)]
            for entry in entries
        ]
        self.show_table(columns, rows, title)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None] | None]:
        """A progress bar on a terminal; None elsewhere."""
        console = Console(stderr=True)
        if self.json or not console.is_terminal:
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def config_path(given: Path | None) -> Path | None:
    """The configuration that is meant: the one named, or the usual one if it is there."""
    return given or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)


def _print_plain(names: list[str], right: list[bool], cells: list[list[str]], title: str | None) -> None:
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    if title:
        click.echo(printable(title))
    for row in [names, *cells]:
        padded = [
            " " * (width - cell_len(cell)) + cell if to_right else cell + " " * (width - cell_len(cell))
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def label(entry: Entry, marked: str | None = None) -> str:
    """How a player is listed: the display name and the id, or the id alone."""
    text = entry.player_id if entry.name is None else f"{entry.name} ({entry.player_id})"
    return f"> {text}" if entry.player_id == marked else text


def instance_title(name: InstanceName) -> str:
    """A board instance in one line."""
    values = [f"{key}={shown(value)}" for key, value in name.partition.items()]
    return " ".join([name.board, *values, *([name.window_label] if name.window_label else [])])


def shown(value: Any) -> str:
    """A value as tables show it."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    if isinstance(value, frozenset | set):
        return "{" + ",".join(sorted(value)) + "}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def printable(text: str) -> str:
    """Text that can't steer a terminal: control characters are shown, not sent."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def with_session(command: Command) -> Command:
    """Give a command the common options, and a `Session` as its first argument."""

    @click.option("--store", envvar="LAURELS_STORE", default=DEFAULT_STORE, show_default=True, metavar="URL")
    @click.option(
        "--config",
        envvar="LAURELS_CONFIG",
        type=click.Path(path_type=Path),
        help="TOML file with games and boards  [default: laurels.toml, if there is one]",
    )
    @click.option("--game", envvar="LAURELS_GAME", help="Which game  [default: the only one]")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def wrapped(store: str, config: Path | None, game: str | None, as_json: bool, **arguments: Any) -> Any:
        click.get_current_context().meta["json"] = as_json
        return command(Session(store, config, game, as_json), **arguments)

    return wrapped  # type: ignore[return-value]


def board_options(command: Command) -> Command:
    """Options that choose one instance of a board."""
    command = click.option(
        "-w",
        "--where",
        multiple=True,
        metavar="NAME=VALUE",
        help="A value of the board's partition; of a set: a,b or nothing. Repeat for each.",
    )(command)
    return click.option("--at", metavar="TIME", help="ISO 8601 time within the window that is meant  [default: now]")(
        command
    )


def board_of(game: Game, name: str, where: Sequence[str], at: str | None) -> BoardInstance:
    """The instance that `board_options` chose."""
    return game.board(name, at=None if at is None else instant(at, "--at"), **dimensions(game, where, "--where"))


def dimensions(game: Game, pairs: Sequence[str], option: str) -> dict[str, DimensionValue]:
    """NAME=VALUE pairs as values of dimensions, by their declared types."""
    return game.partition_from_texts(split_pairs(pairs, option))


def split_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE pairs by name."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        found[name] = value
    return found


def number(text: str, name: str) -> Number:
    """An exact number from text: an integer, or a decimal."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InvalidInput(name, text, "must be a number") from error


def instant(text: str, name: str) -> datetime:
    """A time from ISO 8601 text; without an offset it is local time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(name, text, "must be a time in ISO 8601, like 2026-12-01T12:00Z") from error
    return moment if moment.tzinfo is not None else moment.astimezone()
