"""Rows as Avro, JSON and Protobuf: whole columns at once give what each format's own library reads."""

from __future__ import annotations

import base64
import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from penstock.registry.formats import parse
from penstock.registry.serdes.framing import read_indexes, take_apart
from penstock.registry.serdes.protobuf import Messages
from penstock.spark.encoders.framed import (
    ColumnEncoder,
    avro_schema,
    json_schema,
    proto_schema,
    record_name,
    schema_text,
)
from penstock.spark.errors import BadRow, NotTyped
from penstock.spark.typed.avro import AvroColumn
from penstock.spark.typed.json_schema import JsonColumn
from penstock.spark.typed.protobuf import ProtobufColumn
from tests.repetitions import times


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


ALL = struct(
    flag=T.BooleanType(), tiny=T.ByteType(), small=T.ShortType(), count=T.IntegerType(), id=T.LongType(),
    ratio=T.FloatType(), price=T.DoubleType(), money=T.DecimalType(20, 3), name=T.StringType(),
    raw=T.BinaryType(), day=T.DateType(), at=T.TimestampType(), local=T.TimestampNTZType(),
    tags=T.ArrayType(T.StringType()), counts=T.MapType(T.StringType(), T.LongType()),
    place=struct(town=T.StringType(), lines=T.ArrayType(struct(sku=T.StringType(), n=T.IntegerType()))),
)  # fmt: skip
ROW: dict[str, Any] = {
    "flag": True, "tiny": -128, "small": 300, "count": -(2**31), "id": 2**63 - 1, "ratio": 0.5,
    "price": -1e300, "money": Decimal("-12.345"), "name": 'ä "quoted" \\ \n', "raw": b"\0\xff",
    "day": date(2024, 2, 29), "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    "local": datetime(2024, 5, 1, 12),
    "tags": ["a", "", "ü"], "counts": {"x": 1, "y": -5},
    "place": {"town": "B", "lines": [{"sku": "s", "n": 1}, {"sku": None, "n": 0}]},
}  # fmt: skip


def column(kind: T.DataType, *values: Any) -> pa.Array:
    """As a part of a larger one, as batches are cut."""
    whole = pa.array([None, *values, None], to_arrow_type(kind, timezone="UTC"))
    return whole.slice(1, len(values))


def encoded(schema_type: str, kind: T.DataType, *values: Any, schema: str | None = None) -> list[Any]:
    text = schema or schema_text(schema_type, kind, "t-value")
    encoder = ColumnEncoder(schema_type, text, (), kind, 7)
    return encoder.encode(column(kind, *values)).to_pylist()


def payload(data: bytes) -> bytes:
    framed = take_apart(data, "value")
    assert framed.schema_id == 7
    return bytes(framed.payload)


def avro(kind: T.DataType, *values: Any, schema: str | None = None) -> list[Any]:
    """Through Avro's bytes, and back by fastavro."""
    reader = fastavro.parse_schema(json.loads(schema or schema_text("AVRO", kind, "t-value")))
    found = []
    for data in encoded("AVRO", kind, *values, schema=schema):
        if data is None:
            found.append(None)
            continue
        stream = io.BytesIO(payload(data))
        found.append(fastavro.schemaless_reader(stream, reader, None))
        assert stream.read() == b""
    return found


def texts(kind: T.DataType, *values: Any) -> list[Any]:
    """Through JSON, which its schema takes."""
    validator = jsonschema.Draft7Validator(json.loads(schema_text("JSON", kind, "t-value")))
    found = []
    for data in encoded("JSON", kind, *values):
        value = None if data is None else json.loads(payload(data))
        if data is not None:
            validator.validate(value)
        found.append(value)
    return found


def messages(kind: T.StructType, *values: Any) -> list[Any]:
    """Through Protobuf's bytes, and back by the source's own reader."""
    schema: Any = parse("PROTOBUF", schema_text("PROTOBUF", kind, "t-value"))
    known = Messages(schema)
    reader = ProtobufColumn(schema, None)
    found = []
    for data in encoded("PROTOBUF", kind, *values):
        if data is None:
            found.append(None)
            continue
        indexes, rest = read_indexes(take_apart(data, "value"))
        assert indexes == (0,)
        message: Any = known.new(known.name_of(indexes))
        message.ParseFromString(bytes(rest))
        found.append(
            pa.array([reader._convert(message)], to_arrow_type(reader.spark_type, timezone="UTC"))[0].as_py()
        )
    return found


