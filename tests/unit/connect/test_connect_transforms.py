"""Single message transforms, one example each, with and without schemas."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from penstock.connect.api import (
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIMESTAMP_SCHEMA,
    BadConfig,
    DataError,
    Header,
    SinkRecord,
    SourceRecord,
    struct_schema,
)
from penstock.connect.plugins import predicate_class, transform_class
from penstock.connect.transforms.chain import steps

AT = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC)
MS = int(AT.timestamp() * 1000)


def applied(kind: str, record: Any, **config: str) -> Any:
    settings = {f"transforms.t.{name.replace('__', '.')}": value for name, value in config.items()}
    (step,) = steps(
        {"transforms": "t", "transforms.t.type": f"org.apache.kafka.connect.transforms.{kind}", **settings},
        transform_class,
        predicate_class,
    )
    return step(record)


def record(value: Any, schema: Any = None, **more: Any) -> SourceRecord:
    return SourceRecord("topic", value, value_schema=schema, timestamp=MS, **more)


PERSON = struct_schema({"name": STRING_SCHEMA, "age": INT32_SCHEMA})


@pytest.mark.promise("connect", "Transforms work, with predicates, and can be any Python function")
@pytest.mark.parametrize("schema", [None, PERSON])
def test_fields_are_inserted_replaced_masked_and_extracted(schema: Any) -> None:
    person = {"name": "Ada", "age": 36}
    inserted = applied("InsertField$Value", record(person, schema), topic__field="t!", timestamp__field="at")
    assert inserted.value == {**person, "t": "topic", "at": MS if schema is None else AT}
    if schema is not None:
        assert inserted.value_schema.field("t") == STRING_SCHEMA
        assert inserted.value_schema.field("at") == TIMESTAMP_SCHEMA.as_optional()
    replaced = applied("ReplaceField$Value", record(person, schema), exclude="age", renames="name:who")
    assert replaced.value == {"who": "Ada"}
    assert schema is None or [each.name for each in replaced.value_schema.fields] == ["who"]
    assert applied("MaskField$Value", record(person, schema), fields="name,age").value == {
        "name": "",
        "age": 0,
    }
    masked = applied("MaskField$Value", record(person, schema), fields="name", replacement="x")
    assert masked.value == {"name": "x", "age": 36}
    assert applied("ExtractField$Value", record(person, schema), field="age").value == 36
    hoisted = applied("HoistField$Value", record(person, schema), field="person")
    assert hoisted.value == {"person": person}
    keyed = applied("ValueToKey", record(person, schema), fields="name")
    assert keyed.key == {"name": "Ada"} and (schema is None) == (keyed.key_schema is None)


def test_nested_values_are_flattened() -> None:
    inner = struct_schema({"b": INT32_SCHEMA}).as_optional()
    schema = struct_schema({"a": inner, "c": STRING_SCHEMA})
    flat = applied("Flatten$Value", record({"a": {"b": 1}, "c": "x"}, schema), delimiter="_")
    assert flat.value == {"a_b": 1, "c": "x"}
    assert flat.value_schema.field("a_b") == INT32_SCHEMA.as_optional()
    assert applied("Flatten$Value", record({"a": {"b": {"c": 1}}})).value == {"a.b.c": 1}


def test_types_are_cast() -> None:
    cast = applied("Cast$Value", record({"name": "7", "age": 36}, PERSON), spec="name:int64,age:float64")
    assert cast.value == {"name": 7, "age": 36.0}
    assert (cast.value_schema.field("name"), cast.value_schema.field("age")) == (INT64_SCHEMA, FLOAT64_SCHEMA)
    assert applied("Cast$Value", record(300), spec="int8").value == 44, "as Java narrows"
    texts = {AT: "2024-02-29T12:30:00.000Z", b"\x00\xff": "AP8=", True: "true", AT.date(): "2024-02-29"}
    for value, text in texts.items():
        assert applied("Cast$Value", record(value), spec="string").value == text, "as Kafka's"
    with pytest.raises(DataError, match="out of range"):
        applied("Cast$Value", record("x"), spec="int32")
    assert applied("Cast$Value", record(float("inf")), spec="int32").value == 2**31 - 1, "as in Java"
    with pytest.raises(BadConfig, match="does not support casting"):
        applied("Cast$Value", record("x"), spec="date")


def test_headers_topics_and_times() -> None:
    moved = applied("HeaderFrom$Value", record({"a": 1, "b": 2}), fields="a", headers="h", operation="move")
    assert moved.value == {"b": 2} and moved.headers == (Header("h", 1),)
    assert applied("DropHeaders", moved, headers="h").headers == ()
    assert applied("RegexRouter", record(1), regex="to(.*)", replacement="from-$1").topic == "from-pic"
    assert applied("TimestampRouter", record(1), timestamp__format="yyyy-MM-dd").topic == "topic-2024-02-29"
    text = {"target__type": "string", "format": "yyyy-MM-dd HH:mm:ss", "field": "at"}
    as_text = applied("TimestampConverter$Value", record({"at": MS}), **text)
    assert as_text.value == {"at": "2024-02-29 12:30:00"}
    back = applied("TimestampConverter$Value", as_text, **{**text, "target__type": "Timestamp"})
    assert back.value == {"at": AT}
    unix = applied(
        "TimestampConverter$Value", back, field="at", target__type="unix", unix__precision="seconds"
    )
    assert unix.value == {"at": MS // 1000}
    nanos = {"target__type": "unix", "unix__precision": "nanoseconds"}
    assert applied("TimestampConverter$Value", record(AT), **nanos).value == MS * 10**6
    nanos["target__type"] = "Timestamp"
    assert applied("TimestampConverter$Value", record(MS * 10**6 + 999), **nanos).value == AT
    offset = applied("InsertField$Value", SinkRecord("t", 3, 9, {}), offset__field="o", partition__field="p")
    assert offset.value == {"p": 3, "o": 9}


def test_a_key_is_changed_where_the_transform_says_key() -> None:
    keyed = SourceRecord("t", {"a": 1}, {"k": 5})
    assert applied("ExtractField$Key", keyed, field="k").key == 5
    assert applied("ExtractField$Key", SourceRecord("t", 1), field="k").key is None


def debezium(**config: str) -> Any:
    settings = {f"transforms.t.{name.replace('__', '.')}": value for name, value in config.items()}
    kind = "io.debezium.transforms.ExtractNewRecordState"
    return steps(
        {"transforms": "t", "transforms.t.type": kind, **settings}, transform_class, predicate_class
    )[0]


@pytest.mark.promise("connect", "Transforms work, with predicates, and can be any Python function")
def test_debeziums_envelope_becomes_the_row() -> None:
    row = struct_schema({"id": INT32_SCHEMA}, name="row").as_optional()
    source = struct_schema({"table": STRING_SCHEMA})
    schema = struct_schema({"before": row, "after": row, "op": STRING_SCHEMA, "source": source})
    change = {"before": None, "after": {"id": 1}, "op": "c", "source": {"table": "t"}}
    flat = debezium(add__fields="op,table")(record(change, schema))
    assert flat.value == {"id": 1, "__op": "c", "__table": "t"}
    assert flat.value_schema.field("__table") == STRING_SCHEMA.as_optional()
    deleted = {**change, "before": {"id": 1}, "after": None, "op": "d"}
    assert debezium()(record(deleted, schema)) is None
    tombstone = debezium()(record(None))
    assert tombstone is not None and tombstone.value is None
    rewritten = debezium(delete__tombstone__handling__mode="rewrite")(record(deleted, schema))
    assert rewritten.value == {"id": 1, "__deleted": "true"}


@pytest.mark.promise("connect", "Transforms work, with predicates, and can be any Python function")
def test_predicates_choose_the_records() -> None:
    config = {
        "transforms": "drop",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "gone",
        "transforms.drop.negate": "true",
        "predicates": "gone",
        "predicates.gone.type": "RecordIsTombstone",
    }
    (step,) = steps(config, transform_class, predicate_class)
    assert step(record(1)) is None and step(record(None)) is not None
    with pytest.raises(BadConfig, match="Unknown predicate other"):
        steps({**config, "transforms.drop.predicate": "other"}, transform_class, predicate_class)


@pytest.mark.parametrize("setting", [{}, {"replace__null__with__default": "false"}])
def test_a_null_becomes_the_default_of_its_field(setting: dict[str, str]) -> None:
    name = STRING_SCHEMA.as_optional().with_default("nobody")
    found = "nobody" if not setting else None
    schema, value = struct_schema({"name": name, "age": INT32_SCHEMA}), {"name": None, "age": 1}
    inserted = applied("InsertField$Value", record(value, schema), topic__field="t", **setting)
    assert inserted.value == {"name": found, "age": 1, "t": "topic"}
    assert applied("ExtractField$Value", record(value, schema), field="name", **setting).value == found
    assert applied("ValueToKey", record(value, schema), fields="name", **setting).key == {"name": found}
    copied = applied(
        "HeaderFrom$Value", record(value, schema), fields="name", headers="h", operation="copy", **setting
    )
    assert (copied.headers[0].value, copied.value["name"]) == (found, None)
    named = applied("SetSchemaMetadata$Value", record(value, schema), schema__name="n", **setting)
    assert (named.value_schema.name, named.value["name"]) == ("n", found)
