"""`penstock bench`: what a cluster does for a client, in the manner of Kafka's own perf-test tools.

The client is librdkafka called from Python, so with small records Python is the limit; `bench/` in the source
tree measures the broker itself.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.admin.cluster import Cluster, choose_partitions
from penstock.admin.positions import Position, find_range
from penstock.admin.reader import StopRequest, read_records, stop_on_interrupt
from penstock.admin.records.sending import COMPRESSIONS
from penstock.admin.words import human_bytes
from penstock.cli.failure import CommandFailed, reason
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, progress, table

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

F = TypeVar("F", bound=Callable[..., Any])
PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_PAYLOADS = 64

topic_option = click.option(
    "--topic",
    "-t",
    default="bench",
    show_default=True,
    shell_complete=complete_topics,
    help="The topic; it is not deleted afterwards.",
)
partitions_option = click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Partitions of the topic, if it does not exist.",
)
size_option = click.option(
    "--size",
    "-s",
    metavar="N",
    type=click.IntRange(min=0),
    default=1024,
    show_default=True,
    help="Bytes of a record's value.",
)
acks_option = click.option(
    "--acks",
    type=click.Choice(("all", "1", "0")),
    default="all",
    show_default=True,
    help="Which replicas must have a record before it is acknowledged.",
)


@click.group()
def bench() -> None:
    """Measure a cluster's rates and latencies."""


def records_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--records",
        "-n",
        metavar="N",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="How many records.",
    )


@bench.command()
@topic_option
@partitions_option
@records_option(100_000)
@size_option
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(min=1),
    default=1 << 20,
    show_default=True,
    help="Largest batch, bytes.",
)
@click.option(
    "--linger",
    metavar="N",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Wait for a batch, ms.",
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(COMPRESSIONS),
    default="none",
    show_default=True,
    help="The codec that compresses batches.",
)
@acks_option
@click.option(
    "--throughput", metavar="N", type=click.IntRange(min=1), help="At most this many records a second."
)
@json_option
@cluster_options
def produce(
    topic: str,
    partitions: int,
    records: int,
    size: int,
    batch: int,
    linger: float,
    compression: str,
    acks: str,
    throughput: int | None,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Write records as fast as possible; measures rate, and latency from send to acknowledgement.

    \b
      penstock bench produce --records 1000000 --size 1024 --compression zstd --acks all
    """
    _ensure_topic(cluster, topic, partitions)
    producer = cluster.producer(
        {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "batch.size": batch,
            "batch.num.messages": 1_000_000,
            "linger.ms": linger,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": max(1_000_000, size + 1024, batch),
        }
    )
    acknowledged = Acknowledged()
    payloads = _payloads(size)
    begin = time.perf_counter()
    with progress(f"to {topic}", records) as bar:
        for number in range(records):
            if throughput is not None:
                _pace(producer, begin, number, throughput)
            _send(producer, topic, payloads[number % _PAYLOADS], acknowledged)
            if number % 1000 == 0:
                producer.poll(0)
                bar.update(acknowledged.count)
                acknowledged.check()
        while producer.flush(0.2):
            bar.update(acknowledged.count)
    seconds = time.perf_counter() - begin
    acknowledged.check()
    _show(as_json, _rate(records, records * size, seconds) | _latency(acknowledged.latencies))


@bench.command()
@click.option(
    "--topic", "-t", default="bench", show_default=True, shell_complete=complete_topics, help="It must exist."
)
@click.option(
    "--records",
    "-n",
    metavar="N",
    type=click.IntRange(min=1),
    help="At most this many. Default: all current records.",
)
@json_option
@cluster_options
def consume(topic: str, records: int | None, as_json: bool, cluster: Cluster) -> None:
    """Read a topic from its beginning as fast as possible.

    \b
      penstock bench consume --records 1000000
    """
    partitions = choose_partitions(cluster.topic(topic), [])
    starts, ends = find_range(cluster, topic, partitions, Position("earliest"), read_committed=False)
    total = sum(ends[p] - starts[p] for p in partitions)
    if not total:
        raise CommandFailed(f"topic '{topic}' is empty: write to it first with `penstock bench produce`.")
    wanted = min(total, records or total)
    settings: dict[str, object] = {"queued.min.messages": 1_000_000, "fetch.message.max.bytes": 10 << 20}
    count = size = 0
    first: float | None = None
    begin = time.perf_counter()
    with stop_on_interrupt() as stop, progress(f"from {topic}", wanted) as bar:
        for batch in read_records(cluster, topic, starts, ends, settings, stop):
            if batch and first is None:
                first = time.perf_counter() - begin
            for message in batch[: wanted - count]:
                size += len(message)
                count += 1
            bar.update(count)
            if count >= wanted:
                break
        seconds = time.perf_counter() - begin
        if stop.requested:
            raise KeyboardInterrupt
    _show(as_json, _rate(count, size, seconds) | {"first_record_ms": round((first or seconds) * 1000, 3)})


@bench.command()
@topic_option
@records_option(1_000)
@size_option
@acks_option
@json_option
@cluster_options
def latency(topic: str, records: int, size: int, acks: str, as_json: bool, cluster: Cluster) -> None:
    """Send one record at a time and wait until a consumer has it; measures end-to-end latency.

    \b
      penstock bench latency --records 1000 --acks all
    """
    _ensure_topic(cluster, topic, 1)
    _, ends = find_range(cluster, topic, [0], Position("latest"), read_committed=False)
    producer = cluster.producer(
        {"acks": acks, "linger.ms": 0, "message.max.bytes": max(1_000_000, size + 1024)}
    )
    payloads = _payloads(size)
    latencies = array("d")
    stop = StopRequest()
    acknowledged = Acknowledged()
    reader = read_records(cluster, topic, ends, None, {"fetch.wait.max.ms": 500, "fetch.min.bytes": 1}, stop)
    begin = time.perf_counter()
    with progress(f"through {topic}", records) as bar:
        # The first one is not measured: it includes connecting.
        for number in range(records + 1):
            sent = time.perf_counter()
            _send(producer, topic, payloads[number % _PAYLOADS], acknowledged, partition=0)
            _await_record(reader, producer, acknowledged, cluster.timeout)
            if number:
                latencies.append(time.perf_counter() - sent)
            else:
                begin = time.perf_counter()
            bar.update(number)
    seconds = time.perf_counter() - begin
    reader.close()
    producer.flush(cluster.timeout)
    _show(as_json, _rate(records, records * size, seconds) | _latency(latencies))


class Acknowledged:
    """Delivery reports: their number, latencies, and the first failure."""

    def __init__(self) -> None:
        self.count = 0
        self.latencies = array("d")
        self.error: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.count += 1
            self.latencies.append(message.latency() or 0.0)
        elif self.error is None:
            self.error = error

    def check(self) -> None:
        if self.error is not None:
            raise CommandFailed(
                f"a record was not written: {reason(self.error)} ({self.error.name().lstrip('_')})"
            )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that `percent` of the sorted values do not exceed (nearest rank)."""
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def _latency(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    found = {"latency_avg_ms": sum(ordered) / len(ordered) * 1000, "latency_max_ms": ordered[-1] * 1000}
    found |= {f"latency_p{percent:g}_ms": percentile(ordered, percent) * 1000 for percent in PERCENTILES}
    return {name: round(value, 3) for name, value in found.items()}


def _rate(records: int, size: int, seconds: float) -> dict[str, float]:
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds, 1),
        "mb_per_second": round(size / seconds / 1e6, 3),
    }


