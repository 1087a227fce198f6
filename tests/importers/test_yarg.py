"""YARG's scores through the whole way: a file in, boards out."""

import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from laurels import Laurels
from laurels.importers import yarg_demo
from laurels.importers.yarg import import_scores
from laurels.importers.yarg_game import GAME
from laurels.model import Entry

CONFIG = {"games": {"yarg": GAME}}
AMY = "0f0e0d0c-0b0a-4908-8706-050403020100"
BOB = "11111111-2222-4333-8444-555555555555"
SONG = bytes(range(20))
TRACK = SONG.hex().upper()
EVENING = datetime(2025, 9, 1, 20, 30)
GUITAR, KEYS = 0, 4


def write_scores(path: Path, plays: list[tuple[str, int, int, float]]) -> Path:
    """A scores.db of one song with plays (player, instrument, score, percent), a minute apart."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(yarg_demo.SCHEMA)
        db.executemany("INSERT INTO Players VALUES(?, ?)", [(AMY, "a.my"), (BOB, "x ft. ünï")])
        for number, (player, instrument, score, percent) in enumerate(plays, 1):
            date = yarg_demo.ticks(EVENING + timedelta(minutes=number))
            texts = ("v0.13.1", "<b>Song</b> ft. y", "../x", "a#b")
            db.execute(
                yarg_demo.INSERT_GAME,
                (number, date, SONG, *texts, None, None, score, 5, struct.unpack("f", b"\0\0\x80?")[0], 0),
            )
            engine = str(yarg_demo.engine_id("Default"))
            row = (number, number, player, instrument, 4, engine, score, 5, 900, 100, 0, 0, percent)
            db.execute(yarg_demo.INSERT_SCORE, row)
        db.commit()
    return path


async def top(game: Any, board: str, instrument: str = "five_fret_guitar", **partition: Any) -> list[Entry]:
    return list(await game.board(board, track_id=TRACK, instrument=instrument, difficulty="expert", **partition).top())


async def test_best_score_and_best_percent_are_two_plays(url: str, tmp_path: Path) -> None:
    plays = [(AMY, GUITAR, 120_000, 0.91), (AMY, GUITAR, 118_000, 0.995), (AMY, KEYS, 130_000, 0.8)]
    path = write_scores(tmp_path / "scores.db", plays)
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("yarg")
        await import_scores(game, path, zone="UTC")
        (by_score,) = await top(game, "song")
        (by_percent,) = await top(game, "song_percent")
        (keys,) = await top(game, "song", "keys")
        assert by_score.submission is not None
        assert by_percent.submission is not None
        assert (by_score.score, by_score.submission.metrics["percent"]) == (120_000, Decimal("91.0000"))
        assert (by_percent.order["percent"], by_percent.submission.score) == (Decimal("99.5000"), 118_000)
        assert (keys.score, keys.name) == (130_000, "a.my")


async def test_importing_twice_changes_nothing(new_url: Callable[[], str], tmp_path: Path) -> None:
    path = yarg_demo.build_scores_db(tmp_path / "scores", songs=8, players=40, plays=1_500)
    async with Laurels.open(new_url(), config=CONFIG) as laurels:
        game = laurels.game("yarg")
        first = await import_scores(game, path, zone="UTC")
        assert first.rows == first.submitted + sum(first.left_out.values()) == 1_500
        before = {name: await boards_of(game, name) for name in GAME.boards}
        assert all(before.values())
        again = await import_scores(game, path, zone="UTC")
        assert (again.submitted, again.repeated) == (0, first.submitted)
        assert {name: await boards_of(game, name) for name in GAME.boards} == before
        assert (await laurels.verify()).ok


async def boards_of(game: Any, name: str) -> dict[str, list[Entry]]:
    return {
        repr(sorted(found.instance.partition.items(), key=str)): list(
            await game.board(name, **found.instance.partition).top(limit=100)
        )
        for found in await game.instances(name)
    }


async def test_whoever_got_there_first_stays_ahead(url: str, tmp_path: Path) -> None:
    path = write_scores(
        tmp_path / "scores.db", [(BOB, GUITAR, 100, 0.5), (AMY, GUITAR, 100, 0.5), (BOB, GUITAR, 100, 0.5)]
    )
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("yarg")
        await import_scores(game, path, zone="UTC")
        assert [entry.player_id for entry in await top(game, "song")] == [BOB, AMY]
        assert [entry.position for entry in await top(game, "song_percent")] == [1, 2]


async def test_names_with_dots_are_found(url: str, tmp_path: Path) -> None:
    path = write_scores(tmp_path / "scores.db", [(BOB, GUITAR, 100, 0.5)])
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("yarg")
        await import_scores(game, path, zone="UTC")
        assert (await game.player(BOB)).name == "x ft. ünï"
        assert await game.descriptions("track_id", [TRACK]) == {
            TRACK: {"title": "Song ft. y", "artist": "../x", "charter": "a#b"}
        }


@pytest.mark.parametrize("modifiers", [frozenset(), ["none"], "no-modifiers"])
async def test_boards_by_modifiers_hold_plays_with_a_replay(url: str, tmp_path: Path, modifiers: Any) -> None:
    path = yarg_demo.build_scores_db(tmp_path / "scores", songs=2, players=40, plays=800)
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("yarg")
        await import_scores(game, path, zone="UTC")
        found = max(await game.instances("community"), key=lambda info: info.entries)
        assert found.entries > 3
        entries = list(await game.board("community", **found.instance.partition).top())
        for entry in entries:
            assert entry.submission is not None
            assert entry.submission.dimensions["modifiers"] <= {"all_strums", "taps_to_hopos", "no_dynamics"}  # type: ignore[operator]
        song = {name: value for name, value in found.instance.partition.items() if name != "engine"}
        exact = list(await game.board("song_exact", **song, modifiers=modifiers).top())
        assert exact
        assert all(entry.submission.dimensions["modifiers"] == frozenset() for entry in exact if entry.submission)
