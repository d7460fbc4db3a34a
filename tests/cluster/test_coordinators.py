"""Coordinators die under groups and transactions: offsets are kept, transactions are whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.cluster.harness import PATIENCE, Cluster, Node, wait_until
from tests.cluster.history import read_all

pytestmark = pytest.mark.timeout(400)

_RECORDS = 3000
_STUCK = 15.0


def test_a_transactional_copy_is_exact_while_brokers_clients_and_coordinators_are_bounced(
    cluster: Cluster,
) -> None:
    for name in ("copy-in", "copy-out"):
        cluster.create_topic(name, min_insync_replicas="2")
    _fill(cluster, "copy-in", _RECORDS)
    with _Copier(cluster, "copier-0") as first, _Copier(cluster, "copier-1") as second:
        copiers = [first, second]
        wait_until("something is copied", lambda: _committed(cluster) > 100)
        for number, node in enumerate(_coordinators_first(cluster)):
            node.kill()
            wait_until("others lead", lambda dead=node: dead.id not in cluster.leaders("copy-out").values())
            node.start()
            copiers[number % 2].bounce()
            _await_progress(cluster, copiers)
        # A zombie: its transaction is open when a successor with the same id begins.
        first.kill()
        zombie = _transactional(cluster, "copier-0")
        zombie.init_transactions(PATIENCE)
        zombie.begin_transaction()
        zombie.produce("copy-out", b"zombie")
        zombie.flush(30)
        first.start()
        while _committed(cluster) < _RECORDS:
            _await_progress(cluster, copiers)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(30)
    values = [value for records in read_all(cluster, "copy-out").values() for _, value in records]
    assert sorted(values) == sorted(b"%d" % number for number in range(_RECORDS))


def test_a_group_goes_on_where_it_was_when_its_coordinator_dies_in_a_rebalance(cluster: Cluster) -> None:
    cluster.create_topic("grouped", partitions=6, min_insync_replicas="2")
    _fill(cluster, "grouped", 1200, partitions=6)
    seen: dict[bytes, int] = {}
    lock, stop, errors = threading.Lock(), threading.Event(), list[BaseException]()

    def consume(number: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "workers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe(["grouped"])
            while not stop.is_set():
                messages = [one for one in consumer.consume(50, 0.5) if one.error() is None]
                with lock:
                    for message in messages:
                        value = message.value()
                        assert isinstance(value, bytes)
                        seen[value] = seen.get(value, 0) + 1
                if messages:
                    try:
                        consumer.commit(asynchronous=False)
                    except KafkaException as error:
                        if not _is_passing(error.args[0]):
                            raise
                time.sleep(0.01)
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            consumer.close()

    members = [threading.Thread(target=consume, args=(number,), daemon=True) for number in range(3)]
    members[0].start()
    wait_until("the first member reads", lambda: seen or errors)
    for member in members[1:]:
        member.start()  # the group rebalances
    coordinator = _coordinator_of(cluster, "workers")
    coordinator.kill()
    wait_until("every record is consumed", lambda: len(seen) == 1200 or errors)
    coordinator.start()
    stop.set()
    for member in members:
        member.join(PATIENCE)
    assert not errors
    # What is committed is what was consumed: a new member finds nothing left.
    late = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    partitions = [TopicPartition("grouped", number) for number in range(6)]
    try:
        committed = late.committed(partitions, timeout=30)
        assert sum(one.offset for one in committed if one.offset > 0) >= 1200 - sum(seen.values()) + len(seen)
        for one in committed:
            low, high = late.get_watermark_offsets(one, timeout=30)
            assert low <= one.offset <= high
    finally:
        late.close()


class _Copier:
    """A process of `copier.py`, started again whenever it has ended."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        words = [cluster.bootstrap, name, "copy-in", "copy-out", "copiers"]
        self._command = [sys.executable, "-m", "tests.cluster.copier", *words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def bounce(self) -> None:
        self.kill()
        self.start()

    def keep_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def __enter__(self) -> _Copier:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


def _is_passing(error: KafkaError) -> bool:
    """An error after which a client begins anew: its transaction is undone, its offsets as they were."""
    return error.retriable() or error.txn_requires_abort() or error.fatal() or error.code() in _PASSING


_PASSING = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._STATE,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
)


def _transactional(cluster: Cluster, name: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 20000,
            "log_level": 0,
        }
    )


def _fill(cluster: Cluster, topic: str, count: int, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE) == 0


def _coordinator_of(cluster: Cluster, group: str) -> Node:
    described = cluster.admin.describe_consumer_groups([group], request_timeout=30)[group].result()
    return cluster.nodes[described.coordinator.id]


def _coordinators_first(cluster: Cluster) -> list[Node]:
    first = _coordinator_of(cluster, "copiers")
    return [first, *(node for node in cluster.nodes.values() if node is not first)]


def _committed(cluster: Cluster) -> int:
    """Up to where the input is copied; the copiers do not count a commit whose answer they did not get."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "copiers", "log_level": 0})
    try:
        offsets = consumer.committed([TopicPartition("copy-in", number) for number in range(3)], timeout=30)
        return sum(max(one.offset, 0) for one in offsets)
    except KafkaException:
        return 0
    finally:
        consumer.close()


def _await_progress(cluster: Cluster, copiers: list[_Copier]) -> None:
    before, waited = _committed(cluster), time.monotonic()
    end = waited + 2 * PATIENCE
    while (now := _committed(cluster)) <= before and now < _RECORDS:
        assert time.monotonic() < end, f"nothing is copied after {before} records"
        for copier in copiers:
            copier.keep_running()
        if time.monotonic() - waited > _STUCK:
            # librdkafka 2.16 may wait for ever for a coordinator that was dead when it was told of it.
            waited = time.monotonic()
            for copier in copiers:
                copier.bounce()
        time.sleep(0.1)
