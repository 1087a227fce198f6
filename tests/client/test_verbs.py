"""Every verb, awaited and at once: both clients do the same against a real server."""

import asyncio
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from laurels import Board, new_submission_id
from laurels.client import AsyncClient, Client
from laurels.errors import (
    Forbidden,
    InvalidCursor,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutOfRange,
    Unauthenticated,
)
from laurels.model import Answer, Entry

STRANGE = ["..", ".", "a/b", "ä?#%20+ &=;", "x%2Fy", "'\"\\", "日本", "-" * 128]


class Awaited:
    """An AsyncClient as if it were a Client: each verb is run to its end."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient) -> None:
        self._runner = runner
        self.client = client

    def for_game(self, name: str) -> "Awaited":
        return Awaited(self._runner, self.client.for_game(name))

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.client, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            result = verb(*args, **kwargs)
            if inspect.isasyncgen(result):
                return self._runner.run(_collected(result))
            return self._runner.run(_awaited(result))

        return run


async def _awaited(work: Any) -> Any:
    return await work


async def _collected(pieces: AsyncIterator[Any]) -> list[Any]:
    return [piece async for piece in pieces]


@pytest.fixture(params=["async", "sync"])
def connect(request: pytest.FixtureRequest, shared: Any) -> Iterator[Callable[..., Any]]:
    """A function that makes a client with a key: either kind, with the same verbs."""
    with asyncio.Runner() as runner:
        opened: list[Any] = []

        def make(key: Any = None, **settings: Any) -> Any:
            key = shared.key if key is None else key
            if request.param == "sync":
                client = Client(shared.url, key, **{"game": "demo"} | settings)
                opened.append(client.close)
                return client
            inner = AsyncClient(shared.url, key, **{"game": "demo"} | settings)
            opened.append(lambda: runner.run(inner.close()))
            return Awaited(runner, inner)

        yield make
        for close in opened:
            close()


@pytest.fixture
def client(connect: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """An operator's client, with a game of its own."""
    operator = connect()
    name = "".join(char for char in request.node.name if char.isalnum())
    operator.define_game(
        name,
        {
            "dimensions": {"mods": {"type": "set"}, "level": {"type": "integer"}, "hard": {"type": "boolean"}},
            "boards": {
                "best": {"submit": "players", "where": {"ratio": {"exists": False}}},
                "exact": {
                    "where": {"ratio": {"exists": True}},
                    "scale": 2,
                    "order": ["score desc", "played_at asc", "accepted_at asc"],
                },
                "modded": {"partition": ["mods", "level", "hard"]},
            },
        },
    )
    return operator.for_game(name)


def test_submit_and_read_back(client: Any) -> None:
    played_at = datetime(2026, 12, 1, 12, tzinfo=UTC)
    answer = client.submit("ada", 4200, dimensions={"level": 3}, metrics={"stars": 5}, played_at=played_at)
    assert isinstance(answer, Answer)
    assert (answer.player_id, answer.score) == ("ada", 4200)
    assert {change.instance.board for change in answer.changes} >= {"best"}
    submission = client.submission(answer.submission_id)
    assert (submission.player_id, submission.score, submission.played_at) == ("ada", 4200, played_at)
    assert submission.dimensions == {"level": 3}
    assert submission.metrics == {"stars": 5}
    assert client.history("ada").items == [submission]


def test_a_repeat_is_answered_alike(client: Any) -> None:
    submission_id = new_submission_id()
    first = client.submit("ada", 10, submission_id=submission_id)
    client.submit("ada", 20)
    assert client.submit("ada", 10, submission_id=submission_id) == first
    assert len(client.history("ada")) == 2


@pytest.mark.parametrize("score", [2**63 - 1, -(2**63), 2**53 + 1, 0])
def test_integers_are_exact(client: Any, score: int) -> None:
    answer = client.submit("ada", score)
    assert answer.score == score
    assert client.top("best").entries[0].score == score
    assert client.submission(answer.submission_id).score == score


def test_decimals_are_exact(client: Any) -> None:
    score = Decimal("90071992547409.91")
    answer = client.submit("ada", score, metrics={"ratio": Decimal("0.1")}, played_at=datetime.now(UTC))
    assert answer.score == score
    (entry,) = client.top("exact", also=["order", "submission"]).entries
    assert entry.score == score
    assert isinstance(entry.score, Decimal)
    assert entry.order["score"] == score
    assert isinstance(entry.order["score"], Decimal)
    assert isinstance(entry.order["played_at"], datetime)
    assert entry.submission.metrics == {"ratio": Decimal("0.1")}
    accepted = client.submit_many(["bob"], [Decimal("90071992547409.92")], metrics={"ratio": 1}, answers=True)
    assert accepted.answers[0].score == Decimal("90071992547409.92")
    assert (
        client.range("exact", Decimal("90071992547409.92"), Decimal("90071992547409.92")).entries[0].player_id == "bob"
    )


