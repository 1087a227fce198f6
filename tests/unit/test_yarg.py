"""What an import makes of a scores.db: every fact about the file, and every way in which it can be wrong."""

import hashlib
import shutil
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laurels.batch import Batch, checked_batch
from laurels.config import check_game
from laurels.errors import Conflict, ImportFailed, InvalidInput
from laurels.importers import yarg_demo
from laurels.importers.report import BadRow
from laurels.importers.yarg import YargFile, import_scores, read
from laurels.importers.yarg_game import ENGINES, GAME, INSTRUMENTS, MODIFIERS
from laurels.model import INT64_MAX, Limits
from laurels.windows import to_us

AMY = "0f0e0d0c-0b0a-4908-8706-050403020100"
BOB = "11111111-2222-4333-8444-555555555555"
SONG = bytes(range(20))
TRACK = SONG.hex().upper()
EVENING = datetime(2025, 9, 1, 20, 30, 15, 123_456)
SCORE_TYPES = {
    "Id": "integer primary key autoincrement not null",
    "GameRecordId": "integer",
    "PlayerId": "varchar(36)",
    "Instrument": "integer",
    "Difficulty": "integer",
    "EnginePresetId": "varchar(36)",
    "Score": "integer",
    "Stars": "integer",
    "NotesHit": "integer",
    "NotesMissed": "integer",
    "IsFc": "integer",
    "IsReplay": "integer",
    "Percent": "float",
}
GAME_TYPES = {
    "Id": "integer primary key autoincrement not null",
    "Date": "bigint",
    "SongChecksum": "blob",
    "GameVersion": "varchar",
    "SongName": "varchar",
    "SongArtist": "varchar",
    "SongCharter": "varchar",
    "ReplayFileName": "varchar",
    "ReplayChecksum": "blob",
    "BandScore": "integer",
    "BandStars": "integer",
    "SongSpeed": "float",
    "PlayedWithReplay": "integer",
}


def ticks(local: datetime) -> int:
    return (local - datetime(1, 1, 1)) // timedelta(microseconds=1) * 10


def single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


class Scores:
    """A scores.db in the making."""

    def __init__(self, path: Path, without: tuple[str, ...] = ()) -> None:
        self.path = path
        self.without = without
        self.db = sqlite3.connect(path, isolation_level=None)
        for table, types in (("GameRecords", GAME_TYPES), ("PlayerScores", SCORE_TYPES)):
            columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items() if name not in without)
            self.db.execute(f"CREATE TABLE {table}({columns})")
        self.db.execute("CREATE TABLE Players(Id varchar(36) primary key not null, Name varchar)")
        self.player(AMY, "Amy")
        self.player(BOB, "b.o.b ft. Zoë")

    def player(self, player_id: Any, name: Any) -> None:
        self.db.execute("INSERT INTO Players VALUES(?, ?)", (player_id, name))

    def game(self, date: Any = None, **columns: Any) -> int:
        row = {
            "Date": ticks(EVENING) if date is None else ticks(date) if isinstance(date, datetime) else date,
            "SongChecksum": SONG,
            "GameVersion": "v0.13.1",
            "SongName": "Song",
            "SongArtist": "Artist",
            "SongCharter": "Charter",
            "BandScore": 120_000,
            "SongSpeed": 1.0,
            "PlayedWithReplay": 0,
        }
        return self.insert("GameRecords", row | columns)

    def score(self, game: Any = None, **columns: Any) -> int:
        """One play: of its own game, if not said otherwise."""
        row = {
            "GameRecordId": self.game() if game is None else game,
            "PlayerId": AMY,
            "Instrument": 0,
            "Difficulty": 4,
            "EnginePresetId": "d620197a-5611-c0ab-5a60-135aefe8bc67",
            "Score": 120_000,
            "Stars": 5,
            "NotesHit": 910,
            "NotesMissed": 90,
            "IsFc": 0,
            "IsReplay": 0,
            "Percent": single(0.91),
        }
        return self.insert("PlayerScores", row | columns)

    def insert(self, table: str, row: dict[str, Any]) -> int:
        row = {name: value for name, value in row.items() if name not in self.without}
        sql = f"INSERT INTO {table}({', '.join(row)}) VALUES({', '.join('?' * len(row))})"
        return int(self.db.execute(sql, list(row.values())).lastrowid or 0)

    def read(self, zone: str | None = "UTC", **options: Any) -> YargFile:
        return read(self.path, zone=zone, **options)

    def whole(self, zone: str | None = "UTC", **options: Any) -> Batch:
        """All submissions as one batch."""
        with self.read(zone, **options) as file:
            return Batch.concatenate(list(file.batches()))

    def first(self, **columns: Any) -> dict[str, Any]:
        """Dimensions and metrics of a file with one play."""
        self.score(**columns)
        batch = self.whole()
        columns = batch.dimensions | batch.metrics
        return {name: column[0] for name, column in columns.items() if column[0] is not None}


