"""A worker's metrics: connectors and tasks by state, with the names of Kafka Connect's JMX exporter."""

from __future__ import annotations

from collections import Counter

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.connect.worker.herder import Herder
from penstock.web.access import Principal


class WorkerCollector(Collector):
    """States are those that GET /connectors/NAME/status reports, over all workers of the group."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def collect(self) -> list[Metric]:
        statuses = self._herder.statuses.by_unit
        connectors = GaugeMetricFamily(
            "kafka_connect_connectors", "Connectors of the group, by state.", labels=["state"]
        )
        tasks = GaugeMetricFamily("kafka_connect_tasks", "Tasks of the group, by state.", labels=["state"])
        for family, is_task in ((connectors, False), (tasks, True)):
            found = Counter(s.state for unit, s in statuses.items() if unit.is_task is is_task)
            for state, count in sorted(found.items()):
                family.add_metric([state.lower()], count)
        members = self._herder.members
        workers = GaugeMetricFamily("kafka_connect_workers", "Workers of the group, as this one sees it.")
        workers.add_metric([], len(members) if members is not None else 0)
        return [connectors, tasks, workers]


class WorkerMetrics:
    def __init__(self, herder: Herder) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(WorkerCollector(herder))

    async def text(self, principal: Principal) -> bytes:
        """The same for everyone: whoever may read here sees all connectors."""
        return generate_latest(self._registry)
