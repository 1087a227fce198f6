"""Requests made up from the OpenAPI document: no answer is a 5xx, and none is outside the document."""

import logging
import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

from laurels.http.routes import ROUTES
from laurels.http.routing import Route

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
FUZZED = [route for route in ROUTES if not route.path.endswith("{game}/live") and route.path != "/docs"]


@pytest.fixture(scope="module")
def schema(served: Any) -> Any:
    """The document, in a game that has something in it."""
    game = served.new_game(boards={"best": {}, "by": {"partition": ["track"]}})
    game.submit_many([f"p{number}" for number in range(20)], list(range(20)), dimensions={"track": "x"})
    document = served.ask("GET", "/openapi.json").json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "game" and len(path.split("/")) > 4:
                    parameter["schema"] = {"enum": [game.name]}
                elif parameter["name"] == "board":
                    parameter["schema"] = {"anyOf": [{"enum": ["best", "by"]}, parameter["schema"]]}
                elif parameter["name"] == "player_id":
                    parameter["schema"] = {"anyOf": [{"enum": ["p1", "p2"]}, parameter["schema"]]}
    return schemathesis.openapi.from_dict(document)


def fuzz(served: Any, schema: Any, route: Route, examples: int) -> None:
    operation = schema[route.path][route.method]

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        headers = {"Authorization": f"Bearer {served.operator}"}
        response = case.call(base_url=served.url, headers=headers)
        case.validate_response(response, checks=CHECKS)

    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()


@pytest.mark.parametrize("route", FUZZED, ids=lambda route: f"{route.method} {route.path}")
def test_whatever_is_asked_is_answered_as_documented(served: Any, schema: Any, route: Route) -> None:
    fuzz(served, schema, route, 25)


@pytest.mark.campaign
@pytest.mark.parametrize("route", FUZZED, ids=lambda route: f"{route.method} {route.path}")
def test_whatever_is_asked_at_length_is_answered_as_documented(served: Any, schema: Any, route: Route) -> None:
    fuzz(served, schema, route, 2_000)
