"""The JavaScript client's own tests, run with Node against a server."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "clients" / "javascript"
NODE_MIN = 20


@pytest.fixture(scope="module")
def node() -> str:
    path = shutil.which("node")
    if path is None:
        pytest.skip(f"node is missing: get version {NODE_MIN} or newer from https://nodejs.org")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < NODE_MIN:
        pytest.skip(f"node is {version}, and the client needs {NODE_MIN} or newer")
    return path


def test_javascript_client(node: str, shared: Any) -> None:
    ended = subprocess.run(
        [node, "--experimental-websocket", "--test", "--test-reporter=tap", "test.mjs"],
        cwd=FOLDER,
        env=os.environ | {"LAURELS_URL": shared.url, "LAURELS_KEY": shared.key},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-8_000:] + ended.stderr[-2_000:]
    assert "\n# skipped 0\n" in ended.stdout
