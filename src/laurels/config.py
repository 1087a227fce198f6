"""Configuration: games, boards and limits, from a TOML file or from code, and the JSON Schema of that file."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from laurels.batch import check_ids
from laurels.boards import Ranker
from laurels.errors import InvalidInput, LimitExceeded
from laurels.model import GameDefinition, Limits


class Config(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a Laurels is opened with.

    `idempotency_days` is how long the answer to a submission is kept for repeats; that a submission was accepted is
    known for ever, so no repeat ever counts twice.
    """

    games: dict[str, GameDefinition] = {}
    limits: Limits = Limits()
    idempotency_days: Annotated[int, Meta(ge=7, le=36_500)] = 30


def load(path: str | Path) -> Config:
    """The configuration in a TOML file. Raises InvalidInput naming the file and the place in it."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("config", str(path), f"can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("config", str(path), f"is not TOML: {error}") from error
    return converted(document, str(path))


def converted(document: Mapping[str, Any], source: str = "config") -> Config:
    """A configuration from plain data, checked in full. Raises InvalidInput naming `source` and the place in it."""
    try:
        config = msgspec.convert(dict(document), Config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        field = re.sub(r"^\$\.?", "", where.strip("`")) or "config"
        raise InvalidInput(f"{source}: {field}", _at(document, field), message[0].lower() + message[1:]) from error
    check(config)
    return config


def check(config: Config) -> None:
    """Everything about a configuration that types can't say. Raises InvalidInput."""
    for name, game in config.games.items():
        check_ids([name], "games", config.limits.id_bytes_max)
        check_game(game, config.limits)


def check_game(game: GameDefinition, limits: Limits) -> None:
    """A game's boards make sense. Raises InvalidInput."""
    if len(game.boards) > limits.boards_per_game_max:
        raise LimitExceeded("boards", len(game.boards), f"a game has at most {limits.boards_per_game_max}")
    for name, board in game.boards.items():
        Ranker(name, board)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the configuration file."""
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Laurels configuration",
        **msgspec.json.schema(Config),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))  # defaults that are tuples become arrays
    return plain


def _at(document: Any, field: str) -> Any:
    """The value at a dotted path of a document, as far as the path leads."""
    for part in re.findall(r"[^.\[\]]+", field):
        if isinstance(document, Mapping) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
    return document
