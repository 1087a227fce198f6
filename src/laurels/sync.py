"""Laurels without async, for scripts and notebooks: the same names, each waits for its answer.

An event loop runs on a thread of its own; calls are handed to it. Safe to use from several threads. Errors, arguments
and results are those of `laurels.Laurels`, `laurels.games.Game` and `laurels.standings.BoardInstance`.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from laurels import games, service, standings
from laurels.answers import Answers
from laurels.auth import ApiKey, Keyring, KeyRole
from laurels.batch import Batch
from laurels.config import Config
from laurels.model import (
    Answer,
    Board,
    BoardInfo,
    Bucket,
    DimensionValue,
    Entry,
    Friend,
    GameDefinition,
    InstanceInfo,
    InstanceName,
    Number,
    Page,
    Player,
    Standing,
    Submission,
)
from laurels.stores.base import Progress
from laurels.verify import VerifyReport

T = TypeVar("T")


class _Portal:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="laurels-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Laurels:
    """See `laurels.Laurels`. Use `with Laurels.open(url) as laurels`, or call `close` at the end."""

    def __init__(self, portal: _Portal, opened: Any, inner: service.Laurels) -> None:
        self._portal = portal
        self._opened = opened
        self._inner = inner

    @classmethod
    def open(
        cls,
        url: str,
        *,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        clock: Callable[[], int] | None = None,
        read_only: bool = False,
    ) -> "Laurels":
        """Open a store; see `laurels.Laurels.open`."""
        portal = _Portal()
        opened = service.Laurels.open(url, config=config, clock=clock, read_only=read_only)
        try:
            return cls(portal, opened, portal.run(opened.__aenter__()))
        except BaseException:
            portal.close()
            raise

    def __enter__(self) -> "Laurels":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer what waits, write what is behind, let go of the store."""
        self._portal.run(self._opened.__aexit__(None, None, None))
        self._portal.close()

    @property
    def config(self) -> Config:
        """What it was opened with."""
        return self._inner.config

    def games(self) -> list[str]:
        """The ids of all games."""
        return self._inner.games()

    def game(self, name: str) -> "Game":
        """A game by its id."""
        return Game(self._portal, self._inner.game(name))

    def define_game(
        self, name: str, definition: GameDefinition | None = None, progress: Progress | None = None
    ) -> "Game":
        """Create or change a game."""
        return Game(self._portal, self._portal.run(self._inner.define_game(name, definition, progress)))

    @property
    def keyring(self) -> Keyring:
        """All keys."""
        return self._inner.keyring

    def keys(self, game: str | None = None) -> list[ApiKey]:
        """The keys of a game, or all of them."""
        return self._inner.keys(game)

    def create_key(
        self, role: KeyRole, game: str | None = None, name: str = "", expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        """Make a key, and its text."""
        return self._portal.run(self._inner.create_key(role, game, name, expires_at))

    def revoke_key(self, key_id: str, game: str | None = None) -> None:
        """From now on a key counts no more."""
        self._portal.run(self._inner.revoke_key(key_id, game))

    def rotate_key(self, key_id: str, game: str | None = None) -> tuple[ApiKey, str]:
        """Give a key a new secret."""
        return self._portal.run(self._inner.rotate_key(key_id, game))

    def player_token(self, game: str, player_id: str, expires_in_s: int = 3600) -> tuple[str, datetime]:
        """A player's token."""
        return self._portal.run(self._inner.player_token(game, player_id, expires_in_s))

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Work everything out again from the log and compare."""
        return self._portal.run(self._inner.verify(progress))

    def backup(self, path: str | Path, progress: Progress | None = None) -> None:
        """A complete copy of the store."""
        self._portal.run(self._inner.backup(path, progress))

    def compact(self) -> None:
        """Give unused space back to the disk."""
        self._portal.run(self._inner.compact())

    def memory_bytes(self) -> int:
        """What the rank indexes take in memory."""
        return self._inner.memory_bytes()


class Game:
    """See `laurels.games.Game`."""

    def __init__(self, portal: _Portal, inner: games.Game) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def name(self) -> str:
        """The game's id."""
        return self._inner.name

    def partition_from_texts(self, texts: Mapping[str, str]) -> dict[str, DimensionValue]:
        """Values of dimensions written as text, by their declared types."""
        return self._inner.partition_from_texts(texts)

    @property
    def definition(self) -> GameDefinition:
        """The game's definition as it stands."""
        return self._inner.definition

    def run(self, work: Callable[[games.Game], Coroutine[Any, Any, T]]) -> T:
        """Wait for something that takes the game without `sync`, such as an importer."""
        return self._portal.run(work(self._inner))

    def submit(
        self,
        player_id: str,
        score: Number,
        *,
        dimensions: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Number] | None = None,
        submission_id: str | None = None,
        played_at: datetime | None = None,
    ) -> Answer:
        """Submit one play."""
        return self._portal.run(
            self._inner.submit(
                player_id,
                score,
                dimensions=dimensions,
                metrics=metrics,
                submission_id=submission_id,
                played_at=played_at,
            )
        )

    def submit_many(
        self,
        player_ids: Any,
        scores: Any,
        *,
        submission_ids: Any = None,
        played_at: Any = None,
        dimensions: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> Answers:
        """Submit plays as columns."""
        return self._portal.run(
            self._inner.submit_many(
                player_ids,
                scores,
                submission_ids=submission_ids,
                played_at=played_at,
                dimensions=dimensions,
                metrics=metrics,
            )
        )

    def submit_batch(self, batch: Batch) -> Answers:
        """Submit a checked batch."""
        return self._portal.run(self._inner.submit_batch(batch))

    def submission(self, submission_id: str) -> Submission:
        """A submission by its id."""
        return self._portal.run(self._inner.submission(submission_id))

    def history(self, player_id: str, limit: int = 50, cursor: str | None = None) -> Page[Submission]:
        """A player's submissions, newest first."""
        return self._portal.run(self._inner.history(player_id, limit, cursor))

    def submissions(self) -> Iterator[list[Submission]]:
        """The whole log of the game in order, in pieces."""
        pieces = self._inner.submissions()

        async def following() -> list[Submission] | None:
            return await anext(pieces, None)

        while (piece := self._portal.run(following())) is not None:
            yield piece

    def describe(self, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Set what is displayed for players or values of a dimension."""
        self._portal.run(self._inner.describe(field, attributes))

    def descriptions(self, field: str, values: Sequence[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""
        return self._portal.run(self._inner.descriptions(field, values))

    def player(self, player_id: str) -> Player:
        """What is known of a player apart from plays."""
        return self._portal.run(self._inner.player(player_id))

    def standings(self, player_id: str) -> list[Standing]:
        """A player's entries across boards."""
        return self._portal.run(self._inner.standings(player_id))

    def board(self, name: str, /, *, at: datetime | None = None, **partition: Any) -> "BoardInstance":
        """One instance of a board."""
        return BoardInstance(self._portal, self._inner.board(name, at=at, **partition))

    def boards(self) -> list[BoardInfo]:
        """All boards, ready or being built."""
        return self._inner.boards()

    def board_info(self, name: str) -> BoardInfo:
        """A board as it stands."""
        return self._inner.board_info(name)

    def instances(self, board_name: str) -> list[InstanceInfo]:
        """The instances of a board that have entries."""
        return self._portal.run(self._inner.instances(board_name))

    def define_board(self, name: str, definition: Board, progress: Progress | None = None) -> BoardInfo:
        """Define a board, or change it."""
        return self._portal.run(self._inner.define_board(name, definition, progress))

    def check_player_may_submit(self, batch: Batch, player_id: str) -> None:
        """Raise Forbidden unless a player may submit a batch."""
        self._inner.check_player_may_submit(batch, player_id)

    def drop_board(self, name: str) -> None:
        """Forget a board."""
        self._portal.run(self._inner.drop_board(name))

    def banned(self) -> list[str]:
        """Who is banned."""
        return self._inner.banned()

    def ban(self, player_id: str, reason: str = "") -> None:
        """Hide a player from all boards."""
        self._portal.run(self._inner.ban(player_id, reason))

    def unban(self, player_id: str) -> None:
        """Show a player again."""
        self._portal.run(self._inner.unban(player_id))

    def remove_player(self, player_id: str) -> int:
        """Erase everything that is kept of a player."""
        return self._portal.run(self._inner.remove_player(player_id))


class BoardInstance:
    """See `laurels.standings.BoardInstance`."""

    def __init__(self, portal: _Portal, inner: standings.BoardInstance) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def definition(self) -> Board:
        """The board's definition."""
        return self._inner.definition

    @property
    def name(self) -> InstanceName:
        """Which instance this is."""
        return self._inner.name

    def count(self) -> int:
        """How many entries there are."""
        return self._portal.run(self._inner.count())

    def top(self, limit: int = 10, *, details: bool = True) -> list[Entry]:
        """The first entries."""
        return self._portal.run(self._inner.top(limit, details=details))

    def entry(self, player_id: str, *, details: bool = True) -> Standing:
        """A player's entry."""
        return self._portal.run(self._inner.entry(player_id, details=details))

    def around(self, player_id: str, limit: int = 11, *, details: bool = True) -> list[Entry]:
        """Entries around a player."""
        return self._portal.run(self._inner.around(player_id, limit, details=details))

    def page(
        self, limit: int = 25, cursor: str | None = None, offset: int | None = None, *, details: bool = True
    ) -> Page[Entry]:
        """A page of the board."""
        return self._portal.run(self._inner.page(limit, cursor, offset, details=details))

    def range(self, low: Number, high: Number, limit: int = 100, *, details: bool = True) -> list[Entry]:
        """Entries by score."""
        return self._portal.run(self._inner.range(low, high, limit, details=details))

    def players(self, player_ids: Sequence[str], *, details: bool = True) -> list[Friend]:
        """Players ranked among themselves and on the board."""
        return self._portal.run(self._inner.players(player_ids, details=details))

    def histogram(self, buckets: int = 20) -> list[Bucket]:
        """How many entries have which score."""
        return self._portal.run(self._inner.histogram(buckets))

    def remove(self, player_id: str) -> bool:
        """Remove a player's entry."""
        return self._portal.run(self._inner.remove(player_id))
