"""Replays of every version that is read, and everything that is none."""

import hashlib
import struct
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels.importers.yarg_replay import (
    FILE_BYTES_MAX,
    VERSIONS_IN_DEPTH,
    ReplayError,
    header_bytes,
    read_header,
    read_replay,
)

PROFILE_VERSIONS = {8: 4, 9: 6, 10: 6, 11: 6, 12: 7, 13: 7, 14: 8, 15: 8, 16: 8, 17: 9, 18: 9}
WHEN = datetime(2025, 10, 26, 0, 30)
TICKS = (WHEN - datetime(1, 1, 1)) // timedelta(microseconds=1) * 10
LOCAL = 2 << 62
ENGINE = bytes(range(16))
BAND: list[dict[str, Any]] = [
    {
        "name": "Zoë ft. a.b",
        "mode": 0,
        "instrument": 0,
        "difficulty": 4,
        "modifiers": 1 << 0 | 1 << 10,
        "score": 120_000,
    },
    {"name": "drums", "mode": 5, "instrument": 21, "difficulty": 3, "modifiers": 1 << 6, "score": 80_000},
    {"name": "singer", "mode": 15, "instrument": 40, "difficulty": 2, "modifiers": 0, "score": 60_000},
]
KEYS: dict[str, Any] = {"name": "k", "mode": 11, "instrument": 34, "difficulty": 5, "modifiers": 2**63, "score": 1}


def text(value: str) -> bytes:
    content = value.encode()
    length, prefix = len(content), b""
    while length >= 0x80:
        prefix, length = prefix + bytes([length & 0x7F | 0x80]), length >> 7
    return prefix + bytes([length]) + content


def profile(version: int, player: dict[str, Any]) -> bytes:
    out = struct.pack("<i", version) + text(player["name"]) + ENGINE + bytes(16 * 4)
    out += struct.pack("<BBQ", player["instrument"], player["difficulty"], player["modifiers"])
    out += struct.pack("<BffBB4B", 0, 6.0, 1.0, 0, 1, 1, 0, 0, 0)
    if version >= 5:
        out += bytes([2])
    if version >= 6:
        out += bytes([player["mode"]])
    if version >= 7:
        out += bytes([0])
    if version >= 8:
        out += bytes([4, 4, 5, 6, 7]) + bytes([0]) + bytes([2, 1, 1])
    if version >= 9:
        out += bytes(16)
    return out


