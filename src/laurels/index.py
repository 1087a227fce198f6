"""Board instances and their rank indexes: opened when asked for, kept within a memory budget, always rebuildable.

An instance that is not in memory is in the store in full: what changed and is not yet written stays here. So opening
one reads its entries, and nothing else.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from laurels._native import Changes, Players, RankIndex
from laurels.boards import Place, Ranker
from laurels.model import Board, GameDefinition
from laurels.stores.base import Entries, NewInstance, Reads, SavedBoard

VERSIONS = itertools.count(1)  # one for the process: no two states of anything in it share a number
LEFT_MAX = 10_000


class LiveBoard:
    """A version of a board, with its definition ready for use."""

    def __init__(self, saved: SavedBoard) -> None:
        self.id = saved.board_id
        self.saved = saved
        self.game = saved.game
        self.name = saved.name
        self.ranker = Ranker(saved.name, saved.definition)

    def ranks_like(self, definition: Board) -> bool:
        """Whether a definition differs in nothing that decides entries and their order."""
        now = self.saved.definition
        return definition == msgspec.structs.replace(now, title=definition.title, submit=definition.submit)

    def describe(self, saved: SavedBoard) -> None:
        """Take up a definition that ranks the same."""
        self.ranker = Ranker(saved.name, saved.definition)
        self.saved = saved

    def new_index(self, players: Players) -> RankIndex:
        """An empty rank index for one of its instances."""
        ranker = self.ranker
        return RankIndex(
            players,
            descending=[term.descending for term in ranker.terms],
            tie_terms=ranker.tie_terms,
            player_descending=ranker.player_descending,
            policy=ranker.policy,
            value_term=ranker.value_term,
            ranking=ranker.definition.ranking,
        )


class GameState:
    """What is known of one game: its boards by name, those being built, and who is banned."""

    def __init__(self, name: str, definition: GameDefinition) -> None:
        self.name = name
        self.definition = definition
        self.boards: dict[str, LiveBoard] = {}
        self.building: dict[str, float] = {}  # progress of those that are not ready, by name
        self.banned: set[str] = set()
        self.moderations = 0  # grows with each ban, unban, removal: what is being built starts over


class Instance:
    """One board instance in memory. `version` is another number after each change, and when it is loaded anew."""

    __slots__ = ("board", "id", "index", "loaded_version", "place", "used", "version")

    def __init__(self, id: int, board: LiveBoard, place: Place, index: RankIndex) -> None:
        self.id = id
        self.board = board
        self.place = place
        self.index = index
        self.used = 0
        self.version = self.loaded_version = next(VERSIONS)


class Unwritten:
    """Changed entries of some instances, handed over slice by slice in order of instance and player."""

    def __init__(self, instances: list[Instance], is_wanted: Callable[[Instance], bool]) -> None:
        self._instances = instances
        self._is_wanted = is_wanted
        self._ordered: list[tuple[Instance, Changes]] = []

    def sort(self) -> int:
        """Bring them into the order of their keys; how many there are. Takes its time: call it once, on any thread."""
        self._ordered = [(instance, instance.index.changes()) for instance in reversed(self._instances)]
        return sum(len(changes) for _, changes in self._ordered)

    def take(self, rows: int) -> list[Entries]:
        """The next, up to so many rows, as they are now; nothing at the end. For the writer's thread."""
        taken: list[Entries] = []
        while self._ordered and rows:
            instance, changes = self._ordered[-1]
            some = instance.index.take(changes, rows)
            if len(some) and self._is_wanted(instance):
                taken.append(Entries(instance.id, some.player_ids, some.terms, some.places, some.removed))
                rows -= len(some)
            if not len(changes) or not self._is_wanted(instance):
                self._ordered.pop()
        return taken


