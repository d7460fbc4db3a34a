"""Runs the measurements and prints them; `--quick` for a short run, `--check` to fail on a missed target."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from bench import (
    cluster,
    connect,
    connect_mirror,
    console,
    groups,
    native,
    registry,
    requests,
    security,
    spark,
    sql,
    stalls,
    start,
    throughput,
    transactions,
)
from bench.report import Report

PARTS = (
    "throughput",
    "native",
    "requests",
    "start",
    "groups",
    "cluster",
    "transactions",
    "stalls",
    "registry",
    "spark",
    "sql",
    "security",
    "connect",
    "mirror",
    "console",
)


def measure(part: str, report: Report, *, quick: bool) -> None:
    match part:
        case "throughput":
            print("\nThroughput: 1 KiB records, 1,000 in a batch; the middle of alternating rounds")
            throughput.measure(report, gigabytes=0.25, rounds=4 if quick else 16)
        case "native":
            print("\nThroughput through librdkafka: 1 KiB records, the middle of alternating rounds")
            native.measure(report, gigabytes=0.8, rounds=2 if quick else 9, larger_rounds=0 if quick else 2)
        case "requests":
            print("\nSmall requests: 100-byte records, acks=1")
            requests.measure(report, seconds=1 if quick else 4, latency_requests=500 if quick else 5000)
            seconds = 0.5 if quick else 2
            requests.by_partitions(report, (10, 100, 1000), seconds=seconds)
            requests.by_connections(report, (1, 10, 100), seconds=seconds)
        case "start":
            print("\nStart and memory")
            start.measure(report, rounds=3 if quick else 5)
            start.measure_many_partitions(report)
        case "groups":
            print("\nGroups and transactions: raw requests, one partition of each internal topic")
            groups.measure(report, quick=quick)
        case "cluster":
            print("\nThree brokers over ZooKeeper: 1 KiB records, 1,000 in a batch, three replicas")
            cluster.measure(
                report,
                gigabytes=0.25,
                rounds=2 if quick else 6,
                kills=1 if quick else 3,
                away_gigabytes=0.25 if quick else 1.0,
            )
        case "transactions":
            print("\nTransactions of one record by Java's producer, three brokers, three replicas")
            transactions.measure(report, transactions=100 if quick else 400, rounds=2 if quick else 5)
        case "stalls":
            print("\nStalls: one connection produces a record each millisecond while the broker works")
            stalls.measure(report, megabytes=16 if quick else 64, seconds=3 if quick else 20)
        case "mirror":
            print("\nReplication between two brokers: 1 KiB records, one partition, exactly once")
            connect_mirror.measure(report, megabytes=64 if quick else 512)
        case "console":
            print("\nWeb console: 5,000 topics in chromium; searches of 100-byte records in one partition")
            console.measure(report, records=500_000 if quick else 3_000_000, pages=3 if quick else 9)
        case "registry":
            print("\nSchema registry: 10,000 schemas, 8 connections, one process")
            registry.measure(report, seconds=2 if quick else 5)
        case "spark":
            print("\nSpark: 100-byte values, 4 partitions, local[2] and the broker on the same cores")
            spark.measure(report, quick=quick)
        case "sql":
            print(
                "\nContinuous SQL: Nexmark's bids as JSON in 4 partitions, local[2]; pull queries over HTTP"
            )
            sql.measure(report, quick=quick)
        case "security":
            print("\nSecurity: 1 KiB records through librdkafka with and without TLS; ACLs, logins, quotas")
            security.measure(report, quick=quick)
        case "connect":
            print("\nConnect: lines of 100 bytes in one task, beside Apache Kafka Connect's file connectors")
            connect.measure(report, records=500_000 if quick else 3_000_000)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all of them, or some: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the volume; numbers vary more")
    parser.add_argument("--check", action="store_true", help="end with 1 when a target is missed")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the numbers go")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")

    began = time.perf_counter()
    report = Report()
    print(f"Penstock on {platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs")
    busy = report.load_at_start
    print(
        f"Load average at the start: {busy:.1f}"
        + (" (others use this machine: numbers vary)" if busy > 0.5 else "")
    )
    for part in arguments.parts or PARTS:
        measure(part, report, quick=arguments.quick)

    report.write(arguments.json)
    missed = report.missed()
    print(f"\n{len(missed)} targets missed" if missed else "\nAll targets met", end="")
    print(f"; {time.perf_counter() - began:.0f} s; numbers in {arguments.json}")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
