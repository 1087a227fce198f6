"""Reading the plays of YARG, a rhythm game, from its scores.db: a SQLite file, opened read-only.

One row of PlayerScores is one player's play, and one submission. What the game leaves out of its high scores is left
out here and counted: replays, plays along with a replay, slowed-down plays, players without a part. Bands have no board
of their own, since the file does not say whose band it is; each member's play carries the `band_score` as a metric.

The file's dates are local times without a zone, and modifiers are not in it. Both come from the play's .replay file if
it is at hand; else the zone is assumed, and the dimension `modifiers` is absent: unknown, not empty. A play that has
been imported stays as it is, so import with the replays at hand the first time.
"""

import asyncio
import hashlib
import math
import os
import re
import shutil
import sqlite3
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from laurels.batch import Batch
from laurels.errors import ImportFailed, InvalidInput, shown
from laurels.importers.report import BadRow, Game, ImportReport, Progress, hand_over
from laurels.importers.yarg_game import DIFFICULTIES, ENGINES, INSTRUMENTS, MODIFIERS, NO_ENGINE
from laurels.importers.yarg_replay import (
    FILE_BYTES_MAX,
    HEADER_START,
    ReplayError,
    ReplayPlayer,
    header_bytes,
    read_header,
    read_replay,
)
from laurels.model import Number
from laurels.windows import CALENDAR_RULE, in_calendar, to_us

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RICH_TEXT = re.compile(
    r"</?(?:align|allcaps|alpha|b|br|color|cspace|font|font-weight|gradient|i|indent|line-height|line-indent|link|"
    r"lowercase|margin|mark|material|mspace|nobr|noparse|page|pos|rotate|s|size|smallcaps|space|sprite|strikethrough|"
    r"style|sub|sup|u|uppercase|voffset|width)(?:[= ][^<>]*)?/?>|<#[0-9a-f]{3,8}>",
    re.IGNORECASE,
)
EXACT = Context(prec=1_200, rounding=ROUND_HALF_EVEN)  # digits enough for any double
TICKS_US = 10  # a tick is 100 ns
TICKS_END = 3_155_378_976_000_000_000  # the year 10000
TICKS_EPOCH = datetime(1, 1, 1)
SPEED_MAX = 1_000.0
STARS = range(-1, 128)
NO_PART = -1
DISPLAYED_BYTES_MAX = 1_024
VALUE_BYTES_MAX = 2**20
DESCRIBED_AT_ONCE = 1_000

SQLITE_MAGIC = b"SQLite format 3\0"
SQLITE_WAL = b"\2\2"  # bytes 18 and 19 of a file that is written through a write-ahead log
LOCK_WAIT_S = 5.0
SCORE_COLUMNS = (
    "GameRecordId",
    "PlayerId",
    "Instrument",
    "Difficulty",
    "EnginePresetId",
    "Score",
    "Stars",
    "NotesHit",
    "NotesMissed",
    "IsFc",
    "IsReplay",
    "Percent",
)
GAME_COLUMNS = (
    "Date",
    "SongChecksum",
    "GameVersion",
    "SongName",
    "SongArtist",
    "SongCharter",
    "ReplayChecksum",
    "BandScore",
    "SongSpeed",
    "PlayedWithReplay",
)
NEEDED = {
    "PlayerScores": ("GameRecordId", "PlayerId", "Instrument", "Difficulty", "Score"),
    "GameRecords": ("Date", "SongChecksum"),
}


class YargReport(Struct, kw_only=True):
    """What reading a file found. `rows` counts PlayerScores: `submissions`, `left_out` by reason, and `bad_rows`.

    `zone` is the zone that dates without a replay were read in, `replays_matched` how many submissions have a replay
    that tells their modifiers, `unreadable_replays` how many files of the replays folder are none or damaged.
    """

    zone: str
    rows: int = 0
    submissions: int = 0
    left_out: dict[str, int] = {}
    bad_rows: list[BadRow] = []
    replays_matched: int = 0
    unreadable_replays: int = 0
    without_speed: int = 0
    texts_not_shown: int = 0

    def notes(self) -> list[str]:
        """What was assumed or is unknown, in words."""
        notes = [
            f"dates without a replay are local times, read in {self.zone}",
            f"{self.replays_matched} of {self.submissions} plays have a replay; the modifiers of others are unknown",
        ]
        if self.unreadable_replays:
            notes.append(f"{self.unreadable_replays} files of the replays folder could not be read")
        if self.without_speed:
            notes.append(f"{self.without_speed} plays have no speed, so boards that ask for full speed leave them out")
        if self.texts_not_shown:
            notes.append(f"{self.texts_not_shown} names or titles are not text of up to {DISPLAYED_BYTES_MAX} bytes")
        return notes


