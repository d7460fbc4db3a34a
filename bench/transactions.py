"""Transactions of Apache Kafka's own producer on three brokers, back to back: Penstock, then Kafka.

Each transaction is one record with acks=all in one of six partitions with three replicas, and its commit; the
next one begins when that is answered. Java's producer does transactions of version 2, as Kafka Streams and
Flink do through it. Each cluster has the machine to itself: the other kind is not running meanwhile. Without
Maven there is neither that producer nor Kafka: the part is skipped by name.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench import cluster
from bench.process import cpu_seconds, scratch
from bench.report import Report, Result
from tests.tools.kafka_broker import kafka_nodes
from tests.tools.kafka_jars import KAFKA_VERSION, NotFetched, fetch
from tests.tools.transaction_load import PARTITIONS, Outcome, load

TOPIC = "transactions"
ONE, EIGHT = 1, 8
_TARGETS = {ONE: 100, EIGHT: 400}
_NAMES = {ONE: "one Java producer", EIGHT: "eight Java producers"}
# A client that runs for seconds spends most of its processor time in the optimizing compiler otherwise.
_CLIENT_FLAGS = ["-Xmx512m", "-XX:TieredStopAtLevel=1"]
_KAFKA_FLAGS = ["-Xmx768m", "-Xms768m"]
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Side:
    """A cluster that runs, and what it is called."""

    name: str
    bootstrap: str
    pids: Sequence[int]
    """Of its brokers."""

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))


@dataclass(frozen=True)
class Round:
    outcome: Outcome
    broker_ms: float
    """Processor time of all brokers for a transaction."""
    client_ms: float
    """The same of the client, with the start of its JVM."""


def measure(report: Report, *, transactions: int, rounds: int) -> None:
    """`transactions` of each producer, in each round."""
    try:
        libraries = fetch()
    except NotFetched as error:
        print(f"  skipped: {error}")
        return
    found: dict[str, dict[int, list[Round]]] = {}
    for running in (_penstock, _kafka):
        with running(libraries) as side:
            _make_topic(side.bootstrap)
            _run(libraries, side, EIGHT, max(50, transactions // 2), "warm-up")
            found[side.name] = {
                producers: [
                    _run(libraries, side, producers, transactions, f"{producers}-{number}")
                    for number in range(rounds)
                ]
                for producers in _TARGETS
            }
    _report(report, found)


@contextmanager
def _penstock(libraries: Path) -> Iterator[Side]:
    with cluster.running() as ours:
        yield Side("Penstock", ours.bootstrap, [process.pid for process in ours.brokers.values()])


@contextmanager
def _kafka(libraries: Path) -> Iterator[Side]:
    with scratch() as directory, kafka_nodes(libraries, directory, cluster.BROKERS, _KAFKA_FLAGS) as theirs:
        yield Side(f"Kafka {KAFKA_VERSION}", theirs.bootstrap, theirs.pids)


def _run(libraries: Path, side: Side, producers: int, count: int, name: str) -> Round:
    warm_up = count // 4
    brokers, client = side.cpu_seconds(), _cpu_of_children()
    outcome = load(
        libraries,
        side.bootstrap,
        TOPIC,
        "back-to-back",
        producers,
        count,
        run=name,
        warm_up=warm_up,
        flags=_CLIENT_FLAGS,
        timeout=600,
    )
    if problems := outcome.problems():
        raise RuntimeError(f"{side.name}, {name}: {problems}")
    done = producers * (count + warm_up)
    return Round(
        outcome,
        (side.cpu_seconds() - brokers) * 1000 / done,
        (_cpu_of_children() - client) * 1000 / done,
    )


def _cpu_of_children() -> float:
    """Of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _report(report: Report, found: dict[str, dict[int, list[Round]]]) -> None:
    for producers, target in _TARGETS.items():
        middle = []
        for name, rounds in ((name, of_side[producers]) for name, of_side in found.items()):
            rates = _numbers(rounds, lambda one: one.outcome.number("per_second"))
            refused = sum(one.outcome.warnings.get("CONCURRENT_TRANSACTIONS", 0) for one in rounds)
            note = (
                f"{min(rates):.0f} to {max(rates):.0f}, "
                f"p50 {median(_numbers(rounds, lambda one: one.outcome.number('p50_ms'))):.1f} ms, "
                f"{refused} refusals, CPU {median(_numbers(rounds, lambda one: one.broker_ms)):.1f} ms of"
                f" brokers and {median(_numbers(rounds, lambda one: one.client_ms)):.1f} of the client"
            )
            middle.append(median(rates))
            report.add(
                Result(
                    f"{_NAMES[producers]}, {name}",
                    middle[-1],
                    "txn/s",
                    at_least=target if name == "Penstock" else None,
                    note=note,
                )
            )
        report.add(Result(f"{_NAMES[producers]}, Penstock / Kafka", middle[0] / middle[1]))


def _numbers(rounds: Sequence[Round], number: Callable[[Round], float]) -> list[float]:
    return [number(one) for one in rounds]


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