def test_all_types_in_avro() -> None:
    nothing = dict.fromkeys(ROW)
    assert avro(ALL, ROW, None, nothing) == [ROW, None, nothing]
    # The source gives its columns the types that they had.
    schema: Any = parse("AVRO", avro_schema(ALL))
    small = ALL.simpleString().replace("tinyint", "int").replace("smallint", "int")
    assert AvroColumn(schema).spark_type.simpleString() == small


def test_all_types_in_json() -> None:
    nothing = dict.fromkeys(ROW)
    first, tombstone, second = texts(ALL, ROW, None, nothing)
    assert (tombstone, second) == (None, nothing)
    assert first == ROW | {
        "money": -12.345, "raw": base64.b64encode(ROW["raw"]).decode(), "day": "2024-02-29",
        "at": "1969-12-31T23:59:59.999999Z", "local": "2024-05-01T12:00:00.000000",
    }  # fmt: skip
    schema: Any = parse("JSON", json_schema(ALL))
    assert JsonColumn(schema).spark_type.simpleString() == (
        "struct<flag:boolean,tiny:bigint,small:bigint,count:bigint,id:bigint,ratio:double,price:double,"
        "money:double,name:string,raw:binary,day:string,at:string,local:string,tags:array<string>,"
        "counts:map<string,bigint>,place:struct<town:string,lines:array<struct<sku:string,n:bigint>>>>"
    )


def test_all_types_in_protobuf() -> None:
    nothing = dict.fromkeys(ROW)
    first, tombstone, second = messages(ALL, ROW, None, nothing)
    assert tombstone is None
    first["counts"] = dict(first["counts"])
    assert first == ROW | {
        "money": "-12.345", "day": "2024-02-29", "local": "2024-05-01T12:00:00.000000"
    }  # fmt: skip
    # Lists and maps have no null in Protobuf.
    assert second == nothing | {"tags": [], "counts": []}
    with pytest.raises(BadRow, match=r"'tags\[\]' is null in the data, and Protobuf has no null within"):
        messages(ALL, ROW | {"tags": [None]})


@pytest.mark.parametrize("form", ["AVRO", "JSON", "PROTOBUF"])
def test_columns_of_nulls_and_of_no_rows(form: str) -> None:
    assert encoded(form, ALL) == [] and encoded(form, ALL, None) == [None]
    (alone,) = encoded(form, ALL, dict.fromkeys(ROW))
    assert alone == encoded(form, ALL, ROW, dict.fromkeys(ROW))[1]
    late = ROW | {"at": datetime(9999, 12, 31, tzinfo=UTC)}
    assert encoded(form, ALL, ROW, late)[0] == encoded(form, ALL, ROW)[0]


VALUES: dict[str, tuple[T.DataType, st.SearchStrategy[Any]]] = {
    "id": (T.LongType(), st.integers(-(2**63), 2**63 - 1)),
    "small": (T.LongType(), st.integers(-70, 70)),
    "name": (T.StringType(), st.text(max_size=8)),
    "price": (T.DoubleType(), st.floats(allow_nan=False, allow_infinity=False)),
    "money": (T.DecimalType(38, 4), st.decimals(-(10**33), 10**33, places=4)),
    "tiny_money": (T.DecimalType(4, 0), st.integers(-9999, 9999).map(Decimal)),
    "lists": (
        T.ArrayType(T.ArrayType(T.LongType())),
        st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=3),
    ),
    "maps": (
        T.MapType(T.StringType(), T.StringType()),
        st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=3), max_size=3),
    ),
    "deep": (
        struct(a=T.LongType(), b=T.StringType()),
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.text(max_size=2)}),
    ),
}


@pytest.mark.promise(
    "spark sinks",
    "Structs are written with schemas derived from their types, and read back unchanged by the source "
    "and by confluent-kafka; an incompatible schema is rejected before a job starts",
)
@settings(max_examples=times(50, 1500), deadline=None)
@given(st.data(), st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4, unique=True))
def test_what_is_written_is_what_is_read(data: Any, names: list[str]) -> None:
    kind = struct(**{name: VALUES[name][0] for name in names})
    rows = data.draw(
        st.lists(
            st.none() | st.fixed_dictionaries({name: st.none() | VALUES[name][1] for name in names}),
            max_size=4,
        )
    )
    assert avro(kind, *rows) == rows
    plain = [
        row and {n: v if not isinstance(v, Decimal) else float(v) for n, v in row.items()} for row in rows
    ]
    assert texts(kind, *rows) == plain
    if "lists" not in names and "maps" not in names:
        assert [row and {n: _number(n, v) for n, v in row.items()} for row in messages(kind, *rows)] == rows


