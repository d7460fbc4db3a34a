"""What `/metrics` of a SQL server tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of requests, and the state when it is asked for."""

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

    def text(self) -> bytes:
        return generate_latest(self.registry)
