"""Large messages pass up to the topic's limit, and past it get MESSAGE_TOO_LARGE, with each client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing import PenstockBroker
from tests.clients.adapters import Client, ProduceFailed, Rec

MESSAGE_TOO_LARGE = 10
MIB = 1 << 20


def room_for(client: Client, size: int) -> dict[str, object]:
    if client.name == "confluent":
        return {"message.max.bytes": size}
    if client.name == "kafka-python":
        return {"max_request_size": size}
    return {"max_request_size": size, "max_batch_size": size}


@pytest.mark.promise("topics", "`max.message.bytes` limits the size of a batch")
def test_a_message_of_many_megabytes_passes_where_the_topic_allows_it(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"max.message.bytes": 20 * MIB})
    value = bytes(range(256)) * (8 * MIB // 256)
    client.produce(broker.bootstrap, name, [Rec(value)], options=room_for(client, 16 * MIB))
    (record,) = client.consume(broker.bootstrap, name, 1)
    assert record.value == value


@pytest.mark.promise("topics", "`max.message.bytes` limits the size of a batch")
def test_a_message_past_the_default_limit_is_refused_as_too_large(
    broker: PenstockBroker, topic: str, client: Client
) -> None:
    with pytest.raises(ProduceFailed) as failed:
        client.produce(broker.bootstrap, topic, [Rec(b"x" * 2 * MIB)], options=room_for(client, 16 * MIB))
    assert failed.value.code == MESSAGE_TOO_LARGE
    assert broker.consume(topic) == []


def test_the_limit_counts_the_batch_as_it_is_sent(broker: PenstockBroker, topic: str, client: Client) -> None:
    value = b"very compressible " * (4 * MIB // 18)
    client.produce(broker.bootstrap, topic, [Rec(value)], codec="zstd", options=room_for(client, 16 * MIB))
    (record,) = broker.consume(topic)
    assert record.value == value


@pytest.mark.promise("protocol", "A batch larger than the fetch limit is still delivered")
def test_a_batch_that_is_larger_than_the_fetch_limit_is_still_delivered(
    broker: PenstockBroker, topic: str
) -> None:
    from kafka import KafkaConsumer, TopicPartition

    big = b"b" * 900_000
    broker.produce(topic, [big])
    broker.produce(topic, [b"small"])
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, max_partition_fetch_bytes=1000, fetch_max_bytes=1000
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        values = [next(consumer).value, next(consumer).value]
    finally:
        consumer.close()
    assert values == [big, b"small"]
