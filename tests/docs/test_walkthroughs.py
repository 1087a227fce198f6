"""The tutorial and the how-to pages run, as a reader would run them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laurels.server import free_port

ROOT = Path(__file__).parents[2]
HOWTO = sorted((ROOT / "docs/howto").glob("*.md"))

pytest.importorskip("granian", reason="needs the extra server")
pytest.importorskip("httpx", reason="needs the extra client")


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


@dataclass
class Reader:
    """Somebody with a folder, a server that runs there, and an operator's key."""

    folder: Path
    url: str
    key: str

    def runs(self, *command: str) -> str:
        environment = os.environ | {"LAURELS_URL": self.url, "LAURELS_KEY": self.key}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (config,) = blocks(ROOT / "docs/tutorial.md", "toml")
    (tmp_path / "laurels.toml").write_text(config)
    serve = blocks(ROOT / "docs/tutorial.md", "bash")[0].split()
    assert serve[:2] == ["laurels", "serve"]
    port = free_port()
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("laurels")), *serve[1:], "--port", str(port)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        key = next(found.group() for line in process.stdout if (found := re.search(r"lk_\S+", line)))
        yield Reader(tmp_path, f"http://127.0.0.1:{port}", key)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_the_tutorial(reader: Reader) -> None:
    _, exports, *commands = blocks(ROOT / "docs/tutorial.md", "bash")
    assert exports.startswith("export LAURELS_KEY=")
    make_key, submit, read = commands
    made = json.loads(reader.runs("bash", "-euc", make_key))
    assert made["role"] == "server"
    reader.key = made["key"]
    first, again = (json.loads(reader.runs("bash", "-euc", submit)) for _ in range(2))
    assert first == again
    assert {change["instance"]["board"] for change in first["changes"]} == {"high_scores", "weekly"}
    top, entry = reader.runs("bash", "-euc", read.replace("\ncurl", "; echo; curl")).splitlines()
    assert json.loads(top)["entries"][0]["player_id"] == "amy"
    assert json.loads(entry)["entry"]["rank"] == 1
    (python,) = blocks(ROOT / "docs/tutorial.md", "python")
    assert reader.runs(sys.executable, "-c", python).splitlines()[-2:] == ["1 bob 15000", "2 amy 12000"]


@pytest.mark.parametrize("page", HOWTO, ids=lambda page: page.stem)
def test_the_how_to_pages(page: Path, reader: Reader) -> None:
    for example in blocks(page, "python"):
        given = f"URL, KEY = {reader.url!r}, {reader.key!r}\n"
        said = re.findall(r"print\(.*\)  # (\S.*)", example)
        printed = reader.runs(sys.executable, "-c", given + example).splitlines()
        assert [line for line in printed if line in said] == said


def test_the_commands_of_the_pages_exist() -> None:
    from laurels.cli import main

    for page in [*HOWTO, *ROOT.glob("docs/*.md"), ROOT / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for command in re.findall(r"(?:^|`)laurels ([a-z]+)(?=[ `\n])", text, re.MULTILINE):
            assert command in main.commands, (page.name, command)


def test_settings_of_the_server_are_as_documented(tmp_path: Path) -> None:
    from laurels import config

    (example,) = blocks(ROOT / "docs/http.md", "toml")
    path = tmp_path / "laurels.toml"
    path.write_text(example)
    settings = config.load(path).server
    assert (settings.host, settings.port) == (config.ServerSettings().host, config.ServerSettings().port)
