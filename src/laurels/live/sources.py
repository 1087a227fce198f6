"""Sources: what channels are read from, and whether there is anything new in it."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from laurels.boards import Place
from laurels.errors import LaurelsError, NotFound
from laurels.games import Game
from laurels.index import LiveBoard
from laurels.live.channels import CHANNELS, Channel, PlayChannel, State, View
from laurels.live.topics import Topic
from laurels.windows import to_us

if TYPE_CHECKING:
    from laurels.live.hub import Hub

CHANNELS_AT_ONCE = 64  # looked at before others have their turn
FOREVER_US = 2**63


class Source:
    """What topics are read from. Whoever looks holds the lock; `channels` are by their topics."""

    def __init__(self, hub: "Hub", game: Game) -> None:
        self.hub = hub
        self.game = game
        self.lock = asyncio.Lock()
        self.channels: dict[str, Any] = {}
        self.ended = False

    def new_channel(self, topic: Topic) -> Channel:
        """A channel for a topic of this source."""
        raise NotImplementedError

    def has_news(self, now_us: int) -> bool:
        """Whether anything may be different from what channels with subscribers show."""
        raise NotImplementedError

    def look_soon(self) -> None:
        """A channel does not show what is there now: there are news, whatever was seen."""
        raise NotImplementedError

    def is_at_hand(self) -> bool:
        """Whether looking takes no more than memory."""
        raise NotImplementedError

    def is_fresh(self, channel: Any, now_us: int) -> bool:
        """Whether a channel shows what is there now."""
        raise NotImplementedError

    async def look(self, only: Any = None, *, names: bool = False) -> None:
        """Bring a channel up to date, or all that have subscribers. Raises what reads raise."""
        raise NotImplementedError

    def watched(self) -> list[Any]:
        """The channels that have subscribers."""
        return [channel for channel in self.channels.values() if channel.subscribers]


class BoardSource(Source):
    """A board instance: the one that `where` and `at` name, whichever that is by now."""

    def __init__(self, hub: "Hub", game: Game, topic: Topic) -> None:
        super().__init__(hub, game)
        self._name = topic.board or ""
        self._where = topic.where
        self._at = topic.at
        self._resolved: tuple[int, Place, int] | None = None  # the board, the instance, and until when it is that one
        self._known: tuple[State, int, int] | None = None  # as last looked at; `moderated` and `left_version` then
        self._seen: State | None = None

    def new_channel(self, topic: Topic) -> Channel:
        """A channel for a topic of this board."""
        return CHANNELS[topic.kind](self.hub, topic, self.game)

    def has_news(self, now_us: int) -> bool:
        """Whether the instance is another one, or has changed."""
        state = self._state(now_us)
        return state is None or state != self._seen

    def look_soon(self) -> None:
        """A channel does not show this version."""
        self._seen = None

    def is_at_hand(self) -> bool:
        """Whether the instance is in memory, and nobody wants names."""
        try:
            board = self.game.live_board(self._name)
            resident = self.game.resident(board, self._place(board, self.hub.laurels.now()))
        except LaurelsError:
            return True
        return resident is not None and not any(channel.topic.names for channel in self.channels.values())

    def is_fresh(self, channel: Any, now_us: int) -> bool:
        """Whether a channel shows this version."""
        return channel.state is not None and channel.state == self._state(now_us)

    def _place(self, board: LiveBoard, now_us: int) -> Place:
        """Which instance it is. Raises what reads raise."""
        resolved = self._resolved
        if resolved is not None and resolved[0] == board.id and now_us < resolved[2]:
            self.hub.turns_at(resolved[2])
            return resolved[1]
        ranker = board.ranker
        place = ranker.place(self.game.partition(self._where), now_us if self._at is None else to_us(self._at))
        if not ranker.is_kept(place, now_us):
            raise NotFound("window", ranker.instance_name(place).window_label or self._name, "no longer kept")
        span = None if ranker.periods is None else ranker.periods.at(now_us)
        until_us = FOREVER_US if span is None or span.end_us is None else span.end_us
        self._resolved = (board.id, place, until_us)
        self.hub.turns_at(until_us)
        return place

    def _state(self, now_us: int) -> State | None:
        """What is there, as far as memory says so for certain."""
        try:
            board = self.game.live_board(self._name)
            place = self._place(board, now_us)
        except LaurelsError:
            return None
        instance = self.game.resident(board, place)
        if instance is not None:
            return State(board.id, place, instance.version)
        if self._known is None:
            return None
        state, moderated, left = self._known
        is_same = state.board_id == board.id and state.place == place and moderated == self.game.moderated
        # What is not in memory changes by moderation, or by coming, being changed, and leaving again.
        return state if is_same and self.game.left_version(board, place) in (left, state.version) else None

    async def look(self, only: Any = None, *, names: bool = False) -> None:
        """Bring a channel up to date, or all that have subscribers. Raises what reads raise."""
        hub, game = self.hub, self.game
        moderated = game.moderated
        now_us = hub.laurels.now()
        board = game.live_board(self._name)
        place = self._place(board, now_us)
        left = game.left_version(board, place)
        instance = game.resident(board, place)
        if instance is None:
            instance = await game.open_instance(board, place)
            now_us = hub.laurels.now()
        state = State(board.id, place, 0 if instance is None else instance.version)
        self._known = (state, moderated, left)
        view = View(board, instance, state, now_us)
        for number, channel in enumerate(self.watched() if only is None else [only], start=1):
            if channel.state != state or names:
                await channel.update(view, names=names)
                if number % CHANNELS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        if only is None:
            self._seen = state


class PlaySource(Source):
    """The submissions of one player."""

    def __init__(self, hub: "Hub", game: Game, topic: Topic) -> None:
        super().__init__(hub, game)
        self._player_id = topic.player_id or ""
        self._moderated = -1

    def new_channel(self, topic: Topic) -> Channel:
        """A channel for the player's submissions."""
        return PlayChannel(self.hub, topic, self.game)

    def has_news(self, now_us: int) -> bool:
        """Whether there is a newer submission, perhaps one that is just being committed."""
        return self._moderated != self.game.moderated or self._is_behind(self.channels.values())

    def _is_behind(self, channels: Iterable[Any]) -> bool:
        newest = self.game.newest_place(self._player_id)
        return any(newest > channel.place for channel in channels)

    def look_soon(self) -> None:
        """It is looked at as long as there are newer submissions."""

    def is_at_hand(self) -> bool:
        """Submissions are read from the log."""
        return False

    def is_fresh(self, channel: Any, now_us: int) -> bool:
        """Whether there is nothing newer."""
        return not self.has_news(now_us)

    async def look(self, only: Any = None, *, names: bool = False) -> None:
        """Bring the channel up to date."""
        moderated, now_us = self.game.moderated, self.hub.laurels.now()
        channels = self.watched() if only is None else [only]
        for channel in channels:
            await channel.update(now_us)
        self._moderated = moderated
        if self._is_behind(channels):
            self.hub.look_again()
