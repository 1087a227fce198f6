"""The OpenAPI document is true: it is valid, its examples work, and answers are as it says."""

import re
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from laurels.http.routes import ROUTES

MADE = "{made}"


@pytest.fixture(scope="module")
def document(served: Any) -> Any:
    return served.ask("GET", "/openapi.json").json()


def schema_of(document: Any, operation: Any, status: int, media_type: str) -> Any:
    """The schema that an answer must meet; None for an answer without a body."""
    responses = operation["responses"]
    response = responses.get(str(status)) or (responses["default"] if status >= 400 else None)
    assert response is not None, f"{status} is not documented"
    content = response.get("content", {})
    media_type = media_type.partition(";")[0]
    if not content:
        return None
    assert media_type in content or "*/*" in content, f"{media_type} is not documented"
    return content.get(media_type, {}).get("schema")


def check(document: Any, operation: Any, answer: Any) -> None:
    """An answer is one of those that are documented."""
    schema = schema_of(document, operation, answer.status_code, answer.headers.get("content-type", ""))
    if schema is None:
        return
    whole = {**schema, "components": document["components"]}
    jsonschema.validate(answer.json(), whole, cls=jsonschema.Draft202012Validator)


def test_the_document_is_openapi_3_1(document: Any) -> None:
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()


def test_every_route_is_in_the_document_and_has_words_of_its_own(document: Any) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({operation["operationId"] for operation in operations}) == len(ROUTES)
    assert len({operation["summary"] for operation in operations}) == len(ROUTES)
    for operation in operations:
        assert operation["description"]
        assert "default" in operation["responses"]


def test_every_example_works_in_turn_on_a_fresh_server(new_served: Any) -> None:
    served = new_served().start()
    document = served.ask("GET", "/openapi.json").json()
    made = ""
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    order = [(route.path, route.method.lower()) for route in ROUTES]
    operations.sort(key=lambda one: order.index(one[:2]))
    for path, method, operation in operations:
        query = {}
        for one in operation["parameters"]:
            if one["in"] == "path":
                assert "example" in one, f"{method} {path}: {one['name']} has no example"
                path = path.replace("{" + one["name"] + "}", made if one["example"] == MADE else one["example"])
            elif one["in"] == "query" and "example" in one:
                query[one["name"]] = one["example"]
            else:
                assert not (one["required"] and one["in"] == "query"), f"{method} {path}: {one['name']}"
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        assert not body or "example" in body
        if path.endswith("demo/live"):
            query = query or {"kind": "top", "board": "best"}
            headers = {"authorization": f"Bearer {served.operator}"}
            with served.client.stream("GET", path, params=query, headers=headers) as stream:
                assert stream.status_code == 200
                assert stream.headers["content-type"] == "text/event-stream"
            continue
        more = {"json": body["example"]} if body else {}
        answer = served.ask(method.upper(), path, served.operator, params=query, **more)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        check(document, operation, answer)
        if path.endswith("/keys") and method == "post":
            made = answer.json()["key_id"]


def test_problems_are_as_documented(document: Any, game: Any) -> None:
    for method, path, role in (
        ("GET", "/boards/none/top", "read"),
        ("GET", "/boards/best/top", None),
        ("GET", "/keys", "read"),
        ("GET", "/boards/best/top?limit=x", "read"),
        ("POST", "/boards/best/top", "read"),
        ("POST", "/submissions", "server"),
    ):
        answer = game.ask(method, path, role)
        assert answer.status_code >= 400
        assert answer.headers["content-type"] == "application/problem+json"
        whole = {"$ref": "#/components/schemas/Problem", "components": document["components"]}
        jsonschema.validate(answer.json(), whole, cls=jsonschema.Draft202012Validator)
        told = answer.json()
        assert told["status"] == answer.status_code
        assert told["type"] == f"urn:laurels:error:{told['code']}"
        assert told["request_id"] == answer.headers["x-request-id"]


def test_the_page_shows_all_and_runs_nothing(served: Any, document: Any) -> None:
    answer = served.ask("GET", "/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    page = answer.text
    assert not re.search(r"<script|javascript:|\son\w+=|<link|<img|<iframe", page, re.IGNORECASE)
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page
    for name in document["components"]["schemas"]:
        assert f"id='type-{name}'" in page
    targets = set(re.findall(r"href='#([^']+)'", page))
    assert targets <= set(re.findall(r"id='([^']+)'", page))
