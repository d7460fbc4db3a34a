"""What `/metrics` of a SQL server reports to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of requests, and the state at the time of the scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.running = 0
        self.leads = False
        self._requests = Counter(
            "penstock_sql_requests", "Requests with statements.", ("outcome",), registry=self.registry
        )
        self._seconds = Histogram(
            "penstock_sql_request_seconds",
            "Time to the end of the answer; of a push query, how long it was.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        Gauge("penstock_sql_running_requests", "Requests under way.", registry=self.registry).set_function(
            lambda: self.running
        )
        Gauge("penstock_sql_leader", "1 if this server leads.", registry=self.registry).set_function(
            lambda: int(self.leads)
        )

    def count(self, went_well: bool, seconds: float) -> None:
        self._requests.labels("done" if went_well else "failed").inc()
        self._seconds.observe(seconds)

    def text(self, queries: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """`queries` as described by the engine; only the leader has any."""
        own = CollectorRegistry()
        own.register(_Queries(queries))
        return generate_latest(self.registry) + generate_latest(own)


class _Queries(Collector):
    _NUMBERS = {
        "lag": "Records that the query has still to read.",
        "input rows per second": "Rows that arrive each second.",
        "rows per second": "Rows that it processes each second.",
        "seconds of a batch": "How long its last micro-batch took.",
        "rows of state": "Rows that it keeps.",
        "bytes of state": "Memory of these rows.",
        "late rows": "Rows that came after the watermark, and were dropped.",
        "failures": "How often it has failed since it last ran well.",
    }

    def __init__(self, queries: Sequence[Mapping[str, Any]]) -> None:
        self._queries = queries

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("penstock_sql_query_running", "1 if it runs.", labels=("query",))
        for query in self._queries:
            running.add_metric((query["id"],), int(query.get("state") == "RUNNING"))
        yield running
        for name, doc in self._NUMBERS.items():
            family = GaugeMetricFamily(f"penstock_sql_query_{name.replace(' ', '_')}", doc, labels=("query",))
            for query in self._queries:
                if isinstance(query.get(name), int | float):
                    family.add_metric((query["id"],), query[name])
            yield family