@pytest.fixture
def scores(tmp_path: Path) -> Any:
    made = Scores(tmp_path / "scores.db")
    yield made
    made.db.close()


class FakeGame:
    """Remembers what it is given."""

    def __init__(self) -> None:
        self.described: dict[str, dict[str, Mapping[str, str]]] = {}
        self.rows: dict[str, tuple[Any, ...]] = {}

    async def describe(self, field: str, attributes: Mapping[str, Mapping[str, str]]) -> None:
        self.described.setdefault(field, {}).update(attributes)

    async def submit_batch(self, batch: Batch) -> Any:
        ids = [str(submission_id) for submission_id in batch.submission_ids]
        repeated = [submission_id in self.rows for submission_id in ids]
        for row, submission_id in enumerate(ids):
            self.rows.setdefault(submission_id, (batch.player_ids[row], batch.scores[row], batch.played_at[row]))
        return SimpleNamespace(repeated=repeated)


# --- what a play becomes --------------------------------------------------------------------------------------


def test_a_play_becomes_a_submission(scores: Scores) -> None:
    scores.score()
    with scores.read() as file:
        (batch,) = file.batches()
        assert file.players == {AMY: {"name": "Amy"}}
        assert file.tracks == {TRACK: {"title": "Song", "artist": "Artist", "charter": "Charter"}}
        assert (file.report.rows, file.report.submissions, file.report.zone) == (1, 1, "UTC")
    assert (batch.player_ids, batch.scores) == ([AMY], [120_000])
    assert batch.played_at == [to_us(EVENING.replace(tzinfo=UTC))]
    assert batch.dimensions == {
        "track_id": [TRACK],
        "instrument": ["five_fret_guitar"],
        "difficulty": ["expert"],
        "engine": ["default"],
        "game_version": ["v0.13.1"],
    }
    assert batch.metrics == {
        "stars": [5],
        "percent": [Decimal("91.0000")],
        "notes_hit": [910],
        "notes_missed": [90],
        "is_fc": [0],
        "speed": [100],
        "band_score": [120_000],
    }


def test_what_it_becomes_passes_the_checks_that_every_submission_passes(scores: Scores) -> None:
    check_game(GAME, Limits())
    game = scores.game(SongSpeed=single(1.05))
    for number, instrument in enumerate(INSTRUMENTS):
        scores.score(game, Instrument=instrument, Score=INT64_MAX - number, Percent=single(number / 30))
    batch = scores.whole()
    assert batch.dimensions["instrument"] == list(INSTRUMENTS.values())
    assert batch == checked_batch(
        GAME,
        Limits(),
        player_ids=batch.player_ids,
        scores=batch.scores,
        submission_ids=batch.submission_ids,
        played_at=[datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at or 0) for at in batch.played_at],
        dimensions=batch.dimensions,
        metrics=batch.metrics,
    )


@pytest.mark.parametrize(
    ("stored", "percent"),
    [
        (single(0.995), "99.5000"),
        (single(1 / 3), "33.3333"),
        (0.0, "0.0000"),
        (-1e-9, "0.0000"),
        (1.0, "100.0000"),
        (single(0.1), "10.0000"),
        (0.00000125, "0.0001"),
    ],
)
def test_percent_is_exact_and_has_four_digits(scores: Scores, stored: float, percent: str) -> None:
    assert str(scores.first(Percent=stored)["percent"]) == percent


def test_an_old_row_has_the_percent_that_a_new_one_would_have(scores: Scores) -> None:
    scores.score(Percent=None, NotesHit=617, NotesMissed=311)
    scores.score(Percent=single(617 / 928), NotesHit=617, NotesMissed=311)
    old, new = scores.whole().metrics["percent"]
    assert old == new == Decimal("66.4871")


def test_a_part_without_notes_has_no_percent(scores: Scores) -> None:
    assert "percent" not in scores.first(Percent=None, NotesHit=0, NotesMissed=0)


def test_nothing_hit_is_no_percent_at_all_but_zero(scores: Scores) -> None:
    assert scores.first(Percent=None, NotesHit=0, NotesMissed=5)["percent"] == 0


