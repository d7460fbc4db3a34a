"""What goes in comes out, with each client: codecs, acks, keys, headers, nulls, timestamps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import compression
from tests.clients.adapters import CLIENTS, CODECS, Client, Rec
from tests.clients.every_request import advertised
from tests.clients.raw import stored_batches

NOW = 1_750_000_000_000


def sample(count: int = 50) -> list[Rec]:
    return [Rec(f"value {i} ".encode() * 20, f"key {i % 7}".encode()) for i in range(count)]


@pytest.mark.promise(
    "clients", "Records that one client compressed with any codec can be read by every other client"
)
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_of_a_producer_is_read_by_every_client(
    broker: PenstockBroker, topic: str, client: Client, codec: str
) -> None:
    records = sample()
    offsets = client.produce(broker.bootstrap, topic, records, codec=codec)
    assert offsets == list(range(50))
    for reader in CLIENTS.values():
        assert reader.consume(broker.bootstrap, topic, 50) == records


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_of_the_producer_is_what_is_stored(
    broker: PenstockBroker, wire: WireClient, topic: str, client: Client, codec: str
) -> None:
    """librdkafka silently sends plain batches to a broker that it takes for too old to know better."""
    if client.name == "confluent" and codec == "lz4" and ApiKey.FIND_COORDINATOR not in advertised(wire):
        pytest.skip("librdkafka uses lz4 only with brokers that serve FindCoordinator")
    client.produce(broker.bootstrap, topic, sample(), codec=codec)
    assert {header.codec for header in stored_batches(wire, topic)} == {compression.NAMES.index(codec)}


@pytest.mark.promise("clients", "Records arrive with acks 0, 1 and all")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_acks(
    broker: PenstockBroker, topic: str, client: Client, acks: str
) -> None:
    records = sample(10)
    offsets = client.produce(broker.bootstrap, topic, records, acks=acks)
    if acks != "0":
        assert offsets == list(range(10))
    assert client.consume(broker.bootstrap, topic, 10) == records


@pytest.mark.promise("clients", "An idempotent producer writes each record once and in order")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    broker: PenstockBroker, topic: str, client: Client, codec: str
) -> None:
    records = sample(300)
    options = {"batch.num.messages": 7} if client.name == "confluent" else {}
    offsets = client.produce(broker.bootstrap, topic, records, idempotent=True, codec=codec, options=options)
    assert offsets == list(range(300))
    assert broker.consume(topic) and [r.value for r in broker.consume(topic)] == [r.value for r in records]


@pytest.mark.promise("clients", "Keys, values, headers, nulls and timestamps are stored unchanged")
def test_keys_values_and_headers_are_kept_as_they_are(
    broker: PenstockBroker, topic: str, client: Client
) -> None:
    records = [
        Rec(b"", b""),
        Rec(None, b"a tombstone"),
        Rec(b"\x00\xff binary \x80", None),
        Rec("Grüße".encode(), "ключ".encode(), headers=(("h", b"1"), ("h", b"2"), ("empty", b""))),
        Rec(b"many headers", headers=tuple((f"name-{i}", bytes([i])) for i in range(100))),
    ]
    client.produce(broker.bootstrap, topic, records)
    for reader in CLIENTS.values():
        assert reader.consume(broker.bootstrap, topic, len(records)) == records


@pytest.mark.promise("clients", "Keys, values, headers, nulls and timestamps are stored unchanged")
def test_a_header_without_a_value_stays_null(broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, [{"value": b"x", "headers": [("null", None), ("empty", b"")]}])
    expected = (("null", None), ("empty", b""))
    for name in ("confluent", "aiokafka"):
        (record,) = CLIENTS[name].consume(broker.bootstrap, topic, 1)
        assert record.headers == expected


@pytest.mark.promise("clients", "Keys, values, headers, nulls and timestamps are stored unchanged")
def test_timestamps_of_the_producer_are_kept(broker: PenstockBroker, topic: str, client: Client) -> None:
    records = [Rec(b"x", timestamp=NOW + i * 1000) for i in range(5)]
    client.produce(broker.bootstrap, topic, records)
    read = client.consume(broker.bootstrap, topic, 5)
    assert [record.timestamp for record in read] == [NOW + i * 1000 for i in range(5)]


def test_records_go_to_the_partitions_that_were_named(
    broker: PenstockBroker, topic_name: Callable[[], str], client: Client
) -> None:
    name = topic_name()
    broker.create_topic(name, partitions=5)
    records = [Rec(f"{i}".encode(), partition=i % 5) for i in range(50)]
    client.produce(broker.bootstrap, name, records)
    read = client.consume(broker.bootstrap, name, 50, start=dict.fromkeys(range(5), 0))
    for partition in range(5):
        assert [r for r in read if r.partition == partition] == [
            r for r in records if r.partition == partition
        ]


@pytest.mark.promise(
    "clients", "Consumers with both isolation levels read records written without transactions"
)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_both_isolation_levels_read_what_was_written_without_transactions(
    broker: PenstockBroker, topic: str, client: Client, isolation: str
) -> None:
    records = sample(20)
    client.produce(broker.bootstrap, topic, records)
    assert client.consume(broker.bootstrap, topic, 20, isolation=isolation) == records


@pytest.mark.promise("clients", "A consumer can start at any offset, also inside a compressed batch")
def test_a_consumer_starts_in_the_middle_of_a_compressed_batch(
    broker: PenstockBroker, topic: str, client: Client
) -> None:
    records = sample(100)
    broker.produce(topic, [{"key": r.key, "value": r.value} for r in records], compression="lz4")
    read = client.consume(broker.bootstrap, topic, 40, start={0: 60})
    assert read == records[60:]
    assert [record.offset for record in read] == list(range(60, 100))
