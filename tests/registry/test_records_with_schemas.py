"""`penstock produce` and `consume` with a registry, against confluent-kafka's own serializers, both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.cli.main import cli

AVRO = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "either", "type": ["null", "string", "long"], "default": None}]})  # fmt: skip
JSON = json.dumps({"title": "Order", "type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer"}, "note": {"type": "string"}}})  # fmt: skip
PROTO = """syntax = "proto3";
package shop;
message Other { string x = 1; }
message Order {
  int64 id = 1;
  string note = 2;
  message Line { int32 amount = 1; }
  repeated Line lines = 3;
}
"""


def proto_class(name: str):
    """The class that protoc would make of a message of PROTO."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    other = file.message_type.add(name="Other")
    other.field.add(name="x", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    order.field.add(name="note", number=2, type="TYPE_STRING", label="LABEL_OPTIONAL")
    line = order.nested_type.add(name="Line")
    line.field.add(name="amount", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    order.field.add(
        name="lines", number=3, type="TYPE_MESSAGE", label="LABEL_REPEATED", type_name=".shop.Order.Line"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


@pytest.fixture
def run(broker, registry):
    def run(*arguments, stdin=None, expect=0):
        environment = {"PENSTOCK_BOOTSTRAP": broker.bootstrap, "PENSTOCK_REGISTRY": registry.url}
        result = CliRunner().invoke(cli, arguments, env=environment, input=stdin)
        assert result.exit_code == expect, (result.output, result.exception)
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def client(registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def topic(broker, subject: str) -> str:
    broker.create_topic(subject)
    return subject


@pytest.fixture
def schema_file(tmp_path: Path):
    def write(text: str, name: str = "schema") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def send(broker, topic: str, *values: bytes | None, headers=None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, headers=headers)
    assert producer.flush(30) == 0


def stored(broker, topic: str) -> list[bytes]:
    return [record.value for record in broker.consume(topic)]


CASES = {
    "avro": (
        {"id": 7, "note": None, "price": "12.50", "at": "2024-05-01T12:00:00.250Z", "either": {"long": 3}}
    ),
    "json-schema": {"id": 7, "note": "änderung"},
    "protobuf": {"id": "7", "note": "n", "lines": [{"amount": 3}]},
}
SCHEMAS = {"avro": AVRO, "json-schema": JSON, "protobuf": PROTO}


@pytest.mark.promise(
    "registry", "`produce` and `consume` exchange records with confluent-kafka's serializers, both ways"
)
@pytest.mark.parametrize("form", CASES)
def test_confluents_deserializers_read_what_produce_writes(run, broker, client, topic, schema_file, form):
    options = ["--value-format", form, "--value-schema", schema_file(SCHEMAS[form])]
    if form == "protobuf":
        options += ["--value-message", "Order"]
    run("produce", topic, *options, stdin=json.dumps(CASES[form]) + "\n")
    (data,) = stored(broker, topic)
    context = SerializationContext(topic, MessageField.VALUE)
    if form == "avro":
        read = AvroDeserializer(client)(data, context)
        assert (read["id"], str(read["price"]), read["either"]) == (7, "12.50", 3)
        assert read["at"].isoformat() == "2024-05-01T12:00:00.250000+00:00"
    elif form == "json-schema":
        assert JSONDeserializer(JSON, schema_registry_client=client)(data, context) == CASES[form]
    else:
        deserialize = ProtobufDeserializer(proto_class("Order"), {"use.deprecated.format": False}, client)
        read = deserialize(data, context)
        assert (read.id, read.note, [line.amount for line in read.lines]) == (7, "n", [3])
    assert client.get_latest_version(f"{topic}-value").schema_id == int.from_bytes(data[1:5], "big")
    # And consume prints what produce took.
    printed = run("consume", topic, "--value-format", form).stdout
    assert json.loads(printed) == CASES[form]


@pytest.mark.promise(
    "registry", "`produce` and `consume` exchange records with confluent-kafka's serializers, both ways"
)
@pytest.mark.parametrize("form", CASES)
def test_consume_reads_what_confluents_serializers_write(run, broker, client, topic, form):
    context = SerializationContext(topic, MessageField.VALUE)
    if form == "avro":
        from datetime import UTC, datetime
        from decimal import Decimal

        serialize = AvroSerializer(client, AVRO)
        value = {"id": 7, "note": None, "price": Decimal("12.50"), "either": 3,
                 "at": datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC)}  # fmt: skip
    elif form == "json-schema":
        serialize, value = JSONSerializer(JSON, client), CASES[form]
    else:
        kind = proto_class("Order")
        serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        value = kind(id=7, note="n", lines=[kind.Line(amount=3)])
    send(broker, topic, serialize(value, context), None)
    lines = run("consume", topic, "--value-format", form, "--json").stdout.splitlines()
    record, tombstone = map(json.loads, lines)
    assert record["value"] == CASES[form] and tombstone["value"] is None
    assert record["value_schema_id"] == client.get_latest_version(f"{topic}-value").schema_id
    # What consume prints as JSON, produce takes.
    message = ["--value-message", "Order"] if form == "protobuf" else []
    given = "\n".join(lines) + "\n"
    run("produce", topic, "--format", "json", "--value-format", form, *message, stdin=given)
    values = stored(broker, topic)
    assert values[2:] == values[:2]


@pytest.mark.promise(
    "registry", "`produce` and `consume` exchange records with confluent-kafka's serializers, both ways"
)
def test_a_schema_that_is_named_in_a_header_is_found(run, broker, client, topic):
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext(topic, MessageField.VALUE, headers)
    serialize = AvroSerializer(client, '"long"', conf={"schema.id.serializer": header_schema_id_serializer})
    data = serialize(17, context)
    assert headers and data == b"\x22"
    send(broker, topic, data, headers=headers)
    assert run("consume", topic, "--value-format", "avro").stdout == "17\n"


@pytest.mark.promise(
    "registry", "`produce` and `consume` exchange records with confluent-kafka's serializers, both ways"
)
def test_keys_and_values_each_have_their_schema(run, broker, client, topic, schema_file):
    run("produce", topic, "--key-separator", "|", "--key-subject", f"{topic}-names",
        "--key-format", "avro", "--key-schema", schema_file('"string"', "key"),
        "--value-format", "json-schema", "--value-schema", schema_file('{"type": "integer"}'),
        stdin='"ann"|3\n"bob"|4\n')  # fmt: skip
    assert client.get_versions(f"{topic}-names") == [1]
    shown = run("consume", topic, "--key-format", "avro", "--value-format", "json-schema", "--keys").stdout
    assert shown == '"ann"\t3\n"bob"\t4\n'


def test_which_schema_is_used(run, broker, client, topic, schema_file):
    def produce(*options, line="1", expect=0):
        return run("produce", topic, "--value-format", "avro", *options, stdin=f"{line}\n", expect=expect)

    missing = produce(expect=1)
    assert f"subject '{topic}-value' does not exist" in missing.stderr and "--value-schema" in missing.stderr
    refused = produce("--value-schema", schema_file('"int"'), "--no-register", expect=1)
    assert "is not registered" in refused.stderr and stored(broker, topic) == []
    produce("--value-schema", schema_file('"int"'))
    produce("--value-schema", schema_file('"int"'), "--no-register")
    produce("--value-schema", schema_file('"long"'))
    produce()  # the latest: long
    first, second = (client.get_version(f"{topic}-value", version).schema_id for version in (1, 2))
    produce("--value-schema-id", str(first))
    ids = [int.from_bytes(data[1:5], "big") for data in stored(broker, topic)]
    assert ids == [first, first, second, second, first]
    clash = produce("--value-schema", schema_file('"string"'), line='"x"', expect=1)
    assert "TYPE_MISMATCH" in clash.stderr and "nothing was registered" in clash.stderr
    assert "0 records" not in clash.stderr
    run("produce", topic, "--value-schema", schema_file('"int"'), expect=2)


@pytest.mark.promise(
    "registry", "`produce` accepts what `consume` prints; an error names the field that does not fit"
)
@pytest.mark.parametrize(
    ("form", "line", "reason"),
    [
        ("avro", '{"id": "x", "price": 1, "at": 0}', "field 'id': \"x\" is not of type long"),
        ("avro", '{"id": 1, "at": 0}', "field 'price': the field is missing"),
        ("avro", '{"id": 1, "price": 1.234, "at": 0}', "more than 2 digits"),
        ("avro", '{"id": 1, "price": 1, "at": "noon"}', "is neither a time in ISO 8601 nor a number"),
        ("avro", '{"id": 1, "price": 1, "at": 0, "nope": 1}', "has no field 'nope'"),
        ("avro", '{"id": 1', "is not JSON"),
        ("json-schema", '{"id": "x"}', "field 'id': 'x' is not of type 'integer'"),
        ("json-schema", "{}", "'id' is a required property"),
        ("protobuf", '{"nope": 1}', 'no field named "nope"'),
        ("protobuf", '{"x": 1.5}', "field"),
    ],
)
def test_a_line_that_does_not_fit_names_its_field(run, broker, topic, schema_file, form, line, reason):
    options = ["--value-format", form, "--value-schema", schema_file(SCHEMAS[form])]
    refused = run("produce", topic, *options, stdin=f"{line}\n", expect=1)
    assert "stdin, line 1: the value" in refused.stderr and reason in refused.stderr
    assert stored(broker, topic) == []


@pytest.mark.promise(
    "registry", "Records that cannot be decoded are reported with their offset, or skipped with a warning"
)
@pytest.mark.parametrize("form", CASES)
def test_poison_records_are_named_or_left_out(run, broker, client, topic, schema_file, form):
    options = ["--value-format", form, "--value-schema", schema_file(SCHEMAS[form])]
    if form == "protobuf":
        options += ["--value-message", "Order"]
    run("produce", topic, *options, stdin=json.dumps(CASES[form]) + "\n")
    (good,) = stored(broker, topic)
    unknown = b"\0\x7f\xff\xff\xff" + good[5:]
    cut = good[:-3]
    send(broker, topic, b"text", unknown, cut, b"", good)
    failed = run("consume", topic, "--value-format", form, expect=1)
    assert json.loads(failed.stdout) == CASES[form]
    assert f"{topic}-0, offset 1: the value does not decode" in failed.stderr
    assert "magic byte" in failed.stderr
    skipped = run("consume", topic, "--value-format", form, "--on-error", "skip")
    assert [json.loads(line) for line in skipped.stdout.splitlines()] == [CASES[form]] * 2
    warnings = [line for line in skipped.stderr.splitlines() if line.startswith("skipped: ")]
    assert [warning.split(", ")[1].split(":")[0] for warning in warnings] == [
        "offset 1", "offset 2", "offset 3", "offset 4"]  # fmt: skip
    assert "no schema with the id 2147483647" in warnings[1]
    assert "4 records did not decode" in skipped.stderr
    other = "avro" if form != "avro" else "protobuf"
    assert "is of type" in run("consume", topic, "--value-format", other, expect=1).stderr


def test_a_registry_that_is_away_is_said_so(run, broker, topic):
    send(broker, topic, b"\0\0\0\0\1\2")
    away = ["--value-format", "avro", "--registry", "http://127.0.0.1:1"]
    assert "cannot reach a schema registry" in run("consume", topic, *away, expect=1).stderr
    refused = run("produce", topic, *away, stdin="1\n", expect=1)
    assert "cannot reach a schema registry" in refused.stderr and "written" not in refused.stderr


@pytest.mark.promise(
    "registry", "`produce` and `consume` exchange records with confluent-kafka's serializers, both ways"
)
def test_references_are_followed(run, broker, client, topic, schema_file):
    run("schemas", "register", f"{topic}-money", schema_file('{"type":"record","name":"Money","fields":['
        '{"name":"cents","type":"long"}]}'), "--type", "avro")  # fmt: skip
    bill = '{"type":"record","name":"Bill","fields":[{"name":"sum","type":"Money"}]}'
    run("produce", topic, "--value-format", "avro", "--value-schema", schema_file(bill),
        "--value-reference", f"Money={topic}-money:1", stdin='{"sum":{"cents":5}}\n')  # fmt: skip
    assert run("consume", topic, "--value-format", "avro").stdout == '{"sum":{"cents":5}}\n'
