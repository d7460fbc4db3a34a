"""Transactions with real clients: exactly once, fencing, timeouts, and a broker that dies in the middle."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator

import aiokafka
import aiokafka.errors
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.testing import PenstockBroker

pytestmark = pytest.mark.penstock(settings={"group.initial.rebalance.delay.ms": 0})

TIMEOUT = 30
QUIET = {"log_level": 0}  # librdkafka tells of every lost connection


def producer_of(broker: PenstockBroker, transactional_id: str, **settings: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
            **QUIET,
            **settings,
        }
    )
    producer.init_transactions(TIMEOUT)
    return producer


def consumer_of(broker: PenstockBroker, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
            **QUIET,
            **settings,
        }
    )


def read_all(broker: PenstockBroker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything that a reader sees up to the end, on all partitions."""
    consumer = consumer_of(broker, "reader", **{"isolation.level": isolation, "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, TIMEOUT).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        values, ended = [], set()
        while len(ended) < len(partitions):
            message = consumer.poll(TIMEOUT)
            assert message is not None, "the end did not come"
            if message.error() is None:
                values.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(message.error())
        return values
    finally:
        consumer.close()


@pytest.fixture
def consumers() -> Iterator[list[Consumer]]:
    """Those in the list are closed when the test ends."""
    opened: list[Consumer] = []
    yield opened
    for consumer in opened:
        consumer.close()


# librdkafka


@pytest.mark.promise(
    "transactions",
    "A `read_committed` consumer sees all records of a committed transaction and none of an aborted one",
)
def test_committed_and_aborted_transactions(broker: PenstockBroker, topic: str) -> None:
    producer = producer_of(broker, topic)
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(TIMEOUT)  # or librdkafka drops what it aborts before it is sent
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT)
    assert read_all(broker, topic) == [b"a", b"c"]
    assert read_all(broker, topic, "read_uncommitted") == [b"a", b"b", b"c"]


@pytest.mark.promise(
    "transactions",
    "A `read_committed` consumer sees all records of a committed transaction and none of an aborted one",
)
def test_large_transactions_over_many_partitions(
    broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    broker.create_topic(topic, partitions=6)
    producer = producer_of(broker, topic)
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for index in range(600):
            producer.produce(topic, f"{number}-{index}".encode(), partition=index % 6)
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT)
    assert sorted(read_all(broker, topic)) == sorted(
        f"{number}-{index}".encode() for number in (0, 2) for index in range(600)
    )


@pytest.mark.promise("transactions", "The last stable offset does not pass the start of an open transaction")
def test_a_reader_waits_at_an_open_transaction(
    broker: PenstockBroker, topic: str, consumers: list[Consumer]
) -> None:
    producer = producer_of(broker, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(TIMEOUT)
    broker.produce(topic, [b"behind it"])  # outside of any transaction
    consumer = consumer_of(broker, topic)
    consumers.append(consumer)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (0, 0)
    assert read_all(broker, topic) == []
    producer.commit_transaction(TIMEOUT)
    got = [consumer.poll(TIMEOUT).value() for _ in range(2)]
    assert got == [b"open", b"behind it"]


def transform(
    broker: PenstockBroker, source: str, target: str, name: str, count: int, *, fail_every: int = 0
) -> None:
    """Consume, transform, produce: results and offsets in one transaction."""
    consumer = consumer_of(broker, f"{source}-group")
    producer = producer_of(broker, name)
    consumer.subscribe([source])
    done, attempts = 0, itertools.count(1)
    try:
        while done < count:
            messages = consumer.consume(5, timeout=1)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                assert message.error() is None
                producer.produce(target, message.value().upper())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT
            )
            if fail_every and next(attempts) % fail_every == 0:
                producer.flush(TIMEOUT)
                producer.abort_transaction(TIMEOUT)
                for position in consumer.committed(consumer.assignment(), TIMEOUT):
                    position.offset = max(position.offset, 0)
                    consumer.seek(position)
            else:
                producer.commit_transaction(TIMEOUT)
                done += len(messages)
    finally:
        consumer.close()


@pytest.mark.promise(
    "transactions", "Consume-transform-produce is exactly once, also when the broker is killed"
)
def test_consume_transform_produce_is_exactly_once(
    broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    source, target = topic_name(), topic_name()
    broker.create_topic(source)
    broker.create_topic(target)
    broker.produce(source, [f"v{index}".encode() for index in range(40)])
    transform(broker, source, target, f"{source}-app", 40, fail_every=3)
    assert read_all(broker, target) == [f"V{index}".encode() for index in range(40)]
    assert len(read_all(broker, target, "read_uncommitted")) > 40


@pytest.mark.promise("transactions", "A newer producer fences the older one")
def test_a_second_producer_with_the_same_id_fences_the_first(broker: PenstockBroker, topic: str) -> None:
    first = producer_of(broker, topic)
    first.begin_transaction()
    first.produce(topic, b"from the first")
    first.flush(TIMEOUT)
    second = producer_of(broker, topic)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT)
    assert fenced.value.args[0].fatal()
    assert fenced.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, b"from the second")
    second.commit_transaction(TIMEOUT)
    assert read_all(broker, topic) == [b"from the second"]


