"""Values of the three formats from and to JSON, and the framing of Confluent's serializers."""

from __future__ import annotations

import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.registry.formats import ResolvedReference, parse
from penstock.registry.serdes.avro import AvroJson
from penstock.registry.serdes.framing import Undecodable, frame, read_indexes, take_apart, write_indexes
from penstock.registry.serdes.json_schema import CheckedJson
from penstock.registry.serdes.protobuf import ProtobufJson
from penstock.registry.serdes.values import Unencodable

RECORD = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}


def avro(schema) -> AvroJson:
    return AvroJson(parse("AVRO", json.dumps(schema)))


@pytest.mark.promise(
    "registry", "`produce` accepts what `consume` prints; an error names the field that does not fit"
)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("double", 1.5),
        ("double", "nan"),
        ("string", "ä€"),
        ("bytes", "\u0000ÿ"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab"),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y"),
        ({"type": "array", "items": "int"}, [1, 2]),
        ({"type": "map", "values": "string"}, {"a": "b"}),
        (["null", "string"], None),
        (["null", "string"], "x"),
        (["null", {"type": "map", "values": {"type": "map", "values": "int"}}], {"map": {"a": 1}}),
        (["null", "string", "long"], {"long": 1}),
        (["string", {"type": "enum", "name": "E", "symbols": ["X"]}], {"E": "X"}),
        (["string", {"type": "enum", "name": "E", "symbols": ["X"]}], {"string": "X"}),
        ([{"type": "enum", "name": "E", "symbols": ["X"]}, "string"], {"string": "X"}),
        (["null", RECORD, {**RECORD, "name": "n.B"}], {"n.B": {"x": 1}}),
        (["null", RECORD], {"x": 1}),
        ({"type": "int", "logicalType": "date"}, "2024-02-29"),
        ({"type": "int", "logicalType": "time-millis"}, "23:59:59.123000"),
        ({"type": "long", "logicalType": "time-micros"}, "00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "1969-12-31T23:59:59.999Z"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "2024-05-01T12:00:00.000001Z"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**62),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "2024-05-01T12:00:00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "-1.28"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "327.68"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}, "1234567890" * 3 + "1.25"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, "-129"),
        ({"type": "string", "logicalType": "uuid"}, "not checked"),
        (
            {"type": "record", "name": "Tree", "fields": [
                {"name": "value", "type": "int"},
                {"name": "below", "type": {"type": "array", "items": "Tree"}}]},
            {"value": 1, "below": [{"value": 2, "below": []}]},
        ),
    ],
)  # fmt: skip
def test_what_is_printed_of_an_avro_value_is_taken_back(schema, value):
    serde = avro(schema)
    data = serde.encode(value)
    assert serde.decode(data) == value
    assert serde.encode(serde.decode(data)) == data


@pytest.mark.parametrize(
    ("schema", "given_", "printed"),
    [
        (["null", "string"], {"string": "x"}, "x"),
        (["null", "string", "long"], 1, {"long": 1}),
        (["null", {**RECORD, "name": "n.B"}], {"B": {"x": 1}}, {"x": 1}),
        ({"type": "long", "logicalType": "timestamp-millis"}, 250, "1970-01-01T00:00:00.250Z"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "1970-01-01T01:00:00+01:00",
         "1970-01-01T00:00:00.000Z"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, 5, "5.00"),
        ("double", 1, 1.0),
        ({"type": "record", "name": "R", "fields": [
            {"name": "a", "type": ["null", "string"], "default": None},
            {"name": "b", "type": ["string", "null"], "default": "x"},
            {"name": "c", "type": "bytes", "default": "ÿ"}]}, {}, {"a": None, "b": "x", "c": "ÿ"}),
    ],
)  # fmt: skip
def test_other_spellings_of_avro_values_are_taken(schema, given_, printed):
    serde = avro(schema)
    assert serde.decode(serde.encode(given_)) == printed


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", 2**31, "does not fit"),
        ("int", True, "true is not of type int"),
        ("int", 1.5, "1.5 is not of type int"),
        ("string", 1, "1 is not of type string"),
        (["null", "int"], "x", '"x" is not of type int'),
        (["null", "int", "string"], 1.5, "1.5 is not of type null or int or string"),
        ("bytes", "€", "beyond U+00FF"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "Y", "not a symbol of E"),
        ({"type": "int", "logicalType": "date"}, "29.2.2024", "neither a date"),
        (
            {"type": "map", "values": {"type": "array", "items": RECORD}},
            {"k": [{"x": "y"}]},
            "field 'k[0].x'",
        ),
    ],
)
def test_what_does_not_fit_an_avro_schema_is_refused(schema, value, reason):
    with pytest.raises(Unencodable) as refused:
        avro(schema).encode(value)
    assert reason in str(refused.value)


