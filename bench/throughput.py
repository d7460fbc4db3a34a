"""1 KiB records in large batches, in and out, beside the limit of the same run."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from bench import limits, wire
from bench.process import BrokerProcess, broker, scratch
from bench.report import Report, Result

RECORD_BYTES = 1024
# The largest round number of records below the default max.message.bytes.
RECORDS_IN_BATCH = 1000
BATCHES_IN_FETCH = 8
WARM_UP_ROUNDS = 2
GB = 1e9


def measure(report: Report, *, gigabytes: float, rounds: int) -> tuple[float, float]:
    """Limit and broker take turns, so that what else the machine does falls on both.

    Many short rounds rather than a long one: pages that a round frees are written again by the next,
    where a long one measures how the machine (a virtual one above all) finds memory for its page cache.
    Gives back the two limits, in GB/s.
    """
    batch = wire.batch(RECORDS_IN_BATCH, RECORD_BYTES)
    request = wire.produce_request("load", 0, batch.data)
    repeat = max(1, round(gigabytes * GB / len(request) / BATCHES_IN_FETCH)) * BATCHES_IN_FETCH
    sent = len(request) * repeat / GB
    stored = len(batch.data) * repeat / GB
    found: dict[str, list[float]] = {}
    with scratch() as directory, broker() as process:
        file = directory / "limit"
        for number in range(rounds + WARM_UP_ROUNDS):
            limit_in = sent / limits.seconds_in(file, request, repeat)
            limit_out = stored / limits.seconds_out(file, round(stored * GB))
            file.unlink()
            wire.make_topic(process.port, "load")
            seconds, cpu_in = _produce(process, request, repeat)
            if (there := wire.end_offset(process.port, "load")) != repeat * batch.records:
                raise RuntimeError(f"{there} records in the log, {repeat * batch.records} were acknowledged")
            produce = sent / seconds
            seconds, cpu_out = _fetch(process, batch, repeat)
            fetch = stored / seconds
            wire.drop_topic(process.port, "load")
            process.wait_until_deleted("load")
            if number < WARM_UP_ROUNDS:
                continue
            measured = {
                "in": limit_in,
                "out": limit_out,
                "produce": produce,
                "fetch": fetch,
                "in ratio": produce / limit_in,
                "out ratio": fetch / limit_out,
                "cpu in": cpu_in / sent,
                "cpu out": cpu_out / stored,
            }
            for name, value in measured.items():
                found.setdefault(name, []).append(value)
    middle = {name: median(values) for name, values in found.items()}
    spread = {name: f"{min(values):.2f} to {max(values):.2f}" for name, values in found.items()}
    report.add(
        Result("limit in: socket to file", middle["in"], "GB/s", note=spread["in"]),
        Result("produce, replayed requests of 1 MB", middle["produce"], "GB/s", note=spread["produce"]),
        Result("produce / limit in", middle["in ratio"], "", at_least=0.6, note=spread["in ratio"]),
        Result("broker CPU for produce", middle["cpu in"], "s/GB"),
        Result("limit out: file to socket by sendfile", middle["out"], "GB/s", note=spread["out"]),
        Result("fetch, answers of 8 MB", middle["fetch"], "GB/s", note=spread["fetch"]),
        Result("fetch / limit out", middle["out ratio"], "", at_least=0.7, note=spread["out ratio"]),
        Result("broker CPU for fetch", middle["cpu out"], "s/GB"),
    )
    return middle["in"], middle["out"]


def _produce(process: BrokerProcess, request: bytes, repeat: int) -> tuple[float, float]:
    with wire.connect(process.port) as connection:
        answer_bytes = 4 + len(wire.round_trip(connection, request))
        before = process.cpu_seconds()
        seconds = wire.push(connection, [request], repeat - 1, answer_bytes)
        # One request went ahead of the clock, to learn the size of an answer.
        return seconds * repeat / (repeat - 1), process.cpu_seconds() - before


def _fetch(process: BrokerProcess, batch: wire.Batch, batches: int) -> tuple[float, float]:
    """Every answer holds the same whole number of batches, so that the next offset is known ahead."""
    request = wire.FetchRequest("load", 0, len(batch.data) * BATCHES_IN_FETCH)
    step = BATCHES_IN_FETCH * batch.records
    requests = [request.at(offset) for offset in range(0, batches * batch.records, step)]
    with wire.connect(process.port) as connection:
        answer = wire.round_trip(connection, requests[0])
        if not len(batch.data) * BATCHES_IN_FETCH < len(answer) < len(batch.data) * BATCHES_IN_FETCH + 1000:
            raise RuntimeError(f"an answer of {len(answer)} bytes to a Fetch of {BATCHES_IN_FETCH} batches")
        before = process.cpu_seconds()
        seconds = wire.pull(connection, requests, 4 + len(answer))
        return seconds, process.cpu_seconds() - before


def measure_librdkafka(report: Report, *, records: int, limit_in: float, limit_out: float) -> None:
    """The same through confluent-kafka. Its own threads and Python calls set this number, not the broker:
    how busy the broker is meanwhile stands beside it.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    value = bytes(RECORD_BYTES)
    volume = records * RECORD_BYTES / GB
    with broker() as process:
        wire.make_topic(process.port, "native")
        producer = Producer(
            {
                "bootstrap.servers": process.bootstrap,
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "batch.num.messages": 1000,
                "acks": "1",
                "queue.buffering.max.messages": 200_000,
                "log_level": 2,
            }
        )
        before = process.cpu_seconds()
        start = time.perf_counter()
        left = records
        while left:
            # One call for many records keeps Python's share small; what the queue has no room for waits.
            batch: list[dict[str, Any]] = [{"value": value} for _ in range(min(left, RECORDS_IN_BATCH))]
            taken = producer.produce_batch("native", batch, partition=0)
            left -= taken
            if taken < len(batch):
                producer.poll(0.01)
        if producer.flush(60):
            raise RuntimeError("librdkafka could not deliver everything")
        seconds_in, cpu_in = time.perf_counter() - start, process.cpu_seconds() - before
        if (there := wire.end_offset(process.port, "native")) != records:
            raise RuntimeError(f"{there} records in the log, {records} were delivered")

        consumer = Consumer(
            {
                "bootstrap.servers": process.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "check.crcs": False,
                "fetch.message.max.bytes": 8_000_000,
                "queued.max.messages.kbytes": 128_000,
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition("native", 0, OFFSET_BEGINNING)])
        # The clock starts with the first records: finding the broker and the offset is not throughput.
        left = records - len(consumer.consume(1, timeout=30))
        before = process.cpu_seconds()
        start = time.perf_counter()
        while left:
            messages = consumer.consume(min(10_000, left), timeout=10)
            if not messages:
                raise RuntimeError(f"librdkafka stopped {left} records before the end")
            left -= sum(1 for message in messages if message.error() is None)
        seconds_out, cpu_out = time.perf_counter() - start, process.cpu_seconds() - before
        consumer.close()
    rate_in, rate_out = volume / seconds_in, volume / seconds_out
    busy_in, busy_out = 100 * cpu_in / seconds_in, 100 * cpu_out / seconds_out
    report.add(
        Result("produce through librdkafka", rate_in, "GB/s", note=f"broker busy {busy_in:.0f} %"),
        Result("produce through librdkafka / limit in", rate_in / limit_in),
        Result("consume through librdkafka", rate_out, "GB/s", note=f"broker busy {busy_out:.0f} %"),
        Result("consume through librdkafka / limit out", rate_out / limit_out),
    )
