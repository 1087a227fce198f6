"""The one thread that writes the file.

Requests queue. A group takes all that wait, finds the repeats, and commits the rest as segments of the log in one
transaction; after the fsync the feed applies them, and all are answered. What follows from the log (entries, each
player's latest place, answers, runs of submission ids) is written behind it, in slices, when nothing waits or too much
has piled up. A crash loses nothing of that: on opening, segments after `applied_seq` are applied again, which changes
nothing where an entry was written already, because entries carry the place that they reflect.
"""

import logging
import queue
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from laurels._native import Players, SubmissionIds
from laurels.batch import Batch
from laurels.boards import place_key
from laurels.errors import InvalidInput, LaurelsError, StoreError, StoreUnavailable
from laurels.stores.base import SEGMENT_ROWS_MAX, Accepted, Effect, Entries, Feed, NewInstance, Outcome, Segment
from laurels.stores.sqlite import log
from laurels.stores.sqlite.reader import Reader
from laurels.stores.sqlite.schema import connect, store_error, translated

GROUP_ROWS_MAX = 16 * SEGMENT_ROWS_MAX
SLICE_ROWS = 2_000
IDLE_S = 0.02
TAIL_ROWS_MAX = 1_000_000  # about what a reopening after a crash applies again in a few seconds
IDS_IN_MEMORY_MAX = 1 << 18
ID_RUNS_MERGED = 4
ID_RUN_SIZE_MAX = 1 << 22
WAL_BYTES_MAX = 64 * 2**20
RETRY_BEHIND_S = 1.0
UPKEEP_S = 30.0

UPSERT_ENTRY = (
    "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, player_id) DO UPDATE SET"
    " term1 = excluded.term1, term2 = excluded.term2, term3 = excluded.term3, term4 = excluded.term4,"
    " term5 = excluded.term5, place = excluded.place"
)
TERMS_MAX = 5

logger = logging.getLogger("laurels.sqlite")


class Answered(Protocol):
    """Takes the results of requests; called on the writer's thread, once a group."""

    def __call__(self, results: list[tuple[Any, Any]]) -> None:
        """(ticket, result or error) of each."""


@dataclass(slots=True)
class Request:
    """A batch that waits to be committed; `ticket` goes back with the result."""

    ticket: Any
    game: str
    batch: Batch


@dataclass(slots=True)
class Job:
    """Other work for the writer's thread, done between groups."""

    ticket: Any
    work: Callable[[], Any]


