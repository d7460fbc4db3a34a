"""`read_range` against a real broker: every record of a range once, whatever the log and the broker do."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClientSettings,
    Cluster,
)
from penstock.errors import CorruptMessage
from penstock.spark.errors import DataGone, LogCut, NotCommitted
from penstock.spark.source.reading import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, read_range
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.clients.frame_proxy import Proxy, Request
from tests.clients.txn_wire import WireProducer

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def connect(bootstrap: str, **settings: str) -> Cluster:
    return Cluster(ClientSettings.from_kafka({"bootstrap.servers": bootstrap, **settings}))


@pytest.fixture
def cluster(broker: PenstockBroker) -> Iterator[Cluster]:
    with connect(broker.bootstrap) as made:
        yield made


def table(batches: Iterator[pa.RecordBatch], schema: pa.Schema = ARROW_SCHEMA) -> pa.Table:
    found = list(batches)
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == schema
    return pa.Table.from_batches(found, schema)


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return table(batches)["offset"].to_pylist()


def test_the_columns_are_those_of_sparks_kafka_source(
    cluster: Cluster, broker: PenstockBroker, topic: str
) -> None:
    broker.produce(topic, [{"key": "k", "value": "v", "timestamp": 1234}, {"value": None, "timestamp": 1235}])
    found = table(read_range(cluster, topic, 0, 0, 2))
    assert found.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    common = {"topic": topic, "partition": 0, "timestampType": 0}
    assert found.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "offset": 0,
            "timestamp": EPOCH + timedelta(milliseconds=1234),
            **common,
        },
        {
            "key": None,
            "value": None,
            "offset": 1,
            "timestamp": EPOCH + timedelta(milliseconds=1235),
            **common,
        },
    ]


def test_headers_are_a_list_even_where_there_are_none(
    cluster: Cluster, broker: PenstockBroker, topic: str
) -> None:
    pairs = (("a", b"1"), ("b", None), ("a", b""))
    broker.produce(topic, [{"value": "x", "headers": pairs}, {"value": "y"}])
    found = table(read_range(cluster, topic, 0, 0, 2, headers=True), ARROW_SCHEMA_WITH_HEADERS)
    assert found["headers"].to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
        [],
    ]
    assert found["headers"].null_count == 0


def test_append_times_have_their_type(
    cluster: Cluster, broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    broker.produce(name, [{"value": "v", "timestamp": 5}])
    (row,) = table(read_range(cluster, name, 0, 0, 1)).to_pylist()
    assert row["timestampType"] == 1
    assert row["timestamp"].year > 2000


def test_times_beyond_what_spark_can_hold_are_its_limit(
    cluster: Cluster, broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, config={"message.timestamp.after.max.ms": 2**63 - 1})
    broker.produce(name, [{"value": "v", "timestamp": 2**62}])
    (microseconds,) = table(read_range(cluster, name, 0, 0, 1))["timestamp"].cast(pa.int64()).to_pylist()
    assert microseconds == (2**63 - 1) // 1000 * 1000


@pytest.mark.promise("client library", "Any range of a log is read exactly, with every codec")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_any_part_of_the_log_comes_exactly(
    cluster: Cluster, broker: PenstockBroker, topic: str, codec: str
) -> None:
    for first in range(0, 40, 8):
        broker.produce(topic, [f"{i}" * (i % 7) for i in range(first, first + 8)], compression=codec)
    for start, end in [(0, 40), (0, 1), (3, 5), (7, 9), (5, 33), (39, 40), (8, 16), (12, 12)]:
        found = table(read_range(cluster, topic, 0, start, end))
        assert found["offset"].to_pylist() == list(range(start, end))
        assert found["value"].to_pylist() == [(f"{i}" * (i % 7)).encode() for i in range(start, end)]


def test_batches_have_at_most_the_rows_that_were_asked_for(
    cluster: Cluster, broker: PenstockBroker, topic: str
) -> None:
    broker.produce(topic, ["v"] * 25)
    found = list(read_range(cluster, topic, 0, 0, 25, batch_rows=10))
    assert [batch.num_rows for batch in found] == [10, 10, 5]
    assert offsets(iter(found)) == list(range(25))


@pytest.mark.promise("client library", "Any range of a log is read exactly, with every codec")
def test_a_batch_larger_than_the_fetch_size_comes_through(broker: PenstockBroker, topic: str) -> None:
    for i in range(3):
        broker.produce(topic, [bytes([i]) * 50_000] * 10)
    with connect(broker.bootstrap, **{"max.partition.fetch.bytes": "1000"}) as cluster:
        found = table(read_range(cluster, topic, 0, 0, 30))
    assert found["value"].to_pylist() == [bytes([i // 10]) * 50_000 for i in range(30)]


def test_a_fetch_that_is_cut_short_is_asked_for_with_more_room(broker: PenstockBroker, topic: str) -> None:
    class Cutting(Proxy):
        """As brokers before KIP-74: never more than was asked for."""

        CHANGED = (*Proxy.CHANGED, ApiKey.FETCH)
        asked: list[int] = []

        def on_answer(self, request: Request, answer: Message) -> None:
            if request.api is not ApiKey.FETCH:
                super().on_answer(request, answer)
                return
            size = request.message().topics[0].partitions[0].partition_max_bytes
            self.asked.append(size)
            for one in answer.responses[0].partitions:
                one.records = one.records[:size]

    broker.produce(topic, ["x" * 10_000])
    with Cutting() as proxy:
        proxy.serve(broker.port)
        with connect(proxy.address, **{"max.partition.fetch.bytes": "2000"}) as cluster:
            assert offsets(read_range(cluster, topic, 0, 0, 1)) == [0]
    assert proxy.asked == [2000, 4000, 8000, 16000]


@pytest.mark.promise(
    "client library",
    "A `read_committed` reader sees no aborted records and no markers, wherever a range begins and ends",
)
def test_transactions(cluster: Cluster, wire: WireClient, broker: PenstockBroker, topic: str) -> None:
    """Committed, aborted and open transactions, and records outside of any."""
    producers = [WireProducer(wire, f"{topic}-{i}") for i in range(3)]
    for producer in producers:
        assert producer.init() == 0
        assert producer.add(topic, 0) == [0]
    committed, aborted, opened = producers
    assert committed.produce(topic, b"committed") == 0  # 0
    assert aborted.produce(topic, b"aborted") == 0  # 1
    broker.produce(topic, ["plain"])  # 2
    assert aborted.end(commit=False) == 0  # 3
    assert committed.end(commit=True) == 0  # 4
    assert aborted.add(topic, 0) == [0]
    assert aborted.produce(topic, b"committed later") == 0  # 5
    assert aborted.end(commit=True) == 0  # 6
    assert opened.produce(topic, b"open") == 0  # 7

    def values(end: int, isolation: int) -> list[bytes]:
        return table(read_range(cluster, topic, 0, 0, end, isolation=isolation))["value"].to_pylist()

    everything = [b"committed", b"aborted", b"plain", b"committed later"]
    assert values(8, READ_UNCOMMITTED) == [*everything, b"open"]
    stable = cluster.list_offsets({(topic, 0): LATEST}, READ_COMMITTED)[topic, 0]
    assert stable == 7
    assert values(7, READ_COMMITTED) == [b"committed", b"plain", b"committed later"]
    for start, end in itertools.combinations(range(8), 2):  # from and to the middle of transactions
        found = offsets(read_range(cluster, topic, 0, start, end, isolation=READ_COMMITTED))
        assert found == [offset for offset in (0, 2, 5) if start <= offset < end]
    assert opened.end(commit=False) == 0
    assert values(9, READ_COMMITTED) == [b"committed", b"plain", b"committed later"]


@pytest.mark.promise(
    "client library",
    "A `read_committed` reader sees no aborted records and no markers, wherever a range begins and ends",
)
def test_a_range_may_be_nothing_but_holes(cluster: Cluster, wire: WireClient, topic: str) -> None:
    producer = WireProducer(wire, f"{topic}-transaction")
    assert producer.init() == 0
    for _ in range(3):
        assert producer.add(topic, 0) == [0]
        assert producer.produce(topic, b"aborted") == 0
        assert producer.end(commit=False) == 0
    assert list(read_range(cluster, topic, 0, 0, 6, isolation=READ_COMMITTED)) == []
    assert list(read_range(cluster, topic, 0, 1, 2, isolation=READ_UNCOMMITTED)) == []


@pytest.mark.promise("client library", "Any range of a log is read exactly, with every codec")
def test_what_compaction_has_taken_is_not_missed(penstock: PenstockBroker) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": 1000,
        "min.cleanable.dirty.ratio": 0.01,
        "delete.retention.ms": 0,
    }
    penstock.create_topic("t", config=settings)
    for i in range(10):
        penstock.produce("t", [(f"k{i % 2}", f"{i}-{j}") for j in range(5)])
    penstock.clock.advance(5)
    penstock.produce("t", [("end", "end")])
    with connect(penstock.bootstrap) as cluster:
        kept: list[int] = []
        deadline = time.monotonic() + 60
        while len(kept) != 3 and time.monotonic() < deadline:
            penstock.clock.advance(20)
            kept = offsets(read_range(cluster, "t", 0, 0, 51))
        assert kept == [44, 49, 50]
        for start, end in [(0, 44), (0, 45), (45, 49), (44, 51), (10, 50)]:
            found = offsets(read_range(cluster, "t", 0, start, end))
            assert found == [offset for offset in kept if start <= offset < end]


@pytest.mark.promise(
    "client library", "Deleted, truncated, corrupt and uncommitted records cause an error with the reason"
)
def test_what_is_deleted_is_told_with_where_the_log_starts_now(
    cluster: Cluster, broker: PenstockBroker, wire: WireClient, topic: str
) -> None:
    broker.produce(topic, ["v"] * 10)
    request = Message(
        topics=[Message(name=topic, partitions=[Message(partition_index=0, offset=6)])], timeout_ms=10_000
    )
    assert wire.request(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0].error_code == 0
    with pytest.raises(DataGone, match=f"offset 2 of {topic}-0") as gone:
        list(read_range(cluster, topic, 0, 2, 10))
    assert (gone.value.start, gone.value.log_start_offset) == (2, 6)
    assert offsets(read_range(cluster, topic, 0, gone.value.log_start_offset, 10)) == [6, 7, 8, 9]


@pytest.mark.promise(
    "client library", "Deleted, truncated, corrupt and uncommitted records cause an error with the reason"
)
def test_a_log_that_ends_before_the_range_begins_is_told(
    cluster: Cluster, broker: PenstockBroker, topic: str
) -> None:
    broker.produce(topic, ["v"] * 3)
    with pytest.raises(LogCut, match=f"{topic}-0 was to be read from offset 5 to 9, but it ends at 3"):
        list(read_range(cluster, topic, 0, 5, 9))


@pytest.mark.promise(
    "client library", "Deleted, truncated, corrupt and uncommitted records cause an error with the reason"
)
def test_an_end_that_does_not_come_is_told(broker: PenstockBroker, wire: WireClient, topic: str) -> None:
    broker.produce(topic, ["v"])
    producer = WireProducer(wire, f"{topic}-transaction")
    assert producer.init() == 0
    assert producer.add(topic, 0) == [0]
    assert producer.produce(topic, b"open") == 0
    settings = {"default.api.timeout.ms": "300", "fetch.max.wait.ms": "50"}
    with connect(broker.bootstrap, **settings) as cluster:
        with pytest.raises(NotCommitted, match="a transaction is open from offset 1 on"):
            list(read_range(cluster, topic, 0, 0, 2, isolation=READ_COMMITTED))
        with pytest.raises(LogCut, match="its high watermark is 2"):
            list(read_range(cluster, topic, 0, 0, 3, isolation=READ_UNCOMMITTED))
    assert producer.end(commit=True) == 0


def test_an_end_that_is_late_is_waited_for(cluster: Cluster, broker: PenstockBroker, topic: str) -> None:
    broker.produce(topic, ["early"])
    reader = read_range(cluster, topic, 0, 0, 2)
    assert next(reader)["value"].to_pylist() == [b"early"]
    broker.produce(topic, ["late"])
    assert table(reader)["value"].to_pylist() == [b"late"]


@pytest.mark.promise(
    "client library", "Deleted, truncated, corrupt and uncommitted records cause an error with the reason"
)
def test_a_batch_that_was_damaged_on_disk_is_named(tmp_path: Path) -> None:
    with PenstockBroker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.produce("t", ["good"] * 3)
        broker.produce("t", ["damaged soon"] * 3)
        broker.stop()
        log = tmp_path / "data" / "t-0" / f"{0:020}.log"
        data = log.read_bytes()
        log.write_bytes(data.replace(b"damaged", b"Damaged"))
        broker.start()
        with connect(broker.bootstrap) as cluster:
            with pytest.raises(CorruptMessage, match="t-0: the CRC of the batch at offset 3 is wrong"):
                list(read_range(cluster, "t", 0, 0, 6))


@pytest.mark.promise("client library", "kill -9 of the broker while a range is read loses no record")
@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_in_the_middle_costs_no_record(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    for first in range(0, 2000, 100):
        penstock.produce("t", [f"{i}".zfill(1000) for i in range(first, first + 100)])
    with connect(penstock.bootstrap, **{"max.partition.fetch.bytes": "150000"}) as cluster:
        reader = read_range(cluster, "t", 0, 0, 2000)
        found = [next(reader)]
        for _ in range(2):
            penstock.kill()
            back = threading.Thread(target=penstock.restart)
            back.start()
            found += itertools.islice(reader, 3)
            back.join(60)
        found += reader
    rows = table(iter(found))
    assert rows["offset"].to_pylist() == list(range(2000))
    assert rows["value"].to_pylist() == [f"{i}".zfill(1000).encode() for i in range(2000)]


@pytest.mark.promise("client library", "kill -9 of the broker while a range is read loses no record")
def test_faults_in_the_middle_cost_no_record(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    for first in range(0, 200, 10):
        penstock.produce("t", [f"{i}" for i in range(first, first + 10)])
    penstock.faults.drop("Fetch", skip=2)
    penstock.faults.drop("Fetch", skip=4, after=True)
    penstock.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2, skip=6)
    settings = {"max.partition.fetch.bytes": "1", "retry.backoff.ms": "10"}
    with connect(penstock.bootstrap, **settings) as cluster:
        assert offsets(read_range(cluster, "t", 0, 0, 200)) == list(range(200))
    assert penstock.faults.hits["Fetch"] == 4


def test_a_reader_that_stops_early_leaves_the_cluster_usable(
    cluster: Cluster, broker: PenstockBroker, topic: str
) -> None:
    for i in range(5):
        broker.produce(topic, [f"{i}" * 1000])
    with connect(broker.bootstrap, **{"max.partition.fetch.bytes": "1"}) as cluster:
        reader = read_range(cluster, topic, 0, 0, 5)
        assert next(reader)["offset"].to_pylist() == [0]
        reader.close()  # type: ignore[attr-defined]
        assert offsets(read_range(cluster, topic, 0, 0, 5)) == [0, 1, 2, 3, 4]


def test_several_ranges_are_read_side_by_side(
    cluster: Cluster, broker: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    broker.create_topic(name, 2)
    for i in range(10):
        for partition in range(2):
            broker.produce(name, [f"{partition}-{i}"], partition=partition)
    with connect(broker.bootstrap, **{"max.partition.fetch.bytes": "1"}) as cluster:
        readers = [read_range(cluster, name, partition, 0, 10) for partition in range(2)]
        for i, pair in enumerate(zip(*readers, strict=True)):
            assert [batch["value"].to_pylist() for batch in pair] == [[b"0-%d" % i], [b"1-%d" % i]]
