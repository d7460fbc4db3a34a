"""Fetch on the wire: waiting, limits, topic ids, leader epochs, and clients of older releases."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import read_header
from penstock.wire.codec import Message, encode_request
from tests.clients.raw import batch_of, produce, produce_request, topic_id

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100


def fetch_request(topic: str, partitions: dict[int, int], **changes: int) -> Message:
    """Of these partitions from these offsets; `epoch` is the leader epoch the client believes in."""
    epoch = changes.pop("epoch", -1)
    partition_max_bytes = changes.pop("partition_max_bytes", 1 << 20)
    asked = [
        Message(
            partition=partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in partitions.items()
    ]
    settings = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
    } | changes
    return Message(
        topics=[Message(topic=topic, partitions=asked)], forgotten_topics_data=[], rack_id="", **settings
    )


def fetch(wire: WireClient, topic: str, partitions: dict[int, int], **changes: int) -> dict[int, Message]:
    answer = wire.request(ApiKey.FETCH, 12, fetch_request(topic, partitions, **changes))
    assert answer.error_code == 0
    return {found.partition_index: found for each in answer.responses for found in each.partitions}


def batches(records: bytes | None) -> list[int]:
    """The base offsets of the whole batches in an answer."""
    found, position, data = [], 0, records or b""
    while position + 61 <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found.append(header.base_offset)
        position += header.size
    return found


def leader_epoch(wire: WireClient, topic: str) -> int:
    answer = wire.request(ApiKey.METADATA, 12, Message(topics=[Message(name=topic)]))
    return int(answer.topics[0].partitions[0].leader_epoch)


def test_a_fetch_waits_until_enough_bytes_are_there(broker: PenstockBroker, topic: str) -> None:
    size = len(batch_of([b"x" * 100]))
    with WireClient(broker.port, timeout=30) as wire, WireClient(broker.port) as writer:
        request = fetch_request(topic, {0: 0}, max_wait_ms=25_000, min_bytes=2 * size)
        sent = wire.send(ApiKey.FETCH, 12, encode_request(ApiKey.FETCH, 12, request))
        produce(writer, topic, batch_of([b"x" * 100]))
        produce(writer, topic, batch_of([b"x" * 100]))
        answer = wire.receive(ApiKey.FETCH, 12, sent)
        assert batches(answer.responses[0].partitions[0].records) == [0, 1]


def test_a_fetch_of_several_partitions_counts_the_bytes_of_all(
    broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, partitions=3)
    size = len(batch_of([b"x" * 100]))
    with WireClient(broker.port, timeout=30) as wire:
        request = fetch_request(name, dict.fromkeys(range(3), 0), max_wait_ms=25_000, min_bytes=3 * size)
        sent = wire.send(ApiKey.FETCH, 12, encode_request(ApiKey.FETCH, 12, request))
        for partition in range(3):
            broker.produce(
                name, [{"value": b"x" * 100, "timestamp": 1_750_000_000_000, "partition": partition}]
            )
        answer = wire.receive(ApiKey.FETCH, 12, sent)
        found = {p.partition_index: batches(p.records) for t in answer.responses for p in t.partitions}
        assert found == {0: [0], 1: [0], 2: [0]}


def test_a_fetch_that_waits_does_not_hold_back_another_connection(broker: PenstockBroker, topic: str) -> None:
    with WireClient(broker.port) as waiting, WireClient(broker.port) as busy:
        request = fetch_request(topic, {0: 0}, max_wait_ms=60_000, min_bytes=1)
        waiting.send(ApiKey.FETCH, 12, encode_request(ApiKey.FETCH, 12, request))
        for _ in range(10):
            assert busy.request(ApiKey.API_VERSIONS, 0, Message()).error_code == 0


def test_the_limits_of_a_fetch_hold_but_the_first_batch_always_comes(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, partitions=2)
    for partition in (0, 1):
        for _ in range(5):
            broker.produce(name, [{"value": b"x" * 1000, "partition": partition}])
    found = fetch(wire, name, {0: 0, 1: 0}, max_bytes=1)
    assert [batches(found[p].records) for p in (0, 1)] == [[0], []]
    found = fetch(wire, name, {0: 0, 1: 0}, partition_max_bytes=2500)
    assert [batches(found[p].records) for p in (0, 1)] == [[0, 1], [0, 1]]
    found = fetch(wire, name, {0: 0, 1: 0}, max_bytes=6000)
    assert batches(found[0].records) == [0, 1, 2, 3, 4]
    assert len(found[0].records or b"") + len(found[1].records or b"") <= 6000


def test_a_fetch_tells_the_ends_of_the_log(broker: PenstockBroker, wire: WireClient, topic: str) -> None:
    broker.produce(topic, [b"a", b"b", b"c"])
    found = fetch(wire, topic, {0: 3}, isolation_level=1)[0]
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)
    assert not found.records
    assert not found.aborted_transactions


def test_a_partition_that_fails_does_not_fail_the_others(
    broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    broker.produce(topic, [b"a"])
    found = fetch(wire, topic, {0: 0, 9: 0})
    assert found[9].error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert batches(found[0].records) == [0]
    assert fetch(wire, topic, {0: 2})[0].error_code == OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, {0: -1})[0].error_code == OFFSET_OUT_OF_RANGE
    assert fetch(wire, "no-such-topic", {0: 0})[0].error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_said_to_be_unknown(wire: WireClient, topic: str) -> None:
    request = fetch_request(topic, {0: 0})
    request.topics[0].topic_id = uuid.uuid4()
    answer = wire.request(ApiKey.FETCH, 16, request)
    assert answer.responses[0].partitions[0].error_code == UNKNOWN_TOPIC_ID
    unknown = produce_request(wire, topic, 13, batch_of([b"x"]))
    unknown.topic_data[0].topic_id = uuid.uuid4()
    answer = wire.request(ApiKey.PRODUCE, 13, unknown)
    assert answer.responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC_ID


def test_a_wrong_leader_epoch_is_fenced_or_unknown(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    # Made twice, so that there is an epoch below the current one.
    broker.create_topic(name)
    broker.delete_topic(name)
    broker.create_topic(name)
    epoch = leader_epoch(wire, name)
    assert fetch(wire, name, {0: 0}, epoch=epoch)[0].error_code == 0
    assert fetch(wire, name, {0: 0}, epoch=epoch + 1)[0].error_code == UNKNOWN_LEADER_EPOCH
    assert fetch(wire, name, {0: 0}, epoch=epoch - 1)[0].error_code == FENCED_LEADER_EPOCH


def test_the_end_of_each_leader_epoch_is_known_over_restarts(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    ends: dict[int, int] = {}
    for written in (2, 3, 1):
        with WireClient(penstock.port) as wire:
            penstock.produce("t", [b"x"] * written)
            epoch = leader_epoch(wire, "t")
            ends[epoch] = sum([2, 3, 1][: len(ends) + 1])
        penstock.kill()
        penstock.start()
    assert len(ends) == 3

    def end_offset(wire: WireClient, epoch: int) -> tuple[int, int]:
        asked = Message(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        request = Message(replica_id=-2, topics=[Message(topic="t", partitions=[asked])])
        answer = wire.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.leader_epoch, answer.end_offset

    with WireClient(penstock.port) as wire:
        for epoch, end in ends.items():
            assert end_offset(wire, epoch) == (epoch, end)
        assert end_offset(wire, max(ends) + 100) == (-1, -1)


def test_an_error_with_acks_0_costs_the_connection_as_there_is_no_answer(broker: PenstockBroker) -> None:
    """Kafka does so: it is the only way to tell the producer that its metadata are old."""
    with WireClient(broker.port) as wire:
        data = Message(name="no-such-topic", partition_data=[Message(index=0, records=batch_of([b"x"]))])
        request = Message(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[data])
        wire.send(ApiKey.PRODUCE, 9, encode_request(ApiKey.PRODUCE, 9, request))
        with pytest.raises(ConnectionError):
            wire.receive_frame()


def test_pipelined_requests_are_all_handled_in_order(broker: PenstockBroker, topic: str) -> None:
    with WireClient(broker.port) as wire:
        sent = []
        for number in range(200):
            request = produce_request(wire, topic, 9, batch_of([b"%d" % number]))
            sent.append(wire.send(ApiKey.PRODUCE, 9, encode_request(ApiKey.PRODUCE, 9, request)))
        offsets = [
            wire.receive(ApiKey.PRODUCE, 9, each).responses[0].partition_responses[0].base_offset
            for each in sent
        ]
    assert offsets == list(range(200))
    assert [record.value for record in broker.consume(topic)] == [b"%d" % i for i in range(200)]


@pytest.mark.parametrize("release", [(0, 11), (1, 0), (1, 1), (2, 0), (2, 4), (2, 8), (3, 0), (3, 9), (4, 0)])
def test_clients_that_speak_the_versions_of_an_older_release_are_served(
    broker: PenstockBroker, topic: str, release: tuple[int, int]
) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, api_version=release, compression_type="gzip")
    try:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0).get(20)
    finally:
        producer.close(20)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, api_version=release, fetch_max_wait_ms=50)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        values: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(values) < 10 and time.monotonic() < deadline:
            values += [message.value for messages in consumer.poll(200).values() for message in messages]
        assert values == [b"%d" % number for number in range(10)]
        assert consumer.end_offsets([partition]) == {partition: 10}
    finally:
        consumer.close()


def test_the_topic_id_of_metadata_is_the_one_that_fetch_understands(
    broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    broker.produce(topic, [b"x"])
    identity = topic_id(wire, topic)
    by_id = wire.request(ApiKey.METADATA, 12, Message(topics=[Message(topic_id=identity, name=None)]))
    assert (by_id.topics[0].error_code, by_id.topics[0].name) == (0, topic)
    unknown = wire.request(ApiKey.METADATA, 12, Message(topics=[Message(topic_id=uuid.uuid4(), name=None)]))
    assert unknown.topics[0].error_code == UNKNOWN_TOPIC_ID
