"""Columns that the sink encodes by schemas of a registry: read back by the source and by confluent-kafka."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.registry.formats import parse
from penstock.registry.serdes.protobuf import Messages
from penstock.testing import PenstockBroker
from tests.registry.conftest import RegistryProcess
from tests.spark.source_helpers import read, stream

pytestmark = pytest.mark.timeout(300)

DDL = (
    "id BIGINT NOT NULL, price DECIMAL(9,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>,"
    " more MAP<STRING, INT>, place STRUCT<town: STRING>"
)
ONE = (1, Decimal("2.50"), datetime(2024, 5, 1, 12), date(2024, 2, 29), ["a"], {"x": 1}, ("B",))
TWO = (2, None, None, None, [], {}, None)


def write(frame: DataFrame, broker: PenstockBroker, **options: str) -> None:
    given = {name.replace("_", "."): value for name, value in options.items()}
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**given).mode("append").save()


def rows(spark: SparkSession) -> DataFrame:
    """Two rows and a tombstone, in one partition."""
    frame = spark.createDataFrame([(0, ONE), (1, TWO), (2, None)], f"key INT, value STRUCT<{DDL}>")
    return frame.coalesce(1)


@pytest.mark.promise("spark sinks", "The options `value.format` and `key.format` work as documented")
@pytest.mark.promise(
    "spark sinks",
    "Structs are written with schemas derived from their types, and read back unchanged by the source "
    "and by confluent-kafka; an incompatible schema is rejected before a job starts",
)
@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_rows_are_written_by_a_schema_that_is_made_of_their_type(
    spark: SparkSession,
    broker: PenstockBroker,
    registry: RegistryProcess,
    client: SchemaRegistryClient,
    form: str,
) -> None:
    topic = f"typed-{form}"
    broker.create_topic(topic)
    written = rows(spark).selectExpr("CAST(key AS STRING) key", "value")
    for _ in range(2):
        write(written, broker, topic=topic, value_format=form, schema_registry_url=registry.url)
    assert client.get_versions(f"{topic}-value") == [1]  # the same type is the same schema
    given = {"subscribe": topic, "value.format": form, "schema.registry.url": registry.url}
    found = [row.value for row in read(spark, broker, given).orderBy("offset").collect()]
    assert len(found) == 6 and found[:3] == found[3:] and found[2] is None
    first, second = (value.asDict(recursive=True) for value in found[:2])
    names = ["id", "price", "at", "day", "tags", "more", "place"]
    expected = dict(zip(names, (*ONE[:-1], {"town": "B"})))
    in_text = {"at": "2024-05-01T12:00:00.000000Z", "day": "2024-02-29"}
    other = {
        "avro": {},
        "json": {**in_text, "price": 2.5},
        "protobuf": {"day": "2024-02-29", "price": "2.50"},
    }[form]
    assert first == expected | other
    assert second == dict(zip(names, TWO))
    records = broker.consume(topic, 3)
    seen = deserialized(client, topic, form, [record.value for record in records[:2]])
    if form == "avro":
        assert seen[0] == {**expected, "at": datetime(2024, 5, 1, 12, tzinfo=UTC)}
        assert seen[1] == dict(zip(names, TWO))
    elif form == "json":
        assert seen[0] == expected | other
    else:
        assert (seen[0].id, seen[0].price, seen[0].place.town, dict(seen[0].more)) == (
            1,
            "2.50",
            "B",
            {"x": 1},
        )
        assert seen[0].at.ToJsonString() == "2024-05-01T12:00:00Z" and not seen[1].HasField("price")
    assert (records[2].key, records[2].value) == (b"2", None)


def deserialized(client: SchemaRegistryClient, topic: str, form: str, values: list[Any]) -> list[Any]:
    """By confluent-kafka."""
    text = client.get_latest_version(f"{topic}-value").schema.schema_str
    if form == "avro":
        deserialize: Any = AvroDeserializer(client)
    elif form == "json":
        deserialize = JSONDeserializer(text, schema_registry_client=client)
    else:
        known = Messages(parse("PROTOBUF", text))  # type: ignore[arg-type]
        kind = message_factory.GetMessageClass(known.descriptor(known.find(None)))
        deserialize = ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)
    context = SerializationContext(topic, MessageField.VALUE)
    return [deserialize(value, context) for value in values]


@pytest.mark.promise("spark sinks", "The options `value.subject` and `key.subject` work as documented")
@pytest.mark.promise(
    "spark sinks",
    "Structs are written with schemas derived from their types, and read back unchanged by the source "
    "and by confluent-kafka; an incompatible schema is rejected before a job starts",
)
def test_a_stream_is_written_typed_exactly_once(
    spark: SparkSession,
    broker: PenstockBroker,
    registry: RegistryProcess,
    client: SchemaRegistryClient,
    tmp_path: Path,
) -> None:
    broker.create_topic("in", partitions=2)
    broker.create_topic("out")
    texts = [f'{{"id":{number},"name":"n{number}"}}' for number in range(100)]

    def more(batch: list[str]) -> None:
        frame = spark.createDataFrame([(text, text) for text in batch], "key STRING, value STRING")
        write(frame, broker, topic="in")

    def run() -> None:
        source = stream(spark, broker, {"subscribe": "in", "value.format": "json-text",
                                        "value.schema": "id BIGINT, name STRING"})  # fmt: skip
        frame = source.selectExpr("value.id AS key", "IF(value.id % 10 = 0, NULL, value) AS value")
        query = (
            frame.writeStream.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", "out").option("value.format", "avro").option("key.format", "avro")
            .option("schema.registry.url", registry.url).option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(100)

    more(texts[:60])
    run()
    more(texts[60:])
    run()
    given = {"subscribe": "out", "value.format": "avro", "key.format": "avro",
             "schema.registry.url": registry.url, "kafka.isolation.level": "read_committed"}  # fmt: skip
    found = read(spark, broker, given).select("key", "value.name").collect()
    assert sorted(tuple(row) for row in found) == [
        (number, None if number % 10 == 0 else f"n{number}") for number in range(100)
    ]
    assert client.get_versions("out-value") == [1] == client.get_versions("out-key")


@pytest.mark.promise(
    "spark sinks",
    "The options `schema.registry.url`, `schema.registry.*`, `value.schema.version` and "
    "`key.schema.version` work as documented",
)
@pytest.mark.promise(
    "spark sinks",
    "Structs are written with schemas derived from their types, and read back unchanged by the source "
    "and by confluent-kafka; an incompatible schema is rejected before a job starts",
)
def test_a_schema_that_the_registry_refuses_is_an_error_before_a_job_starts(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: SchemaRegistryClient
) -> None:
    broker.create_topic("strict")
    schema = {"type": "record", "name": "StrictValue", "fields": [{"name": "id", "type": "string"}]}
    client.register_schema("strict-value", Schema(json.dumps(schema), "AVRO"))
    typed = {"topic": "strict", "value_format": "avro", "schema_registry_url": registry.url}
    frame = rows(spark)
    cases: list[tuple[dict[str, str], str]] = [
        (typed, "refuses the schema of these rows, because it is not compatible with what strict-value has"),
        (
            {**typed, "value_schema_version": "1"},
            "strict-value.*the schema StrictValue has no field price, at,",
        ),
        ({**typed, "value_schema_version": "7"}, "does not give that schema of strict-value"),
        ({"topic": "strict", "value_format": "avro"}, "requires schema.registry.url"),
        ({**typed, "value_format": "xml"}, "value.format must be avro or json or protobuf"),
        ({"topic": "strict"}, "or let value.format do it"),
    ]
    for options, told in cases:
        with pytest.raises(PySparkException, match=told):
            write(frame.selectExpr("CAST(key AS STRING) key", "value"), broker, **options)
    assert client.get_versions("strict-value") == [1]
    # Rows that fit a version are written with it.
    fits = spark.sql("SELECT named_struct('id', 'x') AS value")
    write(fits, broker, **typed, value_schema_version="1")
    (record,) = broker.consume("strict", 1)
    assert deserialized(client, "strict", "avro", [record.value]) == [{"id": "x"}]


@pytest.mark.promise("spark sinks", "The options `value.format` and `key.format` work as documented")
@pytest.mark.promise(
    "spark sinks",
    "Structs are written with schemas derived from their types, and read back unchanged by the source "
    "and by confluent-kafka; an incompatible schema is rejected before a job starts",
)
def test_structs_are_written_as_plain_json(spark: SparkSession, broker: PenstockBroker) -> None:
    broker.create_topic("plain")
    write(rows(spark).select("value"), broker, topic="plain", value_format="json-text")
    first, second, tombstone = broker.consume("plain", 3)
    assert json.loads(first.value) == {
        "id": 1, "price": 2.5, "at": "2024-05-01T12:00:00.000000Z", "day": "2024-02-29", "tags": ["a"],
        "more": {"x": 1}, "place": {"town": "B"}}  # fmt: skip
    assert json.loads(second.value)["place"] is None and tombstone.value is None
    # The source reads it as it was.
    given = {"subscribe": "plain", "value.format": "json-text", "value.schema": DDL}
    assert read(spark, broker, given).orderBy("offset").collect()[0].value.asDict(True)["at"] == ONE[2]
