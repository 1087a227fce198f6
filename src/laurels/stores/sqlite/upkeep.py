"""What needs doing now and then, in slices: submission ids move into runs, what is no longer kept goes."""

import time

from laurels._native import IdRun, SubmissionIds
from laurels.stores.base import Feed
from laurels.stores.sqlite.beside import Beside, Slices
from laurels.stores.sqlite.state import GameState, WriterState

IDS_IN_MEMORY_MAX = 1 << 18
ID_RUNS_MERGED = 4
ID_RUNS_UNMERGED_MAX = 16  # while requests wait, runs are only joined when there are this many
ID_RUN_SIZE_MAX = 1 << 22
CHUNKS_AT_ONCE = 4  # 100 kB each
ANSWERS_AT_ONCE = 64
ENTRIES_AT_ONCE = 2_000
PERIOD_S = 30.0


class Upkeep:
    """Keeps the file in shape, on the writer's thread."""

    def __init__(self, state: WriterState, feed: Feed, idempotency_days: int, beside: Beside) -> None:
        self._state = state
        self._feed = feed
        self._idempotency_us = idempotency_days * 86_400_000_000
        self._beside = beside
        self._slices: Slices | None = None
        self._due_at = 0.0
        self._leftovers_removed = False
        self._idle = True  # whether nothing waits: then it does not pile up on the way to the disk either

    @property
    def is_due(self) -> bool:
        """Whether something is to be done, or under way."""
        if self._slices is not None or time.monotonic() >= self._due_at:
            return True
        return any(self._has_many_ids(game) for game in list(self._state.games.values()))

    def slice(self, *, idle: bool) -> None:
        """Do a slice of what is due, if anything is. Raises StoreError or sqlite3.Error."""
        self._idle = idle
        if self._slices is None:
            if not self.is_due:
                return
            self._slices = self._all(ID_RUNS_MERGED if idle else ID_RUNS_UNMERGED_MAX)
        try:
            if next(self._slices, None) is None:
                self._slices = None
        except BaseException:
            self._slices = None
            raise

    def _all(self, runs_max: int) -> Slices:
        for name, game in list(self._state.games.items()):
            if self._has_many_ids(game):
                yield from self._freeze(name, game)
            if game.ids is not None:
                yield from self._join(game, runs_max)
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + PERIOD_S
            yield from self._expire_answers()
            yield from self._expire_instances()

    # --- submission ids -------------------------------------------------------------------------------------

    def _has_many_ids(self, game: GameState) -> bool:
        return game.ids is not None and game.ids.recent_count >= IDS_IN_MEMORY_MAX

    def freeze_ids(self, name: str) -> None:
        """Move all ids of a game into runs now."""
        self._idle = True
        game, ids = self._state.games[name], self._state.ids(name)
        with self._beside.at_once():
            for _ in self._slices or ():
                pass
            self._slices = None
            if ids.recent_count:
                for _ in self._freeze(name, game):
                    pass

    def _freeze(self, name: str, game: GameState) -> Slices:
        """Move the recent ids of a game into a run of their own."""
        seq = self._state.seq  # later ones may come along; that they are in the log as well does no harm
        run = yield from self._beside.run(self._state.ids(name).freeze)
        yield from self._save(game, run, [], seq)

    def _join(self, game: GameState, runs_max: int) -> Slices:
        """Join the small runs of a game, when there are many."""
        while True:
            runs, total = [], 0
            for run, size in self._state.db.execute(
                "SELECT run, size FROM id_runs WHERE game = ? AND size * ? <= ? ORDER BY size, run",
                (game.id, ID_RUNS_MERGED, ID_RUN_SIZE_MAX),
            ):
                if total + size <= ID_RUN_SIZE_MAX:
                    runs.append(run)
                    total += size
            if len(runs) < runs_max:
                return

            def merged(runs: list[int] = runs) -> IdRun:
                return SubmissionIds.merge(self._state.reader.id_chunks(runs))

            run = yield from self._beside.run(merged)
            yield from self._save(game, run, runs, None)

    def _save(self, game: GameState, run: IdRun, replaced: list[int], ids_seq: int | None) -> Slices:
        """Keep a run: its chunks first, which nobody asks for before it is known."""
        assert game.ids is not None
        db = self._state.db
        yield from self._remove_leftovers()
        number = db.execute(
            "SELECT 1 + max((SELECT coalesce(max(run), 0) FROM id_runs), (SELECT coalesce(max(run), 0) FROM id_chunks))"
        ).fetchone()[0]
        first = 0
        while chunks := run.chunks(first, CHUNKS_AT_ONCE):
            with self._state.transaction(durable=self._idle):
                db.executemany("INSERT INTO id_chunks VALUES (?, ?, ?, ?)", [(number, *chunk) for chunk in chunks])
            first += len(chunks)
            yield len(chunks)
        with self._state.transaction(durable=self._idle):
            db.execute(
                "INSERT INTO id_runs VALUES (?, ?, ?, ?, ?, ?)",
                (number, game.id, len(run), run.least, run.greatest, run.filter),
            )
            db.executemany("DELETE FROM id_runs WHERE run = ?", [(old,) for old in replaced])
            if ids_seq is not None:
                db.execute("UPDATE games SET ids_seq = ? WHERE id = ?", (ids_seq, game.id))
        game.ids.adopt(number, run, replaced)
        if ids_seq is not None:
            game.ids_seq = ids_seq
        for old in replaced:
            yield from self._remove_chunks(old)

    def _remove_chunks(self, run: int) -> Slices:
        """Those with the least keys first: whoever still looks for a key in this run finds its chunk, or none."""
        removed = CHUNKS_AT_ONCE
        while removed == CHUNKS_AT_ONCE:
            with self._state.transaction(durable=self._idle):
                removed = self._state.db.execute(
                    "DELETE FROM id_chunks WHERE run = ? AND first IN"
                    " (SELECT first FROM id_chunks WHERE run = ? ORDER BY first LIMIT ?)",
                    (run, run, CHUNKS_AT_ONCE),
                ).rowcount
            yield removed

    def _remove_leftovers(self) -> Slices:
        """Chunks of runs that a crash kept from becoming known, or from going."""
        if self._leftovers_removed:
            return
        known = {run for (run,) in self._state.db.execute("SELECT run FROM id_runs")}
        run = self._run_with_chunks(0)
        while run is not None:
            if run not in known:
                yield from self._remove_chunks(run)
            run = self._run_with_chunks(run + 1)
        self._leftovers_removed = True

    def _run_with_chunks(self, least: int) -> int | None:
        found = self._state.db.execute("SELECT min(run) FROM id_chunks WHERE run >= ?", (least,)).fetchone()
        return found[0]  # type: ignore[no-any-return]

    # --- what is no longer kept -----------------------------------------------------------------------------

    def _expire_answers(self) -> Slices:
        oldest_us = self._state.clock() - self._idempotency_us
        while True:
            first = self._state.db.execute(
                "SELECT seq, accepted_at FROM answers ORDER BY seq LIMIT ?", (ANSWERS_AT_ONCE,)
            ).fetchall()
            old = [(seq,) for seq, accepted_at in first if accepted_at < oldest_us]
            if not old:
                return
            with self._state.transaction(durable=self._idle):
                self._state.db.executemany("DELETE FROM answers WHERE seq = ?", old)
            yield len(old)

    def _expire_instances(self) -> Slices:
        """Drop the instances of windows that are no longer kept, and of boards that are gone."""
        for board_id, oldest_us in self._feed.expired(self._state.clock()):
            yield from self._drop_instances("board = ? AND window_start < ?", (board_id, oldest_us))
        yield from self._drop_instances("board NOT IN (SELECT id FROM boards)", ())

    def _drop_instances(self, where: str, values: tuple[int, ...]) -> Slices:
        for (instance_id,) in self._state.db.execute(f"SELECT id FROM instances WHERE {where}", values).fetchall():
            deleted = ENTRIES_AT_ONCE
            while deleted == ENTRIES_AT_ONCE:
                with self._state.transaction(durable=self._idle):
                    deleted = self._state.db.execute(
                        "DELETE FROM entries WHERE instance = ? AND player_id IN"
                        " (SELECT player_id FROM entries WHERE instance = ? LIMIT ?)",
                        (instance_id, instance_id, ENTRIES_AT_ONCE),
                    ).rowcount
                    if deleted < ENTRIES_AT_ONCE:
                        self._state.db.execute("DELETE FROM instances WHERE id = ?", (instance_id,))
                yield deleted
