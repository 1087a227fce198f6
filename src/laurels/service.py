"""Laurels: opened on a store, it holds games, and the way through from a submission to the boards."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from laurels import config as configuration
from laurels.auth import ApiKey, Keyring, KeyRole, new_key, with_new_secret
from laurels.batch import check_ids, check_texts
from laurels.config import Config
from laurels.cursors import Cursors
from laurels.errors import InvalidInput, LaurelsError, LimitExceeded, NotFound
from laurels.feed import LocalFeed
from laurels.games import Game
from laurels.index import GameState, Indexes, LiveBoard
from laurels.model import Board, GameDefinition
from laurels.stores.base import Progress, Store
from laurels.stores.sqlite import SqliteStore
from laurels.stores.sqlite.store import system_clock
from laurels.verify import VerifyReport, verify

logger = logging.getLogger("laurels")

TOKEN_KEY = "tokens"


class Laurels:
    """Everything, opened on one store. Use `async with Laurels.open(url) as laurels`."""

    def __init__(self, store: Store, config: Config, clock: Callable[[], int]) -> None:
        self.config = config
        self._store = store
        self._clock = clock
        self._games: dict[str, Game] = {}
        self._states: dict[str, GameState] = {}
        self._indexes = Indexes(store.reader, store.players, config.limits.index_bytes_max)
        self._feed = LocalFeed(self._indexes, self._states)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cursors = Cursors(store.secret)
        self._key_changes = asyncio.Lock()
        self._token_keys = asyncio.Lock()
        self.keyring = Keyring(started_us=clock())

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        clock: Callable[[], int] | None = None,
        read_only: bool = False,
    ) -> "AsyncIterator[Laurels]":
        """Open a store, creating it if need be: `sqlite:///scores.db` in the current folder, `sqlite:////data/scores.db`.

        `config` is a TOML file's path, the same as plain data, or a `Config`; its games and boards are created or
        changed accordingly, those that the store has besides stay. `clock` gives microseconds since the epoch.
        Raises InvalidInput for a bad URL or configuration, StoreError if the store can't be opened.
        """
        settings = _config(config)
        store = await asyncio.to_thread(
            SqliteStore,
            _path(url),
            read_only=read_only,
            clock=clock or system_clock,
            idempotency_days=settings.idempotency_days,
            queued_rows_max=settings.limits.queued_rows_max,
        )
        laurels = cls(store, settings, clock or system_clock)
        try:
            await laurels._start()
            yield laurels
        finally:
            await laurels.close()

    async def _start(self) -> None:
        catalog = await asyncio.to_thread(self._store.catalog)
        for name, definition in catalog.games.items():
            state = GameState(name, definition)
            state.banned |= catalog.bans.get(name, set())
            self._add(state)
        self.keyring.replace(catalog.keys)
        for saved in catalog.boards:
            if saved.ready:
                self._states[saved.game].boards[saved.name] = LiveBoard(saved)
        recovered = await asyncio.to_thread(self._store.recover, self._feed)
        if recovered:
            logger.info("applied %d submissions that were committed but not written behind", recovered)
        self._store.start(self._reload)
        if self._store.read_only:
            return
        wanted = {name: state.definition for name, state in self._states.items()}
        for name, definition in self.config.games.items():
            kept = wanted.get(name, GameDefinition())
            boards = {**kept.boards, **definition.boards}
            dimensions = {**kept.dimensions, **definition.dimensions}
            wanted[name] = GameDefinition(title=definition.title or kept.title, dimensions=dimensions, boards=boards)
        for name, definition in wanted.items():
            game = await self._save(name, definition)
            for board_name, board in definition.boards.items():
                current = self._states[name].boards.get(board_name)
                if current is None or current.saved.definition != board:
                    await self._define(game, board_name, board)

    async def _define(self, game: Game, name: str, board: Board) -> None:
        """Define a board: at once in a game without submissions, else beside everything else."""
        current = self._states[game.name].boards.get(name)
        at_once = current is not None and current.ranks_like(board)
        if at_once or not await self._store.has_submissions(game.name):
            await game.define_board(name, board)
            return
        task = asyncio.create_task(game.define_board(name, board))
        self._tasks.add(task)
        task.add_done_callback(self._defined)
        await asyncio.sleep(0)  # it is under way before anybody asks for the board

    def _defined(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # kept by the game, and raised to whoever reads the board
            logger.error("a board could not be built: %s", error)

    def _reload(self) -> None:
        """Read-only: another process has written; read everything anew."""
        catalog = self._store.catalog()
        self._indexes.clear()
        self.keyring.replace(catalog.keys)
        for name, definition in catalog.games.items():
            state = self._states.get(name)
            if state is None:
                state = GameState(name, definition)
                self._add(state)
            state.definition = definition
            state.banned = catalog.bans.get(name, set())
            state.boards = {
                board.name: LiveBoard(board) for board in catalog.boards if board.game == name and board.ready
            }

    async def close(self) -> None:
        """Answer what waits, write what is behind, let go of the store."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._store.close()

    # --- games ----------------------------------------------------------------------------------------------

    def games(self) -> list[str]:
        """The ids of all games."""
        return sorted(self._games)

    def game(self, name: str) -> Game:
        """A game by its id. NotFound if there is none."""
        game = self._games.get(name)
        if game is None:
            raise NotFound("game", name, f"there are {self.games()}" if self._games else "define one first")
        return game

    async def define_game(
        self, name: str, definition: GameDefinition | None = None, progress: Progress | None = None
    ) -> Game:
        """Create a game, or change it. Boards that it defines are created or changed, those that it leaves out stay."""
        definition = definition or GameDefinition()
        check_ids([name], "game", self.config.limits.id_bytes_max)
        configuration.check_game(definition, self.config.limits)
        state = self._states.get(name)
        boards = {} if state is None else state.definition.boards
        game = await self._save(
            name, GameDefinition(title=definition.title, dimensions=definition.dimensions, boards=boards)
        )
        for board_name, board in definition.boards.items():
            await game.define_board(board_name, board, progress)
        return game

    async def _save(self, name: str, definition: GameDefinition) -> Game:
        state = self._states.get(name)
        if state is None or state.definition != definition:
            await self._store.save_game(name, definition)
        if state is None:
            self._add(GameState(name, definition))
        else:
            state.definition = definition
        return self._games[name]

    def _add(self, state: GameState) -> None:
        self._states[state.name] = state
        self._games[state.name] = Game(
            state, self._store, self._indexes, self.config.limits, self._clock, self._cursors
        )

    # --- keys -----------------------------------------------------------------------------------------------

    def keys(self, game: str | None = None) -> list[ApiKey]:
        """The keys of a game, or, if none is named, all of them, the oldest first."""
        return self.keyring.list(game)

    async def create_key(
        self, role: KeyRole, game: str | None = None, name: str = "", expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        """Make a key, and the text to send (of a signer: to sign with), which is shown now and never again. An
        operator's key has no game, every other has one."""
        check_texts([name], "name", self.config.limits.text_bytes_max)
        kept, text = new_key(role, game, name, self._clock(), expires_at)
        if game is not None:
            self.game(game)
        async with self._key_changes:
            most = self.config.limits.keys_per_game_max
            if sum(key.game == game for key in self.keys()) >= most:
                raise LimitExceeded("keys", game, f"a game has at most {most}, and so have all operators")
            await self._store.save_key(kept)
            self.keyring.put(kept)
        return kept.key, text

    async def revoke_key(self, key_id: str, game: str | None = None) -> None:
        """From now on a key counts no more, nor do tokens that it signed. NotFound if there is none, or it is not one
        of the game that is named."""
        async with self._key_changes:
            self._key(key_id, game)
            self.keyring.remove(key_id)
            await self._store.delete_key(key_id)

    async def rotate_key(self, key_id: str, game: str | None = None) -> tuple[ApiKey, str]:
        """Give a key a new secret, whose text is shown now and never again; the earlier one counts no more. NotFound
        like `revoke_key`."""
        async with self._key_changes:
            kept, text = with_new_secret(self._key(key_id, game))
            await self._store.save_key(kept)
            self.keyring.put(kept)
        return kept.key, text

    def _key(self, key_id: str, game: str | None) -> ApiKey:
        key = self.keyring.get(key_id).key
        if game is not None and key.game != game:
            raise NotFound("key", key_id)
        return key

    async def player_token(self, game: str, player_id: str, expires_in_s: int = 3600) -> tuple[str, datetime]:
        """A token with which a player asks for themselves, and when it expires. It is signed by the game's signer named
        "tokens", which is made at first; revoking that one ends all tokens that were made here."""
        self.game(game)
        check_ids([player_id], "player_id", self.config.limits.id_bytes_max)
        return self.keyring.player_token(await self._token_key(game), player_id, self._clock(), expires_in_s)

    async def _token_key(self, game: str) -> str:
        async with self._token_keys:
            for key in self.keys(game):
                if key.role == "signer" and key.name == TOKEN_KEY and key.expires_at is None:
                    return key.key_id
            return (await self.create_key("signer", game, TOKEN_KEY))[0].key_id

    # --- for those who look again and again -----------------------------------------------------------------

    @property
    def version(self) -> int:
        """Another number whenever anything was applied: a submission, a ban, a definition."""
        return self._indexes.version

    def now(self) -> int:
        """The clock, in microseconds since the epoch."""
        return self._clock()

    async def refresh(self) -> None:
        """Read-only: see what another process has written since the last read."""
        await self._store.refresh()

    # --- upkeep ---------------------------------------------------------------------------------------------

    async def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Work everything out again from the log and compare; see `VerifyReport`. Submissions go on, except at the very
        end. `progress(done, total)` counts segments of the log."""
        return await verify(self._store, self._indexes, self._states, self._clock, progress)

    async def backup(self, path: str | Path, progress: Progress | None = None) -> None:
        """A complete copy of the store, of one moment, while work goes on. `progress(done, total)` counts pages."""
        await self._store.backup(str(path), progress)

    async def compact(self) -> None:
        """Give space that is no longer used back to the disk. Submissions wait meanwhile."""
        await self._store.compact()

    def failure(self) -> LaurelsError | None:
        """Why nothing can be submitted any more until the store is opened again; None if it can."""
        return self._store.failure()

    def queued(self) -> int:
        """How many submissions wait to be committed."""
        return self._store.queued_rows

    def memory_bytes(self) -> int:
        """What the rank indexes take in memory."""
        return self._indexes.memory_bytes() + sum(self._store.players(name).memory_bytes() for name in self._games)


def _config(config: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if config is None:
        return Config()
    if isinstance(config, str | Path):
        return configuration.load(config)
    if isinstance(config, Config):
        configuration.check(config)
        return config
    return configuration.converted(config)


def _path(url: str) -> Path:
    """The file that a store's URL names."""
    scheme, separator, rest = url.partition("://")
    if scheme != "sqlite" or not separator:
        raise InvalidInput("url", url, "must be like sqlite:///scores.db")
    host, slash, path = rest.partition("/")
    if host or not slash or not path:
        raise InvalidInput("url", url, "must be like sqlite:///relative.db or sqlite:////absolute/path.db")
    return Path(unquote(path))