def _show(as_json: bool, figures: dict[str, float]) -> None:
    if as_json:
        emit_json(figures)
        return
    words = {"bytes": human_bytes(figures["bytes"]), "records": f"{int(figures['records']):,}"}
    rows = [(name.replace("_", " "), words.get(name, f"{value:,.3f}")) for name, value in figures.items()]
    table(("figure", "value"), rows)


def _ensure_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    from confluent_kafka.cimpl import NewTopic

    if topic not in cluster.topics():
        futures = cluster.admin.create_topics([NewTopic(topic, partitions)], request_timeout=cluster.timeout)
        cluster.wait(futures[topic], f"cannot create '{topic}'")


def _payloads(size: int) -> list[bytes]:
    """Random letters from a fixed seed, so that runs are comparable and compression is not trivial."""
    source = random.Random(2)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [bytes(source.choices(letters, k=size)) for _ in range(_PAYLOADS)]


def _send(
    producer: Producer, topic: str, value: bytes, acknowledged: Acknowledged, partition: int = -1
) -> None:
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.produce(topic, value, None, partition, on_delivery=acknowledged.report)
            return
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            raise CommandFailed(f"a record was not written: {reason(error.args[0])}") from error


def _pace(producer: Producer, begin: float, number: int, throughput: int) -> None:
    """Wait until record `number` is due; delivery reports are taken meanwhile."""
    while (early := begin + number / throughput - time.perf_counter()) > 0:
        producer.poll(min(early, 0.1))


def _await_record(
    reader: Iterator[list[Message]], producer: Producer, acknowledged: Acknowledged, timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    while not next(reader):
        producer.poll(0)
        acknowledged.check()
        if time.monotonic() > deadline:
            raise CommandFailed(f"a record did not come back in {timeout:g} s")
    producer.poll(0)
    acknowledged.check()
