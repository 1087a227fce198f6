"""The tree of exceptions."""

import pytest

from laurels import errors
from laurels.errors import ImportFailed, InvalidInput, LaurelsError, NotFound, NotReady, OutOfRange, StoreError, shown

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LaurelsError)]


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_every_class_has_a_code_of_its_own():
    codes = [cls.code for cls in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(code.isidentifier() and code.islower() for code in codes)


def test_codes_are_stable():
    assert {cls.__name__: cls.code for cls in CLASSES}.items() >= {
        "InvalidInput": "invalid_input",
        "OutOfRange": "out_of_range",
        "LimitExceeded": "limit_exceeded",
        "InvalidCursor": "invalid_cursor",
        "NotFound": "not_found",
        "Conflict": "conflict",
        "NotReady": "not_ready",
        "Unauthenticated": "unauthenticated",
        "Forbidden": "forbidden",
        "RateLimited": "rate_limited",
        "StoreError": "store_error",
        "StoreUnavailable": "store_unavailable",
        "ImportFailed": "import_failed",
    }.items()


def test_bad_input_names_field_value_and_rule():
    error = OutOfRange("scores[17]", 2**63, "must fit 64 bits")
    assert str(error) == "scores[17]: 9223372036854775808: must fit 64 bits"
    assert (error.field, error.value, error.rule) == ("scores[17]", 2**63, "must fit 64 bits")
    assert isinstance(error, InvalidInput)
    assert isinstance(error, ValueError)


def test_what_is_missing_is_named():
    assert str(NotFound("board", "weekly")) == "no board 'weekly'"
    assert str(NotFound("board", "weekly", "there are none")) == "no board 'weekly': there are none"
    assert isinstance(NotFound("board", "weekly"), LookupError)


def test_the_other_messages():
    assert NotReady("loading").retry_after_s == 1.0
    assert str(ImportFailed("a.csv", 3, "no score")) == "a.csv, row 3: no score"
    assert str(ImportFailed("a.csv", None, "is empty")) == "a.csv: is empty"
    assert all(issubclass(cls, StoreError) for cls in CLASSES if cls.__name__.startswith("Store"))


def test_values_are_shown_at_a_readable_length():
    assert shown("x") == "'x'"
    assert shown("\ud800").isascii()
    assert len(shown("x" * 10_000)) == 80
    assert len(shown(list(range(10_000)))) == 80


@pytest.mark.parametrize("value", [10**5000, Unprintable(), nested(100_000)], ids=["digits", "repr", "nested"])
def test_any_value_can_be_shown(value):
    assert 0 < len(shown(value)) <= 80
    assert InvalidInput("score", value, "must be small").value is value
