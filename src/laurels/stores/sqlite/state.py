"""What the writer knows of the file: where the log ends, ids and histories that it has met, what is not yet written."""

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laurels._native import Players, SubmissionIds, merge_places
from laurels.stores.base import Effect, Outcome, Segment
from laurels.stores.sqlite.log import decode_effects, encode_effects
from laurels.stores.sqlite.reader import Reader
from laurels.stores.sqlite.schema import translated

CHUNKS_AT_ONCE = 32  # of latest places
ANSWERS_MAX = 64  # of segments


Answers = tuple[int, int, bytes]
"""The answers to a segment: its seq, when it was accepted, the effects as bytes."""


class StoredOutcome:
    """The effects of a segment whose answer was kept."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects

    def effects(self) -> list[Effect]:
        """As they were."""
        return self._effects


@dataclass(slots=True)
class GameState:
    """What the writer knows of one game."""

    id: int
    ids: SubmissionIds | None = None
    ids_seq: int = 0


class WriterState:
    """The connection that writes, and what goes with it. For the writer's thread, but where a method says otherwise."""

    def __init__(self, path: Path, connection: sqlite3.Connection, reader: Reader, clock: Callable[[], int]) -> None:
        self.path = path
        self.db = connection
        self.reader = reader
        self.clock = clock
        self.games: dict[str, GameState] = {}
        self._players: dict[str, Players] = {}
        self._chained: set[str] = set()
        self._durable = True  # as the file was opened
        self.read()

    def read(self) -> None:
        """Take up what the file says."""
        # Not yet written: by seq, with when it was accepted; first as it is, then as bytes.
        self._unpacked_answers: dict[int, tuple[int, Outcome]] = {}
        self._answers: dict[int, tuple[int, bytes]] = {}
        with translated(self.path):
            self.games = {name: GameState(id, ids_seq=ids_seq) for id, name, ids_seq in self._query_games()}
            self.seq = int(self.db.execute("SELECT coalesce(max(seq), 0) FROM segments").fetchone()[0])
            last = self.db.execute("SELECT accepted_at + size FROM segments WHERE seq = ?", (self.seq,)).fetchone()
            meta = dict(self.db.execute("SELECT key, value FROM meta"))
        for players in list(self._players.values()):
            players.forget_places()
        self._chained.clear()
        self.last_accepted = 0 if last is None else int(last[0])
        self.applied_seq = meta.get("applied_seq", 0)
        self.answered_seq = meta.get("answered_seq", 0)
        self.tail_rows = 0  # committed, but not written behind

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """All or nothing; durable at the end.

        What follows from the log need not be: a power cut may undo it, and with it all that came later, until the next
        durable transaction takes it along.
        """
        self._set_durable(durable)
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield self.db
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def execute_durably(self, statement: str, row: tuple[Any, ...]) -> None:
        """One statement as a durable transaction of its own."""
        self._set_durable(True)
        self.db.execute(statement, row)

    def _set_durable(self, durable: bool) -> None:
        if durable is not self._durable:
            self.db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable

    def applied(self, segment: Segment, outcome: Outcome) -> None:
        """A segment has been applied: its answers are to be written."""
        if segment.seq > self.answered_seq and any(segment.batch.submission_ids):
            self._unpacked_answers[segment.seq] = (segment.accepted_at, outcome)
        self.tail_rows += len(segment)

    def applied_again(self, segment: Segment, outcome: Outcome) -> None:
        """The same on opening, when the places of the segment's players have not been chained."""
        players = self.players(segment.game)
        players.chain(segment.ids, segment.places)
        players.settle()
        self.applied(segment, outcome)

    def kept_outcome(self, seq: int) -> Outcome:
        """What a segment did, as far as it is still kept."""
        unpacked, packed = self._unpacked_answers.get(seq), self._answers.get(seq)
        if unpacked is not None:
            return unpacked[1]
        return StoredOutcome(decode_effects(seq, packed[1]) if packed else self.reader.effects(seq) or [])

    @property
    def has_answers(self) -> bool:
        """Whether there are answers that are not yet written."""
        return bool(self._unpacked_answers or self._answers)

    @property
    def has_many_answers(self) -> bool:
        """Whether so many are not yet written that memory should not hold more."""
        return len(self._unpacked_answers) + len(self._answers) >= ANSWERS_MAX

    def pack_answers(self) -> None:
        """Turn new answers into what is written. The writer does so when it has told them, while its callers go on."""
        for seq, (at, outcome) in self._unpacked_answers.items():
            self._answers[seq] = (at, encode_effects(outcome.effects()))
        self._unpacked_answers.clear()

    def answers(self) -> list[Answers]:
        """All answers that are not yet written, in the order of the log."""
        self.pack_answers()
        return [(seq, at, packed) for seq, (at, packed) in self._answers.items()]

    def write_answers(self, answers: list[Answers]) -> None:
        """Keep answers, within a transaction."""
        if not answers:
            return
        self.db.executemany(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
            answers,
        )
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('answered_seq', ?)", (answers[-1][0],))

    def write_places(self, game_id: int, player_ids: list[str], places: list[int]) -> int:
        """Keep where the latest submissions of players lie (in order of their ids; -1: they have none any more), within
        a transaction: of as many as go into some chunks. Says how many that were.
        The first chunk of a game starts at "", so that every id has one to go to."""
        start = 0
        for _ in range(CHUNKS_AT_ONCE):
            if start == len(player_ids):
                break
            chunk, first, rows = self.db.execute(
                "SELECT chunk, first, rows FROM latest_places WHERE game = ? AND first <= ?"
                " ORDER BY first DESC LIMIT 1",
                (game_id, player_ids[start]),
            ).fetchone() or (None, "", None)
            following = self.db.execute(
                "SELECT first FROM latest_places WHERE game = ? AND first > ? ORDER BY first LIMIT 1", (game_id, first)
            ).fetchone()
            end = len(player_ids) if following is None else bisect_left(player_ids, following[0], start)
            (_, left), *more = merge_places(rows, player_ids[start:end], places[start:end])
            if chunk is None:
                more.insert(0, (first, left))
            else:
                self.db.execute("UPDATE latest_places SET rows = ? WHERE chunk = ?", (left, chunk))
            self.db.executemany(
                "INSERT INTO latest_places (game, first, rows) VALUES (?, ?, ?)",
                [(game_id, first_of_it, rows_of_it) for first_of_it, rows_of_it in more],
            )
            start = end
        return start

    def answers_written(self, answers: list[Answers]) -> None:
        """These are durable now."""
        for seq, _, _ in answers:
            self._answers.pop(seq, None)
        if answers:
            self.answered_seq = answers[-1][0]

    def find_ids(self, game: str, ids: list[str | None]) -> list[int]:
        """The place of each submission id, -1 for those that are new."""
        places, candidates = self.ids(game).find(ids)
        for row, run in candidates:
            submission_id = ids[row]
            if places[row] >= 0 or submission_id is None:
                continue
            key = SubmissionIds.key(submission_id)
            chunk = self.reader.id_chunk(run, key)
            if chunk is None:  # the run has just been joined into a larger one: look again
                return self.find_ids(game, ids)
            places[row] = SubmissionIds.search(*chunk, key)
        return places

    def repeats(self, game: str, ids: list[str | None]) -> dict[int, int]:
        """Rows whose submission id was there before: at which place, or ~(row of these) that has it first."""
        known, candidates = self.ids(game).repeats(ids)
        repeats = dict(known)
        for row, run in candidates:
            submission_id = ids[row]
            if row in repeats or submission_id is None:
                continue
            key = SubmissionIds.key(submission_id)
            chunk = self.reader.id_chunk(run, key)
            if chunk is None:  # the run has just been joined into a larger one: look again
                return self.repeats(game, ids)
            place = SubmissionIds.search(*chunk, key)
            if place >= 0:
                repeats[row] = place
        return {row: repeats.get(~place, place) if place < 0 else place for row, place in repeats.items()}

    def knows_ids(self, game: str) -> bool:
        """Whether the submission ids of a game are loaded, so that any thread may look for them."""
        return self.games[game].ids is not None

    def ids_seq(self, game: str) -> int:
        """Up to which segment the submission ids of a game have moved into runs."""
        return self.games[game].ids_seq

    def ids(self, game: str) -> SubmissionIds:
        """The submission ids of a game, loaded when first needed."""
        state = self.games[game]
        if state.ids is None:
            ids = SubmissionIds()
            for run, least, greatest, bloom in self.reader.id_runs(game):
                ids.add_run(run, least, greatest, bloom)
            for stored in self.reader.segments(state.ids_seq, self.seq, game):
                for segment in stored.segments():
                    ids.insert(segment.batch.submission_ids, segment.first_place)
            state.ids = ids
        return state.ids

    def chain(self, game: str) -> Players:
        """The players of a game with the places of their latest submissions, loaded when first needed."""
        players = self.players(game)
        if game not in self._chained:
            players.load(*self.reader.last_places(game))
            self._chained.add(game)
        return players

    def latest_place(self, game: str, player_id: str) -> int:
        """The place of a player's latest applied submission, -1 if there is none. Safe on any thread: what is no longer
        in memory has been written."""
        place = self.players(game).changed_place(player_id)
        return self.reader.last_place(game, player_id) if place < 0 else place

    def players(self, game: str) -> Players:
        """The interned player ids of a game. Safe on any thread."""
        return self._players.setdefault(game, Players())

    def forget_player(self, game: str, player_id: str) -> None:
        """A player's submissions were erased: their chain starts anew."""
        self.chain(game).forget(player_id)

    def games_changed(self) -> None:
        """A game was saved: take notice."""
        for game_id, name, ids_seq in self._query_games():
            self.games.setdefault(name, GameState(game_id, ids_seq=ids_seq))

    def _query_games(self) -> list[tuple[int, str, int]]:
        return self.db.execute("SELECT id, name, ids_seq FROM games").fetchall()
