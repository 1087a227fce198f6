"""What all tests share: which engine they run on, and a clock that they set."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from laurels.windows import to_us

ENGINES = ("sqlite",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=ENGINES, default="sqlite", help="the engine that store tests run on")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--engine")


@pytest.fixture
def new_url(engine: str, tmp_path: Path) -> Callable[[], str]:
    """A function that gives the URL of a fresh, empty store."""
    numbers = itertools.count()
    return lambda: f"{engine}:///{tmp_path}/store-{next(numbers)}.db"


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 1, 12, tzinfo=UTC)

    def __call__(self) -> int:
        return to_us(self.now)

    def advance(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    return Clock()
