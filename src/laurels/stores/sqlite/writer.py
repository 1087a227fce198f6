"""The one thread that writes the file.

Requests queue. A group takes all that wait, finds the repeats, and commits the rest as segments of the log in one
transaction; after the fsync the feed applies them, and all are answered. When nothing waits, `behind` has its turn.
"""

import logging
import queue
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

from laurels.batch import Batch
from laurels.errors import InvalidInput, LaurelsError, StoreError, StoreUnavailable
from laurels.stores.base import SEGMENT_ROWS_MAX, Accepted, Feed, Outcome, Segment, seq_and_row
from laurels.stores.sqlite import log
from laurels.stores.sqlite.behind import Behind
from laurels.stores.sqlite.schema import store_error
from laurels.stores.sqlite.state import WriterState

GROUP_ROWS_MAX = 16 * SEGMENT_ROWS_MAX
INSERT_SEGMENT = "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)"

logger = logging.getLogger("laurels.sqlite")


class Answered(Protocol):
    """Takes the results of requests; called on the writer's thread, once a group."""

    def __call__(self, results: list[tuple[Any, Any]]) -> None:
        """(ticket, result or error) of each."""


@dataclass(slots=True)
class Request:
    """A batch that waits to be committed; `ticket` goes back with the result. Of singles there is a list of tickets,
    and the batches that they were."""

    ticket: Any
    game: str
    batch: Batch
    singles: list[Batch] = field(default_factory=list)

    def apart(self) -> "list[Request]":
        """Each single for itself."""
        if not self.singles:
            return [self]
        return [Request(ticket, self.game, batch) for ticket, batch in zip(self.ticket, self.singles, strict=True)]


class Singles:
    """Submissions of one game that came one by one, and go together: one request, once the writer takes it."""

    def __init__(self, game: str) -> None:
        self.game = game
        self._tickets: list[Any] = []
        self._batches: list[Batch] = []
        self._are_taken = False
        self._lock = threading.Lock()

    def add(self, ticket: Any, batch: Batch) -> bool:
        """Go along; False if the writer has them already. On any thread."""
        with self._lock:
            if not self._are_taken:
                self._tickets.append(ticket)
                self._batches.append(batch)
            return not self._are_taken

    def taken(self) -> Request:
        """As a request, whose ticket is a list, and whose result is for all of them. From now on nobody goes along."""
        with self._lock:
            self._are_taken = True
        if len(self._batches) == 1:
            return Request(self._tickets[0], self.game, self._batches[0])
        return Request(self._tickets, self.game, Batch.concatenate(self._batches), self._batches)


@dataclass(slots=True)
class Job:
    """Other work for the writer's thread, done between groups."""

    ticket: Any
    work: Callable[[], Any]


class _Stop:
    """The end of the queue."""


STOP = _Stop()


