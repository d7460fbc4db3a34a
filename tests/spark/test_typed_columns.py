"""Typed columns: records of confluent-kafka's serializers, a real registry, and what does not decode."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.testing import PenstockBroker
from tests.registry.conftest import RegistryProcess
from tests.spark.source_helpers import Collected, failure, read, run_available, running, stream

pytestmark = pytest.mark.timeout(300)

V1 = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "sku", "type": "string"}]}  # fmt: skip
V2 = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "count", "type": "int", "default": 1},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "sku", "type": "string"}]}  # fmt: skip


@pytest.fixture
def topic(broker: PenstockBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    broker.create_topic(name)
    return name


def send(broker: PenstockBroker, topic: str, *records: tuple[Any, ...] | bytes | None) -> None:
    """Values, or pairs of key and value, or triples with headers."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for record in records:
        key, value, headers = (*record, None)[:3] if isinstance(record, tuple) else (None, record, None)
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(30) == 0


def avro(client: SchemaRegistryClient, topic: str, schema: Any, *values: Any) -> list[bytes]:
    serialize = AvroSerializer(client, json.dumps(schema))
    context = SerializationContext(topic, MessageField.VALUE)
    return [serialize(value, context) for value in values]


def options(registry: RegistryProcess, topic: str, form: str = "avro", **more: str) -> dict[str, str]:
    given = {"subscribe": topic, "value.format": form, "schema.registry.url": registry.url}
    return given | {name.replace("_", "."): value for name, value in more.items()}


def value_type(frame: DataFrame) -> str:
    return frame.schema["value"].dataType.simpleString()


def values(frame: DataFrame) -> list[Any]:
    rows = frame.orderBy("offset").select("value").collect()
    return [None if row.value is None else row.value.asDict(recursive=True) for row in rows]


@pytest.mark.promise("spark source", "The options `value.format` and `key.format` work as documented")
@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
def test_avro_values_have_the_types_of_their_schema(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    schema = {"type": "record", "name": "All", "fields": [
        {"name": "b", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "f", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                            "scale": 2}]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}]}}},
        {"name": "either", "type": ["null", "string", "Line", "State"]}]}  # fmt: skip
    one = {
        "b": True, "i": -1, "f": 0.5, "raw": b"\0\1", "day": date(2024, 2, 29),
        "at": datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC), "price": Decimal("12.50"), "state": "OLD",
        "tags": {"x": 1}, "lines": [{"sku": "a"}, {"sku": "b"}], "either": "text",
    }  # fmt: skip
    two = {**one, "price": None, "either": ("Line", {"sku": "c"}), "lines": []}
    send(broker, topic, *avro(client, topic, schema, one, two), None)
    frame = read(spark, broker, options(registry, topic))
    assert value_type(frame) == (
        "struct<b:boolean,i:int,f:float,raw:binary,day:date,at:timestamp,price:decimal(9,2),state:string,"
        "tags:map<string,bigint>,lines:array<struct<sku:string>>,"
        "either:struct<member0:string,member1:struct<sku:string>,member2:string>>"
    )
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    first, second, tombstone = values(frame)
    expected = {**one, "at": datetime(2024, 5, 1, 12, 0, 0, 250_000)}
    expected["either"] = {"member0": "text", "member1": None, "member2": None}
    assert {**first, "raw": bytes(first["raw"]), "at": first["at"]} == expected
    assert second["either"] == {"member0": None, "member1": {"sku": "c"}, "member2": None}
    assert tombstone is None
    # A column is used as any other.
    assert frame.where("value.price > 12").selectExpr("value.lines[1].sku").collect()[0][0] == "b"


