"""Typed columns without Spark and without a registry: options, types, values that do not fit."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.registry.client import RegisteredSchema, RegistrySettings, Unreachable
from penstock.registry.formats import parse
from penstock.spark.errors import BadOption, DecodeFailed, NotTyped
from penstock.spark.source.options import parse_source_options
from penstock.spark.source.reading import ARROW_SCHEMA_WITH_HEADERS
from penstock.spark.typed.avro import AvroColumn
from penstock.spark.typed.columns import ColumnDecoder, TypedColumns, TypedPart, decoded
from penstock.spark.typed.json_schema import JsonColumn
from penstock.spark.typed.options import TypedOptions
from penstock.spark.typed.protobuf import ProtobufColumn

REGISTRY = {"schema.registry.url": "http://127.0.0.1:1"}
TYPED = {**REGISTRY, "value.format": "avro"}


def typed(**options: str) -> TypedOptions | None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    return parse_source_options(given, streaming=True).typed


@pytest.mark.promise("spark source", "The options `value.subject` and `key.subject` work as documented")
def test_the_schema_is_that_of_the_topic_unless_another_is_named() -> None:
    found = typed(**TYPED, **{"key.format": "json", "key.subject": "keys"})
    assert found is not None
    assert [(part.part, part.subject, part.schema_type) for part in found.parts] == [
        ("key", "keys", "JSON"), ("value", "t-value", "AVRO")]  # fmt: skip
    assert {part.errors for part in found.parts} == {"fail"}
    assert typed() is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"value.format": "avro"}, "requires schema.registry.url"),
        ({**TYPED, "value.format": "xml"}, "value.format must be avro or json or protobuf"),
        (REGISTRY, "schema.registry.url requires value.format"),
        ({"value.schema": "{}"}, "value.schema requires value.format"),
        ({**TYPED, "value.decode.errors": "dead-letter"}, "requires dead.letter.topic"),
        ({**TYPED, "dead.letter.topic": "d"}, "requires value.decode.errors=dead-letter"),
        (
            {**TYPED, "value.decode.errors": "dead-letter", "dead.letter.topic": "t"},
            "is a topic that this query reads",
        ),
        ({**TYPED, "dead.letter.query": "q"}, "dead.letter.query requires dead.letter.topic"),
        ({**TYPED, "value.decode.errors": "ignore"}, "must be fail or dead-letter or skip or null"),
        ({**TYPED, "value.message": "M"}, "requires value.format=protobuf"),
        ({**TYPED, "value.schema.version": "0"}, "must be a number from 1 on"),
        ({**TYPED, "value.schema.version": "1", "value.schema": '"int"'}, "exclude each other"),
        ({**TYPED, "subscribe": "a,b"}, "value.subject or value.schema must say"),
        ({**TYPED, "value.formt": "avro"}, "did you mean value.format"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        typed(**options)


@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"enum": [1, 2, None]}, "bigint"),
        ({"enum": [1, "x"]}, "string"),
        ({"const": True}, "boolean"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "patternProperties": {"^x": {"type": "number"}}}, "map<string,double>"),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}},
                    {"properties": {"b": {"type": "integer"}}},
                ]
            },
            "struct<a:string,b:bigint>",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"type": "object", "properties": {"me": {"$ref": "#"}}}, "struct<me:string>"),
        (True, "string"),
    ],
)
def test_types_of_json_schemas(schema: Any, expected: str) -> None:
    column = JsonColumn(parse("JSON", json.dumps(schema)))  # type: ignore[arg-type]
    assert column.spark_type.simpleString() == expected


@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('"long"', "bigint"),
        ('["null", "int", "long"]', "bigint"),
        ('["float", "double"]', "double"),
        ('["int", "string"]', "struct<member0:int,member1:string>"),
        ('{"type": "long", "logicalType": "local-timestamp-micros"}', "timestamp_ntz"),
        ('{"type": "long", "logicalType": "timestamp-nanos"}', "bigint"),
        ('{"type": "int", "logicalType": "time-millis"}', "int"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 60}', "binary"),
        ('{"type": "string", "logicalType": "uuid"}', "string"),
    ],
)
def test_types_of_avro_schemas(schema: str, expected: str) -> None:
    assert AvroColumn(parse("AVRO", schema)).spark_type.simpleString() == expected  # type: ignore[arg-type]


@pytest.mark.promise(
    "spark source", "Values and keys get typed columns from their schemas, in all three formats"
)
def test_types_of_protobuf_messages() -> None:
    text = """
        syntax = "proto3";
        import "google/protobuf/wrappers.proto";
        import "google/protobuf/struct.proto";
        message M {
          fixed32 a = 1; sint32 b = 2; bool c = 3; bytes d = 4;
          google.protobuf.UInt64Value e = 5;
          google.protobuf.Struct f = 6;
          oneof g { double h = 7; float i = 8; }
          repeated E j = 9;
        }
        enum E { X = 0; }
        message Tree { repeated Tree below = 1; }"""
    schema: Any = parse("PROTOBUF", text)
    assert ProtobufColumn(schema, None).spark_type.simpleString() == (
        "struct<a:bigint,b:int,c:boolean,d:binary,e:decimal(20,0),f:string,h:double,i:float,j:array<string>>"
    )
    with pytest.raises(NotTyped, match=r"Tree contains itself \(Tree -> Tree\)"):
        ProtobufColumn(schema, "Tree")
    with pytest.raises(NotTyped, match="it has M, Tree"):
        ProtobufColumn(schema, "Nope")


# Values


def columns(schema_type: str, schema: str, errors: str = "fail") -> TypedColumns:
    options = typed(
        **{
            **TYPED,
            "value.format": schema_type.lower(),
            "value.schema": schema,
            "value.decode.errors": errors,
            **({"dead.letter.topic": "dead"} if errors == "dead-letter" else {}),
        }
    )
    assert options is not None
    options = replace(options, registry=RegistrySettings("http://127.0.0.1:1", patience=0.0))
    return TypedColumns(options, (TypedPart(options.parts[0], schema, ()),))


def batch(*values: bytes | None) -> pa.RecordBatch:
    rows = len(values)
    arrays = [
        pa.array([None] * rows, pa.binary()), pa.array(values, pa.binary()), pa.array(["t"] * rows),
        pa.array([3] * rows, pa.int32()), pa.array(range(10, 10 + rows), pa.int64()),
        pa.array([0] * rows, pa.timestamp("us", tz="UTC")), pa.array([0] * rows, pa.int32()),
        pa.array([[]] * rows, ARROW_SCHEMA_WITH_HEADERS.field("headers").type),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA_WITH_HEADERS)


def decoder(schema_type: str, schema: str, writer: str, errors: str) -> ColumnDecoder:
    """One that knows the schema of id 1 already."""
    made = ColumnDecoder(columns(schema_type, schema, errors))
    made._client._by_id[1, ""] = RegisteredSchema(1, schema_type, writer)
    return made


def framed(payload: bytes) -> bytes:
    return struct.pack(">bI", 0, 1) + payload


def test_bytes_in_json_are_read_as_they_were_written() -> None:
    text = '{"type": "string", "contentEncoding": "base64"}'
    schema = f'{{"properties": {{"b": {{"oneOf": [{{"type": "null"}}, {text}]}}}}}}'
    done, failures = decoder("JSON", schema, schema, "null").decode(
        batch(framed(b'{"b": "AAH/"}'), framed(b'{"b": null}'), framed(b'{"b": "no base64"}'))
    )
    assert done.column("value").to_pylist() == [{"b": b"\x00\x01\xff"}, {"b": None}, None]
    assert failures[2].reason == "'b' is \"no base64\", not bytes in base64"


@pytest.mark.promise(
    "spark source",
    "A record that cannot be decoded fails the query with its topic, partition and offset, becomes null, "
    "or becomes a dead letter with the reason",
)
def test_a_json_value_that_does_not_fit_its_column_is_found_among_the_others() -> None:
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    good, lossless = framed(b'{"n": 1}'), framed(b'{"n": 2.0}')
    bad = [
        framed(text) for text in (b'{"n": 1.5}', b'{"n": true}', b"[]", b"{", b'{"n": 99999999999999999999}')
    ]
    done, failures = decoder("JSON", schema, schema, "null").decode(batch(good, *bad, lossless, None))
    assert done.column("value").to_pylist() == [{"n": 1}, *[None] * 5, {"n": 2}, None]
    told = {row: failure.reason for row, failure in failures.items()}
    assert sorted(told) == [1, 2, 3, 4, 5]
    assert told[1] == "'n' is 1.5, not a whole number"
    assert told[3] == "the value is [], not an object"
    assert told[4].startswith("it is not JSON") and "does not fit" in told[5]
    assert {failure.schema_id for failure in failures.values()} == {1}


def test_a_failure_names_topic_partition_offset_and_reason() -> None:
    made = decoder("AVRO", '"long"', '"long"', "fail")
    with pytest.raises(DecodeFailed, match=r"^t-3, offset 11: the value does not decode: its 0 bytes end"):
        made.decode(batch(framed(b"\2"), framed(b"")))


@pytest.mark.promise("spark source", "Producers may change their schema while a streaming query runs")
def test_an_avro_value_is_resolved_to_the_reader() -> None:
    writer = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"}, {"name": "u", "type": ["string", "int"]}]}  # fmt: skip
    reader = {"type": "record", "name": "R", "fields": [
        {"name": "b", "type": "bytes", "default": "ÿ"},
        {"name": "a", "type": "double"},
        {"name": "u", "type": ["null", "int", "string"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
         "default": "\u000f"},
        {"name": "s", "type": {"type": "record", "name": "S", "fields": [
            {"name": "x", "type": ["null", {"type": "fixed", "name": "F", "size": 1}], "default": None},
            {"name": "y", "type": "long", "default": 7}]}, "default": {}}]}  # fmt: skip
    made = decoder("AVRO", json.dumps(reader), json.dumps(writer), "fail")
    done, _ = made.decode(batch(framed(b"\2\0\2x"), framed(b"\4\2\6")))
    defaults = {"b": b"\xff", "d": Decimal("1.5"), "s": {"x": None, "y": 7}}
    assert done.column("value").to_pylist() == [
        {"a": 1.0, "u": {"member0": None, "member1": "x"}, **defaults},
        {"a": 2.0, "u": {"member0": 3, "member1": None}, **defaults},
    ]


@pytest.mark.promise(
    "spark source",
    "If the registry does not respond, the task fails, and no record is treated as one that cannot be "
    "decoded",
)
def test_a_registry_that_is_away_is_no_fault_of_the_record() -> None:
    made = columns("AVRO", '"long"', "dead-letter")
    with pytest.raises(Unreachable, match="cannot reach a schema registry"):
        list(decoded(iter([batch(framed(b"\2"))]), made, keep_headers=False, dead_letters=None))
