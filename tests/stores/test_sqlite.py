"""What only the embedded engine does: one file, one owner, and what becomes of damage and full disks."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from laurels import Laurels
from laurels.answers import Answers
from laurels.errors import (
    InvalidInput,
    StoreDamaged,
    StoreFull,
    StoreOwned,
    StoreReadOnly,
    StoreUnavailable,
    StoreVersion,
    Unauthenticated,
)

CONFIG: dict[str, Any] = {"games": {"g": {"boards": {"best": {}, "total": {"policy": "sum"}}}}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scores.db"


async def fill(path: Path, rows: int = 5_000) -> None:
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG) as laurels:
        await laurels.game("g").submit_many([f"p{n:05}" for n in range(rows)], list(range(rows)))


# --- owner ------------------------------------------------------------------------------------------------------


async def test_second_process_is_told_the_owner(path: Path) -> None:
    await fill(path, 10)
    code = (
        "import asyncio, sys\nfrom laurels import Laurels\n"
        "async def main():\n"
        f"    async with Laurels.open('sqlite:///{path}'):\n"
        "        print('open', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(StoreOwned, match=f"process {owner.pid} on .* since"):
            async with Laurels.open(f"sqlite:///{path}"):
                pass
        async with Laurels.open(f"sqlite:///{path}", read_only=True) as laurels:
            assert await laurels.game("g").board("best").count() == 10
        owner.communicate()
    async with Laurels.open(f"sqlite:///{path}") as laurels:  # it has gone: the file is free
        assert await laurels.game("g").board("best").count() == 10
    assert not path.with_name("scores.db-owner").exists()


async def test_same_process_can_not_open_twice(path: Path) -> None:
    async with Laurels.open(f"sqlite:///{path}"):
        with pytest.raises(StoreOwned):
            async with Laurels.open(f"sqlite:///{path}"):
                pass


async def test_reader_follows_the_writer(path: Path) -> None:
    await fill(path, 10)
    url = f"sqlite:///{path}"
    async with Laurels.open(url) as writer, Laurels.open(url, read_only=True) as reader:
        board = reader.game("g").board("best")
        assert await board.count() == 10
        await writer.game("g").submit("new", 99)
        assert (await board.entry("new")).entry.rank == 1
        assert len(await reader.game("g").history("new")) == 1
        await writer.game("g").ban("new")
        assert await board.count() == 10
        assert (await reader.verify()).problems == []
        with pytest.raises(StoreReadOnly):
            await reader.game("g").submit("new", 100)
        with pytest.raises(StoreReadOnly):
            await reader.game("g").ban("p00001")


# --- what can't be opened ---------------------------------------------------------------------------------------


async def test_newer_version_is_refused(path: Path) -> None:
    await fill(path, 10)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreVersion, match=r"newer Laurels .*99"):
        async with Laurels.open(f"sqlite:///{path}"):
            pass


async def test_a_file_of_an_earlier_version_gets_what_it_lacks(path: Path) -> None:
    await fill(path, 10)
    with sqlite3.connect(path) as db:
        db.executescript("DROP TABLE keys; DROP TABLE secrets; PRAGMA user_version = 1")
    db.close()
    url = f"sqlite:///{path}"
    async with Laurels.open(url, read_only=True) as laurels:
        assert laurels.keys() == []
        board = laurels.game("g").board("best")
        page = await board.page(5)
        assert len(await board.page(5, cursor=page.next)) == 5  # cursors that last until it is closed
        with pytest.raises(StoreReadOnly):
            await laurels.create_key("read", "g")
    async with Laurels.open(url) as laurels:
        key, _ = await laurels.create_key("read", "g")
        page = await laurels.game("g").board("best").page(5)
    async with Laurels.open(url, read_only=True) as laurels:
        assert laurels.keys() == [key]
        assert len(await laurels.game("g").board("best").page(5, cursor=page.next)) == 5
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()


async def test_secrets_of_keys_are_not_in_the_file(path: Path) -> None:
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG) as laurels:
        _, text = await laurels.create_key("operator")
    assert text.split("_", 2)[2].encode() not in path.read_bytes()


async def test_a_reader_learns_of_keys(path: Path) -> None:
    await fill(path, 10)
    url = f"sqlite:///{path}"
    async with Laurels.open(url) as writer, Laurels.open(url, read_only=True) as reader:
        key, text = await writer.create_key("read", "g")
        await reader.game("g").board("best").count()
        assert reader.keyring.authenticate(text, 0).key_id == key.key_id
        await writer.revoke_key(key.key_id)
        await reader.game("g").board("best").count()
        with pytest.raises(Unauthenticated):
            reader.keyring.authenticate(text, 0)


async def test_another_program_s_file_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersion, match="not one of Laurels"):
        async with Laurels.open(f"sqlite:///{path}"):
            pass
    assert path.read_bytes() == before


async def test_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"hello, I am a text file" * 1000)
    with pytest.raises(StoreDamaged, match="damaged"):
        async with Laurels.open(f"sqlite:///{path}"):
            pass


@pytest.mark.parametrize("url", ["scores.db", "sqlite://scores.db", "sqlite:///", "redis:///x", "sqlite:/x"])
async def test_bad_urls(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        async with Laurels.open(url):
            pass


async def test_missing_file_read_only(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no such file"):
        async with Laurels.open(f"sqlite:///{path}", read_only=True):
            pass
    with pytest.raises(StoreUnavailable):
        async with Laurels.open(f"sqlite:///{path.parent}/missing/scores.db"):
            pass


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
async def test_read_only_file(path: Path) -> None:
    await fill(path, 10)
    path.chmod(0o444)
    code = (
        "import asyncio, os, sqlite3\nfrom laurels import Laurels\nfrom laurels.errors import StoreReadOnly\n"
        "if os.getuid() == 0: os.setuid(65534)  # root may write whatever the mode says\n"
        "async def main():\n"
        "    try:\n"
        f"        async with Laurels.open('sqlite:///{path}') as laurels:\n"
        "            await laurels.game('g').submit('amy', 1)\n"
        "    except StoreReadOnly as error:\n"
        "        print('refused', error)\n"
        f"    async with Laurels.open('sqlite:///{path}', read_only=True) as laurels:\n"
        "        print(await laurels.game('g').board('best').count())\n"
        "asyncio.run(main())\n"
    )
    if os.getuid() == 0:
        for folder in (path.parent, *path.parent.parents):
            if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "test_")):
                folder.chmod(0o777)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1:] == ["10"], run.stderr
    assert "refused" in run.stdout


# --- damage -----------------------------------------------------------------------------------------------------


async def test_changed_row_of_the_log_is_noticed(path: Path) -> None:
    await fill(path, 3_000)
    with sqlite3.connect(path) as db:
        rows = bytearray(db.execute("SELECT rows FROM segments WHERE seq = 1").fetchone()[0])
        rows[len(rows) // 2] ^= 1
        db.execute("UPDATE segments SET rows = ? WHERE seq = 1", (bytes(rows),))
    db.close()
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        problems = (await laurels.verify()).problems
        assert any("segment 1" in problem and "checksum" in problem for problem in problems)
        with pytest.raises(StoreDamaged, match="segment 1"):
            await laurels.game("g").history("p00042")
        assert (await laurels.game("g").history("p02999")).items[0].score == 2_999  # what can be read, is


async def test_changed_entry_is_noticed(path: Path) -> None:
    await fill(path, 100)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET term1 = 1000 WHERE player_id = 'p00007' AND instance = 1")
    db.close()
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        problems = (await laurels.verify()).problems
        assert any("p00007" in problem for problem in problems)


async def test_damaged_page_is_said(path: Path) -> None:
    await fill(path, 20_000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(size // 2, size, 4_096 * 16):
            file.seek(at)
            file.write(b"\xff" * 4_096)
    try:
        async with Laurels.open(f"sqlite:///{path}") as laurels:
            assert (await laurels.verify()).problems
            await laurels.game("g").board("best").top(10)
    except StoreDamaged:
        pass  # on opening or reading, as the damage lies; what is told is never made up


# --- full disk --------------------------------------------------------------------------------------------------


async def test_full_disk(path: Path) -> None:
    await fill(path, 2_000)
    acknowledged: list[int] = []
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        game = laurels.game("g")
        store: Any = laurels._store
        database = store._state.db
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        await store._job(lambda: database.execute(f"PRAGMA max_page_count = {pages + 8}"))

        async def submit(number: int) -> Answers:
            names = [f"{number}-{n}" for n in range(100)]
            return await game.submit_many([f"q{name}" for name in names], [number] * 100, submission_ids=names)

        async def submit_until_refused() -> None:
            for number in range(10_000):
                await submit(number)
                acknowledged.append(number)

        with pytest.raises(StoreFull, match="no space left"):
            await submit_until_refused()
        # Reads go on, and tell nothing that is not safe.
        assert await game.board("best").count() == 2_000 + 100 * len(acknowledged)
        assert len(await game.history("p00001")) == 1
        refused = len(acknowledged)
        with pytest.raises(StoreFull):
            await submit(refused)
        # There is space again: it goes on, and the repeat of what failed counts once.
        await store._job(lambda: database.execute("PRAGMA max_page_count = 1000000"))
        retried = await submit(refused)
        assert not any(retried.repeated)
        assert len(await game.history(f"q{refused}-5")) == 1
        assert (await laurels.verify()).problems == []
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        assert await laurels.game("g").board("best").count() == 2_100 + 100 * len(acknowledged)
        assert (await laurels.verify()).problems == []


# --- the file in other hands ------------------------------------------------------------------------------------


async def test_any_sqlite_tool_reads_the_standings(path: Path) -> None:
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit("amy", 7, submission_id="mine")
        await game.submit("bob", 5)
    db = sqlite3.connect(path)
    assert db.execute("SELECT sum(size) FROM segments").fetchone() == (2,)
    standings = db.execute("SELECT game, player_id, term1 FROM standings WHERE board = 'best' ORDER BY term1 DESC")
    assert standings.fetchall() == [("g", "amy", 7), ("g", "bob", 5)]
    db.close()


async def test_compact_keeps_everything(path: Path) -> None:
    await fill(path, 5_000)
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        await laurels.game("g").drop_board("total")
        await laurels.compact()
        assert (await laurels.verify()).problems == []
        assert await laurels.game("g").board("best").count() == 5_000


async def test_ids_move_into_runs_and_are_found_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurels.stores.sqlite.upkeep.IDS_IN_MEMORY_MAX", 500)
    ids = [f"id-{n * 7919 % 20_000}" for n in range(20_000)]
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG) as laurels:
        game = laurels.game("g")
        for start in range(0, 20_000, 1_000):
            players = [f"p{n % 50}" for n in range(1_000)]
            await game.submit_many(players, [1] * 1_000, submission_ids=ids[start : start + 1_000])
            await asyncio.sleep(0.1)  # idle for long enough to write behind
        again = await game.submit_many(["x"] * 20_000, [5] * 20_000, submission_ids=ids)
        assert all(again.repeated)
        assert (await laurels.verify()).problems == []
    db = sqlite3.connect(path)
    runs = db.execute("SELECT count(*), sum(size) FROM id_runs").fetchone()
    assert 1 <= runs[0] <= 6
    assert runs[1] >= 15_000
    db.close()
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        again = await laurels.game("g").submit_many(["x"] * 20_000, [5] * 20_000, submission_ids=ids)
        assert all(again.repeated)
        assert (await laurels.game("g").submission("id-7")).submission_id == "id-7"


async def test_old_answers_go_and_repeats_still_do_not_count(path: Path, clock: Any) -> None:
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG, clock=clock) as laurels:
        first = await laurels.game("g").submit("amy", 10, submission_id="once")
        assert first.changes
    clock.advance(days=31)
    async with Laurels.open(f"sqlite:///{path}", clock=clock) as laurels:
        game = laurels.game("g")
        await game.submit("bob", 1)
        store: Any = laurels._store
        for _ in range(100):
            if store.reader.effects(1) is None:
                break
            await asyncio.sleep(0.05)
        late = await game.submit("amy", 10, submission_id="once")
        assert (late.accepted_at, late.score, late.changes) == (first.accepted_at, 10, [])
        assert (await game.board("total").entry("amy")).entry.score == 10


# --- written behind ---------------------------------------------------------------------------------------------


async def test_what_is_unwritten_stays_bounded_while_requests_never_let_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurels.stores.sqlite.behind.TAIL_ROWS_MAX", 5_000)
    monkeypatch.setattr("laurels.stores.sqlite.behind.SORTED_BESIDE_MIN", 0)
    monkeypatch.setattr("laurels.stores.sqlite.behind.IDLE_S", 1_000.0)
    monkeypatch.setattr("laurels.stores.sqlite.upkeep.IDS_IN_MEMORY_MAX", 3_000)
    most = 0
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG) as laurels:
        state = laurels._store._state  # type: ignore[attr-defined]
        for group in range(100):
            players = [f"p{(group * 7919 + n * 31) % 30_000}" for n in range(1_000)]
            ids = [f"{group}-{n}" for n in range(1_000)]
            await laurels.game("g").submit_many(players, range(1_000), submission_ids=ids)
            most = max(most, state.tail_rows)
        assert 5_000 < most <= 15_000
        assert (await laurels.verify()).problems == []
        assert all((await laurels.game("g").submit_many(players, range(1_000), submission_ids=ids)).repeated)
        newest = (await laurels.game("g").history(players[-1])).items[0]
        assert newest.submission_id == "99-999"
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        assert (await laurels.verify()).problems == []
        assert (await laurels.game("g").history(players[-1])).items[0] == newest


async def test_chunks_of_a_run_that_never_came_to_be_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurels.stores.sqlite.upkeep.IDS_IN_MEMORY_MAX", 500)
    await fill(path, 10)
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO id_chunks VALUES (77, ?, x'', x'')", [(bytes([n]),) for n in range(9)])
    db.close()
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        await laurels.game("g").submit_many(["p"] * 600, [1] * 600, submission_ids=[f"new-{n}" for n in range(600)])
        for _ in range(100):
            await asyncio.sleep(0.05)
            with sqlite3.connect(path) as db:
                runs = [run for (run,) in db.execute("SELECT run FROM id_runs")]
            db.close()
            if runs:
                break
        assert (await laurels.verify()).problems == []
    with sqlite3.connect(path) as db:
        assert {run for (run,) in db.execute("SELECT run FROM id_chunks")} == set(runs) != set()
    db.close()


async def test_answers_of_erased_rows_go_and_the_others_stay(path: Path) -> None:
    async with Laurels.open(f"sqlite:///{path}", config=CONFIG) as laurels:
        game = laurels.game("g")
        names, ids = ["amy", "bob", "amy", "cat"], ["1", "2", "3", "4"]
        first = await game.submit_many(names, [5, 6, 7, 8], submission_ids=ids)
        kept = [first[1], first[3]]
        await game.remove_player("amy")
    async with Laurels.open(f"sqlite:///{path}") as laurels:
        game = laurels.game("g")
        again = await game.submit_many(["bob", "cat"], [6, 8], submission_ids=["2", "4"])
        assert list(again) == kept
        assert [s.player_id for piece in [p async for p in game.submissions()] for s in piece] == ["bob", "cat"]
        assert (await laurels.verify()).problems == []