@pytest.mark.parametrize(
    ("speed", "percent"), [(1.0, 100), (single(1.05), 105), (1.5, 150), (1.255, Decimal("125.50"))]
)
def test_speed_is_in_percent(scores: Scores, speed: float, percent: Any) -> None:
    game = scores.game(SongSpeed=speed)
    assert scores.first(game=game)["speed"] == percent


def test_an_unknown_speed_is_said(scores: Scores) -> None:
    scores.score(scores.game(SongSpeed=None))
    with scores.read() as file:
        assert "speed" not in next(file.batches()).metrics
        assert any("1 plays have no speed" in note for note in file.report.notes())


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *ENGINES.items(),
        ("D620197A-5611-C0AB-5A60-135AEFE8BC67", "default"),
        (BOB, "custom"),
        ("00000000-0000-0000-0000-000000000000", None),
        (None, None),
    ],
)
def test_engines_have_names(scores: Scores, engine: str | None, name: str | None) -> None:
    assert scores.first(EnginePresetId=engine).get("engine") == name


def test_the_ids_of_engines_are_hashes_of_their_names() -> None:
    names = {"default": "Default", "casual": "Casual", "precision": "Precision", "solo_taps": "Solo Taps"}
    assert {str(yarg_demo.engine_id(names[name])): name for name in ENGINES.values()} == ENGINES


def test_ids_of_players_are_lower_case(scores: Scores) -> None:
    scores.score(PlayerId=AMY.upper())
    scores.db.execute("UPDATE Players SET Id = upper(Id)")
    with scores.read() as file:
        assert next(file.batches()).player_ids == [AMY]
        assert file.players == {AMY: {"name": "Amy"}}


def test_a_song_is_called_what_it_was_called_last_without_tags(scores: Scores) -> None:
    late = scores.game(
        EVENING, SongName="<color=#FF8800>I <3 U</color> (a < b > c)", SongCharter="<B>x</b><#ff0>y", SongArtist=None
    )
    early = scores.game(EVENING - timedelta(days=1), SongName="Old name", SongArtist="x ft. y")
    scores.score(late)
    scores.score(early)
    with scores.read() as file:
        assert file.tracks == {TRACK: {"title": "I <3 U (a < b > c)", "artist": "x ft. y", "charter": "xy"}}


def test_names_that_cannot_be_shown_do_not_end_an_import(scores: Scores) -> None:
    scores.db.execute("UPDATE Players SET Name = ? WHERE Id = ?", (b"\x00\xff", AMY))
    scores.score(scores.game(SongName="x" * 2_000, SongArtist=None, SongCharter=""))
    with scores.read() as file:
        assert (file.players, file.tracks) == ({AMY: {}}, {TRACK: {}})
        assert any("2 names or titles" in note for note in file.report.notes())


def test_a_band_is_one_play_for_each_member(scores: Scores) -> None:
    game = scores.game(BandScore=200_000)
    scores.score(game, Score=120_000)
    scores.score(game, PlayerId=BOB, Instrument=21, Score=80_000)
    batch = scores.whole()
    assert batch.player_ids == [AMY, BOB]
    assert batch.metrics["band_score"] == [200_000, 200_000]


def test_the_first_played_comes_first(scores: Scores) -> None:
    for minutes in (30, 10, 20, 10):
        scores.score(scores.game(EVENING + timedelta(minutes=minutes)), Score=minutes)
    scores.score(scores.game(EVENING + timedelta(minutes=10)), Score=11)
    with scores.read() as file:
        batches = list(file.batches(rows_max=2))
        assert [batch.scores for batch in batches] == [[10, 10], [11, 20], [30]]
        assert list(file.batches(rows_max=2)) == batches


# --- what does not count --------------------------------------------------------------------------------------


def test_what_the_game_does_not_count_is_left_out_and_counted(scores: Scores) -> None:
    scores.score(IsReplay=1)
    scores.score(scores.game(PlayedWithReplay=1))
    scores.score(scores.game(SongSpeed=0.75))
    scores.score(Stars=-1)
    scores.score(IsReplay=None)
    scores.score(scores.game(PlayedWithReplay=None))
    with scores.read() as file:
        report = file.report
        assert report.left_out == {"is_replay": 1, "no_part": 1, "played_with_replay": 1, "slowed_down": 1}
        assert (report.rows, report.submissions) == (6, 2)


# --- ids ------------------------------------------------------------------------------------------------------