class YargFile:
    """The plays of a file, read and checked in full. Holds a private copy of it until it is closed.

    `players` and `tracks` are what is displayed for those that have a play: the last known name of a player, and the
    title, artist and charter that a song had at its last play, without rich-text tags.
    """

    def __init__(self, reader: "_Reader") -> None:
        self._reader = reader
        self.report = reader.report
        self.players = reader.players
        self.tracks = reader.tracks

    def batches(self, rows_max: int = 1_000) -> Iterator[Batch]:
        """All submissions, the first played first, so that whoever got there first stays ahead."""
        plays: list[_Play] = []
        for play in self._reader.kept():
            plays.append(play)
            if len(plays) == rows_max:
                yield _batch(plays)
                plays = []
        if plays:
            yield _batch(plays)

    def close(self) -> None:
        """Let go of the copy."""
        self._reader.copy.close()

    def __enter__(self) -> "YargFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(
    path: str | Path, *, zone: str | None = None, replays: str | Path | None = None, skip_bad: bool = False
) -> YargFile:
    """The plays of a scores.db. Close what you get.

    `zone` is the IANA zone of the machine it was written on (this machine's, if not given). `replays` is the folder of
    .replay files (the folder "replays" beside the file, if not given and there is one). Everything is checked here:
    a bad row raises ImportFailed that names it, or, with `skip_bad`, is listed in the report.
    Raises ImportFailed also for a file that is damaged or not YARG's, InvalidInput for an unknown zone or folder.
    """
    path = Path(path)
    zone_info, zone_name = _zone(zone)
    if replays is None:
        folder = path.parent / "replays"
    else:
        folder = Path(replays)
        if not folder.is_dir():
            raise InvalidInput("replays", str(replays), "must be a folder")
    copy = _copy(path)
    try:
        reader = _Reader(str(path), copy, zone_info, _Replays(folder), YargReport(zone=zone_name), skip_bad)
        reader.check()
    except sqlite3.Error as error:
        copy.close()
        raise ImportFailed(str(path), None, f"is damaged or not a score file of YARG: {error}") from error
    except BaseException:
        copy.close()
        raise
    return YargFile(reader)


async def import_scores(
    game: Game,
    path: str | Path,
    *,
    zone: str | None = None,
    replays: str | Path | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Submit the plays of a scores.db to a game defined as `GAME`, and describe its players and tracks.

    Importing again changes nothing, also from a copy of the file in which rows have other ids. For the arguments and
    errors see `read`: it ends before anything is submitted. An error while submitting leaves what was submitted; import
    again.
    """
    file = await asyncio.to_thread(read, path, zone=zone, replays=replays, skip_bad=skip_bad)
    try:
        found = file.report
        report = ImportReport(
            source=str(path), rows=found.rows, left_out=found.left_out, skipped=found.bad_rows, notes=found.notes()
        )
        await _describe(game, "player_id", file.players)
        await _describe(game, "track_id", file.tracks)
        await hand_over(game, file.batches(), report, found.submissions, progress)
        return report
    finally:
        file.close()


async def _describe(game: Game, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
    items = [(value, some) for value, some in attributes.items() if some]
    for start in range(0, len(items), DESCRIBED_AT_ONCE):
        await game.describe(field, dict(items[start : start + DESCRIBED_AT_ONCE]))


# --- the file -------------------------------------------------------------------------------------------------


def _copy(path: Path) -> sqlite3.Connection:
    """A private copy of one moment, which SQLite keeps in a temporary file: the game can go on writing meanwhile."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        raise ImportFailed(str(path), None, f"can't be read: {error.strerror}") from error
    if head[:16] != SQLITE_MAGIC:
        raise ImportFailed(str(path), None, "is not a score file of YARG: it is not a SQLite database")
    try:
        # To read through a write-ahead log that nobody has open, SQLite would have to write files beside it.
        if head[18:20] != SQLITE_WAL or path.with_name(path.name + "-shm").exists():
            try:
                return _backup(path, "ro")
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise
        # Left behind by a crash: SQLite has to finish the game's last write or undo it, which it does in a copy.
        with tempfile.TemporaryDirectory(prefix="laurels-") as directory:
            for suffix in ("", "-wal", "-journal"):
                source = path.with_name(path.name + suffix)
                if source.exists():
                    shutil.copyfile(source, Path(directory, "scores.db" + suffix))
            return _backup(Path(directory, "scores.db"), "rw")
    except sqlite3.OperationalError as error:
        reason = "is locked by another program" if "locked" in str(error) else f"can't be read: {error}"
        raise ImportFailed(str(path), None, reason) from error
    except sqlite3.Error as error:
        raise ImportFailed(str(path), None, f"is damaged: {error}") from error
    except OSError as error:
        raise ImportFailed(str(path), None, f"can't be read: {error.strerror}") from error


def _backup(path: Path, mode: str) -> sqlite3.Connection:
    source = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=LOCK_WAIT_S, isolation_level=None
    )
    try:
        # One reading transaction around it, or the copy would wait without end for a file that stays locked.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        try:
            source.backup(copy)
            copy.execute("PRAGMA trusted_schema = OFF")
            copy.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
            copy.text_factory = lambda raw: raw.decode("utf-8", "replace")
            fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
            if fault != "ok":
                raise sqlite3.DatabaseError(fault)
        except BaseException:
            copy.close()
            raise
        return copy
    finally:
        source.close()


