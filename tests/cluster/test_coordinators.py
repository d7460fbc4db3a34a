"""Coordinators die under groups and transactions: offsets are kept, transactions are whole or not at all."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.cluster.copier import Copier, await_copied, copied
from tests.cluster.harness import PATIENCE, Cluster, Node, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(400)

_RECORDS = 3000
_MORE = 3300


@pytest.mark.promise(
    "cluster",
    "A transactional copy is exact and in order while brokers, clients and coordinators are restarted, "
    "and a zombie producer is fenced",
)
def test_a_transactional_copy_is_exact_while_brokers_clients_and_coordinators_are_bounced(
    cluster: Cluster,
) -> None:
    for name in ("copy-in", "copy-out"):
        cluster.create_topic(name, min_insync_replicas="2")
    _fill(cluster, "copy-in", range(_RECORDS))
    words = ("copy-in", "copy-out", "copiers")
    with Copier(cluster, "copier-0", *words) as first, Copier(cluster, "copier-1", *words) as second:
        copiers = [first, second]

        def go_on_to(count: int) -> None:
            await_copied(cluster, copiers, "copy-in", 3, "copiers", count, 2 * PATIENCE)

        def so_far() -> int:
            return copied(cluster, "copy-in", 3, "copiers")

        go_on_to(100)
        for number, node in enumerate(_coordinators_first(cluster)):
            node.kill()
            wait_until("others lead", lambda dead=node: dead.id not in cluster.leaders("copy-out").values())
            node.start()
            copiers[number % 2].bounce()
            go_on_to(min(so_far() + 1, _RECORDS))
        # A zombie: its transaction is open when a successor with its id begins, which copies the rest alone.
        first.kill()
        zombie = _transactional(cluster, "copier-0")
        zombie.init_transactions(PATIENCE)
        zombie.begin_transaction()
        zombie.produce("copy-out", b"zombie")
        zombie.flush(30)
        second.kill()
        copiers.remove(second)
        _fill(cluster, "copy-in", range(_RECORDS, _MORE))
        first.start()
        go_on_to(_MORE)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(30)
    for partition, records in read_all(cluster, "copy-out").items():
        # Each once, and in the order of the source.
        assert [value for _, value in records] == [b"%d" % n for n in range(partition, _MORE, 3)]


@pytest.mark.promise(
    "cluster",
    "A group whose coordinator dies during a rebalance continues, and acknowledged commits are kept",
)
def test_a_group_goes_on_where_it_was_when_its_coordinator_dies_in_a_rebalance(cluster: Cluster) -> None:
    """What was written is consumed while it is written; what was said to be committed is."""
    cluster.create_topic("grouped", partitions=6, min_insync_replicas="2")
    seen: set[bytes] = set()
    committed: dict[int, int] = {}
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
                    seen.update(value for one in messages if isinstance(value := one.value(), bytes))
                if messages:
                    try:
                        told = consumer.commit(asynchronous=False)
                    except KafkaException as error:
                        if not _is_passing(error.args[0]):
                            raise
                        continue
                    with lock:
                        for one in told or ():
                            if one.error is None:
                                committed[one.partition] = max(committed.get(one.partition, 0), one.offset)
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            consumer.close()

    members = [threading.Thread(target=consume, args=(number,), daemon=True) for number in range(3)]
    with Writer(cluster, "grouped", partitions=6) as writer:
        members[0].start()
        wait_until("the first member reads", lambda: seen or errors)
        for member in members[1:]:
            member.start()  # the group rebalances
        coordinator = _coordinator_of(cluster, "workers")
        coordinator.kill()
        before = sum(committed.values())
        wait_until("the group goes on", lambda: sum(committed.values()) > before or errors, 2 * PATIENCE)
        coordinator.start()
        writer.wait_for_progress()
        history = writer.stop()
    wait_until("every record is consumed", lambda: seen >= history.acknowledged.keys() or errors)
    stop.set()
    for member in members:
        member.join(PATIENCE)
    assert not errors and not history.failed
    check(history, read_all(cluster, "grouped"))
    late = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "workers", "log_level": 0})
    try:
        found = late.committed([TopicPartition("grouped", number) for number in range(6)], timeout=30)
        for one in found:
            assert one.offset >= committed[one.partition], f"a commit of {one.partition} is lost"
            assert one.offset <= late.get_watermark_offsets(one, timeout=30)[1]
    finally:
        late.close()


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


def _fill(cluster: Cluster, topic: str, numbers: range, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE) == 0


def _coordinator_of(cluster: Cluster, group: str) -> Node:
    described = cluster.admin.describe_consumer_groups([group], request_timeout=30)[group].result()
    return cluster.nodes[described.coordinator.id]


def _coordinators_first(cluster: Cluster) -> list[Node]:
    first = _coordinator_of(cluster, "copiers")
    return [first, *(node for node in cluster.nodes.values() if node is not first)]
