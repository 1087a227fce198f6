"""The feed: takes what is committed, in order, to the rank indexes, and tells what it did.

It also knows how to work the same out again from the log: for a board that is defined later, for a player who is shown
again, and to check that everything adds up.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from laurels._native import Outcome as NativeOutcome
from laurels._native import Players, RankIndex
from laurels.batch import Batch
from laurels.boards import Place, Route
from laurels.errors import OutOfRange
from laurels.index import GameState, Indexes, LiveBoard, Unwritten
from laurels.model import Submission
from laurels.stores.base import Effect, Entries, NewInstance, Removal, Segment, seq_and_row
from laurels.windows import to_us

Removed = Mapping[tuple[str, Place], Mapping[str, int]]  # (board, instance) -> player -> up to which place


class SegmentOutcome:
    """What a segment did to each board instance that it fed."""

    def __init__(self) -> None:
        self._parts: list[tuple[LiveBoard, Route, int, NativeOutcome]] = []
        self._effects: list[Effect] | None = None

    def add(self, board: LiveBoard, route: Route, first_row: int, outcome: NativeOutcome) -> None:
        """The rows of a route did this."""
        self._parts.append((board, route, first_row, outcome))

    def effects(self) -> list[Effect]:
        """The same by the names that answers have for instances."""
        if self._effects is None:
            self._effects = [
                Effect(
                    board.ranker.instance_name(route.place),
                    board.ranker.score_scale,
                    _from(first_row, route.rows),
                    outcome,
                )
                for board, route, first_row, outcome in self._parts
            ]
        return self._effects


def _from(first_row: int, rows: Sequence[int]) -> Sequence[int]:
    """Rows of a batch as rows of its segment."""
    if isinstance(rows, range):
        return range(first_row + rows.start, first_row + rows.stop)
    return [first_row + row for row in rows]


class LocalFeed:
    """The feed of an engine whose log this process writes. Called on the writer's thread."""

    def __init__(self, indexes: Indexes, games: dict[str, GameState]) -> None:
        self._indexes = indexes
        self._games = games
        self._routed: dict[int, list[tuple[LiveBoard, list[Route]]]] = {}

    def admit(self, segments: Sequence[Segment]) -> None:
        """Raise OutOfRange if a number does not fit a board that it feeds, or a sum would leave 64 bits."""
        self._routed.clear()
        offsets: dict[str, int] = {}
        sums: dict[tuple[int, Place], tuple[LiveBoard, list[str], list[int]]] = {}
        for segment in segments:
            offset = offsets.get(segment.game, 0)
            offsets[segment.game] = offset + len(segment)
            routed = self._routed[segment.seq] = self._route(segment, offset)
            for board, routes in routed:
                if board.ranker.policy in ("sum", "count"):
                    for route in routes:
                        _, ids, values = sums.setdefault((board.id, route.place), (board, [], []))
                        ids.extend(segment.batch.player_ids[row] for row in route.rows)
                        values.extend(route.terms[board.ranker.value_term])
        for (_, place), (board, ids, values) in sums.items():
            index = self._indexes.create(board, place).index
            row = index.sum_overflow(ids, values)
            if row is not None:
                of = board.ranker.definition.of
                raise OutOfRange(
                    of, values[row], f"the {board.ranker.policy} of {ids[row]!r} on board {board.name} leaves 64 bits"
                )

    def apply(self, segment: Segment) -> SegmentOutcome:
        """Apply a durable segment to all boards of its game. Applying it again changes nothing."""
        outcome = SegmentOutcome()
        game = self._games[segment.game]
        for board, routes in self._routed.pop(segment.seq, None) or self._route(segment, 0):
            for part in permitted(routes, segment, game.banned, {}, board.name):
                instance = self._indexes.create(board, part.place)
                done = applied(instance.index, part, segment)
                self._indexes.touch(instance)
                outcome.add(board, part, segment.first_row, done)
        self._indexes.changed()
        return outcome

    def _route(self, segment: Segment, offset: int) -> list[tuple[LiveBoard, list[Route]]]:
        game = self._games[segment.game]
        accepted_at = segment.accepted_at + segment.first_row
        return [(board, board.ranker.routes(segment.batch, accepted_at, offset)) for board in game.boards.values()]

    def unwritten_count(self) -> int:
        """How many entries changed since they were last written."""
        return self._indexes.unwritten_count()

    def new_instances(self) -> list[NewInstance]:
        """The instances that the store must learn before it is given entries of theirs."""
        return self._indexes.new_instances()

    def unwritten(self) -> Unwritten:
        """The entries that changed since they were last written."""
        return self._indexes.unwritten()

    def written(self, instances: Sequence[NewInstance], entries: Sequence[Entries]) -> None:
        """These are durable now."""
        self._indexes.written(instances, entries)

    def expired(self, now_us: int) -> list[tuple[int, int]]:
        """(board, oldest window start still kept) of each board that keeps some windows; older ones leave memory."""
        bounds = []
        for game in list(self._games.values()):
            for board in list(game.boards.values()):
                periods = board.ranker.periods
                oldest = None if periods is None else periods.oldest_kept(now_us)
                if periods is None or oldest is None:
                    continue
                start_us = periods.numbered(oldest).start_us
                assert start_us is not None
                bounds.append((board.id, start_us))
                old = [
                    instance
                    for instance in self._indexes.of_board(board)
                    if instance.place.window_start is not None and instance.place.window_start < start_us
                ]
                self._indexes.forget(old)
        return bounds