def _columns(copy: sqlite3.Connection, path: str, table: str, wanted: Sequence[str], alias: str) -> list[str]:
    """SQL for the wanted columns of a table; NULL for those that the file is too old to have."""
    sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE AND rootpage > 0"
    if not copy.execute(sql, (table,)).fetchone()[0]:
        raise ImportFailed(path, None, f"is not a score file of YARG: it has no table {table}")
    present = {row[1].lower() for row in copy.execute(f"PRAGMA table_info({table})")}
    for name in NEEDED.get(table, ()):
        if name.lower() not in present:
            raise ImportFailed(path, None, f"is not a score file of YARG: table {table} has no column {name}")
    return [f"{alias}.{name}" if name.lower() in present else "NULL" for name in wanted]


# --- rows -----------------------------------------------------------------------------------------------------


class _BadRow(Exception):
    """What is wrong with a row."""


class _Row(NamedTuple):
    """A row of PlayerScores with its row of GameRecords (`game` None: there is none), as SQLite gives them."""

    row: int
    game: int | None
    game_record_id: Any
    player_id: Any
    instrument: Any
    difficulty: Any
    engine: Any
    score: Any
    stars: Any
    notes_hit: Any
    notes_missed: Any
    is_fc: Any
    is_replay: Any
    percent: Any
    date: Any
    song_checksum: Any
    game_version: Any
    song_name: Any
    song_artist: Any
    song_charter: Any
    replay_checksum: Any
    band_score: Any
    speed: Any
    played_with_replay: Any


class _Play(NamedTuple):
    """A submission."""

    submission_id: str
    player_id: str
    score: int
    played_at: int
    dimensions: dict[str, Any]
    metrics: dict[str, Number]


