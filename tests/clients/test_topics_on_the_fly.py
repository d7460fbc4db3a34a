"""Auto-creation, many partitions, fetch sessions, and topics that are deleted and made again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.clients.adapters import Client, Rec, by_hand

UNKNOWN_TOPIC_OR_PARTITION = 3


def metadata(wire: WireClient, topic: str, *, create: bool) -> Message:
    request = Message(topics=[Message(name=topic)], allow_auto_topic_creation=create)
    return wire.request(ApiKey.METADATA, 12, request).topics[0]


def test_producing_to_a_topic_that_is_not_there_creates_it(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    assert client.produce(broker.bootstrap, name, [Rec(b"first")]) == [0]
    assert client.consume(broker.bootstrap, name, 1) == [Rec(b"first")]


@pytest.mark.promise(
    "protocol", "A Metadata request creates a topic and returns its leader, unless auto-creation is disabled"
)
def test_an_auto_created_topic_has_a_leader_in_the_first_answer(
    wire: WireClient, topic_name: Callable[[], str]
) -> None:
    answer = metadata(wire, topic_name(), create=True)
    assert answer.error_code == 0
    assert [(p.error_code, p.leader_id >= 0, len(p.isr_nodes)) for p in answer.partitions] == [(0, True, 1)]


@pytest.mark.promise(
    "protocol", "A Metadata request creates a topic and returns its leader, unless auto-creation is disabled"
)
def test_metadata_does_not_create_when_the_client_says_so(
    wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    assert metadata(wire, name, create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(wire, name, create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.promise(
    "protocol", "A Metadata request creates a topic and returns its leader, unless auto-creation is disabled"
)
@pytest.mark.penstock(settings={"auto.create.topics.enable": False, "num.partitions": 3})
def test_the_broker_does_not_create_when_it_is_told_not_to(penstock: PenstockBroker) -> None:
    with WireClient(penstock.port) as wire:
        assert metadata(wire, "nope", create=True).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.penstock(settings={"num.partitions": 3})
def test_auto_created_topics_have_the_default_number_of_partitions(penstock: PenstockBroker) -> None:
    with WireClient(penstock.port) as wire:
        assert len(metadata(wire, "auto", create=True).partitions) == 3


@pytest.mark.promise("protocol", "A fetch session returns only partitions with new data")
def test_many_partitions_are_written_and_read_through_a_fetch_session(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name, count = topic_name(), 100
    broker.create_topic(name, partitions=count)
    first = [Rec(f"{p}".encode(), partition=p) for p in range(count)]
    client.produce(broker.bootstrap, name, first)
    read = client.consume(broker.bootstrap, name, count, start=dict.fromkeys(range(count), 0))
    assert sorted(read, key=lambda r: r.partition) == first


@pytest.mark.promise("protocol", "A fetch session returns only partitions with new data")
def test_a_session_sends_only_the_partitions_that_have_news(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, partitions=50)

    def fetch(
        session_id: int, epoch: int, positions: dict[int, int], forget: list[int] | None = None
    ) -> Message:
        request = Message(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                Message(
                    topic=name,
                    partitions=[
                        Message(
                            partition=p,
                            current_leader_epoch=-1,
                            fetch_offset=o,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=1 << 20,
                        )
                        for p, o in positions.items()
                    ],
                )
            ]
            if positions
            else [],
            forgotten_topics_data=[Message(topic=name, partitions=forget)] if forget else [],
            rack_id="",
        )
        return wire.request(ApiKey.FETCH, 12, request)

    def partitions(answer: Message) -> list[int]:
        return sorted(p.partition_index for t in answer.responses for p in t.partitions)

    full = fetch(0, 0, dict.fromkeys(range(50), 0))
    assert full.error_code == 0
    assert full.session_id != 0
    assert partitions(full) == list(range(50))

    assert partitions(fetch(full.session_id, 1, {})) == []
    broker.produce(name, [{"value": b"x", "partition": 7}, {"value": b"y", "partition": 31}])
    assert partitions(fetch(full.session_id, 2, {})) == [7, 31]
    assert partitions(fetch(full.session_id, 3, {7: 1, 31: 1})) == []
    broker.produce(name, [{"value": b"x", "partition": 7}, {"value": b"y", "partition": 8}])
    assert partitions(fetch(full.session_id, 4, {}, forget=[7])) == [8]

    wrong_epoch = fetch(full.session_id, 9, {})
    assert wrong_epoch.error_code == 71  # INVALID_FETCH_SESSION_EPOCH
    unknown = fetch(full.session_id ^ 0x5555, 1, {})
    assert unknown.error_code == 70  # FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.promise(
    "protocol", "A topic that is deleted and created again has a new id and a higher leader epoch"
)
def test_a_topic_made_again_under_its_old_name_serves_a_client_that_knew_the_old_one(
    broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    """Clients remember a leader epoch by topic name, and refuse metadata with an older one."""
    name = topic_name()
    broker.create_topic(name)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "message.timeout.ms": 20_000,
            "topic.metadata.refresh.interval.ms": 500,
            "topic.metadata.propagation.max.ms": 500,
        }
    )
    consumer = Consumer(
        by_hand(broker.bootstrap, auto_offset_reset="earliest", topic_metadata_refresh_interval_ms=500)
    )
    try:
        for generation in range(3):
            if generation:
                broker.delete_topic(name)
                broker.create_topic(name)
            value = f"generation {generation}".encode()
            deliver(producer, name, value)
            consumer.assign([TopicPartition(name, 0, 0)])
            deadline = time.monotonic() + 20
            found = None
            while time.monotonic() < deadline and found != value:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found = message.value()
            assert found == value
    finally:
        consumer.close()


def deliver(producer: Producer, topic: str, value: bytes) -> None:
    """Produces until it is accepted: a client may give up on a topic in the moment of its deletion."""
    outcome: list[object] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
        producer.flush(20)
        if outcome and outcome[-1] is None:
            return
    raise AssertionError(f"not delivered: {outcome}")


@pytest.mark.promise(
    "protocol", "A topic that is deleted and created again has a new id and a higher leader epoch"
)
def test_a_topic_made_again_has_a_new_id_and_a_leader_epoch_above_the_old_one(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name)
    broker.produce(name, [b"old"])
    before = metadata(wire, name, create=False)
    broker.delete_topic(name)
    assert metadata(wire, name, create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic(name)
    after = metadata(wire, name, create=False)
    assert after.topic_id != before.topic_id
    assert after.partitions[0].leader_epoch > before.partitions[0].leader_epoch
    assert broker.consume(name) == []


def test_an_idempotent_producer_of_a_deleted_topic_goes_on_in_the_new_one(
    broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "topic.metadata.refresh.interval.ms": 500,
            "topic.metadata.propagation.max.ms": 500,
        }
    )
    deliver(producer, name, b"old")
    broker.delete_topic(name)
    broker.create_topic(name)
    deliver(producer, name, b"new")
    assert [record.value for record in broker.consume(name)] == [b"new"]


@pytest.mark.promise("topics", "A deleted topic's files are removed after `file.delete.delay.ms`")
def test_a_deleted_topic_is_gone_from_the_disk_after_its_delay(penstock: PenstockBroker) -> None:
    import os

    penstock.create_topic("doomed", config={"file.delete.delay.ms": 1000})
    penstock.produce("doomed", [b"x"])
    assert "doomed-0" in os.listdir(penstock.data_dir)
    penstock.delete_topic("doomed")
    assert "doomed-0" not in os.listdir(penstock.data_dir)
    penstock.clock.advance(seconds=61)
    assert not [entry for entry in os.listdir(penstock.data_dir) if entry.startswith("doomed")]
