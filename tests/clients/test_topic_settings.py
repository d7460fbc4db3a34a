"""Topic settings that change or refuse records: compression, timestamps, keys, and old record formats."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import compression
from penstock.wire.codec import Message
from tests.clients.adapters import CLIENTS, CODECS, Client, ProduceFailed, Rec
from tests.clients.raw import batch_of, old_message, produce, produce_request, stored_batches

CORRUPT_MESSAGE = 2
INVALID_TIMESTAMP = 32
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
INVALID_RECORD = 87


@pytest.mark.promise("topics", "`compression.type` applies regardless of the codec that producers use")
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_compression_of_its_own_stores_that_whatever_producers_send(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str], wanted: str
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"compression.type": wanted})
    records = [Rec(f"record {i} ".encode() * 10, b"k") for i in range(20)]
    sent: list[Rec] = []
    for codec in CODECS:
        offsets = CLIENTS["confluent"].produce(broker.bootstrap, name, records, codec=codec)
        assert offsets == list(range(len(sent), len(sent) + 20))
        sent += records
    codecs = {header.codec for header in stored_batches(wire, name)}
    assert codecs == {compression.NONE if wanted == "uncompressed" else compression.NAMES.index(wanted)}
    for client in CLIENTS.values():
        assert client.consume(broker.bootstrap, name, len(sent)) == sent


@pytest.mark.promise("topics", "`compression.type` applies regardless of the codec that producers use")
def test_duplicates_are_recognised_in_a_topic_that_compresses_anew(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"compression.type": "zstd"})
    records = [Rec(f"{i}".encode()) for i in range(100)]
    options = {"batch.num.messages": 9}
    CLIENTS["confluent"].produce(broker.bootstrap, name, records, idempotent=True, options=options)
    assert [r.value for r in broker.consume(name)] == [r.value for r in records]


@pytest.mark.promise("topics", "`message.timestamp.type` and the limits for timestamps are enforced")
def test_log_append_time_takes_the_place_of_the_producers_time(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    records = [Rec(b"x", timestamp=1000), Rec(b"y", timestamp=2000)]
    client.produce(broker.bootstrap, name, records, codec="lz4")
    after = time.time_ns() // 1_000_000
    for reader in CLIENTS.values():
        read = reader.consume(broker.bootstrap, name, 2)
        assert all(before <= (record.timestamp or 0) <= after for record in read)


def test_log_append_time_is_in_the_answer_to_the_producer(
    broker: PenstockBroker, wire: WireClient, topic: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    answer = produce(wire, name, batch_of([b"x"]))
    assert answer.log_append_time_ms == broker.consume(name)[0].timestamp
    assert produce(wire, topic, batch_of([b"x"])).log_append_time_ms == -1


@pytest.mark.promise("topics", "`message.timestamp.type` and the limits for timestamps are enforced")
def test_timestamps_out_of_bounds_are_refused(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    limits = {"message.timestamp.before.max.ms": 60_000, "message.timestamp.after.max.ms": 60_000}
    broker.create_topic(name, config=limits)
    now = time.time_ns() // 1_000_000
    for bad in (now - 3_600_000, now + 3_600_000):
        with pytest.raises(ProduceFailed) as failed:
            client.produce(broker.bootstrap, name, [Rec(b"x", timestamp=bad)])
        assert failed.value.code == INVALID_TIMESTAMP
    client.produce(broker.bootstrap, name, [Rec(b"ok", timestamp=now)])
    assert [record.value for record in broker.consume(name)] == [b"ok"]


def test_timestamps_far_in_the_future_are_refused_by_default(wire: WireClient, topic: str) -> None:
    tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    assert produce(wire, topic, batch_of([b"x"], timestamp=tomorrow)).error_code == INVALID_TIMESTAMP


@pytest.mark.promise("topics", "`message.timestamp.type` and the limits for timestamps are enforced")
def test_a_bad_timestamp_inside_a_compressed_batch_is_found(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"message.timestamp.before.max.ms": 60_000})
    now = time.time_ns() // 1_000_000
    records = batch_of([b"x"], timestamp=now - 3_600_000, codec=compression.GZIP)
    answer = produce(wire, name, records)
    assert answer.error_code == INVALID_TIMESTAMP
    assert broker.consume(name) == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_refuses_records_without_a_key(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str], codec: str
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"cleanup.policy": "compact"})
    number = compression.NAMES.index(codec)
    answer = produce(wire, name, batch_of([b"a", b"b"], codec=number))
    assert answer.error_code == INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert produce(wire, name, batch_of([b"a"], key=b"k", codec=number)).error_code == 0
    assert len(broker.consume(name)) == 1


def test_each_client_learns_that_a_compacted_topic_needs_keys(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"cleanup.policy": "compact"})
    with pytest.raises(ProduceFailed) as failed:
        client.produce(broker.bootstrap, name, [Rec(b"no key")])
    # aiokafka does not know this error, and gives up on it as on any that it does not know.
    assert failed.value.code == (-1 if client.name == "aiokafka" else INVALID_RECORD)


@pytest.mark.promise(
    "protocol", "Record batches in message formats 0 and 1 are rejected with UNSUPPORTED_FOR_MESSAGE_FORMAT"
)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 9])
def test_old_record_formats_get_the_error_that_says_so(
    broker: PenstockBroker, wire: WireClient, topic: str, magic: int, version: int
) -> None:
    answer = produce(wire, topic, old_message(magic, b"from the past"), version)
    assert answer.error_code == UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert broker.consume(topic) == []
    assert produce(wire, topic, batch_of([b"new"]), version).base_offset == 0


@pytest.mark.promise(
    "hostile input", "A flipped bit is detected; wrong counts are rejected, also inside compressed batches"
)
def test_a_damaged_batch_is_corrupt_and_not_written(
    broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    damaged = bytearray(batch_of([b"some value"]))
    damaged[-3] ^= 0x40
    assert produce(wire, topic, bytes(damaged)).error_code == CORRUPT_MESSAGE
    assert broker.consume(topic) == []


@pytest.mark.promise("protocol", "An error for one item of a request does not affect the others")
def test_several_partitions_in_one_request_fail_one_by_one(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, partitions=3)
    request = produce_request(wire, name, 9, batch_of([b"fine"]))
    request.topic_data[0].partition_data += [
        Message(index=1, records=old_message(1, b"old")),
        Message(index=2, records=batch_of([b"fine too"])),
        Message(index=3, records=batch_of([b"nowhere"])),
    ]
    answer = wire.request(ApiKey.PRODUCE, 9, request)
    codes = {p.index: p.error_code for p in answer.responses[0].partition_responses}
    assert codes == {0: 0, 1: UNSUPPORTED_FOR_MESSAGE_FORMAT, 2: 0, 3: 3}
    assert sorted(r.value for r in broker.consume(name) if r.value) == [b"fine", b"fine too"]


@pytest.mark.promise(
    "topics", "Too few replicas for `min.insync.replicas` cause only acks=all writes to be rejected"
)
def test_min_insync_replicas_that_cannot_be_met_refuse_acks_all_only(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"min.insync.replicas": 2})
    assert client.produce(broker.bootstrap, name, [Rec(b"acks 1")], acks="1") == [0]
    with WireClient(broker.port) as wire:
        assert produce(wire, name, batch_of([b"acks all"])).error_code == 19  # NOT_ENOUGH_REPLICAS
    assert len(broker.consume(name)) == 1


@pytest.mark.promise(
    "hostile input",
    "Only coordinators can write to their topics, and one unreadable record does not make other state "
    "unavailable",
)
def test_clients_cannot_write_to_the_topics_of_the_coordinators(broker: PenstockBroker, topic: str) -> None:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "makes-the-topic"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    refused: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        refused.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("__consumer_offsets", b"forged", key=b"\x00", partition=0, on_delivery=delivered)
    producer.flush(30)
    assert [error.code() for error in refused if error is not None] == [KafkaError.TOPIC_EXCEPTION]