def applied(index: RankIndex, route: Route, segment: Segment) -> NativeOutcome:
    """Apply the rows of a route to an index."""
    batch, first = segment.batch, segment.first_place
    if len(route.rows) == len(batch):
        return index.apply(segment.ids, route.terms, segment.places)
    return index.apply([batch.player_ids[row] for row in route.rows], route.terms, [first + row for row in route.rows])


def permitted(
    routes: Iterable[Route], segment: Segment, banned: set[str], removed: Removed, board: str
) -> Iterator[Route]:
    """Routes without the rows of banned players, and of those whose submissions up to a place were removed."""
    ids = segment.batch.player_ids
    for route in routes:
        gone = removed.get((board, route.place))
        if not gone and (not banned or banned.isdisjoint(ids)):
            yield route
            continue
        kept = [
            at
            for at, row in enumerate(route.rows)
            if ids[row] not in banned and segment.first_place + row > (gone or {}).get(ids[row], -1)
        ]
        if kept:
            rows = [route.rows[at] for at in kept]
            yield Route(route.place, rows, [[column[at] for at in kept] for column in route.terms])


def removals_by_instance(removals: Iterable[Removal]) -> Removed:
    """Removals as `permitted` looks them up."""
    found: dict[tuple[str, Place], dict[str, int]] = {}
    for removal in removals:
        found.setdefault((removal.board, removal.instance), {})[removal.player_id] = removal.place
    return found


class Replay:
    """Boards worked out from the log: each instance anew, apart from the live ones or as the first of them."""

    def __init__(
        self,
        boards: Sequence[LiveBoard],
        open_index: Callable[[LiveBoard, Place], RankIndex],
        *,
        banned: set[str],
        removals: Iterable[Removal],
    ) -> None:
        self._boards = boards
        self._open_index = open_index
        self._banned = banned
        self._removed = removals_by_instance(removals)

    def apply(self, segment: Segment) -> None:
        """The next segment of the log."""
        for board in self._boards:
            routes = board.ranker.routes(segment.batch, segment.accepted_at + segment.first_row)
            for part in permitted(routes, segment, self._banned, self._removed, board.name):
                applied(self._open_index(board, part.place), part, segment)


def entries_of_player(
    boards: Sequence[LiveBoard], history: Iterable[tuple[int, Submission]], removals: Iterable[Removal]
) -> list[tuple[LiveBoard, Place, list[int], int]]:
    """A player's entries on boards, worked out from their submissions in the order of the log: board, instance, terms
    and place of each."""
    indexes: dict[tuple[int, Place], tuple[LiveBoard, RankIndex]] = {}
    players = Players()

    def open_index(board: LiveBoard, place: Place) -> RankIndex:
        return indexes.setdefault((board.id, place), (board, board.new_index(players)))[1]

    replay = Replay(boards, open_index, banned=set(), removals=removals)
    for place, submission in history:
        replay.apply(_segment_of_one(place, submission))
    found = []
    for (_, instance), (board, index) in indexes.items():
        entries = index.pending()
        if len(entries):
            found.append((board, instance, [column[0] for column in entries.terms], entries.places[0]))
    return found


def _segment_of_one(place: int, submission: Submission) -> Segment:
    seq, row = seq_and_row(place)
    batch = Batch(
        player_ids=[submission.player_id],
        scores=[submission.score],
        submission_ids=[submission.submission_id],
        played_at=[None if submission.played_at is None else to_us(submission.played_at)],
        dimensions={name: [value] for name, value in submission.dimensions.items()},
        metrics={name: [value] for name, value in submission.metrics.items()},
    )
    return Segment(seq, "", to_us(submission.accepted_at) - row, batch, row)
