"""The embedded engine as a `Store`: what the rest of Laurels calls, on the event loop."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from laurels._native import Players, SubmissionIds
from laurels.auth import KeptKey
from laurels.batch import Batch
from laurels.boards import Place, place_key
from laurels.errors import Conflict, LaurelsError, StoreReadOnly, StoreUnavailable
from laurels.model import Board, GameDefinition, Submission
from laurels.stores.base import (
    Accepted,
    Catalog,
    Entries,
    Feed,
    NewInstance,
    Progress,
    Removal,
    SavedBoard,
    Segment,
    place_of,
    place_of_given_id,
    seq_and_row,
)
from laurels.stores.sqlite.log import encode_effects
from laurels.stores.sqlite.reader import Reader
from laurels.stores.sqlite.schema import Ownership, connect, open_file, secret_of, translated
from laurels.stores.sqlite.state import WriterState
from laurels.stores.sqlite.writer import Job, Request, Singles, Writer
from laurels.windows import to_us

T = TypeVar("T")

READERS = 4
BACKUP_PAGES = 1_024


def system_clock() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1_000


class SqliteStore:
    """One file, one process that writes it, any number that read it."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        clock: Callable[[], int],
        idempotency_days: int,
        queued_rows_max: int,
    ) -> None:
        """Open or create a file. Raises a StoreError that says why not."""
        self.path = path
        self.read_only = read_only
        self._clock = clock
        self._owner = None if read_only else Ownership(path)
        try:
            connection = open_file(path, read_only=read_only)
            self.secret = secret_of(connection, path, read_only=read_only)
        except BaseException:
            if self._owner is not None:
                self._owner.release()
            raise
        self._connection = connection
        self.reader = Reader(path)
        self._state = WriterState(path, connection, self.reader, clock)
        self._idempotency_days = idempotency_days
        self._feed: Feed
        self._writer: Writer
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="laurels-reader")
        self._loop: asyncio.AbstractEventLoop
        self._room = asyncio.Condition()
        self._singles: dict[str, Singles] = {}
        self._queued_rows = 0
        self._waiting = 0
        self._queued_rows_max = queued_rows_max
        self._closed = False
        self._data_version = self._version()

    # --- opening and closing --------------------------------------------------------------------------------

    def recover(self, feed: Feed) -> int:
        """Have the feed apply what was committed but not written behind. Blocks; before `start`."""
        self._feed = feed
        self._writer = Writer(self._state, feed, idempotency_days=self._idempotency_days, answered=self._answered)
        return self._apply_tail()

    def _apply_tail(self) -> int:
        for stored in self.reader.segments(self._state.applied_seq, self._state.seq):
            for segment in stored.segments():
                self._state.applied_again(segment, self._feed.apply(segment))
        return self._state.tail_rows

    def start(self, reload: Callable[[], None]) -> None:
        """Answer requests from now on, on the running event loop. Read-only, `reload` is called (on a reader's thread)
        before a read when another process has written."""
        self._loop = asyncio.get_running_loop()
        self._reload = reload
        if not self.read_only:
            self._writer.start()

    async def close(self) -> None:
        """Answer what waits, write what is behind, close the file."""
        if self._closed:
            return
        self._closed = True
        if hasattr(self, "_writer"):
            await asyncio.to_thread(self._writer.stop)
        self._pool.shutdown(wait=True)
        self.reader.close()
        if not self.read_only:
            with suppress(sqlite3.Error):  # the write-ahead log holds everything; the next opening goes on from it
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        if self._owner is not None:
            self._owner.release()

    def players(self, game: str) -> Players:
        """The interned player ids of a game, shared by its rank indexes."""
        return self._state.players(game)

    def failure(self) -> LaurelsError | None:
        """Why nothing can be submitted any more until the store is opened again; None if it can."""
        return None if self.read_only else self._writer.failed

    @property
    def queued_rows(self) -> int:
        """How many submissions wait to be committed."""
        return self._queued_rows

    async def refresh(self) -> None:
        """Read-only: see what another process has written since the last read."""
        if self.read_only and self._has_changed():
            await self.read(self._refresh)

    def _refresh(self) -> None:
        self._state.read()
        self._reload()
        self._apply_tail()

    def _has_changed(self) -> bool:
        version = self._version()
        changed = version != self._data_version
        self._data_version = version
        return changed

    def _version(self) -> int:
        with translated(self.path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    # --- requests and jobs ----------------------------------------------------------------------------------

    async def submit(self, game: str, batch: Batch) -> Accepted:
        """Commit a checked batch and have it applied. Waits while too much is queued."""
        self._check_writable()
        rows = len(batch)
        if self._queued_rows and self._queued_rows + rows > self._queued_rows_max:
            self._waiting += 1
            try:
                async with self._room:
                    await self._room.wait_for(
                        lambda: not self._queued_rows or self._queued_rows + rows <= self._queued_rows_max
                    )
            finally:
                self._waiting -= 1
            self._check_writable()
        self._queued_rows += rows
        ticket: asyncio.Future[Accepted] = self._loop.create_future()
        if rows > 1:
            self._writer.put(Request((ticket, rows), game, batch))
        else:
            singles = self._singles.get(game)
            if singles is None or not singles.add((ticket, 1), batch):
                singles = self._singles[game] = Singles(game)
                singles.add((ticket, 1), batch)
                self._writer.put(singles)
        return await ticket

    async def _job(self, work: Callable[[], T]) -> T:
        """Run work on the writer's thread, between groups."""
        self._check_writable()
        ticket: asyncio.Future[T] = self._loop.create_future()
        self._writer.put(Job((ticket, 0), work))
        return await ticket

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a read on one of the readers' threads."""
        if self._closed:
            raise StoreUnavailable(f"{self.path}: is closed")
        return await self._loop.run_in_executor(self._pool, partial(work, *arguments))

    def _answered(self, results: list[tuple[Any, Any]]) -> None:
        self._loop.call_soon_threadsafe(self._resolve, results)

    def _resolve(self, results: list[tuple[Any, Any]]) -> None:
        for tickets, result in results:
            if isinstance(tickets, list):
                for row, (ticket, _) in enumerate(tickets):
                    _tell(ticket, result.row(row) if isinstance(result, Accepted) else result)
                self._queued_rows -= len(tickets)
            else:
                ticket, rows = tickets
                _tell(ticket, result)
                self._queued_rows -= rows
        if self._waiting:
            self._waker = self._loop.create_task(self._wake())

    async def _wake(self) -> None:
        async with self._room:
            self._room.notify_all()

    def _check_writable(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path}: is closed")
        if self.read_only:
            raise StoreReadOnly(f"{self.path}: was opened read-only")

    # --- the log --------------------------------------------------------------------------------------------

    async def submissions(self, game: str, places: Sequence[int]) -> list[Submission | None]:
        """Submissions by place; None for one that was erased."""
        return await self.read(self.reader.submissions, game, places)

    async def has_submissions(self, game: str) -> bool:
        """Whether a game's log holds anything."""
        return await self.read(self.reader.has_submissions, game)

    async def find_submission(self, game: str, submission_id: str) -> int | None:
        """The place of a submission, None if the game has none of that id."""
        given = place_of_given_id(submission_id)
        if given is not None:
            seq, row = seq_and_row(given)
            segment = await self.read(self.reader.segment, seq)
            there = segment is not None and segment.game == game and row < len(segment)
            return given if there else None
        if not self.read_only and not self._state.knows_ids(game):
            await self._job(lambda: self._state.find_ids(game, []))
        place = (await self.read(self._state.find_ids, game, [submission_id]))[0]
        return place if place >= 0 else None

    async def history(self, game: str, player_id: str, before: int | None, limit: int) -> list[tuple[int, Submission]]:
        """A player's submissions with their places, newest first, from before a place (one of theirs)."""

        def work() -> list[tuple[int, Submission]]:
            if before is None:
                newest = self._state.latest_place(game, player_id)
            else:
                seq, row = seq_and_row(before)
                segment = self.reader.segment(seq)
                newest = -1 if segment is None or row >= len(segment) else segment.previous(row)
            return self.reader.history(game, newest, limit)

        return await self.read(work)

    async def log(self, game: str, after_place: int = -1) -> AsyncIterator[list[tuple[int, Submission]]]:
        """All submissions of a game in order, in pieces, as of the moment of the call."""
        last_seq = await self.read(self.reader.last_seq)
        seq = seq_and_row(after_place)[0] - 1 if after_place >= 0 else 0
        while some := await self.read(self.reader.some_segments, seq, last_seq, game):
            seq = some[-1].seq
            rows = ((place_of(s.seq, row), submission) for s in some for row, submission in enumerate(s.submissions()))
            yield [(place, submission) for place, submission in rows if submission is not None and place > after_place]

    def latest_place(self, game: str, player_id: str) -> int:
        """The place of a player's latest submission, -1 if there is none. Blocks."""
        return self._state.latest_place(game, player_id)

    def all_ids(self, game: str) -> tuple[SubmissionIds, int]:
        """The submission ids of a game that are kept apart from the log, and up to which segment they go. Blocks."""
        return self.reader.all_ids(game), self._state.ids_seq(game)

    def segments(self, after_seq: int, up_to_seq: int | None = None, game: str | None = None) -> Iterator[Segment]:
        """Segments as columns, in order. Blocks."""
        for stored in self.reader.segments(after_seq, up_to_seq or self.reader.last_seq(), game):
            yield from stored.segments()

    # --- definitions ----------------------------------------------------------------------------------------

    def catalog(self) -> Catalog:
        """Games, boards, bans and keys as they are kept. Blocks."""
        return self.reader.catalog()

    async def save_game(self, name: str, definition: GameDefinition) -> None:
        """Create or change a game (its boards are saved one by one)."""
        text = msgspec.json.encode(definition).decode()

        def work() -> None:
            with self._state.transaction() as db:
                db.execute(
                    "INSERT INTO games (name, definition) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
                    (name, text),
                )
            self._state.games_changed()

        await self._job(work)

    async def save_board(self, game: str, name: str, definition: Board) -> SavedBoard:
        """Keep a new version of a board, not yet ready. An earlier one that never became ready goes."""

        def work() -> SavedBoard:
            with self._state.transaction() as db:
                game_id = self._state.games[game].id
                db.execute("DELETE FROM boards WHERE game = ? AND name = ? AND NOT ready", (game_id, name))
                version = db.execute(
                    "SELECT coalesce(max(version), 0) + 1 FROM boards WHERE game = ? AND name = ?", (game_id, name)
                ).fetchone()[0]
                board_id = db.execute(
                    "INSERT INTO boards (id, game, name, version, definition, ready)"
                    " VALUES ((SELECT max(coalesce((SELECT max(id) FROM boards), 0),"
                    "  coalesce((SELECT max(board) FROM instances), 0)) + 1), ?, ?, ?, ?, 0) RETURNING id",
                    (game_id, name, version, msgspec.json.encode(definition).decode()),
                ).fetchone()[0]
                self._note(db, "define", {"game": game, "board": name, "version": version})
            return SavedBoard(
                board_id=board_id, game=game, name=name, version=version, definition=definition, ready=False
            )

        return await self._job(work)

    async def update_board(self, board: SavedBoard, updated: Callable[[], None]) -> None:
        """Keep another definition of a version of a board, with the entries as they are, then call `updated`."""

        def work() -> None:
            with self._state.transaction() as db:
                text = msgspec.json.encode(board.definition).decode()
                db.execute("UPDATE boards SET definition = ? WHERE id = ?", (text, board.board_id))
                self._note(db, "describe", {"game": board.game, "board": board.name, "version": board.version})
            updated()

        await self._job(work)

    async def publish_board(
        self, board: SavedBoard, complete: Callable[[int], bool], publish: Callable[[], None]
    ) -> bool:
        """Have a board completed up to the newest segment, write it, keep that it is ready, retire its older versions,
        call `publish`, all between two groups of submissions. False, and nothing done, if `complete` says so."""

        def work() -> bool:
            if not complete(self._state.seq):
                return False
            self._writer.behind.write_all()
            with self._state.transaction() as db:
                game_id = self._state.games[board.game].id
                db.execute("UPDATE boards SET ready = 1 WHERE id = ?", (board.board_id,))
                db.execute(
                    "DELETE FROM boards WHERE game = ? AND name = ? AND version < ?",
                    (game_id, board.name, board.version),
                )
            publish()
            return True

        return await self._job(work)

    async def drop_board(self, game: str, name: str, publish: Callable[[], None]) -> None:
        """Forget a board and its entries, then call `publish`. The submissions stay."""

        def work() -> None:
            self._writer.behind.write_all()  # the answers so far know the board
            with self._state.transaction() as db:
                db.execute("DELETE FROM boards WHERE game = ? AND name = ?", (self._state.games[game].id, name))
                self._note(db, "drop", {"game": game, "board": name})
            publish()

        await self._job(work)

    async def settled(self, work: Callable[[int], T]) -> T:
        """Call `work` with the newest seq, between two groups of submissions, with everything written behind."""

        def settle() -> T:
            self._writer.behind.write_all()
            return work(self._state.seq)

        return await self._job(settle)

    # --- keys -----------------------------------------------------------------------------------------------

    async def save_key(self, key: KeptKey) -> None:
        """Keep a key, in place of an earlier one of its id."""
        facts = key.key

        def work() -> None:
            with self._state.transaction() as db:
                db.execute(
                    "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        facts.key_id,
                        None if facts.game is None else self._state.games[facts.game].id,
                        facts.role,
                        facts.name,
                        key.proof,
                        to_us(facts.created_at),
                        None if facts.expires_at is None else to_us(facts.expires_at),
                    ),
                )
                self._note(db, "save key", {"game": facts.game, "key_id": facts.key_id, "role": facts.role})

        await self._job(work)

    async def delete_key(self, key_id: str) -> bool:
        """Forget a key; whether there was one."""

        def work() -> bool:
            with self._state.transaction() as db:
                deleted = db.execute("DELETE FROM keys WHERE key_id = ?", (key_id,)).rowcount
                if deleted:
                    self._note(db, "delete key", {"key_id": key_id})
            return deleted > 0

        return await self._job(work)

    # --- moderation -----------------------------------------------------------------------------------------

    async def remove_entry(
        self, game: str, board: str, board_id: int, place: Place, player_id: str, removed: Callable[[], None]
    ) -> bool:
        """A player's submissions so far no longer count in an instance; whether there was an entry. `removed` takes it
        out of memory."""
        instance = place_key(place)

        def work() -> bool:
            self._writer.behind.write_all()
            latest = place_of(self._state.seq + 1, 0) - 1
            with self._state.transaction() as db:
                db.execute(
                    "INSERT OR REPLACE INTO removals VALUES (?, ?, ?, ?, ?)",
                    (self._state.games[game].id, board, instance, player_id, latest),
                )
                deleted = db.execute(
                    "DELETE FROM entries WHERE player_id = ?"
                    " AND instance = (SELECT id FROM instances WHERE board = ? AND place = ?)",
                    (player_id, board_id, instance),
                ).rowcount
                details = {"game": game, "board": board, "instance": instance, "player_id": player_id}
                self._note(db, "remove entry", details)
            removed()
            return deleted > 0

        return await self._job(work)

    async def ban(self, game: str, player_id: str, reason: str, banned: Callable[[], None]) -> None:
        """Hide a player from all boards of a game; their submissions stay in the log."""

        def work() -> None:
            self._writer.behind.write_all()
            with self._state.transaction() as db:
                game_id = self._state.games[game].id
                db.execute(
                    "INSERT OR REPLACE INTO bans VALUES (?, ?, ?, ?)", (game_id, player_id, reason, self._clock())
                )
                self._delete_entries(db, game_id, player_id)
                self._note(db, "ban", {"game": game, "player_id": player_id, "reason": reason})
            banned()

        await self._job(work)

    async def unban(
        self,
        game: str,
        player_id: str,
        restored: Callable[[], tuple[list[NewInstance], list[Entries]]],
        unbanned: Callable[[], None],
    ) -> None:
        """Show a player again, with the entries that `restored` works out from the log."""

        def work() -> None:
            self._writer.behind.write_all()
            instances, entries = restored()
            self._writer.behind.write_instances(instances)
            with self._state.transaction() as db:
                db.execute("DELETE FROM bans WHERE game = ? AND player_id = ?", (self._state.games[game].id, player_id))
                for some in entries:
                    self._writer.behind.write_entries(some)
                self._note(db, "unban", {"game": game, "player_id": player_id})
            unbanned()

        await self._job(work)

    async def remove_player(self, game: str, player_id: str, removed: Callable[[], None]) -> int:
        """Erase everything kept of a player, the submissions in the log too; how many those were."""

        def work() -> int:
            self._writer.behind.write_all()
            self._writer.behind.upkeep.freeze_ids(game)  # in the log the ids go with the rows, but they stay used
            rows: dict[int, list[int]] = {}
            place = self._state.latest_place(game, player_id)
            erased = 0
            while place >= 0:
                seq, row = seq_and_row(place)
                segment = self.reader.segment(seq)
                if segment is None:
                    break
                rows.setdefault(seq, []).append(row)
                erased += 1
                place = segment.previous(row)
            with self._state.transaction() as db:
                game_id = self._state.games[game].id
                for seq, numbers in rows.items():
                    segment = self.reader.segment(seq)
                    assert segment is not None
                    left, checksum = segment.without(numbers)
                    db.execute("UPDATE segments SET rows = ?, checksum = ? WHERE seq = ?", (left, checksum, seq))
                    self._erase_answers(db, seq, numbers)
                self._delete_entries(db, game_id, player_id)
                self._state.write_places(game_id, [player_id], [-1])
                for table in ("bans", "removals"):
                    db.execute(f"DELETE FROM {table} WHERE game = ? AND player_id = ?", (game_id, player_id))
                db.execute(
                    "DELETE FROM profiles WHERE game = ? AND field = 'player_id' AND value = ?", (game_id, player_id)
                )
                db.execute(
                    "DELETE FROM operations WHERE json_extract(details, '$.player_id') = ?"
                    " AND json_extract(details, '$.game') = ?",
                    (player_id, game),
                )
                self._note(db, "remove player", {"game": game, "submissions": erased})
            self.reader.forget_segments()
            self._state.forget_player(game, player_id)
            removed()
            return erased

        return await self._job(work)

    def _delete_entries(self, db: sqlite3.Connection, game_id: int, player_id: str) -> None:
        db.execute(
            "DELETE FROM entries WHERE player_id = ? AND instance IN (SELECT i.id FROM entries e"
            " JOIN instances i ON i.id = e.instance JOIN boards b ON b.id = i.board"
            " WHERE e.player_id = ? AND b.game = ?)",
            (player_id, player_id, game_id),
        )

    def _erase_answers(self, db: sqlite3.Connection, seq: int, rows: list[int]) -> None:
        effects = self.reader.effects(seq)
        if effects is None:
            return
        left = [effect.take([at for at, row in enumerate(effect.rows) if row not in rows]) for effect in effects]
        db.execute("UPDATE answers SET effects = ? WHERE seq = ?", (encode_effects(left), seq))

    def _note(self, db: sqlite3.Connection, verb: str, details: Mapping[str, Any]) -> None:
        """Keep who did what for later questions."""
        db.execute(
            "INSERT INTO operations (seq, at, verb, details) VALUES (?, ?, ?, ?)",
            (self._state.seq, self._clock(), verb, json.dumps(details, ensure_ascii=False)),
        )

    async def removals(self, game: str, player_id: str | None = None) -> list[Removal]:
        """Removed entries of a game, or of one of its players."""
        return await self.read(self.reader.removals, game, player_id)

    # --- profiles -------------------------------------------------------------------------------------------

    async def describe(self, game: str, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Set the display attributes of players or of a dimension's values."""
        rows = [(value, msgspec.json.encode(dict(some)).decode()) for value, some in attributes.items()]

        def work() -> None:
            with self._state.transaction() as db:
                game_id = self._state.games[game].id
                db.executemany(
                    "INSERT INTO profiles VALUES (?, ?, ?, ?) ON CONFLICT (game, field, value)"
                    " DO UPDATE SET attributes = excluded.attributes",
                    [(game_id, field, value, text) for value, text in rows],
                )

        await self._job(work)

    async def descriptions(self, game: str, field: str, values: Iterable[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""
        return await self.read(self.reader.descriptions, game, field, list(values))

    # --- upkeep ---------------------------------------------------------------------------------------------

    async def backup(self, path: str, progress: Progress | None = None) -> None:
        """A complete copy, consistent at one moment, while work goes on. Raises Conflict if `path` exists."""
        target = Path(path)
        if target.exists():
            raise Conflict(f"{target}: exists already")
        if not self.read_only:
            await self._job(self._writer.behind.write_all)

        def report(_: int, remaining: int, total: int) -> None:
            if progress is not None:
                progress(total - remaining, total)

        def work() -> None:
            partial_path = target.with_name(target.name + ".partial")
            partial_path.unlink(missing_ok=True)
            with translated(target):
                source = connect(self.path, read_only=True)
                copy = sqlite3.connect(partial_path)
                try:
                    # One read transaction: the copy is of one moment however long it takes.
                    source.execute("BEGIN")
                    source.execute("SELECT count(*) FROM meta").fetchone()
                    source.backup(copy, pages=BACKUP_PAGES, progress=report)
                finally:
                    copy.close()
                    source.close()
            partial_path.rename(target)

        await self.read(work)

    async def compact(self) -> None:
        """Give space that is no longer used back to the disk. Submissions wait meanwhile."""

        def work() -> None:
            self._writer.behind.write_all()
            self._state.db.execute("VACUUM")
            self._state.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self._job(work)

    def damage(self) -> list[str]:
        """What SQLite's own check finds wrong. Blocks; reads the whole file."""
        with translated(self.path):
            rows = self.reader.connection().execute("PRAGMA integrity_check(20)").fetchall()
        return [] if rows == [("ok",)] else [row[0] for row in rows]


def _tell(ticket: "asyncio.Future[Any]", result: Any) -> None:
    if ticket.done():  # whoever waited has gone; what was committed stays committed
        return
    if isinstance(result, BaseException):
        ticket.set_exception(result)
    else:
        ticket.set_result(result)
