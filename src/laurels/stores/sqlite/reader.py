"""Reads of the file, beside the writer: each thread has a connection of its own."""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from laurels._native import SubmissionIds
from laurels.auth import ApiKey, KeptKey
from laurels.boards import Place, place_from_key, place_key
from laurels.errors import StoreUnavailable
from laurels.model import Board, GameDefinition, Submission
from laurels.stores.base import Catalog, Effect, Removal, SavedBoard, seq_and_row
from laurels.stores.sqlite.log import StoredSegment, decode_effects, decode_places
from laurels.stores.sqlite.schema import connect, has_keys, translated
from laurels.windows import from_us

SEGMENTS_CACHED = 256
SEGMENTS_READ = 16
VARIABLES_MAX = 500
PORTION_ROWS = 2_000
SEGMENT_COLUMNS = "s.seq, g.name, s.accepted_at, s.rows, s.checksum"


class Reader:
    """Everything that is read from the file. Safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._cache: OrderedDict[int, StoredSegment] = OrderedDict()
        self._rewritten = 0
        self._closed = False

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(f"{self._path}: is closed")
                with translated(self._path):
                    connection = connect(self._path, read_only=True)
                self._connections.append(connection)
            self._local.connection = connection
        return connection

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            self._closed = True
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    def catalog(self) -> Catalog:
        """Games, boards, bans and keys as they are kept."""
        with translated(self._path):
            db = self.connection()
            games = db.execute("SELECT name, definition FROM games").fetchall()
            boards = db.execute(
                "SELECT b.id, g.name, b.name, b.version, b.definition, b.ready FROM boards b"
                " JOIN games g ON g.id = b.game ORDER BY b.id"
            ).fetchall()
            bans: dict[str, set[str]] = {}
            for game, player_id in db.execute("SELECT g.name, x.player_id FROM bans x JOIN games g ON g.id = x.game"):
                bans.setdefault(game, set()).add(player_id)
            keys = []
            if has_keys(db):
                keys = db.execute(
                    "SELECT k.key_id, g.name, k.role, k.name, k.proof, k.created_at, k.expires_at FROM keys k"
                    " LEFT JOIN games g ON g.id = k.game"
                ).fetchall()
        return Catalog(
            games={name: msgspec.json.decode(text, type=GameDefinition) for name, text in games},
            boards=[
                SavedBoard(
                    board_id=board_id,
                    game=game,
                    name=name,
                    version=version,
                    definition=msgspec.json.decode(text, type=Board),
                    ready=bool(ready),
                )
                for board_id, game, name, version, text, ready in boards
            ],
            bans=bans,
            keys=[
                KeptKey(
                    ApiKey(
                        key_id=key_id,
                        game=game,
                        role=role,
                        name=name,
                        created_at=from_us(created_at),
                        expires_at=None if expires_at is None else from_us(expires_at),
                    ),
                    proof,
                )
                for key_id, game, role, name, proof, created_at, expires_at in keys
            ],
        )

    # --- the log --------------------------------------------------------------------------------------------

    def last_seq(self) -> int:
        """The seq of the newest segment, 0 if there is none."""
        with translated(self._path):
            return int(self.connection().execute("SELECT coalesce(max(seq), 0) FROM segments").fetchone()[0])

    def segment(self, seq: int) -> StoredSegment | None:
        """One segment, kept in memory for a while."""
        with self._lock:
            cached = self._cache.get(seq)
            if cached is not None:
                self._cache.move_to_end(seq)
                return cached
            rewritten = self._rewritten
        with translated(self._path):
            row = (
                self.connection()
                .execute(
                    f"SELECT {SEGMENT_COLUMNS} FROM segments s JOIN games g ON g.id = s.game WHERE s.seq = ?", (seq,)
                )
                .fetchone()
            )
        if row is None:
            return None
        segment = StoredSegment.read(*row)
        with self._lock:
            if rewritten != self._rewritten:
                return segment  # it may be of before: it is not kept
            self._cache[seq] = segment
            while len(self._cache) > SEGMENTS_CACHED:
                self._cache.popitem(last=False)
        return segment

    def forget_segments(self) -> None:
        """Segments have been rewritten: read them anew."""
        with self._lock:
            self._rewritten += 1
            self._cache.clear()

    def segments(self, after_seq: int, up_to_seq: int, game: str | None = None) -> Iterator[StoredSegment]:
        """Segments in order, a few at a time."""
        while after_seq < up_to_seq:
            some = self.some_segments(after_seq, up_to_seq, game)
            if not some:
                return
            yield from some
            after_seq = some[-1].seq

    def some_segments(self, after_seq: int, up_to_seq: int, game: str | None = None) -> list[StoredSegment]:
        """The next few of them."""
        of_game, values = ("", ()) if game is None else (" AND s.game = (SELECT id FROM games WHERE name = ?)", (game,))
        with translated(self._path):
            rows = (
                self.connection()
                .execute(
                    f"SELECT {SEGMENT_COLUMNS} FROM segments s JOIN games g ON g.id = s.game"
                    f" WHERE s.seq > ? AND s.seq <= ?{of_game} ORDER BY s.seq LIMIT ?",
                    (after_seq, up_to_seq, *values, SEGMENTS_READ),
                )
                .fetchall()
            )
        return [StoredSegment.read(*row) for row in rows]

    def has_submissions(self, game: str) -> bool:
        """Whether a game's log holds anything."""
        with translated(self._path):
            row = (
                self.connection()
                .execute("SELECT 1 FROM segments WHERE game = (SELECT id FROM games WHERE name = ?) LIMIT 1", (game,))
                .fetchone()
            )
        return row is not None

    def submissions(self, game: str, places: Sequence[int]) -> list[Submission | None]:
        """Submissions by place; None for one that was erased or is another game's."""
        found = []
        for place in places:
            seq, row = seq_and_row(place)
            segment = self.segment(seq)
            there = segment is not None and segment.game == game and row < len(segment)
            found.append(segment.submission(row) if segment is not None and there else None)
        return found

    def history(self, game: str, newest: int, limit: int) -> list[tuple[int, Submission]]:
        """A player's submissions from a place backwards, along the chain through the log."""
        found: list[tuple[int, Submission]] = []
        place = newest
        while place >= 0 and len(found) < limit:
            seq, row = seq_and_row(place)
            segment = self.segment(seq)
            submission = None if segment is None or row >= len(segment) else segment.submission(row)
            if segment is None or submission is None:
                break
            found.append((place, submission))
            place = segment.previous(row)
        return found

    def last_places(self, game: str) -> tuple[list[str], list[int]]:
        """Every player of a game and the place of their latest submission, as far as it is written."""
        player_ids: list[str] = []
        places: list[int] = []
        with translated(self._path):
            for (rows,) in self.connection().execute(
                "SELECT rows FROM latest_places WHERE game = (SELECT id FROM games WHERE name = ?)", (game,)
            ):
                some_ids, some_places = decode_places(rows)
                player_ids += some_ids
                places += some_places
        return player_ids, places

    def last_place(self, game: str, player_id: str) -> int:
        """The place of a player's latest submission, as far as it is written; -1 if there is none."""
        with translated(self._path):
            row = (
                self.connection()
                .execute(
                    "SELECT rows FROM latest_places WHERE game = (SELECT id FROM games WHERE name = ?)"
                    " AND first <= ? ORDER BY first DESC LIMIT 1",
                    (game, player_id),
                )
                .fetchone()
            )
        return -1 if row is None else dict(zip(*decode_places(row[0]), strict=True)).get(player_id, -1)

    def effects(self, seq: int) -> list[Effect] | None:
        """What a segment did, None if the answer is no longer kept."""
        with translated(self._path):
            row = self.connection().execute("SELECT effects FROM answers WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else decode_effects(seq, row[0])

    # --- submission ids -------------------------------------------------------------------------------------

    def id_runs(self, game: str) -> list[tuple[int, bytes, bytes, bytes]]:
        """(run, least, greatest, filter) of a game's runs of submission ids."""
        with translated(self._path):
            return (
                self.connection()
                .execute(
                    "SELECT run, least, greatest, filter FROM id_runs"
                    " WHERE game = (SELECT id FROM games WHERE name = ?)",
                    (game,),
                )
                .fetchall()
            )

    def id_chunk(self, run: int, key: bytes) -> tuple[bytes, bytes] | None:
        """The chunk (keys, places) of a run in which a key would be."""
        with translated(self._path):
            row: tuple[bytes, bytes] | None = (
                self.connection()
                .execute(
                    "SELECT keys, places FROM id_chunks WHERE run = ? AND first <= ? ORDER BY first DESC LIMIT 1",
                    (run, key),
                )
                .fetchone()
            )
        return row

    def id_chunks(self, runs: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
        """All chunks (keys, places) of some runs."""
        with translated(self._path):
            for run in runs:
                yield from self.connection().execute("SELECT keys, places FROM id_chunks WHERE run = ?", (run,))

    def all_ids(self, game: str) -> SubmissionIds:
        """All submission ids of a game that have moved into runs, in memory."""
        ids = SubmissionIds()
        with translated(self._path):
            for keys, places in self.connection().execute(
                "SELECT keys, places FROM id_chunks WHERE run IN"
                " (SELECT run FROM id_runs WHERE game = (SELECT id FROM games WHERE name = ?))",
                (game,),
            ):
                ids.absorb(keys, places)
        return ids

    # --- entries --------------------------------------------------------------------------------------------

    def instance_id(self, board_id: int, place: Place) -> int | None:
        """The id of a board instance, None if none was written."""
        with translated(self._path):
            row = (
                self.connection()
                .execute("SELECT id FROM instances WHERE board = ? AND place = ?", (board_id, place_key(place)))
                .fetchone()
            )
        return None if row is None else int(row[0])

    def last_instance_id(self) -> int:
        """The highest id of any instance, 0 if there is none."""
        with translated(self._path):
            row = self.connection().execute("SELECT coalesce(max(id), 0) FROM instances").fetchone()
        return int(row[0])

    def instances(self, board_id: int) -> list[tuple[int, str]]:
        """(id, place key) of a board's written instances, in order of their places."""
        with translated(self._path):
            return (
                self.connection()
                .execute("SELECT id, place FROM instances WHERE board = ? ORDER BY place", (board_id,))
                .fetchall()
            )

    def instances_of_player(self, player_id: str) -> list[tuple[int, str]]:
        """(board, place key) of each instance in which a player has a written entry."""
        with translated(self._path):
            return (
                self.connection()
                .execute(
                    "SELECT i.board, i.place FROM entries e JOIN instances i ON i.id = e.instance"
                    " WHERE e.player_id = ? ORDER BY i.board, i.place",
                    (player_id,),
                )
                .fetchall()
            )

    def entries(self, instance_id: int, terms: int) -> Iterator[list[tuple[Any, ...]]]:
        """All written entries of an instance, in portions: player id, place, then the terms."""
        columns = ", ".join(f"term{n}" for n in range(1, terms + 1))
        with translated(self._path):
            cursor = self.connection().execute(
                f"SELECT player_id, place, {columns} FROM entries WHERE instance = ?", (instance_id,)
            )
            while rows := cursor.fetchmany(PORTION_ROWS):
                yield rows

    def entry_places(self, instance_id: int, player_ids: Sequence[str]) -> dict[str, int]:
        """The places of the submissions that count, by player, as far as they are written."""
        found: dict[str, int] = {}
        with translated(self._path):
            for start in range(0, len(player_ids), VARIABLES_MAX):
                part = player_ids[start : start + VARIABLES_MAX]
                marks = ", ".join("?" * len(part))
                found.update(
                    self.connection().execute(
                        f"SELECT player_id, place FROM entries WHERE instance = ? AND player_id IN ({marks})",
                        (instance_id, *part),
                    )
                )
        return found

    def count_entries(self, board_id: int) -> dict[str, int]:
        """How many entries each written instance of a board has, by place key."""
        with translated(self._path):
            return dict(
                self.connection().execute(
                    "SELECT i.place, (SELECT count(*) FROM entries e WHERE e.instance = i.id) FROM instances i"
                    " WHERE i.board = ?",
                    (board_id,),
                )
            )

    def removals(self, game: str, player_id: str | None = None) -> list[Removal]:
        """Removed entries of a game, or of one of its players."""
        with translated(self._path):
            rows = (
                self.connection()
                .execute(
                    "SELECT board, instance, player_id, place FROM removals"
                    " WHERE game = (SELECT id FROM games WHERE name = ?) AND (? IS NULL OR player_id = ?)",
                    (game, player_id, player_id),
                )
                .fetchall()
            )
        return [Removal(game, board, place_from_key(key), player, place) for board, key, player, place in rows]

    # --- profiles -------------------------------------------------------------------------------------------

    def descriptions(self, game: str, field: str, values: Iterable[str]) -> dict[str, dict[str, str]]:
        """Display attributes of those values that have any."""
        wanted = list(dict.fromkeys(values))
        found: dict[str, dict[str, str]] = {}
        with translated(self._path):
            for start in range(0, len(wanted), VARIABLES_MAX):
                part = wanted[start : start + VARIABLES_MAX]
                marks = ", ".join("?" * len(part))
                rows = self.connection().execute(
                    "SELECT value, attributes FROM profiles WHERE game = (SELECT id FROM games WHERE name = ?)"
                    f" AND field = ? AND value IN ({marks})",
                    (game, field, *part),
                )
                found.update((value, msgspec.json.decode(text, type=dict[str, str])) for value, text in rows)
        return found
