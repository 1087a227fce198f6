"""A Redis sorted set into a game, from a real server where there is one."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from laurels import Laurels
from laurels.errors import ImportFailed, InvalidInput
from laurels.importers.redis import import_sorted_set

redis = pytest.importorskip("redis")
pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")

CONFIG: dict[str, Any] = {"games": {"g": {"boards": {"best": {"scale": 3}}}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of our own."""
    folder: Path = tmp_path_factory.mktemp("redis")
    for port in range(17_379, 17_400):
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            client = redis.Redis(port=port)
            for _ in range(100):
                if process.poll() is not None:
                    break  # the port is taken: try the next
                try:
                    client.ping()
                except redis.ConnectionError:
                    time.sleep(0.05)
                    continue
                yield f"redis://127.0.0.1:{port}/0"
                client.close()
                process.terminate()
                return
            client.close()
            process.kill()
    pytest.fail("no redis-server came up")


async def test_sorted_set_comes_over_in_its_order(url: str, server: str) -> None:
    client = redis.Redis.from_url(server)
    members = {f"player-{n}": n // 3 for n in range(2_500)} | {"big": 2**53, "half": 0.5, "ünï/#": -7}
    client.zadd("high scores", members)
    shown = [(member.decode(), score) for member, score in client.zrevrange("high scores", 0, -1, withscores=True)]
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        report = await import_sorted_set(game, f"{server}/high%20scores")
        assert (report.rows, report.submitted) == (2_503, 2_503)
        entries = [
            entry for start in range(0, 2_503, 1_000) for entry in await game.board("best").page(1_000, offset=start)
        ]
        assert [(entry.player_id, float(entry.score)) for entry in entries] == shown
        assert (await game.board("best").entry("half")).entry.score == Decimal("0.500")
        again = await import_sorted_set(game, f"{server}/high%20scores")
        assert (again.submitted, again.repeated) == (0, 2_503)
        client.zincrby("high scores", 1, "half")
        assert (await import_sorted_set(game, f"{server}/high%20scores")).submitted == 1
    client.close()


async def test_what_can_not_be_imported(url: str, server: str) -> None:
    client = redis.Redis.from_url(server)
    client.set("text", "hello")
    client.zadd("broken", {"fine": 1, b"\xff\xfe": 2, "endless": float("inf")})
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        with pytest.raises(InvalidInput, match="not a sorted set"):
            await import_sorted_set(game, f"{server}/text")
        with pytest.raises(ImportFailed, match="row 1"):
            await import_sorted_set(game, f"{server}/broken")
        assert await game.board("best").count() == 0
        report = await import_sorted_set(game, f"{server}/broken", skip_bad=True)
        assert (report.submitted, len(report.skipped)) == (1, 2)
        assert "UTF-8" in report.skipped[1].reason
        assert (await import_sorted_set(game, f"{server}/nothing")).notes
        with pytest.raises(InvalidInput, match="redis://localhost"):
            await import_sorted_set(game, "redis://127.0.0.1/key")
        with pytest.raises(ImportFailed, match="does not answer") as failed:
            await import_sorted_set(game, "redis://user:secret@127.0.0.1:1/0/key")
        assert "secret" not in str(failed.value)
    client.close()
