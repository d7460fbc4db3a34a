"""Sequence numbers of producers: duplicates, gaps and old epochs are answered as Kafka answers them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import PenstockBroker, WireClient
from tests.clients.raw import batch_of, init_producer, produce

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47


def send(
    wire: WireClient, topic: str, producer: tuple[int, int], sequence: int, count: int = 1
) -> tuple[int, int]:
    values = [f"sequence {sequence + i}".encode() for i in range(count)]
    answer = produce(wire, topic, batch_of(values, producer=(*producer, sequence)))
    return answer.error_code, answer.base_offset


def test_a_duplicate_is_answered_with_its_first_offset_and_not_written_again(
    broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    producer = init_producer(wire)
    assert send(wire, topic, producer, 0, 3) == (0, 0)
    assert send(wire, topic, producer, 3, 2) == (0, 3)
    assert send(wire, topic, producer, 0, 3) == (0, 0)
    assert send(wire, topic, producer, 3, 2) == (0, 3)
    assert len(broker.consume(topic)) == 5


@pytest.mark.promise(
    "log", "A broker detects duplicates of the last five batches of a producer, also after a restart"
)
def test_each_of_the_last_five_batches_is_recognised(wire: WireClient, topic: str) -> None:
    producer = init_producer(wire)
    for sequence in range(7):
        assert send(wire, topic, producer, sequence) == (0, sequence)
    for sequence in (2, 3, 4, 5, 6):
        assert send(wire, topic, producer, sequence) == (0, sequence)
    error, _ = send(wire, topic, producer, 1)
    assert error == OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.promise("log", "Sequence gaps and old producer epochs get Kafka's errors")
def test_a_gap_is_out_of_order(broker: PenstockBroker, wire: WireClient, topic: str) -> None:
    producer = init_producer(wire)
    assert send(wire, topic, producer, 0) == (0, 0)
    error, _ = send(wire, topic, producer, 2)
    assert error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(wire, topic, producer, 1) == (0, 1)
    assert [record.value for record in broker.consume(topic)] == [b"sequence 0", b"sequence 1"]


@pytest.mark.promise("log", "Sequence gaps and old producer epochs get Kafka's errors")
def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero(wire: WireClient, topic: str) -> None:
    producer_id, epoch = init_producer(wire)
    assert send(wire, topic, (producer_id, epoch), 0) == (0, 0)
    error, _ = send(wire, topic, (producer_id, epoch + 1), 1)
    assert error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(wire, topic, (producer_id, epoch + 1), 0) == (0, 1)
    error, _ = send(wire, topic, (producer_id, epoch), 1)
    assert error == INVALID_PRODUCER_EPOCH


def test_sequences_wrap_around_to_zero(wire: WireClient, topic: str) -> None:
    producer = init_producer(wire)
    last = 2**31 - 1
    # A producer of which the partition knows nothing may start anywhere: its state can have expired.
    assert send(wire, topic, producer, last - 1, 2) == (0, 0)
    assert send(wire, topic, producer, 0) == (0, 2)
    assert send(wire, topic, producer, last - 1, 2) == (0, 0)


def test_a_batch_whose_sequences_wrap_within_it_is_followed_and_recognised(
    wire: WireClient, topic: str
) -> None:
    producer = init_producer(wire)
    assert send(wire, topic, producer, 2**31 - 2, 4) == (0, 0)
    assert send(wire, topic, producer, 2) == (0, 4)
    assert send(wire, topic, producer, 2**31 - 2, 4) == (0, 0)


def test_each_producer_gets_an_id_of_its_own(wire: WireClient) -> None:
    ids = {init_producer(wire)[0] for _ in range(50)}
    assert len(ids) == 50


@pytest.fixture
def own(penstock: PenstockBroker) -> Iterator[PenstockBroker]:
    penstock.create_topic("t", config={"segment.bytes": 1_048_576})
    yield penstock


@pytest.mark.promise(
    "log", "A broker detects duplicates of the last five batches of a producer, also after a restart"
)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_sequences_survive_a_restart(own: PenstockBroker, how: str) -> None:
    with WireClient(own.port) as wire:
        producer = init_producer(wire)
        fenced, fenced_epoch = init_producer(wire)
        for sequence in range(3):
            assert send(wire, "t", producer, sequence) == (0, sequence)
        assert send(wire, "t", (fenced, fenced_epoch + 1), 0) == (0, 3)
    getattr(own, how)()
    own.start()
    with WireClient(own.port) as wire:
        assert send(wire, "t", producer, 2) == (0, 2)
        assert send(wire, "t", producer, 0) == (0, 0)
        assert send(wire, "t", producer, 4)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(wire, "t", (fenced, fenced_epoch), 0)[0] == INVALID_PRODUCER_EPOCH
        assert send(wire, "t", producer, 3) == (0, 4)
        assert init_producer(wire)[0] not in (producer[0], fenced)
    assert len(own.consume("t")) == 5


@pytest.mark.promise("clients", "An idempotent producer writes each record once and in order")
def test_a_lost_answer_is_not_a_second_record(penstock: PenstockBroker) -> None:
    """The producer retries what the broker has already: this is what sequences are for."""
    from tests.clients.adapters import CLIENTS, Rec

    penstock.create_topic("t")
    for number, client in enumerate(CLIENTS.values(), 1):
        penstock.faults.drop("Produce", times=2, after=True)
        client.produce(penstock.bootstrap, "t", [Rec(client.name.encode())], idempotent=True)
        assert len(penstock.consume("t")) == number