class _Reader:
    """Turns rows into submissions, the same each time."""

    def __init__(
        self,
        path: str,
        copy: sqlite3.Connection,
        zone: ZoneInfo | None,
        replays: "_Replays",
        report: YargReport,
        skip_bad: bool,
    ) -> None:
        self.path = path
        self.copy = copy
        self.report = report
        self.players: dict[str, dict[str, str]] = {}
        self.tracks: dict[str, dict[str, str]] = {}
        self._texts: dict[str, tuple[Any, ...]] = {}
        self._zone = zone
        self._replays = replays
        self._skip_bad = skip_bad
        columns = _columns(copy, path, "PlayerScores", SCORE_COLUMNS, "score")
        columns += _columns(copy, path, "GameRecords", GAME_COLUMNS, "game")
        self._columns = ", ".join(["score.rowid", "game.rowid", *columns])
        self._names = self._known_names()

    def check(self) -> None:
        """Read all rows, fill the report, and note which are kept, by the instant that they were played at."""
        report = self.report
        report.unreadable_replays = self._replays.unreadable
        self.copy.execute("CREATE TEMP TABLE kept(played_at, row, ordinal, PRIMARY KEY(played_at, row)) WITHOUT ROWID")
        self.copy.execute("BEGIN")
        sql = (
            f"SELECT {self._columns} FROM main.PlayerScores score LEFT JOIN main.GameRecords game "
            "ON game.rowid = score.GameRecordId ORDER BY game.Date, score.rowid"
        )
        left_out: Counter[str] = Counter()
        twins: Counter[str] = Counter()
        twins_date = None
        for row in map(_Row._make, self.copy.execute(sql)):
            report.rows += 1
            try:
                reason = _left_out(row)
                play = None if reason else self._play(row, 0)
            except _BadRow as error:
                if not self._skip_bad:
                    raise ImportFailed(self.path, row.row, str(error)) from None
                report.bad_rows.append(BadRow(row.row, str(error)))
                continue
            if play is None:
                left_out[str(reason)] += 1
                continue
            if row.date != twins_date:
                twins.clear()
                twins_date = row.date
            self.copy.execute("INSERT INTO kept VALUES(?, ?, ?)", (play.played_at, row.row, twins[play.submission_id]))
            twins[play.submission_id] += 1
            self._displayed(row, play)
            report.submissions += 1
            report.replays_matched += "modifiers" in play.dimensions
            report.without_speed += "speed" not in play.metrics
        self.copy.execute("COMMIT")
        report.left_out = dict(sorted(left_out.items()))

    def kept(self) -> Iterator[_Play]:
        """The plays that are kept, the first played first."""
        sql = (
            f"SELECT kept.ordinal, {self._columns} FROM temp.kept CROSS JOIN main.PlayerScores score "
            "ON score.rowid = kept.row JOIN main.GameRecords game ON game.rowid = score.GameRecordId "
            "ORDER BY kept.played_at, kept.row"
        )
        for ordinal, *row in self.copy.execute(sql):
            yield self._play(_Row._make(row), ordinal)

    def _known_names(self) -> dict[str, Any]:
        """What Players says, by id in lower case."""
        try:
            columns = _columns(self.copy, self.path, "Players", ("Id", "Name"), "player")
        except ImportFailed:
            return {}  # display names can be done without
        rows = self.copy.execute(f"SELECT {', '.join(columns)} FROM Players player")
        return {identity.lower(): name for identity, name in rows if isinstance(identity, str)}

    def _displayed(self, row: _Row, play: _Play) -> None:
        if play.player_id not in self.players:
            name = self._shown_text(self._names.get(play.player_id))
            self.players[play.player_id] = {"name": name} if name else {}
        # Rows come by date, so what a song is called last stays.
        track_id, texts = play.dimensions["track_id"], (row.song_name, row.song_artist, row.song_charter)
        if self._texts.get(track_id) == texts:
            return
        self._texts[track_id] = texts
        track = self.tracks.setdefault(track_id, {})
        for name, value in zip(("title", "artist", "charter"), texts, strict=True):
            text = self._shown_text(RICH_TEXT.sub("", value).strip() if isinstance(value, str) else value)
            if text:
                track[name] = text

    def _shown_text(self, value: Any) -> str | None:
        if value is None:
            return None
        if isinstance(value, str) and len(value.encode()) <= DISPLAYED_BYTES_MAX:
            return value
        self.report.texts_not_shown += 1
        return None

    def _play(self, row: _Row, ordinal: int) -> _Play:
        """The submission that a row is. Raises _BadRow."""
        player_id = _guid(row.player_id, "PlayerId")
        track_id = _checksum(row.song_checksum)
        instrument = _name(row.instrument, "Instrument", INSTRUMENTS)
        difficulty = _name(row.difficulty, "Difficulty", DIFFICULTIES)
        score = _integer(row.score, "PlayerScores.Score")
        if score is None:
            raise _BadRow("PlayerScores.Score is missing")
        ticks, played_at = self._played_at(row.date)
        dimensions: dict[str, Any] = {"track_id": track_id, "instrument": instrument, "difficulty": difficulty}
        if row.engine is not None:
            engine = _guid(row.engine, "EnginePresetId")
            if engine != NO_ENGINE:
                dimensions["engine"] = ENGINES.get(engine, "custom")
        if row.game_version not in (None, ""):
            dimensions["game_version"] = _text(row.game_version, "GameRecords.GameVersion")
        replay = self._replays.of(row)
        if replay is not None:
            played_at = played_at if replay.played_at is None else replay.played_at
            player = replay.player(self._names.get(player_id), row.instrument, row.difficulty, score)
            if player is not None:
                dimensions["modifiers"] = _modifiers(player.modifiers)
        identity = f"{ticks} {track_id} {player_id} {instrument} {difficulty} {score}"
        if ordinal:  # of plays that are the same in all of this
            identity += f" {ordinal}"
        submission_id = "yarg-" + hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        return _Play(submission_id, player_id, score, played_at, dimensions, _metrics(row))

    def _played_at(self, ticks: Any) -> tuple[int, int]:
        """A date in ticks of local time, and in microseconds since the epoch, by the zone that is assumed."""
        if type(ticks) is not int or not 0 <= ticks < TICKS_END:
            raise _BadRow(f"GameRecords.Date is {shown(ticks)}: must be 0 to {TICKS_END - 1} ticks")
        local = TICKS_EPOCH + timedelta(microseconds=ticks // TICKS_US)
        try:
            # Of a time that comes twice, the first; one that clocks skip counts from before the change.
            played_at = to_us(local.astimezone() if self._zone is None else local.replace(tzinfo=self._zone))
        except (OverflowError, OSError, ValueError):
            played_at = None
        if played_at is None or not in_calendar(played_at):
            raise _BadRow(f"GameRecords.Date is {ticks}, {local.isoformat()}: {CALENDAR_RULE}")
        return ticks, played_at


def _left_out(row: _Row) -> str | None:
    """Why a row does not count; None if it does. Raises _BadRow."""
    if row.game is None:
        raise _BadRow(f"PlayerScores.GameRecordId is {shown(row.game_record_id)}: GameRecords has no such row")
    if _integer(row.is_replay, "PlayerScores.IsReplay"):
        return "is_replay"
    if _integer(row.played_with_replay, "GameRecords.PlayedWithReplay"):
        return "played_with_replay"
    if row.speed is not None:
        if not isinstance(row.speed, float | int) or not 0 < row.speed <= SPEED_MAX:
            raise _BadRow(f"GameRecords.SongSpeed is {shown(row.speed)}: must be above 0 and at most {SPEED_MAX}")
        if row.speed < 1:
            return "slowed_down"
    stars = _integer(row.stars, "PlayerScores.Stars")
    if stars is not None and stars not in STARS:
        raise _BadRow(f"PlayerScores.Stars is {stars}: must be {STARS.start} to {STARS.stop - 1}")
    return "no_part" if stars == NO_PART else None


def _metrics(row: _Row) -> dict[str, Number]:
    hit = _integer(row.notes_hit, "PlayerScores.NotesHit", least=0)
    missed = _integer(row.notes_missed, "PlayerScores.NotesMissed", least=0)
    metrics = {
        "stars": _integer(row.stars, "PlayerScores.Stars"),
        "percent": _percent(row.percent, hit, missed),
        "notes_hit": hit,
        "notes_missed": missed,
        "is_fc": None if row.is_fc is None else int(bool(_integer(row.is_fc, "PlayerScores.IsFc"))),
        "speed": _speed(row.speed),
        "band_score": _integer(row.band_score, "GameRecords.BandScore"),
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _integer(value: Any, column: str, least: int | None = None) -> int | None:
    if value is None:
        return None
    if type(value) is not int:  # what is beyond 64 bits, SQLite gives as a float
        raise _BadRow(f"{column} is {shown(value)}: must be a whole number of 64 bits")
    if least is not None and value < least:
        raise _BadRow(f"{column} is {value}: must be at least {least}")
    return value


def _percent(value: Any, hit: int | None, missed: int | None) -> Decimal | None:
    """A share from 0 to 1 as percent with 4 decimal digits. Files of old lack it: then it is worked out as the game
    does, in single precision, so that equal plays have equal percentages. None for a part without notes."""
    if value is None:
        if hit is None or missed is None or hit + missed == 0:
            return None
        value = struct.unpack("f", struct.pack("f", hit / (hit + missed)))[0]
    if isinstance(value, float | int) and math.isfinite(value):
        percent = EXACT.quantize(EXACT.multiply(Decimal(value), Decimal(100)), Decimal("0.0001"))
        if 0 <= percent <= 100:
            return abs(percent)  # of a negative zero
    raise _BadRow(f"PlayerScores.Percent is {shown(value)}: must be from 0 to 1")


def _speed(value: float | None) -> Number | None:
    """A factor as percent with up to 2 decimal digits: single precision holds 1.05 as 1.04999995."""
    if value is None:
        return None
    percent = EXACT.quantize(EXACT.multiply(Decimal(value), Decimal(100)), Decimal("0.01"))
    return int(percent) if percent == int(percent) else percent


def _guid(value: Any, column: str) -> str:
    guid = value.lower() if isinstance(value, str) and value.isascii() else ""
    if not GUID.fullmatch(guid):
        raise _BadRow(f"PlayerScores.{column} is {shown(value)}: must be a Guid")
    return guid


def _checksum(value: Any) -> str:
    if not isinstance(value, bytes) or len(value) != 20:
        raise _BadRow(f"GameRecords.SongChecksum is {shown(value)}: must be 20 bytes")
    return value.hex().upper()


def _name(value: Any, column: str, names: Mapping[int, str]) -> str:
    name = names.get(value) if type(value) is int else None
    if name is None:
        raise _BadRow(f"PlayerScores.{column} is {shown(value)}: must be one of {', '.join(map(str, names))}")
    return name


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str) or len(value.encode()) > DISPLAYED_BYTES_MAX:
        raise _BadRow(f"{column} is {shown(value)}: must be text of up to {DISPLAYED_BYTES_MAX} bytes")
    return value


def _modifiers(bits: int) -> frozenset[str]:
    """Modifiers that are too new to have a name here are kept apart by their bit."""
    set_bits = [bit for bit in range(64) if bits >> bit & 1]
    return frozenset(MODIFIERS[bit] if bit < len(MODIFIERS) else f"modifier_{bit}" for bit in set_bits)


def _batch(plays: Sequence[_Play]) -> Batch:
    dimensions = {name: None for play in plays for name in play.dimensions}
    metrics = {name: None for play in plays for name in play.metrics}
    return Batch(
        player_ids=[play.player_id for play in plays],
        scores=[play.score for play in plays],
        submission_ids=[play.submission_id for play in plays],
        played_at=[play.played_at for play in plays],
        dimensions={name: [play.dimensions.get(name) for play in plays] for name in dimensions},
        metrics={name: [play.metrics.get(name) for play in plays] for name in metrics},
    )


# --- replays --------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """What a play's replay tells: the instant in microseconds since the epoch, and the band's profiles."""

    played_at: int | None
    band: tuple[ReplayPlayer, ...]

    def player(self, name: Any, instrument: int, difficulty: int, score: int) -> ReplayPlayer | None:
        """The profile of one player of the band; None if it can't be told for sure."""
        same = [one for one in self.band if (one.instrument, one.difficulty) == (instrument, difficulty)]
        found = [one for one in same if one.name == name] or same  # names change; the play stays the same
        if len(found) > 1 or (found and found[0].name != name):
            found = [one for one in found if one.score == score]
        return found[0] if len({one.modifiers for one in found}) == 1 else None


class _Replays:
    """The replays of a folder by the SHA-1 of their data. Files that can't be read are counted, no more."""

    def __init__(self, folder: Path) -> None:
        self.unreadable = 0
        self._paths: dict[bytes, Path] = {}
        self._told: dict[bytes, tuple[bytes, _Told] | None] = {}
        for path in sorted(folder.glob("*.replay")) if folder.is_dir() else ():
            try:
                with path.open("rb") as file:
                    head = file.read(HEADER_START)
                    head += file.read(header_bytes(head) - HEADER_START)
                self._paths.setdefault(read_header(head).data_checksum, path)
            except (OSError, ReplayError):
                self.unreadable += 1

    def of(self, row: _Row) -> _Told | None:
        """What the replay of a row's play tells, if it is there, whole, and of the same song."""
        checksum = row.replay_checksum
        if not isinstance(checksum, bytes) or checksum not in self._paths:
            return None
        if checksum not in self._told:
            self._told[checksum] = self._read(self._paths[checksum])
        told = self._told[checksum]
        return told[1] if told is not None and told[0] == row.song_checksum else None

    def _read(self, path: Path) -> tuple[bytes, _Told] | None:
        try:
            with path.open("rb") as file:
                replay = read_replay(file.read(FILE_BYTES_MAX + 1))
        except (OSError, ReplayError):
            return None
        ticks = replay.header.date_ticks
        played_at = None
        if ticks is not None and ticks < TICKS_END:
            us = to_us(TICKS_EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=ticks // TICKS_US))
            played_at = us if in_calendar(us) else None
        return replay.header.song_checksum, _Told(played_at, replay.players or ())


# --- zones ----------------------------------------------------------------------------------------------------


def _zone(name: str | None) -> tuple[ZoneInfo | None, str]:
    """A zone and what reports call it. None for a machine's zone that only the machine itself knows."""
    if name is not None:
        try:
            return ZoneInfo(name), name
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidInput("zone", name, "must be a zone of the IANA time zone database") from None
    name = os.environ.get("TZ")
    if name is None:
        name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    name = name.removeprefix(":")
    if name:
        try:
            return ZoneInfo(name), f"{name} (this machine's zone)"
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    return None, f"{'/'.join(dict.fromkeys(time.tzname))} (this machine's zone)"
