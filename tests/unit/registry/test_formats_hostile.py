"""Whatever is sent as a schema, the answer is a schema or `InvalidSchema`, and it comes soon."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.registry.formats import (
    BACKWARD,
    MAX_CHARS,
    SCHEMA_TYPES,
    InvalidSchema,
    ParsedSchema,
    ResolvedReference,
    check,
    parse,
)

KEYWORDS = [
    "type",
    "name",
    "namespace",
    "fields",
    "items",
    "values",
    "symbols",
    "size",
    "default",
    "aliases",
    "doc",
    "order",
    "logicalType",
    "precision",
    "scale",
    "$ref",
    "$id",
    "id",
    "$schema",
    "$anchor",
    "$dynamicRef",
    "definitions",
    "$defs",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "enum",
    "const",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "prefixItems",
    "minimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "pattern",
    "unevaluatedProperties",
]
WORDS = [
    "record",
    "enum",
    "fixed",
    "array",
    "map",
    "int",
    "string",
    "null",
    "object",
    "R",
    "a.b",
    "#",
    "#/definitions/a",
    "#/properties",
    "#/",
    "x.json",
    "http://json-schema.org/draft-04/schema#",
    "https://json-schema.org/draft/2020-12/schema",
    "(a+)+$",
    "[",
    "decimal",
    "",
    "\x00",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYWORDS) | st.text(max_size=2), inner, max_size=5)
    ),
    max_leaves=25,
)
VALID = {
    "AVRO": '{"type":"record","name":"R","fields":[{"name":"f","type":["null",{"type":"array","items":"R"}],'
    '"default":null},{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}}]}',
    "JSON": '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{'
    '"a":{"$ref":"#"},"b":{"type":"array","items":{"enum":[1,"x",null]}}},"required":["a"],"additionalProperties":false}',
    "PROTOBUF": 'syntax = "proto3"; package p; enum E { Z = 0; } message M { E e = 1; map<string, M> m = 2; '
    "oneof o { int32 a = 3; string b = 4 [deprecated = true]; } message N {} reserved 7 to 9; }",
}


def understood(schema_type: str, text: str, *references: ResolvedReference) -> ParsedSchema | None:
    """Parses; a schema that was taken must print, print itself again, and follow itself."""
    try:
        schema = parse(schema_type, text, references)
    except InvalidSchema as error:
        assert str(error) and len(str(error)) < 5000
        return None
    canonical = schema.canonical()
    canonical.encode()
    again = parse(schema_type, canonical, references)
    assert again.canonical() == canonical
    assert again.normalized() == schema.normalized()
    assert check(again, schema, BACKWARD) == []
    return schema


@pytest.mark.promise(
    "registry", "A hostile schema is always rejected as an invalid schema, and never crashes the process"
)
@pytest.mark.fuzz
@settings(max_examples=60)
@given(st.sampled_from(SCHEMA_TYPES), st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text(schema_type: str, text: str) -> None:
    understood(schema_type, text)


@pytest.mark.promise(
    "registry", "A hostile schema is always rejected as an invalid schema, and never crashes the process"
)
@pytest.mark.fuzz
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["AVRO", "JSON"]), json_values)
def test_any_json(schema_type: str, value: Any) -> None:
    understood(schema_type, json.dumps(value))


@pytest.mark.fuzz
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SCHEMA_TYPES), st.integers(0, 400), st.integers(0, 30), st.text(max_size=10))
def test_a_schema_with_a_part_replaced(schema_type: str, at: int, length: int, by: str) -> None:
    text = VALID[schema_type]
    understood(schema_type, text[:at] + by + text[at + length :])


@pytest.mark.promise(
    "registry", "A hostile schema is always rejected as an invalid schema, and never crashes the process"
)
@pytest.mark.fuzz
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=60), st.integers(0, 300), st.binary(max_size=6))
def test_any_descriptor(noise: bytes, at: int, by: bytes) -> None:
    understood("PROTOBUF", base64.b64encode(noise).decode())
    valid = base64.b64decode(parse("PROTOBUF", VALID["PROTOBUF"]).formatted("serialized"))
    understood("PROTOBUF", base64.b64encode(valid[:at] + by + valid[at + len(by) :]).decode())


@pytest.mark.fuzz
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SCHEMA_TYPES), st.text(max_size=20), st.text(max_size=20), st.integers())
def test_any_reference(schema_type: str, name: str, text: str, version: int) -> None:
    for schema in (text, VALID[schema_type]):
        try:
            parse(schema_type, VALID[schema_type], [ResolvedReference(name, "s", version, schema)])
        except InvalidSchema:
            pass


@pytest.mark.parametrize("schema_type", SCHEMA_TYPES)
def test_ten_megabytes_are_refused_at_once(schema_type: str) -> None:
    for text in ("x" * 10_000_000, VALID[schema_type] + " " * 10_000_000, "{" * 10_000_000):
        with pytest.raises(InvalidSchema, match=f"at most {MAX_CHARS}"):
            parse(schema_type, text, ())


DEPTH = 30_000
DEEP = {
    "AVRO arrays": ("AVRO", '{"type":"array","items":' * DEPTH + '"int"' + "}" * DEPTH),
    "AVRO brackets": ("AVRO", "[" * MAX_CHARS),
    "AVRO property": ("AVRO", '{"type":"int","x":' + "[" * DEPTH + "]" * DEPTH + "}"),
    "AVRO records": (
        "AVRO",
        "".join(f'{{"type":"record","name":"R{i}","fields":[{{"name":"f","type":' for i in range(5000)),
    ),
    "JSON not": ("JSON", '{"not":' * DEPTH + "{}" + "}" * DEPTH),
    "JSON not, shallower": ("JSON", '{"not":' * 350 + "{}" + "}" * 350),
    "JSON enum": ("JSON", '{"enum":[' + "[" * DEPTH + "]" * DEPTH + "]}"),
    "JSON braces": ("JSON", '{"a":' * (MAX_CHARS // 5)),
    "PROTOBUF messages": ("PROTOBUF", 'syntax = "proto3";' + "message A {" * DEPTH + "}" * DEPTH),
    "PROTOBUF braces": ("PROTOBUF", "{" * MAX_CHARS),
    "PROTOBUF option": (
        "PROTOBUF",
        'syntax = "proto2"; option (x) = ' + "{a:" * DEPTH + "1" + "}" * DEPTH + ";",
    ),
    "PROTOBUF option list": (
        "PROTOBUF",
        'syntax = "proto2"; import "google/protobuf/descriptor.proto"; message O { optional O o = 1; } '
        "extend google.protobuf.FileOptions { optional O x = 50000; } option (x) = "
        + "{o:" * DEPTH
        + "}" * DEPTH
        + ";",
    ),
}


@pytest.mark.promise(
    "registry", "A hostile schema is always rejected as an invalid schema, and never crashes the process"
)
@pytest.mark.parametrize(("schema_type", "text"), DEEP.values(), ids=DEEP)
def test_deep_nesting_is_refused(schema_type: str, text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(schema_type, text, ())


def test_a_deep_descriptor_is_refused() -> None:
    message = descriptor_pb2.DescriptorProto(name="M")
    for _ in range(60):
        outer = descriptor_pb2.DescriptorProto(name="M")
        outer.nested_type.append(message)
        message = outer
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    file.message_type.append(message)
    with pytest.raises(InvalidSchema):
        parse("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), ())


def test_defaults_that_multiply_are_checked_in_no_time() -> None:
    """Each record has two fields with a default of the one before: 2^40 values, if all were followed."""
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int", "default": 1}]}
    fields = [{"name": "f0", "type": schema}]
    for i in range(1, 40):
        inner = [{"name": name, "type": f"R{i - 1}", "default": {}} for name in "ab"]
        fields.append({"name": f"f{i}", "type": {"type": "record", "name": f"R{i}", "fields": inner}})
    parse("AVRO", json.dumps({"type": "record", "name": "Top", "fields": fields}), ())


def test_reasons_that_multiply_are_cut() -> None:
    """Each type uses the one before twice: two to the power of forty places where the same is wrong."""

    def doubling(leaf: str) -> ParsedSchema:
        fields: list[Any] = [
            {"name": "f0", "type": {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}}
        ]
        for i in range(1, 40):
            inner = [{"name": name, "type": f"R{i - 1}"} for name in "ab"]
            fields.append({"name": f"f{i}", "type": {"type": "record", "name": f"R{i}", "fields": inner}})
        return parse("AVRO", json.dumps({"type": "record", "name": "Top", "fields": fields}), ())

    assert 0 < len(check(doubling("int"), doubling("string"), BACKWARD)) <= 1000

    def doubling_json(leaf: str) -> ParsedSchema:
        definitions: dict[str, Any] = {"d0": {"type": leaf}}
        for i in range(1, 40):
            definitions[f"d{i}"] = {
                "properties": {name: {"$ref": f"#/definitions/d{i - 1}"} for name in "ab"}
            }
        return parse("JSON", json.dumps({"$ref": "#/definitions/d39", "definitions": definitions}), ())

    assert 0 < len(check(doubling_json("integer"), doubling_json("string"), BACKWARD)) <= 1000


def test_a_comparison_that_would_not_end_is_given_up() -> None:
    def branches(keyword: str) -> ParsedSchema:
        return parse("JSON", json.dumps({"anyOf": [{keyword: i} for i in range(300)]}), ())

    assert "TOO_COMPLEX" in check(branches("minLength"), branches("maxLength"), BACKWARD)[0]


def test_long_chains_of_types_are_compared_to_their_end() -> None:
    def chain(leaf: str) -> ParsedSchema:
        names = [{"type": "record", "name": "R0", "fields": [{"name": "f", "type": leaf}]}]
        names += [
            {"type": "record", "name": f"R{i}", "fields": [{"name": "f", "type": f"R{i - 1}"}]}
            for i in range(1, 3000)
        ]
        reference = ResolvedReference("chain", "chain", 1, json.dumps(names))
        top = {"type": "record", "name": "Top", "fields": [{"name": "f", "type": "R2999"}]}
        return parse("AVRO", json.dumps(top), [reference])

    assert check(chain("long"), chain("int"), BACKWARD) == []
    assert len(check(chain("int"), chain("long"), BACKWARD)) in (0, 1)


def test_importing_the_seam_imports_no_library_of_a_format() -> None:
    code = (
        "import sys, penstock.registry.formats as f; f.parse('AVRO', '\"int\"');"
        "heavy = {'jsonschema', 'referencing', 'google.protobuf', 'grpc_tools'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_protobuf_schema_of_one_long_line_takes_time_in_proportion():
    """Thousands of names on one line, and of oneofs in one message: looked at once each."""
    messages = "".join(
        f"message M{i}\t{{ M{max(i - 1, 0)} before = 1; map<string, M{i}> others = 2; }}" for i in range(3000)
    )
    oneofs = "".join(f"oneof o{i} {{ int32 a{i} = {i + 1}; }}" for i in range(12_000))
    text = f'syntax = "proto3"; {messages} message Last {{ {oneofs} }}'
    old, new = parse("PROTOBUF", text, ()), parse("PROTOBUF", text + " message More {}", ())
    assert "map<string, M2999> others = 2;" in old.canonical()
    normalized = old.normalized()
    assert normalized.index("oneof o11999 ") > normalized.index("oneof o9 ")
    assert check(new, old, BACKWARD) == []


def test_many_patterns_and_many_names_are_too_complex_soon():
    patterns = {f"^p{i}a*$": {"type": "string"} for i in range(3000)}
    names = {f"q{i}": {"type": "string"} for i in range(3000)}
    old = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    new = {"type": "object", "patternProperties": patterns, "properties": names}
    one, other = (parse("JSON", json.dumps(schema), ()) for schema in (old, new))
    assert "TOO_COMPLEX" in check(other, one, BACKWARD)[0]
