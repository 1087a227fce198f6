"""The OpenAPI 3.1 document, and a page to read, both made from the routes and the types they take and give. Pure."""

import html
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from laurels.http.routing import Route
from laurels.http.wire import Problem

GAME = "demo"
TAGS = {
    "games": "Tenants: each has its own keys, boards and players, and nothing crosses them.",
    "boards": "Definitions: which submissions a board ranks, and how.",
    "submissions": "Finished plays. Durable, and counted on every board that they feed, when answered.",
    "entries": "Reading boards.",
    "players": "What is known of players.",
    "bans": "Hiding players from all boards.",
    "keys": "Keys of a game's servers, tokens of its players.",
    "live": "Changes as they happen, over WebSocket or Server-Sent Events.",
    "health": "For whoever runs the server.",
}
ROLES = {
    None: "Open to everybody.",
    "read": "Needs a key of the game with the role read, server or admin",
    "server": "Needs a key of the game with the role server or admin",
    "admin": "Needs a key of the game with the role admin.",
    "operator": "Needs an operator's key.",
}
DESCRIPTION = """\
Leaderboards over a durable log of submissions: a score goes in once and is never lost, and ranks are exact and live.

Send a key or a player's token as `Authorization: Bearer ...`. Segments of a path are percent-encoded once, so an id may
hold any character. Instants are RFC 3339. Scores are exact: JSON integers of 64 bits, or decimals with all their digits
(JavaScript reads numbers above 2^53 wrongly unless told otherwise; the JavaScript client is). Bodies and answers may be
msgpack instead of JSON (`Content-Type`, `Accept`: `application/msgpack`), and compressed with gzip or zstd. Errors are
problem details (RFC 9457) with a stable `code`.
"""


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document. Every operation has an example that works in a game made by the ones before it."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Laurels", "version": version("laurels"), "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (lk_...) or a player's token"}
            },
        },
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of each type that routes take or give, and those that they refer to, by name."""
    kinds: list[Any] = [Problem]
    for route in routes:
        kinds += [kind for kind in (route.body, route.answer, route.query) if kind is not None and kind not in kinds]
    found, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}", schema_hook=None
    )
    plain = json.loads(msgspec.json.encode([found, components]))
    return dict(zip(map(_key, kinds), plain[0], strict=True)), plain[1]


def _key(kind: Any) -> Any:
    return repr(kind)


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return components[name] if name else schema


def _operation(route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    description = (route.handler.__doc__ or route.summary).strip()
    players = " or a player's token." if route.players else "."
    role = ROLES[route.role]
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "description": re.sub(r"\s+", " ", description) + "\n\n" + (role if role.endswith(".") else role + players),
        "tags": [route.tag],
        "parameters": list(_parameters(route)),
        "responses": _responses(route, schemas),
    }
    if route.role is None:
        operation["security"] = []
    if route.body is not None:
        media: dict[str, Any] = {"schema": schemas[_key(route.body)]}
        if "body" in route.example:
            media["example"] = route.example["body"]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": media, "application/msgpack": {"schema": media["schema"]}},
        }
    return operation


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    names = route.example.get("names", {})
    for name in re.findall(r"{(\w+)}", route.path):
        example = GAME if name == "game" else names.get(name)
        parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        yield parameter | ({"example": example} if example else {})
    query = route.example.get("query", {})
    kind = msgspec.json.schema(route.query)
    properties = _resolved(kind, kind.get("$defs", {}))
    for name, schema in properties.get("properties", {}).items():
        parameter = {
            "name": name,
            "in": "query",
            "required": name in properties.get("required", ()),
            "schema": json.loads(msgspec.json.encode(schema)),
        }
        yield parameter | ({"example": query[name]} if name in query else {})
    if route.where:
        yield {
            "name": "where",
            "in": "query",
            "required": False,
            "description": "`where.<dimension>=<value>` for each dimension of the board's partition; a set's items are"
            " separated by commas, and nothing is the empty set",
            "style": "form",
            "explode": True,
            "schema": {
                "type": "object",
                "patternProperties": {"^where\\.": {"type": "string"}},
                "additionalProperties": False,
            },
        }
    if route.path.endswith("/submissions") and route.method == "POST":
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "the same as `submission_id`",
            "schema": {"type": "string"},
        }


def _responses(route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in (route.status, *route.statuses):
        answer: dict[str, Any] = {"description": "Done" if route.answer is None else "The answer"}
        if route.answer is not None:
            schema = schemas[_key(route.answer)]
            answer["content"] = {media: {"schema": schema} for media in ("application/json", "application/msgpack")}
        elif status != 204:
            answer["content"] = {"*/*": {}}
        responses[str(status)] = answer
    if route.where and route.method == "GET":
        responses["304"] = {"description": "Nothing has changed since the answer with this ETag"}
    if route.path == "/health/ready":
        responses["503"] = {**responses["200"], "description": "Not now"}
    responses["default"] = {
        "description": "A problem",
        "content": {"application/problem+json": {"schema": schemas[_key(Problem)]}},
    }
    return responses


# --- a page to read -------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; } h3 { margin: 2rem 0 .25rem; font-weight: 600; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: color-mix(in srgb, currentColor 7%, transparent); padding: .75rem; overflow-x: auto; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
nav a { margin-right: 1rem; } .method { font-weight: 700; }
"""