@pytest.mark.promise("spark source", "The options `value.format` and `key.format` work as documented")
@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
def test_json_values_have_the_types_of_their_schema(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    schema = json.dumps({"title": "Order", "type": "object", "properties": {
        "id": {"type": "integer"}, "price": {"type": "number"}, "note": {"type": ["null", "string"]},
        "gone": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "kind": {"enum": ["a", "b"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {}},
        "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}}})  # fmt: skip
    serialize = JSONSerializer(schema, client)
    context = SerializationContext(topic, MessageField.VALUE)
    one = {"id": 1, "price": 2, "note": None, "gone": True, "kind": "b", "lines": [{"sku": "x", "more": 1}],
           "tags": {"t": 3}, "any": {"deep": [1]}, "extra": "left out"}  # fmt: skip
    send(broker, topic, serialize(one, context), serialize({"id": 2}, context))
    frame = read(spark, broker, options(registry, topic, "json"))
    assert value_type(frame) == (
        "struct<id:bigint,price:double,note:string,gone:boolean,kind:string,lines:array<struct<sku:string>>,"
        "tags:map<string,bigint>,any:string>"
    )
    first, second = values(frame)
    assert first == {"id": 1, "price": 2.0, "note": None, "gone": True, "kind": "b", "lines": [{"sku": "x"}],
                     "tags": {"t": 3}, "any": '{"deep":[1]}'}  # fmt: skip
    assert second["id"] == 2 and second["price"] is None


@pytest.mark.promise(
    "spark source",
    "The options `value.format`, `key.format`, `value.message` and `key.message` work as documented",
)
@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
def test_protobuf_values_have_the_types_of_their_message(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    text = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Order {
  int64 id = 1;
  uint64 big = 2;
  optional string note = 3;
  repeated Line lines = 4;
  map<string, int32> tags = 5;
  google.protobuf.Timestamp at = 6;
  State state = 7;
  message Line { string sku = 1; }
  enum State { NEW = 0; OLD = 1; }
}
"""
    client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    serialized = client.get_latest_version(f"{topic}-value", fmt="serialized").schema.schema_str
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    serialize = ProtobufSerializer(
        order, client, {"use.deprecated.format": False, "auto.register.schemas": False,
                        "use.latest.version": True}
    )  # fmt: skip
    message = order(id=7, big=2**64 - 1, lines=[order.Line(sku="a")], tags={"t": 1}, state=1)
    message.at.FromJsonString("2024-05-01T12:00:00.250Z")
    context = SerializationContext(topic, MessageField.VALUE)
    send(broker, topic, serialize(message, context), serialize(order(note=""), context))
    frame = read(spark, broker, options(registry, topic, "protobuf", value_message="Order"))
    assert value_type(frame) == (
        "struct<id:bigint,big:decimal(20,0),note:string,lines:array<struct<sku:string>>,"
        "tags:map<string,int>,at:timestamp,state:string>"
    )
    first, second = values(frame)
    at = datetime(2024, 5, 1, 12, 0, 0, 250_000)
    assert first == {"id": 7, "big": Decimal(2**64 - 1), "note": None, "lines": [{"sku": "a"}],
                     "tags": {"t": 1}, "at": at, "state": "OLD"}  # fmt: skip
    assert (second["id"], second["note"], second["at"], second["state"]) == (0, "", None, "NEW")


@pytest.mark.promise("spark source", "Producers may change their schema while a streaming query runs")
def test_schemas_change_while_the_stream_runs(
    spark: SparkSession,
    broker: PenstockBroker,
    registry: RegistryProcess,
    client: Any,
    topic: str,
    tmp_path: Path,
) -> None:
    send(broker, topic, *avro(client, topic, V1, {"id": 1, "sku": "a"}))
    frame = stream(spark, broker, options(registry, topic))
    assert value_type(frame) == "struct<id:bigint,sku:string>"
    collected = Collected()
    new = {"id": 2, "sku": "b", "count": 5, "note": "n"}
    with running(frame, collected, tmp_path) as query:
        query.processAllAvailable()
        # The writers go on to a schema that this query has never seen; its own columns stay.
        send(broker, topic, *avro(client, topic, V2, new), *avro(client, topic, V1, {"id": 3, "sku": "c"}))
        query.processAllAvailable()
    assert [row.value.asDict() for row in collected.rows] == [
        {"id": 1, "sku": "a"}, {"id": 2, "sku": "b"}, {"id": 3, "sku": "c"}]  # fmt: skip
    # Started again it reads with the latest schema; what older writers left out has its default.
    send(broker, topic, *avro(client, topic, V1, {"id": 4, "sku": "d"}), *avro(client, topic, V2, new))
    later = Collected()
    frame = stream(spark, broker, options(registry, topic))
    assert value_type(frame) == "struct<id:bigint,count:int,note:string,sku:string>"
    run_available(frame, later, tmp_path)
    assert [row.value.asDict() for row in later.rows] == [
        {"id": 4, "sku": "d", "count": 1, "note": None}, new]  # fmt: skip


def poison(client: Any, topic: str) -> list[bytes]:
    """Between two good records: no schema id, an unknown one, cut off bytes, a schema of another type."""
    good, last = avro(client, topic, V1, {"id": 1, "sku": "a"}, {"id": 2, "sku": "b"})
    other = client.register_schema(f"{topic}-other", Schema('{"type": "string"}', "JSON"))
    return [
        good,
        b"text",
        b"\0\x7f\xff\xff\xff" + good[5:],
        good[:-1],
        b"\0" + other.to_bytes(4, "big") + b'"x"',
        last,
    ]


REASONS = [
    "it does not begin with the magic byte 0",
    "has no schema with the id 2147483647",
    "bytes end before the value",
    "is of type JSON, not AVRO",
]


@pytest.mark.promise(
    "spark source", "The options `value.decode.errors` and `key.decode.errors` work as documented"
)
@pytest.mark.promise(
    "spark source",
    "A record that cannot be decoded fails the query with its topic, partition and offset, becomes null, "
    "or becomes a dead letter with the reason",
)
def test_a_record_that_does_not_decode_fails_the_query_with_its_place(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    send(broker, topic, *poison(client, topic))
    with pytest.raises(PySparkException) as failed:
        read(spark, broker, options(registry, topic)).collect()
    assert f"{topic}-0, offset 1: the value does not decode: {REASONS[0]}" in str(failed.value)
    assert "value.decode.errors to dead-letter, skip or null" in str(failed.value)
    frame = read(spark, broker, options(registry, topic, value_decode_errors="null"))
    assert [value and value["id"] for value in values(frame)] == [1, None, None, None, None, 2]


@pytest.mark.promise("spark source", "The option `dead.letter.topic` works as documented")
@pytest.mark.promise(
    "spark source",
    "A record that cannot be decoded fails the query with its topic, partition and offset, becomes null, "
    "or becomes a dead letter with the reason",
)
def test_a_record_that_does_not_decode_becomes_a_dead_letter(
    spark: SparkSession,
    broker: PenstockBroker,
    registry: RegistryProcess,
    client: Any,
    topic: str,
    tmp_path: Path,
) -> None:
    dead = f"{topic}.dead"
    broker.create_topic(dead)
    records = poison(client, topic)
    send(broker, topic, *[(b"k", value, [("h", b"1")]) for value in records])
    given = options(registry, topic, value_decode_errors="dead-letter", dead_letter_topic=dead)
    collected = Collected()
    with running(stream(spark, broker, given), collected, tmp_path) as query:
        query.processAllAvailable()
        send(broker, topic, b"later")
        query.processAllAvailable()
    assert [row.value.id for row in collected.rows] == [1, 2]
    letters = broker.consume(dead, 5)
    assert [letter.value for letter in letters] == [*records[1:5], b"later"]
    told = [dict(letter.headers) for letter in letters]
    for at, reason in enumerate(REASONS):
        headers = told[at]
        assert reason in headers["penstock.dead.reason"].decode()
        place = [headers[f"penstock.dead.{name}"] for name in ("part", "topic", "partition", "offset")]
        assert place == [b"value", topic.encode(), b"0", str(at + 1).encode()]
        assert (headers["h"], letters[at].key) == (b"1", b"k")
    assert "penstock.dead.schema.id" not in told[0]
    assert told[1]["penstock.dead.schema.id"] == b"2147483647"
    assert told[4]["penstock.dead.offset"] == b"6"


@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
def test_keys_references_and_headers_that_name_a_schema(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    bill = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "Money"}]}
    client.register_schema(f"{topic}-money", Schema(json.dumps(money), "AVRO"))
    schema = Schema(json.dumps(bill), "AVRO", [SchemaReference("Money", f"{topic}-money", 1)])
    headers: list[tuple[str, bytes]] = []
    serialize = AvroSerializer(client, schema, conf={"schema.id.serializer": header_schema_id_serializer})
    value = serialize({"sum": {"cents": 5}}, SerializationContext(topic, MessageField.VALUE, headers))
    key = AvroSerializer(client, '"long"')(17, SerializationContext(topic, MessageField.KEY))
    send(broker, topic, (key, value, headers))
    given = options(registry, topic, key_format="avro", includeHeaders="true")
    frame = read(spark, broker, given)
    assert frame.schema["key"].dataType.simpleString() == "bigint"
    (row,) = frame.collect()
    assert (row.key, row.value.asDict(True)) == (17, {"sum": {"cents": 5}})
    assert [header.key for header in row.headers] == ["__value_schema_id"]


@pytest.mark.promise(
    "spark source",
    "The options `value.schema.version`, `key.schema.version`, `value.schema` and `key.schema` work as "
    "documented",
)
def test_the_schema_to_read_with_can_be_given(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    send(broker, topic, *avro(client, topic, V1, {"id": 1, "sku": "a"}))
    send(broker, topic, *avro(client, topic, V2, {"id": 2, "sku": "b", "count": 3, "note": None}))
    pinned = read(spark, broker, options(registry, topic, value_schema_version="1"))
    assert value_type(pinned) == "struct<id:bigint,sku:string>"
    own = json.dumps({**V1, "fields": [{"name": "id", "type": "double"}]})
    assert values(read(spark, broker, options(registry, topic, value_schema=own))) == [
        {"id": 1.0},
        {"id": 2.0},
    ]
    text = json.dumps({**V1, "fields": [{"name": "id", "type": "string"}]})
    with pytest.raises(PySparkException, match="does not resolve"):
        read(spark, broker, options(registry, topic, value_schema=text)).collect()


@pytest.mark.promise("spark source", "The option `schema.registry.url` works as documented")
def test_what_cannot_be_typed_is_refused_when_the_frame_is_made(
    spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess, client: Any, topic: str
) -> None:
    def refused(**more: str) -> str:
        with pytest.raises(PySparkException) as error:
            read(spark, broker, options(registry, topic, **more)).schema  # noqa: B018
        return failure(error.value)

    assert f"has no schema for the column value: Subject '{topic}-value' not found" in refused()
    assert "cannot reach a schema registry" in refused(schema_registry_url="http://127.0.0.1:1")
    tree = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "below", "type": {"type": "array", "items": "T"}}],
    }
    assert "T contains itself, at below[]" in refused(value_schema=json.dumps(tree))
