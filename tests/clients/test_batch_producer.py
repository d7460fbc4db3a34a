"""BatchProducer after an error: the transaction that was open is aborted, and the producer goes on."""

from __future__ import annotations

import pytest

from penstock.client import LATEST, READ_COMMITTED, ClientSettings, Cluster
from penstock.client.batch_producer import BatchProducer, NewBatch
from penstock.connect.connectors.mirror.batches import batches_to_copy
from penstock.errors import ProducerFenced
from penstock.testing import PenstockBroker
from penstock.wire.batches.records import Record, build_batch, iter_records


def batch(topic: str, value: bytes) -> NewBatch:
    return NewBatch(topic, 0, build_batch([Record(0, 1000, None, value)]))


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    with Cluster(ClientSettings.from_kafka({"bootstrap.servers": bootstrap})) as cluster:
        end = cluster.list_offsets({(topic, 0): LATEST}, READ_COMMITTED)[topic, 0] or 0
        offset, values = 0, []
        while offset < end:
            fetched = cluster.fetch(topic, 0, offset, isolation=READ_COMMITTED)
            copied, offset = batches_to_copy(fetched, offset, isolation=READ_COMMITTED)
            values += [record.value for data, _ in copied for record in iter_records(data)]
    return values


def aborts_and_goes_on(bootstrap: str, topic: str) -> None:
    """Also with Apache Kafka (tests/tools)."""
    settings = ClientSettings.from_kafka({"bootstrap.servers": bootstrap})
    with BatchProducer(settings, f"id-of-{topic}") as producer:
        producer.start()
        producer.start()  # without a transaction
        producer.write([batch(topic, b"lost")])
        producer.flush()
        producer.start()  # in the middle of one
        producer.write([batch(topic, b"first")])
        producer.commit()
        producer.start()  # after one
        producer.write([batch(topic, b"second")])
        producer.commit()
        assert committed(bootstrap, topic) == [b"first", b"second"]
        with BatchProducer(settings, f"id-of-{topic}") as newer:
            newer.start()
            with pytest.raises(ProducerFenced):
                producer.start()


def test_start_aborts_its_own_transaction_and_goes_on(broker: PenstockBroker, topic: str) -> None:
    aborts_and_goes_on(broker.bootstrap, topic)
