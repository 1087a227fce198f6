"""The command line, as somebody types it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from laurels.cli import main

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder and checks its exit code."""
    monkeypatch.chdir(tmp_path)
    for name in ("LAURELS_STORE", "LAURELS_CONFIG", "LAURELS_GAME"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


def as_json(result: Result) -> Any:
    return json.loads(result.stdout)


def test_first_minute(run: Run) -> None:
    run("init")
    run("init", code=1)
    run("init", "--force")
    answer = as_json(run("submit", "amy", 12_000, "--id", "once", "--json"))
    assert [change["new_rank"] for change in answer["changes"]] == [1, 1]
    assert as_json(run("submit", "amy", 12_000, "--id", "once", "--json")) == answer
    run("submit", "bob", 15_000, "-d", "level=3", "-m", "stars=5")
    run("submit", "cat", -5)
    top = run("top", "high_scores").output.splitlines()
    assert top[0] == "high_scores: 3 entries"
    assert [line.split()[:3] for line in top[2:]] == [["1", "1", "bob"], ["2", "2", "amy"], ["3", "3", "cat"]]
    assert as_json(run("rank", "high_scores", "amy", "--json"))["entry"]["rank"] == 2
    assert "> amy" in run("around", "high_scores", "amy").output
    assert as_json(run("top", "level", "-w", "level=3", "--json"))[0]["order"]["stars"] == 5
    assert "12,000" in run("history", "amy").output
    assert [info["name"] for info in as_json(run("boards", "--json"))] == ["high_scores", "level", "weekly"]
    assert "level=3" in run("boards", "level").output
    assert "everything adds up" in run("verify").output


def test_ranks_are_the_same_everywhere_and_start_at_one(run: Run) -> None:
    run("init")
    answer = as_json(run("submit", "amy", 5, "--json"))
    ranks = {
        answer["changes"][0]["new_rank"],
        as_json(run("top", "high_scores", "--json"))[0]["rank"],
        as_json(run("rank", "high_scores", "amy", "--json"))["entry"]["rank"],
        as_json(run("around", "high_scores", "amy", "--json"))[0]["rank"],
        as_json(run("players", "show", "amy", "--json"))["standings"][0]["entry"]["rank"],
    }
    assert ranks == {1}


def test_numbers_are_exact_in_json(run: Run) -> None:
    run("init")
    run("submit", "amy", 1009651914519660511, "-m", "accuracy=94.780000000000000001")
    text = run("history", "amy", "--json").stdout
    assert "1009651914519660511" in text
    assert "94.780000000000000001" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rank", "high_scores", "nobody"], 3, "no entry 'nobody'"),
        (["top", "nothing"], 3, "no board 'nothing'"),
        (["submit", "amy", "1.5"], 4, "score"),
        (["submit", "amy", "lots"], 4, "must be a number"),
        (["submit", "", "5"], 4, "player_id"),
        (["top", "level"], 4, "level"),
        (["top", "high_scores", "--limit", "0"], 4, "limit"),
        (["top", "high_scores", "--at", "soon"], 4, "ISO 8601"),
        (["top", "level", "-w", "level"], 2, "NAME=VALUE"),
        (["top"], 2, "Missing argument"),
        (["fly"], 2, "No such command"),
        (["top", "high_scores", "--store", "sqlite:///other.db"], 5, "no such file"),
        (["top", "high_scores", "--store", "nonsense"], 4, "sqlite:///"),
        (["top", "high_scores", "--game", "chess"], 3, "no game 'chess'"),
        (["import", "plays.xyz"], 2, "--format"),
        (["import", "missing.csv"], 1, "can't be read"),
        (["top", "high_scores", "--config", "missing.toml"], 4, "missing.toml"),
    ],
)
def test_errors_are_one_line_and_a_code(run: Run, arguments: list[str], code: int, message: str) -> None:
    run("init")
    run("submit", "amy", 5)
    result = run(*arguments, code=code)
    assert message in result.stderr
    assert result.stdout == ""
    if code not in (2,):
        assert len(result.stderr.strip().splitlines()) == 1
        error = json.loads(run(*arguments, "--json", code=code).stderr)["error"]
        assert error["code"]


def test_hostile_names_do_not_steer_the_terminal(run: Run) -> None:
    run("init")
    run("submit", "\x1b[31mred\x07", 5)
    for output in (run("top", "high_scores").output, run("rank", "high_scores", "\x1b[31mred\x07").output):
        assert "\x1b" not in output
        assert "\\x1b[31mred\\x07" in output


def test_moderation(run: Run) -> None:
    run("init")
    run("submit", "amy", 5)
    run("submit", "bob", 3)
    run("players", "ban", "amy", "--reason", "cheated")
    assert [entry["player_id"] for entry in as_json(run("top", "high_scores", "--json"))] == ["bob"]
    run("players", "unban", "amy")
    run("players", "unban", "amy", code=3)
    assert len(as_json(run("top", "high_scores", "--json"))) == 2
    assert as_json(run("players", "remove", "amy", "--yes", "--json")) == {"player": "amy", "submissions": 1}
    run("players", "show", "amy", code=3)
    run("verify")


