"""A Redis sorted set into a game: members are players, scores are scores.

Members are read from the highest score down, as ZREVRANGE lists them, so that ties keep their order on a board whose
earlier entries stay ahead. Redis keeps scores as doubles: whole numbers up to 2^53 are taken as integers, others as the
decimal that Redis prints. Importing again changes nothing, unless a score changed meanwhile.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from laurels.batch import Batch, checked_batch
from laurels.errors import ImportFailed, InvalidInput
from laurels.importers.report import ROWS_PER_BATCH, ImportReport, Progress, RowError, check_rows, hand_over
from laurels.importers.tables import Game
from laurels.model import Number


async def import_sorted_set(
    game: Game,
    url: str,
    *,
    dimensions: Mapping[str, Any] | None = None,
    skip_bad: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Submit the members of `redis://host:port/db/key`, each with these `dimensions`.

    All members are checked first: a bad one raises ImportFailed and nothing is imported; with `skip_bad` it is listed.
    Raises InvalidInput for a bad URL or a key that is no sorted set, ImportFailed if the server does not answer.
    """
    source = _SortedSet(game, url, dict(dimensions or {}))
    try:
        found = await asyncio.to_thread(source.check, skip_bad)
        if dry_run:
            return found
        await hand_over(game, source.batches(), found, found.rows - len(found.skipped), progress)
        return found
    finally:
        source.close()


class _SortedSet:
    def __init__(self, game: Game, url: str, dimensions: dict[str, Any]) -> None:
        try:
            import redis
        except ImportError as error:
            raise InvalidInput("url", url, "needs redis-py: pip install 'laurels[redis]'") from error
        parts = urlsplit(url)
        database, _, key = parts.path.removeprefix("/").partition("/")
        if not database.isdigit() or not key:
            raise InvalidInput("url", _without_password(url), "must be like redis://localhost:6379/0/key")
        self._error = redis.RedisError
        self._key = unquote(key)
        self._url = _without_password(url)
        self._client = redis.Redis.from_url(urlunsplit(parts._replace(path=f"/{database}")))
        self._game = game
        self._dimensions = dimensions
        self._bad: set[int | None] = set()

    def close(self) -> None:
        self._client.close()

    def check(self, skip_bad: bool) -> ImportReport:
        """Read it all; raises for the first bad member, or lists them."""
        found = ImportReport(source=self._url)
        kind = self._asked(lambda: self._client.type(self._key))
        if kind not in (b"zset", b"none"):
            raise InvalidInput("url", self._url, f"the key is a {kind.decode()}, not a sorted set")
        check_rows(self._members(), lambda members: self._game.check_batch(self._batch(members)), found, skip_bad)
        self._bad = {row.row for row in found.skipped}
        if not found.rows:
            found.notes.append("there is no such key, or it is empty")
        return found

    def batches(self) -> Iterator[Batch]:
        """The good members."""
        members = (member for number, member in self._members() if number not in self._bad)
        while some := list(islice(members, ROWS_PER_BATCH)):
            yield self._batch(some)

    def _batch(self, members: list[tuple[bytes, bytes]]) -> Batch:
        try:
            players = [member.decode() for member, _ in members]
        except UnicodeDecodeError as error:
            raise RowError(f"member {error.object!r} is not UTF-8") from error
        scores = [_number(score) for _, score in members]
        return checked_batch(
            self._game.definition,
            self._game.limits,
            player_ids=players,
            scores=scores,
            submission_ids=[self._submission_id(*one) for one in zip(players, scores, strict=True)],
            dimensions=self._dimensions,
        )

    def _submission_id(self, member: str, score: Number) -> str:
        text = "\0".join((self._key, member, str(score), repr(sorted(self._dimensions.items()))))
        return f"redis-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def _members(self) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
        """Each member and its score as Redis prints it, numbered, highest first."""
        start = 0
        while True:
            stop = start + ROWS_PER_BATCH - 1
            some = self._asked(
                lambda first=start, last=stop: self._client.zrevrange(
                    self._key, first, last, withscores=True, score_cast_func=_as_printed
                )
            )
            if not some:
                return
            yield from enumerate(some, start=start + 1)
            start += len(some)

    def _asked(self, ask: Any) -> Any:
        try:
            return ask()
        except self._error as error:
            raise ImportFailed(self._url, None, f"the server does not answer: {error}") from error


def _as_printed(score: Any) -> bytes:
    return score if isinstance(score, bytes) else repr(score).encode()


def _number(score: bytes) -> Number:
    value = Decimal(score.decode())
    if value.is_finite() and value == value.to_integral_value() and abs(value) <= 2**53:
        return int(value)
    return value


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
