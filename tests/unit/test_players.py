"""Interned player ids and the chain of their submissions; submission ids in memory and in runs."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels._native import Players, SubmissionIds

NAMES = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())


@given(names=st.lists(st.sampled_from("abcd"), max_size=30))
def test_a_chain_leads_through_all_submissions_of_a_player(names: list[str]) -> None:
    players = Players()
    previous = players.chain(names, list(range(len(names))))
    for player in set(names):
        right = [place for place, name in enumerate(names) if name == player]
        place, found = players.last_places([player])[0], []
        while place >= 0:
            found.append(place)
            place = previous[place]
        assert found == right[::-1]
    players.unchain()
    assert players.last_places(names) == [-1] * len(names)


def test_unknown_players_have_no_place() -> None:
    players = Players()
    players.load(["amy", "bob", "amy"], [3, -1, 7])
    assert players.last_places(["amy", "bob", "cat"]) == [7, -1, -1]
    assert len(players) == 2
    assert players.memory_bytes() > 0


@given(names=st.lists(NAMES | st.none(), max_size=50), others=st.lists(NAMES, max_size=20))
def test_ids_are_found_where_they_were_put(names: list[str | None], others: list[str]) -> None:
    ids = SubmissionIds()
    ids.insert(names, 100)
    right = {name: 100 + row for row, name in enumerate(names) if name is not None}
    places, candidates = ids.find([*names, *others, None])
    assert places == [right.get(name, -1) for name in [*names, *others, None]]
    assert candidates == []


def test_ids_in_runs() -> None:
    rng = random.Random(4)
    uuids = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(9_000)]
    texts = [f"round-{number}" for number in range(9_000)]
    ids = SubmissionIds()
    runs = {}
    for number, names in enumerate((uuids, texts), start=1):
        ids.insert(list(names), number * 10_000)
        run = ids.freeze()
        runs[number] = run
        ids.adopt(number, run, [])
        assert ids.recent_count == 0
        assert len(run) == 9_000
        firsts = [first for first, _, _ in run.chunks(0, 99)]
        assert firsts == sorted(firsts)
        assert (run.least, len(run.chunks(0, 99))) == (firsts[0], 3)

    def place(name: str, run: int) -> int:
        key = SubmissionIds.key(name)
        chunk = [chunk for chunk in runs[run].chunks(0, 99) if chunk[0] <= key][-1:]
        return SubmissionIds.search(*chunk[0][1:], key) if chunk else -1

    for number, names in enumerate((uuids, texts), start=1):
        places, candidates = ids.find(list(names))
        assert set(places) == {-1}
        found = {row for row, run in candidates if run == number and place(names[row], run) == number * 10_000 + row}
        assert found == set(range(9_000))  # a filter never misses
    strangers = [f"stranger-{number}" for number in range(20_000)]
    assert len(ids.find(list(strangers))[1]) < 200  # and seldom cries wolf
    merged = SubmissionIds.merge([chunk[1:] for run in runs.values() for chunk in run.chunks(0, 99)])
    assert len(merged) == 18_000
    ids.adopt(3, merged, [1, 2])
    assert {run for _, run in ids.find(list(texts))[1]} == {3}
    again = SubmissionIds()
    again.add_run(3, merged.least, merged.greatest, merged.filter)
    assert len(again.find(list(texts))[1]) == 9_000
    for _, keys, places in merged.chunks(0, 99):
        again.absorb(keys, places)
    assert again.find(list(texts))[0] == list(range(20_000, 29_000))


def test_keys_tell_uuids_from_other_texts() -> None:
    name = "0190163d-8694-739b-aea5-966c26f8ad91"
    assert SubmissionIds.key(name) == uuid.UUID(name).bytes
    keys = {
        SubmissionIds.key(text) for text in (name, name.upper(), name[:-1], "{" + name + "}", name.replace("-", ""))
    }
    assert len(keys) == 5


def test_damaged_chunks_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes a key"):
        SubmissionIds.search(b"x" * 16, b"", b"x" * 16)
    with pytest.raises(ValueError, match="64 bytes"):
        SubmissionIds().add_run(1, b"\0" * 16, b"\0" * 16, b"x")


@given(
    rounds=st.lists(
        st.tuples(st.lists(NAMES, max_size=30), st.sampled_from(["settle", "unchain"]), st.integers(0, 30)), max_size=8
    )
)
def test_settled_places_are_to_be_written_until_they_are(rounds: list[tuple[list[str], str, int]]) -> None:
    players = Players()
    places: dict[str, int] = {}
    unwritten: dict[str, int] = {}
    place = 0
    for names, end, written in rounds:
        players.chain(names, range(place, place + len(names)))
        for name in names:  # what is not settled is nobody's business yet
            assert players.changed_place(name) == unwritten.get(name, -1)
        if end == "settle":
            players.settle()
            places |= {name: place + row for row, name in enumerate(names)}
            unwritten |= {name: place + row for row, name in enumerate(names)}
        else:
            players.unchain()
        place += len(names)
        assert players.last_places(list(places)) == list(places.values())
        changes = players.changes()
        assert len(changes) == len(unwritten)
        ids, latest = players.take(changes, written)
        assert dict(zip(ids, latest, strict=True)) == {name: unwritten[name] for name in sorted(unwritten)[:written]}
        assert ids == sorted(ids)
        players.mark_clean(ids, latest)
        for name in ids:
            del unwritten[name]
        assert len(changes) == len(unwritten)
    if places:
        gone = next(iter(places))
        players.forget(gone)
        assert (players.changed_place(gone), players.last_places([gone])) == (-1, [-1])
    players.forget_places()
    assert players.last_places(list(places)) == [-1] * len(places)
    assert len(players.changes()) == 0


@given(
    known=st.lists(NAMES | st.none(), max_size=20),
    frozen=st.lists(NAMES, max_size=20),
    ids=st.lists(NAMES | st.none(), max_size=40),
)
def test_repeats_are_told_from_what_is_new(known: list[str | None], frozen: list[str], ids: list[str | None]) -> None:
    seen = SubmissionIds()
    seen.insert(list(frozen), 1_000)
    run = seen.freeze()
    seen.insert(known, 100)
    right = {name: 1_000 + row for row, name in enumerate(frozen)}
    right |= {name: 100 + row for row, name in enumerate(known) if name is not None}
    repeats, candidates = seen.repeats(ids)
    expected = {}
    for row, name in enumerate(ids):
        if name is not None and (name in right or name in ids[:row]):
            expected[row] = right.get(name, ~ids.index(name))
    assert (dict(repeats), candidates) == (expected, [])
    seen.adopt(7, run, [])
    _, candidates = seen.repeats(ids)
    for row, name in enumerate(ids):
        if name in frozen and name not in known and name not in ids[:row]:
            assert (row, 7) in candidates


def test_a_freeze_that_nothing_came_of_is_part_of_the_next() -> None:
    ids = SubmissionIds()
    ids.insert(["a", "b"], 1)
    assert len(ids.freeze()) == 2
    ids.insert(["c"], 3)
    assert ids.recent_count == 3
    run = ids.freeze()
    assert len(run) == 3
    ids.adopt(1, run, [])
    assert ids.recent_count == 0
