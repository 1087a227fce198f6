"""What the documents say is true."""

import asyncio
import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from laurels import Laurels
from laurels.config import converted, schema
from laurels.model import Limits

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


def test_published_schema_is_the_one_of_the_code() -> None:
    published = json.loads((ROOT / "docs/reference/config.schema.json").read_text(encoding="utf-8"))
    assert published == schema(), "make it again: laurels.config.schema()"


def test_limits_are_listed_with_their_defaults() -> None:
    text = (ROOT / "docs/limits.md").read_text(encoding="utf-8").partition("## Of the server")[0]
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)
    assert {name: int(value) for name, value in listed} == msgspec.structs.asdict(Limits())


def test_readme_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("README.md", "python")
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1"
    assert lines[1:4] == ["1 cat 15000", "2 amy 12000", "3 bob 9000"]


@pytest.mark.parametrize("example", blocks("docs/boards.md", "toml"))
def test_board_examples_are_valid(example: str, tmp_path: Path) -> None:
    config = converted(tomllib.loads(example, parse_float=str))

    async def use() -> None:
        async with Laurels.open(f"sqlite:///{tmp_path}/scores.db", config=config) as laurels:
            assert laurels.games() == sorted(config.games)

    asyncio.run(use())


@pytest.mark.parametrize(
    "document", sorted(path.relative_to(ROOT) for path in ROOT.glob("**/*.md") if ".venv" not in path.parts), ids=str
)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert ((ROOT / document).parent / target).exists(), target
