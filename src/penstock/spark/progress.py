"""Watches streaming queries: converts each progress report of Spark to a `QueryProgress`.

    from penstock.spark.progress import watch
    watching = watch(spark, bootstrap="127.0.0.1:9092", metrics_port=0)

It feeds a callback, Prometheus metrics on a port of loopback, and the compacted topic `__penstock_queries`,
which holds the newest progress of each query under its name. It cannot slow down or fail a query: the
listener only stores the progress; a separate thread sends records, and drops old ones while no broker
responds.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.client.librdkafka import with_login
from penstock.client.partitioning import KEY_PARTITIONER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.web.metrics import MetricsSettings

TOPIC = "__penstock_queries"
_RETRY_SECONDS = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query. `lag` is in records, where offsets are Kafka's; None elsewhere."""

    description: str
    input_rows: int
    end_offset: Any = None
    latest_offset: Any = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One micro-batch of one query, or a report while it is idle."""

    id: str
    run_id: str
    name: str | None
    timestamp: str
    batch_id: int
    input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    batch_seconds: float
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    watermark: str | None = None
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    """Rows that stateful operators dropped in this batch because they were later than the watermark."""
    output_rows: int | None = None
    lag: int | None = None
    sources: tuple[SourceProgress, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def watermark_seconds(self) -> float | None:
        """The watermark since 1970. None without a watermark, or if it has not moved yet."""
        if self.watermark is None:
            return None
        return datetime.fromisoformat(self.watermark.replace("Z", "+00:00")).timestamp() or None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QueryProgress:
        """Converts Spark's progress JSON."""
        sources = tuple(_source(source) for source in data.get("sources", ()))
        lags = [source.lag for source in sources if source.lag is not None]
        operators = data.get("stateOperators", ())
        durations = data.get("durationMs", {}) or {}
        watermark = (data.get("eventTime") or {}).get("watermark")
        output = (data.get("sink") or {}).get("numOutputRows", -1)
        return cls(
            id=str(data["id"]),
            run_id=str(data["runId"]),
            name=data.get("name"),
            timestamp=str(data["timestamp"]),
            batch_id=int(data["batchId"]),
            input_rows=int(data.get("numInputRows", 0) or sum(source.input_rows for source in sources)),
            input_rows_per_second=_number(data.get("inputRowsPerSecond")),
            processed_rows_per_second=_number(data.get("processedRowsPerSecond")),
            batch_seconds=int(durations.get("triggerExecution", data.get("batchDuration", 0)) or 0) / 1000,
            durations_ms={key: int(value) for key, value in durations.items()},
            watermark=None if watermark in (None, "1970-01-01T00:00:00.000Z") else watermark,
            state_rows=sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
            state_bytes=sum(int(operator.get("memoryUsedBytes", 0)) for operator in operators),
            late_rows=sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in operators),
            output_rows=None if output in (None, -1) else int(output),
            lag=sum(lags) if lags else None,
            sources=sources,
        )


def _source(data: Mapping[str, Any]) -> SourceProgress:
    end, latest = _offset(data.get("endOffset")), _offset(data.get("latestOffset"))
    metrics = data.get("metrics") or {}
    lag = lag_between(end, latest)
    if (
        lag is None and "maxOffsetsBehindLatest" in metrics
    ):  # Spark's own Kafka source reports it for the worst partition
        lag = int(float(metrics["maxOffsetsBehindLatest"]))
    return SourceProgress(
        description=str(data.get("description", "")),
        input_rows=int(data.get("numInputRows", 0) or 0),
        end_offset=end,
        latest_offset=latest,
        lag=lag,
    )


