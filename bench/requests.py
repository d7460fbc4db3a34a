"""Small requests: how many a second, how long one takes, and what grows with connections and partitions."""

from __future__ import annotations

import time
from typing import Any

from bench import wire
from bench.process import BrokerProcess, broker
from bench.report import Report, Result
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey

SMALL_RECORD_BYTES = 100
IN_FLIGHT = 64


def measure(report: Report, *, seconds: float, latency_requests: int) -> None:
    with broker() as process:
        wire.make_topic(process.port, "small")
        rate, _ = one_record_rate(process, "small", connections=8, partitions=1, seconds=seconds)
        p50, p99 = _latency_ms(process, "small", latency_requests)
    report.add(
        Result("one-record produce requests, 8 connections", rate, "/s", at_least=40_000),
        Result("acks=1 latency p50", p50, "ms"),
        Result("acks=1 latency p99", p99, "ms"),
    )


def one_record_rate(
    process: BrokerProcess, topic: str, *, connections: int, partitions: int, seconds: float
) -> tuple[float, float]:
    """Requests a second and the broker's CPU for one of them, in microseconds."""
    data = wire.batch(1, SMALL_RECORD_BYTES).data
    before_offset = wire.end_offset(process.port, topic, partitions)
    opened = [wire.connect(process.port) for _ in range(connections)]
    # Fewer at a time for each of many connections, so that the same number is under way in all.
    depth = max(4, min(IN_FLIGHT, 1024 // connections))
    try:
        blocks = []
        for number in range(connections):
            targets = [(number * depth + n) % partitions for n in range(depth)]
            blocks.append(b"".join(wire.produce_request(topic, target, data) for target in targets))
        answer_bytes = 4 + len(wire.round_trip(opened[0], wire.produce_request(topic, 0, data)))
        before = process.cpu_seconds()
        rounds, took = wire.pipelined(opened, blocks, answer_bytes * depth, seconds)
        cpu = process.cpu_seconds() - before
    finally:
        for connection in opened:
            connection.close()
    requests = rounds * depth * connections
    _expect(process, topic, partitions, before_offset + requests + 1)
    return requests / took, cpu / requests * 1e6


def _expect(process: BrokerProcess, topic: str, partitions: int, acknowledged: int) -> None:
    """An error is answered as fast as a success: what was counted must be in the log."""
    there = wire.end_offset(process.port, topic, partitions)
    if there != acknowledged:
        raise RuntimeError(f"{there} records in the log, {acknowledged} were acknowledged")


def _latency_ms(process: BrokerProcess, topic: str, count: int) -> tuple[float, float]:
    request = wire.produce_request(topic, 0, wire.batch(1, SMALL_RECORD_BYTES).data)
    clock = time.perf_counter
    times = []
    before = wire.end_offset(process.port, topic)
    with wire.connect(process.port) as connection:
        answer_bytes = 4 + len(wire.round_trip(connection, request))
        view = memoryview(bytearray(answer_bytes))
        for _ in range(count):
            start = clock()
            connection.sendall(request)
            wire.discard(connection, answer_bytes, view)
            times.append(clock() - start)
    _expect(process, topic, 1, before + count + 1)
    times.sort()
    return times[count // 2] * 1000, times[count * 99 // 100] * 1000


def by_connections(report: Report, counts: tuple[int, ...], *, seconds: float) -> None:
    rows: list[dict[str, Any]] = []
    with broker() as process:
        wire.make_topic(process.port, "small")
        for count in counts:
            rate, cpu = one_record_rate(process, "small", connections=count, partitions=1, seconds=seconds)
            rows.append(
                {
                    "connections": count,
                    "one-record produces/s": rate,
                    "broker CPU us/request": cpu,
                    "resident MiB": process.resident_mib(),
                }
            )
    report.table("What grows with connections", rows)


def by_partitions(report: Report, counts: tuple[int, ...], *, seconds: float) -> None:
    rows: list[dict[str, Any]] = []
    for count in counts:
        with broker() as process:
            start = time.perf_counter()
            wire.make_topic(process.port, "wide", count)
            created = time.perf_counter() - start
            rate, cpu = one_record_rate(process, "wide", connections=8, partitions=count, seconds=seconds)
            bulk = _bulk_rate(process, "wide", count)
            full, session = _fetch_ms(process, "wide", count)
            rows.append(
                {
                    "partitions": count,
                    "create s": created,
                    "one-record produces/s": rate,
                    "CPU us/request": cpu,
                    "64 KiB produces MB/s": bulk,
                    "empty full fetch ms": full,
                    "empty session fetch ms": session,
                    "resident MiB": process.resident_mib(),
                }
            )
    report.table("What grows with partitions", rows)


def _bulk_rate(process: BrokerProcess, topic: str, partitions: int) -> float:
    """64 batches of 64 KiB at least, one for each partition in turn."""
    data = wire.batch(64, 1000).data
    before = wire.end_offset(process.port, topic, partitions)
    requests = [wire.produce_request(topic, target, data) for target in range(partitions)]
    repeat = max(1, 2000 // partitions)
    with wire.connect(process.port) as connection:
        answer_bytes = 4 + len(wire.round_trip(connection, requests[0]))
        seconds = wire.push(connection, requests, repeat, answer_bytes)
    _expect(process, topic, partitions, before + 64 * (1 + len(requests) * repeat))
    return len(data) * len(requests) * repeat / seconds / 1e6


def _fetch_ms(process: BrokerProcess, topic: str, partitions: int, count: int = 50) -> tuple[float, float]:
    """A Fetch of all partitions that finds nothing: named in full, and through a fetch session."""
    nowhere = wire.end_offsets(process.port, topic, partitions)
    full = wire.frame(
        ApiKey.FETCH, wire.FETCH_VERSION, wire.fetch_message(topic, nowhere, 1 << 20, wait_ms=0)
    )
    with wire.connect(process.port) as connection:
        start = time.perf_counter()
        for _ in range(count):
            wire.round_trip(connection, full)
        full_ms = (time.perf_counter() - start) / count * 1000
    with WireClient(process.port) as client:
        opening = wire.fetch_message(topic, nowhere, 1 << 20, wait_ms=0, session=(0, 0))
        session = client.request(ApiKey.FETCH, wire.FETCH_VERSION, opening).session_id
        start = time.perf_counter()
        for epoch in range(1, count + 1):
            message = wire.fetch_message(topic, {}, 1 << 20, wait_ms=0, session=(session, epoch))
            answer = client.request(ApiKey.FETCH, wire.FETCH_VERSION, message)
            if answer.error_code:
                raise RuntimeError(f"fetch session: error {answer.error_code}")
        session_ms = (time.perf_counter() - start) / count * 1000
    return full_ms, session_ms
