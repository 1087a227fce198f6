"""Making a scores.db as YARG writes it, with made-up songs, players and plays, for the demo and for tests.

The same arguments make the same file each time, whatever the machine's clock and zone: its dates are in UTC.
"""

import hashlib
import random
import sqlite3
import struct
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from laurels.errors import Conflict, InvalidInput

SCHEMA: Final = """
create table "GameRecords"("Id" integer primary key autoincrement not null , "Date" bigint , "SongChecksum" blob ,
"GameVersion" varchar , "SongName" varchar , "SongArtist" varchar , "SongCharter" varchar , "ReplayFileName" varchar ,
"ReplayChecksum" blob , "BandScore" integer , "BandStars" integer , "SongSpeed" float , "PlayedWithReplay" integer );
create table "PlayerScores"("Id" integer primary key autoincrement not null , "GameRecordId" integer ,
"PlayerId" varchar(36) , "Instrument" integer , "Difficulty" integer , "EnginePresetId" varchar(36) ,
"Score" integer , "Stars" integer , "NotesHit" integer , "NotesMissed" integer , "IsFc" integer ,
"IsReplay" integer , "Percent" float );
create table "Players"("Id" varchar(36) primary key not null , "Name" varchar );
"""
INDEXES: Final = """
create index "GameRecords_Date" on "GameRecords"("Date");
create index "GameRecords_SongChecksum" on "GameRecords"("SongChecksum");
create index "PlayerScores_GameRecordId" on "PlayerScores"("GameRecordId");
create index "PlayerScores_PlayerId" on "PlayerScores"("PlayerId");
create index "PlayerScores_Instrument" on "PlayerScores"("Instrument");
"""
INSERT_GAME: Final = f"INSERT INTO GameRecords VALUES({','.join('?' * 13)})"
INSERT_SCORE: Final = f"INSERT INTO PlayerScores VALUES({','.join('?' * 13)})"

TICKS_EPOCH = datetime(1, 1, 1)
FIRST_DAY = datetime(2023, 12, 1)
DAYS = 675
PERCENT_SINCE = datetime(2024, 6, 1)  # rows before it have no Percent and no GameVersion
FLAGS_SINCE = datetime(2025, 7, 1)  # rows before it do not say whether replays took part
SONGS_WITH_REPLAYS = (0, 3)  # by popularity: everybody's song, and one that fewer play
REPLAYS_PER_SONG = 200
REPLAY_VERSION, ENGINE_VERSION, PROFILE_VERSION = 9, 4, 6
LOCAL_DATE = 2 << 62
GUITAR, BASS, KEYS, DRUMS, VOCALS = 0, 1, 4, 21, 40
INSTRUMENTS = (GUITAR, DRUMS, BASS, VOCALS, KEYS)
INSTRUMENT_WEIGHTS = (55, 18, 12, 10, 5)
DIFFICULTIES, DIFFICULTY_WEIGHTS = (4, 3, 2, 1, 5), (64, 18, 10, 6, 2)
VOCALS_MODE = 15
MODES = {GUITAR: 0, BASS: 0, KEYS: 0, DRUMS: 5, VOCALS: 15}
MODIFIERS = {0: (0, 0, 0, 0, 1, 2, 4, 16), 5: (0, 0, 0, 64, 256), 15: (0, 0, 128)}  # bits, by mode
ENGINES = ("Default",) * 12 + ("Casual",) * 3 + ("Precision",) * 3 + ("Solo Taps", "Somebody's own")
SPEEDS = (1.0,) * 30 + (1.05, 1.1, 1.25, 1.5, 2.0)
BAND_SIZES = (1,) * 16 + (2, 2, 3, 4)
STAR_POWER_STEPS = (*range(14), 14, 14, 14)
STAR_SHARES = (0.06, 0.12, 0.2, 0.45, 0.75, 0.93)  # of the highest score, for 1 to 5 stars and gold


