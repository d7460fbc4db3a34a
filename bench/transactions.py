"""Transactions of Apache Kafka's own producer on three brokers, back to back: Penstock and Kafka take turns.

Each transaction is one record with acks=all in one of six partitions with three replicas, and its commit; the
next one begins when that is answered. Java's producer does transactions of version 2, as Kafka Streams and
Flink do through it. Without Maven there is neither that producer nor Kafka: the part is skipped by name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench import cluster
from bench.process import scratch
from bench.report import Report, Result
from tests.tools.kafka_broker import kafka_nodes
from tests.tools.kafka_jars import KAFKA_VERSION, NotFetched, fetch
from tests.tools.transaction_load import PARTITIONS, Outcome, load

TOPIC = "transactions"
ONE, EIGHT = 1, 8
_CLIENT_FLAGS = ["-Xmx512m"]
_KAFKA_FLAGS = ["-Xmx768m", "-Xms768m"]
_PATIENCE_S = 120.0
_NAMES = {ONE: "one Java producer", EIGHT: "eight Java producers"}


def measure(report: Report, *, transactions: int, rounds: int) -> None:
    """`transactions` of each producer, in each round."""
    try:
        libraries = fetch()
    except NotFetched as error:
        print(f"  skipped: {error}")
        return
    with (
        scratch() as directory,
        cluster.running() as ours,
        kafka_nodes(libraries, directory, cluster.BROKERS, _KAFKA_FLAGS) as theirs,
    ):
        for bootstrap in (ours.bootstrap, theirs.bootstrap):
            _make_topic(bootstrap)

        def run(bootstrap: str, producers: int, name: str, count: int = transactions) -> Outcome:
            outcome = load(
                libraries,
                bootstrap,
                TOPIC,
                "back-to-back",
                producers,
                count,
                run=name,
                warm_up=count // 4,
                flags=_CLIENT_FLAGS,
                timeout=600,
            )
            if problems := outcome.problems():
                raise RuntimeError(f"{name}: {problems}")
            return outcome

        for side, bootstrap in (("penstock", ours.bootstrap), ("kafka", theirs.bootstrap)):
            run(bootstrap, EIGHT, f"warm-{side}", max(50, transactions // 2))
        _report(report, run, ours.bootstrap, theirs.bootstrap, rounds)


def _report(
    report: Report, run: Callable[[str, int, str], Outcome], ours: str, theirs: str, rounds: int
) -> None:
    for producers, target in ((ONE, 100), (EIGHT, 400)):
        pairs = [
            (run(ours, producers, f"p{producers}-{number}"), run(theirs, producers, f"k{producers}-{number}"))
            for number in range(rounds)
        ]
        sides = [
            (name, [outcome.number("per_second") for outcome in found], found)
            for name, found in zip(("Penstock", f"Kafka {KAFKA_VERSION}"), zip(*pairs))
        ]
        for name, rates, found in sides:
            latency = median(outcome.number("p50_ms") for outcome in found)
            refused = sum(outcome.warnings.get("CONCURRENT_TRANSACTIONS", 0) for outcome in found)
            note = f"{min(rates):.0f} to {max(rates):.0f}, p50 {latency:.1f} ms, {refused} refusals"
            report.add(
                Result(
                    f"{_NAMES[producers]}, {name}",
                    median(rates),
                    "txn/s",
                    at_least=target if name == "Penstock" else None,
                    note=note,
                )
            )
        ratios = [one.number("per_second") / other.number("per_second") for one, other in pairs]
        report.add(
            Result(
                f"{_NAMES[producers]}, Penstock / Kafka",
                median(ratios),
                note=f"{min(ratios):.2f} to {max(ratios):.2f}",
            )
        )


def _make_topic(bootstrap: str) -> None:
    """Also waits for the brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    end = time.perf_counter() + _PATIENCE_S
    while True:
        try:
            if len(admin.list_topics(timeout=5).brokers) == cluster.BROKERS:
                wanted = NewTopic(TOPIC, PARTITIONS, cluster.BROKERS)
                for future in admin.create_topics([wanted], request_timeout=30).values():
                    future.result()
                return
        except KafkaException:
            if time.perf_counter() > end:
                raise
        time.sleep(0.2)


def main() -> None:
    """Alone: python -m bench.transactions"""
    measure(Report(), transactions=int(os.environ.get("TRANSACTIONS", "400")), rounds=3)


if __name__ == "__main__":
    main()
