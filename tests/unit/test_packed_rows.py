"""Columns as bytes: every value comes back as what it was, and damage is noticed, whatever it is."""

import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels._native import Outcome, PackedRows, Players, RankIndex, merge_places

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    INT64,
    TEXT,
    st.uuids().map(str),
    st.uuids().map(lambda id: str(id).upper()),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.frozensets(TEXT, max_size=4),
)
KINDS = st.sampled_from([INT64, TEXT, st.uuids().map(str), st.integers(0, 10), VALUES])


@st.composite
def columns(draw: st.DrawFn) -> list[tuple[str, list[Any]]]:
    rows = draw(st.integers(0, 12))
    names = draw(st.lists(TEXT, max_size=4))
    return [(name, draw(st.lists(draw(KINDS), min_size=rows, max_size=rows))) for name in names]


def typed(values: list[Any]) -> list[tuple[type, Any]]:
    """1, True and Decimal(1) are equal, 1.0 and 1.00 too; they must come back as what they were."""
    return [(type(value), str(value) if isinstance(value, Decimal) else value) for value in values]


@given(columns=columns())
def test_values_come_back(columns: list[tuple[str, list[Any]]]) -> None:
    packed = PackedRows(PackedRows.pack(columns))
    rows = len(columns[0][1]) if columns else 0
    assert packed.names == [name for name, _ in columns]
    assert (len(packed), packed.erased) == (rows, [])
    if rows:
        found = packed.columns(0, rows)
        assert [typed(values) for values in found] == [typed(values) for _, values in columns]
    for row in range(rows):
        values = packed.row(row)
        assert values is not None
        assert typed(values) == typed([values[row] for _, values in columns])


@given(columns=columns(), rows=st.lists(st.integers(0, 11), max_size=12), more=st.lists(st.integers(0, 11), max_size=3))
def test_erased_rows_are_gone_and_the_others_stay(
    columns: list[tuple[str, list[Any]]], rows: list[int], more: list[int]
) -> None:
    packed = PackedRows(PackedRows.pack(columns))
    left = PackedRows(PackedRows(packed.without(rows)).without(more))
    assert len(left) == len(packed)
    assert left.erased == sorted({row for row in (*rows, *more) if row < len(packed)})
    for row in range(len(packed)):
        assert left.row(row) == (None if row in left.erased else packed.row(row))


def test_what_is_alike_takes_little_room() -> None:
    ids = [str(uuid.UUID(int=(0x0190_163D_8694 << 80) + n)) for n in range(1_000)]
    players = [f"player-{n * 7919 % 1_000_000:08}" for n in range(1_000)]
    scores = [n * 104_729 % 1_000_000_000 for n in range(1_000)]
    assert len(PackedRows.pack([("player_id", players)])) < 7 * 1_000
    assert len(PackedRows.pack([("score", scores)])) < 4 * 1_000 + 40
    assert len(PackedRows.pack([("submission_id", ids)])) < 11 * 1_000
    assert len(PackedRows.pack([("played_at", [None] * 1_000), ("mode", ["ranked"] * 1_000)])) < 60


def test_what_no_column_holds_is_refused() -> None:
    for value in (1.5, b"x", [1], {"a"}, object()):
        with pytest.raises(TypeError):
            PackedRows.pack([("score", [value])])
    with pytest.raises(OverflowError):
        PackedRows.pack([("score", [2**63])])
    with pytest.raises(ValueError, match="equal length"):
        PackedRows.pack([("a", [1]), ("b", [1, 2])])


def test_there_may_be_as_many_columns_as_callers_think_of() -> None:
    columns: list[tuple[str, list[Any]]] = [(f"dimensions.{n}", [None, n]) for n in range(20_000)]
    assert PackedRows(PackedRows.pack(columns)).row(1) == list(range(20_000))


