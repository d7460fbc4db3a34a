"""Coordinators die under groups and transactions: offsets are kept, transactions are whole or not at all."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.cluster.harness import PATIENCE, Cluster, Node, wait_until
from tests.cluster.history import read_all

pytestmark = pytest.mark.timeout(400)

_RECORDS = 3000


def test_a_transactional_copy_is_exact_while_brokers_clients_and_coordinators_are_bounced(
    cluster: Cluster,
) -> None:
    for name in ("copy-in", "copy-out"):
        cluster.create_topic(name, min_insync_replicas="2")
    _fill(cluster, "copy-in", _RECORDS)
    stop = threading.Event()
    errors: list[BaseException] = []
    copiers = [_Copier(cluster, number, stop, errors) for number in range(2)]
    for copier in copiers:
        copier.start()
    wait_until("something is copied", lambda: sum(c.committed for c in copiers) > 100 or errors)
    for node in _coordinators_first(cluster):
        node.kill()
        _await_progress(copiers, errors)
        node.start()
    # A zombie: its transaction is open when a successor with the same id begins.
    zombie = _transactional(cluster, "copier-0")
    zombie.init_transactions(PATIENCE)
    zombie.begin_transaction()
    zombie.produce("copy-out", b"zombie:0")
    zombie.flush(30)
    copiers[0].reborn.set()
    wait_until("all is copied", lambda: sum(c.committed for c in copiers) >= _RECORDS or errors, PATIENCE * 2)
    stop.set()
    for copier in copiers:
        copier.join(PATIENCE)
    assert not errors
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


class _Copier(threading.Thread):
    """Consume, produce and commit in one transaction, over and over; begins anew whenever it has to."""

    def __init__(
        self, cluster: Cluster, number: int, stop: threading.Event, errors: list[BaseException]
    ) -> None:
        super().__init__(name=f"copier-{number}", daemon=True)
        self._cluster = cluster
        self._stop_now = stop
        self._errors = errors
        self.committed = 0
        self.reborn = threading.Event()
        """Set: begin anew, as a client that was bounced."""

    def run(self) -> None:
        try:
            while not self._stop_now.is_set():
                self.reborn.clear()
                self._live()
        except BaseException as error:
            self._errors.append(error)
            raise

    def _live(self) -> None:
        """One life of the client."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 10000,
                "log_level": 0,
            }
        )
        producer = _transactional(self._cluster, self.name)
        try:
            producer.init_transactions(PATIENCE)
            consumer.subscribe(["copy-in"])
            while not self._stop_now.is_set() and not self.reborn.is_set():
                messages = [one for one in consumer.consume(40, 0.5) if one.error() is None]
                if messages:
                    self._copy(consumer, producer, messages)
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError._FENCED,
                KafkaError.PRODUCER_FENCED,
            ) and not _is_passing(error.args[0]):
                raise
        finally:
            consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer, messages: list[Message]) -> None:
        producer.begin_transaction()
        for message in messages:
            producer.produce("copy-out", message.value(), partition=message.partition())
        ends = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
        offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in ends.items()]
        # librdkafka waits for a coordinator that is dead as long as it may. Then this client begins anew.
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 5)
        producer.commit_transaction(5)
        self.committed += len(messages)
        time.sleep(0.05)


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


def _await_progress(copiers: list[_Copier], errors: list[BaseException]) -> None:
    before = sum(copier.committed for copier in copiers)

    def more() -> bool:
        now = sum(copier.committed for copier in copiers)
        return now > before or now >= _RECORDS or bool(errors)

    wait_until("the copy goes on", more)
