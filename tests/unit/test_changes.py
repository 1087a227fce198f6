"""What is written behind is handed over in order of player ids, slice by slice, as it stands then."""

from hypothesis import given
from hypothesis import strategies as st

from laurels._native import Players, RankIndex

IDS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.integers(0, 10**6).map(lambda number: f"player-{number:08}"),
    st.integers(0, 40).map(lambda count: "a" + "\0" * count),
)


def new_index(players: Players) -> RankIndex:
    return RankIndex(
        players,
        descending=[True],
        tie_terms=1,
        player_descending=False,
        policy="best",
        value_term=0,
        ranking="competition",
    )


def in_order(ids: set[str]) -> list[str]:
    return sorted(ids, key=str.encode)


@given(ids=st.sets(IDS, max_size=50), sizes=st.lists(st.integers(1, 20), min_size=60, max_size=60))
def test_slices_are_all_that_changed_in_order(ids: set[str], sizes: list[int]) -> None:
    index = new_index(Players())
    index.apply(list(ids), [[5] * len(ids)], range(len(ids)))
    changes = index.changes()
    assert len(changes) == len(ids)
    found: list[str] = []
    for size in sizes:
        some = index.take(changes, size)
        found += some.player_ids
        index.mark_clean(some.player_ids, some.places)
    assert found == in_order(ids)
    assert (len(changes), index.pending_count()) == (0, 0)


def test_slices_tell_what_stands_when_they_are_taken() -> None:
    index = new_index(Players())
    names = [f"p{number:06}" for number in range(30_000)]
    index.apply(names[::-1], [[1] * len(names)], range(len(names)))
    changes = index.changes()
    first = index.take(changes, 10_000)
    assert first.player_ids == names[:10_000]
    index.mark_clean(names[:10_000], first.places)
    index.apply([names[0], names[20_000]], [[9, 9]], [40_000, 40_001])  # one was taken, one not yet
    index.remove([names[20_001]], [40_002])
    gone = names[20_002]
    index.mark_clean([gone], index.pending_places([gone]))
    rest = index.take(changes, 30_000)
    assert rest.player_ids == [name for name in names[10_000:] if name != gone]
    at = rest.player_ids.index(names[20_000])
    assert (rest.terms[0][at], rest.places[at], rest.removed[at]) == (9, 40_001, False)
    assert rest.removed[at + 1]
    index.mark_clean(rest.player_ids, rest.places)
    assert index.pending().player_ids == [names[0]]