def parameters(version: int, mode: int) -> bytes:
    out = bytes(3 * 8 + 1 + 3 * 8) + bytes(8 * (version >= 12)) + bytes(8 * (version >= 15)) + bytes(4 + 16)
    for _ in range(1 + (version >= 13)):
        out += struct.pack("<i6f", 6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    out += bytes(8 + (version >= 10))
    own = {0: 27, 5: 9, 11: 16, 15: 29}[mode]
    return out + bytes(own + (version >= 9 and mode != 15))


def stats(version: int, player: dict[str, Any]) -> bytes:
    out = struct.pack("<i", player["score"]) + bytes(4 * 4) + bytes(4 * (version >= 9))
    out += bytes(12) + bytes(4 * (version >= 9)) + bytes(8) + bytes(4 + 4 + 8 + 4 + 4 + 1 + 4 + 4)
    out += bytes(4 * (version >= 17)) + bytes(8) + bytes(4 * (version >= 16))
    return out + bytes({0: 12, 5: 24, 11: 8, 15: 9}[player["mode"]])


def data_of(version: int, band: list[dict[str, Any]]) -> bytes:
    out = struct.pack("<i", 0)
    for _ in range(2 + (version >= 17)):
        out += struct.pack("<i", 1) + bytes(16) + text('{"Name": "' + "x" * 200 + '"}')
    out += bytes(version >= 17) + struct.pack("<i", len(band))
    for player in band:
        out += b"RPFM" + profile(PROFILE_VERSIONS.get(version, 9), player)
        out += parameters(version, player["mode"]) + stats(version, player)
        out += struct.pack("<i", 2) + bytes(2 * 16)
    return out + struct.pack("<i2d", 2, 0.0, 0.016)


def header_of(version: int, band: list[dict[str, Any]], data: bytes, date: int = TICKS | LOCAL) -> bytes:
    out = struct.pack("<ii", version, 4) + hashlib.sha1(data).digest()
    out += text("Song") + text("Artist") + text("Charter") + bytes([7]) * 20
    out += struct.pack("<Qfdib", date, 1.25, 180.0, 260_000, 5)
    if version > 10:
        out += struct.pack("<i2d", 1, 12.5, 3.0)
    if version >= 18:
        out += bytes([0])
    out += struct.pack("<i", len(band))
    for player in band:
        out += bytes([player["mode"]]) + text(player["name"]) + struct.pack("<if3i", player["score"], 5.5, 22, 20, 4)
        out += bytes(8 * (version <= 15)) + bytes(version >= 14)
        out += bytes(4 * {0: 5, 5: 4, 11: 4, 15: 2}[player["mode"]])
    return out


def sealed(header: bytes, data: bytes) -> bytes:
    return b"YAREPLAY" + hashlib.sha1(header).digest() + struct.pack("<i", len(header)) + header + data


def replay_of(version: int, band: list[dict[str, Any]], **header: Any) -> bytes:
    data = data_of(version, band)
    return sealed(header_of(version, band, data, **header), data)


@pytest.mark.parametrize("version", VERSIONS_IN_DEPTH)
def test_every_version_tells_who_played_what(version: int) -> None:
    replay = read_replay(replay_of(version, BAND))
    header = replay.header
    assert (header.version, header.song, header.artist, header.charter) == (version, "Song", "Artist", "Charter")
    assert (header.song_checksum, header.date_ticks, header.band_score) == (bytes([7]) * 20, TICKS, 260_000)
    assert (header.speed, header.length_s, header.band_stars) == (1.25, 180.0, 5)
    assert header.scores == (120_000, 80_000, 60_000)
    assert replay.players is not None
    for player, expected in zip(replay.players, BAND, strict=True):
        assert {name: getattr(player, name) for name in expected if name != "mode"} == {
            name: value for name, value in expected.items() if name != "mode"
        }
        assert player.engine == ENGINE


@pytest.mark.parametrize("version", VERSIONS_IN_DEPTH)
def test_pro_keys_are_told_by_the_instrument_in_old_profiles(version: int) -> None:
    replay = read_replay(replay_of(version, [KEYS, BAND[0]]))
    assert replay.players is not None
    assert [player.modifiers for player in replay.players] == [2**63, BAND[0]["modifiers"]]


@pytest.mark.parametrize("version", [6, 7, 19, 1_000])
def test_other_versions_tell_only_what_their_header_says(version: int) -> None:
    header = header_of(version, [], b"data of another layout") + b"and more"
    replay = read_replay(sealed(header, b"data of another layout"))
    assert (replay.header.version, replay.header.date_ticks, replay.players) == (version, TICKS, None)


def test_the_header_is_read_from_the_start_of_a_file() -> None:
    content = replay_of(9, BAND)
    end = header_bytes(content[:32])
    assert read_header(content[:end]) == read_replay(content).header
    with pytest.raises(ReplayError, match="ends within the header"):
        read_header(content[: end - 1])


def test_a_date_of_an_unknown_zone_is_not_taken_for_utc() -> None:
    assert read_replay(replay_of(9, BAND, date=TICKS)).header.date_ticks is None
    assert read_replay(replay_of(9, BAND, date=TICKS | 1 << 62)).header.date_ticks == TICKS  # of kind UTC


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a YARG replay"),
        (b"SQLite format 3\0", "not a YARG replay"),
        (b"YARGPLAY" + bytes(100), "YARGPLAY"),
        (b"YAREPLAY", "ends within the header"),
        (b"YAREPLAY" + bytes(20) + struct.pack("<i", -1) + bytes(100), "its length is -1"),
        (b"YAREPLAY" + bytes(20) + struct.pack("<i", 2**31 - 1) + bytes(100), "its length is"),
        (b"YAREPLAY" + bytes(20) + struct.pack("<i", 50) + bytes(100), "checksum"),
        (sealed(header_of(5, [], b""), b""), "version 5"),
        (sealed(header_of(9, BAND, b"data") + b"!", b"data"), "1 bytes too many"),
        (bytes(FILE_BYTES_MAX + 1), "larger than"),
    ],
)
def test_what_is_no_replay_is_refused_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(ReplayError, match=reason):
        read_replay(content)


def test_one_changed_byte_is_noticed() -> None:
    content = replay_of(9, BAND)
    for at in (40, len(content) - 1):
        changed = bytearray(content)
        changed[at] ^= 1
        with pytest.raises(ReplayError, match="checksum"):
            read_replay(bytes(changed))


@given(
    version=st.sampled_from(list(VERSIONS_IN_DEPTH)),
    edits=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=4),
    header_cut=st.integers(0, 400),
    data_cut=st.integers(0, 4_000),
    seal=st.booleans(),
)
def test_damage_never_raises_anything_else(
    version: int, edits: list[tuple[int, int]], header_cut: int, data_cut: int, seal: bool
) -> None:
    """With `seal` the checksums are made right again, so that the damage gets past them."""
    data = bytearray(data_of(version, BAND))
    header = bytearray(header_of(version, BAND, bytes(data)))
    for at, value in edits:
        data[at % len(data)] = value
        header[at % len(header)] = value
    data = data[: len(data) - data_cut if data_cut < len(data) else None]
    header = header[: len(header) - header_cut if header_cut < len(header) else None]
    if seal and len(header) > 28:
        header[8:28] = hashlib.sha1(data).digest()
    content = sealed(bytes(header), bytes(data)) if seal else bytes(header) + bytes(data)
    with suppress(ReplayError):
        read_replay(content)


@given(st.binary(max_size=300))
def test_garbage_never_raises_anything_else(garbage: bytes) -> None:
    for content in (garbage, b"YAREPLAY" + garbage, sealed(garbage, b"")):
        with pytest.raises(ReplayError):
            read_replay(content)