def test_avro_bytes_are_those_of_fastavro():
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}]}  # fmt: skip
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"a": 300, "b": "x"})
    assert avro(schema).encode({"a": 300, "b": "x"}) == out.getvalue()


@pytest.mark.promise(
    "registry", "Records that cannot be decoded are reported with their offset, or skipped with a warning"
)
@given(st.binary(max_size=60))
def test_no_bytes_are_another_error_than_undecodable(data):
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": ["null", "string", {"type": "enum", "name": "E", "symbols": ["X"]}]},
        {"name": "b", "type": {"type": "map", "values": "double"}},
        {"name": "c", "type": {"type": "int", "logicalType": "date"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}}]}  # fmt: skip
    for decode in (avro(schema).decode, CheckedJson("{}", ()).decode):
        try:
            decode(data)
        except Undecodable:
            pass
    proto = ProtobufJson(parse("PROTOBUF", 'syntax = "proto3"; message M { M m = 1; string s = 2; }'))
    try:
        proto.decode(take_apart(b"\0\0\0\0\1" + data, "value"))
    except Undecodable:
        pass


def test_a_json_schemas_references_are_followed_when_a_value_is_checked():
    money = ResolvedReference("money.json", "money", 1, '{"type": "object", "required": ["cents"]}')
    serde = CheckedJson('{"type": "object", "properties": {"sum": {"$ref": "money.json"}}}', (money,))
    assert serde.decode(serde.encode({"sum": {"cents": 1}})) == {"sum": {"cents": 1}}
    with pytest.raises(Unencodable, match="field 'sum': 'cents' is a required property"):
        serde.encode({"sum": {}})


def test_protobufs_well_known_types_have_their_json():
    serde = ProtobufJson(parse("PROTOBUF", """
        syntax = "proto3";
        import "google/protobuf/timestamp.proto";
        import "google/protobuf/wrappers.proto";
        import "google/protobuf/struct.proto";
        message M {
          google.protobuf.Timestamp at = 1;
          google.protobuf.Int64Value maybe = 2;
          google.protobuf.Struct any = 3;
          map<string, bytes> blobs = 4;
        }"""))  # fmt: skip
    value = {
        "at": "2024-05-01T12:00:00.250Z",
        "maybe": "7",
        "any": {"a": [1.0, None]},
        "blobs": {"k": "AAE="},
    }
    data = frame(1, serde.encode(value, "M"))
    assert serde.decode(take_apart(data, "value")) == value


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (3, 2, 1), (100, 5)])
def test_message_indexes_come_back(indexes):
    data = frame(7, b"rest", indexes)
    framed = take_apart(data, "value")
    found, payload = read_indexes(framed)
    assert (framed.schema_id, found, bytes(payload)) == (7, indexes, b"rest")
    assert write_indexes((0,)) == b"\0"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0", b"\2\0\0\0\0\0", b"text, no more"])
def test_bytes_without_a_schema_id_are_told_so(data):
    with pytest.raises(Undecodable, match="magic byte"):
        take_apart(data, "value")


def test_a_header_names_the_schema_before_the_payload_does():
    guid = bytes(range(16))
    framed = take_apart(b"payload", "key", [("__value_schema_id", b"x"), ("__key_schema_id", b"\1" + guid)])
    assert framed.guid == "00010203-0405-0607-0809-0a0b0c0d0e0f" and bytes(framed.payload) == b"payload"
    framed = take_apart(b"payload", "value", [("__value_schema_id", b"\0\0\0\0\7")])
    assert framed.schema_id == 7 and bytes(framed.payload) == b"payload"
    with pytest.raises(Undecodable, match="header"):
        take_apart(b"payload", "value", [("__value_schema_id", b"\5")])