class Indexes:
    """The instances in memory. Any thread may open one; only the writer's thread changes them.

    `version` is another number whenever anything was applied. `moderated` grows when players are taken out, or all is
    let go of: what was being read meanwhile is read again, and what is not in memory may have changed all the same.
    """

    def __init__(self, source: Reads, players: Callable[[str], Players], bytes_max: int) -> None:
        self._source = source
        self._players = players
        self._bytes_max = bytes_max
        self._instances: dict[tuple[int, Place], Instance] = {}
        self._loading: dict[tuple[int, Place], threading.Lock] = {}
        self._lock = threading.Lock()
        self._ids = itertools.count(source.last_instance_id() + 1)
        self._clock = itertools.count(1)
        self._dirty: dict[Instance, None] = {}
        self._new: dict[int, NewInstance] = {}
        self._loaded_bytes = 0
        self._left: dict[tuple[int, Place], int] = {}
        self.moderated = 0
        self.version = 0

    def resident(self, board: LiveBoard, place: Place) -> Instance | None:
        """An instance, if it is in memory."""
        instance = self._instances.get((board.id, place))
        if instance is not None:
            instance.used = next(self._clock)
        return instance

    def open(self, board: LiveBoard, place: Place) -> Instance | None:
        """An instance, read from the store if need be; None if it has no entries. Blocks."""
        return self.resident(board, place) or self._load(board, place, create=False)

    def create(self, board: LiveBoard, place: Place) -> Instance:
        """An instance to change, made if there is none; it stays in memory until what changes is written. Blocks.
        Call `touch` after the change."""
        while True:
            if self._instances.get((board.id, place)) is None:
                self._load(board, place, create=True)
            with self._lock:  # so that it is not evicted between here and the change
                instance = self._instances.get((board.id, place))
                if instance is not None:
                    self._dirty[instance] = None
                    instance.used = next(self._clock)
                    return instance

    def left_version(self, board: LiveBoard, place: Place) -> int:
        """The version that an instance had when it last left memory other than it had come; 0 if it never did."""
        return self._left.get((board.id, place), 0)

    def of_board(self, board: LiveBoard) -> list[Instance]:
        """The instances of a board that are in memory."""
        return [instance for (board_id, _), instance in list(self._instances.items()) if board_id == board.id]

    def touch(self, instance: Instance) -> None:
        """Its entries may have changed."""
        self._dirty[instance] = None
        instance.version = next(VERSIONS)
        self.changed()

    def changed(self) -> None:
        """Something was applied. Called last, so that whoever sees it sees the new versions of instances too."""
        self.version = next(VERSIONS)

    def forget(self, instances: Iterable[Instance]) -> None:
        """Let go of instances that are no longer wanted, changes and all."""
        for instance in instances:
            self._instances.pop((instance.board.id, instance.place), None)
            self._dirty.pop(instance, None)
            self._new.pop(instance.id, None)
        self.changed()

    def forget_player(self, player_id: str, of: Callable[[Instance], bool]) -> None:
        """Take a player out of some instances, with nothing left to write: the store has deleted the entries."""
        with self._lock:
            self.moderated += 1
            instances = list(self._instances.values())
        for instance in filter(of, instances):
            instance.index.remove([player_id], [0])
            instance.index.mark_clean([player_id], [0])
            instance.version = next(VERSIONS)
        self.changed()

    def clear(self) -> None:
        """Let go of everything: it is read anew."""
        with self._lock:
            self.moderated += 1
        self.forget(list(self._instances.values()))

    def memory_bytes(self) -> int:
        """What the indexes take, players' ids apart."""
        return sum(instance.index.memory_bytes() for instance in list(self._instances.values()))

    def evict(self) -> None:
        """Let go of the instances that were used longest ago, as far as the budget demands and they are written."""
        total = self.memory_bytes()
        if total <= self._bytes_max:
            return
        for instance in sorted(self._instances.values(), key=lambda instance: instance.used):
            with self._lock:
                if instance.index.pending_count() == 0 and instance not in self._dirty:
                    total -= instance.index.memory_bytes()
                    self._instances.pop((instance.board.id, instance.place), None)
                    self._note_left(instance)
            if total <= self._bytes_max:
                return

    def _note_left(self, instance: Instance) -> None:
        if instance.version == instance.loaded_version:
            return
        if len(self._left) >= LEFT_MAX:
            self._left.clear()
            self.moderated += 1
        self._left[instance.board.id, instance.place] = instance.version

    # --- what is not yet written ----------------------------------------------------------------------------

    def unwritten_count(self) -> int:
        """How many entries changed since they were last written."""
        return sum(instance.index.pending_count() for instance in list(self._dirty))

    def new_instances(self) -> list[NewInstance]:
        """The instances that the store must learn before it is given entries of theirs."""
        return list(self._new.values())

    def unwritten(self) -> Unwritten:
        """The entries that changed since they were last written."""
        for instance in list(self._dirty):
            if not instance.index.pending_count():
                self._dirty.pop(instance, None)
        return Unwritten(sorted(self._dirty, key=lambda instance: instance.id), self._is_resident)

    def _is_resident(self, instance: Instance) -> bool:
        """What was let go of meanwhile is not written any more."""
        return self._instances.get((instance.board.id, instance.place)) is instance

    def written(self, instances: Sequence[NewInstance], entries: Sequence[Entries]) -> None:
        """These are durable now."""
        for new in instances:
            self._new.pop(new.instance_id, None)
        by_id = {instance.id: instance for instance in list(self._dirty)}
        for some in entries:
            instance = by_id.get(some.instance_id)
            if instance is not None:
                instance.index.mark_clean(some.player_ids, some.places)

    # --- loading --------------------------------------------------------------------------------------------

    def _load(self, board: LiveBoard, place: Place, *, create: bool) -> Instance | None:
        key = (board.id, place)
        with self._lock:
            loading = self._loading.setdefault(key, threading.Lock())
        with loading:
            try:
                instance = self._instances.get(key) or self._read(board, place, create=create)
            finally:
                with self._lock:
                    self._loading.pop(key, None)
        if self._loaded_bytes > self._bytes_max // 8:
            self._loaded_bytes = 0
            self.evict()
        return instance

    def _read(self, board: LiveBoard, place: Place, *, create: bool) -> Instance | None:
        key = (board.id, place)
        while True:
            moderated = self.moderated
            instance_id = self._source.instance_id(board.id, place)
            if instance_id is None and not create:
                return None
            index = board.new_index(self._players(board.game))
            if instance_id is not None:
                index.load_rows(self._source.entries(instance_id, len(board.ranker.terms)))
            with self._lock:
                if moderated != self.moderated:
                    continue
                if key not in self._instances:
                    if instance_id is None:
                        instance_id = next(self._ids)
                        self._new[instance_id] = NewInstance(instance_id, board.id, place)
                    self._instances[key] = Instance(instance_id, board, place, index)
                    self._loaded_bytes += index.memory_bytes()
                instance = self._instances[key]
                instance.used = next(self._clock)
                if create:  # it is about to be changed: it must not be evicted before
                    self._dirty[instance] = None
                return instance
