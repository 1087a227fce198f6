"""Reading YARG's .replay files: what was played when, by whom, with which modifiers. Pure: bytes in, structs out.

A file is the 8 bytes YAREPLAY, the SHA-1 of the header, the header's length, the header, and the data up to the end;
the header holds the SHA-1 of the data. Everything is little-endian; text has its length before it, 7 bits a byte.
Inputs are skipped: playing them again is the game's business.
"""

import hashlib
import struct
from typing import Any, Final

from msgspec import Struct

MAGIC: Final = b"YAREPLAY"
MAGIC_OLD: Final = b"YARGPLAY"
VERSION_MIN: Final = 6  # below it even the header is laid out in another way
VERSIONS_IN_DEPTH: Final = range(8, 19)
FILE_BYTES_MAX: Final = 32 * 2**20
HEADER_BYTES_MAX: Final = 2**20
HEADER_START: Final = len(MAGIC) + 20 + 4
PLAYERS_MAX: Final = 255
DATE_TICKS_BITS: Final = 62  # the two highest bits of a .NET date say its kind; 0: local time of an unknown zone
PROFILE_VERSION_MAX: Final = 9

FIVE_FRET, SIX_FRET, PRO_GUITAR, PRO_KEYS, VOCALS = 0, 1, 10, 11, 15
DRUMS = (5, 6, 7)
MODES_OF_INSTRUMENTS = {0: FIVE_FRET, 1: SIX_FRET, 2: 5, 4: VOCALS}  # by tens; for profiles that do not say it
GUITAR_PARAMETERS, DRUMS_PARAMETERS, KEYS_PARAMETERS = 3 * 8 + 3, 1 + 2 * 4, 2 * 8
VOCALS_PARAMETERS = 2 * 4 + 2 * 8 + 1 + 4
STATS_BYTES = {FIVE_FRET: 12, SIX_FRET: 12, 5: 24, 6: 24, 7: 24, PRO_KEYS: 8, VOCALS: 9}
HEADER_STATS_NUMBERS = {FIVE_FRET: 5, SIX_FRET: 5, 5: 4, 6: 4, 7: 4, PRO_KEYS: 4, VOCALS: 2}
INPUT_BYTES = 8 + 4 + 4


class ReplayError(Exception):
    """Not a replay, damaged, or of a kind that can't be read. The message says which."""


class ReplayHeader(Struct, frozen=True, kw_only=True):
    """What the header says. `date_ticks` counts 100 ns since 0001-01-01T00:00 UTC (None: the file does not tell UTC);
    `speed` is 1.0 for 100 %; `names` and `scores` are of the players in turn (empty for versions that are not read in
    depth)."""

    version: int
    engine_version: int
    data_checksum: bytes
    song: str
    artist: str
    charter: str
    song_checksum: bytes
    date_ticks: int | None
    speed: float
    length_s: float
    band_score: int
    band_stars: int
    names: tuple[str, ...] = ()
    scores: tuple[int, ...] = ()


class ReplayPlayer(Struct, frozen=True, kw_only=True):
    """One player's profile as it was then. `engine` is the Guid of the engine preset, `modifiers` the set as bits."""

    name: str
    engine: bytes
    instrument: int
    difficulty: int
    modifiers: int
    score: int


class Replay(Struct, frozen=True, kw_only=True):
    """A replay. `players` is None for versions of which only the header is read."""

    header: ReplayHeader
    players: tuple[ReplayPlayer, ...] | None


def read_header(head: bytes) -> ReplayHeader:
    """The header from the first bytes of a file: as many as `header_bytes` says, or more. Its SHA-1 is checked.

    Raises ReplayError.
    """
    end = header_bytes(head)
    if len(head) < end:
        raise ReplayError("the file ends within the header")
    header = head[HEADER_START:end]
    if hashlib.sha1(header, usedforsecurity=False).digest() != head[len(MAGIC) : len(MAGIC) + 20]:
        raise ReplayError("the header is damaged: its checksum is wrong")
    return _header(_Reader(header))