@pytest.mark.promise(
    "transactions",
    "A transaction that its producer does not end is aborted after its timeout (KIP-588), also if the "
    "coordinator was down in between",
)
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    penstock: PenstockBroker,
) -> None:
    penstock.create_topic("t")
    slow = producer_of(penstock, "slow", **{"transaction.timeout.ms": 60_000})
    slow.begin_transaction()
    slow.produce("t", b"too late")
    slow.flush(TIMEOUT)
    penstock.clock.advance(seconds=61)
    with pytest.raises(KafkaException) as refused:
        slow.commit_transaction(TIMEOUT)
    assert refused.value.args[0].fatal()
    assert read_all(penstock, "t") == []
    again = producer_of(penstock, "slow")
    again.begin_transaction()
    again.produce("t", b"in time")
    again.commit_transaction(TIMEOUT)
    assert read_all(penstock, "t") == [b"in time"]


@pytest.mark.promise("transactions", "A commit whose response was lost can be retried, with the same result")
def test_a_commit_whose_answer_is_lost_is_retried_to_the_same_end(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    producer = producer_of(penstock, "x")
    for number in range(3):
        penstock.faults.drop("EndTxn", times=1, after=True)
        producer.begin_transaction()
        producer.produce("t", str(number).encode())
        producer.commit_transaction(TIMEOUT)
    assert read_all(penstock, "t") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"])
def test_a_coordinator_that_is_not_ready_is_asked_again(penstock: PenstockBroker, api: str) -> None:
    error = "NOT_ENOUGH_REPLICAS" if api == "Produce" else "COORDINATOR_LOAD_IN_PROGRESS"
    penstock.create_topic("t")
    penstock.faults.fail(api, error, times=2)
    producer = producer_of(penstock, "x")
    producer.begin_transaction()
    producer.produce("t", b"x")
    producer.commit_transaction(TIMEOUT)
    assert penstock.faults.hits == {api: 2}
    assert read_all(penstock, "t") == [b"x"]


@pytest.mark.promise(
    "transactions",
    "kill -9 of the broker leaves no transaction partly committed; an open transaction can continue after it",
)
def test_a_transaction_goes_on_over_a_killed_broker(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    producer = producer_of(penstock, "x")
    producer.begin_transaction()
    producer.produce("t", b"before")
    producer.flush(TIMEOUT)
    penstock.kill()
    penstock.restart()
    producer.produce("t", b"after")
    producer.commit_transaction(TIMEOUT)
    assert read_all(penstock, "t") == [b"before", b"after"]


@pytest.mark.promise(
    "transactions",
    "kill -9 of the broker leaves no transaction partly committed; an open transaction can continue after it",
)
def test_a_broker_killed_in_the_middle_tears_no_transaction(penstock: PenstockBroker) -> None:
    """Each transaction writes its number to all partitions: a reader sees it on all of them, or on none."""
    penstock.create_topic("t", partitions=3)
    settled: list[int] = []
    for crash in range(3):
        producer = producer_of(penstock, "x", **{"transaction.timeout.ms": 20_000})
        for step in range(4):
            number = crash * 10 + step
            producer.begin_transaction()
            for partition in range(3):
                producer.produce("t", json.dumps([number, partition]).encode(), partition=partition)
            if step == 3:
                producer.flush(TIMEOUT)
                break  # left open
            producer.commit_transaction(TIMEOUT)
            settled.append(number)
        penstock.kill()
        penstock.restart()
        del producer
    penstock.clock.advance(seconds=21)
    seen: dict[int, set[int]] = {}
    for value in read_all(penstock, "t"):
        number, partition = json.loads(value)
        assert partition not in seen.setdefault(number, set()), "twice"
        seen[number].add(partition)
    assert seen == {number: {0, 1, 2} for number in settled}


@pytest.mark.promise(
    "transactions", "Consume-transform-produce is exactly once, also when the broker is killed"
)
def test_exactly_once_over_a_killed_broker(penstock: PenstockBroker) -> None:
    penstock.create_topic("source")
    penstock.create_topic("target")
    penstock.produce("source", [f"v{index}".encode() for index in range(20)])
    transform(penstock, "source", "target", "app", 10, fail_every=2)
    penstock.kill()
    penstock.restart()
    transform(penstock, "source", "target", "app", 10, fail_every=2)
    assert read_all(penstock, "target") == [f"V{index}".encode() for index in range(20)]


# aiokafka


@pytest.mark.promise(
    "transactions",
    "A `read_committed` consumer sees all records of a committed transaction and none of an aborted one",
)
def test_aiokafka_commits_and_aborts(broker: PenstockBroker, topic: str) -> None:
    async def scenario() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=f"aio-{topic}"
        ) as producer:
            for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, value)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        async with aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT)).value for _ in range(2)]

    assert asyncio.run(scenario()) == [b"a", b"c"]