def _number(name: str, value: Any) -> Any:
    """Decimals are texts in Protobuf."""
    return value if value is None or "money" not in name else Decimal(value)


@pytest.mark.promise(
    "spark sinks",
    "Structs are written with schemas derived from their types, and read back unchanged by the source "
    "and by confluent-kafka; an incompatible schema is rejected before a job starts",
)
def test_schemas_say_what_may_be_null_and_are_the_same_for_the_same_type() -> None:
    kind = T.StructType([
        T.StructField("id", T.LongType(), nullable=False),
        T.StructField("tags", T.ArrayType(T.StringType(), containsNull=False), nullable=False),
        T.StructField("place", struct(place=struct(x=T.LongType()))),
    ])  # fmt: skip
    assert json.loads(avro_schema(kind, "Order")) == {
        "type": "record", "name": "Order", "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "place", "default": None, "type": ["null", {
                "type": "record", "name": "place", "namespace": "Order", "fields": [
                    {"name": "place", "default": None, "type": ["null", {
                        "type": "record", "name": "place", "namespace": "Order.place", "fields": [
                            {"name": "x", "type": ["null", "long"], "default": None}]}]}]}]}]}  # fmt: skip
    found = json.loads(json_schema(kind, "Order"))
    assert (found["title"], found["required"], found["additionalProperties"]) == (
        "Order",
        ["id", "tags"],
        False,
    )
    assert proto_schema(kind, "Order").splitlines()[2:] == [
        "message Order {", "  message place_message {", "    message place_message {",
        "      optional int64 x = 1;", "    }", "    optional place_message place = 1;", "  }",
        "  optional int64 id = 1;", "  repeated string tags = 2;", "  optional place_message place = 3;", "}",
    ]  # fmt: skip
    for make in (avro_schema, json_schema, proto_schema):
        assert make(kind, "Order") == make(T.StructType.fromJson(json.loads(kind.json())), "Order")
    assert (
        record_name("page-views-value") == "PageViewsValue" and record_name("7up-value") == "Record7upValue"
    )
    with pytest.raises(BadRow, match="'id' is null in the data, and its Avro type does not take null"):
        avro(kind, {"id": None, "tags": [], "place": None})


@pytest.mark.parametrize("make", [avro_schema, json_schema, proto_schema])
def test_a_type_that_a_format_has_not_is_refused_with_its_place(make: Any) -> None:
    with pytest.raises(NotTyped, match=r"'a\.b' is interval"):
        make(struct(a=struct(b=T.DayTimeIntervalType())))
    if make is not json_schema:
        with pytest.raises(NotTyped, match="has no field called 'a-b': rename it"):
            make(struct(**{"a-b": T.LongType()}))


@pytest.mark.promise("spark sinks", "The options `value.schema` and `key.schema` work as documented")
def test_rows_are_written_with_a_schema_that_is_given() -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "n", "type": ["string", "double", "null"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "d", "type": {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal",
                               "precision": 38, "scale": 2}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "more", "type": ["null", "string"], "default": None}]})  # fmt: skip
    kind = struct(
        f=T.BinaryType(), e=T.StringType(), n=T.DoubleType(), d=T.DecimalType(9, 2), at=T.TimestampType()
    )
    row = {"n": 1.5, "e": "B", "d": Decimal("-1.25"), "f": b"ab", "at": datetime(2024, 5, 1, tzinfo=UTC)}
    assert avro(kind, row, row | {"n": None}, schema=schema) == [
        row | {"more": None},
        row | {"n": None, "more": None},
    ]
    with pytest.raises(BadRow, match="'e' is 'C', which is not a symbol of E"):
        avro(kind, row | {"e": "C"}, schema=schema)
    with pytest.raises(NotTyped, match="has no field x"):
        avro(struct(x=T.LongType()), schema=schema)
    with pytest.raises(NotTyped, match="'e' is bigint, and in the schema it is enum"):
        avro(struct(n=T.DoubleType(), e=T.LongType()), schema=schema)
    with pytest.raises(NotTyped, match="the rows have no column 'e'"):
        avro(struct(n=T.DoubleType()), schema=schema)


def test_keys_may_be_plain_values_and_what_json_has_not_is_null() -> None:
    assert avro(T.LongType(), 5, None, -1) == [5, None, -1]
    assert texts(T.StringType(), "a", None) == ["a", None]
    assert texts(struct(x=T.DoubleType()), {"x": math.nan}, {"x": 1.0}) == [{"x": None}, {"x": 1.0}]
