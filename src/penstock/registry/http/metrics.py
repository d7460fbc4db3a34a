"""What `/metrics` reports to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.registry.service import Service

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class Metrics:
    """Counters of requests, and the state at the time of the scrape."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_registry_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "penstock_registry_request_seconds",
            "Time to an answer.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._bound: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._registry.register(_StateCollector(service))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        if method not in _METHODS:
            method = "other"  # names that clients invent must not become time series
        key = (method, route, status)
        bound = self._bound.get(key)
        if bound is None:
            bound = (self._requests.labels(method, route, str(status)), self._seconds.labels(method, route))
            self._bound[key] = bound
        bound[0].inc()
        bound[1].observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _StateCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        state = self._service.state
        subjects, versions, ids = state.counts()
        values = {
            "subjects": ("Subjects, soft-deleted ones too.", subjects),
            "versions": ("Versions of all subjects.", versions),
            "schemas": ("Schemas, each counted once.", ids),
            "offset": ("The last record of the topic that was read.", state.offset),
            "ignored_records": ("Invalid records of the topic that were skipped.", state.ignored),
            "leader": ("1 if this registry leads.", int(self._service.leads)),
        }
        for name, (doc, value) in values.items():
            yield GaugeMetricFamily(f"penstock_registry_{name}", doc, value)