def test_ids_do_not_depend_on_row_numbers(tmp_path: Path) -> None:
    found = []
    for name, order in (("a.db", (1, 2, 3)), ("b.db", (3, 1, 2))):
        scores = Scores(tmp_path / name)
        for number in order:
            scores.score(scores.game(EVENING + timedelta(minutes=number)), Score=number)
        found.append(set(scores.whole().submission_ids))
        scores.db.close()
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_ids_do_not_depend_on_the_zone(scores: Scores) -> None:
    scores.score()
    assert scores.whole("UTC").submission_ids == scores.whole("Asia/Tokyo").submission_ids


def test_everything_that_tells_plays_apart_is_in_the_id(scores: Scores) -> None:
    scores.score()
    scores.score(PlayerId=BOB)
    scores.score(Instrument=4)
    scores.score(Difficulty=5)
    scores.score(Score=120_001)
    scores.score(scores.game(ticks(EVENING) + 1))
    scores.score(scores.game(SongChecksum=bytes(20)))
    scores.score()  # the same once more: a twin is a play of its own
    ids = scores.whole().submission_ids
    assert len(set(ids)) == 8
    assert all(str(submission_id).startswith("yarg-") for submission_id in ids)
    assert ids == scores.whole().submission_ids


async def test_importing_twice_changes_nothing(scores: Scores, tmp_path: Path) -> None:
    for number in range(5):
        scores.score(scores.game(EVENING + timedelta(minutes=number)))
    scores.score(IsReplay=1)
    game, calls = FakeGame(), []
    first = await import_scores(game, scores.path, zone="UTC", progress=lambda done, total: calls.append((done, total)))
    assert (first.rows, first.submitted, first.repeated, first.left_out) == (6, 5, 0, {"is_replay": 1})
    assert first.source == str(scores.path)
    assert any("read in UTC" in note for note in first.notes)
    assert calls == [(5, 5)]
    assert game.described == {
        "player_id": {AMY: {"name": "Amy"}},
        "track_id": {TRACK: {"title": "Song", "artist": "Artist", "charter": "Charter"}},
    }
    before = dict(game.rows)
    copied = tmp_path / "copied.db"
    shutil.copyfile(scores.path, copied)
    with closing(sqlite3.connect(copied)) as db:
        db.execute("UPDATE PlayerScores SET Id = Id + 1000")
        db.commit()
    for path in (scores.path, copied):
        again = await import_scores(game, path, zone="Asia/Tokyo")
        assert (again.submitted, again.repeated) == (0, 5)
    assert game.rows == before


# --- time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        (datetime(2025, 7, 1, 12, 0), datetime(2025, 7, 1, 10, 0)),
        (datetime(2025, 1, 1, 12, 0), datetime(2025, 1, 1, 11, 0)),
        (datetime(2025, 10, 26, 2, 30), datetime(2025, 10, 26, 0, 30)),  # comes twice: the first
        (datetime(2025, 3, 30, 2, 30), datetime(2025, 3, 30, 1, 30)),  # never comes: shifted by the hour
    ],
)
def test_local_times_are_read_in_the_given_zone(scores: Scores, local: datetime, utc: datetime) -> None:
    scores.score(scores.game(local))
    assert scores.whole("Europe/Berlin").played_at == [to_us(utc.replace(tzinfo=UTC))]


@pytest.mark.parametrize("machine", ["Asia/Tokyo", ":Asia/Tokyo"])
def test_without_a_zone_it_is_the_machines_and_the_report_says_so(
    scores: Scores, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setenv("TZ", machine)
    scores.score()
    with scores.read(zone=None) as file:
        assert next(file.batches()).played_at == [to_us((EVENING - timedelta(hours=9)).replace(tzinfo=UTC))]
        assert any("Asia/Tokyo (this machine's zone)" in note for note in file.report.notes())


def test_a_machine_whose_zone_has_no_name_still_has_one(scores: Scores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "")
    scores.score()
    with scores.read(zone=None) as file:
        assert next(file.batches()).played_at == [to_us(EVENING.astimezone())]
        assert file.report.zone.endswith("(this machine's zone)")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "", "a\0b"])
