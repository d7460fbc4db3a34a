"""A test for each option of the source: what a script for `format("kafka")` sets, works here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.spark.source_helpers import (
    Collected,
    delete_records,
    failure,
    offsets_read,
    read,
    run_available,
    running,
    stream,
    transaction,
)

pytestmark = pytest.mark.timeout(300)

T0 = 1_700_000_000_000
ORDERS0, ORDERS1, REFUNDS = ("orders", 0), ("orders", 1), ("refunds", 0)
ALL_ORDERS = {ORDERS0: range(10), ORDERS1: range(5)}


@pytest.fixture(scope="module")
def shared() -> Iterator[PenstockBroker]:
    """Orders: ten in partition 0, a second apart; five in partition 1, from 100 s on. Refunds: three."""
    with PenstockBroker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("refunds")
        for partition, count, first in ((0, 10, T0), (1, 5, T0 + 100_000)):
            records = [
                {"key": f"k{index}", "value": f"{partition}:{index}", "timestamp": first + 1000 * index}
                for index in range(count)
            ]
            if partition == 0:
                records[0]["headers"] = [("trace", b"\x01"), ("empty", b""), ("none", None)]
            broker.produce("orders", records, partition=partition)
        broker.produce("refunds", ["a", "b", None])
        yield broker


def times(first: int, second: int) -> str:
    return json.dumps({"orders": {"0": first, "1": second}})


READS: dict[str, tuple[dict[str, object], dict[tuple[str, int], range]]] = {
    "subscribe": ({"subscribe": "orders, refunds"}, {**ALL_ORDERS, REFUNDS: range(3)}),
    "subscribePattern": ({"subscribePattern": "^ref|nothing"}, {REFUNDS: range(3)}),
    "assign": ({"assign": '{"orders":[1],"refunds":[0]}'}, {ORDERS1: range(5), REFUNDS: range(3)}),
    "startingOffsets=earliest": ({"subscribe": "orders", "startingOffsets": "earliest"}, ALL_ORDERS),
    "startingOffsets": (
        {"subscribe": "orders", "startingOffsets": '{"orders":{"0":7,"1":-2}}'},
        {ORDERS0: range(7, 10), ORDERS1: range(5)},
    ),
    "endingOffsets": (
        {"subscribe": "orders", "endingOffsets": '{"orders":{"0":4,"1":-1}}'},
        {ORDERS0: range(4), ORDERS1: range(5)},
    ),
    "endingOffsets=latest": ({"subscribe": "orders", "endingOffsets": "latest"}, ALL_ORDERS),
    "startingTimestamp": (
        {"subscribe": "orders", "startingTimestamp": T0 + 8000},
        {ORDERS0: range(8, 10), ORDERS1: range(5)},
    ),
    "endingTimestamp": (
        {"subscribe": "orders", "endingTimestamp": T0 + 101_000},
        {ORDERS0: range(10), ORDERS1: range(1)},
    ),
    "startingOffsetsByTimestamp": (
        {"subscribe": "orders", "startingOffsetsByTimestamp": times(T0 + 8500, T0 + 104_000)},
        {ORDERS0: range(9, 10), ORDERS1: range(4, 5)},
    ),
    "endingOffsetsByTimestamp": (
        {"subscribe": "orders", "endingOffsetsByTimestamp": times(T0 + 2000, T0 + 500_000)},
        {ORDERS0: range(2), ORDERS1: range(5)},
    ),
    "startingOffsetsByTimestampStrategy": (
        {
            "subscribe": "orders",
            "startingTimestamp": T0 + 100_000,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {ORDERS1: range(5)},
    ),
    "one time before times before offsets": (
        {
            "subscribe": "orders",
            "startingTimestamp": T0 + 9000,
            "startingOffsetsByTimestamp": times(T0, T0),
            "startingOffsets": "earliest",
            "endingOffsetsByTimestamp": times(T0 + 500_000, T0 + 102_000),
            "endingOffsets": '{"orders":{"0":0,"1":0}}',
        },
        {ORDERS0: range(9, 10), ORDERS1: range(2)},
    ),
    "an end that is not there, accepted": (
        {"subscribe": "orders", "endingOffsets": '{"orders":{"0":11,"1":2}}', "failOnDataLoss": "false"},
        {ORDERS0: range(10), ORDERS1: range(2)},
    ),
    "any case": ({"SUBSCRIBE": "refunds", "startingoffsets": "Earliest"}, {REFUNDS: range(3)}),
    "ignored in batches": (
        {
            "subscribe": "refunds",
            "maxOffsetsPerTrigger": 1,
            "minOffsetsPerTrigger": 1,
            "maxTriggerDelay": "1s",
        },
        {REFUNDS: range(3)},
    ),
    "for other clients": (
        {
            "subscribe": "refunds",
            "kafka.max.poll.records": 500,
            "kafka.session.timeout.ms": 10000,
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": 5000,
            "kafka.default.api.timeout.ms": 10000,
            "kafka.fetch.min.bytes": 1,
            "kafka.max.partition.fetch.bytes": 100,
            "fetchOffset.numRetries": 0,
            "fetchOffset.retryIntervalMs": 5,
            "kafkaConsumer.pollTimeoutMs": 30000,
            "partition.metadata.cache.ttl.ms": 1000,
            "groupIdPrefix": "team",
        },
        {REFUNDS: range(3)},
    ),
}


@pytest.mark.promise(
    "spark source",
    "The options `subscribe`, `assign`, `startingOffsets`, `startingOffsetsByTimestamp`, "
    "`startingTimestamp`, `startingOffsetsByTimestampStrategy`, `endingOffsets`, "
    "`endingOffsetsByTimestamp` and `endingTimestamp` work as documented",
)
@pytest.mark.promise(
    "spark source",
    "A program for Spark's Kafka source runs after only the word in `format` is changed; columns, "
    "options and their rules are the same",
)
@pytest.mark.parametrize("option", READS)
def test_a_batch_reads_what_its_options_say(spark: SparkSession, shared: PenstockBroker, option: str) -> None:
    options, expected = READS[option]
    assert offsets_read(read(spark, shared, options)) == {
        place: list(offsets) for place, offsets in expected.items()
    }


@pytest.mark.promise(
    "spark source",
    "A program for Spark's Kafka source runs after only the word in `format` is changed; columns, "
    "options and their rules are the same",
)
def test_the_columns_are_those_of_sparks_source(spark: SparkSession, shared: PenstockBroker) -> None:
    frame = read(spark, shared, {"subscribe": "orders"})
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    row = frame.where("partition = 0 and offset = 3").selectExpr("*", "unix_millis(timestamp) ms").first()
    assert row is not None
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"k3", b"0:3", "orders")
    assert (row.ms, row.timestampType) == (T0 + 3000, 0)
    nothing = read(spark, shared, {"subscribe": "refunds"}).where("offset = 2").first()
    assert nothing is not None
    assert (nothing.key, nothing.value) == (None, None)


@pytest.mark.promise("spark source", "The option `includeHeaders` works as documented")
def test_include_headers(spark: SparkSession, shared: PenstockBroker) -> None:
    frame = read(spark, shared, {"subscribe": "orders", "includeHeaders": "true"})
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    rows = {(row.partition, row.offset): row.headers for row in frame.collect()}
    assert [(header.key, header.value) for header in rows[0, 0]] == [
        ("trace", b"\x01"),
        ("empty", b""),
        ("none", None),
    ]
    assert rows[0, 1] == []
    assert "headers" not in read(spark, shared, {"subscribe": "orders"}).columns


def tasks_of(spark: SparkSession, shared: PenstockBroker, options: dict[str, object]) -> list[int]:
    """How many rows each task read."""
    frame = read(spark, shared, {"subscribe": "orders", **options})
    found = frame.selectExpr("spark_partition_id() task").groupBy("task").count().collect()
    return sorted(row["count"] for row in found)


@pytest.mark.promise("spark source", "The option `minPartitions` works as documented")
@pytest.mark.promise(
    "spark source", "The tasks of a micro-batch read every offset exactly once, however the offsets are split"
)
def test_min_partitions(spark: SparkSession, shared: PenstockBroker) -> None:
    assert tasks_of(spark, shared, {}) == [5, 10]
    assert tasks_of(spark, shared, {"minPartitions": 6}) == [2, 2, 2, 3, 3, 3]


@pytest.mark.promise("spark source", "The option `maxRecordsPerPartition` works as documented")
@pytest.mark.promise(
    "spark source", "The tasks of a micro-batch read every offset exactly once, however the offsets are split"
)
def test_max_records_per_partition(spark: SparkSession, shared: PenstockBroker) -> None:
    assert tasks_of(spark, shared, {"maxRecordsPerPartition": 4}) == [2, 3, 3, 3, 4]


@pytest.mark.promise("spark source", "The option `kafka.isolation.level` works as documented")
@pytest.mark.promise(
    "spark source",
    "Records of aborted and open transactions are not read by default; a query whose checkpoint is "
    "inside an open transaction waits until it ends",
)
def test_isolation_level(spark: SparkSession, penstock: PenstockBroker) -> None:
    penstock.create_topic("paid")
    transaction(penstock, "paid", ["yes"], commit=True)
    transaction(penstock, "paid", ["no", "no"], commit=False)
    # The end of the partition is a marker, which is no record: the read must not wait for one.
    assert offsets_read(read(spark, penstock, {"subscribe": "paid"})) == {("paid", 0): [0]}
    everything = {"subscribe": "paid", "kafka.isolation.level": "read_uncommitted"}
    assert offsets_read(read(spark, penstock, everything)) == {("paid", 0): [0, 2, 3]}
    nothing = {"subscribe": "paid", "startingOffsets": '{"paid":{"0":4}}'}
    assert offsets_read(read(spark, penstock, nothing)) == {}


@pytest.mark.promise("spark source", "The option `failOnDataLoss` works as documented")
def test_fail_on_data_loss(spark: SparkSession, penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", [str(index) for index in range(6)])
    delete_records(penstock, "t", 0, 4)
    options = {"subscribe": "t", "startingOffsets": '{"t":{"0":1}}'}
    with pytest.raises(PySparkException) as lost:
        read(spark, penstock, options).collect()
    assert failure(lost.value).startswith("t-0 has lost the offsets from 1 to 4")
    assert "set the option failOnDataLoss to false" in failure(lost.value)
    assert offsets_read(read(spark, penstock, {**options, "failOnDataLoss": "false"})) == {("t", 0): [4, 5]}


@pytest.mark.promise("spark source", "The option `maxOffsetsPerTrigger` works as documented")
@pytest.mark.promise(
    "spark source", "Limits are kept, and `availableNow` ends at the records that existed when it started"
)
def test_max_offsets_per_trigger(spark: SparkSession, shared: PenstockBroker, tmp_path: Path) -> None:
    collected = Collected()
    run_available(
        stream(spark, shared, {"subscribe": "orders", "maxOffsetsPerTrigger": 6}), collected, tmp_path
    )
    assert collected.sizes == [6, 6, 3]
    assert len(set(collected.values)) == 15


@pytest.mark.promise(
    "spark source", "The options `minOffsetsPerTrigger` and `maxTriggerDelay` work as documented"
)
@pytest.mark.promise(
    "spark source", "Limits are kept, and `availableNow` ends at the records that existed when it started"
)
def test_min_offsets_per_trigger_and_max_trigger_delay(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["0"])
    options = {
        "subscribe": "t",
        "minOffsetsPerTrigger": 3,
        "maxTriggerDelay": "1h",
        "maxOffsetsPerTrigger": 4,
    }
    collected = Collected()
    with running(stream(spark, penstock, options), collected, tmp_path / "a") as query:
        query.processAllAvailable()
        assert collected.sizes == [1], "the first batch does not wait"
        penstock.produce("t", ["1", "2"])
        asked = penstock.requests["ListOffsets"]
        penstock.wait_for_requests("ListOffsets", asked + 3, timeout=60)
        assert collected.sizes == [1], "two are too few, and an hour is not over"
        penstock.produce("t", ["3", "4", "5"])
        query.processAllAvailable()
        assert collected.sizes == [1, 4]
    # What is available now is read to its end, however little it is.
    collected = Collected()
    run_available(stream(spark, penstock, options), collected, tmp_path / "b")
    assert collected.sizes == [4, 2]
    # When the delay is over, little is enough.
    collected = Collected()
    delayed = {
        **options,
        "minOffsetsPerTrigger": 1000,
        "maxOffsetsPerTrigger": 1000,
        "maxTriggerDelay": "1ms",
    }
    with running(stream(spark, penstock, delayed), collected, tmp_path / "c") as query:
        query.processAllAvailable()
        penstock.produce("t", ["6"])
        query.processAllAvailable()
        assert collected.sizes == [6, 1]


@pytest.mark.promise("spark source", "The option `startingOffsets` works as documented")
def test_starting_offsets_latest_in_a_stream(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t", partitions=2)
    penstock.produce("t", ["old"])
    options = {"subscribe": "t", "startingOffsets": "latest"}
    collected = Collected()
    with running(stream(spark, penstock, options), collected, tmp_path / "latest") as query:
        query.processAllAvailable()
        penstock.produce("t", ["new"])
        query.processAllAvailable()
    assert collected.values == ["new"]
    collected = Collected()
    mixed = {"subscribe": "t", "startingOffsets": '{"t":{"0":1,"1":-1}}'}
    run_available(stream(spark, penstock, mixed), collected, tmp_path / "mixed")
    assert collected.values == ["new"]


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "nothing to read": ({}, "one of the options subscribe, subscribePattern and assign must say"),
    "two ways to say it": ({"subscribe": "orders", "assign": '{"orders":[0]}'}, "only one of the options"),
    "a slip of the pen": (
        {"subscribe": "orders", "startingOffset": "earliest"},
        "did you mean startingOffsets",
    ),
    "bad offset JSON": ({"subscribe": "orders", "startingOffsets": '{"orders":[1]}'}, "expected e.g."),
    "bad assign JSON": ({"assign": "orders"}, "assign: expected e.g."),
    "a missing topic": ({"subscribe": "orders,nothing"}, "topic nothing does not exist at "),
    "a missing partition": ({"assign": '{"orders":[0,7]}'}, "partitions that do not exist: orders-7"),
    "latest in a batch": (
        {"subscribe": "orders", "startingOffsets": "latest"},
        "cannot be latest in a batch",
    ),
    "some partitions only": (
        {"subscribe": "orders", "startingOffsets": '{"orders":{"0":1}}'},
        "it has orders-0, and there are orders-0, orders-1",
    ),
    "after the end": (
        {"subscribe": "orders", "startingOffsets": '{"orders":{"0":11,"1":0}}'},
        "startingOffsets is after the end of orders-0: 11 > 10",
    ),
    "an end that is not there": (
        {"subscribe": "orders", "endingOffsets": '{"orders":{"0":11,"1":-1}}'},
        "endingOffsets is past the end of orders-0: 11 > 10",
    ),
    "no record that young": (
        {"subscribe": "orders", "startingTimestamp": T0 + 100_000},
        "set startingOffsetsByTimestampStrategy to latest",
    ),
    "auto.offset.reset": (
        {"subscribe": "orders", "kafka.auto.offset.reset": "latest"},
        "kafka.auto.offset.reset is not supported: set the option startingOffsets",
    ),
    "a wrong client setting": (
        {"subscribe": "orders", "kafka.isolation.level": "serializable"},
        "isolation.level=serializable: must be read_uncommitted or read_committed",
    ),
    "a wrong address": (
        {"subscribe": "orders", "kafka.bootstrap.servers": "here:"},
        "'here:' is not host:port",
    ),
}


@pytest.mark.promise("spark source", "The option `startingOffsetsByTimestampStrategy` works as documented")
@pytest.mark.promise(
    "spark source",
    "Wrong options, missing topics and invalid offset JSON are rejected with an error that says what to do",
)
@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_refused_with_what_to_do(
    spark: SparkSession, shared: PenstockBroker, what: str
) -> None:
    options, told = WRONG[what]
    with pytest.raises(PySparkException) as refused:
        read(spark, shared, options).collect()
    assert told in failure(refused.value)


def test_a_schema_cannot_be_given(spark: SparkSession, shared: PenstockBroker) -> None:
    with pytest.raises(PySparkException) as refused:
        spark.read.format("penstock").schema("id int").options(
            **{"kafka.bootstrap.servers": shared.bootstrap, "subscribe": "orders"}
        ).load().collect()
    assert "no schema can be given" in failure(refused.value)


@pytest.mark.promise("spark source", "The option `endingOffsets` works as documented")
@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(
    spark: SparkSession, shared: PenstockBroker, tmp_path: Path, option: str
) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": T0}.get(option, times(T0, T0))
    with pytest.raises(PySparkException) as refused:
        run_available(stream(spark, shared, {"subscribe": "orders", option: value}), Collected(), tmp_path)
    assert "not valid in streaming queries" in failure(refused.value)


SCRIPT = """
frame = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .load()
)
counts = (
    frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "size(headers) AS headers")
    .groupBy("partition").count().orderBy("partition").collect()
)
"""


@pytest.mark.promise(
    "spark source",
    "A program for Spark's Kafka source runs after only the word in `format` is changed; columns, "
    "options and their rules are the same",
)
def test_a_script_for_sparks_source_runs_by_changing_one_word(
    spark: SparkSession, shared: PenstockBroker
) -> None:
    names = {"spark": spark, "servers": shared.bootstrap}
    exec(SCRIPT.replace('format("kafka")', 'format("penstock")'), names)
    assert [tuple(row) for row in names["counts"]] == [(0, 10), (1, 5)]  # type: ignore[attr-defined]
