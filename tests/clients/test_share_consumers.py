"""confluent-kafka's ShareConsumer against a real broker: a topic as a queue."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from penstock.testing import PenstockBroker, WireClient
from tests.clients.share_member import alter_group, offsets

WAIT_S = 30.0


@pytest.fixture
def queue(broker: PenstockBroker, topic_name: Callable[[], str]) -> str:
    """A topic with three partitions, and a share group of its name that reads it from the beginning."""
    name = topic_name()
    broker.create_topic(name, partitions=3)
    with WireClient(broker.port) as wire:
        alter_group(wire, name, share_auto_offset_reset="earliest")
    return name


def consumer(broker: PenstockBroker, queue: str, mode: str) -> ShareConsumer:
    made = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": queue, "share.acknowledgement.mode": mode}
    )
    made.subscribe([queue])
    return made


def fill(broker: PenstockBroker, queue: str, count: int) -> set[bytes]:
    for partition in range(3):
        values = [str(n).encode() for n in range(partition, count, 3)]
        for start in range(0, len(values), 20):
            broker.produce(queue, values[start : start + 20], partition=partition)
    return {str(n).encode() for n in range(count)}


def deadline() -> Iterator[None]:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        yield
    pytest.fail("not done in time")


@pytest.mark.promise(
    "share groups",
    "A record is delivered to one member at a time, and is not delivered again after it was accepted",
)
def test_every_record_is_processed_once_by_one_of_many_consumers(broker: PenstockBroker, queue: str) -> None:
    wanted = fill(broker, queue, 600)
    seen: Counter[bytes] = Counter()
    done = threading.Event()
    lock = threading.Lock()
    failures: list[object] = []

    def work() -> None:
        member = consumer(broker, queue, "implicit")
        try:
            while not done.is_set():
                for message in member.poll(0.2):
                    if message.error() is not None:
                        failures.append(message.error())
                        continue
                    with lock:
                        seen[message.value()] += 1
                        if len(seen) == len(wanted):
                            done.set()
                # Else a consumer that closes now would give its last records to another.
                member.commit_sync(10)
        finally:
            member.close()

    # More consumers than partitions: they share them.
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    done.wait(WAIT_S)
    done.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert not failures
    assert set(seen) == wanted
    assert max(seen.values()) == 1


@pytest.mark.promise(
    "share groups", "Released records are delivered again with a higher delivery count, rejected ones are not"
)
def test_released_records_come_again_and_rejected_ones_do_not(broker: PenstockBroker, queue: str) -> None:
    fill(broker, queue, 30)
    times: Counter[bytes] = Counter()
    member = consumer(broker, queue, "explicit")
    try:
        for _ in deadline():
            for message in member.poll(0.5):
                assert message.error() is None, message.error()
                value = message.value()
                times[value] += 1
                number = int(value)
                if number % 3 == 0 and times[value] == 1:
                    member.acknowledge(message, AcknowledgeType.RELEASE)
                elif number % 3 == 1:
                    member.acknowledge(message, AcknowledgeType.REJECT)
                else:
                    member.acknowledge(message, AcknowledgeType.ACCEPT)
            if len(times) == 30 and sum(times.values()) == 40:
                break
        results = member.commit_sync(10)
        assert all(error is None for error in results.values())
    finally:
        member.close()
    assert all(times[str(n).encode()] == (2 if n % 3 == 0 else 1) for n in range(30))
    with WireClient(broker.port) as wire:
        assert offsets(wire, queue) == dict.fromkeys(range(3), (10, 0))


@pytest.mark.promise(
    "share groups",
    "A record lock expires after its duration, or later if it is renewed; a member that closes, dies or "
    "is silent releases its records",
)
def test_what_a_consumer_had_goes_to_the_next_when_it_closes(broker: PenstockBroker, queue: str) -> None:
    wanted = fill(broker, queue, 30)
    first = consumer(broker, queue, "explicit")
    held: list[bytes] = []
    for _ in deadline():
        held = [message.value() for message in first.poll(0.5)]
        if held:
            break
    first.close()
    seen: set[bytes] = set()
    second = consumer(broker, queue, "implicit")
    try:
        for _ in deadline():
            seen.update(message.value() for message in second.poll(0.5))
            if seen >= wanted:
                break
    finally:
        second.close()
    assert set(held) <= seen


@pytest.mark.promise("share groups", "kill -9 of the broker loses no acknowledgement and no delivery count")
def test_a_broker_that_was_killed_goes_on_where_it_was() -> None:
    # The member that was cut off has a part of the partitions until its session ends.
    settings = {"group.share.session.timeout.ms": 3000, "group.share.heartbeat.interval.ms": 500}
    with PenstockBroker(settings, event_loop="uvloop") as broker:
        broker.create_topic("q", partitions=3)
        with WireClient(broker.port) as wire:
            alter_group(wire, "q", share_auto_offset_reset="earliest")
        wanted = fill(broker, "q", 300)
        committed: set[bytes] = set()
        delivered_after: set[bytes] = set()
        member = consumer(broker, "q", "explicit")
        try:
            for _ in deadline():
                batch = [message for message in member.poll(0.5) if message.error() is None]
                for message in batch[:50]:
                    member.acknowledge(message)
                for message in batch[50:]:
                    member.acknowledge(message, AcknowledgeType.RELEASE)
                if all(error is None for error in member.commit_sync(10).values()):
                    committed.update(message.value() for message in batch[:50])
                if len(committed) >= 100:
                    break
            broker.kill()
            broker.start()
        finally:
            member.close()
        again = consumer(broker, "q", "implicit")
        try:
            for _ in deadline():
                delivered_after.update(
                    message.value() for message in again.poll(0.5) if message.error() is None
                )
                if delivered_after | committed >= wanted:
                    break
        finally:
            again.close()
        assert not committed & delivered_after
