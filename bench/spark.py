"""Spark on topics: 100-byte values, 4 partitions, local[2], the broker on the same two cores.

Everything that is compared takes turns in one session after a warm-up, and the median of the rounds counts.
`python -m bench.spark [--quick]` measures this part alone.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import wire
from bench.process import BrokerProcess, broker, scratch
from bench.report import Report, Result
from penstock.wire.batches.records import Record, build_batch

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 4
VALUE_BYTES = 100
RECORDS_IN_BATCH = 5000
# Milliseconds of event time that one batch of records covers, so that windows have something to do.
BATCH_SPAN_MS = 600_000
# The JVM compiles what it has seen often enough.
WARM_UP_ROUNDS = 2
LATENCY_PER_SECOND = 200
LATENCY_TIMEOUT_S = 300.0
SETTLE_S = 5.0
_MILLION = 1e6


def measure(report: Report, *, quick: bool) -> None:
    """All of it; what is missing on this machine is said and left out."""
    try:
        import pyspark
    except ImportError:
        print("  skipped: PySpark is not installed")
        return
    import penstock.spark
    from bench.spark_kafka import connector_jars
    from bench.spark_memory import MemorySource

    jars, version = connector_jars(ROOT, pyspark.__version__)
    rounds = 3 if quick else 7
    rows = 1_000_000 if quick else 4_000_000
    # Python workers import what the driver registered.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with scratch() as directory, broker() as process:
        load(process, "load", rows)
        spark = penstock.spark.session(
            "bench",
            master="local[2]",
            conf={
                "spark.driver.memory": "2g",
                "spark.local.dir": str(directory),
                "spark.jars": ",".join(jars),
                "spark.sql.session.timeZone": "UTC",
                # A query that is stopped within a batch says so at length.
                "spark.log.level": "OFF",
            },
        )
        try:
            spark.dataSource.register(MemorySource)
            bench = Bench(report, spark, process, directory, rows, rounds)
            bench.sources("kafka" if jars else None, version)
            bench.windowed_count()
            bench.copies()
            bench.latency(seconds=5 if quick else 20)
        finally:
            spark.stop()


def load(process: BrokerProcess, topic: str, rows: int) -> None:
    """The rows, spread over the partitions, as batches that were encoded once."""
    wire.make_topic(process.port, topic, PARTITIONS)
    now = int(time.time() * 1000)
    step = BATCH_SPAN_MS // RECORDS_IN_BATCH
    value = bytes(range(VALUE_BYTES))
    batch = build_batch(
        [Record(number, now + number * step, None, value) for number in range(RECORDS_IN_BATCH)]
    )
    with wire.connect(process.port) as connection:
        for partition in range(PARTITIONS):
            request = wire.produce_request(topic, partition, batch)
            for _ in range(rows // PARTITIONS // RECORDS_IN_BATCH):
                wire.round_trip(connection, request)


class Bench:
    """The measurements, in one session over one broker."""

    def __init__(
        self, report: Report, spark: Any, process: BrokerProcess, directory: Path, rows: int, rounds: int
    ) -> None:
        self._report = report
        self._spark = spark
        self._process = process
        self._directory = directory
        self._rows = rows
        self._rounds = rounds

    def sources(self, connector: str | None, version: str) -> None:
        """Rows a second into noop: from memory, from the topic, and with Spark's own connector."""
        ways = {
            "memory": self._spark.read.format("bench_memory").options(
                partitions=PARTITIONS,
                rows=self._rows // PARTITIONS,
                batch_rows=10_000,
                value_bytes=VALUE_BYTES,
            ),
            "penstock": self._topic("penstock"),
        }
        if connector is not None:
            ways["kafka"] = self._topic("kafka")

        def into_noop(name: str) -> Callable[[], None]:
            return lambda: ways[name].load().write.format("noop").mode("overwrite").save()

        for name in ways:
            if (there := ways[name].load().count()) != self._rows:
                raise RuntimeError(f"{name} has {there} rows, not {self._rows}")
        rates = self._in_turns({name: into_noop(name) for name in ways})
        self._report.add(
            Result("in-memory Arrow source into noop", _median(rates["memory"]) / _MILLION, "M rows/s"),
            Result("topic into noop", _median(rates["penstock"]) / _MILLION, "M rows/s"),
            Result("topic into noop / in-memory source", _ratio(rates, "penstock", "memory"), at_least=0.6),
        )
        if connector is None:
            print(f'  skipped: Spark\'s own format("kafka"): {version}')
            return
        self._report.add(
            Result(
                'Spark\'s format("kafka") into noop',
                _median(rates["kafka"]) / _MILLION,
                "M rows/s",
                note=version,
            ),
            Result('topic into noop / format("kafka")', _ratio(rates, "penstock", "kafka"), at_least=1.0),
        )

    def windowed_count(self) -> None:
        """A streaming count in windows of a minute by event time, all there is, from start to end."""
        from pyspark.sql import functions as F

        counted = (
            self._stream("penstock", "load")
            .withWatermark("timestamp", "10 minutes")
            .groupBy(F.window("timestamp", "1 minute"))
            .count()
        )

        def run() -> None:
            self._run_stream(counted.writeStream.format("noop").outputMode("complete"))

        rates = self._in_turns({"count": run})
        self._report.add(
            Result(
                "windowed count",
                _median(rates["count"]),
                "rows/s",
                at_least=500_000,
                note=_range(rates["count"]),
            )
        )

    def copies(self) -> None:
        """Topic to topic, as a streaming query."""
        made: list[str] = []

        def copy(delivery: str) -> Callable[[], None]:
            def run() -> None:
                topic = f"copy-{uuid.uuid4().hex[:8]}"
                made.append(topic)
                wire.make_topic(self._process.port, topic, PARTITIONS)
                writer = (
                    self._stream("penstock", "load").select("key", "value").writeStream.format("penstock")
                )
                writer = writer.option("kafka.bootstrap.servers", self._process.bootstrap)
                self._run_stream(writer.option("topic", topic).option("delivery", delivery))

            return run

        rates = self._in_turns(
            {"exactly": copy("exactly_once"), "at_least": copy("at_least_once")}, tidy=made
        )
        self._report.add(
            Result("at-least-once copy, topic to topic", _median(rates["at_least"]), "rows/s"),
            Result("exactly-once copy, topic to topic", _median(rates["exactly"]), "rows/s"),
            Result("exactly-once / at-least-once copy", _ratio(rates, "exactly", "at_least"), at_least=0.5),
        )

    def latency(self, *, seconds: float) -> None:
        """From a record's produce call to its arrival, through a running exactly-once query."""
        for delivery in ("exactly_once", "at_least_once"):
            times = sorted(self._latencies(delivery, seconds))
            self._report.add(
                Result(f"latency through a query, {delivery}, p50", _quantile(times, 0.5) * 1000, "ms"),
                Result(f"latency through a query, {delivery}, p99", _quantile(times, 0.99) * 1000, "ms"),
            )

    def _latencies(self, delivery: str, seconds: float) -> list[float]:
        """Seconds of each record that was sent once the query had settled."""
        name = uuid.uuid4().hex[:8]
        source, target = f"in-{name}", f"out-{name}"
        for topic in (source, target):
            wire.make_topic(self._process.port, topic, PARTITIONS)
        writer = self._stream("penstock", source).select("key", "value").writeStream.format("penstock")
        writer = writer.option("kafka.bootstrap.servers", self._process.bootstrap).option("topic", target)
        checkpoint = self._checkpoint()
        query = writer.option("delivery", delivery).option("checkpointLocation", checkpoint).start()
        try:
            with Probe(self._process.bootstrap, source, target) as probe:
                # The first batches compile the query; they are not what a running one takes.
                probe.watch(lambda: bool(probe.arrived), query)
                settled = time.perf_counter() + SETTLE_S
                probe.watch(lambda: time.perf_counter() > settled + seconds, query)
                probe.stop_sending()
                probe.watch(lambda: len(probe.arrived) == probe.sent, query)
                return [came - left for left, came in probe.arrived if left >= settled]
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _topic(self, source: str) -> Any:
        reader = self._spark.read.format(source).option("kafka.bootstrap.servers", self._process.bootstrap)
        return reader.option("subscribe", "load").option("startingOffsets", "earliest")

    def _stream(self, source: str, topic: str) -> Any:
        reader = self._spark.readStream.format(source).option(
            "kafka.bootstrap.servers", self._process.bootstrap
        )
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def _checkpoint(self) -> str:
        return str(self._directory / f"checkpoint-{uuid.uuid4().hex}")

    def _run_stream(self, writer: Any) -> None:
        checkpoint = self._checkpoint()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        if (done := sum(progress.numInputRows for progress in query.recentProgress)) != self._rows:
            raise RuntimeError(f"the query read {done} rows, not {self._rows}")
        shutil.rmtree(checkpoint, ignore_errors=True)

    def _in_turns(
        self, ways: dict[str, Callable[[], None]], tidy: list[str] | None = None
    ) -> dict[str, list[float]]:
        """Rows a second of each round, after some that do not count."""
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(-WARM_UP_ROUNDS, self._rounds):
            for name, run in ways.items():
                began = time.perf_counter()
                run()
                if number >= 0:
                    rates[name].append(self._rows / (time.perf_counter() - began))
                while tidy:
                    wire.drop_topic(self._process.port, tidy.pop())
        return rates


