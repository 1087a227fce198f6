"""CSV, JSONL and Parquet in and out, on a real store."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from laurels import Laurels
from laurels.errors import ImportFailed, InvalidInput
from laurels.games import Game
from laurels.importers.export import export_entries, export_submissions
from laurels.importers.tables import import_table

CONFIG: dict[str, Any] = {
    "games": {
        "g": {
            "dimensions": {"modifiers": {"type": "set"}, "level": {"type": "integer"}, "ranked": {"type": "boolean"}},
            "boards": {"best": {}, "songs": {"partition": ["track"]}, "exact": {"partition": ["modifiers"]}},
        }
    }
}


@pytest.fixture
async def game(url: str) -> AsyncIterator[Game]:
    async with Laurels.open(url, config=CONFIG) as laurels:
        yield laurels.game("g")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


async def test_csv_with_a_mapping(game: Game, tmp_path: Path) -> None:
    path = written(
        tmp_path / "plays.csv",
        "\ufeffwho,points,song,mods,when,Display,junk\n"
        'amy,9007199254740993,"a, b","x,y",2026-12-01T10:00:00+01:00,Amy,1\n'
        "bob,12,c,,2026-12-01T10:00:00Z,,2\n",
    )
    mapping = {
        "player_id": "who",
        "score": "points",
        "dimensions.track": "song",
        "dimensions.modifiers": "mods",
        "played_at": "when",
        "name": "Display",
    }
    told: list[tuple[int, int]] = []
    report = await import_table(game, path, mapping=mapping, progress=lambda done, total: told.append((done, total)))
    assert (report.rows, report.submitted, report.repeated, report.skipped) == (2, 2, 0, [])
    assert report.notes == ["columns that are no fields were left out: junk"]
    assert told == [(2, 2)]
    entry = (await game.board("songs", track="a, b").entry("amy")).entry
    assert (entry.score, entry.name) == (9007199254740993, "Amy")
    assert entry.submission is not None
    assert entry.submission.dimensions["modifiers"] == {"x", "y"}
    assert entry.submission.played_at is not None
    assert entry.submission.played_at.hour == 9
    assert await game.board("exact", modifiers=[]).count() == 1
    again = await import_table(game, path, mapping=mapping)
    assert (again.submitted, again.repeated) == (0, 2)
    assert len(await game.history("amy")) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("amy,1.5.2,", "must be a number"),
        ("amy,1.5,", "0 decimal digits"),
        ("amy,9223372036854775808,", "must be from"),
        (",5,", "player_id"),
        ("amy,,", "score"),
        ("amy,5,yesterday", "ISO 8601"),
        ("amy,5,2026-12-01T10:00", "no offset"),
        ("amy,5,2026-12-01T10:00Z,more", "another number of cells"),
        ("amy,nan,", "finite"),
    ],
)
async def test_a_bad_row_ends_the_import(game: Game, tmp_path: Path, row: str, reason: str) -> None:
    good = "".join(f"p{n},{n},\n" for n in range(1_500))
    path = written(tmp_path / "plays.csv", f"player_id,score,played_at\n{good}{row}\nzoe,1,\n")
    with pytest.raises(ImportFailed, match=reason) as failed:
        await import_table(game, path)
    assert failed.value.row == 1_502
    assert str(path) in str(failed.value)
    assert await game.board("best").count() == 0
    if "cells" not in reason:
        report = await import_table(game, path, skip_bad=True)
        assert [(bad.row, report.rows, report.submitted) for bad in report.skipped] == [(1_502, 1_502, 1_501)]
        assert reason in report.skipped[0].reason


async def test_a_dry_run_changes_nothing(game: Game, tmp_path: Path) -> None:
    path = written(tmp_path / "plays.csv", "player_id,score\namy,5\n")
    report = await import_table(game, path, dry_run=True)
    assert (report.rows, report.submitted) == (1, 0)
    assert await game.board("best").count() == 0


async def test_jsonl_keeps_numbers_exactly(game: Game, tmp_path: Path) -> None:
    path = written(
        tmp_path / "plays.jsonl",
        '{"player_id": "amy", "score": 1009651914519660511, "metrics": {"accuracy": 94.780000000000000001}}\n\n'
        '{"player_id": "bob", "score": 7, "dimensions": {"modifiers": ["b", "a"], "level": 3, "ranked": true}}\n',
    )
    report = await import_table(game, path)
    assert report.submitted == 2
    amy, bob = [(await game.history(name)).items[0] for name in ("amy", "bob")]
    assert (amy.score, amy.metrics) == (1009651914519660511, {"accuracy": Decimal("94.780000000000000001")})
    assert bob.dimensions == {"modifiers": frozenset("ab"), "level": 3, "ranked": True}


@pytest.mark.parametrize(
    "text", ["not json\n", "[1]\n", '{"player_id": "amy"\n', '{"player_id": "a", "score": true}\n']
)
async def test_broken_jsonl_names_the_line(game: Game, tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "plays.jsonl", '{"player_id": "amy", "score": 1}\n' + text)
    with pytest.raises(ImportFailed) as failed:
        await import_table(game, path)
    assert failed.value.row == 2
    assert await game.board("best").count() == 0


async def test_missing_and_unknown_files(game: Game, tmp_path: Path) -> None:
    for name in ("none.csv", "none.jsonl", "none.parquet"):
        with pytest.raises(ImportFailed, match="can't be read"):
            await import_table(game, tmp_path / name)
    with pytest.raises(InvalidInput, match="csv, jsonl or parquet"):
        await import_table(game, written(tmp_path / "plays.txt", ""))
    with pytest.raises(InvalidInput, match="mapping"):
        await import_table(game, written(tmp_path / "plays.csv", ""), mapping={"points": "score"})
    with pytest.raises(ImportFailed, match="not Parquet"):
        await import_table(game, written(tmp_path / "plays.parquet", "hello"))
    (tmp_path / "latin.csv").write_bytes(b"player_id,score\n\xe4,1\n")
    with pytest.raises(ImportFailed, match="UTF-8"):
        await import_table(game, tmp_path / "latin.csv")


async def play(game: Game) -> None:
    players = [f"p{n % 700}" for n in range(2_500)]
    await game.submit_many(
        players,
        list(range(2_500)),
        dimensions={"track": ["a", "b", None] * 833 + ["a"], "modifiers": [frozenset(["x"]), frozenset()] * 1_250},
        metrics={"accuracy": [Decimal(n).scaleb(-2) for n in range(2_500)]},
        submission_ids=[f"id-{n}" if n % 2 else None for n in range(2_500)],
    )
    await game.describe("player_id", {"p1": {"name": "Player «one»"}})


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
async def test_export_and_import_give_the_same_boards(game: Game, tmp_path: Path, suffix: str, url: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    await play(game)
    path = tmp_path / f"out.{suffix}"
    told: list[int] = []
    assert await export_submissions(game, path, told.append) == 2_500
    assert told[-1] == 2_500
    assert [p.name for p in tmp_path.iterdir() if "out" in p.name] == [path.name]
    async with Laurels.open(url + ".second", config=CONFIG) as laurels:
        second = laurels.game("g")
        report = await import_table(second, path)
        assert (report.rows, report.submitted, report.skipped) == (2_500, 2_500, [])
        for name, partition in (("best", {}), ("songs", {"track": "a"}), ("exact", {"modifiers": ["x"]})):
            theirs = await second.board(name, **partition).top(1_000)
            ours = await game.board(name, **partition).top(1_000)
            assert [(e.rank, e.player_id, e.score) for e in theirs] == [(e.rank, e.player_id, e.score) for e in ours]
        (first,), (other,) = [(await one.history("p5", limit=1)).items for one in (game, second)]
        assert (first.dimensions, first.metrics) == (other.dimensions, other.metrics)
        again = await import_table(second, path)
        assert again.submitted == 0


async def test_entries_are_exported_in_order(game: Game, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    await play(game)
    assert await export_entries(game.board("best"), tmp_path / "best.parquet") == 700
    table = parquet.read_table(tmp_path / "best.parquet").to_pydict()
    assert table["position"] == list(range(1, 701))
    assert table["score"] == sorted(table["score"], reverse=True)
    with pytest.raises(InvalidInput, match="jsonl"):
        await export_entries(game.board("best"), tmp_path / "best.txt")
    assert await export_entries(game.board("songs", track="none"), tmp_path / "none.jsonl") == 0


async def test_floats_of_parquet(game: Game, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    whole = pyarrow.table({"player_id": ["amy"], "score": [5.0], "metrics.accuracy": [94.78]})
    await asyncio.to_thread(parquet.write_table, whole, tmp_path / "whole.parquet")
    await import_table(game, tmp_path / "whole.parquet")
    assert (await game.history("amy")).items[0].metrics == {"accuracy": Decimal("94.78")}
    broken = pyarrow.table({"player_id": ["amy"], "score": [5.5]})
    await asyncio.to_thread(parquet.write_table, broken, tmp_path / "broken.parquet")
    with pytest.raises(ImportFailed, match="float"):
        await import_table(game, tmp_path / "broken.parquet")