def _taken(item: Request | Singles | Job | _Stop) -> Request | Job | _Stop:
    return item.taken() if isinstance(item, Singles) else item


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
    """Takes requests and jobs in turn; opened with what the file says, and the feed that is behind it."""

    def __init__(self, state: WriterState, feed: Feed, *, idempotency_days: int, answered: Answered) -> None:
        self._state = state
        self._feed = feed
        self._answered = answered
        self._queue: queue.SimpleQueue[Request | Singles | Job | _Stop] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="laurels-writer", daemon=True)
        self._failed: LaurelsError | None = None
        self.behind = Behind(state, feed, idempotency_days)

    def start(self) -> None:
        """From here on requests are answered."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, write what is behind, end the thread."""
        if self._thread.is_alive():
            self._queue.put(STOP)
            self._thread.join()
        self.behind.stop()

    @property
    def failed(self) -> LaurelsError | None:
        """Why it has stopped, if it has."""
        return self._failed

    def put(self, item: Request | Singles | Job) -> None:
        """Queue requests or a job."""
        self._queue.put(item)

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        item = self._next()
        while not isinstance(item, _Stop):
            if isinstance(item, Job):
                self._do(item)
                item = self._next()
                continue
            group, following = self._group(item)
            self._answered(self._commit(group))
            self._pack_answers()
            self.behind.checkpoint_if_large()
            self.behind.keep_up(sum(len(request.batch) for request in group))
            item = following or self._next()
        self._finish()

    def _next(self) -> Request | Job | _Stop:
        """What comes next; meanwhile, write what is behind."""
        while True:
            try:
                return _taken(self._queue.get(timeout=None if self._failed else self.behind.wait_s()))
            except queue.Empty:
                self.behind.write_when_idle()

    def _group(self, first: Request) -> tuple[list[Request], Job | _Stop | None]:
        """All requests that wait, and what ends them, if anything but a request does."""
        group, rows = [first], len(first.batch)
        while rows < GROUP_ROWS_MAX:
            try:
                item = _taken(self._queue.get_nowait())
            except queue.Empty:
                break
            if not isinstance(item, Request):
                return group, item
            group.append(item)
            rows += len(item.batch)
        return group, None

    def _do(self, job: Job) -> None:
        try:
            result = job.work()
        except Exception as error:
            result = self._failure(error)
        self._answered([(job.ticket, result)])

    def _finish(self) -> None:
        try:
            if self._failed is None:
                self.behind.write_all()
        except StoreError as error:
            logger.warning("closing with entries unwritten; they follow from the log on opening: %s", error)
        while not self._queue.empty():  # whoever came too late
            item = _taken(self._queue.get())
            if not isinstance(item, _Stop):
                self._answered([(item.ticket, StoreUnavailable(f"{self._state.path}: is closed"))])

    def _pack_answers(self) -> None:
        """While the callers go on."""
        try:
            self._state.pack_answers()
        except Exception as error:
            self._failed = self._stopped(error)

    def _stopped(self, error: Exception) -> StoreUnavailable:
        logger.error("the store stops", exc_info=error)
        return StoreUnavailable(f"{self._state.path}: stopped after an internal error ({error!r}); open it again")

    def _failure(self, error: Exception) -> Exception:
        return store_error(error, self._state.path) if isinstance(error, sqlite3.Error) else error

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
            self._append(segments)
        except InvalidInput as error:
            apart = [one for request in group for one in request.apart()]
            if len(apart) == 1:
                return [(apart[0].ticket, plans[0].renumbered(error))]
            # One of them is at fault: let each stand for itself.
            return [result for request in apart for result in self._commit([request])]
        except Exception as error:
            failure = self._failure(error)
            return [(request.ticket, failure) for request in group]
        try:
            outcomes = self._applied(segments)
            return [(plan.request.ticket, self._accepted(plan, segments, outcomes)) for plan in plans]
        except Exception as error:
            # What is committed could not be applied: nothing after it may be told as if it had been.
            self._failed = self._stopped(error)
            return [(request.ticket, self._failed) for request in group]

    def _planned(self, group: list[Request]) -> list[_Plan]:
        """Which rows of each request are fresh, and where the others were before."""
        by_game: dict[str, list[Request]] = {}
        for request in group:
            by_game.setdefault(request.game, []).append(request)
        plans = []
        for game, requests in by_game.items():
            ids = requests[0].batch.submission_ids
            if len(requests) > 1:
                ids = [submission_id for request in requests for submission_id in request.batch.submission_ids]
            repeats = self._state.repeats(game, ids) if any(ids) else {}
            fresh: Sequence[int] = range(len(ids))  # which fresh row each row is, if it is one
            if repeats:
                fresh = list(accumulate((row not in repeats for row in fresh), initial=0))
            start = 0
            for request in requests:
                rows = range(start, start + len(request.batch))
                plans.append(self._plan(request, rows, repeats, fresh))
                start = rows.stop
        return plans

    def _plan(self, request: Request, rows: range, repeats: dict[int, int], fresh: Sequence[int]) -> _Plan:
        """For a request whose rows are these of its game in the group."""
        if not repeats:
            return _Plan(request, rows.start, request.batch, {})
        places = [repeats.get(row) for row in rows]
        kept = [at for at, place in enumerate(places) if place is None]
        batch = request.batch.take(kept) if kept else None
        older = {at: place if place >= 0 else ~fresh[~place] for at, place in enumerate(places) if place is not None}
        return _Plan(request, fresh[rows.start], batch, older)

    def _segments(self, plans: list[_Plan]) -> list[Segment]:
        """The fresh rows of a group as segments: those of one game follow each other, all but its last are full."""
        by_game: dict[str, list[Batch]] = {}
        for plan in plans:
            if plan.batch is not None:
                by_game.setdefault(plan.request.game, []).append(plan.batch)
        accepted_at = max(self._state.clock(), self._state.last_accepted + 1)
        seq = self._state.seq
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
        """Make segments durable, and with them the answers to earlier ones if there are many. All or nothing."""
        if not segments:
            return
        state = self._state
        answers = state.answers() if state.has_many_answers else []
        try:
            rows = []
            for segment in segments:
                previous = state.chain(segment.game).chain(segment.ids, segment.places)
                game_id = state.games[segment.game].id
                rows.append((segment.seq, game_id, segment.accepted_at, *log.encode(segment.batch, previous)))
            if len(rows) == 1 and not answers:
                # One statement is a transaction of its own. Each further one would give the interpreter's lock away,
                # and wait until a busy event loop gives it back.
                state.execute_durably(INSERT_SEGMENT, rows[0])
            else:
                with state.transaction():
                    state.write_answers(answers)
                    state.db.executemany(INSERT_SEGMENT, rows)
        except Exception:
            if not self._is_durable(segments):
                for game in {segment.game for segment in segments}:
                    state.players(game).unchain()
                raise
        state.answers_written(answers)
        last = segments[-1]
        state.seq = last.seq
        state.last_accepted = last.accepted_at + len(last) - 1

    def _is_durable(self, segments: list[Segment]) -> bool:
        """After a failed commit: ask the file, not the error."""
        try:
            newest = self._state.db.execute("SELECT max(seq) FROM segments").fetchone()[0]
        except sqlite3.Error:
            return False
        return newest is not None and newest >= segments[-1].seq

    def _applied(self, segments: list[Segment]) -> dict[int, Outcome]:
        outcomes = {}
        for segment in segments:
            outcome = outcomes[segment.seq] = self._feed.apply(segment)
            ids = segment.batch.submission_ids
            if any(ids):
                self._state.ids(segment.game).insert(ids, segment.first_place)
            self._state.applied(segment, outcome)
        for game in {segment.game for segment in segments}:
            self._state.players(game).settle()
        return outcomes

    def _accepted(self, plan: _Plan, segments: list[Segment], outcomes: dict[int, Outcome]) -> Accepted:
        """What a request is told: where its rows are, when they were accepted, and what they did."""
        rows = len(plan.request.batch)
        first = next((segment for segment in segments if segment.game == plan.request.game), None)
        base, since = (0, 0) if first is None else (first.first_place, first.accepted_at)
        fresh = base + plan.fresh
        if not plan.repeats:
            accepted_at = range(since + plan.fresh, since + plan.fresh + rows)
            return Accepted(range(fresh, fresh + rows), accepted_at, [False] * rows, outcomes)
        places: list[int] = []
        instants: list[int] = []
        needed = dict(outcomes)
        for row in range(rows):
            place = plan.repeats.get(row)
            if place is None:
                place = fresh
                fresh += 1
            elif place < 0:
                place = base + ~place
            seq, number = seq_and_row(place)
            if seq in outcomes:
                instants.append(since + place - base)
            else:
                stored = self._state.reader.segment(seq)
                instants.append(number + (0 if stored is None else stored.accepted_at))
                if seq not in needed:
                    needed[seq] = self._state.kept_outcome(seq)
            places.append(place)
        return Accepted(places, instants, [row in plan.repeats for row in range(rows)], needed)
