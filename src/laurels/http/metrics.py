"""What the server has done, for Prometheus. Counting is a few additions a request; the rest is done when asked for."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from laurels.http.routing import Route
from laurels.service import Laurels

if TYPE_CHECKING:
    from laurels.live import Hub

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Requests by route and status, their durations by route, and what the process holds."""

    def __init__(self, laurels: Laurels, hub: "Hub", routes: list[Route]) -> None:
        self._laurels = laurels
        self._hub = hub
        self._routes = routes
        self._counts: dict[tuple[int, int], int] = {}
        self._buckets = [[0] * (len(BOUNDS_S) + 1) for _ in [*routes, None]]
        self._seconds = [0.0] * (len(routes) + 1)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe(self, route: Route | None, status: int, seconds: float) -> None:
        """A request has been answered."""
        number = -1 if route is None else route.number
        key = (number, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._buckets[number][bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[number] += seconds

    def answered(self) -> int:
        """How many requests were answered without an error."""
        return sum(count for (_, status), count in self._counts.items() if status < 400)

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing before it is collected: the registry need not ask at once."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand."""
        requests = CounterMetricFamily("laurels_requests", "Requests answered", labels=["method", "route", "status"])
        for (number, status), count in sorted(self._counts.items()):
            method, path = self._named(number)
            requests.add_metric([method, path, str(status)], count)
        yield requests
        durations = HistogramMetricFamily("laurels_request_seconds", "Time to answer", labels=["method", "route"])
        for number in range(-1, len(self._routes)):
            buckets = self._buckets[number]
            if any(buckets):
                total, cumulated = 0, []
                for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], buckets, strict=True):
                    total += count
                    cumulated.append((bound, total))
                durations.add_metric(list(self._named(number)), cumulated, self._seconds[number])
        yield durations
        yield GaugeMetricFamily("laurels_index_bytes", "Memory of the rank indexes", self._laurels.memory_bytes())
        yield GaugeMetricFamily("laurels_queued_rows", "Submissions that wait to be committed", self._laurels.queued())
        yield GaugeMetricFamily("laurels_live_subscribers", "Live subscriptions", self._hub.subscriber_count)
        yield GaugeMetricFamily("laurels_games", "Games", len(self._laurels.games()))

    def _named(self, number: int) -> tuple[str, str]:
        return ("-", "-") if number < 0 else (self._routes[number].method, self._routes[number].path)
