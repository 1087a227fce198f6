"""What follows from the log, written behind it: entries, each player's latest place, answers.

It is written in slices, when nothing waits or too much has piled up. A crash loses nothing of it: on opening, segments
after `applied_seq` are applied again, which changes nothing where an entry was written already, because entries carry
the place that they reflect.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from laurels._native import Changes, Players
from laurels.boards import place_key
from laurels.errors import StoreError
from laurels.stores.base import Entries, Feed, NewInstance
from laurels.stores.sqlite.beside import Beside, Slices
from laurels.stores.sqlite.schema import connect, translated
from laurels.stores.sqlite.state import WriterState
from laurels.stores.sqlite.upkeep import Upkeep

T = TypeVar("T")

IDLE_S = 0.02
SLICE_ROWS = 1_000
SLICE_PLACES = 4_000
TAIL_ROWS_MAX = 2_000_000  # what a reopening after a crash applies again in some seconds
OWED_MIN = 0.01  # so that a cycle begins, and goes on, whatever its size
SORTED_BESIDE_MIN = 20_000
WAL_BYTES_MAX = 64 * 2**20
LOOK_S = 0.05  # how often to look at its size
RETRY_S = 1.0
TERMS_MAX = 5

UPSERT_ENTRY = (
    "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, player_id) DO UPDATE SET"
    " term1 = excluded.term1, term2 = excluded.term2, term3 = excluded.term3, term4 = excluded.term4,"
    " term5 = excluded.term5, place = excluded.place"
)

logger = logging.getLogger("laurels.sqlite")


class Behind:
    """Writes behind the log, on the writer's thread."""

    def __init__(self, state: WriterState, feed: Feed, idempotency_days: int) -> None:
        self._state = state
        self._feed = feed
        self._beside = Beside()
        self.upkeep = Upkeep(state, feed, idempotency_days, self._beside)
        self._cycle: Slices | None = None
        self._cycle_rows = 0
        self._owed_rows = 0.0
        self._idle = True  # whether nothing waits: only then is it worth waiting for the disk
        self._retry_at = 0.0
        self._look_at = 0.0
        self._wal = state.path.with_name(state.path.name + "-wal")
        self._checkpoint: threading.Thread | None = None

    def stop(self) -> None:
        """Wait for what runs beside the writer."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self._beside.stop()

    # --- writing behind -------------------------------------------------------------------------------------

    def wait_s(self) -> float | None:
        """How long the writer may wait for requests before it writes behind; None: there is nothing to write."""
        if not self._is_behind() and self._cycle is None and not self.upkeep.is_due:
            return None
        return max(IDLE_S, self._retry_at - time.monotonic())

    def _is_behind(self) -> bool:
        state = self._state
        return state.applied_seq < state.seq or state.has_answers or self._feed.unwritten_count() > 0

    def keep_up(self, rows: int) -> None:
        """After a group of so many rows: when much has piled up, write as much as keeps it from growing on, though
        requests wait. What changed by `TAIL_ROWS_MAX` rows of the log is written while at most as many more come in."""
        self._idle = False
        pace = self._cycle_rows / TAIL_ROWS_MAX * (self._state.tail_rows / TAIL_ROWS_MAX)  # the more, the faster
        self._owed_rows += rows * max(pace, OWED_MIN)
        while self._owed_rows > 0 and self._is_overdue():
            self._owed_rows -= max(1, self._write_slice())
            if self._beside.is_busy:
                break
        if self._beside.is_busy or not self._is_overdue():
            self._owed_rows = 0.0
        if time.monotonic() >= self._retry_at:
            self._tried(lambda: self.upkeep.slice(idle=False))

    def _is_overdue(self) -> bool:
        return self._state.tail_rows > TAIL_ROWS_MAX and time.monotonic() >= self._retry_at

    def write_when_idle(self) -> None:
        """Write one slice of what is behind; when nothing is, do a slice of the upkeep."""
        self._idle = True
        if self._is_behind() or self._cycle is not None:
            self._write_slice()
        else:
            self._tried(lambda: self.upkeep.slice(idle=True))
        self.checkpoint_if_large()  # now, so that fewer commits meet it

    def _write_slice(self) -> int:
        """Write one slice, and say how many rows it had."""
        if self._cycle is None:
            self._cycle = self._cycle_slices()
        written = self._tried(lambda: next(self._cycle or iter(()), None))
        if written is None:
            self._cycle = None
        return written or 0

    def _tried(self, work: Callable[[], T]) -> T | None:
        """Do something that is put off when it fails."""
        try:
            return work()
        except (sqlite3.Error, StoreError) as error:
            self._retry_at = time.monotonic() + RETRY_S
            logger.warning("entries stay in memory for now: %s", error)
            return None

    def write_all(self) -> None:
        """Write everything that is behind. Raises StoreError."""
        self._idle = True
        with translated(self._state.path), self._beside.at_once():
            cycle, self._cycle = self._cycle, None
            for _ in cycle or ():
                pass
            if self._is_behind():
                for _ in self._cycle_slices():
                    pass

    def _cycle_slices(self) -> Slices:
        """Everything that is behind now, in slices; afterwards the log is applied up to where it was at the start."""
        state = self._state
        target, tail_rows = state.seq, state.tail_rows
        self.write_instances(self._feed.new_instances())
        unwritten = self._feed.unwritten()
        places: list[tuple[int, Players, Changes]] = []

        def sort() -> int:
            for name, game in list(state.games.items()):
                players = state.players(name)
                places.append((game.id, players, players.changes()))
            return unwritten.sort() + sum(len(changes) for _, _, changes in places)

        if max(tail_rows, self._feed.unwritten_count()) < SORTED_BESIDE_MIN:
            self._cycle_rows = sort()
        else:
            self._cycle_rows = yield from self._beside.run(sort)
        while part := unwritten.take(SLICE_ROWS):
            answers = state.answers()
            with state.transaction(durable=self._idle):
                state.write_answers(answers)  # first: entries must not be ahead of the answers that led to them
                for some in part:
                    self.write_entries(some)
            state.answers_written(answers)
            self._feed.written([], part)
            yield sum(len(some.player_ids) for some in part)
        for game_id, players, changes in places:
            while len(changes):
                player_ids, latest = players.take(changes, SLICE_PLACES)
                while player_ids:
                    with state.transaction(durable=self._idle):
                        count = state.write_places(game_id, player_ids, latest)
                    players.mark_clean(player_ids[:count], latest[:count])
                    player_ids, latest = player_ids[count:], latest[count:]
                    yield count
        answers = state.answers()
        with state.transaction(durable=self._idle):
            state.write_answers(answers)
            state.db.execute("INSERT OR REPLACE INTO meta VALUES ('applied_seq', ?)", (target,))
        state.answers_written(answers)
        state.applied_seq = target
        state.tail_rows -= tail_rows

    def write_instances(self, instances: list[NewInstance]) -> None:
        """Keep board instances that are new."""
        if instances:
            with self._state.transaction():
                self._state.db.executemany(
                    "INSERT OR IGNORE INTO instances VALUES (?, ?, ?, ?)",
                    [
                        (new.instance_id, new.board_id, place_key(new.place), new.place.window_start)
                        for new in instances
                    ],
                )
            self._feed.written(instances, [])

    def write_entries(self, some: Entries) -> None:
        """Keep changed entries, within a transaction."""
        gone = [
            (some.instance_id, player_id)
            for player_id, removed in zip(some.player_ids, some.removed, strict=True)
            if removed
        ]
        if gone:
            self._state.db.executemany("DELETE FROM entries WHERE instance = ? AND player_id = ?", gone)
        padding = [[None] * len(some.player_ids)] * (TERMS_MAX - len(some.terms))
        rows = zip(some.player_ids, *some.terms, *padding, some.places, some.removed, strict=True)
        self._state.db.executemany(UPSERT_ENTRY, [(some.instance_id, *row[:-1]) for row in rows if not row[-1]])

    # --- the write-ahead log ----------------------------------------------------------------------------------

    def checkpoint_if_large(self) -> None:
        """Move the write-ahead log into the file beside the writer, so that no commit waits for it."""
        now = time.monotonic()
        if now < self._look_at or (self._checkpoint is not None and self._checkpoint.is_alive()):
            return
        self._look_at = now + LOOK_S
        try:
            if self._wal.stat().st_size < WAL_BYTES_MAX:
                return
        except OSError:
            return
        self._checkpoint = threading.Thread(target=self._run_checkpoint, name="laurels-checkpoint", daemon=True)
        self._checkpoint.start()

    def _run_checkpoint(self) -> None:
        try:
            connection = connect(self._state.path, read_only=False)
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                connection.close()
        except sqlite3.Error as error:
            logger.warning("the write-ahead log could not be moved into the file: %s", error)
