"""Whether the server is well, what it has done, and how it is to be used."""

import ipaddress

from laurels.errors import Forbidden
from laurels.http.openapi import document, reference_page
from laurels.http.request import Request
from laurels.http.routing import Response, Route
from laurels.http.wire import Health


async def live(request: Request) -> Health:
    """The process answers."""
    return Health(status="ok")


async def ready(request: Request) -> Response:
    """The process can take submissions: neither stopping nor without its store."""
    if request.app.is_stopping:
        return Response(content=Health(status="stopping"), status=503)
    failure = request.laurels.failure()
    if failure is not None:
        return Response(content=Health(status="failing", detail=failure.code), status=503)
    return Response(content=Health(status="ok"))


async def metrics(request: Request) -> Response:
    """Prometheus metrics: to this machine, and to whoever has an operator's key."""
    client = (request.scope.get("client") or ("",))[0]
    is_local = _is_loopback(client) and b"x-forwarded-for" not in request.headers
    if not is_local and request.app.authenticate(request).role != "operator":
        raise Forbidden("metrics are for operators")
    return Response(content=request.app.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _is_loopback(client: str) -> bool:
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False


async def openapi(request: Request) -> Response:
    """The OpenAPI 3.1 document of this server."""
    return Response(content=document(request.app.router.routes))


async def docs(request: Request) -> Response:
    """The same as a page to read."""
    headers = [(b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")]
    page = reference_page(request.app.router.routes)
    return Response(content=page, media_type="text/html; charset=utf-8", headers=headers)


ROUTES = [
    Route(
        method="GET",
        path="/health/live",
        handler=live,
        summary="Is the process there?",
        tag="health",
        role=None,
        answer=Health,
    ),
    Route(
        method="GET",
        path="/health/ready",
        handler=ready,
        summary="Can it take submissions?",
        tag="health",
        role=None,
        answer=Health,
    ),
    Route(method="GET", path="/metrics", handler=metrics, summary="Prometheus metrics", tag="health", role=None),
    Route(method="GET", path="/openapi.json", handler=openapi, summary="This document", tag="health", role=None),
    Route(method="GET", path="/docs", handler=docs, summary="The reference as a page", tag="health", role=None),
]
