"""Patterns on DataFrames: in order of event time, across batches and restarts, with the rows of one batch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.errors import BadOption
from penstock.spark.patterns.conditions import compile_condition
from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.values import Kind, Value
from penstock.spark.streams import match_recognize, state
from penstock.testing import PenstockBroker
from tests.spark.stream_examples import Example

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.penstock(
        settings={"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    ),
]
EIGHT = datetime(2025, 1, 1, 8)


@pytest.mark.promise("streams", "Example: patterns over several records")
def test_three_failed_logins_and_a_success(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    example = Example("patterns", penstock, tmp_path)
    example.run("--sample")
    assert example.records("alerts") == [
        ("eve", {"account": "eve", "failures": 3, "began": "2025-01-01T08:00:10.000Z"})
    ]


@pytest.mark.promise(
    "streams",
    "Patterns are matched in order of event time, whatever the order and the micro-batches in which "
    "records arrive; a match that starts in one micro-batch continues in the next, also after a restart",
)
def test_a_stream_gives_what_a_batch_gives(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    chance = random.Random(7)
    seconds = list(range(0, 240, 2))
    arriving = sorted(seconds, key=lambda second: second + chance.uniform(0, 9))  # at most 10 s late
    records = [(chance.choice(("ann", "bob")), chance.random() < 0.3, second) for second in arriving] + [
        ("end", True, 4000)
    ]

    def send(some: list[tuple[str, bool, int]]) -> None:
        rows = [
            (key, f'{{"ok": {str(ok).lower()}, "at": "{EIGHT + timedelta(seconds=second)}"}}')
            for key, ok, second in some
        ]
        penstock.produce("logins", rows)

    penstock.create_topic("logins")
    example = Example("patterns", penstock, tmp_path)
    streams = example.streams()
    half = len(records) // 2
    for some in (records[:half], records[half:]):
        send(some)
        streams.write(example.alerts(example.logins(streams, maxOffsetsPerTrigger="25")), "alerts")
    found = sorted(str(value) for _, value in example.records("alerts"))
    whole = example.names["fields"](streams.read_now("logins"), "ok BOOLEAN, at TIMESTAMP")
    expected = example.alerts(whole.withColumn("account", F.col("key").cast("string"))).collect()
    assert len(expected) > 3
    assert found == sorted(str(json.loads(row.value)) for row in expected)


@pytest.mark.promise("streams", "Records that are too late for a pattern are dropped and counted")
def test_late_records_are_counted(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    penstock.create_topic("logins")
    example = Example("patterns", penstock, tmp_path)
    streams = example.streams()
    for second in (0, 100, 200, 5, 300):
        penstock.produce("logins", [("ann", f'{{"ok": false, "at": "{EIGHT + timedelta(seconds=second)}"}}')])
        streams.write(example.alerts(example.logins(streams)), "alerts")
    found = state(spark, str(tmp_path), variable="head").collect()
    assert [row.late for row in found] == [1]


def ticks(spark: SparkSession) -> DataFrame:
    rows = [
        (stock, None if price is None else float(price), EIGHT + timedelta(minutes=at), [at])
        for at, (stock, price) in enumerate(
            [("a", 5), ("a", 4), ("b", 1), ("a", 3), ("a", None), ("a", 6), ("b", 2), ("a", 7), ("b", 9)]
        )
    ]
    return spark.createDataFrame(rows, "stock string, price double, at timestamp, tags array<int>")


def test_measures_have_the_types_and_values_of_sql(spark: SparkSession) -> None:
    found = match_recognize(
        ticks(spark),
        partition_by="stock",
        order_by="at",
        pattern="A B",
        define={"B": "B.price > A.price"},
        measures={
            "n": "COUNT(B.price)", "mean": "AVG(price)", "rate": "round(B.price / A.price, 2)",
            "tags": "concat(FIRST(tags), LAST(tags))", "day": "CAST(FIRST(at) AS DATE)",
            "what": "lower(CLASSIFIER())", "number": "MATCH_NUMBER()", "least": "MIN(price)",
        },
    )  # fmt: skip
    assert found.dtypes == [
        ("stock", "string"), ("n", "bigint"), ("mean", "double"), ("rate", "double"), ("tags", "array<int>"),
        ("day", "date"), ("what", "string"), ("number", "bigint"), ("least", "double"),
    ]  # fmt: skip
    day = EIGHT.date()
    assert sorted(tuple(row) for row in found.collect()) == [
        ("a", 1, 6.5, 1.17, [5, 7], day, "b", 1, 6.0),
        ("b", 1, 1.5, 2.0, [2, 6], day, "b", 1, 1.0),
    ]


def test_all_rows_have_their_columns_and_running_measures(spark: SparkSession) -> None:
    found = match_recognize(
        ticks(spark).drop("tags"),
        partition_by="stock",
        order_by="at",
        pattern="A B+",
        define={"B": "B.price > PREV(price)"},
        measures={"total": "SUM(price)", "final": "FINAL SUM(price)", "what": "CLASSIFIER()"},
        after_match="to next row",
        all_rows=True,
    ).orderBy("at", "total")
    assert [tuple(row)[:2] + tuple(row)[3:] for row in found.where("stock = 'b'").collect()] == [
        ("b", 1.0, 1.0, 12.0, "A"),
        ("b", 2.0, 2.0, 11.0, "A"),
        ("b", 2.0, 3.0, 12.0, "B"),
        ("b", 9.0, 11.0, 11.0, "B"),
        ("b", 9.0, 12.0, 12.0, "B"),
    ]


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"order_by": "when"}, BadOption, "no column when"),
        ({"order_by": "price"}, BadOption, "not a timestamp"),
        ({"within": "soon"}, BadOption, "not a time"),
        ({"after_match": "to A"}, BadOption, "to first A"),
        ({"define": {"B": "prize > 1"}}, BadPattern, "no column `prize`; did you mean `price`"),
        ({"define": {"B": "price"}}, BadPattern, "true or false"),
        ({"define": {"B": "B.tags = A.tags"}}, BadPattern, "cannot be compared"),
        ({"measures": {"x": "SUM(stock)"}}, BadPattern, "SUM.* is not possible"),
        ({"measures": {"x": "kurtosis(price)"}}, BadPattern, "not about one row"),
        ({"define": {"B": "price IN (VALUES 1, 2)"}}, BadPattern, "a query cannot stand"),
        ({"measures": {"stock": "COUNT(*)"}}, BadPattern, "Duplicate column"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said_at_once(
    spark: SparkSession, more: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {
        "partition_by": "stock", "order_by": "at", "pattern": "A B", "define": {"B": "price > 1"},
        "measures": {"n": "COUNT(*)"},
    }  # fmt: skip
    with pytest.raises(error, match=message):
        match_recognize(ticks(spark), **(given | more))


def test_a_stream_must_say_when_state_ends_and_how_late_records_may_be(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load()
    given: dict[str, Any] = {
        "order_by": "timestamp", "pattern": "A", "define": {"A": "value > 1"}, "measures": {"n": "COUNT(*)"},
    }  # fmt: skip
    with pytest.raises(BadOption, match="withWatermark"):
        match_recognize(rates, **given, within="1 hour")
    with pytest.raises(BadOption, match="within"):
        match_recognize(rates.withWatermark("timestamp", "1 second"), **given)


def test_conditions_over_several_rows_are_computed_as_spark_does(spark: SparkSession) -> None:
    kinds: dict[str, Kind] = {"i": "int", "j": "int", "d": "double", "x": "decimal", "s": "text", "b": "bool"}
    rows = [
        (1, 2, 2.5, "1.10", "ab", True), (None, 2, float("nan"), "2.00", "b", False),
        (-7, 3, -0.5, None, None, None),
        (0, 0, None, "0.30", "a%", True), (5, -5, float("inf"), "5.00", "", False),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "i bigint, j bigint, d double, x string, s string, b boolean")
    frame = frame.withColumn("x", F.col("x").cast("decimal(10,2)"))
    conditions = [
        "i > j", "i + j = 0", "i / j > 0.2", "i % j = -1", "d > i", "d = d", "d < 3", "x * 2 > i", "x < d",
        "x + 0.1 = 0.4", "i IN (1, j)", "i NOT IN (5, 6)", "i BETWEEN j AND 9", "s LIKE 'a%'",
        "s NOT LIKE '_b'",
        "s < 'b'", "b AND i > 0", "b OR i > 0", "NOT b", "b IS TRUE", "i IS NULL OR d IS NOT NULL",
        "COALESCE(i, j) = 2", "CASE WHEN b THEN i ELSE j END > 1", "CASE i WHEN 1 THEN b END",
        "GREATEST(i, j) > 2", "LEAST(d, x) < 1", "ABS(i) = 7", "IF(b, d, 1) > 1", "i <=> j", "-i > 0",
    ]  # fmt: skip
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")  # as in continuous SQL: what cannot be computed is null
    try:
        expected = frame.selectExpr(*conditions).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))
    python_rows = frame.collect()
    leaves = {name: Value(kind, _at(place)) for place, (name, kind) in enumerate(kinds.items())}
    for number, condition in enumerate(conditions):
        compiled = compile_condition(condition, leaves, Fragment(condition))
        found = [compiled(tuple(row), ()) for row in python_rows]
        assert found == [row[number] for row in expected], condition


def _at(place: int) -> Callable[[Any, Any], Any]:
    return lambda values, held: values[place]