def test_an_unknown_zone_is_refused(scores: Scores, zone: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scores.read(zone)
    assert caught.value.field == "zone"


# --- bad rows -------------------------------------------------------------------------------------------------

BAD_SCORES: list[tuple[str, Any]] = [
    ("Score", 2**63 * 1.0),
    ("Score", "many"),
    ("Score", None),
    ("Score", 1.5),
    ("Instrument", 5),
    ("Instrument", 255),
    ("Instrument", None),
    ("Instrument", "guitar"),
    ("Difficulty", 6),
    ("Difficulty", -1),
    ("PlayerId", "not-a-guid"),
    ("PlayerId", AMY + "\n"),
    ("PlayerId", None),
    ("PlayerId", b"\xff" * 36),
    ("EnginePresetId", "Default"),
    ("Stars", 1_000),
    ("Stars", "five"),
    ("NotesHit", -1),
    ("NotesMissed", "x"),
    ("Percent", 1.01),
    ("Percent", -0.5),
    ("Percent", float("inf")),
    ("Percent", "all"),
    ("IsFc", "yes"),
    ("IsReplay", "no"),
]
BAD_GAMES: list[tuple[str, Any]] = [
    ("Date", -1),
    ("Date", 3_155_378_976_000_000_000),
    ("Date", 2**63 - 1),
    ("Date", 0),
    ("Date", "yesterday"),
    ("SongChecksum", bytes(19)),
    ("SongChecksum", "x" * 20),
    ("SongChecksum", None),
    ("GameVersion", "v" * 2_000),
    ("BandScore", 1e30),
    ("SongSpeed", 0.0),
    ("SongSpeed", -1.0),
    ("SongSpeed", float("inf")),
    ("SongSpeed", "fast"),
    ("PlayedWithReplay", "no"),
]


@pytest.mark.parametrize(("column", "value"), BAD_SCORES + BAD_GAMES)
def test_a_bad_row_ends_the_import_or_is_skipped(scores: Scores, column: str, value: Any) -> None:
    scores.score()
    if column in GAME_TYPES:
        game = scores.game()
        scores.db.execute(f"UPDATE GameRecords SET {column} = ? WHERE Id = ?", (value, game))
        row = scores.score(game)
    else:
        row = scores.score(**{column: value})
    with pytest.raises(ImportFailed) as caught:
        scores.read()
    assert (caught.value.path, caught.value.row) == (str(scores.path), row)
    assert column in caught.value.reason
    with scores.read(skip_bad=True) as file:
        assert file.report.bad_rows == [BadRow(row, caught.value.reason)]
        assert (file.report.rows, file.report.submissions) == (2, 1)
        assert sum(len(batch) for batch in file.batches()) == 1


def test_a_missing_date_is_a_bad_row(scores: Scores) -> None:
    scores.db.execute("UPDATE GameRecords SET Date = NULL WHERE Id = ?", (game := scores.game(),))
    scores.score(game)
    with pytest.raises(ImportFailed, match="Date is None"):
        scores.read()


@pytest.mark.parametrize("game", [999, "none", b"x"])
def test_a_play_without_its_game_is_a_bad_row(scores: Scores, game: Any) -> None:
    row = scores.score(game)
    with pytest.raises(ImportFailed, match="GameRecordId") as caught:
        scores.read()
    assert caught.value.row == row


async def test_nothing_is_submitted_when_a_row_is_bad(scores: Scores) -> None:
    for number in range(3):
        scores.score(Score=number)
    scores.score(scores.game(EVENING + timedelta(days=1)), Score="many")
    game = FakeGame()
    with pytest.raises(ImportFailed):
        await import_scores(game, scores.path, zone="UTC")
    assert (game.rows, game.described) == ({}, {})
    report = await import_scores(game, scores.path, zone="UTC", skip_bad=True)
    assert (report.rows, report.submitted, len(report.skipped)) == (4, 3, 1)


# --- files ----------------------------------------------------------------------------------------------------


def test_an_old_file_lacks_columns(tmp_path: Path) -> None:
    absent = (
        "GameVersion",
        "PlayedWithReplay",
        "IsReplay",
        "Percent",
        "ReplayChecksum",
        "SongCharter",
        "EnginePresetId",
    )
    scores = Scores(tmp_path / "old.db", without=absent)
    found = scores.first()
    assert found["percent"] == Decimal("91.0000")
    assert not {"engine", "game_version", "modifiers"} & set(found)
    scores.db.close()


def test_a_newer_file_has_more(scores: Scores) -> None:
    scores.db.execute("ALTER TABLE GameRecords ADD COLUMN HasBots integer")
    scores.db.execute("CREATE TABLE CareerSaves(Id integer primary key)")
    scores.db.execute("CREATE INDEX i ON PlayerScores(GameRecordId, PlayerId)")
    assert scores.first()["percent"] == Decimal("91.0000")


def test_names_can_be_done_without(scores: Scores) -> None:
    scores.db.execute("DROP TABLE Players")
    scores.score()
    with scores.read() as file:
        assert file.players == {AMY: {}}


def test_an_empty_file_of_the_game_has_no_plays(scores: Scores) -> None:
    with scores.read() as file:
        assert list(file.batches()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a SQLite database"),
        (b"PK\3\4" + bytes(100), "not a SQLite"),
        (b"SQLite format 3\0" + b"x" * 4_096, "is damaged"),
    ],
)
def test_what_is_not_a_database_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "scores.db"
    path.write_bytes(content)
    with pytest.raises(ImportFailed, match=reason) as caught:
        read(path)
    assert (caught.value.path, caught.value.row) == (str(path), None)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.db", tmp_path):
        with pytest.raises(ImportFailed, match="can't be read"):
            read(path)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE PlayerScores(a)")
        db.commit()
        with pytest.raises(ImportFailed, match="has no column GameRecordId"):
            read(path)
        db.execute("DROP TABLE PlayerScores")
        db.execute("CREATE VIEW PlayerScores AS SELECT 1")
        db.commit()
        with pytest.raises(ImportFailed, match="has no table PlayerScores"):
            read(path)