@lru_cache(maxsize=1)
def _page(whole: str) -> bytes:
    spec = json.loads(whole)
    out = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Laurels HTTP API</title><style>{STYLE}</style><h1>Laurels HTTP API {_e(spec['info']['version'])}</h1>",
        *(f"<p>{_code(part)}</p>" for part in DESCRIPTION.strip().split("\n\n")),
        "<p>For machines: <a href='/openapi.json'>/openapi.json</a></p><nav>",
        *(f"<a href='#{_e(tag['name'])}'>{_e(tag['name'])}</a>" for tag in spec["tags"]),
        "</nav>",
    ]
    for tag in spec["tags"]:
        out.append(f"<h2 id='{_e(tag['name'])}'>{_e(tag['name'])}</h2><p>{_e(tag['description'])}</p>")
        for path, operations in spec["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    out.extend(_section(method.upper(), path, operation))
    out.append("<h2 id='types'>Types</h2>")
    for name, schema in spec["components"]["schemas"].items():
        out.append(f"<h3 id='type-{_e(name)}'>{_e(name)}</h3><p>{_code(schema.get('description', ''))}</p>")
        out.append(_fields(schema))
    return "".join(out).encode()


def reference_page(routes: Sequence[Route]) -> bytes:
    """The document as one HTML page, without a script."""
    return _page(json.dumps(document(routes)))


def _section(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h3><span class=method>{method}</span> <code>{_e(path)}</code></h3>"
    yield "".join(f"<p>{_code(part)}</p>" for part in operation["description"].split("\n\n"))
    parameters = [one for one in operation["parameters"] if one["in"] != "path"]
    if parameters:
        rows = "".join(
            f"<tr><td><code>{_e(one['name'])}</code><td>{_code(one.get('description') or _type(one['schema']))}"
            for one in parameters
        )
        yield f"<table>{rows}</table>"
    yield f"<pre>{_e(curl(method, path, operation))}</pre>"
    for status, response in operation["responses"].items():
        schema = response.get("content", {}).get("application/json", {}).get("schema")
        if schema:
            yield f"<p>{_e(status)}: {_type(schema)}</p>"


def curl(method: str, path: str, operation: dict[str, Any], url: str = "http://127.0.0.1:8080") -> str:
    """The example as a command."""
    query = {}
    for one in operation["parameters"]:
        if one["in"] == "path":
            path = path.replace("{" + one["name"] + "}", quote(str(one.get("example", one["name"])), safe=""))
        elif one["in"] == "query" and "example" in one:
            query[one["name"]] = one["example"]
    words = ["curl"] if method == "GET" else ["curl", "-X", method]
    words.append(f"'{url}{path}{'?' + urlencode(query) if query else ''}'")
    if operation.get("security") != []:
        words.append('-H "Authorization: Bearer $LAURELS_KEY"')
    command = " ".join(words)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    if body is None:
        return command
    return command + " \\\n  -H 'Content-Type: application/json' -d '" + json.dumps(body).replace("'", "'\\''") + "'"


def _fields(schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{_e(name)}</code><td>{_type(one)}<td>{_code(one.get('description', ''))}"
        f"{'' if name in schema.get('required', ()) else ' optional'}"
        for name, one in schema.get("properties", {}).items()
    )
    return f"<table>{rows}</table>"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = _e(schema["$ref"].rpartition("/")[2])
        return f"<a href='#type-{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}) or {})}"
    if "enum" in schema:
        return " or ".join(f"<code>{_e(json.dumps(value))}</code>" for value in schema["enum"])
    more = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(more, dict):
        return f"object of {_type(more)}"
    return _e(str(schema.get("type", "any")))


def _e(text: str) -> str:
    return html.escape(text, quote=True)


def _code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _e(text))
