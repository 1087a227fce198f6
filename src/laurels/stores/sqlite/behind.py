"""What follows from the log, written behind it: entries, each player's latest place, answers, runs of submission ids.

It is written in slices, when nothing waits or too much has piled up. A crash loses nothing of it: on opening, segments
after `applied_seq` are applied again, which changes nothing where an entry was written already, because entries carry
the place that they reflect.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

from laurels._native import Changes, Players, SubmissionIds
from laurels.boards import place_key
from laurels.errors import StoreError
from laurels.stores.base import Entries, Feed, NewInstance
from laurels.stores.sqlite.schema import connect, translated
from laurels.stores.sqlite.state import GameState, WriterState

IDLE_S = 0.02
SLICE_ROWS = 2_000
TAIL_ROWS_MAX = 1_000_000  # about what a reopening after a crash applies again in a few seconds
OWED_MIN = 0.01  # so that a cycle begins, and goes on, whatever its size
SORTED_BESIDE_MIN = 20_000
IDS_IN_MEMORY_MAX = 1 << 18
ID_RUNS_MERGED = 4
ID_RUN_SIZE_MAX = 1 << 22
WAL_BYTES_MAX = 64 * 2**20
RETRY_S = 1.0
UPKEEP_S = 30.0
TERMS_MAX = 5

UPSERT_ENTRY = (
    "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, player_id) DO UPDATE SET"
    " term1 = excluded.term1, term2 = excluded.term2, term3 = excluded.term3, term4 = excluded.term4,"
    " term5 = excluded.term5, place = excluded.place"
)
UPSERT_PLACE = (
    "INSERT INTO players VALUES (?, ?, ?) ON CONFLICT (game, player_id) DO UPDATE SET last_place = excluded.last_place"
)

logger = logging.getLogger("laurels.sqlite")


class Behind:
    """Writes behind the log, on the writer's thread."""

    def __init__(self, state: WriterState, feed: Feed, idempotency_days: int, is_awaited: Callable[[], bool]) -> None:
        self._state = state
        self._feed = feed
        self._idempotency_us = idempotency_days * 86_400_000_000
        self._is_awaited = is_awaited  # whether requests wait
        self._cycle: Iterator[int] | None = None
        self._cycle_rows = 0
        self._owed_rows = 0.0
        self._is_sorting = False
        self._is_awaited_at_once = False
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="laurels-sort")
        self._retry_at = 0.0
        self._upkeep_at = 0.0
        self._wal = state.path.with_name(state.path.name + "-wal")
        self._checkpoint: threading.Thread | None = None

    def stop(self) -> None:
        """Wait for what runs beside the writer."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self._helper.shutdown()

    # --- writing behind -------------------------------------------------------------------------------------

    def wait_s(self) -> float | None:
        """How long the writer may wait for requests before it writes behind; None: there is nothing to write."""
        if not self._is_behind():
            return None
        return max(IDLE_S, self._retry_at - time.monotonic())

    def _is_behind(self) -> bool:
        state = self._state
        return state.applied_seq < state.seq or bool(state.answers) or self._feed.unwritten_count() > 0

    def keep_up(self, rows: int) -> None:
        """After a group of so many rows: when much has piled up, write as much as keeps it from growing on, though
        requests wait. What changed by `TAIL_ROWS_MAX` rows of the log is written while as many more come in."""
        self._owed_rows += rows * max(self._cycle_rows / TAIL_ROWS_MAX, OWED_MIN)
        while self._owed_rows > 0 and self._is_overdue():
            self._owed_rows -= max(1, self.write_slice())
            if self._is_sorting:
                break
        if self._is_sorting or not self._is_overdue():
            self._owed_rows = 0.0

    def _is_overdue(self) -> bool:
        return self._state.tail_rows > TAIL_ROWS_MAX and time.monotonic() >= self._retry_at

    def write_slice(self) -> int:
        """Write one slice of what is behind, and say how many rows it had; put it off when that fails."""
        rows = 0
        try:
            if self._cycle is None:
                self._cycle = self._cycle_slices()
            written = next(self._cycle, None)
            if written is None:
                self._cycle = None
                self._upkeep()
            else:
                rows = written
        except (sqlite3.Error, StoreError) as error:
            self._cycle = None
            self._retry_at = time.monotonic() + RETRY_S
            logger.warning("entries stay in memory for now: %s", error)
        return rows

    def write_all(self) -> None:
        """Write everything that is behind. Raises StoreError."""
        self._is_awaited_at_once = True
        try:
            with translated(self._state.path):
                cycle, self._cycle = self._cycle, None
                for _ in cycle or ():
                    pass
                if self._is_behind():
                    for _ in self._cycle_slices():
                        pass
        finally:
            self._is_awaited_at_once = False

    def _cycle_slices(self) -> Iterator[int]:
        """Everything that is behind now, in slices; afterwards the log is applied up to where it was at the start."""
        target = self._state.seq
        tail_rows = self._state.tail_rows
        self.write_instances(self._feed.new_instances())
        unwritten = self._feed.unwritten()
        places: list[tuple[int, Players, Changes]] = []

        def sort() -> int:
            for name, game in list(self._state.games.items()):
                players = self._state.players(name)
                places.append((game.id, players, players.changes()))
            return unwritten.sort() + sum(len(changes) for _, _, changes in places)

        yield from self._sorted(sort)
        while part := unwritten.take(SLICE_ROWS):
            answers = list(self._state.answers.items())
            with self._state.transaction():
                self._state.write_answers(answers)  # first: entries must not be ahead of the answers that led to them
                for some in part:
                    self.write_entries(some)
            self._state.answers_written(answers)
            self._feed.written([], part)
            yield sum(len(some.player_ids) for some in part)
        for game_id, players, changes in places:
            while len(changes):
                player_ids, latest = players.take(changes, SLICE_ROWS)
                with self._state.transaction():
                    self._state.db.executemany(UPSERT_PLACE, zip(repeat(game_id), player_ids, latest, strict=False))
                players.mark_clean(player_ids, latest)
                yield len(latest)
        answers = list(self._state.answers.items())
        with self._state.transaction():
            self._state.write_answers(answers)
            self._state.db.execute("INSERT OR REPLACE INTO meta VALUES ('applied_seq', ?)", (target,))
        self._state.answers_written(answers)
        self._state.applied_seq = target
        self._state.tail_rows -= tail_rows

    def _sorted(self, sort: Callable[[], int]) -> Iterator[int]:
        """Sort what changed: where it is much on a thread of its own, so that requests do not wait."""
        if max(self._state.tail_rows, self._feed.unwritten_count()) < SORTED_BESIDE_MIN:
            self._cycle_rows = sort()
            return
        sorting = self._helper.submit(sort)
        self._is_sorting = True
        try:
            while not (sorting.done() or self._is_awaited_at_once):
                yield 0
            self._cycle_rows = sorting.result()
        finally:
            self._is_sorting = False

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

    # --- upkeep ---------------------------------------------------------------------------------------------

    def _upkeep(self) -> None:
        """What needs doing now and then, when nothing waits."""
        for name, game in self._state.games.items():
            if game.ids is not None and game.ids.recent_count >= IDS_IN_MEMORY_MAX:
                self.freeze_ids(name)
        if time.monotonic() < self._upkeep_at:
            return
        self._upkeep_at = time.monotonic() + UPKEEP_S
        with self._state.transaction():
            oldest_us = self._state.clock() - self._idempotency_us
            self._state.db.execute("DELETE FROM answers WHERE accepted_at < ?", (oldest_us,))
        self._expire()

    def checkpoint_if_large(self) -> None:
        """Move the write-ahead log into the file beside the writer, so that no commit waits for it."""
        if self._checkpoint is not None and self._checkpoint.is_alive():
            return
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

    def _expire(self) -> None:
        """Drop the instances of windows that are no longer kept, and of boards that are gone."""
        for board_id, oldest_us in self._feed.expired(self._state.clock()):
            self._drop_instances("board = ? AND window_start < ?", (board_id, oldest_us))
        self._drop_instances("board NOT IN (SELECT id FROM boards)", ())

    def _drop_instances(self, where: str, values: tuple[int, ...]) -> None:
        """Delete instances a slice at a time, as long as nothing waits; the rest follows later."""
        for (instance_id,) in self._state.db.execute(f"SELECT id FROM instances WHERE {where}", values).fetchall():
            deleted = SLICE_ROWS
            while deleted == SLICE_ROWS:
                if self._is_awaited():
                    self._upkeep_at = 0.0
                    return
                with self._state.transaction():
                    deleted = self._state.db.execute(
                        "DELETE FROM entries WHERE instance = ? AND player_id IN"
                        " (SELECT player_id FROM entries WHERE instance = ? LIMIT ?)",
                        (instance_id, instance_id, SLICE_ROWS),
                    ).rowcount
                    if deleted < SLICE_ROWS:
                        self._state.db.execute("DELETE FROM instances WHERE id = ?", (instance_id,))

    def freeze_ids(self, name: str) -> None:
        """Move the recent ids of a game into a run of their own, and join runs when there are many small ones."""
        game, ids = self._state.games[name], self._state.ids(name)
        if not ids.recent_count:
            return
        self._save_run(game, ids.freeze(), [], self._state.seq)
        small = self._state.db.execute(
            "SELECT run FROM id_runs WHERE game = ? AND size * ? <= ? ORDER BY run",
            (game.id, ID_RUNS_MERGED, ID_RUN_SIZE_MAX),
        ).fetchall()
        if len(small) >= ID_RUNS_MERGED:
            runs = [run for (run,) in small]
            marks = ", ".join("?" * len(runs))
            query = f"SELECT keys, places FROM id_chunks WHERE run IN ({marks})"
            chunks = self._state.db.execute(query, runs).fetchall()
            self._save_run(game, SubmissionIds.merge(chunks), runs, None)

    def _save_run(self, game: GameState, run: Any, replaced: list[int], ids_seq: int | None) -> None:
        assert game.ids is not None
        with self._state.transaction():
            number = self._state.db.execute(
                "INSERT INTO id_runs (game, size, least, greatest, filter) VALUES (?, ?, ?, ?, ?) RETURNING run",
                (game.id, len(run), run.least, run.greatest, run.filter),
            ).fetchone()[0]
            self._state.db.executemany(
                "INSERT INTO id_chunks VALUES (?, ?, ?, ?)", ((number, *chunk) for chunk in run.chunks)
            )
            for old in replaced:
                self._state.db.execute("DELETE FROM id_chunks WHERE run = ?", (old,))
                self._state.db.execute("DELETE FROM id_runs WHERE run = ?", (old,))
            if ids_seq is not None:
                self._state.db.execute("UPDATE games SET ids_seq = ? WHERE id = ?", (ids_seq, game.id))
        game.ids.adopt(number, run, replaced)
        if ids_seq is not None:
            game.ids_seq = ids_seq
