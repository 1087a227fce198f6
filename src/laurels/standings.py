"""Reads of one board instance. Ranks, positions and counts come from the rank index; names and plays from the store."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from laurels._native import RankIndex, Rows
from laurels.batch import check_ids
from laurels.boards import Place, Ranker, place_key, scaled, unscaled
from laurels.errors import InvalidCursor, InvalidInput, LimitExceeded, NotFound
from laurels.index import Instance, LiveBoard
from laurels.model import Board, Bucket, DimensionValue, Entry, Friend, InstanceName, Number, Page, Standing, Submission

if TYPE_CHECKING:
    from laurels.games import Game

CONSISTENT_TRIES = 8
OFFSET_MAX = 2**53
Read: TypeAlias = Callable[[RankIndex], Rows | None]


class BoardInstance:
    """One list of a board: with these values of its partition, in the window that holds an instant.

    Every read sees one moment. An instance that nobody has fed is empty, not an error.
    """

    def __init__(self, game: "Game", name: str, at: datetime | None, partition: dict[str, DimensionValue]) -> None:
        self._game = game
        self._board_name = name
        self._at = at
        self._partition = partition

    @property
    def definition(self) -> Board:
        """The board's definition as it stands."""
        return self._game.live_board(self._board_name).saved.definition

    @property
    def name(self) -> InstanceName:
        """Which instance this is."""
        board = self._game.live_board(self._board_name)
        return board.ranker.instance_name(self._place(board))

    # --- reads ----------------------------------------------------------------------------------------------

    async def count(self) -> int:
        """How many entries there are."""
        _, _, instance = await self._open()
        return 0 if instance is None else len(instance.index)

    async def top(self, limit: int = 10, *, details: bool = True) -> list[Entry]:
        """The first entries. `details` adds names and the submissions that count."""
        return (await self.view_top(limit, details=details)).entries

    async def entry(self, player_id: str, *, details: bool = True) -> Standing:
        """A player's entry with rank, percentile and how many there are. NotFound if the player has none."""
        view = await self.view_around(player_id, 1, details=details)
        return Standing(instance=view.name, entry=view.entries[0], percentile=view.percentile(0), total=view.total)

    async def around(self, player_id: str, limit: int = 11, *, details: bool = True) -> list[Entry]:
        """`limit` entries with the player in the middle, shifted at the edges. NotFound if the player has none."""
        return (await self.view_around(player_id, limit, details=details)).entries

    async def page(
        self, limit: int = 25, cursor: str | None = None, offset: int | None = None, *, details: bool = True
    ) -> Page[Entry]:
        """A page of the board, from the top, from a cursor of an earlier page, or from an offset.

        A cursor is a place in the order: entries that do not move are neither missed nor shown twice while others do.
        An offset counts entries from the top as they stand at the moment of the call.
        """
        view = await self.view_page(limit, cursor, offset, details=details)
        return Page(items=view.entries, total=view.total, next=view.next, previous=view.previous)

    async def range(self, low: Number, high: Number, limit: int = 100, *, details: bool = True) -> list[Entry]:
        """Entries with `low` <= score <= `high`, in board order. The score must be the first term of the order."""
        return (await self.view_range(low, high, limit, details=details)).entries

    async def players(self, player_ids: Sequence[str], *, details: bool = True) -> list[Friend]:
        """Those of a list of players who have an entry, ranked among themselves and on the board, best first."""
        wanted = list(dict.fromkeys(player_ids))
        if len(wanted) > self._game.limits.players_max:
            raise LimitExceeded("player_ids", len(wanted), f"has at most {self._game.limits.players_max} players")
        check_ids(wanted, "player_ids", self._game.limits.id_bytes_max)
        board, _, instance = await self._open()
        if instance is None or not wanted:
            return []
        ranks, positions, terms = instance.index.entries(wanted)
        order = sorted((row for row in range(len(wanted)) if positions[row]), key=positions.__getitem__)
        rows = Chosen(
            [wanted[row] for row in order],
            [ranks[row] for row in order],
            [positions[row] for row in order],
            [[column[row] for row in order] for column in terms],
        )
        view = View(board, instance, board.ranker.instance_name(instance.place), len(instance.index), rows)
        if details:
            view.names, view.submissions = await self._game.details(instance, rows.player_ids)
        return _ranked_among(view.entries, list(zip(*rows.terms[: board.ranker.tie_terms], strict=True)), board)

    async def histogram(self, buckets: int = 20) -> list[Bucket]:
        """How many entries have which value of the order's first term (the score, on most boards), lowest first.

        Buckets are of equal width and cover all entries. At most `buckets` of them, none on an empty board.
        """
        if not 1 <= buckets <= self._game.limits.buckets_max:
            raise LimitExceeded("buckets", buckets, f"must be from 1 to {self._game.limits.buckets_max}")
        board, _, instance = await self._open()
        if instance is None or not len(instance.index):
            return []
        index, term = instance.index, board.ranker.terms[0]
        ends = [index.rows(1, 1).terms[0][0], index.rows(len(index), 1).terms[0][0]]
        low, high = min(ends), max(ends)
        width = -(-(high - low + 1) // buckets)
        found = []
        for start in range(low, high + 1, width):
            stop = min(start + width - 1, high)
            first, last = (stop, start) if term.descending else (start, stop)
            count = index.count_through([last]) - index.count_before([first])
            found.append(Bucket(low=unscaled(start, term.scale), high=unscaled(stop, term.scale), count=count))
        return found

    async def percentiles(self, percentiles: Sequence[float]) -> tuple[int, list[Entry]]:
        """How many entries there are, and for each percentile p (0 to 100) the last entry that stands at or above it:
        p percent of the entries are at or below its rank. No entries on an empty board."""
        for percentile in percentiles:
            if not 0 <= percentile <= 100:
                raise InvalidInput("percentiles", percentile, "must be from 0 to 100")
        board, place, instance = await self._open()
        name = board.ranker.instance_name(place)
        if instance is None or not len(instance.index):
            return 0, []
        total = len(instance.index)
        found = []
        for percentile in percentiles:
            position = min(total, max(1, total - math.ceil(percentile / 100 * total) + 1))
            rows = instance.index.rows(position, 1)
            found.extend(View(board, instance, name, total, rows).entries)
        return total, found

    # --- the same as views, for whoever shows only part of an entry ---------------------------------------------

    async def view_top(self, limit: int = 10, *, details: bool = False) -> "View":
        """The first entries."""
        self._check_limit(limit)
        return await self._read(lambda index: index.rows(1, limit), details)

    async def view_around(self, player_id: str, limit: int = 11, *, details: bool = False) -> "View":
        """`limit` entries with the player in the middle. NotFound if the player has none."""
        self._check_limit(limit)
        check_ids([player_id], "player_id", self._game.limits.id_bytes_max)
        view = await self._read(lambda index: index.around(player_id, limit), details)
        if not len(view):
            raise NotFound("entry", player_id, f"board {self._board_name} has none of this player")
        return view

    async def view_page(
        self, limit: int = 25, cursor: str | None = None, offset: int | None = None, *, details: bool = False
    ) -> "View":
        """A page, with the cursors of those next to it."""
        self._check_limit(limit)
        if cursor is not None and offset is not None:
            raise InvalidInput("offset", offset, "goes without a cursor")
        if offset is not None and not 0 <= offset <= OFFSET_MAX:
            raise InvalidInput("offset", offset, f"must be from 0 to {OFFSET_MAX}")
        board, place, instance = await self._open()
        if cursor is None:
            read: Read = lambda index: index.rows(1 + (offset or 0), limit)  # noqa: E731
        else:
            backward, terms, player_id = self._from_cursor(board, place, cursor)
            read = lambda index: (index.before if backward else index.after)(terms, player_id, limit)  # noqa: E731
        view = await self._view(board, place, instance, read, details)
        if len(view):
            if view.positions[-1] < view.total:
                view.next = self._to_cursor(board, place, False, view, -1)
            if view.positions[0] > 1:
                view.previous = self._to_cursor(board, place, True, view, 0)
        return view

    async def view_range(self, low: Number, high: Number, limit: int = 100, *, details: bool = False) -> "View":
        """Entries with `low` <= score <= `high`."""
        self._check_limit(limit)
        board = self._game.live_board(self._board_name)
        term = board.ranker.terms[0]
        if board.ranker.value_term != 0:
            raise InvalidInput("order", list(board.saved.definition.order), "must start with the score for a range")
        for name, bound in (("low", low), ("high", high)):
            if isinstance(bound, bool | float):
                raise InvalidInput(name, bound, "must be an integer or a Decimal")
        bounds = [scaled([low], term.scale, "low", "the board")[0], scaled([high], term.scale, "high", "the board")[0]]
        first, last = (bounds[1], bounds[0]) if term.descending else (bounds[0], bounds[1])

        def read(index: RankIndex) -> Rows:
            before = index.count_before([first])
            return index.rows(before + 1, max(0, min(limit, index.count_through([last]) - before)))

        return await self._read(read, details)

    # --- moderation -----------------------------------------------------------------------------------------

    async def remove(self, player_id: str) -> bool:
        """Remove a player's entry: their submissions so far no longer count here. Whether there was an entry."""
        return await self._game.remove_entry(self._board_name, self._place, player_id)

    # --- how reads are made ---------------------------------------------------------------------------------

    def _place(self, board: LiveBoard) -> Place:
        only = board.ranker.only_place
        if only is not None and not self._partition:
            return only
        instant = self._game.instant(self._at)
        place = board.ranker.place(self._game.partition(self._partition), instant)
        if not board.ranker.is_kept(place, self._game.instant(None)):
            raise NotFound(
                "window", board.ranker.instance_name(place).window_label or self._board_name, "no longer kept"
            )
        return place

    async def _open(self) -> tuple[LiveBoard, Place, Instance | None]:
        game = self._game
        board = game.board_at_hand(self._board_name) or await game.ready_board(self._board_name)
        place = self._place(board)
        return board, place, game.instance_at_hand(board, place) or await game.open_instance(board, place)

    async def _read(self, read: Read, details: bool) -> "View":
        return await self._view(*await self._open(), read, details)

    async def _view(
        self, board: LiveBoard, place: Place, instance: Instance | None, read: Read, details: bool
    ) -> "View":
        """Rows of the index. With details, read again if an entry changed while they were fetched."""
        name = board.ranker.instance_name(place)
        if instance is None:
            return View(board, None, name, 0, None)
        for _ in range(CONSISTENT_TRIES):
            rows = read(instance.index)
            view = View(board, instance, name, len(instance.index), rows)
            if not details or not len(view):
                break
            view.names, view.submissions = await self._game.details(instance, view.player_ids)
            if instance.index.entries(view.player_ids)[2] == view.terms:
                break
        return view

    def _check_limit(self, limit: int) -> None:
        most = self._game.limits.page_rows_max
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
            raise LimitExceeded("limit", limit, f"must be from 1 to {most}")

    def _to_cursor(self, board: LiveBoard, place: Place, backward: bool, view: "View", row: int) -> str:
        """A place in the order of this instance, as text that only this instance takes back."""
        terms = [column[row] for column in view.terms]
        return self._game.cursors.to_text(
            self._game.name, board.id, place_key(place), backward, terms, view.player_ids[row]
        )

    def _from_cursor(self, board: LiveBoard, place: Place, cursor: str) -> tuple[bool, list[int], str]:
        parts = self._game.cursors.from_text(cursor, tuple[str, int, str, bool, list[int], str])
        game, board_id, key, backward, terms, player_id = parts
        if (game, board_id, key) != (self._game.name, board.id, place_key(place)):
            raise InvalidCursor("cursor", cursor, "belongs to another board instance, or the board has been redefined")
        return backward, terms, player_id


class Chosen(NamedTuple):
    """Entries of an index as columns, not consecutive ones."""

    player_ids: list[str]
    ranks: list[int]
    positions: Sequence[int]
    terms: list[list[int]]

    def term(self, number: int) -> list[int]:
        """One column of terms."""
        return self.terms[number]


class View:
    """What a read saw, as columns, best first, and of which instance; `total` is how many entries that has.

    `next` and `previous` are the cursors of a page. Names and submissions are there if details were asked for.
    """

    __slots__ = (
        "_rows",
        "board",
        "instance",
        "name",
        "names",
        "next",
        "player_ids",
        "previous",
        "submissions",
        "total",
    )

    def __init__(
        self,
        board: LiveBoard,
        instance: Instance | None,
        name: InstanceName,
        total: int,
        rows: Rows | Chosen | None,
    ) -> None:
        self._rows = Chosen([], [], [], []) if rows is None else rows
        self.board = board
        self.instance = instance
        self.name = name
        self.total = total
        self.player_ids = self._rows.player_ids
        self.names: Mapping[str, str | None] = {}
        self.submissions: Sequence[Submission | None] | None = None
        self.next: str | None = None
        self.previous: str | None = None

    def __len__(self) -> int:
        return len(self.player_ids)

    @property
    def ranks(self) -> list[int]:
        """The rank of each row."""
        return self._rows.ranks

    @property
    def positions(self) -> Sequence[int]:
        """The position of each row."""
        if isinstance(self._rows, Chosen):
            return self._rows.positions
        first = self._rows.first_position
        return range(first, first + len(self.player_ids))

    @property
    def terms(self) -> list[list[int]]:
        """The values of the order's terms, a column each."""
        return self._rows.terms

    @property
    def scores(self) -> Sequence[Number]:
        """The score of each row."""
        ranker = self.board.ranker
        if not self.player_ids:
            return []
        column = self._rows.term(ranker.value_term)
        return [ranker.score(value) for value in column] if ranker.score_scale else column

    @property
    def orders(self) -> list[dict[str, Any]]:
        """The values of the board's order terms of each row, by field."""
        return [self.board.ranker.order_values(terms) for terms in zip(*self.terms, strict=True)]

    def percentile(self, row: int) -> float:
        """The share of entries, in percent, that stand at or below a row's rank."""
        assert self.instance is not None
        ties = [self._rows.term(term)[row] for term in range(self.board.ranker.tie_terms)]
        return percentile(self.total, self.instance.index.count_before(ties))

    @property
    def entries(self) -> list[Entry]:
        """The rows as entries."""
        ranker = self.board.ranker
        submissions = self.submissions or [None] * len(self)
        columns = zip(self.player_ids, self.ranks, self.positions, zip(*self.terms, strict=True), strict=True)
        return [
            entry_of(ranker, player_id, rank, position, terms, self.names.get(player_id), submission)
            for (player_id, rank, position, terms), submission in zip(columns, submissions, strict=True)
        ]


def percentile(total: int, ahead: int) -> float:
    """The share of entries, in percent, that do not stand ahead."""
    return 100.0 * max(total - ahead, 1) / max(total, 1)


def entry_of(
    ranker: Ranker,
    player_id: str,
    rank: int,
    position: int,
    terms: Sequence[int],
    name: str | None = None,
    submission: Submission | None = None,
) -> Entry:
    """What an index holds of a player, as an entry."""
    return Entry(
        rank=rank,
        position=position,
        player_id=player_id,
        score=ranker.score(terms[ranker.value_term]),
        name=name,
        order=ranker.order_values(terms),
        submission=submission,
    )


def _ranked_among(entries: list[Entry], ties: list[tuple[int, ...]], board: LiveBoard) -> list[Friend]:
    """Entries in board order, ranked among themselves by the board's ranking; equal `ties` are ties."""
    ranking = board.ranker.definition.ranking
    friends: list[Friend] = []
    for at, entry in enumerate(entries):
        tied = at > 0 and ties[at] == ties[at - 1] and ranking != "ordinal"
        if tied:
            rank = friends[-1].rank
        elif ranking == "dense" and friends:
            rank = friends[-1].rank + 1
        else:
            rank = at + 1
        friends.append(Friend(rank=rank, position=at + 1, entry=entry))
    return friends