def test_submit_many(client: Any) -> None:
    now = datetime.now(UTC)
    accepted = client.submit_many(
        ["ada", "bob", "cyd"],
        [1, 2, 3],
        played_at=[now, None, now],
        dimensions={"mods": {"slow", "dark"}, "level": [1, 1, 2], "hard": False},
        metrics={"stars": [1, None, 3]},
        answers=True,
    )
    assert accepted.accepted == 3
    assert [answer.submission_id for answer in accepted.answers] == accepted.submission_ids
    where = {"mods": {"dark", "slow"}, "level": 1, "hard": False}
    assert [entry.player_id for entry in client.top("modded", where=where)] == ["bob", "ada"]
    assert {entry.instance.partition["mods"] for entry in client.instances("modded")} == {frozenset({"slow", "dark"})}
    again = client.submit_many(["ada"], [1], submission_ids=[accepted.submission_ids[0]])
    assert again.submission_ids == [accepted.submission_ids[0]]
    assert again.answers is None
    assert len(client.history("ada")) == 1


def test_arrays_and_what_can_not_be_sent(client: Any) -> None:
    numpy = pytest.importorskip("numpy")
    scores = numpy.array([2**62, 5], dtype=numpy.int64)
    client.submit_many(numpy.array(["ada", "bob"]), scores, metrics={"stars": numpy.array([1, 2])})
    client.submit("cyd", numpy.int64(7))
    assert [entry.score for entry in client.top("best")] == [2**62, 7, 5]
    for score in (2**80, object()):
        with pytest.raises(InvalidInput):
            client.submit("ada", score)