def test_a_damaged_file_is_refused(scores: Scores) -> None:
    for number in range(2_000):
        scores.score(1, Score=number)
    scores.db.close()
    content = bytearray(scores.path.read_bytes())
    assert len(content) > 20 * 4_096
    content[8 * 4_096 : 12 * 4_096] = b"\xff" * (4 * 4_096)
    scores.path.write_bytes(content)
    with pytest.raises(ImportFailed) as caught:
        scores.read(skip_bad=True)
    assert caught.value.row is None


def test_damage_is_noticed_where_no_play_is_read_from(scores: Scores) -> None:
    scores.score()
    scores.db.execute("CREATE INDEX i ON PlayerScores(Score)")
    (page,) = scores.db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'i'").fetchone()
    scores.db.close()
    content = bytearray(scores.path.read_bytes())
    content[(page - 1) * 4_096 : page * 4_096] = b"\xff" * 4_096
    scores.path.write_bytes(content)
    with pytest.raises(ImportFailed, match="is damaged"):
        scores.read()


def test_a_file_cut_short_is_refused(scores: Scores) -> None:
    for number in range(2_000):
        scores.score(1, Score=number)
    scores.db.close()
    content = scores.path.read_bytes()
    scores.path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ImportFailed):
        scores.read()


def test_the_file_is_not_written_and_nothing_is_left_beside_it(scores: Scores) -> None:
    scores.score()
    scores.db.close()
    before, files = scores.path.read_bytes(), sorted(scores.path.parent.iterdir())
    scores.whole()
    assert (scores.path.read_bytes(), sorted(scores.path.parent.iterdir())) == (before, files)


def test_a_write_ahead_log_left_behind_is_read(scores: Scores, tmp_path: Path) -> None:
    scores.db.execute("PRAGMA journal_mode = WAL")
    scores.score(Score=1)
    assert scores.whole().scores == [1]  # while the game has it open
    left = tmp_path / "left"
    left.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{scores.path}{suffix}", left / f"scores.db{suffix}")
    files = {path: path.read_bytes() for path in left.iterdir()}
    with read(left / "scores.db", zone="UTC") as file:
        assert next(file.batches()).scores == [1]
    assert {path: path.read_bytes() for path in left.iterdir()} == files


def test_a_write_that_was_cut_off_is_undone(scores: Scores, tmp_path: Path) -> None:
    scores.score(Score=1)
    left = tmp_path / "left"
    left.mkdir()
    scores.db.execute("PRAGMA cache_size = 1")
    scores.db.execute("BEGIN")
    for number in range(3_000):
        scores.score(1, Score=number)
    for suffix in ("", "-journal"):
        shutil.copyfile(f"{scores.path}{suffix}", left / f"scores.db{suffix}")
    scores.db.execute("ROLLBACK")
    files = {path: path.read_bytes() for path in left.iterdir()}
    with read(left / "scores.db", zone="UTC") as file:
        assert next(file.batches()).scores == [1]
    assert {path: path.read_bytes() for path in left.iterdir()} == files


def test_the_game_can_go_on_writing(scores: Scores) -> None:
    scores.score(Score=1)
    with scores.read() as file:
        scores.score(Score=2)
        assert next(file.batches()).scores == [1]


