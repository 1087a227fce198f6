"""Versions of instances: what those who look again and again go by."""

from typing import Any

from laurels import Laurels
from laurels.index import Instance

CONFIG: dict[str, Any] = {"games": {"g": {"boards": {"best": {}, "songs": {"partition": ["track"]}}}}}


async def test_versions_change_with_what_they_are_of(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        board = game.live_board("best")
        place = board.ranker.place({}, 0)

        def instance() -> Instance:
            found = game.resident(board, place)
            assert found is not None
            return found

        await game.submit("amy", 1)
        seen = {laurels.version}, {instance().version}
        for step in (
            lambda: game.submit("bob", 2),
            lambda: game.ban("amy"),
            lambda: game.unban("amy"),
            lambda: game.board("best").remove("bob"),
            lambda: game.remove_player("amy"),
        ):
            await step()
            for numbers, number in zip(seen, (laurels.version, instance().version), strict=True):
                assert number not in numbers
                numbers.add(number)
        other, version = laurels.version, instance().version
        await game.board("best").top()
        assert (laurels.version, instance().version) == (other, version)
        await game.drop_board("songs")
        assert laurels.version != other
        assert instance().version == version


async def test_version_is_another_one_once_loaded_anew(url: str) -> None:
    async with Laurels.open(url, config=CONFIG) as laurels:
        game = laurels.game("g")
        board = game.live_board("best")
        place = board.ranker.place({}, 0)
        await game.submit("amy", 1)
        first = await game.open_instance(board, place)
        assert first is not None
        assert game.left_version(board, place) == 0
        for _ in range(2):  # the second time nothing has changed while it was in memory
            await laurels._store.settled(lambda _: (laurels._indexes.unwritten(), _evict(laurels)))
            assert game.left_version(board, place) == first.version
            again = await game.open_instance(board, place)
            assert again is not None
            assert again.version != first.version


def _evict(laurels: Laurels) -> None:
    laurels._indexes._bytes_max, before = 1, laurels._indexes._bytes_max
    laurels._indexes.evict()
    laurels._indexes._bytes_max = before
