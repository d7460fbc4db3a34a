"""Transforms and the JSON converter beside Apache Kafka's classes, for the same records."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.api import ConnectError, SinkRecord
from penstock.connect.converters.json import JsonConverter
from penstock.connect.plugins import transform_class
from tests.tools import kafka_jars

PROGRAM = Path(__file__).with_name("ConnectTransforms.java")
AT = 1709209800123
PLAIN = {"schemas.enable": "false"}
NULLS = {"replace.null.with.default": "false"}
DEFAULTS = {"replace.null.with.default": "true"}
TRANSFORMS = "org.apache.kafka.connect.transforms."


def field(
    name: str, kind: str, default: Any = None, /, *, optional: bool = True, **more: Any
) -> dict[str, Any]:
    given = {} if default is None else {"default": default}
    return {"field": name, "type": kind, "optional": optional, **given, **more}


ADDRESS = [field("city", "string", "Ulm"), field("zip", "int32")]
STRUCT = {
    "type": "struct",
    "optional": False,
    "fields": [
        field("name", "string", "nobody"),
        field("age", "int32", 42),
        field("height", "double", 1.5, optional=False),
        field("seen", "int64", 86400000, name="org.apache.kafka.connect.data.Timestamp", version=1),
        field("note", "string"),
        field("address", "struct", fields=ADDRESS),
    ],
}
EMPTY = {"name": None, "age": None, "height": None, "seen": None, "note": None}
ROWS: list[Any] = [
    {**EMPTY, "address": {"city": None, "zip": None}},
    {**EMPTY, "address": None},
    {"name": "Ada", "age": 36, "height": 1.7, "seen": 1, "note": "x", "address": {"city": "Bonn", "zip": 5}},
]


def envelope(row: Any) -> str:
    return json.dumps({"schema": STRUCT, "payload": row})


class Kafka:
    """The program with Kafka's classes: an answer for each record."""

    def __init__(self, jars: Path) -> None:
        self._process = subprocess.Popen(
            ["java", *kafka_jars.JVM_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
            + ["-cp", f"{jars}/*", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    try:
        jars = kafka_jars.fetch_connect(os.environ.get("PYTEST_XDIST_TESTRUNUID", ""))
    except kafka_jars.NotFetched as error:
        pytest.skip(str(error))
    started = Kafka(jars)
    yield started
    started.close()


def ours(asked: Mapping[str, Any]) -> dict[str, Any]:
    source, target = (JsonConverter(asked[side]) for side in ("from", "to"))
    data = [None if asked[part] is None else asked[part].encode() for part in ("key", "value")]
    try:
        (key_schema, key), (value_schema, value) = (source.from_bytes("t", each) for each in data)
        record: Any = SinkRecord("t", 3, 7, value, key, value_schema, key_schema, timestamp=AT)
        if asked["type"]:
            record = transform_class(TRANSFORMS + asked["type"])(asked["config"]).apply(record)
        if record is None:
            return {}
        parts = [(record.key_schema, record.key), (record.value_schema, record.value)]
        parts += [(each.schema, each.value) for each in record.headers]
        texts = [target.to_bytes("t", *each) for each in parts]
    except (ConnectError, ValueError) as error:
        return {"error": str(error)}
    written = [None if each is None else each.decode() for each in texts]
    headers = [[each.key, text] for each, text in zip(record.headers, written[2:], strict=True)]
    return {"topic": record.topic, "key": written[0], "value": written[1], "headers": headers}


def parsed(answer: dict[str, Any]) -> dict[str, Any]:
    """For comparison: texts as what they say, and errors without their words."""
    if "error" in answer:
        return {"error": True}
    return {
        **answer,
        **{part: json.loads(answer[part] or "null") for part in ("key", "value") if part in answer},
        "headers": [[name, json.loads(text or "null")] for name, text in answer.get("headers", ())],
    }


def compare(
    kafka: Kafka, kind: str, config: Mapping[str, str], value: str | None, key: str | None = None, **more: Any
) -> dict[str, Any]:
    asked = {"type": kind, "config": config, "key": key, "value": value, "timestamp": AT}
    asked |= {"from": NULLS, "to": NULLS, **more}
    theirs, here = kafka.answer(asked), ours(asked)
    assert parsed(here) == parsed(theirs), f"{kind} {config} of {value}: {here} instead of {theirs}"
    return parsed(here)


CONVERTED: list[tuple[str, dict[str, str]]] = [
    ("Cast$Value", {"spec": "age:string,height:int64"}),
    ("ExtractField$Value", {"field": "name"}),
    ("ExtractField$Value", {"field": "address.city", "field.syntax.version": "V2"}),
    ("ExtractField$Value", {"field": "note"}),
    ("HeaderFrom$Value", {"fields": "name,age", "headers": "a,b", "operation": "copy"}),
    ("HeaderFrom$Value", {"fields": "name,note", "headers": "a,b", "operation": "move"}),
    ("InsertField$Value", {"static.field": "new", "static.value": "v", "topic.field": "t!"}),
    ("MaskField$Value", {"fields": "name,age"}),
    ("MaskField$Value", {"fields": "name", "replacement": "***"}),
    ("ReplaceField$Value", {"exclude": "age", "renames": "name:who"}),
    ("TimestampConverter$Value", {"field": "seen", "target.type": "string", "format": "yyyy-MM-dd"}),
    ("TimestampConverter$Value", {"field": "seen", "target.type": "unix"}),
    ("ValueToKey", {"fields": "name,height,note"}),
]


@pytest.mark.promise(
    "connect",
    "`replace.null.with.default` of the JSON converter and of transforms has the effect that it has in "
    "Apache Kafka 4.1",
)
@pytest.mark.parametrize("kind, config", CONVERTED, ids=[f"{kind}-{config}" for kind, config in CONVERTED])
def test_nulls_become_defaults_where_kafka_says_so(kafka: Kafka, kind: str, config: dict[str, str]) -> None:
    differ = False
    for row in ROWS:
        # Nulls of fields that are not optional fail where they are written, unless the default replaces them.
        row = {**row, "height": row["height"] or 2.5}
        found = [
            compare(kafka, kind, {**config, **replaced}, envelope(row)) for replaced in ({}, DEFAULTS, NULLS)
        ]
        assert found[0] == found[1]
        differ |= found[1] != found[2]
    assert differ or config.get("field") == "note"


@pytest.mark.parametrize("source", [{}, DEFAULTS, NULLS], ids=["unset", "true", "false"])
@pytest.mark.parametrize("target", [{}, DEFAULTS, NULLS, PLAIN, {**PLAIN, **NULLS}], ids=str)
def test_the_json_converter_reads_and_writes_nulls_as_kafka(
    kafka: Kafka, source: dict[str, str], target: dict[str, str]
) -> None:
    for row in ROWS:
        compare(kafka, "", {}, envelope(row), **{"from": source, "to": target})


LOGICAL = "org.apache.kafka.connect.data."
VALUES: list[tuple[dict[str, Any], list[Any]]] = [
    ({"type": "string"}, ["5", "+5", "-3.7", "abc", "TRUE", " 5", "5 ", "1e3"]),
    (
        {"type": "string"},
        ["300", "1_0", "NaN", "1.5f", "", "0.1"],
    ),
    ({"type": "double"}, [1.5, -1.5, 1e300, 3e9, 0.1, 1e7, 12345678.5, 9999999.5]),
    (
        {"type": "double"},
        [0.001, 0.00012, 1e-300, 2.0],
    ),
    ({"type": "float"}, [0.5, 16777216, 3.5e9, 0.25, 0.1, 1.1e-5]),
    ({"type": "int64"}, [300, -1, 3_000_000_000, 0, 2**63 - 1]),
    ({"type": "int8"}, [-128, 127]),
    ({"type": "boolean"}, [True, False]),
    ({"type": "bytes"}, ["aGk="]),
    ({"type": "bytes", "name": f"{LOGICAL}Decimal", "version": 1, "parameters": {"scale": "2"}}, ["MDk="]),
    ({"type": "int32", "name": f"{LOGICAL}Date", "version": 1}, [19000]),
    ({"type": "int32", "name": f"{LOGICAL}Time", "version": 1}, [3_600_001]),
    ({"type": "int64", "name": f"{LOGICAL}Timestamp", "version": 1}, [3_000_000_000]),
]


@pytest.mark.promise("connect", "`Cast` has the results of Apache Kafka 4.1 for every pair of types")
@pytest.mark.parametrize(
    "kind", ["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]
)
def test_values_are_cast_as_by_kafka(kafka: Kafka, kind: str) -> None:
    for schema, values in VALUES:
        for value in values:
            text = json.dumps({"schema": {"optional": False, **schema}, "payload": value})
            if "name" not in schema:  # a logical type stays in Kafka's new schema, which then fails
                compare(kafka, "Cast$Value", {"spec": kind}, text)
            fields = [{**schema, "field": "x", "optional": True}]
            struct = {"type": "struct", "optional": False, "fields": fields}
            text = json.dumps({"schema": struct, "payload": {"x": value}})
            compare(kafka, "Cast$Value", {"spec": f"x:{kind}"}, text)


@pytest.mark.parametrize(
    "kind, config",
    [
        ("SetSchemaMetadata$Value", {"schema.name": "other", "schema.version": "7"}),
        ("SetSchemaMetadata$Value", {"schema.name": "other", **NULLS}),
        ("SetSchemaMetadata$Key", {"schema.version": "7"}),
        ("Flatten$Value", {"delimiter": "_"}),
        ("HoistField$Value", {"field": "all"}),
        ("InsertField$Value", {"offset.field": "o", "partition.field": "p!", "timestamp.field": "t"}),
        ("InsertField$Value", {"static.field": "new"}),
        ("ExtractField$Value", {"field": "address.zip", "field.syntax.version": "V2"}),
        ("ExtractField$Value", {"field": "nothing"}),
        ("ReplaceField$Value", {"include": "name,address"}),
        ("RegexRouter", {"regex": "(.)", "replacement": "$1-$0"}),
        ("TimestampRouter", {"timestamp.format": "yyyy-MM-dd'T'HH"}),
        ("Filter", {}),
    ],
    ids=str,
)
def test_other_transforms_do_what_those_of_kafka_do(kafka: Kafka, kind: str, config: dict[str, str]) -> None:
    for row in ROWS:
        compare(kafka, kind, config, envelope({**row, "height": row["height"] or 2.5}))
