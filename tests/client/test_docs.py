"""The examples of docs/clients.md run."""

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")


def test_examples_run(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for example in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(example, "docs/clients.md", "exec"), {"__name__": "docs", "URL": server.url, "KEY": server.key})
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        *["1", "1 cat 15000", "2 amy 12000", "3 bob 9000", "33.3", "3 3"],
        *["3", "['bob', 'cat', 'amy']"],
    ]


def test_all_verbs_are_listed() -> None:
    from laurels.client import AsyncClient

    verbs = {name for name in dir(AsyncClient) if not name.startswith("_")} - {"close", "send"}
    assert verbs <= set(re.findall(r"`(\w+)`", TEXT))
