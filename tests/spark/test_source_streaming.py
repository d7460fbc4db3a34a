"""The source as a stream: what comes while it runs, what its checkpoint holds, and its consumer group."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.spark.source_helpers import (
    Collected,
    add_partitions,
    run_available,
    running,
    stream,
    transaction,
)

pytestmark = pytest.mark.timeout(300)


@pytest.mark.promise(
    "spark source",
    "New partitions and new topics that match a pattern are read while a query runs; a restarted query "
    "continues from its checkpoint",
)
def test_records_new_partitions_and_a_restart(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t", partitions=1)
    penstock.produce("t", ["a", "b"])
    frame = stream(spark, penstock, {"subscribe": "t"})
    collected = Collected()
    with running(frame, collected, tmp_path) as query:
        query.processAllAvailable()
        assert collected.values == ["a", "b"]
        penstock.produce("t", ["c"])
        query.processAllAvailable()
        assert collected.values == ["a", "b", "c"]
        add_partitions(penstock, "t", 3)
        penstock.produce("t", ["d"], partition=2)
        query.processAllAvailable()
        assert collected.values == ["a", "b", "c", "d"]
        (source,) = json.loads(query.lastProgress.json)["sources"]
        assert source["endOffset"] == source["latestOffset"] == {"t": {"0": 3, "1": 0, "2": 1}}
    # Spark's own form of offsets is what the checkpoint holds.
    newest = max((tmp_path / "offsets").iterdir(), key=lambda path: (path.name.isdigit(), path.name))
    assert json.loads(newest.read_text().splitlines()[-1]) == {"t": {"0": 3, "1": 0, "2": 1}}

    penstock.produce("t", ["e"], partition=1)
    run_available(frame, collected, tmp_path)
    assert collected.values == ["a", "b", "c", "d", "e"]
    assert [bytes(row.value) for row in collected.batches[max(collected.batches)]] == [b"e"]


@pytest.mark.promise("spark source", "The option `subscribePattern` works as documented")
@pytest.mark.promise(
    "spark source",
    "New partitions and new topics that match a pattern are read while a query runs; a restarted query "
    "continues from its checkpoint",
)
def test_new_topics_of_a_pattern(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    collected = Collected()
    with running(stream(spark, penstock, {"subscribePattern": "sensor-.*"}), collected, tmp_path) as query:
        query.processAllAvailable()
        assert collected.rows == []
        for name, value in (("sensor-1", "x"), ("other", "no"), ("sensor-2", "y")):
            penstock.create_topic(name)
            penstock.produce(name, [value])
            query.processAllAvailable()
        assert collected.values == ["x", "y"]


@pytest.mark.promise(
    "spark source", "Limits are kept, and `availableNow` ends at the records that existed when it started"
)
def test_available_now_ends_at_what_was_there(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t", partitions=2)
    for partition in (0, 1):
        penstock.produce("t", [f"{partition}-{index}" for index in range(5)], partition=partition)

    class Feeding(Collected):
        def __call__(self, frame: Any, batch_id: int) -> None:
            super().__call__(frame, batch_id)
            penstock.produce("t", ["too late"])

    frame = stream(spark, penstock, {"subscribe": "t", "maxOffsetsPerTrigger": 4})
    collected = Feeding()
    run_available(frame, collected, tmp_path)
    assert collected.sizes == [4, 4, 2]
    assert "too late" not in collected.values

    again = Collected()
    run_available(frame, again, tmp_path)
    assert again.values == ["too late"] * 3


@pytest.mark.promise("spark source", "The option `kafka.isolation.level` works as documented")
@pytest.mark.promise(
    "spark source",
    "Gaps in the offsets (compaction, aborted records, markers at the end of a partition) do not stop a "
    "query",
)
def test_transactions_and_their_markers(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t")
    transaction(penstock, "t", ["one"], commit=True)
    collected = Collected()
    options = {"subscribe": "t", "maxOffsetsPerTrigger": 1}
    with running(stream(spark, penstock, options), collected, tmp_path) as query:
        query.processAllAvailable()
        transaction(penstock, "t", ["never", "never"], commit=False)
        transaction(penstock, "t", ["two"], commit=True)
        query.processAllAvailable()
        # The last batches held nothing but markers and aborted records: they come to their end all the same.
        assert collected.values == ["one", "two"]
        (source,) = json.loads(query.lastProgress.json)["sources"]
        assert source["endOffset"] == {"t": {"0": 7}}


@pytest.mark.promise(
    "spark source",
    "Gaps in the offsets (compaction, aborted records, markers at the end of a partition) do not stop a "
    "query",
)
def test_offsets_with_holes(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    penstock.create_topic(
        "table", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.ms": 1000}
    )
    for round_ in range(5):
        penstock.produce("table", [("a", f"a{round_}"), ("b", f"b{round_}")])
        penstock.clock.advance(seconds=2)
    penstock.produce("table", [("c", "c")])
    penstock.clock.advance(seconds=120)
    left = [record.offset for record in penstock.consume("table")]
    assert left[-1] == 10
    assert len(left) < 11, "compaction has made holes"

    collected = Collected()
    options = {"subscribe": "table", "maxOffsetsPerTrigger": 3}
    run_available(stream(spark, penstock, options), collected, tmp_path)
    assert [row.offset for row in collected.rows] == left


def describe(broker: PenstockBroker, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """What `penstock groups describe` shows: committed offset and lag of each partition."""
    command = [sys.executable, "-m", "penstock", "groups", "describe", group, "--json"]
    shown = subprocess.run(
        [*command, "--bootstrap", broker.bootstrap], capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    (found,) = json.loads(shown.stdout)
    return {
        (each["topic"], each["partition"]): (each["committed"], each["lag"]) for each in found["partitions"]
    }


@pytest.mark.promise(
    "spark source",
    "A query appears as a consumer group with its name and lag; a group that has members is not changed",
)
def test_a_query_is_the_consumer_group_of_its_name(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t", partitions=2)
    penstock.produce("t", ["a", "b", "c"])
    penstock.produce("t", ["d"], partition=1)
    name = f"my query {uuid.uuid4()}"
    frame = stream(spark, penstock, {"subscribe": "t"})
    collected = Collected()
    with running(frame, collected, tmp_path, name=name) as query:
        query.processAllAvailable()
        assert describe(penstock, f"penstock-{name}") == {("t", 0): (3, 0), ("t", 1): (1, 0)}
    penstock.produce("t", ["e", "f"])
    assert describe(penstock, f"penstock-{name}") == {("t", 0): (3, 2), ("t", 1): (1, 0)}
    run_available(frame, collected, tmp_path, name=name)
    assert describe(penstock, f"penstock-{name}") == {("t", 0): (5, 0), ("t", 1): (1, 0)}


@pytest.mark.promise("spark source", "The options `groupIdPrefix` and `kafka.group.id` work as documented")
@pytest.mark.promise(
    "spark source",
    "A query appears as a consumer group with its name and lag; a group that has members is not changed",
)
@pytest.mark.parametrize(
    ("options", "group"),
    [
        ({"kafka.group.id": "mine"}, "mine"),
        ({"groupIdPrefix": "team"}, "team-{name}"),
    ],
    ids=["kafka.group.id", "groupIdPrefix"],
)
def test_the_group_can_be_named(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path, options: dict[str, str], group: str
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b"])
    name = f"q{uuid.uuid4().hex}"
    run_available(stream(spark, penstock, {"subscribe": "t", **options}), Collected(), tmp_path, name=name)
    assert describe(penstock, group.format(name=name)) == {("t", 0): (2, 0)}


def test_a_query_without_a_name_is_the_group_of_its_id(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b"])
    with running(stream(spark, penstock, {"subscribe": "t"}), Collected(), tmp_path) as query:
        query.processAllAvailable()
        assert describe(penstock, f"penstock-{query.id}") == {("t", 0): (2, 0)}


@pytest.mark.promise(
    "spark source",
    "A query appears as a consumer group with its name and lag; a group that has members is not changed",
)
def test_a_group_with_members_is_left_alone(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b"])
    consumer = Consumer(
        {"bootstrap.servers": penstock.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    try:
        consumer.subscribe(["t"])
        record = None
        while record is None:
            record = consumer.poll(1)
        consumer.commit(record, asynchronous=False)
        collected = Collected()
        options = {"subscribe": "t", "kafka.group.id": "busy"}
        run_available(stream(spark, penstock, options), collected, tmp_path)
        assert collected.values == ["a", "b"], "the query itself is not held up"
        assert consumer.committed([TopicPartition("t", 0)], timeout=30)[0].offset == 1
        assert consumer.assignment() == [TopicPartition("t", 0)]
    finally:
        consumer.close()


def test_two_sources_in_one_query(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    for topic in ("left", "right"):
        penstock.create_topic(topic)
        penstock.produce(topic, [topic])
    both = stream(spark, penstock, {"subscribe": "left"}).union(
        stream(spark, penstock, {"subscribe": "right"})
    )
    collected = Collected()
    name = f"q{uuid.uuid4().hex}"
    run_available(both, collected, tmp_path, name=name)
    assert collected.values == ["left", "right"]
    assert describe(penstock, f"penstock-{name}") == {("left", 0): (1, 0), ("right", 0): (1, 0)}