def header_bytes(head: bytes) -> int:
    """How long a file's part up to the end of its header is, from its first HEADER_START bytes. Raises ReplayError."""
    if head.startswith(MAGIC_OLD):
        raise ReplayError("replays of this old kind (YARGPLAY) can't be read")
    if not head.startswith(MAGIC):
        raise ReplayError("not a YARG replay")
    if len(head) < HEADER_START:
        raise ReplayError("the file ends within the header")
    length: int = struct.unpack_from("<i", head, HEADER_START - 4)[0]
    if not 0 < length <= HEADER_BYTES_MAX:
        raise ReplayError(f"the header is damaged: its length is {length}")
    return HEADER_START + length


def read_replay(content: bytes) -> Replay:
    """A whole replay, both checksums checked. Raises ReplayError."""
    if len(content) > FILE_BYTES_MAX:
        raise ReplayError(f"larger than {FILE_BYTES_MAX} bytes")
    header = read_header(content)
    data = content[header_bytes(content) :]
    if hashlib.sha1(data, usedforsecurity=False).digest() != header.data_checksum:
        raise ReplayError("the data is damaged: its checksum is wrong")
    if header.version not in VERSIONS_IN_DEPTH:
        return Replay(header=header, players=None)
    return Replay(header=header, players=_players(_Reader(data), header))


def _header(reader: "_Reader") -> ReplayHeader:
    version, engine_version = reader.int32(), reader.int32()
    if version < VERSION_MIN:
        raise ReplayError(f"replays of version {version} can't be read")
    fixed: dict[str, Any] = {
        "version": version,
        "engine_version": engine_version,
        "data_checksum": reader.take(20),
        "song": reader.text(),
        "artist": reader.text(),
        "charter": reader.text(),
        "song_checksum": reader.take(20),
        "date_ticks": _utc_ticks(reader.number("Q")),
        "speed": reader.number("f"),
        "length_s": reader.number("d"),
        "band_score": reader.int32(),
        "band_stars": reader.number("b"),
    }
    if version not in VERSIONS_IN_DEPTH:
        return ReplayHeader(**fixed)
    if version > 10:
        reader.take(16 * reader.count(16))  # pauses
    if version >= 18:
        reader.take(1)  # censorship
    names, scores = [], []
    for _ in range(reader.count(1, PLAYERS_MAX)):
        mode = reader.byte()
        names.append(reader.text())
        scores.append(reader.int32())
        reader.take(4 + 3 * 4)  # stars, star power
        if version <= 15:
            reader.take(8)  # average multiplier, pauses
        if version >= 14:
            reader.take(1)  # whether the player was a replay
        reader.take(4 * _of_mode(HEADER_STATS_NUMBERS, mode))
    reader.end()
    return ReplayHeader(**fixed, names=tuple(names), scores=tuple(scores))


def _utc_ticks(date: int) -> int | None:
    return date & (1 << DATE_TICKS_BITS) - 1 if date >> DATE_TICKS_BITS else None


def _players(reader: "_Reader", header: ReplayHeader) -> tuple[ReplayPlayer, ...]:
    version = header.version
    reader.take(4)  # version of the presets
    for _ in range(3 if version >= 17 else 2):  # colours, cameras, rock meters
        for _ in range(reader.count(17)):
            reader.take(16)
            reader.text()
    if version >= 17:
        reader.take(1)  # no-fail
    count = reader.count(1, PLAYERS_MAX)
    if count != len(header.names):
        raise ReplayError(f"the header names {len(header.names)} players, the data holds {count}")
    players = []
    for number in range(count):
        if reader.take(4) != b"RPFM":
            raise ReplayError("a player's part does not start where it should")
        player, mode = _profile(reader, header.scores[number])
        players.append(player)
        _skip_parameters(reader, version, mode)
        _skip_stats(reader, version, mode)
        reader.take(INPUT_BYTES * reader.count(INPUT_BYTES))
    reader.take(8 * reader.count(8))  # when frames were drawn
    reader.end()
    return tuple(players)