@pytest.mark.promise(
    "transactions",
    "Offsets sent in a transaction take effect when it commits (KIP-447), and are rejected from a member "
    "that the group does not know",
)
def test_aiokafka_sends_offsets_in_the_transaction(broker: PenstockBroker, topic: str) -> None:
    partition, group = aiokafka.TopicPartition(topic, 0), f"aio-{topic}"

    async def scenario() -> list[int | None]:
        seen = []
        async with (
            aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=group) as producer,
            aiokafka.AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
            ) as consumer,
        ):
            consumer.assign([partition])
            for offset, commit in ((3, False), (5, True)):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"x")
                await producer.send_offsets_to_transaction({partition: offset}, group)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
                seen.append(await consumer.committed(partition))
        return seen

    assert asyncio.run(scenario()) == [None, 5]


@pytest.mark.promise("transactions", "A newer producer fences the older one")
def test_aiokafka_is_fenced_by_a_second_producer(broker: PenstockBroker, topic: str) -> None:
    async def scenario() -> None:
        def make() -> aiokafka.AIOKafkaProducer:
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap, transactional_id=f"aio-{topic}"
            )

        async with make() as first:
            await first.begin_transaction()
            await first.send_and_wait(topic, b"lost")
            async with make() as second:
                with pytest.raises(aiokafka.errors.ProducerFenced):
                    await first.commit_transaction()
                async with second.transaction():
                    await second.send_and_wait(topic, b"kept")

    asyncio.run(scenario())
    assert read_all(broker, topic) == [b"kept"]


# kafka-python


@pytest.mark.promise(
    "transactions",
    "A `read_committed` consumer sees all records of a committed transaction and none of an aborted one",
)
def test_kafka_python_commits_and_aborts(broker: PenstockBroker, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"kp-{topic}")
    try:
        producer.init_transactions()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.send(topic, value)
            (producer.commit_transaction if commit else producer.abort_transaction)()
    finally:
        producer.close(timeout=TIMEOUT)
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=TIMEOUT * 1000,
    )
    try:
        assert [next(consumer).value for _ in range(2)] == [b"a", b"c"]
    finally:
        consumer.close()


@pytest.mark.promise(
    "transactions",
    "Offsets sent in a transaction take effect when it commits (KIP-447), and are rejected from a member "
    "that the group does not know",
)
def test_kafka_python_sends_offsets_in_the_transaction(broker: PenstockBroker, topic: str) -> None:
    group, partition = f"kp-{topic}", kafka.TopicPartition(topic, 0)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=group)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
    )
    try:
        producer.init_transactions()
        seen = []
        for offset, commit in ((3, False), (5, True)):
            producer.begin_transaction()
            producer.send(topic, b"x")
            offsets = {partition: kafka.OffsetAndMetadata(offset, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
            (producer.commit_transaction if commit else producer.abort_transaction)()
            seen.append(consumer.committed(partition))
        assert seen == [None, 5]
    finally:
        consumer.close()
        producer.close(timeout=TIMEOUT)
