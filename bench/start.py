"""Starting: to the first acknowledged record, with 1,000 partitions, and the memory that both take."""

from __future__ import annotations

import time
from statistics import median

from bench import wire
from bench.process import broker, scratch
from bench.report import Report, Result

PARTITIONS = 1000


def measure(report: Report, *, rounds: int) -> None:
    request = wire.produce_request("first", 0, wire.batch(1, 100).data)
    firsts, idle = [], []
    for _ in range(rounds):
        with broker() as process:
            idle.append(process.resident_mib())
            wire.make_topic(process.port, "first")
            with wire.connect(process.port) as connection:
                wire.round_trip(connection, request)
            firsts.append(time.perf_counter() - process.started)
    report.add(
        Result("start to first acknowledged record", median(firsts), "s", at_most=0.7),
        Result("resident memory, idle", median(idle), "MiB", at_most=80),
    )


def measure_many_partitions(report: Report) -> None:
    data = wire.batch(1, 100).data
    requests = [wire.produce_request("wide", index, data) for index in range(PARTITIONS)]
    with scratch() as directory:
        with broker(directory) as process:
            wire.make_topic(process.port, "wide", PARTITIONS)
            with wire.connect(process.port) as connection:
                answer_bytes = 4 + len(wire.round_trip(connection, requests[0]))
                wire.push(connection, requests[1:], 1, answer_bytes)
            if wire.end_offset(process.port, "wide", PARTITIONS) != PARTITIONS:
                raise RuntimeError("not every partition has its record")
            grown = process.resident_mib()
        with broker(directory) as process:
            opened = process.seconds_to_ready
            reopened = process.resident_mib()
            if wire.end_offset(process.port, "wide", PARTITIONS) != PARTITIONS:
                raise RuntimeError("records are missing after a clean restart")
    report.add(
        Result("resident memory, 1,000 partitions written to", grown, "MiB", at_most=200),
        Result("resident memory, 1,000 partitions opened again", reopened, "MiB", at_most=200),
        Result("start with 1,000 clean partitions", opened, "s", at_most=3),
    )
