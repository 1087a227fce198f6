"""OpenTelemetry, when the environment asks for it (OTEL_EXPORTER_OTLP_ENDPOINT) and the extra `otel` is installed."""

import os
from typing import Any

from laurels.http.request import Request
from laurels.http.routing import Route


def tracer() -> "Tracer | None":
    """A tracer that exports, None where nobody has asked for one."""
    if not (os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracer(provider)


class Tracer:
    """A span for each request, under the caller's (the traceparent header)."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("laurels")
        self._propagator = TraceContextTextMapPropagator()

    def start(self, request: Request) -> Any:
        """The span of a request that has come in."""
        from opentelemetry.trace import SpanKind

        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if (value := request.header(name.encode())) is not None
        }
        span = self._tracer.start_span(
            request.scope["method"], context=self._propagator.extract(carrier), kind=SpanKind.SERVER
        )
        span.set_attribute("http.request.method", request.scope["method"])
        span.set_attribute("url.path", request.scope["raw_path"].decode("latin-1"))
        span.set_attribute("laurels.request_id", request.request_id)
        return span

    def end(self, span: Any, route: Route | None, status: int) -> None:
        """It has been answered."""
        from opentelemetry.trace import StatusCode

        if route is not None:
            span.update_name(f"{route.method} {route.path}")
            span.set_attribute("http.route", route.path)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    def stop(self) -> None:
        """Send what is still here."""
        self._provider.shutdown()
