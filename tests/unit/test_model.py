"""Definitions as data: TOML and JSON in, the same definition out."""

import tomllib
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels.boards import Ranker
from laurels.model import Board, Condition, Dimension, Entry, GameDefinition, Limits, Page, Submission, Window

DEFINITIONS = """
title = "Songs"

[dimensions]
modifiers = { type = "set", none = ["none", "no-modifiers"] }
ranked = { type = "boolean" }

[boards.song]
partition = ["track_id", "instrument", "difficulty", "modifiers"]
order = ["score desc", "player_id asc"]
policy = "best"

[boards.song_open]
partition = ["track_id", "instrument", "difficulty"]
where = { modifiers = { subset_of = ["AllStrums", "NoteShuffle"] }, speed = { ge = 100, lt = 1.5 }, ranked = true }
order = ["score desc", "speed desc", "accepted_at asc"]

[boards.weekly]
window = { every = "week", timezone = "Europe/Berlin", keep = 8 }
policy = "sum"

[boards.season]
window = { every = "6 weeks", origin = 2026-01-05T00:00:00 }
scale = { score = 3 }

[boards.cup]
where = { country = { in = ["DE", "FR"] } }
window = { start = 2026-01-05T00:00:00Z, end = 2026-02-05T00:00:00+01:00 }
ranking = "dense"
"""

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
plain = st.text(st.characters(codec="utf-8"), max_size=8) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=3)
conditions = st.builds(
    Condition,
    eq=st.none() | plain | texts,
    ne=st.none() | plain,
    in_=st.none() | st.lists(plain, max_size=3),
    ge=st.none() | numbers,
    gt=st.none() | numbers,
    le=st.none() | numbers,
    lt=st.none() | numbers,
    subset_of=st.none() | texts,
    superset_of=st.none() | texts,
    exists=st.none() | st.booleans(),
)
windows = st.builds(
    Window,
    every=st.sampled_from([None, "day", "week", "month", "6 weeks", "1 hour", "999999 minutes"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin"]),
    origin=st.none() | st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    keep=st.none() | st.integers(0, 100_000),
    start=st.none() | st.datetimes(),
    end=st.none() | st.datetimes(timezones=st.just(UTC)),
)
terms = st.builds("{}{}".format, names, st.sampled_from(["", " asc", " desc"]))
boards = st.builds(
    Board,
    title=st.none() | st.text(st.characters(codec="utf-8")),
    where=st.dictionaries(names, plain | conditions, max_size=3),
    partition=st.lists(names, max_size=4).map(tuple),
    window=st.none() | windows,
    order=st.lists(terms, min_size=1, max_size=4).map(tuple),
    policy=st.sampled_from(["best", "last", "first", "sum", "count", "min", "max"]),
    of=names,
    ranking=st.sampled_from(["competition", "dense", "ordinal"]),
    scale=st.integers(0, 18) | st.dictionaries(names, st.integers(0, 18), max_size=3),
)


def test_definitions_are_read_from_toml():
    game = msgspec.convert(tomllib.loads(DEFINITIONS), GameDefinition)
    assert game.dimensions["modifiers"] == Dimension(type="set", none=("none", "no-modifiers"))
    assert game.boards["song"].partition == ("track_id", "instrument", "difficulty", "modifiers")
    assert game.boards["song"].order == ("score desc", "player_id asc")
    assert game.boards["song_open"].where["modifiers"] == Condition(subset_of=["AllStrums", "NoteShuffle"])
    assert game.boards["song_open"].where["speed"] == Condition(ge=100, lt=1.5)
    assert game.boards["song_open"].where["ranked"] is True
    assert game.boards["weekly"].window == Window(every="week", timezone="Europe/Berlin", keep=8)
    assert game.boards["season"].window.origin == datetime(2026, 1, 5)
    assert game.boards["cup"].where["country"] == Condition(in_=["DE", "FR"])
    assert game.boards["cup"].window.start == datetime(2026, 1, 5, tzinfo=UTC)
    assert game.boards["cup"].window.end == datetime(2026, 2, 4, 23, tzinfo=UTC)
    for name, board in game.boards.items():
        assert Ranker(name, board).definition == board
    assert msgspec.json.decode(msgspec.json.encode(game), type=GameDefinition) == game


@given(boards)
def test_a_board_comes_back_from_json(board):
    assert msgspec.json.decode(msgspec.json.encode(board), type=Board) == board
    assert msgspec.convert(msgspec.to_builtins(board), Board) == board


@given(st.builds(Submission, submission_id=names, player_id=names, score=st.integers(-(2**63), 2**63 - 1),
                 accepted_at=st.datetimes(timezones=st.just(UTC))))  # fmt: skip
def test_64_bit_scores_come_back_from_json_digit_for_digit(submission):
    assert msgspec.json.decode(msgspec.json.encode(submission))["score"] == submission.score


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (GameDefinition, {"bords": {}}),
        (GameDefinition, {"boards": {"a": {"polcy": "best"}}}),
        (GameDefinition, {"boards": {"a": {"window": {"evry": "day"}}}}),
        (GameDefinition, {"boards": {"a": {"where": {"x": {"gte": 1}}}}}),
        (GameDefinition, {"dimensions": {"a": {"kind": "set"}}}),
        (Limits, {"ids_max": 1}),
    ],
)
def test_unknown_fields_are_refused(kind, data):
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert(data, kind)


@pytest.mark.parametrize(
    "data",
    [
        {"policy": "average"},
        {"ranking": "random"},
        {"order": []},
        {"order": ["a", "b", "c", "d", "e"]},
        {"order": ["score down"]},
        {"order": ["score  desc"]},
        {"order": ["1up desc"]},
        {"scale": -1},
        {"scale": 19},
        {"scale": 1.5},
        {"partition": ["a b"]},
        {"partition": "track"},
        {"of": ""},
        {"where": {"a b": 1}},
        {"where": {"x": None}},
        {"where": {"x": {"ge": "1"}}},
        {"where": {"x": {"ge": True}}},
        {"window": {"every": "hour"}},
        {"window": {"every": "0 days"}},
        {"window": {"every": "1000000 days"}},
        {"window": {"every": "day", "keep": -1}},
        {"window": {"every": "day", "origin": "yesterday"}},
    ],
)
def test_wrong_values_are_refused(data):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, Board)


def test_true_is_not_one():
    board = msgspec.convert({"where": {"a": True, "b": 1, "c": 1.0}}, Board)
    assert [type(value) for value in board.where.values()] == [bool, int, float]


@pytest.mark.parametrize("kind", [GameDefinition, Board, Window, Condition, Limits])
def test_the_json_schema_is_complete(kind):
    schema = msgspec.json.schema(kind)
    definitions = schema["$defs"]

    def check(node):
        if isinstance(node, list):
            return [check(one) for one in node]
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].removeprefix("#/$defs/") in definitions
            if "properties" in node:
                assert node["additionalProperties"] is False
            return [check(one) for one in node.values()]
        return node

    check(schema)
    names_of_fields = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert list(definitions[kind.__name__]["properties"]) == names_of_fields
    assert msgspec.json.decode(msgspec.json.encode(schema))["$ref"] == f"#/$defs/{kind.__name__}"


def test_a_definition_holds_no_more_than_what_was_given():
    assert msgspec.json.encode(Board()) == b"{}"
    assert msgspec.json.encode(Condition(in_=["a"])) == b'{"in":["a"]}'


def test_a_page_is_a_list_with_cursors():
    page = Page(items=[Entry(rank=1, position=1, player_id="a", score=1)], next="more")
    assert len(page) == 1
    assert [entry.player_id for entry in page] == ["a"]