class StoredOutcome:
    """The effects of a segment whose answer was kept."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects

    def effects(self) -> list[Effect]:
        """As they were."""
        return self._effects


@dataclass(slots=True)
class _Game:
    """What the writer knows of one game."""

    id: int
    ids: SubmissionIds | None = None
    ids_seq: int = 0
    touched: dict[str, int] = field(default_factory=dict)  # latest places not yet written


@dataclass(slots=True)
class _Plan:
    """How one request is committed: row i is fresh row `fresh + i` of its game, or has an older place."""

    request: Request
    fresh: int
    batch: Batch | None  # the fresh rows
    repeats: dict[int, int]  # row -> place, or ~(fresh row) within the group

    def renumbered(self, error: InvalidInput) -> InvalidInput:
        """An error about a fresh row, with the number that the row has for the caller."""
        numbers = [row for row in range(len(self.request.batch)) if row not in self.repeats]
        field = re.sub(r"\[(\d+)\]$", lambda match: f"[{numbers[int(match[1])]}]", error.field)
        return type(error)(field, error.value, error.rule)


class Writer:
    """Owns the connection that writes."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        reader: Reader,
        *,
        clock: Callable[[], int],
        idempotency_days: int,
        answered: Answered,
    ) -> None:
        self._path = path
        self._db = connection
        self._reader = reader
        self._clock = clock
        self._idempotency_us = idempotency_days * 86_400_000_000
        self._answered = answered
        self._queue: queue.SimpleQueue[Request | Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="laurels-writer", daemon=True)
        self._players: dict[str, Players] = {}
        self._chained: set[str] = set()
        self._answers: dict[int, tuple[int, Outcome]] = {}
        self._cycle: Iterator[int] | None = None
        self._behind_retry_at = 0.0
        self._upkeep_at = 0.0
        self._failed: LaurelsError | None = None
        self._wal = path.with_name(path.name + "-wal")
        self._checkpoint: threading.Thread | None = None
        self._feed: Feed
        self._games: dict[str, _Game] = {}
        self._read_state()

    def _read_state(self) -> None:
        with translated(self._path):
            self._games = {name: _Game(id, ids_seq=ids_seq) for id, name, ids_seq in self._query_games()}
            self._seq = int(self._db.execute("SELECT coalesce(max(seq), 0) FROM segments").fetchone()[0])
            last = self._db.execute(
                "SELECT accepted_at + json_array_length(rows) FROM segments WHERE seq = ?", (self._seq,)
            ).fetchone()
            meta = dict(self._db.execute("SELECT key, value FROM meta"))
        self._last_accepted = 0 if last is None else int(last[0])
        self._applied_seq = meta.get("applied_seq", 0)
        self._answered_seq = meta.get("answered_seq", 0)
        self._tail_rows = 0

    # --- opening and closing --------------------------------------------------------------------------------

    def recover(self, feed: Feed) -> int:
        """Apply what was committed but not written behind; how many submissions that were."""
        self._feed = feed
        rows = 0
        for stored in self._reader.segments(self._applied_seq, self._seq):
            for segment in stored.segments():
                outcome = feed.apply(segment)
                if stored.seq > self._answered_seq and any(segment.batch.submission_ids):
                    self._answers[stored.seq] = (stored.accepted_at, outcome)
                self._touch(segment)
                rows += len(segment)
        self._tail_rows = rows
        return rows

    def reopen(self) -> None:
        """Read-only: another process has written; go on from what is there now."""
        self._read_state()
        self.recover(self._feed)

    def start(self) -> None:
        """From here on requests are answered."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, write what is behind, end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        if self._checkpoint is not None:
            self._checkpoint.join()

    def put(self, item: Request | Job) -> None:
        """Queue a request or a job."""
        self._queue.put(item)

    def players(self, game: str) -> Players:
        """The interned player ids of a game."""
        return self._players.setdefault(game, Players())

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            item = self._next()
            if item is None:
                break
            if isinstance(item, Job):
                self._do(item)
                continue
            group, following = self._group(item)
            self._answered(self._commit(group))
            self._checkpoint_if_large()
            if self._tail_rows > TAIL_ROWS_MAX:
                self._write_slice()
            if isinstance(following, Job):
                self._do(following)
            elif following is STOP:
                break
        self._finish()

    def _next(self) -> Request | Job | None:
        """What comes next; meanwhile, write what is behind."""
        while True:
            try:
                return self._queue.get(timeout=IDLE_S if self._is_behind() else None)
            except queue.Empty:
                self._write_slice()

    def _group(self, first: Request) -> tuple[list[Request], "Job | _Stop | None"]:
        group, rows = [first], len(first.batch)
        while rows < GROUP_ROWS_MAX:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return group, STOP
            if isinstance(item, Job):
                return group, item
            group.append(item)
            rows += len(item.batch)
        return group, None

    def _do(self, job: Job) -> None:
        try:
            result = job.work()
        except sqlite3.Error as error:
            result = store_error(error, self._path)
        except BaseException as error:
            result = error
        self._answered([(job.ticket, result)])

    def _finish(self) -> None:
        try:
            if self._failed is None:
                self.write_all()
        except StoreError as error:
            logger.warning("closing with entries unwritten; they follow from the log on opening: %s", error)
        while True:  # whoever came too late
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                self._answered([(item.ticket, StoreUnavailable(f"{self._path}: is closed"))])

    # --- committing -----------------------------------------------------------------------------------------

    def _commit(self, group: list[Request]) -> list[tuple[Any, Any]]:
        """Commit a group and have it applied; the result of each request, an Accepted or an error."""
        if self._failed is not None:
            return [(request.ticket, self._failed) for request in group]
        plans: list[_Plan] = []
        try:
            plans = self._planned(group)
            segments = self._segments(plans)
            self._feed.admit(segments)
        except InvalidInput as error:
            if len(group) == 1:
                return [(group[0].ticket, plans[0].renumbered(error))]
            # One of them is at fault: let each stand for itself.
            return [result for request in group for result in self._commit([request])]
        except sqlite3.Error as error:
            failure = store_error(error, self._path)
            return [(request.ticket, failure) for request in group]
        except LaurelsError as error:
            return [(request.ticket, error) for request in group]
        try:
            self._append(segments)
        except StoreError as failure:
            return [(request.ticket, failure) for request in group]
        try:
            outcomes = self._applied(segments)
            return [(plan.request.ticket, self._accepted(plan, segments, outcomes)) for plan in plans]
        except Exception as error:
            # What is committed could not be applied: nothing after it may be told as if it had been.
            logger.exception("the feed failed; the store stops")
            self._failed = StoreUnavailable(f"{self._path}: stopped after an internal error ({error!r}); open it again")
            return [(request.ticket, self._failed) for request in group]

    def _planned(self, group: list[Request]) -> list[_Plan]:
        fresh_rows: dict[str, int] = {}
        in_group: dict[tuple[str, str], int] = {}
        plans = []
        for request in group:
            ids = request.batch.submission_ids
            start = fresh_rows.get(request.game, 0)
            repeats: dict[int, int] = {}
            if any(ids):
                fresh = start
                known = self.find_ids(request.game, ids)
                for row, submission_id in enumerate(ids):
                    if submission_id is not None:
                        if known[row] >= 0:
                            repeats[row] = known[row]
                            continue
                        twin = in_group.setdefault((request.game, submission_id), fresh)
                        if twin != fresh:
                            repeats[row] = ~twin
                            continue
                    fresh += 1
            batch: Batch | None = request.batch
            if repeats:
                kept = [row for row in range(len(request.batch)) if row not in repeats]
                batch = request.batch.take(kept) if kept else None
            fresh_rows[request.game] = start + (0 if batch is None else len(batch))
            plans.append(_Plan(request, start, batch, repeats))
        return plans

    def _segments(self, plans: list[_Plan]) -> list[Segment]:
        """The fresh rows of a group as segments: those of one game follow each other, all but its last are full."""
        by_game: dict[str, list[Batch]] = {}
        for plan in plans:
            if plan.batch is not None:
                by_game.setdefault(plan.request.game, []).append(plan.batch)
        accepted_at = max(self._clock(), self._last_accepted + 1)
        seq = self._seq
        segments = []
        for game, batches in by_game.items():
            whole = Batch.concatenate(batches)
            for start in range(0, len(whole), SEGMENT_ROWS_MAX):
                seq += 1
                part = whole if len(whole) <= SEGMENT_ROWS_MAX else whole.slice(start, start + SEGMENT_ROWS_MAX)
                segments.append(Segment(seq, game, accepted_at, part))
                accepted_at += len(part)
        return segments

    def _append(self, segments: list[Segment]) -> None:
        """Make segments durable, and with them the answers to earlier ones. All or nothing."""
        if not segments:
            return
        chained: list[tuple[Segment, list[int]]] = []
        answers = list(self._answers.items())
        try:
            rows = []
            for segment in segments:
                players = self._chain(segment.game)
                places = range(segment.first_place, segment.first_place + len(segment))
                previous = players.chain(segment.batch.player_ids, list(places))
                chained.append((segment, previous))
                game_id = self._games[segment.game].id
                rows.append((segment.seq, game_id, segment.accepted_at, *log.encode(segment.batch, previous)))
            with self.transaction():
                self._write_answers(answers)
                self._db.executemany("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", rows)
        except BaseException as error:
            if not self._is_durable(segments):
                for segment, previous in reversed(chained):
                    self._chain(segment.game).unchain(segment.batch.player_ids, previous)
                if isinstance(error, sqlite3.Error):
                    raise store_error(error, self._path) from error
                raise
        self._answers_written(answers)
        last = segments[-1]
        self._seq = last.seq
        self._last_accepted = last.accepted_at + len(last) - 1

    def _is_durable(self, segments: list[Segment]) -> bool:
        """After a failed commit: ask the file, not the error."""
        try:
            newest = self._db.execute("SELECT max(seq) FROM segments").fetchone()[0]
        except sqlite3.Error:
            return False
        return newest is not None and newest >= segments[-1].seq

    def _applied(self, segments: list[Segment]) -> dict[int, Outcome]:
        outcomes = {}
        for segment in segments:
            outcome = outcomes[segment.seq] = self._feed.apply(segment)
            ids = segment.batch.submission_ids
            if any(ids):
                self._ids(segment.game).insert(ids, segment.first_place)
                self._answers[segment.seq] = (segment.accepted_at, outcome)
            self._touch(segment)
            self._tail_rows += len(segment)
        return outcomes

    def _touch(self, segment: Segment) -> None:
        places = range(segment.first_place, segment.first_place + len(segment))
        self._games[segment.game].touched.update(zip(segment.batch.player_ids, places, strict=True))

    def _accepted(self, plan: _Plan, segments: list[Segment], outcomes: dict[int, Outcome]) -> Accepted:
        rows = len(plan.request.batch)
        base = next((s.first_place for s in segments if s.game == plan.request.game), 0)
        since = next((s.accepted_at for s in segments if s.game == plan.request.game), 0)
        first = base + plan.fresh
        if not plan.repeats:
            accepted_at = range(since + plan.fresh, since + plan.fresh + rows)
            return Accepted(range(first, first + rows), accepted_at, [False] * rows, outcomes)
        places, instants, needed = [], [], dict(outcomes)
        fresh = plan.fresh
        for row in range(rows):
            twin = plan.repeats.get(row)
            if twin is None:
                places.append(base + fresh)
                fresh += 1
            else:
                places.append(twin if twin >= 0 else base + ~twin)
            seq, number = log.seq_and_row(places[-1])
            if seq in outcomes:
                instants.append(since + places[-1] - base)
            else:
                stored = self._reader.segment(seq)
                instants.append(number + (0 if stored is None else stored.accepted_at))
                if seq not in needed:
                    needed[seq] = self._kept_outcome(seq)
        return Accepted(places, instants, [row in plan.repeats for row in range(rows)], needed)

    def _kept_outcome(self, seq: int) -> Outcome:
        pending = self._answers.get(seq)
        return pending[1] if pending is not None else StoredOutcome(self._reader.effects(seq) or [])

    # --- what is known of ids and players -------------------------------------------------------------------

    def find_ids(self, game: str, ids: list[str | None]) -> list[int]:
        """The place of each submission id, -1 for those that are new."""
        places, candidates = self._ids(game).find(ids)
        for row, run in candidates:
            submission_id = ids[row]
            if places[row] >= 0 or submission_id is None:
                continue
            key = SubmissionIds.key(submission_id)
            chunk = self._reader.id_chunk(run, key)
            if chunk is None:  # the run has just been joined into a larger one: look again
                return self.find_ids(game, ids)
            places[row] = SubmissionIds.search(*chunk, key)
        return places

    def knows_ids(self, game: str) -> bool:
        """Whether the submission ids of a game are loaded, so that any thread may look for them."""
        return self._games[game].ids is not None

    def ids_seq(self, game: str) -> int:
        """Up to which segment the submission ids of a game have moved into runs."""
        return self._games[game].ids_seq

    def _ids(self, game: str) -> SubmissionIds:
        state = self._games[game]
        if state.ids is None:
            ids = SubmissionIds()
            for run, least, greatest, bloom in self._reader.id_runs(game):
                ids.add_run(run, least, greatest, bloom)
            for stored in self._reader.segments(state.ids_seq, self._seq, game):
                for segment in stored.segments():
                    ids.insert(segment.batch.submission_ids, segment.first_place)
            state.ids = ids
        return state.ids

    def _chain(self, game: str) -> Players:
        """The players of a game with the places of their latest submissions, loaded when first needed."""
        players = self.players(game)
        if game not in self._chained:
            players.load(*self._reader.last_places(game))
            touched = self._games[game].touched
            players.load(list(touched), list(touched.values()))
            self._chained.add(game)
        return players

    def latest_place(self, game: str, player_id: str) -> int:
        """The place of a player's latest applied submission, -1 if there is none. Safe on any thread: what is no longer
        in memory has been written."""
        place = self._games[game].touched.get(player_id)
        return self._reader.last_place(game, player_id) if place is None else place

    # --- writing behind -------------------------------------------------------------------------------------

    def _is_behind(self) -> bool:
        return (
            time.monotonic() >= self._behind_retry_at
            and self._failed is None
            and (self._applied_seq < self._seq or bool(self._answers) or self._feed.unwritten_count() > 0)
        )

    def _write_slice(self) -> None:
        """Write one slice of what is behind; put it off when that fails."""
        try:
            if self._cycle is None:
                self._cycle = self._cycle_slices()
            if next(self._cycle, None) is None:
                self._cycle = None
                self._upkeep()
        except (sqlite3.Error, StoreError) as error:
            self._cycle = None
            self._behind_retry_at = time.monotonic() + RETRY_BEHIND_S
            logger.warning("entries stay in memory for now: %s", error)

    def write_all(self) -> None:
        """Write everything that is behind. Raises StoreError."""
        with translated(self._path):
            if self._cycle is not None:
                for _ in self._cycle:
                    pass
                self._cycle = None
            if self._applied_seq < self._seq or self._answers or self._feed.unwritten_count():
                for _ in self._cycle_slices():
                    pass

    def _cycle_slices(self) -> Iterator[int]:
        """Everything that is behind now, in slices; afterwards the log is applied up to where it was at the start."""
        target = self._seq
        tail_rows = self._tail_rows
        instances, entries = self._feed.unwritten()
        self.write_instances(instances)
        for part in _sliced(entries, SLICE_ROWS):
            answers = list(self._answers.items())
            with self.transaction():
                self._write_answers(answers)  # first: entries must not be ahead of the answers that led to them
                for some in part:
                    self.write_entries(some)
            self._answers_written(answers)
            self._feed.written([], part)
            yield sum(len(some.player_ids) for some in part)
        for game in list(self._games.values()):
            places = list(game.touched.items())
            for start in range(0, len(places), SLICE_ROWS):
                latest = sorted(places[start : start + SLICE_ROWS])
                with self.transaction():
                    self._db.executemany(
                        "INSERT INTO players VALUES (?, ?, ?) ON CONFLICT (game, player_id)"
                        " DO UPDATE SET last_place = excluded.last_place",
                        [(game.id, player_id, place) for player_id, place in latest],
                    )
                for player_id, place in latest:
                    if game.touched.get(player_id) == place:
                        del game.touched[player_id]
                yield len(latest)
        answers = list(self._answers.items())
        with self.transaction():
            self._write_answers(answers)
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('applied_seq', ?)", (target,))
        self._answers_written(answers)
        self._applied_seq = target
        self._tail_rows -= tail_rows

    def write_instances(self, instances: list[NewInstance]) -> None:
        """Keep board instances that are new."""
        if instances:
            with self.transaction():
                self._db.executemany(
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
            self._db.executemany("DELETE FROM entries WHERE instance = ? AND player_id = ?", gone)
        padding = [[None] * len(some.player_ids)] * (TERMS_MAX - len(some.terms))
        rows = zip(some.player_ids, *some.terms, *padding, some.places, some.removed, strict=True)
        self._db.executemany(UPSERT_ENTRY, [(some.instance_id, *row[:-1]) for row in rows if not row[-1]])

    def _write_answers(self, answers: list[tuple[int, tuple[int, Outcome]]]) -> None:
        if not answers:
            return
        self._db.executemany(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
            [(seq, at, msgspec.json.encode(outcome.effects()).decode()) for seq, (at, outcome) in answers],
        )
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('answered_seq', ?)", (answers[-1][0],))

    def _answers_written(self, answers: list[tuple[int, tuple[int, Outcome]]]) -> None:
        for seq, _ in answers:
            self._answers.pop(seq, None)
        if answers:
            self._answered_seq = answers[-1][0]

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; durable at the end."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # --- upkeep ---------------------------------------------------------------------------------------------

    def _upkeep(self) -> None:
        """What needs doing now and then, when nothing waits."""
        for name, game in self._games.items():
            if game.ids is not None and game.ids.recent_count >= IDS_IN_MEMORY_MAX:
                self._freeze_ids(name, game)
        if time.monotonic() < self._upkeep_at:
            return
        self._upkeep_at = time.monotonic() + UPKEEP_S
        with self.transaction():
            self._db.execute("DELETE FROM answers WHERE accepted_at < ?", (self._clock() - self._idempotency_us,))
        self._expire()

    def _checkpoint_if_large(self) -> None:
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
            connection = connect(self._path, read_only=False)
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                connection.close()
        except sqlite3.Error as error:
            logger.warning("the write-ahead log could not be moved into the file: %s", error)

    def _expire(self) -> None:
        """Drop the instances of windows that are no longer kept, and of boards that are gone."""
        for board_id, oldest_us in self._feed.expired(self._clock()):
            self._drop_instances("board = ? AND window_start < ?", (board_id, oldest_us))
        self._drop_instances("board NOT IN (SELECT id FROM boards)", ())

    def _drop_instances(self, where: str, values: tuple[int, ...]) -> None:
        """Delete instances a slice at a time, as long as nothing waits; the rest follows later."""
        for (instance_id,) in self._db.execute(f"SELECT id FROM instances WHERE {where}", values).fetchall():
            deleted = SLICE_ROWS
            while deleted == SLICE_ROWS:
                if not self._queue.empty():
                    self._upkeep_at = 0.0
                    return
                with self.transaction():
                    deleted = self._db.execute(
                        "DELETE FROM entries WHERE instance = ? AND player_id IN"
                        " (SELECT player_id FROM entries WHERE instance = ? LIMIT ?)",
                        (instance_id, instance_id, SLICE_ROWS),
                    ).rowcount
                    if deleted < SLICE_ROWS:
                        self._db.execute("DELETE FROM instances WHERE id = ?", (instance_id,))

    def _freeze_ids(self, name: str, game: _Game) -> None:
        """Move the recent ids of a game into a run of their own, and join runs when there are many small ones."""
        assert game.ids is not None
        self._save_run(game, game.ids.freeze(), [], self._seq)
        small = self._db.execute(
            "SELECT run FROM id_runs WHERE game = ? AND size * ? <= ? ORDER BY run",
            (game.id, ID_RUNS_MERGED, ID_RUN_SIZE_MAX),
        ).fetchall()
        if len(small) >= ID_RUNS_MERGED:
            runs = [run for (run,) in small]
            marks = ", ".join("?" * len(runs))
            chunks = self._db.execute(f"SELECT keys, places FROM id_chunks WHERE run IN ({marks})", runs).fetchall()
            self._save_run(game, SubmissionIds.merge(chunks), runs, None)

    def _save_run(self, game: _Game, run: Any, replaced: list[int], ids_seq: int | None) -> None:
        assert game.ids is not None
        with self.transaction():
            number = self._db.execute(
                "INSERT INTO id_runs (game, size, least, greatest, filter) VALUES (?, ?, ?, ?, ?) RETURNING run",
                (game.id, len(run), run.least, run.greatest, run.filter),
            ).fetchone()[0]
            self._db.executemany(
                "INSERT INTO id_chunks VALUES (?, ?, ?, ?)", ((number, *chunk) for chunk in run.chunks)
            )
            for old in replaced:
                self._db.execute("DELETE FROM id_chunks WHERE run = ?", (old,))
                self._db.execute("DELETE FROM id_runs WHERE run = ?", (old,))
            if ids_seq is not None:
                self._db.execute("UPDATE games SET ids_seq = ? WHERE id = ?", (ids_seq, game.id))
        game.ids.adopt(number, run, replaced)
        if ids_seq is not None:
            game.ids_seq = ids_seq

    # --- for jobs -------------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The newest segment."""
        return self._seq

    @property
    def database(self) -> sqlite3.Connection:
        """The connection that writes; for the writer's thread only."""
        return self._db

    def game_id(self, name: str) -> int:
        """The number of a game that was saved."""
        return self._games[name].id

    def games_changed(self) -> None:
        """A game was saved: take notice."""
        for game_id, name, ids_seq in self._query_games():
            self._games.setdefault(name, _Game(game_id, ids_seq=ids_seq))

    def forget_player(self, game: str, player_id: str) -> None:
        """A player's submissions were erased: their chain starts anew."""
        self._games[game].touched.pop(player_id, None)
        self._chain(game).load([player_id], [-1])

    def _query_games(self) -> list[tuple[int, str, int]]:
        return self._db.execute("SELECT id, name, ids_seq FROM games").fetchall()

    @property
    def now_us(self) -> int:
        """The clock, never behind the log."""
        return max(self._clock(), self._last_accepted + 1)


class _Stop:
    """The end of the queue."""


STOP = _Stop()


def _sliced(entries: list[Entries], rows: int) -> Iterator[list[Entries]]:
    """Entries in portions of about `rows`, across instances."""
    portion: list[Entries] = []
    filled = 0
    for some in entries:
        start = 0
        while start < len(some.player_ids):
            end = min(len(some.player_ids), start + rows - filled)
            portion.append(
                Entries(
                    some.instance_id,
                    some.player_ids[start:end],
                    [column[start:end] for column in some.terms],
                    some.places[start:end],
                    some.removed[start:end],
                )
            )
            filled += end - start
            start = end
            if filled == rows:
                yield portion
                portion, filled = [], 0
    if portion:
        yield portion