def test_a_locked_file_is_refused(scores: Scores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurels.importers.yarg.LOCK_WAIT_S", 0.01)
    scores.db.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ImportFailed, match="locked by another program"):
        scores.read()


# --- replays --------------------------------------------------------------------------------------------------


def part(**fields: Any) -> Any:
    plain = {"player": 0, "instrument": 0, "difficulty": 4, "engine": yarg_demo.engine_id("Default"), "modifiers": 0}
    plain |= {"notes_hit": 910, "notes": 1_000, "score": 120_000, "stars": 5, "is_replay": False}
    return yarg_demo._Part(**plain | fields)


def write_replay(scores: Scores, band: list[tuple[str, Any]], utc: datetime = EVENING, song: bytes = SONG) -> bytes:
    """Put a replay beside the file; gives its checksum."""
    folder = scores.path.parent / "replays"
    folder.mkdir(exist_ok=True)
    made = yarg_demo._Song(song, "Song", "Artist", "Charter", 180.0, 1_000)
    content, checksum = yarg_demo.replay(made, utc, 1.0, band)
    (folder / f"{len(list(folder.iterdir()))}.replay").write_bytes(content)
    return checksum


def test_a_replay_tells_modifiers_and_the_true_time(scores: Scores) -> None:
    true_time = EVENING - timedelta(hours=3)
    checksum = write_replay(scores, [("Amy", part(modifiers=1 << 0 | 1 << 10 | 1 << 40))], true_time)
    scores.score(scores.game(ReplayChecksum=checksum))
    with scores.read() as file:
        batch = next(file.batches())
        assert file.report.replays_matched == 1
    assert batch.dimensions["modifiers"] == [frozenset({"all_strums", "range_compress", "modifier_40"})]
    assert batch.played_at == [to_us(true_time.replace(tzinfo=UTC))]


def test_modifiers_are_named_by_their_bit(scores: Scores) -> None:
    checksum = write_replay(scores, [("Amy", part(modifiers=2 ** len(MODIFIERS) - 1))])
    scores.score(scores.game(ReplayChecksum=checksum))
    assert scores.whole().dimensions["modifiers"] == [frozenset(MODIFIERS)]


def test_no_modifiers_are_known_only_with_a_replay(scores: Scores) -> None:
    checksum = write_replay(scores, [("Amy", part())])
    scores.score(scores.game(ReplayChecksum=checksum))
    scores.score(scores.game(ReplayChecksum=bytes(20)))
    scores.score(scores.game(ReplayChecksum=None))
    assert scores.whole().dimensions["modifiers"] == [frozenset(), None, None]


def test_each_member_of_a_band_has_modifiers_of_their_own(scores: Scores) -> None:
    band = [
        ("b.o.b ft. Zoë", part(modifiers=2)),
        ("Amy", part(modifiers=1)),
        ("Amy", part(instrument=21, modifiers=64)),
    ]
    game = scores.game(ReplayChecksum=write_replay(scores, band))
    scores.score(game)
    scores.score(game, PlayerId=BOB)
    scores.score(game, Instrument=21)
    scores.score(game, Difficulty=3)  # nobody in the replay
    assert scores.whole().dimensions["modifiers"] == [{"all_strums"}, {"all_hopos"}, {"no_kicks"}, None]


def test_a_player_who_changed_their_name_is_known_by_the_score(scores: Scores) -> None:
    band = [("Amelia", part(modifiers=1)), ("Robert", part(modifiers=2, score=7))]
    game = scores.game(ReplayChecksum=write_replay(scores, band))
    scores.score(game)
    scores.score(game, PlayerId=BOB, Score=7)
    scores.score(game, PlayerId=BOB, Score=8)
    assert scores.whole().dimensions["modifiers"] == [{"all_strums"}, {"all_hopos"}, None]


def test_a_stranger_on_the_same_part_is_not_the_player(scores: Scores) -> None:
    checksum = write_replay(scores, [("Somebody", part(modifiers=1, score=7))])
    scores.score(scores.game(ReplayChecksum=checksum))
    assert "modifiers" not in scores.whole().dimensions


def test_a_replay_of_another_song_tells_nothing(scores: Scores) -> None:
    checksum = write_replay(scores, [("Amy", part(modifiers=1))], EVENING - timedelta(hours=3), song=bytes(20))
    scores.score(scores.game(ReplayChecksum=checksum))
    batch = scores.whole()
    assert "modifiers" not in batch.dimensions
    assert batch.played_at == [to_us(EVENING.replace(tzinfo=UTC))]


