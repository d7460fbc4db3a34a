"""Plain JSON and CSV as typed columns: no registry, a type of Spark's for a schema."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.spark.source_helpers import Collected, failure, read, run_available, stream

pytestmark = pytest.mark.timeout(300)

DDL = (
    "id BIGINT, price DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<town: STRING>, "
    "more MAP<STRING, INT>"
)
TEXT = {"value.format": "json-text", "value.schema": DDL}


def send(broker: PenstockBroker, topic: str, *records: tuple[Any, Any]) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


@pytest.mark.promise("spark source", "The options `value.schema` and `key.schema` work as documented")
@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
def test_json_text_has_the_columns_that_it_is_given(spark: SparkSession, broker: PenstockBroker) -> None:
    one = b"""{"id": 1, "price": 2, "at": "2024-05-01T12:00:00Z", "tags": ["x"],
        "place": {"town": "B", "x": 1},
        "more": {"a": 2}}"""
    send(broker, "text", (b'{"k":7}', one), (b"{}", b'{"id":2,"at":1714564800000}'), (None, None))
    frame = read(
        spark, broker, {"subscribe": "text", **TEXT, "key.format": "json-text", "key.schema": "`k` INT"}
    )
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,price:double,at:timestamp,tags:array<string>,place:struct<town:string>,more:map<string,int>>"
    )
    rows = frame.orderBy("offset").select("key.k", "value").collect()
    at = datetime(2024, 5, 1, 12)
    assert rows[0].k == 7 and rows[0].value.asDict(recursive=True) == {
        "id": 1, "price": 2.0, "at": at, "tags": ["x"], "place": {"town": "B"}, "more": {"a": 2}}  # fmt: skip
    assert (rows[1].k, rows[1].value.id, rows[1].value.at, rows[1].value.tags) == (None, 2, at, None)
    assert (rows[2].k, rows[2].value) == (None, None)
    # It is a column as any other.
    assert frame.where("value.price > 1").selectExpr("value.place.town").collect()[0][0] == "B"


@pytest.mark.promise(
    "spark source",
    "The options `value.delimiter`, `key.delimiter`, `value.decode.errors`, `dead.letter.topic` and "
    "`dead.letter.query` work as documented",
)
@pytest.mark.promise(
    "spark source",
    "Plain JSON and CSV get typed columns without a registry; reading in blocks and record by record "
    "gives the same result; a record that does not fit gets an error with the reason and does not affect "
    "other records",
)
def test_text_that_does_not_fit_becomes_a_dead_letter(
    spark: SparkSession, broker: PenstockBroker, tmp_path: Path
) -> None:
    send(broker, "bids", (b"a", b"1;2.5"), (b"b", b"x;2.5"), (b"c", b"3;"))
    broker.create_topic("bids.dead")
    given = {
        "subscribe": "bids",
        "value.format": "csv-text",
        "value.schema": "struct<id: bigint, price: double>",
        "value.delimiter": ";",
    }
    with pytest.raises(PySparkException) as failed:
        read(spark, broker, given).collect()
    assert failure(failed.value).startswith(
        "bids-0, offset 1: the value does not decode: 'id' is \"x\", not a whole number."
    )
    collected = Collected()
    dead = {**given, "value.decode.errors": "dead-letter", "dead.letter.topic": "bids.dead"}
    run_available(stream(spark, broker, dead), collected, tmp_path)
    assert [tuple(row.value) for row in collected.rows] == [(1, 2.5), (3, None)]
    (letter,) = broker.consume("bids.dead", 1)
    assert (letter.key, letter.value) == (b"b", b"x;2.5")
    assert b"not a whole number" in dict(letter.headers)["penstock.dead.reason"]


@pytest.mark.promise("spark source", "The options `value.schema` and `key.schema` work as documented")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"value.schema": "id BIGNT"}, "BIGNT"),
        (
            {"value.schema": "id BIGINT, of INTERVAL YEAR"},
            "of is interval year, which cannot be read from text",
        ),
        (
            {"value.format": "csv-text", "value.schema": "a ARRAY<INT>"},
            "a line of CSV has plain columns only",
        ),
    ],
)
def test_a_schema_that_text_cannot_have_is_refused(
    spark: SparkSession, broker: PenstockBroker, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        read(spark, broker, {"subscribe": "text", **TEXT, **options}).collect()
