"""Errors as they come over HTTP, made into the exceptions of `laurels.errors` again. Pure."""

from typing import Any

import msgspec

from laurels import errors
from laurels.errors import LaurelsError
from laurels.http import errors as http_errors
from laurels.http.wire import Problem


class Unreachable(LaurelsError):
    """The server did not answer, however often it was asked. A submission may have been accepted all the same: send it
    again with the same submission_id."""

    code = "unreachable"


class UnexpectedAnswer(LaurelsError):
    """An answer that is none of Laurels': another server, or something in between."""

    code = "unexpected_answer"


def _kinds() -> dict[str, type[LaurelsError]]:
    found = [value for module in (errors, http_errors) for value in vars(module).values()]
    return {kind.code: kind for kind in found if isinstance(kind, type) and issubclass(kind, LaurelsError)}


KINDS = _kinds()
_decode = msgspec.json.Decoder(Problem).decode


def problem_in(content_type: str, body: bytes) -> Problem | None:
    """The problem details that an answer holds, if it does."""
    if not content_type.startswith("application/problem+json"):
        return None
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


def error_of(problem: Problem) -> LaurelsError:
    """The exception that the server raised, with the same `code`, `field` and `rule`. A code of a later version gives a
    plain LaurelsError."""
    error = _made(problem.code, problem.detail, problem.field, problem.rule, problem.retry_after_s)
    error.add_note(f"status {problem.status}, request {problem.request_id}")
    return error


def error_of_topic(code: str, detail: str, field: str | None = None, rule: str | None = None) -> LaurelsError:
    """The exception that ended a live topic."""
    return _made(code, detail, field, rule, 1.0)


def _made(code: str, detail: str, field: str | None, rule: str | None, retry_after_s: float | None) -> LaurelsError:
    kind = KINDS.get(code, LaurelsError)
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    facts: dict[str, Any] = {"code": code}
    if isinstance(error, errors.InvalidInput):
        facts |= {"field": field or "", "value": None, "rule": rule or detail}
    elif field is not None:
        facts |= {"field": field, "rule": rule}
    if isinstance(error, errors.NotFound):
        facts |= {"kind": "", "name": ""}
    if isinstance(error, errors.NotReady | errors.RateLimited):
        facts["retry_after_s"] = 1.0 if retry_after_s is None else retry_after_s
    vars(error).update(facts)
    return error