def test_damaged_replays_tell_nothing(scores: Scores) -> None:
    checksum = write_replay(scores, [("Amy", part(modifiers=1))])
    (path,) = (scores.path.parent / "replays").iterdir()
    whole = path.read_bytes()
    scores.score(scores.game(ReplayChecksum=checksum))
    path.write_bytes(whole[:-1])
    assert "modifiers" not in scores.whole().dimensions
    path.write_bytes(b"no replay")
    with scores.read() as file:
        assert any("1 files of the replays folder" in note for note in file.report.notes())


def test_replays_may_lie_elsewhere(scores: Scores, tmp_path: Path) -> None:
    checksum = write_replay(scores, [("Amy", part(modifiers=1))])
    scores.score(scores.game(ReplayChecksum=checksum))
    (tmp_path / "replays").rename(tmp_path / "elsewhere")
    assert "modifiers" not in scores.whole().dimensions
    assert scores.whole(replays=tmp_path / "elsewhere").dimensions["modifiers"] == [{"all_strums"}]
    with pytest.raises(InvalidInput, match="must be a folder"):
        scores.read(replays=tmp_path / "nowhere")


def test_the_order_follows_the_true_time(scores: Scores) -> None:
    late = write_replay(scores, [("Amy", part(score=1))], EVENING + timedelta(hours=2))
    scores.score(scores.game(ReplayChecksum=late), Score=1)
    scores.score(scores.game(EVENING + timedelta(hours=1)), Score=2)
    assert scores.whole().scores == [2, 1]


# --- the demo's file ------------------------------------------------------------------------------------------


def test_the_demo_file_is_the_same_each_time_and_has_everything(tmp_path: Path) -> None:
    paths = [yarg_demo.build_scores_db(tmp_path / name, songs=20, players=60, plays=3_000) for name in ("a", "b")]
    hashes = []
    for path in paths:
        with closing(sqlite3.connect(path)) as db:
            dump = "\n".join(db.iterdump())
        replays = [(file.name, file.read_bytes()) for file in sorted((path.parent / "replays").iterdir())]
        hashes.append((hashlib.sha256(dump.encode()).hexdigest(), replays))
    assert hashes[0] == hashes[1]
    with closing(sqlite3.connect(paths[0])) as db:

        def count(sql: str) -> int:
            return int(db.execute(f"SELECT count(*) FROM {sql}").fetchone()[0])

        assert count("PlayerScores") == 3_000
        for condition in ("Percent IS NULL", "IsReplay IS NULL", "IsReplay = 1", "IsReplay = 0", "IsFc = 1"):
            assert count(f"PlayerScores WHERE {condition}"), condition
        for condition in (
            "PlayedWithReplay IS NULL",
            "SongSpeed > 1",
            "SongName LIKE '<color%'",
            "SongName LIKE '% ft. %'",
        ):
            assert count(f"GameRecords WHERE {condition}"), condition
        assert count("PlayerScores WHERE NotesHit + NotesMissed = 0")
        assert count("(SELECT 1 FROM PlayerScores GROUP BY GameRecordId HAVING count(*) > 2)")
        assert count("(SELECT 1 FROM PlayerScores GROUP BY Score HAVING count(DISTINCT PlayerId) > 1)")
        assert count("Players WHERE Name LIKE '%.%'")
    with read(paths[0], zone="UTC") as file:
        assert file.report.bad_rows == []
        assert set(file.report.left_out) == {"is_replay", "played_with_replay"}
        assert file.report.replays_matched > 300
        assert file.report.unreadable_replays == 0
        assert not any("<" in text for track in file.tracks.values() for text in track.values())


def test_the_demo_never_overwrites_scores(tmp_path: Path) -> None:
    (tmp_path / "scores.db").write_bytes(b"somebody's own")
    with pytest.raises(Conflict):
        yarg_demo.build_scores_db(tmp_path)
    assert (tmp_path / "scores.db").read_bytes() == b"somebody's own"


def test_an_interrupted_demo_file_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(yarg_demo, "INDEXES", "no SQL;")
        with pytest.raises(sqlite3.OperationalError):
            yarg_demo.build_scores_db(tmp_path, songs=2, players=5, plays=10)
    assert not (tmp_path / "scores.db").exists()
    with read(yarg_demo.build_scores_db(tmp_path, songs=2, players=5, plays=10), zone="UTC") as file:
        assert file.report.rows == 10