def _words(text: str) -> list[str]:
    return text.split()


ADJECTIVES = _words(
    "Amber Broken Crimson Distant Electric Feral Gilded Hollow Iron Jade Kinetic Lunar Marble Neon Opal Paper "
    "Quiet Restless Silver Tidal Umber Velvet Wandering Young"
)
NOUNS = _words(
    "Anchor Beacon Comet Dynamo Ember Fountain Gravity Harbour Island Jungle Kingdom Lantern Meridian Nightfall "
    "Orchard Parade Quarry Railway Satellite Thunder Undertow Voyager Weather Zenith"
)
PLACES = _words("Aldermoor Bellweather Corrin Dunmarrow Eastfell Fallowgate Grenholm Hexley Inverlane Kestrel Lowmere")
FIRST_NAMES = _words(
    "Ada Bo Cleo Dov Elif Fen Gia Hal Ines Jun Kai Lior Maren Nils Odile Priya Quinn Rune Søren Tia Uma Vik Wren "
    "Yara Zoë"
)
LAST_NAMES = _words(
    "Abara Brandt Castell Dray Ekholm Farrow Gallo Hendry Ivers Jansen Kovač Lindqvist Moreau Novak Okafor Pell "
    "Rask Sato Thorne Uribe Vance Winter Yilmaz Zeller"
)
BAND_NOUNS = _words("Cassettes Foxes Gears Hours Kites Lemons Magpies Pilots Ravens Sirens Tigers Wolves")


class _Song(NamedTuple):
    checksum: bytes
    title: str
    artist: str
    charter: str
    length_s: float
    notes: int


class _Part(NamedTuple):
    """One player's part in a play."""

    player: int
    instrument: int
    difficulty: int
    engine: uuid.UUID
    modifiers: int
    notes_hit: int
    notes: int
    score: int
    stars: int
    is_replay: bool


def build_scores_db(
    directory: str | Path, *, songs: int = 300, players: int = 3_000, plays: int = 60_000, seed: int = 2_025
) -> Path:
    """Write scores.db and a folder of replays into a directory, which is made if need be. Returns the file's path.

    `plays` counts rows of PlayerScores. Some songs and players are far more popular than others. There are ties, bands,
    plays at higher speed, plays with replays, parts without notes, and rows as older versions of the game wrote them.
    Raises Conflict if there is a scores.db already: it may be somebody's own.
    """
    for name, value in (("songs", songs), ("players", players), ("plays", plays)):
        if value < 1:
            raise InvalidInput(name, value, "must be at least 1")
    directory = Path(directory)
    path = directory / "scores.db"
    if path.exists():
        raise Conflict(f"{path} exists already; it is not overwritten")
    (directory / "replays").mkdir(parents=True, exist_ok=True)
    maker = _Maker(random.Random(seed), songs, players)
    unfinished = directory / "scores.db.unfinished"
    unfinished.unlink(missing_ok=True)
    db = sqlite3.connect(unfinished)
    try:
        db.executescript(SCHEMA)
        games, scores, replays = maker.rows(plays)
        db.executemany(INSERT_GAME, games)
        db.executemany(INSERT_SCORE, scores)
        db.executemany("INSERT INTO Players VALUES(?, ?)", zip(maker.ids, maker.names, strict=True))
        db.commit()
        db.executescript(INDEXES)
    finally:
        db.close()
    for name, content in replays:
        (directory / "replays" / f"{name}.replay").write_bytes(content)
    unfinished.rename(path)  # so that what has the name is whole, also after an interruption
    return path


def engine_id(name: str) -> uuid.UUID:
    """The Guid of an engine preset: the MD5 of its name."""
    return uuid.UUID(bytes_le=hashlib.md5(name.encode(), usedforsecurity=False).digest())


def ticks(instant: datetime) -> int:
    """A naive datetime as .NET counts it: 100 ns since 0001-01-01."""
    return (instant - TICKS_EPOCH) // timedelta(microseconds=1) * 10


