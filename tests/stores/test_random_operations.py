"""Random operations on a store beside a model that keeps a list: submissions, repeats, moderation, boards that come and
go, restarts, and crashes (the files are copied as they are, and the copy is opened). The seed replays a run."""

import asyncio
import contextlib
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from laurels import Board, Laurels
from laurels.errors import Conflict, NotFound
from laurels.games import Game
from laurels.model import Answer

PLAYERS = [f"p{n}" for n in range(12)]
BOARDS: dict[str, dict[str, Any]] = {
    "best": {},
    "low": {"order": ["score asc"]},
    "total": {"policy": "sum", "order": ["score desc"]},
    "latest": {"policy": "last", "order": ["score desc", "player_id desc"]},
    "plays": {"policy": "count", "order": ["score desc"], "ranking": "dense"},
    "levels": {"partition": ["level"], "ranking": "ordinal"},
}
LEVELS = ["a", "b"]


class Model:
    """Every submission in order, and what was done to players and boards."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int, str, str | None]] = []  # player, score, level, id
        self.answers: dict[str, Answer] = {}
        self.erased_ids: set[str] = set()
        self.banned: set[str] = set()
        self.removed: dict[tuple[str, str, str], int] = {}  # board, level, player -> so many of the log do not count
        self.boards = set(BOARDS) - {"low"}

    def scores(self, board: str, level: str) -> dict[str, int]:
        """The right score of each player on a board (instance)."""
        plays: dict[str, list[int]] = {}
        for at, (player, score, of_level, _) in enumerate(self.log):
            if player in self.banned or (board == "levels" and of_level != level):
                continue
            if at >= self.removed.get((board, level, player), 0):
                plays.setdefault(player, []).append(score)
        count = {
            "best": max,
            "levels": max,
            "low": min,
            "total": sum,
            "latest": lambda scores: scores[-1],
            "plays": len,
        }[board]
        return {player: count(scores) for player, scores in plays.items()}


class Run:
    """One run: the store, the model, and the steps."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.copies = 0
        self.path = folder / "store-0.db"
        self.model = Model()
        self.ids = 0
        self.stack = contextlib.AsyncExitStack()

    async def open(self) -> None:
        definitions = {name: BOARDS[name] for name in self.model.boards}
        config = {"games": {"g": {"boards": definitions}}} if not self.model.log else None
        self.laurels = await self.stack.enter_async_context(Laurels.open(f"sqlite:///{self.path}", config=config))
        self.game: Game = self.laurels.game("g")

    async def submit(self) -> None:
        rows = self.rng.choice([1, 1, 1, 5, 40])
        players = self.rng.choices(PLAYERS, k=rows)
        scores = [self.rng.randrange(-20, 20) for _ in range(rows)]
        levels = self.rng.choices(LEVELS, k=rows)
        ids: list[str | None] = []
        for _ in range(rows):
            self.ids += 1
            ids.append(f"id-{self.ids}" if self.rng.random() < 0.6 else None)
        answers = await self.game.submit_many(players, scores, submission_ids=ids, dimensions={"level": levels})
        for row in range(rows):
            self.model.log.append((players[row], scores[row], levels[row], ids[row]))
            if (name := ids[row]) is not None:
                self.model.answers[name] = answers[row]

    async def repeat(self) -> None:
        names = sorted(self.model.answers)
        if not names:
            return
        again = await self.game.submit_many(
            ["somebody else"] * len(names), [10_000] * len(names), submission_ids=names, dimensions={"level": "a"}
        )
        assert all(again.repeated)
        for row, name in enumerate(names):
            assert again[row] == self.model.answers[name]
        for name in self.rng.sample(sorted(self.model.erased_ids), min(1, len(self.model.erased_ids))):
            with pytest.raises(Conflict):
                await self.game.submit("somebody else", 10_000, submission_id=name, dimensions={"level": "a"})

    async def idle(self) -> None:
        """Long enough for some of what is behind to be written, or for all of it."""
        await asyncio.sleep(self.rng.random() * 0.06)

    async def ban_or_unban(self) -> None:
        player = self.rng.choice(PLAYERS)
        if player in self.model.banned:
            await self.game.unban(player)
            self.model.banned.discard(player)
        else:
            await self.game.ban(player)
            self.model.banned.add(player)

    async def remove_entry(self) -> None:
        board = self.rng.choice(sorted(self.model.boards))
        level, player = self.rng.choice(LEVELS), self.rng.choice(PLAYERS)
        there = player in self.model.scores(board, level)
        instance = self.game.board(board, **({"level": level} if board == "levels" else {}))
        assert await instance.remove(player) == there
        for of_level in [level] if board == "levels" else LEVELS:
            self.model.removed[board, of_level, player] = len(self.model.log)

    async def erase_player(self) -> None:
        player = self.rng.choice(PLAYERS)
        gone = [row for row in self.model.log if row[0] == player]
        assert await self.game.remove_player(player) == len(gone)
        self.model.erased_ids |= {row[3] for row in gone if row[3] is not None}
        for _, _, _, name in gone:
            self.model.answers.pop(name or "", None)
        # Positions in the model's list shift: keep what the removals of others point at.
        before = [row[0] == player for row in self.model.log]
        self.model.removed = {key: at - sum(before[:at]) for key, at in self.model.removed.items() if key[2] != player}
        self.model.log = [row for row in self.model.log if row[0] != player]
        self.model.banned.discard(player)

    async def change_boards(self) -> None:
        name = self.rng.choice(sorted(BOARDS))
        if name in self.model.boards:
            await self.game.drop_board(name)
            self.model.boards.discard(name)
        else:
            definition = {"order": ("score desc", "accepted_at asc")} | BOARDS[name]
            await self.game.define_board(name, Board(**definition))
            self.model.boards.add(name)

    async def restart(self) -> None:
        await self.stack.aclose()
        await self.open()

    async def crash(self) -> None:
        """Go on with the files as a sudden end would leave them."""
        self.copies += 1
        copy = self.folder / f"store-{self.copies}.db"
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{self.path}{suffix}", f"{copy}{suffix}")
        await self.stack.aclose()
        self.path = copy
        await self.open()

    async def compare(self) -> None:
        for board in sorted(self.model.boards):
            for level in LEVELS if board == "levels" else LEVELS[:1]:
                right = self.model.scores(board, level)
                instance = self.game.board(board, **({"level": level} if board == "levels" else {}))
                entries = await instance.top(100)
                assert {entry.player_id: entry.score for entry in entries} == right, (board, level)
                scores = sorted(right.values(), reverse=board != "low")
                assert [entry.score for entry in entries] == scores
                ranks = {
                    "plays": [sorted(set(scores), reverse=True).index(score) + 1 for score in scores],
                    "levels": list(range(1, len(scores) + 1)),
                }.get(board, [scores.index(score) + 1 for score in scores])
                assert [entry.rank for entry in entries] == ranks
        counts = Counter(row[0] for row in self.model.log)
        player = self.rng.choice(PLAYERS)
        history = await self.game.history(player, limit=1_000)
        assert len(history) == counts[player]
        assert [s.score for s in history] == [row[1] for row in reversed(self.model.log) if row[0] == player]
        named = [row for row in self.model.log if row[3] is not None]
        if named:
            some = self.rng.choice(named)
            assert (await self.game.submission(str(some[3]))).score == some[1]
        for name in sorted(self.model.erased_ids)[:1]:
            with pytest.raises(NotFound):
                await self.game.submission(name)


@pytest.mark.parametrize("seed", range(8))
async def test_random_operations_agree_with_the_model(
    seed: int, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine != "sqlite":
        pytest.skip("crashes are copies of the embedded engine's files")
    monkeypatch.setattr("laurels.stores.sqlite.behind.SLICE_ROWS", 3)  # so that a crash finds it half written
    run = Run(seed, tmp_path)
    steps = [
        *[run.submit] * 12,
        *[run.repeat] * 3,
        *[run.idle] * 5,
        *[run.ban_or_unban] * 2,
        *[run.remove_entry] * 2,
        run.erase_player,
        run.change_boards,
        *[run.restart] * 2,
        *[run.crash] * 2,
    ]
    await run.open()
    try:
        await run.submit()
        for _ in range(60):
            step = run.rng.choice(steps)
            await step()
            await run.compare()
        assert (await run.laurels.verify()).problems == []
    finally:
        await run.stack.aclose()