def test_keys(run: Run) -> None:
    run("init")
    made = as_json(run("keys", "create", "server", "--name", "main", "--expires", "2099-01-01T00:00Z", "--json"))
    assert (made["game"], made["role"], made["name"]) == ("arcade", "server", "main")
    assert made["key"].startswith(f"lk_{made['key_id']}_")
    operator = run("keys", "create", "operator")
    assert operator.stdout.startswith("lk_")
    assert "not shown again" in operator.stderr
    listed = as_json(run("keys", "list", "--json"))
    assert sorted(key["role"] for key in listed) == ["operator", "server"]
    assert [key["key_id"] for key in as_json(run("keys", "list", "--game", "arcade", "--json"))] == [made["key_id"]]
    for output in (run("keys", "list").output, run("keys", "list", "--json").output):
        assert made["key_id"] in output
        assert made["key"].split("_", 2)[2] not in output
    rotated = as_json(run("keys", "rotate", made["key_id"], "--json"))
    assert rotated["key_id"] == made["key_id"]
    assert rotated["key"] != made["key"]
    assert "revoked" in run("keys", "revoke", made["key_id"]).output
    assert as_json(run("keys", "list", "--game", "arcade", "--json")) == []
    run("keys", "revoke", made["key_id"], code=3)
    run("keys", "rotate", made["key_id"], code=3)
    run("keys", "create", "server", "--expires", "2001-01-01T00:00Z", code=4)
    run("keys", "create", "king", code=2)
    run("keys", "create", "server", "--game", "chess", code=3)


def test_import_export_backup(run: Run, tmp_path: Path) -> None:
    run("init")
    (tmp_path / "plays.csv").write_text("player_id,score\namy,5\nbob,x\n")
    failed = run("import", "plays.csv", code=1)
    assert "plays.csv, row 3: score: 'x': must be a number" in failed.stderr
    report = as_json(run("import", "plays.csv", "--skip-bad", "--json"))
    assert (report["submitted"], report["skipped"][0]["row"]) == (1, 3)
    assert "known already   1" in run("import", "plays.csv", "--skip-bad").output
    assert as_json(run("export", "out.jsonl", "--json")) == {"path": "out.jsonl", "rows": 1}
    assert "1 entries" in run("export", "best.jsonl", "--board", "high_scores").output
    assert as_json(run("backup", "copy.db", "--json"))["bytes"] == (tmp_path / "copy.db").stat().st_size
    assert "amy" in run("top", "high_scores", "--store", "sqlite:///copy.db").output
    run("backup", "copy.db", code=1)


def test_verify_fails_when_something_is_wrong(run: Run, tmp_path: Path) -> None:
    import sqlite3

    run("init")
    run("submit", "amy", 5)
    db = sqlite3.connect(tmp_path / "laurels.db")
    db.execute("UPDATE entries SET term1 = 6")
    db.commit()
    db.close()
    assert "wrong: " in run("verify", code=1).output
    assert as_json(run("verify", "--json", code=1))["ok"] is False


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run: Run, shell: str) -> None:
    assert "_LAURELS_COMPLETE" in run("completion", shell).output


def test_every_command_has_help(run: Run) -> None:
    for name, command in main.commands.items():
        assert command.help, name
        run(name, "--help")
    assert "Exit codes" in run("--help").output


def test_demo(run: Run) -> None:
    small = ("--songs", 20, "--players", 100, "--plays", 1_500)
    first = run("demo", "--once", "--dir", "d", "--json", *small)
    summary = json.loads(first.output.splitlines()[-1])
    assert summary["rows"] == 1_500
    assert summary["submitted"] + sum(summary["left_out"].values()) == 1_500
    assert (summary["paged_scores"], summary["pages"]) == (1_000, 10)
    assert len(summary["top"]) == 10
    assert [entry["score"] for entry in summary["top"]] == sorted((e["score"] for e in summary["top"]), reverse=True)
    again = json.loads(run("demo", "--once", "--dir", "d", "--json", *small).output.splitlines()[-1])
    assert (again["submitted"], again["repeated"]) == (0, summary["submitted"])
    assert again["top"] == summary["top"]
    other = json.loads(run("demo", "--once", "--dir", "e", "--json", *small).output.splitlines()[-1])
    assert other["top"] == summary["top"]
    assert "Top 10 of" in run("demo", "--once", "--dir", "d", *small).output
    run("verify", "--store", "sqlite:///d/laurels.db")


def test_demo_ends_serving(tmp_path: Path) -> None:
    small = ("--songs", "20", "--players", "100", "--plays", "1500")
    command = [
        sys.executable,
        "-c",
        "from laurels.cli import main; main()",
        "demo",
        "--dir",
        str(tmp_path / "d"),
        *small,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = key = ""
            for line in process.stdout:
                address = address or next(iter(re.findall(r"Serving on (http://\S+)", line)), "")
                key = next(iter(re.findall(r"LAURELS_KEY=(\S+)", line)), key)
                if "/boards/song/top?" in line:
                    break
            asked = urllib.request.Request(
                f"{address}/v1/games/game-leaderboard/boards/scores/top?limit=1&fields=name,score",
                headers={"Authorization": f"Bearer {key}"},
            )
            with urllib.request.urlopen(asked, timeout=30) as answer:
                assert json.load(answer)["entries"] == [{"score": 99_970, "name": "Player 393"}]
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_reads_work_while_another_process_has_the_store(run: Run) -> None:
    run("init")
    run("submit", "amy", 5)
    code = (
        "import sys\nfrom laurels.sync import Laurels\n"
        "with Laurels.open('sqlite:///laurels.db'):\n    print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        assert "amy" in run("top", "high_scores").output
        assert f"process {owner.pid}" in run("submit", "bob", 5, code=5).stderr
        owner.communicate()


@pytest.mark.skipif(shutil.which("laurels", path=str(Path(sys.executable).parent)) is None, reason="not installed")
def test_installed_command_and_closed_pipe(run: Run) -> None:
    run("init")
    run("submit", "amy", 5)
    laurels = Path(sys.executable).parent / "laurels"
    piped = subprocess.run(
        f"{laurels} top high_scores | true", shell=True, capture_output=True, text=True, env=os.environ, check=False
    )
    assert piped.stderr == ""
