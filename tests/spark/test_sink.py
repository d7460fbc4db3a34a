"""The sink of format("penstock") under Spark: columns, options, delivery, and what it refuses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from penstock.testing import PenstockBroker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    from penstock.spark.source.data_source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)


def write(df: DataFrame, penstock: PenstockBroker, **options: str) -> None:
    writer = df.write.format("penstock").option("kafka.bootstrap.servers", penstock.bootstrap)
    writer.options(**options).mode("append").save()


def stream(df: DataFrame, penstock: PenstockBroker, checkpoint: Path, **options: str) -> StreamingQuery:
    mode = options.pop("outputMode", "append")
    writer = df.writeStream.format("penstock").option("kafka.bootstrap.servers", penstock.bootstrap)
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode(mode).options(**options)
    return writer.trigger(availableNow=True).start()


def committed(penstock: PenstockBroker, topic: str) -> list[Any]:
    return penstock.consume(topic, isolation="read_committed")


def failure_of(call: Any) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value)


def write_lines(directory: Path, name: str, lines: list[str]) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f".{name}").write_text("\n".join(lines) + "\n")
    (directory / f".{name}").rename(directory / name)


# ---- columns ----


@pytest.mark.promise(
    "spark sinks",
    "Columns become the parts of a record; keys go to the partitions that Java's clients choose; the "
    "rows of a task keep their order",
)
def test_all_columns_reach_their_records(spark: SparkSession, penstock: PenstockBroker) -> None:
    penstock.create_topic("a", partitions=3)
    penstock.create_topic("b", partitions=3)
    df = spark.createDataFrame(
        [
            (b"k1", b"v1", "a", 2, [("h", b"1"), ("h", None)]),
            (None, b"v2", "b", 0, None),
            (b"", None, "a", 1, []),
            (b"k4", b"", "a", 2, [("é", b"")]),
        ],
        "key binary, value binary, topic string, partition int,"
        " headers array<struct<key: string, value: binary>>",
    ).coalesce(1)
    write(df, penstock)
    found = {(r.topic, r.partition, r.key, r.value, r.headers) for t in "ab" for r in penstock.consume(t)}
    assert found == {
        ("a", 2, b"k1", b"v1", (("h", b"1"), ("h", None))),
        ("b", 0, None, b"v2", ()),
        ("a", 1, b"", None, ()),
        ("a", 2, b"k4", b"", (("é", b""),)),
    }
    assert [r.value for r in penstock.consume("a", partition=2)] == [b"v1", b""]


def test_text_columns_are_written_as_utf8_and_other_columns_are_left_out(
    spark: SparkSession, penstock: PenstockBroker
) -> None:
    penstock.create_topic("out")
    write(
        spark.createDataFrame([("ключ", "wärts", 7)], "KEY string, Value string, other int"),
        penstock,
        topic="out",
    )
    (record,) = penstock.consume("out")
    assert (record.key, record.value) == ("ключ".encode(), "wärts".encode())


def test_the_topic_option_comes_before_the_topic_column(
    spark: SparkSession, penstock: PenstockBroker
) -> None:
    penstock.create_topic("option")
    write(spark.createDataFrame([("v", "column")], "value string, topic string"), penstock, topic="option")
    assert [r.value for r in penstock.consume("option")] == [b"v"]


@pytest.mark.promise("spark sinks", "The option `timestampColumn` works as documented")
def test_records_have_the_time_that_a_column_says(spark: SparkSession, penstock: PenstockBroker) -> None:
    penstock.create_topic("timed")
    rows = spark.sql(
        "SELECT value, timestamp_micros(micros) AS at FROM VALUES"
        " ('a', 1735689600000999), ('b', NULL), ('c', 5000) AS t (value, micros)"
    )
    before = int(time.time() * 1000)
    write(rows.coalesce(1), penstock, topic="timed", timestampColumn="at")
    with_headers = rows.where("value = 'a'").selectExpr(
        "value", "at", "array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers"
    )
    write(with_headers, penstock, topic="timed", timestampColumn="at")
    times = [(record.value, record.timestamp) for record in penstock.consume("timed")]
    assert (times[0], times[2], times[3]) == ((b"a", 1735689600000), (b"c", 5), (b"a", 1735689600000))
    assert times[1][1] >= before
    wrong = failure_of(lambda: write(rows, penstock, topic="timed", timestampColumn="then"))
    assert "timestampColumn=then: no such column" in wrong


@pytest.mark.promise(
    "spark sinks",
    "Columns become the parts of a record; keys go to the partitions that Java's clients choose; the "
    "rows of a task keep their order",
)
def test_keys_go_to_the_partitions_that_javas_producer_would_choose(
    spark: SparkSession, penstock: PenstockBroker
) -> None:
    from kafka.partitioner.default import murmur2

    penstock.create_topic("out", partitions=7)
    df = spark.range(500).selectExpr("concat('key-', id) as key", "cast(id as string) as value")
    for delivery in ("at_least_once", "exactly_once"):
        write(df, penstock, topic="out", delivery=delivery)
    records = committed(penstock, "out")
    assert len(records) == 1000
    assert all(r.partition == (murmur2(r.key) & 0x7FFFFFFF) % 7 for r in records)


@pytest.mark.promise(
    "spark sinks",
    "Columns become the parts of a record; keys go to the partitions that Java's clients choose; the "
    "rows of a task keep their order",
)
def test_rows_of_a_task_keep_their_order_in_each_partition(
    spark: SparkSession, penstock: PenstockBroker
) -> None:
    penstock.create_topic("out", partitions=3)
    df = (
        spark.range(30_000)
        .coalesce(1)
        .selectExpr("cast(id % 50 as string) as key", "cast(id as string) as value")
    )
    write(df, penstock, topic="out", delivery="exactly_once")
    by_key: dict[bytes, list[int]] = {}
    for record in committed(penstock, "out"):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert {key: len(values) for key, values in by_key.items()} == {str(k).encode(): 600 for k in range(50)}
    assert all(values == sorted(values) for values in by_key.values())


def test_more_than_the_producer_may_hold_goes_through(spark: SparkSession, penstock: PenstockBroker) -> None:
    penstock.create_topic("out")
    df = spark.range(40).coalesce(1).selectExpr("repeat(cast(id % 10 as string), 500000) as value")
    write(df, penstock, topic="out", **{"kafka.buffer.memory": "1500000"})
    assert [r.value[:1] for r in penstock.consume("out")] == [str(i % 10).encode() for i in range(40)]


# ---- what is refused ----


@pytest.mark.promise(
    "spark sinks",
    "Rows that cannot be written and a cluster that cannot be reached cause an error with the reason",
)
@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        ("key string", {"topic": "t"}, "Required attribute 'value' not found"),
        ("value string", {}, "topic option required when no 'topic' attribute is present"),
        ("value string", {"topic": " "}, "option topic is empty"),
        ("value int", {"topic": "t"}, "value attribute type must be binary or string, and is int"),
        ("value string, key double", {"topic": "t"}, "key attribute type must be binary or string"),
        ("value string, topic int", {}, "topic attribute type must be string"),
        ("value string, partition string", {"topic": "t"}, "partition attribute type must be int"),
        ("value string, headers map<string, binary>", {"topic": "t"}, "type must be array<struct<"),
        ("value string", {"topic": "t", "delivery": "twice"}, "delivery=twice: must be exactly_once or"),
        ("value string", {"topic": "t", "kafka.value.serializer": "x"}, "value.serializer is not supported"),
        ("value string", {"topic": "t", "kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ("value string", {"topic": "t", "delivery": "exactly_once", "kafka.acks": "1"}, "kafka.acks=all"),
        ("value string", {"topic": "t", "txnAppId": "x"}, "txnAppId and txnVersion are for batch writes"),
        ("value string", {"topic": "t", "delivry": "exactly_once"}, "delivry: did you mean delivery"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_before_a_job_starts(
    schema: str, options: dict[str, str], says: str
) -> None:
    from pyspark.sql.types import StructType

    from penstock.spark.errors import BadOption
    from penstock.spark.sink import writers as sink

    with pytest.raises(BadOption, match=says):
        sink.batch_writer(StructType.fromDDL(schema), {"kafka.bootstrap.servers": "x:1", **options}, False)


def test_spark_shows_what_the_sink_refuses(spark: SparkSession, penstock: PenstockBroker) -> None:
    df = spark.range(1).selectExpr("cast(id as string) as value")
    refused = failure_of(lambda: write(df, penstock))
    assert "topic option required" in refused
    assert refused.count("  File ") == 1, "the stack of our own code tells the user nothing"
    assert "kafka.bootstrap.servers" in failure_of(
        lambda: df.write.format("penstock").option("topic", "t").mode("append").save()
    )
    overwrite = df.write.format("penstock").option("kafka.bootstrap.servers", "x:1").option("topic", "t")
    assert "Save mode Overwrite not allowed" in failure_of(lambda: overwrite.mode("overwrite").save())
    unknown = {"kafka.no.such.setting": "1"}
    assert 'No such configuration property: "no.such.setting"' in failure_of(
        lambda: write(df, penstock, topic="t", **unknown)
    )


@pytest.mark.promise(
    "spark sinks",
    "Rows that cannot be written and a cluster that cannot be reached cause an error with the reason",
)
def test_rows_without_a_topic_or_with_an_impossible_partition_fail_the_write(
    spark: SparkSession, penstock: PenstockBroker
) -> None:
    penstock.create_topic("out", partitions=2)
    null = spark.createDataFrame([("v", None)], "value string, topic string")
    assert "null topic present in the data" in failure_of(lambda: write(null, penstock))
    negative = spark.createDataFrame([("v", -1)], "value string, partition int")
    refused = failure_of(lambda: write(negative, penstock, topic="out"))
    assert "partition -1 in the data" in refused
    assert refused.count("  File ") == 1
    nameless = spark.range(1).selectExpr(
        "'v' as value", "array(struct(cast(null as string) as key, cast('x' as binary) as value)) as headers"
    )
    assert "a header without a key" in failure_of(lambda: write(nameless, penstock, topic="out"))
    beyond = spark.createDataFrame([("v", 2)], "value string, partition int")
    for delivery in ("at_least_once", "exactly_once"):
        assert "partition 2 of topic out does not exist" in failure_of(
            lambda delivery=delivery: write(beyond, penstock, topic="out", delivery=delivery)
        )
    assert committed(penstock, "out") == []


@pytest.mark.penstock(settings={"auto.create.topics.enable": False})
def test_a_missing_topic_is_named(spark: SparkSession, penstock: PenstockBroker) -> None:
    df = spark.range(1).selectExpr("cast(id as string) as value")
    for delivery in ("at_least_once", "exactly_once"):
        options = {"delivery": delivery, "kafka.topic.metadata.propagation.max.ms": "200"}
        says = failure_of(lambda options=options: write(df, penstock, topic="nowhere", **options))
        assert "topic nowhere does not exist" in says


@pytest.mark.promise(
    "spark sinks",
    "Rows that cannot be written and a cluster that cannot be reached cause an error with the reason",
)
def test_an_unreachable_cluster_is_an_error_within_its_timeout(spark: SparkSession) -> None:
    df = spark.range(1).selectExpr("cast(id as string) as value")
    for delivery in ("at_least_once", "exactly_once"):
        writer = (
            df.write.format("penstock").option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "t")
        )
        writer = writer.option("delivery", delivery).option("kafka.max.block.ms", "1000").mode("append")
        says = failure_of(writer.save)
        assert "no answer in time from the brokers at 127.0.0.1:1" in says
        assert "Connection refused" in says


# ---- streams ----


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that runs again writes nothing, and operators before the sink keep their state",
)
def test_a_stream_is_copied_exactly_once_over_restarts(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("out", partitions=2)
    (tmp_path / "in").mkdir()
    lines = spark.readStream.text(str(tmp_path / "in"))
    for round_ in range(3):
        write_lines(tmp_path / "in", f"{round_}.txt", [f"{round_}-{i}" for i in range(100)])
        stream(lines, penstock, tmp_path / "checkpoint", topic="out").awaitTermination()
    values = [r.value.decode() for r in committed(penstock, "out")]
    assert sorted(values) == sorted(f"{r}-{i}" for r in range(3) for i in range(100))


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that runs again writes nothing, and operators before the sink keep their state",
)
def test_a_batch_that_is_run_again_writes_nothing(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("out", partitions=2)
    for name in ("a", "b", "c"):
        write_lines(tmp_path / "in", name, [f"{name}{i}" for i in range(50)])
    lines = spark.readStream.text(str(tmp_path / "in"))
    stream(lines, penstock, tmp_path / "checkpoint", topic="out").awaitTermination()
    # As after a crash between the last task's commit and Spark's own note that the batch is done.
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    stream(lines, penstock, tmp_path / "checkpoint", topic="out").awaitTermination()
    assert len(committed(penstock, "out")) == 150
    # At least once means what it says.
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    stream(lines, penstock, tmp_path / "checkpoint", topic="out", delivery="at_least_once").awaitTermination()
    assert len(committed(penstock, "out")) == 300


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that runs again writes nothing, and operators before the sink keep their state",
)
def test_a_stateful_query_keeps_its_state_when_a_batch_is_run_again(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("out")
    write_lines(tmp_path / "in", "1", ["a", "b", "a"])
    words = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count()
    counts = words.selectExpr("value as key", "to_json(struct(count)) as value")

    def run() -> None:
        query = stream(counts, penstock, tmp_path / "checkpoint", topic="out", outputMode="complete")
        query.awaitTermination()

    run()
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    write_lines(tmp_path / "in", "2", ["a"])
    run()
    seen = [(r.key.decode(), json.loads(r.value)["count"]) for r in committed(penstock, "out")]
    assert sorted(seen) == [("a", 2), ("a", 3), ("b", 1), ("b", 1)]


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part is completed; if it is split into other tasks it fails, and "
    "nothing is lost or duplicated",
)
def test_a_batch_cut_into_other_tasks_fails_and_doubles_nothing(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("out")
    write_lines(tmp_path / "in", "1", [f"{i:02}" for i in range(40)])
    lines = spark.readStream.text(str(tmp_path / "in"))

    def run(tasks: int) -> None:
        cut = lines.repartition(tasks, "value").selectExpr("value", "0 AS partition")
        stream(cut, penstock, tmp_path / "checkpoint", topic="out").awaitTermination()

    bootstrap = penstock.bootstrap

    def stop_half_way(batches: Any) -> Any:
        """Task 1 asks for a partition that is not there, once another task has committed."""
        import pyarrow as pa
        from pyspark import TaskContext

        from penstock.client import LATEST, READ_COMMITTED, ClientSettings, Cluster

        stops = TaskContext.get().partitionId() == 1
        with Cluster(ClientSettings.from_kafka({"bootstrap.servers": bootstrap})) as cluster:
            while stops and not cluster.list_offsets({("out", 0): LATEST}, READ_COMMITTED)["out", 0]:
                time.sleep(0.05)
        for batch in batches:
            partition = pa.array([99 if stops else 0] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([batch.column(0), partition], ["value", "partition"])

    half = lines.repartition(4, "value").mapInArrow(stop_half_way, "value string, partition int")
    query = stream(half, penstock, tmp_path / "checkpoint", topic="out")
    assert "partition 99 of topic out does not exist" in failure_of(query.awaitTermination)
    for tasks in (2, 6):
        says = failure_of(lambda tasks=tasks: run(tasks))
        assert "was written in part before the query was restarted" in says
        # Of the first run a task may still commit while Spark ends it: more rows, but none twice.
        values = [record.value for record in committed(penstock, "out")]
        assert 0 < len(values) == len(set(values)) < 40
    run(4)
    assert sorted(r.value.decode() for r in committed(penstock, "out")) == [f"{i:02}" for i in range(40)]


# ---- batch writes, exactly once ----


@pytest.mark.promise("spark sinks", "`foreachBatch` can write to several topics, once to each")
def test_what_foreach_batch_writes_to_two_topics_counts_once_in_each(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    for topic in ("even", "odd"):
        penstock.create_topic(topic)
    write_lines(tmp_path / "in", "1", [str(i) for i in range(100)])
    lines = spark.readStream.text(str(tmp_path / "in"))

    def both(df: DataFrame, batch: int) -> None:
        for topic, rest in (("even", 0), ("odd", 1)):
            rows = df.where(f"value % 2 = {rest}")
            write(rows, penstock, topic=topic, delivery="exactly_once", txnAppId=topic, txnVersion=str(batch))

    for _ in range(2):
        query = lines.writeStream.foreachBatch(both).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query.trigger(availableNow=True).start().awaitTermination()
        for file in (tmp_path / "checkpoint" / "commits").iterdir():
            file.unlink()
    assert len(committed(penstock, "even")) == len(committed(penstock, "odd")) == 50