def test_rows_that_are_not_there_are_refused() -> None:
    packed = PackedRows(PackedRows(PackedRows.pack([("a", [1, 2, 3])])).without([1]))
    assert packed.columns(0, 1) == [[1]]
    assert packed.columns(2, 3) == [[3]]
    for start, stop in ((0, 2), (1, 2), (1, 3), (0, 3), (2, 4), (1, 1)):
        with pytest.raises(ValueError, match="no such rows"):
            packed.columns(start, stop)
    with pytest.raises(ValueError, match="3 rows"):
        packed.row(3)


def look(data: bytes) -> None:
    packed = PackedRows(data)
    for row in range(len(packed)):
        packed.row(row)
    packed.without([0])


def test_damage_is_an_error_and_nothing_worse() -> None:
    data = PackedRows.pack(
        [
            ("player_id", ["amy", "bö", "bob"]),
            ("score", [5, Decimal("1.50"), -7_000]),
            ("id", [str(uuid.UUID(int=n << 100)) for n in (7, 9, 11)]),
            ("d", [frozenset({"x", "yé"}), True, None]),
        ]
    )
    look(data)
    for length in range(len(data)):
        with pytest.raises(ValueError):
            look(data[:length])
    with pytest.raises(ValueError):
        look(data + b"\0")
    for at in range(len(data)):
        for byte in range(256):
            try:
                look(data[:at] + bytes([byte]) + data[at + 1 :])
            except ValueError:
                continue


@given(data=st.binary(max_size=60))
def test_any_bytes_are_an_error_or_rows(data: bytes) -> None:
    for some in (data, b"\x01" + data):
        try:
            look(some)
            Outcome.unpack(some)
        except ValueError:
            continue


@given(plays=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-5, 5)), max_size=30), first=st.integers(0, 900))
def test_what_a_batch_did_comes_back(plays: list[tuple[str, int]], first: int) -> None:
    index = RankIndex(
        Players(),
        descending=[True],
        tie_terms=1,
        player_descending=False,
        policy="best",
        value_term=0,
        ranking="competition",
    )
    outcome = index.apply([player for player, _ in plays], [[score for _, score in plays]], list(range(len(plays))))
    rows = [first + 2 * row for row in range(len(plays))]
    found_rows, found = Outcome.unpack(outcome.pack(rows))
    changes = [outcome.change(at) for at in range(len(outcome))]
    assert found_rows == rows
    assert [found.change(at) for at in range(len(found))] == changes
    assert [change[0] for change in changes] == outcome.counted
    assert [change[6] for change in changes] == outcome.new_positions
    odd = list(range(1, len(plays), 2))
    assert [found.take(odd).change(at) for at in range(len(odd))] == changes[1::2]
    with pytest.raises(IndexError):
        found.change(len(plays))


@given(
    changes=st.lists(
        st.dictionaries(st.text("abcé\0", min_size=1, max_size=4), st.integers(-1, 9), max_size=40), max_size=6
    )
)
def test_places_are_merged_into_chunks(changes: list[dict[str, int]]) -> None:
    chunks: list[tuple[str, bytes]] = [("", merge_places(None, [], [])[0][1])]
    known: dict[str, int] = {}
    for some in changes:
        known = {name: place for name, place in (known | some).items() if place >= 0}
        ids = sorted(some)
        merged = merge_places(chunks[0][1], ids, [some[name] for name in ids])
        assert len(merged) == 1
        found = PackedRows(merged[0][1])
        rows = found.columns(0, len(found)) if len(found) else [[], []]
        assert dict(zip(*rows, strict=True)) == known
        assert rows[0] == sorted(known)
        chunks = merged


def test_a_chunk_that_grows_is_divided() -> None:
    ids = [f"p{number:05}" for number in range(1_000)]
    chunks = merge_places(None, ids, list(range(1_000)))
    assert len(chunks) == 4
    assert [PackedRows(rows).row(0) for _, rows in chunks] == [[first, int(first[1:])] for first, _ in chunks]
    with pytest.raises(ValueError, match="in order"):
        merge_places(None, ["b", "a"], [1, 2])
    with pytest.raises(ValueError, match="not what was written"):
        merge_places(PackedRows.pack([("a", [1])]), ["a"], [1])