def test_a_batch_is_all_or_none(client: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.submit_many(["ada", "bob"], [1, 2**63])
    assert caught.value.field == "scores[1]"
    assert client.top("best").total == 0


def test_reading_a_board(client: Any) -> None:
    client.submit_many([f"p{n:02}" for n in range(30)], list(range(30)))
    client.set_player("p29", "Ada", {"country": "GB"})
    top = client.top("best", 3)
    assert [(entry.rank, entry.player_id, entry.score) for entry in top] == [
        (1, "p29", 29),
        (2, "p28", 28),
        (3, "p27", 27),
    ]
    assert (top.total, top.instance.board, len(top)) == (30, "best", 3)
    assert all(isinstance(entry, Entry) and entry.name is None for entry in top)
    assert client.top("best", 1, also=["name"]).entries[0].name == "Ada"
    page = client.page("best", 7)
    assert page.next is not None
    assert client.page("best", 7, page.next).entries[0].position == 8
    assert client.page("best", 7, client.page("best", 7, page.next).previous).entries == page.entries
    assert client.page("best", 2, offset=10).entries[0].position == 11
    pages = list(client.pages("best", 7))
    assert [len(page) for page in pages] == [7, 7, 7, 7, 2]
    assert [entry.position for page in pages for entry in page] == list(range(1, 31))
    assert [entry.score for entry in client.range("best", 3, 5)] == [5, 4, 3]
    assert [entry.player_id for entry in client.around("best", "p15", 3)] == ["p16", "p15", "p14"]
    standing = client.entry("best", "p29", also=["name"])
    assert (standing.entry.rank, standing.entry.name, standing.percentile, standing.total) == (1, "Ada", 100.0, 30)
    friends = client.players("best", ["p01", "p05", "nobody"])
    assert [(friend.rank, friend.entry.player_id) for friend in friends] == [(1, "p05"), (2, "p01")]
    buckets = client.histogram("best", 3)
    assert sum(bucket.count for bucket in buckets) == 30
    median, most = client.percentiles("best", [50, 100])
    assert most.score == 29
    assert 13 <= median.score <= 15
    client.remove("best", "p29")
    assert client.top("best", 1).entries[0].player_id == "p28"


@pytest.mark.parametrize("player_id", STRANGE)
def test_ids_may_hold_any_character(client: Any, player_id: str) -> None:
    client.submit(player_id, 7)
    client.set_player(player_id, "Name")
    assert client.entry("best", player_id).entry.player_id == player_id
    assert client.player(player_id).player_id == player_id
    assert client.history(player_id).items[0].player_id == player_id


def test_boards(client: Any) -> None:
    client.submit("ada", 5)
    info = client.define_board("weekly", Board(window={"every": "week"}, policy="sum"))
    assert (info.name, info.ready, info.definition.policy) == ("weekly", True, "sum")
    client.define_board("later", {"policy": "count"}, wait=False)
    assert {"weekly", "later"} <= {board.name for board in client.boards()}
    assert client.board_info("weekly").ready
    now = datetime.now(UTC)
    assert client.top("weekly", at=now).entries[0].score == 5
    assert client.top("weekly", at=now - timedelta(days=30)).total == 0
    assert [instance.entries for instance in client.instances("weekly")] == [1]
    client.drop_board("weekly")
    with pytest.raises(NotFound):
        client.board_info("weekly")


def test_players(client: Any) -> None:
    for score in range(5):
        client.submit("ada", score)
    assert client.set_player("ada", "Ada", {"country": "GB"}).attributes["country"] == "GB"
    assert client.player("ada").name == "Ada"
    assert [len(page) for page in client.history_pages("ada", 2)] == [2, 2, 1]
    assert {standing.instance.board for standing in client.standings("ada")} == {"best"}
    exported = client.export("ada")
    assert (exported.player.name, len(exported.submissions)) == ("Ada", 5)
    client.ban("ada", "cheating")
    assert client.bans() == ["ada"]
    assert client.top("best").total == 0
    client.unban("ada")
    assert client.bans() == []
    assert client.top("best").total == 1
    assert client.erase("ada") == 5
    assert client.history("ada").items == []


def test_keys_and_tokens(client: Any, connect: Callable[..., Any]) -> None:
    name = client.game_info().game
    expires_at = datetime.now(UTC) + timedelta(days=1)
    made = client.create_key("read", "the web site", expires_at)
    assert (made.role, made.name) == ("read", "the web site")
    assert made.key_id in {key.key_id for key in client.keys()}
    reader = connect(made.key, game=name)
    assert reader.top("best").total == 0
    with pytest.raises(Forbidden):
        reader.submit("ada", 1)
    rotated = client.rotate_key(made.key_id)
    with pytest.raises(Unauthenticated):
        reader.top("best")
    assert connect(lambda: rotated.key, game=name).top("best").total == 0
    client.revoke_key(made.key_id)
    with pytest.raises(Unauthenticated):
        connect(rotated.key, game=name).top("best")
    token = client.player_token("ada", 60)
    player = connect(token.token, game=name)
    assert player.submit("ada", 3).score == 3
    with pytest.raises(Forbidden):
        player.submit("bob", 3)


def test_games_and_health(client: Any, connect: Callable[..., Any]) -> None:
    assert {"demo", "other"} <= {game.game for game in client.games()}
    assert "best" in client.game_info().boards
    assert client.health().status == "ok"
    assert connect("", game=None).health().status == "ok"
    with pytest.raises(InvalidInput) as caught:
        connect(game=None).boards()
    assert caught.value.field == "game"


def test_errors_say_what_to_mend(client: Any, connect: Callable[..., Any]) -> None:
    with pytest.raises(OutOfRange) as caught:
        client.submit("ada", 2**63)
    assert (caught.value.code, caught.value.field) == ("out_of_range", "score")
    assert caught.value.rule
    with pytest.raises(InvalidCursor):
        client.page("best", cursor="made-up")
    with pytest.raises(LimitExceeded) as limit:
        client.top("best", 1_000_000)
    assert limit.value.field == "limit"
    with pytest.raises(NotFound) as missing:
        client.top("nowhere")
    assert "nowhere" in str(missing.value)
    assert any("request" in note for note in missing.value.__notes__)
    with pytest.raises(InvalidInput) as unknown:
        client.define_board("bad", {"polisy": "best"})
    assert "polisy" in unknown.value.field
    with pytest.raises(Unauthenticated):
        connect("lk_nobody").boards()
    with pytest.raises(InvalidInput):
        Client("127.0.0.1:8080", "lk_x")


def test_both_clients_have_the_same_verbs() -> None:
    public = {name for name in dir(AsyncClient) if not name.startswith("_")}
    assert public == {name for name in dir(Client) if not name.startswith("_")}
    assert all((inspect.getdoc(getattr(Client, name)) or "").strip() for name in public)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "laurels.client")
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ImportError, match=r"pip install 'laurels\[client\]'"):
        importlib.import_module("laurels.client")