def _offset(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _number(value: Any) -> float:
    """A rate; Spark writes NaN and Infinity for batches without time."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if number == number and abs(number) != float("inf") else 0.0


def lag_between(end: Any, latest: Any) -> int | None:
    """Records between two offsets of Kafka's source, {topic: {partition: offset}}; None for others."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    lag = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict):
            return None
        behind = end.get(topic, {})
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or not isinstance(behind, dict):
                return None
            lag += max(0, offset - int(behind.get(partition, 0)))
    return lag


class Watch:
    """Watched queries. `latest` has the newest progress of each by its name, or id."""

    def __init__(self, pipeline: str, on_progress: Callable[[QueryProgress], None] | None) -> None:
        self.pipeline = pipeline
        self.latest: dict[str, QueryProgress] = {}
        self.rows: dict[str, int] = {}
        """All input rows of each query since it is watched."""
        self.ended: dict[str, str | None] = {}
        """Queries that have ended, with the error that ended them."""
        self.metrics_port: int | None = None
        self._on_progress = on_progress
        self._followed: list[tuple[SparkSession, Any]] = []
        self._server: Any = None
        self._records: Records | None = None

    def flow(self, name: str) -> str:
        """A query's name without the pipeline's, which is a separate label."""
        return name.removeprefix(f"{self.pipeline}.") if self.pipeline else name

    def progressed(self, progress: QueryProgress) -> None:
        """Called in Spark's listener thread: stores the progress, passes it on and returns."""
        name = progress.name or progress.id
        self.latest[name] = progress
        self.rows[name] = self.rows.get(name, 0) + progress.input_rows
        self.ended.pop(name, None)
        if self._records:
            self._records.put(name, {"pipeline": self.pipeline or None, **progress.to_json()})
        if self._on_progress:
            self._on_progress(progress)

    def finished(self, query_id: str, error: str | None) -> None:
        for name, progress in self.latest.items():
            if progress.id == query_id:
                self.ended[name] = error

    def follow(self, spark: SparkSession) -> None:
        """Watches the queries of this session, too: Spark notifies each session of its own queries only."""
        listener = _listener(self)
        spark.streams.addListener(listener)
        self._followed.append((spark, listener))

    def leave(self, spark: SparkSession) -> None:
        """The session's queries have ended, and it is not used again."""
        for each in [pair for pair in self._followed if pair[0] is spark]:
            self._followed.remove(each)
            spark.streams.removeListener(each[1])

    def stop(self) -> None:
        """Stops watching: closes the port, and tries once more to send waiting records."""
        for spark, listener in self._followed:
            spark.streams.removeListener(listener)
        self._followed.clear()
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._records:
            self._records.close()
            self._records = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def watch(
    spark: SparkSession,
    *,
    bootstrap: str | None = None,
    kafka: Mapping[str, str] | None = None,
    metrics_port: int | None = None,
    metrics: MetricsSettings | None = None,
    pipeline: str = "",
    on_progress: Callable[[QueryProgress], None] | None = None,
) -> Watch:
    """Watches all queries of a session until `Watch.stop()`.

    `bootstrap` sends progress to the topic `__penstock_queries` there; `kafka` has more librdkafka settings;
    `metrics_port` serves Prometheus metrics on 127.0.0.1 (0: any free port, see `Watch.metrics_port`);
    `metrics` does so with users, tokens and TLS.
    """
    watching = Watch(pipeline, on_progress)
    if bootstrap:
        watching._records = Records({**(kafka or {}), "bootstrap.servers": bootstrap})
    if metrics is None and metrics_port is not None:
        from penstock.web.metrics import MetricsSettings

        metrics = MetricsSettings(metrics_port)
    if metrics is not None:
        watching._server = _serve_metrics(watching, metrics)
        watching.metrics_port = watching._server.server_port
    watching.follow(spark)
    return watching


def _listener(watching: Watch) -> Any:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        """Called on Spark's listener bus, which all queries share: an exception here would affect all
        of them.
        """

        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            try:
                watching.progressed(QueryProgress.from_json(json.loads(event.progress.json)))
            except Exception:  # noqa: BLE001 - see above
                _log.exception("could not read a progress report of Spark")

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            pass

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            watching.finished(str(event.id), event.exception)

    return Listener()


# -- Prometheus

_GAUGES: tuple[tuple[str, str, Callable[[QueryProgress], float | None]], ...] = (
    ("input_rows_per_second", "Rows that arrive each second.", lambda p: p.input_rows_per_second),
    (
        "processed_rows_per_second",
        "Rows that are processed each second.",
        lambda p: p.processed_rows_per_second,
    ),
    ("batch_seconds", "How long the last micro-batch took.", lambda p: p.batch_seconds),
    ("batch_id", "The number of the last micro-batch.", lambda p: p.batch_id),
    ("watermark_timestamp_seconds", "The watermark, in seconds since 1970.", lambda p: p.watermark_seconds),
    ("state_rows", "Rows in the state of stateful operators.", lambda p: p.state_rows),
    ("state_bytes", "Memory of that state.", lambda p: p.state_bytes),
    ("lag_records", "Records that the sources hold and the query has not read.", lambda p: p.lag),
)


def _serve_metrics(watching: Watch, settings: MetricsSettings) -> Any:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    from penstock.web.metrics import serve_metrics

    labels = ("pipeline", "flow")

    class Queries(Collector):
        """Created from `latest` at each scrape, so that ended queries leave no time series."""

        def collect(self) -> Iterator[Any]:
            latest = dict(watching.latest)
            for name, text, value in _GAUGES:
                gauge = GaugeMetricFamily(f"penstock_query_{name}", text, labels=labels)
                for query, progress in latest.items():
                    number = value(progress)
                    if number is not None:
                        gauge.add_metric((watching.pipeline, watching.flow(query)), number)
                yield gauge
            rows = CounterMetricFamily("penstock_query_input_rows", "Rows read.", labels=labels)
            running = GaugeMetricFamily("penstock_query_running", "1 while the query runs.", labels=labels)
            for query in latest:
                rows.add_metric((watching.pipeline, watching.flow(query)), watching.rows.get(query, 0))
                alive = 0 if query in watching.ended else 1
                running.add_metric((watching.pipeline, watching.flow(query)), alive)
            yield rows
            yield running

    registry = CollectorRegistry()
    registry.register(Queries())
    return serve_metrics(registry, settings)


# -- the topic


class Records:
    """Sends the newest JSON of each key to the topic, in its own thread.

    While no broker responds, only the newest of each key is kept, so that memory use is bounded.
    """

    def __init__(self, settings: Mapping[str, str], topic: str = TOPIC) -> None:
        self.topic = topic
        self.settings = dict(settings)
        self._waiting: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="penstock-queries", daemon=True)
        self._thread.start()

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode()
        with self._changed:
            self._waiting[key] = text
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        from confluent_kafka import KafkaException, Producer

        silent = logging.getLogger("penstock.spark.progress.librdkafka")
        silent.disabled = True
        producer = None
        reported = False
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                batch, self._waiting = self._waiting, {}
                if not batch:
                    break
            try:
                if producer is None:
                    create_topic(self.settings, self.topic)
                    defaults = {"message.timeout.ms": 10_000, "linger.ms": 50, "partitioner": KEY_PARTITIONER}
                    producer = Producer(with_login({**defaults, **self.settings}), logger=silent)
                failed = self._send(producer, batch)
            except (KafkaException, OSError, ValueError) as error:
                if not reported:
                    _log.warning("could not write progress to %s: %s", self.topic, error)
                reported, failed = True, batch
            if failed:
                with self._changed:
                    for key, value in failed.items():
                        self._waiting.setdefault(key, value)  # a newer one goes first
                    if self._closing:
                        break
                    self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS)
                    if self._closing:
                        break
            else:
                reported = False

    def _send(self, producer: Any, batch: Mapping[str, bytes]) -> dict[str, bytes]:
        """Records that could not be delivered."""
        failed = dict(batch)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                failed.pop(message.key().decode(), None)

        for key, value in batch.items():
            producer.produce(self.topic, key=key.encode(), value=value, on_delivery=delivered)
        deadline = time.monotonic() + 15
        while failed and producer.flush(0.2) and time.monotonic() < deadline and not self._closing:
            pass
        if self._closing and failed:
            producer.flush(2.0)
        return failed


def create_topic(settings: Mapping[str, str], topic: str) -> None:
    """Creates the compacted topic if it does not exist. Raises KafkaException if no broker responds."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    silent = logging.getLogger("penstock.spark.progress.librdkafka")
    admin = AdminClient(with_login(settings), logger=silent)
    if topic in admin.list_topics(timeout=5.0).topics:
        return
    new = NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact"})
    for future in admin.create_topics([new], operation_timeout=5.0, request_timeout=5.0).values():
        try:
            future.result(10.0)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
