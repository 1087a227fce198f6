"""What every engine must do, through the public interface. `pytest tests/stores --engine sqlite`.

`stores/base.py` says the guarantees in words; here each is a test. A model in plain Python says what is right.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laurels import Board, Laurels, Window, new_submission_id
from laurels.auth import signed_token, signing_secret
from laurels.batch import Batch, checked_batch
from laurels.errors import (
    Conflict,
    Forbidden,
    InvalidCursor,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutOfRange,
    StoreUnavailable,
    Unauthenticated,
)
from laurels.games import Game

CONFIG: dict[str, Any] = {
    "games": {
        "g": {
            "dimensions": {"modifiers": {"type": "set", "none": ["none"]}},
            "boards": {
                "best": {},
                "total": {"policy": "sum", "order": ["score desc"]},
                "plays": {"policy": "count", "ranking": "dense", "order": ["score desc"]},
                "latest": {"policy": "last"},
                "debut": {"policy": "first", "order": ["score asc"]},
                "combo": {"policy": "max", "of": "combo", "where": {"combo": {"exists": True}}},
                "songs": {"partition": ["track", "modifiers"], "ranking": "ordinal"},
            },
        },
        "other": {"boards": {"best": {}}},
    }
}


# --- atomicity, durability --------------------------------------------------------------------------------------


async def test_acknowledged_is_there_after_reopening(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        answers = [await laurels.game("g").submit(f"p{n}", n, metrics={"combo": n}) for n in range(20)]
        tops = {name: await laurels.game("g").board(name).top(50) for name in ("best", "total", "plays", "combo")}
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        for name, top in tops.items():
            assert await game.board(name).top(50) == top
        for answer in answers:
            assert (await game.submission(answer.submission_id)).accepted_at == answer.accepted_at
        assert (await laurels.verify()).problems == []


async def test_batch_is_all_or_nothing(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        with pytest.raises(InvalidInput, match=r"scores\[2\]"):
            await game.submit_many(["a", "b", "c"], [1, 2, 1.5])
        assert await game.board("best").count() == 0
        assert [piece async for piece in game.submissions()] == []


async def test_large_batch_is_one_commit_over_many_segments(url: str) -> None:
    rows = 5_000
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        answers = await game.submit_many([f"p{n:05}" for n in range(rows)], list(range(rows)))
        assert len(set(answers.submission_ids)) == rows
        assert answers[rows - 1].changes[0].new_rank == 1
        assert (await game.submission(answers.submission_ids[3_333])).player_id == "p03333"
        assert [s.player_id async for piece in game.submissions() for s in piece] == [f"p{n:05}" for n in range(rows)]
        assert (await laurels.verify()).problems == []


# --- idempotency ------------------------------------------------------------------------------------------------


async def test_ids_belong_to_a_game(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        await laurels.game("g").submit("amy", 1, submission_id="same")
        answer = await laurels.game("other").submit("bob", 2, submission_id="same")
        assert answer.player_id == "bob"
        assert (await laurels.game("g").submission("same")).player_id == "amy"
        assert (await laurels.game("other").submission("same")).player_id == "bob"


async def test_repeats_mixed_with_new_rows(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        ids = [new_submission_id() for _ in range(3_000)]
        players = [f"p{n % 700}" for n in range(3_000)]
        first = await game.submit_many(players[:2_000], [1] * 2_000, submission_ids=ids[:2_000])
        again = await game.submit_many(players[1_000:], [5] * 2_000, submission_ids=ids[1_000:])
        assert again.repeated == [True] * 1_000 + [False] * 1_000
        assert [again[row] for row in range(0, 1_000, 97)] == [first[row] for row in range(1_000, 2_000, 97)]
        total = sum(entry.score for entry in await game.board("plays").top(1_000))
        assert total == 3_000
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        again = await game.submit_many(players, [9] * 3_000, submission_ids=ids)
        assert all(again.repeated)
        assert again[42] == first[42]
        assert (await laurels.verify()).problems == []


async def test_id_of_the_server_finds_its_submission_only(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        answer = await game.submit("amy", 1)
        assert (await game.submission(answer.submission_id)).player_id == "amy"
        for wrong in (
            "@",
            "@zz",
            "@ffffff",
            answer.submission_id.replace("@", "@0"),
            answer.submission_id.upper() + "0",
        ):
            with pytest.raises(NotFound):
                await game.submission(wrong)
        with pytest.raises(NotFound):
            await laurels.game("other").submission(answer.submission_id)
        with pytest.raises(InvalidInput, match="@"):
            await game.submit("amy", 1, submission_id="@mine")


# --- order and visibility ---------------------------------------------------------------------------------------


async def test_accepted_at_never_runs_backwards(url: str, clock: Any) -> None:
    async with Laurels.open(url, config=CONFIG, clock=clock) as laurels:
        game = laurels.game("g")
        instants = []
        for step in (0, 10, -3600, 0, 0, 5):
            clock.advance(seconds=step)
            instants.append((await game.submit("amy", 1)).accepted_at)
        assert instants == sorted(set(instants))
    clock.advance(days=-30)
    async with Laurels.open(url, clock=clock) as laurels:
        assert (await laurels.game("g").submit("amy", 1)).accepted_at > instants[-1]


async def test_whoever_has_the_answer_reads_it(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")

        async def play(player: str) -> None:
            for score in range(1, 30):
                answer = await game.submit(player, score)
                entry = (await game.board("best").entry(player)).entry
                assert entry.score == score
                assert entry.submission is not None
                assert entry.submission.submission_id == answer.submission_id

        await asyncio.gather(*(play(f"p{n}") for n in range(8)))


async def test_history_is_newest_first_and_pages(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        for start in range(0, 120, 10):
            await game.submit_many(["amy", "bob"] * 10, [n for n in range(start, start + 10) for _ in range(2)])
        page = await game.history("amy", limit=50)
        scores = [submission.score for submission in page]
        while page.next:
            page = await game.history("amy", limit=50, cursor=page.next)
            scores += [submission.score for submission in page]
        assert scores == list(range(119, -1, -1))
        assert len(await game.history("nobody")) == 0
        with pytest.raises(InvalidCursor):
            await game.history("bob", cursor=(await game.history("amy", limit=5)).next)
    async with Laurels.open(url) as laurels:
        assert [s.score for s in await laurels.game("g").history("bob", limit=3)] == [119, 118, 117]


# --- policies, against a model ----------------------------------------------------------------------------------

PLAYS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(-5, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=40
)


def modelled(plays: list[tuple[str, int, int, bool]]) -> dict[str, dict[str, int]]:
    """The scores on each board by player."""
    boards: dict[str, dict[str, int]] = {name: {} for name in ("best", "total", "plays", "latest", "debut", "combo")}
    for player, score, combo, _ in plays:
        boards["best"][player] = max(score, boards["best"].get(player, score))
        boards["total"][player] = boards["total"].get(player, 0) + score
        boards["plays"][player] = boards["plays"].get(player, 0) + 1
        boards["latest"][player] = score
        boards["debut"].setdefault(player, score)
        boards["combo"][player] = max(combo, boards["combo"].get(player, combo))
    return boards


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plays=PLAYS)
def test_policies_agree_with_the_model(plays: list[tuple[str, int, int, bool]], new_url: Callable[[], str]) -> None:
    async def check() -> None:
        url = new_url()
        async with contextlib.AsyncExitStack() as stack:
            laurels = await stack.enter_async_context(Laurels.open(url, config=CONFIG))
            for player, score, combo, restart in plays:
                if restart and score > 2:
                    await stack.aclose()
                    laurels = await stack.enter_async_context(Laurels.open(url))
                await laurels.game("g").submit(player, score, metrics={"combo": combo})
            await compare(laurels.game("g"), modelled(plays))
            assert (await laurels.verify()).problems == []

    asyncio.run(check())


async def compare(game: Game, right: dict[str, dict[str, int]]) -> None:
    for name, scores in right.items():
        entries = await game.board(name).top(100)
        assert {entry.player_id: entry.score for entry in entries} == scores, name
        ascending = name == "debut"
        order = sorted(scores.values(), reverse=not ascending)
        assert [entry.score for entry in entries] == order
        if name == "plays":
            assert [e.rank for e in entries] == [sorted(set(order), reverse=True).index(e.score) + 1 for e in entries]
        else:
            assert [entry.rank for entry in entries] == [order.index(entry.score) + 1 for entry in entries]


# --- keys -------------------------------------------------------------------------------------------------------


async def test_keys_are_kept(url: str, clock: Any) -> None:
    end = clock.now + timedelta(days=1)
    async with Laurels.open(url, config=CONFIG, clock=clock) as laurels:
        assert laurels.keys() == []
        server, text = await laurels.create_key("server", "g", "main", end)
        operator, operator_text = await laurels.create_key("operator")
        signer, signer_text = await laurels.create_key("signer", "g")
        assert laurels.keyring.authenticate(text, clock()).role == "server"
        assert laurels.keys("g") == sorted([server, signer], key=lambda key: key.key_id)
        assert laurels.keys("other") == []
        with pytest.raises(NotFound, match="game"):
            await laurels.create_key("server", "nothing")
        with pytest.raises(InvalidInput):
            await laurels.create_key("server", "g", expires_at=clock.now)
        with pytest.raises(LimitExceeded, match="name"):
            await laurels.create_key("server", "g", "x" * 1_025)
    async with Laurels.open(url, clock=clock) as laurels:
        assert laurels.keys("g") == sorted([server, signer], key=lambda key: key.key_id)
        assert (server.name, server.expires_at) == ("main", end)
        assert operator in laurels.keys()
        assert laurels.keyring.authenticate(text, clock()).game == "g"
        assert laurels.keyring.authenticate(operator_text, clock()).game is None
        key_id, secret = signing_secret(signer_text)
        now = clock() // 1_000_000
        token = signed_token(key_id, secret, "g", "amy", now, now + 60)
        assert laurels.keyring.authenticate(token, clock()).player_id == "amy"
        clock.advance(days=1)
        with pytest.raises(Unauthenticated):
            laurels.keyring.authenticate(text, clock())


async def test_a_revoked_key_stays_revoked(url: str, clock: Any) -> None:
    async with Laurels.open(url, config=CONFIG, clock=clock) as laurels:
        key, text = await laurels.create_key("server", "g")
        rotated, first = await laurels.create_key("admin", "g")
        token, _ = await laurels.player_token("g", "amy")
        assert laurels.keyring.authenticate(token, clock()).player_id == "amy"
        laurels.keyring.authenticate(text, clock())
        laurels.keyring.authenticate(first, clock())
        with pytest.raises(NotFound):
            await laurels.revoke_key(key.key_id, "other")
        await laurels.revoke_key(key.key_id)
        again, second = await laurels.rotate_key(rotated.key_id, "g")
        assert again == rotated
        await laurels.revoke_key(next(key.key_id for key in laurels.keys("g") if key.role == "signer"))
        for _ in range(2):
            for gone in (text, first, token):
                with pytest.raises(Unauthenticated):
                    laurels.keyring.authenticate(gone, clock())
            assert laurels.keyring.authenticate(second, clock()).role == "admin"
        with pytest.raises(NotFound):
            await laurels.revoke_key(key.key_id)
        with pytest.raises(NotFound):
            await laurels.rotate_key(key.key_id)
    async with Laurels.open(url, clock=clock) as laurels:
        assert [key.key_id for key in laurels.keys()] == [rotated.key_id]
        for gone in (text, first, token):
            with pytest.raises(Unauthenticated):
                laurels.keyring.authenticate(gone, clock())
        assert laurels.keyring.authenticate(second, clock()).role == "admin"


async def test_players_tokens_are_signed_by_one_key(url: str, clock: Any) -> None:
    async with Laurels.open(url, config=CONFIG, clock=clock) as laurels:
        tokens = await asyncio.gather(*(laurels.player_token("g", player, 60) for player in ("amy", "bob")))
        assert [(key.role, key.name) for key in laurels.keys()] == [("signer", "tokens")]
        assert [expires_at for _, expires_at in tokens] == [clock.now + timedelta(seconds=60)] * 2
        with pytest.raises(NotFound):
            await laurels.player_token("nothing", "amy")
        for player, seconds in (("", 60), ("amy", 0), ("amy", 86_401)):
            with pytest.raises(InvalidInput):
                await laurels.player_token("g", player, seconds)
    async with Laurels.open(url, clock=clock) as laurels:
        assert laurels.keyring.authenticate(tokens[1][0], clock()).player_id == "bob"
        await laurels.player_token("g", "amy")
        assert len(laurels.keys()) == 1


async def test_keys_have_a_limit(url: str) -> None:
    async with Laurels.open(url, config={**CONFIG, "limits": {"keys_per_game_max": 2}}) as laurels:
        for _ in range(2):
            await laurels.create_key("read", "g")
        with pytest.raises(LimitExceeded, match="at most 2"):
            await laurels.create_key("read", "g")
        await laurels.create_key("read", "other")


# --- who may submit ---------------------------------------------------------------------------------------------


async def test_players_submit_to_boards_that_say_so(url: str, clock: Any) -> None:
    season = Window(start=clock.now + timedelta(hours=1), end=clock.now + timedelta(hours=2))
    boards = {
        "open": Board(submit="players", where={"mode": "casual"}),
        "ranked": Board(where={"mode": "ranked"}),
        "both": Board(submit="players", where={"mode": "ranked"}),
        "season": Board(where={"mode": "casual"}, window=season),
    }

    async with Laurels.open(url, config={"games": {"g": {}}}, clock=clock) as laurels:
        game = laurels.game("g")
        for name, board in boards.items():
            await game.define_board(name, board)

        def batch(mode: str, players: tuple[str, ...] = ("amy",)) -> Batch:
            return checked_batch(
                game.definition, game.limits, player_ids=players, scores=[1] * len(players), dimensions={"mode": mode}
            )

        game.check_player_may_submit(batch("casual"), "amy")
        with pytest.raises(Forbidden, match="own"):
            game.check_player_may_submit(batch("casual"), "bob")
        with pytest.raises(Forbidden, match="own"):
            game.check_player_may_submit(batch("casual", ("amy", "bob")), "amy")
        with pytest.raises(Forbidden, match="board ranked"):
            game.check_player_may_submit(batch("ranked"), "amy")
        with pytest.raises(Forbidden, match="no board"):
            game.check_player_may_submit(batch("else"), "amy")
        clock.advance(minutes=59, seconds=30)
        with pytest.raises(Forbidden, match="board season"):
            game.check_player_may_submit(batch("casual"), "amy")
        clock.advance(hours=1, seconds=30)
        game.check_player_may_submit(batch("casual"), "amy")


async def test_a_title_or_who_may_submit_changes_without_building(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["amy", "bob"], [1, 2])
        before = game.board_info("best")
        cursor = (await game.board("best").page(1)).next
        await game.define_board("best", Board(title="Best", submit="players"))
        info = game.board_info("best")
        assert (info.version, info.definition) == (before.version, Board(title="Best", submit="players"))
        assert [e.player_id for e in await game.board("best").page(1, cursor=cursor)] == ["amy"]
        await game.submit("amy", 3)
        await game.ban("bob")
        assert [e.player_id for e in await game.board("best").top()] == ["amy"]
    async with Laurels.open(url, config={"games": {"g": {"boards": {"best": {"title": "Better"}}}}}) as laurels:
        game = laurels.game("g")
        assert (game.board_info("best").version, game.board_info("best").ready) == (before.version, True)
        assert game.board_info("best").definition == Board(title="Better")
        assert game.definition.boards["best"] == Board(title="Better")
        assert [e.player_id for e in await game.board("best").page(5)] == ["amy"]
        assert (await laurels.verify()).problems == []
    async with Laurels.open(url) as laurels:
        assert laurels.game("g").board_info("best").definition == Board(title="Better")


# --- moderation -------------------------------------------------------------------------------------------------


async def test_ban_hides_and_unban_shows_again(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["amy", "bob", "cat"], [30, 20, 10])
        await game.ban("amy", reason="cheated")
        assert [e.player_id for e in await game.board("best").top()] == ["bob", "cat"]
        assert (await game.board("best").entry("bob")).entry.rank == 1
        hidden = await game.submit("amy", 99)
        assert hidden.changes == []
        assert game.banned() == ["amy"]
        assert (await game.player("amy")).banned
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        assert [e.player_id for e in await game.board("best").top()] == ["bob", "cat"]
        assert len(await game.history("amy")) == 2
        assert (await laurels.verify()).problems == []
        await game.unban("amy")
        entry = (await game.board("best").entry("amy")).entry
        assert (entry.rank, entry.score) == (1, 99)
        assert (await game.board("total").entry("amy")).entry.score == 129
        assert (await game.board("latest").entry("amy")).entry.score == 99
        await game.submit("amy", 1)
        assert (await game.board("total").entry("amy")).entry.score == 130
        with pytest.raises(NotFound):
            await game.unban("amy")
    async with Laurels.open(url) as laurels:
        assert (await laurels.game("g").board("total").entry("amy")).entry.score == 130
        assert (await laurels.verify()).problems == []


async def test_removed_entry_stays_removed(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["amy", "bob", "amy"], [30, 20, 40])
        assert await game.board("best").remove("amy")
        await game.ban("amy")
        await game.unban("amy")  # worked out from the log again: what was removed does not come back
        assert [e.player_id for e in await game.board("best").top()] == ["bob"]
        assert (await game.board("total").entry("amy")).entry.score == 70
        await game.define_board("best", Board(order=("score asc",)))
        assert [e.player_id for e in await game.board("best").top()] == ["bob"]
        await game.submit("amy", 25)
        assert [e.score for e in await game.board("best").top()] == [20, 25]
        assert (await laurels.verify()).problems == []


async def test_player_is_erased_everywhere(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        ids = [f"id-{n}" for n in range(2_000)]
        await game.submit_many(["amy", "bob"] * 1_000, list(range(2_000)), submission_ids=ids)
        await game.describe("player_id", {"amy": {"name": "Amy"}})
        assert await game.remove_player("amy") == 1_000
        assert len(await game.history("amy")) == 0
        for board in ("best", "total", "plays", "latest"):
            assert [e.player_id for e in await game.board(board).top()] == ["bob"]
        with pytest.raises(NotFound):
            await game.submission("id-0")
        with pytest.raises(NotFound):
            await game.player("amy")
        with pytest.raises(Conflict, match="erased"):
            await game.submit("amy", 5, submission_id="id-0")
        assert len(await game.history("bob", limit=1_000)) == 1_000
        await game.submit("amy", 3)
        assert (await game.board("total").entry("amy")).entry.score == 3
        assert (await laurels.verify()).problems == []
    async with Laurels.open(url) as laurels:
        assert (await laurels.game("g").board("total").entry("amy")).entry.score == 3
        assert len(await laurels.game("g").history("amy")) == 1
        assert (await laurels.verify()).problems == []


# --- boards -----------------------------------------------------------------------------------------------------


async def test_board_defined_later_covers_everything(url: str) -> None:
    rng = random.Random(3)
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        for _ in range(20):
            await game.submit_many(
                [f"p{rng.randrange(300)}" for _ in range(500)], [rng.randrange(1000) for _ in range(500)]
            )
        done = asyncio.Event()
        seen: list[tuple[int, int]] = []

        async def keep_submitting() -> None:
            while not done.is_set():
                await game.submit(f"p{rng.randrange(300)}", rng.randrange(1000))

        submitting = asyncio.create_task(keep_submitting())
        info = await game.define_board(
            "later", Board(policy="sum", order=("score desc",)), lambda at, of: seen.append((at, of))
        )
        done.set()
        await submitting
        assert info.ready
        assert seen
        assert await game.board("later").top(500, details=False) == await game.board("total").top(500, details=False)
        assert (await laurels.verify()).problems == []
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        assert await game.board("later").top(500, details=False) == await game.board("total").top(500, details=False)


async def test_removal_while_a_board_is_built(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["amy", "bob", "cat"], [30, 20, 10])
        store: Any = laurels._store
        publish_board, tries = store.publish_board, []

        async def meddle(board: Any, complete: Any, publish: Any) -> bool:
            """At the last moment: what was built is written, then an entry removed and a player banned."""
            tries.append(board.board_id)
            if len(tries) == 1:
                await store.settled(lambda seq: complete(seq))
                await store.settled(lambda seq: None)
                assert await game.board("best").remove("amy")
                await game.ban("cat")
            return await publish_board(board, complete, publish)

        monkeypatch.setattr(store, "publish_board", meddle)
        await game.define_board("best", Board(order=("score asc",)))
        assert len(set(tries)) == 2
        assert [e.player_id for e in await game.board("best").top()] == ["bob"]
        assert (await laurels.verify()).problems == []
    async with Laurels.open(url) as laurels:
        assert [e.player_id for e in await laurels.game("g").board("best").top()] == ["bob"]
        assert (await laurels.verify()).problems == []


async def test_player_banned_while_a_board_is_loaded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        await laurels.game("g").submit_many(["amy", "bob"], [30, 20])
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        reader: Any = laurels._store.reader
        read_entries, read, go_on = reader.entries, threading.Event(), threading.Event()

        def entries_slowly(*arguments: Any) -> Any:
            entries = list(read_entries(*arguments))
            read.set()
            assert go_on.wait(30)
            return entries

        monkeypatch.setattr(reader, "entries", entries_slowly)
        loading = asyncio.create_task(game.board("best").top())
        await asyncio.to_thread(read.wait, 30)
        await game.ban("amy")
        go_on.set()
        assert [e.player_id for e in await loading] == ["bob"]
        assert [e.player_id for e in await game.board("best").top()] == ["bob"]


async def test_board_is_changed_and_dropped(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["a", "b"], [1, 2])
        cursor = (await game.board("best").page(1)).next
        await game.define_board("best", Board(order=("score asc",)))
        assert [e.player_id for e in await game.board("best").top()] == ["a", "b"]
        with pytest.raises(InvalidCursor, match="redefined"):
            await game.board("best").page(1, cursor=cursor)
        await game.drop_board("best")
        with pytest.raises(NotFound, match="best"):
            game.board("best")
        await game.submit("c", 3)
    async with Laurels.open(url) as laurels:
        game = laurels.game("g")
        assert "best" not in [info.name for info in game.boards()]
        await game.define_board("best", Board())
        assert [e.player_id for e in await game.board("best").top()] == ["c", "b", "a"]
        assert (await laurels.verify()).problems == []


async def test_board_that_can_not_be_built_leaves_the_earlier_one(url: str) -> None:
    async with Laurels.open(url, config={"games": {"g": {"boards": {"times": {"scale": 2}}}}}) as laurels:
        game = laurels.game("g")
        await game.submit("amy", Decimal("1.25"))
        with pytest.raises(OutOfRange, match=r"score.*0 decimal digits"):
            await game.define_board("times", Board())
        with pytest.raises(OutOfRange):
            await game.define_board("whole", Board())
        with pytest.raises(OutOfRange):
            game.board("whole")
        await game.submit("bob", Decimal("2.50"))
        assert [entry.score for entry in await game.board("times").top()] == [Decimal("2.50"), Decimal("1.25")]
        assert game.board("times").definition.scale == 2
        await game.define_board("whole", Board(scale=3))
        assert await game.board("whole").count() == 2
    async with Laurels.open(url) as laurels:
        assert [info.name for info in laurels.game("g").boards()] == ["times", "whole"]
        assert (await laurels.verify()).problems == []


async def test_errors_count_the_caller_s_rows(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["a", "b"], [1, 2], submission_ids=["1", "2"])
        with pytest.raises(OutOfRange, match=r"scores\[3\]"):
            await game.submit_many(["a", "c", "b", "d"], [1, 3, 2, Decimal("1.5")], submission_ids=["1", "3", "2", "4"])
        assert await game.board("best").count() == 2


async def test_definitions_come_from_the_configuration_too(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        await laurels.game("g").submit("amy", 5)
    changed = {"games": {"g": {"boards": {"best": {"order": ["score asc"]}, "new": {}}}}}
    async with Laurels.open(url, config=changed) as laurels:
        game = laurels.game("g")
        assert [e.score for e in await game.board("new").top()] == [5]
        assert game.board("best").definition.order == ("score asc",)
        assert game.board("total").definition.policy == "sum"


async def test_sets_and_partitions(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        for player, modifiers in (
            ("a", ["x", "y"]),
            ("b", {"y", "x"}),
            ("c", frozenset()),
            ("d", None),
            ("e", ["none"]),
        ):
            await game.submit(player, 1, dimensions={"track": "t", "modifiers": modifiers})
        assert [e.player_id for e in await game.board("songs", track="t", modifiers=("y", "x", "y")).top()] == [
            "a",
            "b",
        ]
        assert [e.player_id for e in await game.board("songs", track="t", modifiers=[]).top()] == ["c", "e"]
        assert await game.board("songs", track="unknown", modifiers=[]).top() == []
        assert sorted(info.entries for info in await game.instances("songs")) == [2, 2]
        with pytest.raises(InvalidInput, match="modifiers"):
            await game.board("songs", track="t").top()
        with pytest.raises(InvalidInput, match="colour"):
            await game.board("songs", track="t", modifiers=[], colour="red").top()


async def test_window_instances_and_bounds(url: str, clock: Any) -> None:
    season = Window(start=datetime(2026, 12, 2, tzinfo=UTC), end=datetime(2026, 12, 3, tzinfo=UTC))
    config = {"games": {"g": {"boards": {"day": {"window": {"every": "day"}}, "season": {"window": season}}}}}
    async with Laurels.open(url, config=config, clock=clock) as laurels:
        game = laurels.game("g")
        for day in range(4):
            await game.submit("amy", day)
            clock.advance(days=1)
        assert [e.score for e in await game.board("season", at=season.start).top()] == [1]
        labels = [info.instance.window_label for info in await game.instances("day")]
        assert labels == ["2026-12-01", "2026-12-02", "2026-12-03", "2026-12-04"]
        yesterday = clock.now - timedelta(days=1)
        assert [e.score for e in await game.board("day", at=yesterday).top()] == [3]
        with pytest.raises(InvalidInput, match="at"):
            game.board("day", at=datetime(2026, 12, 1))
        standings = await game.standings("amy")
        assert len(standings) == 5


# --- reads ------------------------------------------------------------------------------------------------------


async def test_range_friends_histogram(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many([f"p{n:03}" for n in range(200)], [n // 2 for n in range(200)])
        board = game.board("best")
        assert [e.score for e in await board.range(10, 12)] == [12, 12, 11, 11, 10, 10]
        assert await board.range(500, 600) == []
        assert await board.range(12, 10) == []
        friends = await board.players(["p199", "p000", "nobody", "p198", "p000"])
        assert [(f.rank, f.position, f.entry.player_id) for f in friends] == [
            (1, 1, "p198"),
            (1, 2, "p199"),
            (3, 3, "p000"),
        ]
        assert friends[2].entry.rank == 199
        buckets = await board.histogram(10)
        assert [(b.low, b.high, b.count) for b in buckets] == [(n, n + 9, 20) for n in range(0, 100, 10)]
        standing = await board.entry("p198")
        assert (standing.percentile, standing.total) == (100.0, 200)
        assert (await board.entry("p000")).percentile == 1.0
        with pytest.raises(InvalidInput, match="Decimal"):
            await board.range(1.5, 2)
        for bad in (0, -1, 1_001, True):
            with pytest.raises(LimitExceeded):
                await board.top(bad)


async def test_cursors_are_bound_to_their_board(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many(["a", "b", "c"], [1, 2, 3])
        cursor = (await game.board("best").page(1)).next
        for other in (
            game.board("total"),
            game.board("songs", track="t", modifiers=[]),
            laurels.game("other").board("best"),
        ):
            with pytest.raises(InvalidCursor):
                await other.page(1, cursor=cursor)
        for broken in ("", "x", cursor[:-2], cursor[::-1], "ünï", cursor + "A"):
            with pytest.raises(InvalidCursor):
                await game.board("best").page(1, cursor=broken)


async def test_cursors_outlive_a_restart_and_are_not_forged(new_url: Callable[[], str]) -> None:
    url, other_url = new_url(), new_url()
    for one in (url, other_url):
        async with Laurels.open(one, config=CONFIG) as laurels:
            await laurels.game("g").submit_many(["a", "b", "c"], [1, 2, 3])
            cursor = (await laurels.game("g").board("best").page(1)).next
            await laurels.game("g").submit("a", 1)
            of_history = (await laurels.game("g").history("a", limit=1)).next
    async with Laurels.open(other_url) as laurels:
        assert [e.player_id for e in await laurels.game("g").board("best").page(1, cursor=cursor)] == ["b"]
        assert len(await laurels.game("g").history("a", cursor=of_history)) == 1
    async with Laurels.open(url) as laurels:  # the same places, but another store's word for them
        with pytest.raises(InvalidCursor):
            await laurels.game("g").board("best").page(1, cursor=cursor)
        with pytest.raises(InvalidCursor):
            await laurels.game("g").history("a", cursor=of_history)


async def test_decimals_come_back_exactly(url: str) -> None:
    config = {"games": {"g": {"boards": {"times": {"order": ["score asc"], "scale": 3}}}}}
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")
        times = [Decimal("61.002"), Decimal("9.5"), 12, Decimal("-0.001")]
        await game.submit_many(list("abcd"), times, metrics={"accuracy": Decimal("94.7800")})
    async with Laurels.open(url) as laurels:
        entries = await laurels.game("g").board("times").top()
        assert [str(entry.score) for entry in entries] == ["-0.001", "9.500", "12.000", "61.002"]
        assert entries[0].submission is not None
        assert entries[0].submission.metrics["accuracy"] == Decimal("94.78")


async def test_columns_of_numpy(url: str) -> None:
    numpy = pytest.importorskip("numpy")
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        players = numpy.array(["a", "b", "c"])
        await game.submit_many(players, numpy.array([3, 1, 2]), metrics={"combo": numpy.arange(3)})
        assert [e.player_id for e in await game.board("best").top()] == ["a", "c", "b"]
        with pytest.raises(InvalidInput, match="floats"):
            await game.submit_many(players, numpy.array([3.0, 1.0, 2.0]))


# --- many at once -----------------------------------------------------------------------------------------------


async def test_back_pressure_bounds_what_waits(url: str) -> None:
    config = {**CONFIG, "limits": {"queued_rows_max": 2_000}}
    async with Laurels.open(url, config=config) as laurels:
        game = laurels.game("g")

        async def burst(number: int) -> None:
            await game.submit_many([f"p{number}-{n}" for n in range(500)], list(range(500)))

        await asyncio.gather(*(burst(number) for number in range(30)))
        assert await game.board("best").count() == 15_000


async def test_closed_is_said(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
    with pytest.raises(StoreUnavailable, match="closed"):
        await game.submit("amy", 1)
    with pytest.raises(StoreUnavailable, match="closed"):
        await game.history("amy")


async def test_backup_is_complete_while_work_goes_on(url: str, new_url: Callable[[], str]) -> None:
    target = new_url()
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        await game.submit_many([f"p{n}" for n in range(3_000)], list(range(3_000)))
        submitting = asyncio.create_task(game.submit("late", 1))
        await laurels.backup(target.partition(":///")[2])
        await submitting
        with pytest.raises(Conflict):
            await laurels.backup(target.partition(":///")[2])
    async with Laurels.open(target) as laurels:
        assert await laurels.game("g").board("best").count() >= 3_000
        assert (await laurels.verify()).problems == []
