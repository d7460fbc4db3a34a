"""Offsets: by time, by the special timestamps, by seeking, and out of range; with each client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.clients.adapters import CLIENTS, Rec, by_hand

BASE = 1_750_000_000_000
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5


@pytest.fixture
def timed_topic(broker: PenstockBroker, topic: str) -> str:
    """Ten batches of ten records, a second apart, with a record out of order."""
    for batch in range(10):
        broker.produce(
            topic,
            [{"value": b"v", "timestamp": BASE + (batch * 10 + i) * 1000} for i in range(10)],
            compression="gzip" if batch % 2 else "none",
        )
    return topic


def offsets_for_times_confluent(bootstrap: str, topic: str, times: list[int]) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(by_hand(bootstrap))
    try:
        return [
            consumer.offsets_for_times([TopicPartition(topic, 0, time)], timeout=10)[0].offset
            for time in times
        ]
    finally:
        consumer.close()


def offsets_for_times_kafka_python(bootstrap: str, topic: str, times: list[int]) -> list[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(topic, 0)
    try:
        found = [consumer.offsets_for_times({partition: time})[partition] for time in times]
        return [-1 if each is None else each.offset for each in found]
    finally:
        consumer.close()


def offsets_for_times_aiokafka(bootstrap: str, topic: str, times: list[int]) -> list[int]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> list[int]:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            found = [(await consumer.offsets_for_times({partition: time}))[partition] for time in times]
        return [-1 if each is None else each.offset for each in found]

    return asyncio.run(ask())


@pytest.mark.promise("protocol", "Every special timestamp of ListOffsets has the meaning that Kafka gives it")
@pytest.mark.parametrize(
    "offsets_for_times",
    [offsets_for_times_confluent, offsets_for_times_kafka_python, offsets_for_times_aiokafka],
)
def test_a_time_gives_the_first_record_at_or_after_it(
    broker: PenstockBroker, timed_topic: str, offsets_for_times: Callable[[str, str, list[int]], list[int]]
) -> None:
    times = [BASE, BASE + 1, BASE + 1000, BASE + 34_500, BASE + 99_000, BASE + 99_001, BASE - 5000]
    assert offsets_for_times(broker.bootstrap, timed_topic, times) == [0, 1, 1, 35, 99, -1, 0]


def test_beginning_and_end_offsets(broker: PenstockBroker, timed_topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPythonPartition

    consumer = Consumer(by_hand(broker.bootstrap))
    try:
        assert consumer.get_watermark_offsets(TopicPartition(timed_topic, 0), timeout=10) == (0, 100)
    finally:
        consumer.close()
    partition = KafkaPythonPartition(timed_topic, 0)
    other = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        assert other.beginning_offsets([partition]) == {partition: 0}
        assert other.end_offsets([partition]) == {partition: 100}
    finally:
        other.close()


def list_offset(wire: WireClient, topic: str, timestamp: int, version: int = 9) -> Message:
    request = Message(
        replica_id=-1,
        isolation_level=0,
        timeout_ms=5000,
        topics=[
            Message(
                name=topic,
                partitions=[Message(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)],
            )
        ],
    )
    return wire.request(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]


@pytest.mark.promise("protocol", "Every special timestamp of ListOffsets has the meaning that Kafka gives it")
def test_the_special_timestamps_mean_what_kafka_says(
    broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    broker.produce(topic, [{"value": b"a", "timestamp": BASE}])
    broker.produce(
        topic, [{"value": b"newest", "timestamp": BASE + 9000}, {"value": b"b", "timestamp": BASE + 1}]
    )
    broker.produce(topic, [{"value": b"c", "timestamp": BASE + 2}])
    assert list_offset(wire, topic, EARLIEST).offset == 0
    assert list_offset(wire, topic, LATEST).offset == 4
    newest = list_offset(wire, topic, MAX_TIMESTAMP)
    assert newest.offset == 1
    assert newest.timestamp == BASE + 9000
    assert list_offset(wire, topic, EARLIEST_LOCAL).offset == 0
    # Nothing is in remote storage: there is no tiered offset.
    tiered = list_offset(wire, topic, LATEST_TIERED)
    assert (tiered.error_code, tiered.offset) == (0, -1)


def test_an_empty_log_has_no_newest_record(wire: WireClient, topic: str) -> None:
    newest = list_offset(wire, topic, MAX_TIMESTAMP)
    assert (newest.error_code, newest.offset, newest.timestamp) == (0, -1, -1)
    assert list_offset(wire, topic, BASE).offset == -1


@pytest.mark.promise("clients", "A consumer can start at any offset, also inside a compressed batch")
def test_seeking_back_and_forth_reads_from_there(broker: PenstockBroker, timed_topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(by_hand(broker.bootstrap))
    try:
        consumer.assign([TopicPartition(timed_topic, 0, 50)])
        first = consumer.poll(10)
        assert first is not None and first.offset() == 50
        for target in (7, 99, 0):
            consumer.seek(TopicPartition(timed_topic, 0, target))
            message = consumer.poll(10)
            assert message is not None and message.offset() == target
    finally:
        consumer.close()


def test_an_offset_past_the_end_or_before_the_start_is_out_of_range(
    broker: PenstockBroker, topic: str
) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import OffsetOutOfRangeError

    broker.produce(topic, [b"one", b"two"])

    async def read_at(offset: int) -> None:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            await asyncio.wait_for(consumer.getone(), 10)

    with pytest.raises(OffsetOutOfRangeError):
        asyncio.run(read_at(3))


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"one"), ("latest", b"three")])
def test_a_client_that_is_out_of_range_resets_as_it_was_told(
    broker: PenstockBroker, topic: str, reset: str, expected: bytes
) -> None:
    from kafka import KafkaConsumer, TopicPartition

    broker.produce(topic, [b"one", b"two"])
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset=reset, fetch_max_wait_ms=50
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        found: list[bytes] = []
        produced = False
        for _ in range(100):
            for messages in consumer.poll(100).values():
                found += [message.value for message in messages]
            if found:
                break
            if not produced and reset == "latest" and consumer.position(partition) == 2:
                broker.produce(topic, [b"three"])
                produced = True
        assert found[0] == expected
    finally:
        consumer.close()


def test_the_end_moves_with_every_client(broker: PenstockBroker, topic: str) -> None:
    for turn, client in enumerate(CLIENTS.values()):
        assert client.produce(broker.bootstrap, topic, [Rec(b"x")]) == [turn]
