"""What the helpers of penstock.spark.streams promise beyond their examples."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.spark.errors import BadOption
from penstock.spark.streams import attempt, count_windows, divert, late_to_topic, table
from penstock.testing import PenstockBroker
from tests.spark.source_helpers import read
from tests.spark.stream_examples import Example

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.penstock(
        settings={"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    ),
]


@pytest.mark.promise("streams", "Example: out-of-order and late records, side output")
@pytest.mark.promise(
    "streams", "Every record is either in the result or in the topic of late records, never in both"
)
def test_every_record_is_counted_or_late_and_none_is_both(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    chance = random.Random(4)
    noon = datetime(2024, 5, 1, 12)
    times = [
        noon + timedelta(minutes=2 * number) - timedelta(minutes=chance.choice((0, 0, 3, 9, 30)))
        for number in range(24)
    ]
    times.append(noon + timedelta(days=1))  # closes all windows but its own
    penstock.create_topic("clicks")
    penstock.produce("clicks", [("ann", str(time)) for time in times])
    example = Example("late_records", penstock, tmp_path)
    streams = example.streams()
    streams.run(example.query(streams, maxOffsetsPerTrigger="4"))

    def window(time: datetime) -> str:
        return f"{time:%H}:{time.minute // 10 * 10:02}"

    counted = Counter({key: value["clicks"] for key, value in example.records("clicks.counted")})
    late = Counter(
        window(datetime.fromisoformat((record.value or b"").decode()))
        for record in penstock.consume("clicks.late", isolation="read_committed")
    )
    assert late, "the times were meant to make some late"
    assert counted + late == Counter(map(window, times[:-1]))


@pytest.mark.promise("streams", "A table has the latest value of each key that was not deleted")
def test_a_table_is_the_newest_value_of_each_key_that_was_not_deleted(
    spark: SparkSession, penstock: PenstockBroker
) -> None:
    penstock.create_topic("prices", partitions=2)
    penstock.produce("prices", [("tea", "1"), ("milk", "5"), ("tea", "2")], partition=0)
    others = [("salt", "7"), ("salt", None), (None, "9"), ("rice", None), ("rice", "3")]
    penstock.produce("prices", others, partition=1)
    found = table(read(spark, penstock, {"subscribe": "prices"})).collect()
    assert sorted((bytes(row.key), bytes(row.value), row.offset) for row in found) == [
        (b"milk", b"5", 1),
        (b"rice", b"3", 4),
        (b"tea", b"2", 2),
    ]


@pytest.mark.promise("streams", "Only failed records are diverted, with their reason and position")
def test_only_what_does_not_fit_is_lost_of_a_batch(spark: SparkSession) -> None:
    def give(record: dict[str, Any]) -> Any:
        return {
            0: {"number": 1, "text": "one"},
            1: {"number": "two", "text": "two"},
            2: None,
            3: "no fields at all",
            4: {"number": 2**40, "text": "large"},
            5: {"number": 6},
        }[record["id"]]

    tried = attempt(spark.range(6).coalesce(1), give, "number int, text string").orderBy("id").collect()
    results = [row.result and tuple(row.result) for row in tried]
    assert results == [(1, "one"), None, None, None, None, (6, None)]
    assert [row.error is None for row in tried] == [True, False, True, False, False, True]
    assert all("the result does not fit" in row.error for row in tried if row.error)


@pytest.mark.promise("streams", "A dead letter keeps the headers of its record")
def test_a_dead_letter_keeps_the_headers_that_its_record_had(spark: SparkSession) -> None:
    records = spark.sql(
        "SELECT binary('k') AS key, binary('v') AS value, 'orders' AS topic, 3 AS partition, 17L AS offset,"
        " timestamp_millis(1700000000123) AS timestamp,"
        " array(named_struct('key', 'trace', 'value', binary('x'))) AS headers, 'no such product' AS error"
    )
    (row,) = divert(records, topic="good", value=F.lit("never"), dead="dead").collect()
    assert (row.topic, bytes(row.key), bytes(row.value)) == ("dead", b"k", b"v")
    assert [(header.key, bytes(header.value).decode()) for header in row.headers] == [
        ("trace", "x"),
        ("penstock.dead.reason", "no such product"),
        ("penstock.dead.topic", "orders"),
        ("penstock.dead.partition", "3"),
        ("penstock.dead.offset", "17"),
        ("penstock.dead.timestamp", "1700000000123"),
    ]


def test_wrong_arguments_are_refused_with_what_to_do(spark: SparkSession) -> None:
    rows = spark.range(1)
    with pytest.raises(BadOption, match="advance must be from 1 to size"):
        count_windows(rows, "id", 3, advance=4, order_by=())
    with pytest.raises(BadOption, match="no column offset among id"):
        count_windows(rows, "id", 3)
    with pytest.raises(BadOption, match="rename error first"):
        attempt(rows.withColumn("error", F.lit(1)), dict, "id int")
    with pytest.raises(BadOption, match="the results have no column topic, key, value"):
        late_to_topic(rows, rows, closes=F.col("id"), topic="late", checkpoint="nowhere", options={})