def single(value: float) -> float:
    """A number as single precision keeps it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


class _Maker:
    """Makes everything up, in a fixed sequence."""

    def __init__(self, chance: random.Random, songs: int, players: int) -> None:
        self._chance = chance
        self._songs = [self._song(number) for number in range(songs)]
        self.ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(players)]
        self.names = [self._player_name(number) for number in range(players)]
        self._skills = [chance.betavariate(4, 1.6) for _ in range(players)]
        self._engines = [engine_id(chance.choice(ENGINES)) for _ in range(players)]
        self._song_weights = list(accumulate(1 / (rank + 1) for rank in range(songs)))
        self._player_weights = list(accumulate(1 / (rank + 40) for rank in range(players)))

    def rows(self, plays: int) -> tuple[list[Any], list[Any], list[tuple[str, bytes]]]:
        """Rows of GameRecords and PlayerScores, and replays by file name."""
        games: list[Any] = []
        scores: list[Any] = []
        replays: dict[int, list[tuple[str, bytes]]] = {song: [] for song in SONGS_WITH_REPLAYS}
        for game_id, (date, song_number, parts) in enumerate(self._games(plays), 1):
            song = self._songs[song_number]
            name = _file_name(song, date)
            speed = single(self._chance.choice(SPEEDS))
            checksum = self._chance.randbytes(20)  # of a replay that is not at hand
            kept = replays.get(song_number)
            if kept is not None and len(kept) < REPLAYS_PER_SONG and date >= PERCENT_SINCE:
                content, checksum = replay(song, date, speed, [(self.names[part.player], part) for part in parts])
                kept.append((name, content))
            old, unflagged = date < PERCENT_SINCE, date < FLAGS_SINCE
            version = None if old else "v0.12.6" if unflagged else "v0.13.1"
            band_score = sum(part.score for part in parts)
            band_stars = min(part.stars for part in parts)
            texts = (song.title, song.artist, song.charter, name)
            with_replay = None if unflagged else int(any(part.is_replay for part in parts))
            games.append(
                (
                    game_id,
                    ticks(date),
                    song.checksum,
                    version,
                    *texts,
                    checksum,
                    band_score,
                    band_stars,
                    speed,
                    with_replay,
                )
            )
            scores += [_score_row(len(scores) + at, game_id, self.ids, part, date) for at, part in enumerate(parts, 1)]
        return games, scores, [replay for kept in replays.values() for replay in kept]

    def _games(self, plays: int) -> Iterator[tuple[datetime, int, list[_Part]]]:
        """When which song was played by whom: `plays` parts in all."""
        chance = self._chance
        sizes: list[int] = []
        left = plays
        while left:
            sizes.append(min(left, len(self.ids), chance.choice(BAND_SIZES)))
            left -= sizes[-1]
        seconds = sorted(chance.randrange(DAYS * 86_400) for _ in sizes)
        for second, size in zip(seconds, sizes, strict=True):
            song = chance.choices(range(len(self._songs)), cum_weights=self._song_weights)[0]
            date = FIRST_DAY + timedelta(seconds=second)
            members: dict[int, None] = {}
            while len(members) < size:
                members[chance.choices(range(len(self.ids)), cum_weights=self._player_weights)[0]] = None
            yield date, song, [self._part(song, player, date) for player in members]

    def _part(self, song_number: int, player: int, date: datetime) -> _Part:
        chance = self._chance
        instrument = chance.choices(INSTRUMENTS, INSTRUMENT_WEIGHTS)[0]
        difficulty = chance.choices(DIFFICULTIES, DIFFICULTY_WEIGHTS)[0]
        notes = self._songs[song_number].notes * (difficulty + 2) * (3 if instrument == VOCALS else 10) // 60
        if chance.random() < 0.002:
            notes = 0  # nothing to play
        misses = round(notes * (1 - self._skills[player]) * chance.betavariate(1, 4))
        hit = notes - misses
        highest = notes * 240
        # Where star power is used makes steps, so some of those who miss nothing tie.
        score = max(0, hit * 200 - misses * 450) + hit // 70 * 200 * chance.choice(STAR_POWER_STEPS)
        stars = 0 if not highest else sum(score >= share * highest for share in STAR_SHARES)
        modifiers = chance.choice(MODIFIERS[MODES[instrument]])
        is_replay = date >= FLAGS_SINCE and chance.random() < 0.01
        engine = self._engines[player]
        return _Part(player, instrument, difficulty, engine, modifiers, hit, notes, score, stars, is_replay)

    def _song(self, number: int) -> _Song:
        """Titles differ by their number: each pair of words once, then a part number."""
        chance = self._chance
        pairs = len(ADJECTIVES) * len(NOUNS)
        pair = number * 367 % pairs  # 367 has no divisor in common with it, so pairs come in a mixed order
        title = f"{ADJECTIVES[pair // len(NOUNS)]} {NOUNS[pair % len(NOUNS)]}"
        if number >= pairs:
            title += f", Part {number // pairs + 1}"
        shape = number % 7
        if shape == 3:
            title = f"The {title} of {chance.choice(PLACES)}"
        elif shape == 5:
            title += f" ft. {chance.choice(FIRST_NAMES)} {chance.choice(LAST_NAMES)[0]}."
        elif shape == 6:
            title = f"<color=#FFB000>{title}</color>"
        artist = chance.choice(
            (
                f"The {chance.choice(ADJECTIVES)} {chance.choice(BAND_NOUNS)}",
                f"{chance.choice(FIRST_NAMES)} {chance.choice(LAST_NAMES)}",
                f"{chance.choice(NOUNS)} & {chance.choice(NOUNS)}",
                f"{chance.choice(PLACES)} {chance.choice(BAND_NOUNS)}",
            )
        )
        charter = chance.choice(FIRST_NAMES) + chance.choice(("charts", ".mid", "", "-notes"))
        if number % 5 == 0:
            charter = f"<b>{charter}</b>"
        checksum = hashlib.sha1(f"chart {number} {title}".encode(), usedforsecurity=False).digest()
        return _Song(checksum, title, artist, charter, 120.0 + chance.randrange(240), 300 + chance.randrange(1_200))

    def _player_name(self, number: int) -> str:
        chance = self._chance
        first, last, noun = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES), chance.choice(NOUNS)
        return chance.choice(
            (
                first + noun,
                f"{first} {last}",
                f"{first}.{last[0]}",
                f"{noun.lower()}_{first.lower()}",
                f"xX_{noun}_Xx",
                f"{chance.choice(ADJECTIVES)}{noun}{number % 100:02}",
                f"DJ {noun} ft. {first}",
            )
        )


def _score_row(row: int, game_id: int, ids: Sequence[str], part: _Part, date: datetime) -> tuple[Any, ...]:
    percent = None if date < PERCENT_SINCE or part.notes == 0 else single(part.notes_hit / part.notes)
    missed = part.notes - part.notes_hit
    return (
        row,
        game_id,
        ids[part.player],
        part.instrument,
        part.difficulty,
        str(part.engine),
        part.score,
        part.stars,
        part.notes_hit,
        missed,
        int(missed == 0 and part.notes > 0),
        None if date < FLAGS_SINCE else int(part.is_replay),
        percent,
    )


def _file_name(song: _Song, date: datetime) -> str:
    text = f"{song.artist}-{song.title}-{song.charter}"
    for tag in ("<color=#FFB000>", "</color>", "<b>", "</b>"):
        text = text.replace(tag, "")
    return f"{text}-{date:%y-%m-%d-%H-%M-%S}"


# --- replays --------------------------------------------------------------------------------------------------


def replay(song: _Song, date: datetime, speed: float, band: Sequence[tuple[str, _Part]]) -> tuple[bytes, bytes]:
    """A .replay file of version 9 and the SHA-1 of its data, which scores.db keeps. `band` has names and parts, `date`
    is in UTC. Its inputs are a token few: no engine could play it."""
    data = struct.pack("<4i", 0, 0, 0, len(band)) + b"".join(_frame(name, part, speed) for name, part in band)
    data += struct.pack("<i2d", 2, 0.0, 0.016)
    checksum = hashlib.sha1(data, usedforsecurity=False).digest()
    header = struct.pack("<2i", REPLAY_VERSION, ENGINE_VERSION) + checksum
    header += _text(song.title) + _text(song.artist) + _text(song.charter) + song.checksum
    score, stars = sum(part.score for _, part in band), min(part.stars for _, part in band)
    header += struct.pack("<Qfdib", ticks(date) | LOCAL_DATE, speed, song.length_s, score, stars)
    header += struct.pack("<i", len(band)) + b"".join(_header_stats(name, part) for name, part in band)
    digest = hashlib.sha1(header, usedforsecurity=False).digest()
    return b"YAREPLAY" + digest + struct.pack("<i", len(header)) + header + data, checksum


def _header_stats(name: str, part: _Part) -> bytes:
    mode = MODES[part.instrument]
    stats = struct.pack("<B", mode) + _text(name)
    stats += struct.pack("<if3ifi", part.score, part.stars, 22, 20, 4, 3.5, 0)
    if mode == VOCALS_MODE:
        return stats + struct.pack("<2i", 0, 0)
    counts = (part.notes, part.notes_hit, 0, 9, 0) if mode == 0 else (part.notes, part.notes_hit, 0, 0)
    return stats + struct.pack(f"<{len(counts)}i", *counts)


def _frame(name: str, part: _Part, speed: float) -> bytes:
    """One player's profile, engine, statistics and inputs."""
    mode = MODES[part.instrument]
    frame = b"RPFM" + struct.pack("<i", PROFILE_VERSION) + _text(name) + part.engine.bytes_le + bytes(4 * 16)
    frame += struct.pack("<2BQB2f", part.instrument, part.difficulty, part.modifiers, 0, 6.0, 1.0)
    frame += struct.pack("<8B", 0, 1, 1, 0, 0, 0, 2, mode)
    frame += struct.pack("<3dB3d", 0.14, 0.14, 1.0, 0, 0.93, 1.0, 1.5) + struct.pack("<i2d", 4, 0.25, 0.1)
    frame += struct.pack("<i6f", 6, *STAR_SHARES) + struct.pack("<d", speed)
    if mode == VOCALS_MODE:
        frame += struct.pack("<2f2dBi", 1.7, 0.6, 0.75, 60.0, 1, 800)
    elif mode == 0:
        frame += struct.pack("<3d4B", 0.08, 0.05, 0.025, 0, 1, 0, 0)
    else:
        frame += struct.pack("<B2fB", 1, 0.35, 1.5, 0)
    frame += struct.pack("<6i", part.score, 0, part.score // 2, 0, part.score // 4, 0)
    frame += struct.pack("<6i", part.notes_hit, part.notes_hit, 4, 1, part.notes_hit, part.notes)
    frame += struct.pack("<2IdIiB2i", 0, 9_000, 31.5, 500, 4, 0, 20, 22) + struct.pack("<2i", 0, part.score // 5)
    if mode == VOCALS_MODE:
        frame += struct.pack("<2IB", 900, 100, 0)
    else:
        frame += struct.pack("<3i", 0, 0, 9) if mode == 0 else struct.pack("<6i", 0, 1, 2, 3, 4, 60)
    return frame + struct.pack("<i", 3) + b"".join(struct.pack("<d2i", 1 + at / 2, at, 1) for at in range(3))


def _text(text: str) -> bytes:
    content = text.encode()
    length, prefix = len(content), b""
    while length >= 0x80:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    return prefix + bytes([length]) + content
