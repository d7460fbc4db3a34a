"""Converters: Connect's values to bytes and back."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
from typing import Any

import pytest

from penstock.connect.api import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    DATE_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    DataError,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from penstock.connect.converters import CONVERTERS, avro_data, json_schema_data, protobuf_data
from penstock.connect.converters.inferred import infer
from penstock.connect.converters.json import JsonConverter
from penstock.registry.formats import parse
from penstock.registry.serdes.framing import frame, take_apart

EVERYTHING = struct_schema(
    {
        "small": INT8_SCHEMA,
        "whole": INT64_SCHEMA,
        "number": FLOAT64_SCHEMA,
        "flag": BOOLEAN_SCHEMA,
        "text": STRING_SCHEMA.as_optional(),
        "data": BYTES_SCHEMA,
        "price": decimal_schema(2),
        "day": DATE_SCHEMA,
        "time": TIME_SCHEMA,
        "at": TIMESTAMP_SCHEMA,
        "tags": array_schema(STRING_SCHEMA),
        "counts": map_schema(STRING_SCHEMA, INT32_SCHEMA),
        "inner": struct_schema({"x": INT32_SCHEMA}, name="inner").as_optional(),
    },
    name="everything",
    version=3,
)
VALUE: dict[str, Any] = {
    "small": -5,
    "whole": 1 << 40,
    "number": 1.5,
    "flag": True,
    "text": None,
    "data": b"\x00\xff",
    "price": decimal.Decimal("-12.34"),
    "day": datetime.date(2024, 2, 29),
    "time": datetime.time(12, 30, 1, 5000),
    "at": datetime.datetime(2024, 2, 29, 12, 30, 0, 7000, tzinfo=datetime.UTC),
    "tags": ["a", "b"],
    "counts": {"a": 1},
    "inner": {"x": 7},
}


@pytest.mark.promise("connect", "JSON, Avro, JSON Schema and Protobuf keep values unchanged")
def test_json_with_schemas_keeps_every_type() -> None:
    converter = CONVERTERS["json"]({})
    data = converter.to_bytes("t", EVERYTHING, VALUE)
    assert data is not None
    envelope = json.loads(data)
    assert envelope.keys() == {"schema", "payload"}
    assert envelope["schema"]["fields"][0] == {"type": "int8", "optional": False, "field": "small"}
    assert envelope["payload"]["price"] == "+y4=" and envelope["payload"]["day"] == 19782
    assert converter.from_bytes("t", data) == (EVERYTHING, VALUE)
    assert converter.from_bytes("t", None) == (None, None)
    with pytest.raises(DataError, match='requires "schema" and "payload" fields'):
        converter.from_bytes("t", b'{"a":1}')


def test_json_without_schemas_is_plain() -> None:
    converter = CONVERTERS["json"]({"schemas.enable": "false"})
    assert converter.to_bytes("t", None, {"a": [1, None]}) == b'{"a":[1,null]}'
    assert converter.from_bytes("t", b'{"a":1}') == (None, {"a": 1})
    assert converter.to_bytes("t", STRING_SCHEMA, "x") == b'"x"'
    assert converter.to_bytes("t", None, None) is None


@pytest.mark.promise("connect", "JSON, Avro, JSON Schema and Protobuf keep values unchanged")
@pytest.mark.parametrize("form", ["BASE64", "NUMERIC"])
@pytest.mark.parametrize("text", ["12345678901234567890123456789012345678.25", "-0.10", "0.30", "9" * 60])
def test_json_keeps_all_digits_of_a_decimal(form: str, text: str) -> None:
    schema = struct_schema({"price": decimal_schema(2), "rate": FLOAT64_SCHEMA})
    value = {"price": decimal.Decimal(text), "rate": 0.5}
    converter = CONVERTERS["json"]({"decimal.format": form})
    data = converter.to_bytes("t", schema, value)
    assert data is not None and converter.from_bytes("t", data) == (schema, value)
    if form == "NUMERIC":
        assert f'"payload":{{"price":{text},"rate":0.5}}'.encode() in data
        plain = CONVERTERS["json"]({"decimal.format": form, "schemas.enable": "false"})
        assert plain.to_bytes("t", schema, value) == f'{{"price":{text},"rate":0.5}}'.encode()


def test_numbers_that_are_not_finite_are_names_in_json() -> None:
    schema = struct_schema({"a": FLOAT64_SCHEMA, "b": FLOAT64_SCHEMA})
    value = {"a": float("inf"), "b": float("-inf")}
    converter = CONVERTERS["json"]({})
    data = converter.to_bytes("t", schema, value)
    assert data is not None and b'"payload":{"a":"Infinity","b":"-Infinity"}' in data
    assert converter.from_bytes("t", data) == (schema, value)
    plain = CONVERTERS["json"]({"schemas.enable": "false"})
    assert plain.to_bytes("t", None, {"a": [float("nan")]}) == b'{"a":["NaN"]}'


@pytest.mark.parametrize(
    "bad", [{**VALUE, "small": 300}, {**VALUE, "text": 5}, {**VALUE, "whole": None}, {**VALUE, "inner": 1}]
)
def test_a_value_that_is_not_of_its_schema_is_refused_with_the_field(bad: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"value\.(small|text|whole|inner)"):
        CONVERTERS["json"]({}).to_bytes("t", EVERYTHING, bad)


def test_text_bytes_and_numbers() -> None:
    text = CONVERTERS["org.apache.kafka.connect.storage.StringConverter"]({})
    assert text.to_bytes("t", None, "ä") == "ä".encode() and text.from_bytes("t", b"x")[1] == "x"
    with pytest.raises(DataError, match="Failed to deserialize string"):
        text.from_bytes("t", b"\xff")
    raw = CONVERTERS["bytes"]({})
    assert raw.to_bytes("t", None, b"x") == b"x" and raw.from_bytes("t", b"x")[1] == b"x"
    with pytest.raises(DataError, match="not compatible with objects of type str"):
        raw.to_bytes("t", None, "x")
    whole = CONVERTERS["org.apache.kafka.connect.converters.LongConverter"]({})
    assert whole.to_bytes("t", None, 1) == b"\0\0\0\0\0\0\0\1" and whole.from_bytes("t", b"\0" * 8)[1] == 0
    with pytest.raises(DataError, match="is not 8"):
        whole.from_bytes("t", b"\0")


@pytest.mark.promise("connect", "JSON, Avro, JSON Schema and Protobuf keep values unchanged")
def test_avro_keeps_every_type() -> None:
    avro = avro_data.to_avro(EVERYTHING)
    assert avro["fields"][0]["type"] == {"type": "int", "connect.type": "int8"}
    assert avro["fields"][4]["type"] == ["null", "string"]
    data = avro_data.encoder(avro, EVERYTHING)(VALUE)
    schema, value = avro_data.decoder(json.loads(json.dumps(avro)))(memoryview(data))
    assert value == VALUE
    assert schema is not None and schema.field("at") == TIMESTAMP_SCHEMA
    assert schema.field("small") == INT8_SCHEMA and schema.field("price") == decimal_schema(2)


@pytest.mark.promise("connect", "JSON, Avro, JSON Schema and Protobuf keep values unchanged")
def test_json_schema_keeps_every_type() -> None:
    text = json_schema_data.to_json_schema(EVERYTHING)
    assert text["properties"]["text"] == {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 4}
    data = json_schema_data.encoder(EVERYTHING)(VALUE)
    schema, value = json_schema_data.decoder(json.loads(json.dumps(text)))(memoryview(data))
    assert (schema, value) == (EVERYTHING, VALUE)


def test_protobuf_keeps_messages_that_are_named_as_their_fields() -> None:
    inner = struct_schema({"x": INT32_SCHEMA}, name="inner")
    schema = struct_schema(
        {
            "inner": inner,
            "other": inner.as_optional(),
            "at": TIMESTAMP_SCHEMA,
            "tags": array_schema(STRING_SCHEMA),
        },
        name="package.Outer",
    )
    value = {"inner": {"x": 1}, "other": None, "at": VALUE["at"], "tags": ["a"]}
    parsed = parse("PROTOBUF", protobuf_data.to_proto(schema))
    data = frame(1, protobuf_data.encoder(parsed, schema)(value))
    found, read = protobuf_data.decoder(parsed)(take_apart(data, "value"))
    assert read == value
    assert found is not None and found.name == "package.Outer" and found.field("tags") == schema.field("tags")


def test_a_schema_is_inferred_where_there_is_none() -> None:
    found = infer({"a": 1, "b": [1.5], "c": None, "d": {"e": True}})
    assert [each.schema.type.value for each in found.fields] == ["int64", "array", "string", "struct"]
    with pytest.raises(DataError, match="has no schema"):
        infer(object())


@pytest.mark.parametrize("replaced", ["true", "false"])
def test_json_has_defaults_for_nulls_if_it_is_asked_to(replaced: str) -> None:
    converter = JsonConverter({"replace.null.with.default": replaced})
    texts = []
    for default in ("a", "b"):
        schema = struct_schema({"x": STRING_SCHEMA.as_optional().with_default(default)})
        data = converter.to_bytes("t", schema, {"x": None})
        found = json.loads(data or b"")
        texts.append((found["schema"]["fields"][0]["default"], found["payload"]["x"]))
        raw = json.dumps({**found, "payload": {"x": None}}).encode()
        assert converter.from_bytes("t", raw)[1] == {"x": default if replaced == "true" else None}
    assert texts == ([("a", "a"), ("b", "b")] if replaced == "true" else [("a", None), ("b", None)])


def test_json_has_the_shortest_text_of_a_number_of_single_precision() -> None:
    single = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert JsonConverter({"schemas.enable": "false"}).to_bytes("t", FLOAT32_SCHEMA, single) == b"0.1"
