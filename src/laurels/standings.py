"""Reads of one board instance. Ranks, positions and counts come from the rank index; names and plays from the store."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from laurels._native import RankIndex, Rows
from laurels.batch import check_ids
from laurels.boards import Place, place_key, scaled, unscaled
from laurels.cursors import from_cursor, to_cursor
from laurels.errors import InvalidCursor, InvalidInput, LimitExceeded, NotFound
from laurels.index import Instance, LiveBoard
from laurels.model import Board, Bucket, DimensionValue, Entry, Friend, InstanceName, Number, Page, Standing, Submission

if TYPE_CHECKING:
    from laurels.games import Game

CONSISTENT_TRIES = 8
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
        _, instance = await self._open()
        return 0 if instance is None else len(instance.index)

    async def top(self, limit: int = 10, *, details: bool = True) -> list[Entry]:
        """The first entries. `details` adds names and the submissions that count."""
        self._check_limit(limit)
        return (await self._read(lambda index: index.rows(1, limit), details)).entries

    async def entry(self, player_id: str, *, details: bool = True) -> Standing:
        """A player's entry with rank, percentile and how many there are. NotFound if the player has none."""
        view = await self._around(player_id, 1, details)
        ranker, rows = view.board.ranker, view.rows
        assert view.instance is not None
        ahead = view.instance.index.count_before([column[0] for column in rows.terms[: ranker.tie_terms]])
        return Standing(
            instance=ranker.instance_name(view.instance.place),
            entry=view.entries[0],
            percentile=100.0 * max(view.total - ahead, 1) / max(view.total, 1),
            total=view.total,
        )

    async def around(self, player_id: str, limit: int = 11, *, details: bool = True) -> list[Entry]:
        """`limit` entries with the player in the middle, shifted at the edges. NotFound if the player has none."""
        self._check_limit(limit)
        return (await self._around(player_id, limit, details)).entries

    async def _around(self, player_id: str, limit: int, details: bool) -> "_View":
        check_ids([player_id], "player_id", self._game.limits.id_bytes_max)
        view = await self._read(lambda index: index.around(player_id, limit), details)
        if not view.entries:
            raise NotFound("entry", player_id, f"board {self._board_name} has none of this player")
        return view

    async def page(
        self, limit: int = 25, cursor: str | None = None, offset: int | None = None, *, details: bool = True
    ) -> Page[Entry]:
        """A page of the board, from the top, from a cursor of an earlier page, or from an offset.

        A cursor is a place in the order: entries that do not move are neither missed nor shown twice while others do.
        An offset counts entries from the top as they stand at the moment of the call.
        """
        self._check_limit(limit)
        if cursor is not None and offset is not None:
            raise InvalidInput("offset", offset, "goes without a cursor")
        if offset is not None and offset < 0:
            raise InvalidInput("offset", offset, "must be 0 or more")
        board, instance = await self._open()
        place = self._place(board)
        if cursor is None:
            read: Read = lambda index: index.rows(1 + (offset or 0), limit)  # noqa: E731
        else:
            backward, terms, player_id = self._from_cursor(board, place, cursor)
            read = lambda index: (index.before if backward else index.after)(terms, player_id, limit)  # noqa: E731
        view = await self._view(board, instance, read, details)
        if not view.entries:
            return Page(items=[], total=view.total)
        rows, first = view.rows, view.rows.positions[0]
        last = rows.positions[-1]
        return Page(
            items=view.entries,
            total=view.total,
            next=self._to_cursor(board, place, False, rows, -1) if last < view.total else None,
            previous=self._to_cursor(board, place, True, rows, 0) if first > 1 else None,
        )

    async def range(self, low: Number, high: Number, limit: int = 100, *, details: bool = True) -> list[Entry]:
        """Entries with `low` <= score <= `high`, in board order. The score must be the first term of the order."""
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

        return (await self._read(read, details)).entries

    async def players(self, player_ids: Sequence[str], *, details: bool = True) -> list[Friend]:
        """Those of a list of players who have an entry, ranked among themselves and on the board, best first."""
        wanted = list(dict.fromkeys(player_ids))
        if len(wanted) > self._game.limits.players_max:
            raise LimitExceeded("player_ids", len(wanted), f"has at most {self._game.limits.players_max} players")
        check_ids(wanted, "player_ids", self._game.limits.id_bytes_max)
        board, instance = await self._open()
        if instance is None or not wanted:
            return []
        ranks, positions, terms = instance.index.entries(wanted)
        order = sorted((row for row in range(len(wanted)) if positions[row]), key=positions.__getitem__)
        rows = _ChosenRows(
            [wanted[row] for row in order],
            [ranks[row] for row in order],
            [positions[row] for row in order],
            [[column[row] for row in order] for column in terms],
        )
        entries = await self._described(board, instance, rows, details)
        return _ranked_among(entries, list(zip(*rows.terms[: board.ranker.tie_terms], strict=True)), board)

    async def histogram(self, buckets: int = 20) -> list[Bucket]:
        """How many entries have which value of the order's first term (the score, on most boards), lowest first.

        Buckets are of equal width and cover all entries. At most `buckets` of them, none on an empty board.
        """
        if not 1 <= buckets <= self._game.limits.buckets_max:
            raise LimitExceeded("buckets", buckets, f"must be from 1 to {self._game.limits.buckets_max}")
        board, instance = await self._open()
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

    # --- moderation -----------------------------------------------------------------------------------------

    async def remove(self, player_id: str) -> bool:
        """Remove a player's entry: their submissions so far no longer count here. Whether there was an entry."""
        return await self._game.remove_entry(self._board_name, self._place, player_id)

    # --- how reads are made ---------------------------------------------------------------------------------

    def _place(self, board: LiveBoard) -> Place:
        instant = self._game.instant(self._at)
        place = board.ranker.place(self._game.partition(self._partition), instant)
        if not board.ranker.is_kept(place, self._game.instant(None)):
            raise NotFound(
                "window", board.ranker.instance_name(place).window_label or self._board_name, "no longer kept"
            )
        return place

    async def _open(self) -> tuple[LiveBoard, Instance | None]:
        board = await self._game.ready_board(self._board_name)
        return board, await self._game.open_instance(board, self._place(board))

    async def _read(self, read: "Read", details: bool) -> "_View":
        board, instance = await self._open()
        return await self._view(board, instance, read, details)

    async def _view(self, board: LiveBoard, instance: Instance | None, read: "Read", details: bool) -> "_View":
        """Rows of the index as entries. With details, read again if an entry changed while they were fetched."""
        view = _View(board, instance, _ChosenRows([], [], [], []), [], 0)
        for _ in range(CONSISTENT_TRIES if instance is not None else 0):
            assert instance is not None
            rows = read(instance.index)
            total = len(instance.index)
            if rows is None or not len(rows):
                return _View(board, instance, view.rows, [], total)
            terms = rows.terms
            positions = list(range(rows.first_position, rows.first_position + len(rows)))
            chosen = _ChosenRows(rows.player_ids, rows.ranks, positions, terms)
            view = _View(board, instance, chosen, await self._described(board, instance, chosen, details), total)
            if not details or instance.index.entries(chosen.player_ids)[2] == terms:
                break
        return view

    async def _described(self, board: LiveBoard, instance: Instance, rows: "_ChosenRows", details: bool) -> list[Entry]:
        ranker = board.ranker
        names: dict[str, str | None] = {}
        submissions: Sequence[Submission | None] = [None] * len(rows.player_ids)
        if details:
            names, submissions = await self._game.details(instance, rows.player_ids)
        return [
            Entry(
                rank=rows.ranks[row],
                position=rows.positions[row],
                player_id=player_id,
                score=ranker.score(rows.terms[ranker.value_term][row]),
                name=names.get(player_id),
                order=ranker.order_values([column[row] for column in rows.terms]),
                submission=submissions[row],
            )
            for row, player_id in enumerate(rows.player_ids)
        ]

    def _check_limit(self, limit: int) -> None:
        most = self._game.limits.page_rows_max
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
            raise LimitExceeded("limit", limit, f"must be from 1 to {most}")

    def _to_cursor(self, board: LiveBoard, place: Place, backward: bool, rows: "_ChosenRows", row: int) -> str:
        """A place in the order of this instance, as text that only this instance takes back."""
        terms = [column[row] for column in rows.terms]
        return to_cursor(self._game.name, board.id, place_key(place), backward, terms, rows.player_ids[row])

    def _from_cursor(self, board: LiveBoard, place: Place, cursor: str) -> tuple[bool, list[int], str]:
        parts = from_cursor(cursor, tuple[str, int, str, bool, list[int], str])
        game, board_id, key, backward, terms, player_id = parts
        if (game, board_id, key) != (self._game.name, board.id, place_key(place)):
            raise InvalidCursor("cursor", cursor, "belongs to another board instance, or the board has been redefined")
        return backward, terms, player_id


class _ChosenRows(msgspec.Struct, frozen=True):
    """Entries of an index as columns, not necessarily consecutive."""

    player_ids: list[str]
    ranks: list[int]
    positions: list[int]
    terms: list[list[int]]


class _View(NamedTuple):
    """What a read saw: rows, and the entries made of them, best first; `total` is how many the instance has."""

    board: LiveBoard
    instance: Instance | None
    rows: _ChosenRows
    entries: list[Entry]
    total: int


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
