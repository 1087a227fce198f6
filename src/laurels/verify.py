"""Verification: everything worked out again from the log, and compared with what is served and what is kept."""

import asyncio
from collections.abc import Callable, Iterator

from msgspec import Struct

from laurels._native import Players, RankIndex
from laurels.boards import Place
from laurels.errors import StoreDamaged
from laurels.feed import Replay
from laurels.index import GameState, Indexes, LiveBoard
from laurels.stores.base import Progress, Segment, Store

PROBLEMS_MAX = 100
ROWS = 10_000


class VerifyReport(Struct, kw_only=True):
    """What was looked at, and what is wrong: nothing, if `problems` is empty."""

    submissions: int = 0
    instances: int = 0
    entries: int = 0
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems

    def wrong(self, problem: str) -> None:
        """Something is wrong."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


async def verify(
    store: Store,
    indexes: Indexes,
    games: dict[str, GameState],
    clock: Callable[[], int],
    progress: Progress | None,
) -> VerifyReport:
    """Check the file, the log and its order, submission ids, histories, and every board that is ready."""
    report = VerifyReport(problems=[])
    loop = asyncio.get_running_loop()

    def follow(after: int, up_to: int) -> int:
        for segment in store.segments(after, up_to):
            checks[segment.game].apply(segment)
            if progress is not None:
                loop.call_soon_threadsafe(progress, segment.seq, up_to)
        return up_to

    def finish(seq: int) -> None:
        if seq > done:
            follow(done, seq)
        for check in checks.values():
            check.compare(indexes, clock())

    for problem in await store.read(store.damage):
        report.wrong(f"file: {problem}")
    try:
        checks = await store.read(lambda: {name: _GameCheck(state, store, report) for name, state in games.items()})
        done = await store.read(follow, 0, await store.read(store.reader.last_seq))
        if store.read_only:
            await store.read(finish, done)
        else:
            await store.settled(finish)
    except StoreDamaged as error:
        report.wrong(str(error))
    return report


class _GameCheck:
    """One game, worked out from the log."""

    def __init__(self, state: GameState, store: Store, report: VerifyReport) -> None:
        self._state = state
        self._store = store
        self._report = report
        self._players = Players()
        self._moderations = state.moderations
        self._boards = list(state.boards.values())
        self._indexes: dict[tuple[int, Place], tuple[LiveBoard, RankIndex]] = {}
        self._last_accepted = -1
        self._ids, self._ids_seq = store.all_ids(state.name)
        self._replay = self._new_replay()

    def _new_replay(self) -> Replay:
        removals = self._store.reader.removals(self._state.name)
        return Replay(self._boards, self._open_index, banned=set(self._state.banned), removals=removals)

    def _open_index(self, board: LiveBoard, place: Place) -> RankIndex:
        known = self._indexes.get((board.id, place))
        if known is None:
            known = self._indexes[board.id, place] = (board, board.new_index(self._players))
        return known[1]

    def apply(self, segment: Segment) -> None:
        """The next segment: its order, its ids, its effects."""
        report, batch = self._report, segment.batch
        report.submissions += len(segment)
        accepted_at = segment.accepted_at + segment.first_row
        if accepted_at <= self._last_accepted:
            report.wrong(f"segment {segment.seq}: accepted_at runs backwards")
        self._last_accepted = accepted_at + len(segment) - 1
        if segment.seq <= self._ids_seq and any(batch.submission_ids):
            places, _ = self._ids.find(batch.submission_ids)
            for row, (submission_id, place) in enumerate(zip(batch.submission_ids, places, strict=True)):
                if submission_id is not None and place != segment.first_place + row:
                    report.wrong(f"submission {submission_id!r}: found at {place}, is at {segment.first_place + row}")
        self._players.load(batch.player_ids, list(range(segment.first_place, segment.first_place + len(segment))))
        self._replay.apply(segment)

    def compare(self, indexes: Indexes, now_us: int) -> None:
        """What was worked out with what is served and kept. Nothing may change meanwhile."""
        report, name = self._report, self._state.name
        if self._state.moderations != self._moderations or self._boards != list(self._state.boards.values()):
            report.wrong(f"game {name}: boards or bans were changed during verification; verify again")
            return
        ids, places = self._store.reader.last_places(name)
        if not self._store.read_only:
            for player_id, place, expected in zip(ids, places, self._players.last_places(ids), strict=True):
                if place != expected:
                    report.wrong(f"game {name}: the history of {player_id!r} starts at {place}, not at {expected}")
        seen = set()
        for (board_id, instance), (board, right) in self._indexes.items():
            if not board.ranker.is_kept(instance, now_us):
                continue
            seen.add((board_id, instance))
            report.instances += 1
            report.entries += len(right)
            self._compare_instance(indexes, board, instance, right)
        for board in self._boards:
            for served in indexes.of_board(board):
                if (board.id, served.place) not in seen and len(served.index):
                    report.wrong(f"board {board.name} {served.place}: has entries that no submission explains")

    def _compare_instance(self, indexes: Indexes, board: LiveBoard, place: Place, expected: RankIndex) -> None:
        report, what = self._report, f"board {board.name} {board.ranker.instance_name(place)}"
        instance = indexes.open(board, place)
        if instance is None:
            if len(expected):
                report.wrong(f"{what}: is missing")
            return
        try:
            instance.index.check()
            expected.check()
        except AssertionError as error:
            report.wrong(f"{what}: its index is inconsistent: {error}")
        self._compare_entries(what, "served", instance.index, expected)
        if not self._store.read_only:
            kept = board.new_index(self._players)
            kept.load_rows(self._store.reader.entries(instance.id, len(board.ranker.terms)))
            self._compare_entries(what, "kept", kept, expected)

    def _compare_entries(self, what: str, how: str, found: RankIndex, expected: RankIndex) -> None:
        for one, right in zip(_rows(found), _rows(expected), strict=False):
            if one != right:
                self._report.wrong(f"{what}: entry {one} is {how}, {right} is right")
                break
        if len(found) != len(expected):
            self._report.wrong(f"{what}: {len(found)} entries are {how}, {len(expected)} are right")


def _rows(index: RankIndex) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    for start in range(1, len(index) + 1, ROWS):
        rows = index.rows(start, ROWS)
        yield from zip(rows.player_ids, rows.ranks, zip(*rows.terms, strict=True), strict=True)
