"""A broker's metrics. Metrics that Kafka has too have the names that Prometheus' JMX exporter gives them.

The thread of a scrape reads them while the event loop runs: dicts are copied before iteration, images are
immutable, and a count may miss the latest request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock import __version__
from penstock.broker.metrics.loop_lag import LoopLag
from penstock.broker.metrics.request_times import Histogram
from penstock.groups.offsets.records import read_tail
from penstock.metadata.image import ClusterImage
from penstock.replication.partition import Partition
from penstock.replication.traffic import Traffic

if TYPE_CHECKING:
    from penstock.broker.net.dispatch import Dispatcher
    from penstock.broker.parts import (
        HasGroups,
        HasId,
        HasPartitions,
        HasServer,
        HasTelemetry,
        HasTopics,
    )

    class CollectorParts(HasGroups, HasId, HasPartitions, HasServer, HasTelemetry, HasTopics, Protocol): ...


_TRAFFIC = (
    ("messagesin", "messages_in", "Records that producers appended."),
    ("bytesin", "bytes_in", "Bytes of record batches that producers appended."),
    ("bytesout", "bytes_out", "Bytes of record batches sent to consumers."),
    ("replicationbytesin", "replication_bytes_in", "Bytes of record batches fetched from leaders."),
    ("replicationbytesout", "replication_bytes_out", "Bytes of record batches sent to followers."),
    ("failedproducerequests", "failed_produces", "Batches of producers that were rejected."),
    ("failedfetchrequests", "failed_fetches", "Fetches of a partition that were answered with an error."),
)
# Requests are counted in buckets of powers of two microseconds; these buckets are exported.
_SHOWN = range(6, 26, 2)  # 0.064 ms to 33.6 s


class BrokerCollector(Collector):
    def __init__(self, broker: CollectorParts, dispatcher: Dispatcher, lag: LoopLag) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._lag = lag

    def describe(self) -> Iterable[Metric]:
        return ()  # so that registering it does not collect

    def collect(self) -> Iterator[Metric]:
        broker = self._broker
        image = broker.topics.image
        partitions = list(broker.partitions.values())
        info = InfoMetricFamily("penstock_build", "The version of this broker.")
        info.add_metric((), {"version": __version__})
        yield info
        yield from _traffic(dict(broker.topics.traffic))
        yield from self._requests()
        yield from _replicas(broker.id, image, partitions)
        yield from _logs(partitions)
        yield from self._groups()
        yield from self._connections()
        yield from self._client_metrics()
        yield _histogram(
            "penstock_event_loop_lag_seconds",
            "How late a timer of the event loop ran, twice a second: what requests wait for others.",
            [((), self._lag.histogram)],
            (),
            1.0,
        )

    def _requests(self) -> Iterator[Metric]:
        times = sorted(self._dispatcher.times.items())
        requests = CounterMetricFamily(
            "kafka_network_requestmetrics_requests", "Requests, by API.", labels=["request"]
        )
        for name, one in times:
            if one.count:
                requests.add_metric([name], one.count)
        yield requests
        for phase, what in (("total", "from the request to its answer"), ("local", "work of the event loop")):
            yield _histogram(
                f"kafka_network_requestmetrics_{phase}timems",
                f"Milliseconds by API: {what}.",
                [((name,), getattr(one, phase)) for name, one in times if one.count],
                ("request",),
                1e3,
            )

    def _groups(self) -> Iterator[Metric]:
        broker = self._broker
        labels = ["consumergroup", "topic", "partition"]
        committed = GaugeMetricFamily(
            "kafka_consumergroup_current_offset",
            "The committed offset, of groups that this broker coordinates.",
            labels=labels,
        )
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag",
            "Records after the committed offset, of partitions that this broker leads.",
            labels=labels,
        )
        count = 0
        for shard in broker.groups.loaded_shards():
            count += len(shard.groups)
            for group, offsets in list(shard.offsets.by_group.items()):
                for tail in list(offsets):
                    topic, index = read_tail(tail)
                    offset = shard.offsets.committed(group, topic, index)
                    if offset is None:
                        continue
                    committed.add_metric([group, topic, str(index)], offset)
                    partition = broker.partitions.get((topic, index))
                    if partition is not None and partition.is_leader:
                        # Only the leader: a follower's high watermark is late, and two brokers would export
                        # the same lag.
                        behind = max(0, partition.log.high_watermark - offset)
                        lag.add_metric([group, topic, str(index)], behind)
        yield _gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups that this broker coordinates.",
            count,
        )
        yield committed
        yield lag

    def _client_metrics(self) -> Iterator[Metric]:
        telemetry = self._broker.telemetry
        yield _gauge(
            "kafka_server_client_metrics_instance_count",
            "Client instances that asked for their subscription to client metrics (KIP-714), or pushed.",
            len(telemetry.instances),
        )
        for name, doc, value in (
            ("kafka_server_client_metrics_plugin_export", "Pushes of client metrics.", telemetry.received),
            ("penstock_client_metrics_bytes", "Bytes of those pushes, compressed.", telemetry.received_bytes),
            (
                "penstock_client_metrics_dropped",
                "Pushes dropped because too many waited for the topic.",
                telemetry.dropped,
            ),
        ):
            counter = CounterMetricFamily(name, doc)
            counter.add_metric((), value)
            yield counter

    def _connections(self) -> Iterator[Metric]:
        server = self._broker.server
        by_listener: dict[str, int] = {}
        for connection in list(server.connections):
            listener = connection.session.listener
            by_listener[listener] = by_listener.get(listener, 0) + 1
        found = GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count",
            "Open connections, by listener.",
            labels=["listener"],
        )
        for listener, number in sorted(by_listener.items()):
            found.add_metric([listener], number)
        yield found
        yield _gauge(
            "penstock_request_buffer_bytes",
            "Memory that requests hold while they are received or wait (queued.max.request.bytes).",
            server.budget.used,
        )


def _traffic(by_topic: dict[str, Traffic]) -> Iterator[Metric]:
    for name, attribute, text in _TRAFFIC:
        family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", text, labels=["topic"])
        for topic, traffic in by_topic.items():
            value = getattr(traffic, attribute)
            if value:
                family.add_metric([topic], value)
        yield family
    for name, attribute, text in (
        ("isrshrinks", "isr_shrinks", "In-sync replica sets of partitions led here that became smaller."),
        ("isrexpands", "isr_expands", "In-sync replica sets of partitions led here that became larger."),
    ):
        total = sum(getattr(traffic, attribute) for traffic in by_topic.values())
        counter = CounterMetricFamily(f"kafka_server_replicamanager_{name}", text)
        counter.add_metric((), total)
        yield counter


def _replicas(broker_id: int, image: ClusterImage, partitions: list[Partition]) -> Iterator[Metric]:
    led = [one for one in partitions if one.is_leader]
    behind = sum(len(one.image.isr) < len(one.image.replicas) for one in led)
    below = sum(len(one.image.isr) < one.log.config.min_insync_replicas for one in led)
    manager = "kafka_server_replicamanager_"
    yield _gauge(f"{manager}partitioncount", "Partitions with a replica here.", len(partitions))
    yield _gauge(f"{manager}leadercount", "Partitions that this broker leads.", len(led))
    yield _gauge(f"{manager}underreplicatedpartitions", "Led partitions that lack in-sync replicas.", behind)
    yield _gauge(f"{manager}underminisrpartitioncount", "Led partitions below min.insync.replicas.", below)
    controls = image.controller_id == broker_id
    controller = "kafka_controller_kafkacontroller_"
    yield _gauge(f"{controller}activecontrollercount", "1 on the controller.", int(controls))
    offline = 0
    if controls:
        offline = sum(one.leader < 0 for topic in image.topics.values() for one in topic.partitions)
    yield _gauge(
        f"{controller}offlinepartitionscount", "Partitions without a leader; on the controller.", offline
    )
    yield _gauge(f"{controller}activebrokercount", "Registered brokers.", len(image.brokers))
    yield _gauge(f"{controller}globaltopiccount", "Topics of the cluster.", len(image.topics))


def _logs(partitions: list[Partition]) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    size = GaugeMetricFamily("kafka_log_log_size", "Bytes of the log on disk.", labels=labels)
    start = GaugeMetricFamily("kafka_log_log_logstartoffset", "The first offset.", labels=labels)
    end = GaugeMetricFamily("kafka_log_log_logendoffset", "The offset of the next record.", labels=labels)
    segments = GaugeMetricFamily("kafka_log_log_numlogsegments", "Segments.", labels=labels)
    for partition in partitions:
        log = partition.log
        of = [log.topic, str(log.partition)]
        size.add_metric(of, log.size)
        start.add_metric(of, log.log_start_offset)
        end.add_metric(of, log.log_end_offset)
        segments.add_metric(of, len(log.segments))
    return iter((size, start, end, segments))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _histogram(
    name: str,
    text: str,
    rows: Iterable[tuple[tuple[str, ...], Histogram]],
    labels: tuple[str, ...],
    per_second: float,
) -> Metric:
    """`per_second` is the number of units in a second: 1e3 for milliseconds."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for of, times in rows:
        counted = 0
        buckets = []
        at = 0
        for shown in _SHOWN:
            counted += sum(times.buckets[at : shown + 1])
            at = shown + 1
            buckets.append((f"{(1 << shown) / 1e6 * per_second:.6g}", float(counted)))
        buckets.append(("+Inf", float(times.count)))
        family.add_metric(list(of), buckets, times.seconds * per_second)
    return family
