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
from laurels.limits import RateLimits
from laurels.model import GameDefinition, Limits


class LiveLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much there may be, and how often to look."""

    tick_s: Annotated[float, Meta(ge=0.01, le=60)] = 0.1
    grace_s: Annotated[float, Meta(ge=0, le=3_600)] = 60.0  # how long a topic that nobody watches can still be resumed
    subscribers_max: Annotated[int, Meta(ge=0)] = 20_000
    topics_max: Annotated[int, Meta(ge=0)] = 20_000
    topics_per_connection_max: Annotated[int, Meta(ge=1)] = 64
    rows_max: Annotated[int, Meta(ge=10, le=1_000)] = 100  # of a list; submissions in a change
    ring_messages_max: Annotated[int, Meta(ge=1)] = 256
    ring_bytes_max: Annotated[int, Meta(ge=0)] = 256 * 1024  # of one topic; its latest message is kept, however large
    rings_bytes_max: Annotated[int, Meta(ge=0)] = 256 * 1024 * 1024  # of all topics, likewise


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How `laurels serve` serves.

    host, port              where it listens; beyond this machine only if told so
    tls_certificate, tls_key    files in PEM; HTTPS if given
    cors_origins            the origins whose pages may ask ("*": all)
    access_log              a line for each request
    requests_in_flight_max  connections that are served at once
    heartbeat_s             how often live connections are told that nothing has happened
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8_080
    tls_certificate: str | None = None
    tls_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    access_log: bool = False
    requests_in_flight_max: Annotated[int, Meta(ge=16, le=1_000_000)] = 1_024
    heartbeat_s: Annotated[float, Meta(ge=0.1, le=3_600)] = 15.0
    rate_limits: RateLimits = RateLimits()
    live: LiveLimits = LiveLimits()


class Config(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a Laurels is opened with.

    `idempotency_days` is how long the answer to a submission is kept for repeats; that a submission was accepted is
    known for ever, so no repeat ever counts twice.
    """

    games: dict[str, GameDefinition] = {}
    limits: Limits = Limits()
    server: ServerSettings = ServerSettings()
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
        field, rule = refusal(error, "config")
        raise InvalidInput(f"{source}: {field}", value_at(document, field), rule) from error
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


def refusal(error: msgspec.ValidationError, whole: str) -> tuple[str, str]:
    """What a struct refuses: the field as a dotted path (`whole`, if it is all of it), and the rule."""
    message, _, where = str(error).partition(" - at `")
    field = re.sub(r"^\$\.?", "", where.rstrip("`")) or whole
    return field, message[0].lower() + message[1:]


def value_at(document: Any, field: str) -> Any:
    """The value at a dotted path of a document, as far as the path leads."""
    for part in re.findall(r"[^.\[\]]+", field):
        if isinstance(document, Mapping) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
    return document