def _profile(reader: "_Reader", score: int) -> tuple[ReplayPlayer, int]:
    """A player's profile, and the mode of play."""
    version = reader.int32()
    if not 0 < version <= PROFILE_VERSION_MAX:
        raise ReplayError(f"profiles of version {version} can't be read")
    name, engine = reader.text(), reader.take(16)
    reader.take(16 * (4 if version >= 2 else 3))  # theme, colours, camera, highway
    instrument, difficulty, modifiers = reader.byte(), reader.byte(), reader.number("Q")
    reader.take(1 + 2 * 4 + 1)  # harmony, note speed, highway length, left-handed
    reader.take((version >= 3) + 4 * (version >= 4) + (version >= 5))
    mode = reader.byte() if version >= 6 else MODES_OF_INSTRUMENTS.get(instrument // 10, PRO_GUITAR)
    if version < 6 and instrument == 34:
        mode = PRO_KEYS
    reader.take(version >= 7)
    if version >= 8:
        for _ in range(3):
            reader.take(reader.byte())
    reader.take(16 * (version >= 9))
    player = ReplayPlayer(
        name=name, engine=engine, instrument=instrument, difficulty=difficulty, modifiers=modifiers, score=score
    )
    return player, mode


def _skip_parameters(reader: "_Reader", version: int, mode: int) -> None:
    reader.take(3 * 8 + 1 + 3 * 8 + 8 * (version >= 12) + 8 * (version >= 15))  # the hit window
    reader.take(4 + 2 * 8)
    for _ in range(2 if version >= 13 else 1):
        reader.take(4 * reader.count(4))  # what stars take
    reader.take(8 + (version >= 10))
    sizes = {FIVE_FRET: GUITAR_PARAMETERS, SIX_FRET: GUITAR_PARAMETERS, PRO_KEYS: KEYS_PARAMETERS}
    sizes |= dict.fromkeys(DRUMS, DRUMS_PARAMETERS) | {VOCALS: VOCALS_PARAMETERS}
    reader.take(_of_mode(sizes, mode) + (version >= 9 and mode != VOCALS))


def _skip_stats(reader: "_Reader", version: int, mode: int) -> None:
    reader.take(4 * (5 + (version >= 9)) + 4 * (3 + (version >= 9)) + 2 * 4)  # scores, combos, notes
    reader.take(2 * 4 + 8 + 2 * 4 + 1 + 2 * 4)  # star power
    reader.take(4 * (version >= 17) + 2 * 4 + 4 * (version >= 16))
    reader.take(_of_mode(STATS_BYTES, mode))


def _of_mode(sizes: dict[int, int], mode: int) -> int:
    if mode not in sizes:
        raise ReplayError(f"mode of play {mode} can't be read")
    return sizes[mode]


class _Reader:
    """Reads on through bytes; whatever they are, it raises nothing but ReplayError."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._content):
            raise ReplayError("ends too early")
        piece = self._content[self._at : end]
        self._at = end
        return piece

    def number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def int32(self) -> int:
        return int(self.number("i"))

    def byte(self) -> int:
        return self.take(1)[0]

    def count(self, bytes_each: int, most: int = FILE_BYTES_MAX) -> int:
        """How many things of at least so many bytes follow; never more than there is room for."""
        count = self.int32()
        if not 0 <= count <= min(most, (len(self._content) - self._at) // bytes_each):
            raise ReplayError(f"a count of {count} can't be right")
        return count

    def text(self) -> str:
        length = shift = 0
        while True:
            byte = self.byte()
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise ReplayError("a text's length can't be right")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise ReplayError("a text is not UTF-8") from None

    def end(self) -> None:
        if self._at != len(self._content):
            raise ReplayError(f"{len(self._content) - self._at} bytes too many")