class Probe:
    """Sends records that say when they left, and notes when each came out at the other end."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        address = {"bootstrap.servers": bootstrap, "log_level": 2}
        reading = {"group.id": target, "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        self._consumer = Consumer({**address, **reading, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(target, number, 0) for number in range(PARTITIONS)])
        self._producer = Producer({**address, "linger.ms": 0})
        self._source = source
        self._enough = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self.sent = 0
        self.arrived: list[tuple[float, float]] = []

    def __enter__(self) -> Probe:
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_sending()
        self._consumer.close()

    def stop_sending(self) -> None:
        self._enough.set()
        self._sender.join(60)

    def _send(self) -> None:
        while not self._enough.wait(1 / LATENCY_PER_SECOND):
            value = struct.pack(">d", time.perf_counter()).ljust(VALUE_BYTES, b".")
            self._producer.produce(self._source, value, partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1
        self._producer.flush(30)

    def watch(self, done: Callable[[], bool], query: Any) -> None:
        """Notes arrivals until `done`."""
        deadline = time.perf_counter() + LATENCY_TIMEOUT_S
        while not done():
            if query.exception() is not None:
                raise RuntimeError(f"the query failed: {query.exception()}")
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{len(self.arrived)} of {self.sent} records came through")
            for message in self._consumer.consume(1000, timeout=0.02):
                if message.error() is None:
                    left = struct.unpack_from(">d", message.value())[0]
                    self.arrived.append((left, time.perf_counter()))


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _ratio(rates: dict[str, list[float]], one: str, other: str) -> float:
    """The median of the ratios within a round: what else the machine does falls on both."""
    return statistics.median(a / b for a, b in zip(rates[one], rates[other]))


def _range(values: list[float]) -> str:
    return f"{min(values):,.0f} to {max(values):,.0f}"


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


if __name__ == "__main__":
    measure(Report(), quick="--quick" in sys.argv)
