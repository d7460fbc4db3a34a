"""Every common type, from a real PostgreSQL to the Connect value that Debezium has; and text forms alone."""

from __future__ import annotations

import datetime
import json
import math
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("psycopg2")
from penstock.connect.api import ConnectError, DataError, Schema
from penstock.connect.connectors.postgres import literals, temporal
from tests.connect.postgres.running import Running

if TYPE_CHECKING:
    from tests.connect.postgres.server import Database

DAY = 86_400_000_000
MICROS = 1_478_267_490_123_456  # 2016-11-04 13:51:30.123456
MICRO_TIMESTAMP, DECIMAL = "io.debezium.time.MicroTimestamp", "org.apache.kafka.connect.data.Decimal"
# Column type, SQL value, value, name of the schema, its Connect type.
TYPES: list[tuple[str, str, Any, str | None, str]] = [
    ("smallint", "-32768", -32768, None, "int16"),
    ("integer", "2147483647", 2147483647, None, "int32"),
    ("bigint", "-9223372036854775808", -(2**63), None, "int64"),
    ("oid", "4000000000", 4000000000, None, "int64"),
    ("boolean", "true", True, None, "boolean"),
    ("real", "3.1415927", 3.1415927, None, "float"),
    ("double precision", "0.1", 0.1, None, "double"),
    ("double precision", "'Infinity'", math.inf, None, "double"),
    ("real", "'-Infinity'", -math.inf, None, "float"),
    ("numeric(10,3)", "-1234.5", Decimal("-1234.500"), DECIMAL, "bytes"),
    ("numeric(3,-2)", "12345", Decimal("123E+2"), DECIMAL, "bytes"),
    ("numeric", "-0.0129", {"scale": 4, "value": b"\xff\x7f"},
     "io.debezium.data.VariableScaleDecimal", "struct"),
    ("money", "-1234.5", Decimal("-1234.50"), DECIMAL, "bytes"),
    ("text", "E'Zoë \\n \\\\ \"'", 'Zoë \n \\ "', None, "string"),
    ("varchar(5)", "''", "", None, "string"),
    ("char(5)", "'ab'", "ab   ", None, "string"),
    ("name", "'n'", "n", None, "string"),
    ("bytea", r"'\x00ff41'", b"\x00\xffA", None, "bytes"),
    ("bit(1)", "B'1'", True, None, "boolean"),
    ("bit(10)", "B'1000000101'", b"\x05\x02", "io.debezium.data.Bits", "bytes"),
    ("varbit", "B'101'", b"\x05", "io.debezium.data.Bits", "bytes"),
    ("date", "'2016-11-04'", 17109, "io.debezium.time.Date", "int32"),
    ("date", "'0044-03-15 BC'", -735160, "io.debezium.time.Date", "int32"),
    ("date", "'5874897-12-31'", 2145042905, "io.debezium.time.Date", "int32"),
    ("date", "'infinity'", -2147472692, "io.debezium.time.Date", "int32"),
    ("time", "'13:51:30.5'", 49890500000, "io.debezium.time.MicroTime", "int64"),
    ("time", "'24:00:00'", DAY, "io.debezium.time.MicroTime", "int64"),
    ("time(3)", "'13:51:30.123456'", 49890123, "io.debezium.time.Time", "int32"),
    ("timetz", "'13:51:30.123789+02:00'", "11:51:30.123789Z", "io.debezium.time.ZonedTime", "string"),
    ("timetz", "'01:00:00+05:30'", "19:30:00Z", "io.debezium.time.ZonedTime", "string"),
    ("timestamp", "'2016-11-04 13:51:30.123456'", MICROS, MICRO_TIMESTAMP, "int64"),
    ("timestamp(3)", "'2016-11-04 13:51:30.123'", MICROS // 1000, "io.debezium.time.Timestamp", "int64"),
    ("timestamp", "'4713-01-01 00:00:00 BC'", -210863520000 * 10**6, MICRO_TIMESTAMP, "int64"),
    ("timestamp", "'21016-11-04 13:51:30.123457'", 601060312290123457, MICRO_TIMESTAMP, "int64"),
    ("timestamp", "'infinity'", 9223372036825200000, MICRO_TIMESTAMP, "int64"),
    ("timestamp", "'-infinity'", -9223372036832400000, MICRO_TIMESTAMP, "int64"),
    ("timestamptz", "'2016-11-04 13:51:30.5+02:00'", "2016-11-04T11:51:30.500000Z",
     "io.debezium.time.ZonedTimestamp", "string"),
    ("timestamptz", "'21016-11-04 13:51:30+07:00'", "+21016-11-04T06:51:30.000000Z",
     "io.debezium.time.ZonedTimestamp", "string"),
    ("timestamptz", "'0044-03-15 12:00:00+00 BC'", "-0043-03-15T12:00:00.000000Z",
     "io.debezium.time.ZonedTimestamp", "string"),
    ("timestamptz", "'-infinity'", "-infinity", "io.debezium.time.ZonedTimestamp", "string"),
    ("interval", "'P1Y2M3DT4H5M6.78S'", 37091106780000, "io.debezium.time.MicroDuration", "int64"),
    ("interval", "'-1 day 00:00:01'", -DAY + 10**6, "io.debezium.time.MicroDuration", "int64"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
     "io.debezium.data.Uuid", "string"),
    ("json", "'{\"a\":  1}'", '{"a":  1}', "io.debezium.data.Json", "string"),
    ("jsonb", "'{\"a\":  [1]}'", '{"a": [1]}', "io.debezium.data.Json", "string"),
    ("mood", "'ok'", "ok", "io.debezium.data.Enum", "string"),
    ("positive", "7", 7, None, "int32"),
    ("inet", "'192.168.1.1/24'", "192.168.1.1/24", None, "string"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8", None, "string"),
    ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03", None, "string"),
    ("int4range", "'[1,5)'", "[1,5)", None, "string"),
    ("tsrange", "'[2020-01-01, infinity)'", '["2020-01-01 00:00:00",infinity)', None, "string"),
    ("tsvector", "'a fat cat'", "'a' 'cat' 'fat'", None, "string"),
    ("pair", "ROW(1, 'x')", "(1,x)", None, "string"),
    ("point", "'(1.5,-2)'", {"x": 1.5, "y": -2.0, "wkb": struct.pack("<BIdd", 1, 1, 1.5, -2.0), "srid": None},
     "io.debezium.data.geometry.Point", "struct"),
    ("box", "'(1,1),(0,0)'", "(1,1),(0,0)", None, "string"),
    ("int[]", "ARRAY[1, NULL, 3]", [1, None, 3], None, "array"),
    ("text[]", "ARRAY['', 'NULL', NULL, 'a,b', E'\"\\\\', '{}']", ["", "NULL", None, "a,b", '"\\', "{}"],
     None, "array"),
    ("int[]", "'[0:1]={7,8}'", [7, 8], None, "array"),
    ("date[]", "ARRAY['1970-01-02'::date]", [1], None, "array"),
    ("numeric(4,1)[]", "ARRAY[1.5, -2]", [Decimal("1.5"), Decimal("-2.0")], None, "array"),
    ("mood[]", "ARRAY['sad', 'happy']::mood[]", ["sad", "happy"], None, "array"),
    ("box[]", "ARRAY['(1,1),(0,0)', '(2,2),(0,0)']::box[]", ["(1,1),(0,0)", "(2,2),(0,0)"], None, "array"),
    ("bytea[]", r"ARRAY['\x01'::bytea]", [b"\x01"], None, "array"),
]  # fmt: skip
SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE TYPE pair AS (a int, b text)",
)


def both_ways(
    database: Database, columns: list[tuple[str, str]], **settings: str
) -> tuple[Schema, list[Any]]:
    """The row of a snapshot, which must be that of the stream; and its schema."""
    names = [f"c{number}" for number in range(len(columns))]
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, columns, strict=True))
    values = ", ".join(value for _, value in columns)
    nothing = ", ".join("NULL" for _ in columns)
    database.execute(
        f"CREATE TABLE everything (id int PRIMARY KEY, {declared})",
        f"INSERT INTO everything VALUES (1, {values})",
    )
    with Running(database, **settings) as running:
        running.streaming()
        database.execute(
            f"INSERT INTO everything VALUES (2, {values})", f"INSERT INTO everything VALUES (3, {nothing})"
        )
        read, streamed, empty = running.count(3)
    rows = [[record.value["after"][name] for name in names] for record in (read, streamed)]
    assert repr(rows[0]) == repr(rows[1])
    assert set(empty.value["after"].values()) == {3, None}
    assert read.value_schema is not None and read.value_schema == streamed.value_schema
    schema = read.value_schema.field("after")
    assert schema is not None
    return schema, rows[0]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: every common type has the same value as with Debezium, both in the snapshot and in the "
    "stream",
)
def test_every_type_is_the_value_that_debezium_has(database: Database) -> None:
    database.execute(*SETUP)
    schema, row = both_ways(database, [(kind, value) for kind, value, *_ in TYPES])
    for number, (kind, text, value, name, connect_type) in enumerate(TYPES):
        column = schema.field(f"c{number}")
        assert column is not None and column.optional
        assert (column.name, column.type.value) == (name, connect_type), (kind, text)
        assert row[number] == value and type(row[number]) is type(value), (kind, text)
    by_type = {kind: schema.field(f"c{number}") for number, (kind, *_) in enumerate(TYPES)}
    assert dict(by_type["numeric(10,3)"].parameters) == {"scale": "3", "connect.decimal.precision": "10"}  # type: ignore[union-attr]
    assert dict(by_type["mood"].parameters) == {"allowed": "sad,ok,happy"}  # type: ignore[union-attr]
    assert dict(by_type["bit(10)"].parameters) == {"length": "10"}  # type: ignore[union-attr]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: every common type has the same value as with Debezium, both in the snapshot and in the "
    "stream",
)
def test_other_modes(database: Database) -> None:
    schema, row = both_ways(
        database,
        [
            ("numeric", "'NaN'"), ("numeric(4,1)", "12.5"), ("money", "-5"),
            ("interval", "'1 mon -04:05:06.7'"), ("bytea", r"'\xfbff'"), ("date", "'2020-02-03'"),
            ("time", "'01:02:03.456789'"), ("timestamp", "'2020-02-03 01:02:03.456789'"),
        ],
        decimal_handling_mode="string", interval_handling_mode="string", binary_handling_mode="base64",
        time_precision_mode="connect",
    )  # fmt: skip
    utc = datetime.UTC
    assert row == [
        "NAN", "12.5", "-5.00", "P0Y1M0DT-4H-5M-6.7S", "+/8=", datetime.date(2020, 2, 3),
        datetime.time(1, 2, 3, 456000), datetime.datetime(2020, 2, 3, 1, 2, 3, 456000, utc),
    ]  # fmt: skip
    assert [field.schema.name for field in schema.fields[-3:]] == [
        f"org.apache.kafka.connect.data.{name}" for name in ("Date", "Time", "Timestamp")
    ]


def test_decimals_as_doubles_have_nan(database: Database) -> None:
    columns = [
        ("numeric", "'NaN'"),
        ("numeric", "'-Infinity'"),
        ("numeric(5,2)", "1.25"),
        ("float8", "'NaN'"),
    ]
    _, row = both_ways(database, columns, decimal_handling_mode="double")
    assert math.isnan(row[0]) and math.isnan(row[3]) and row[1:3] == [-math.inf, 1.25]


def test_hstore_is_json_or_a_map(database: Database) -> None:
    if not database.query("SELECT 1 FROM pg_available_extensions WHERE name = 'hstore'"):
        pytest.skip("PostgreSQL's contrib modules are not installed")
    database.execute("CREATE EXTENSION hstore")
    value = """'a=>1, "b c"=>NULL, "q\\"\\\\"=>""'::hstore"""
    _, [text] = both_ways(database, [("hstore", value)])
    pairs = {"a": "1", "b c": None, 'q"\\': ""}
    assert json.loads(text) == pairs and literals.hstore_items("") == {}
    database.execute("DROP TABLE everything")
    slot = {"slot_name": f"{database.name}m"}
    assert both_ways(database, [("hstore", value)], hstore_handling_mode="map", **slot)[1] == [pairs]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: every common type has the same value as with Debezium, both in the snapshot and in the "
    "stream",
)
def test_a_value_that_its_type_cannot_hold_is_null_or_an_error(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    columns = [("numeric(5,2)", "'NaN'"), ("int[]", "'{{1,2},{3,4}}'"), ("text", "'there'")]
    _, row = both_ways(database, columns)
    assert row == [None, None, "there"]
    assert "public.everything.c0" in caplog.text and "decimal.handling.mode" in caplog.text
    settings = {"event_converting_failure_handling_mode": "fail", "slot_name": f"{database.name}f"}
    with Running(database, **settings) as running, pytest.raises(ConnectError, match=r"everything\.c0"):
        running.count(1)


@given(st.dates())
def test_dates_are_counted_as_python_counts(date: datetime.date) -> None:
    days = (date - datetime.date(1970, 1, 1)).days
    assert temporal.date_days(date.isoformat()) == days
    assert temporal.days_from_civil(date.year, date.month, date.day) == days


@given(st.datetimes())
def test_timestamps_are_counted_as_python_counts(moment: datetime.datetime) -> None:
    text = moment.isoformat(" ")
    micros = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert temporal.timestamp_micros(text) == micros
    assert temporal.timestamp_iso(f"{text}+00", 6) == moment.isoformat(timespec="microseconds") + "Z"


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_unscaled_decimals_are_whole(number: Decimal) -> None:
    scale, value = literals.unscaled(number)
    digits = Decimal(abs(int.from_bytes(value, "big", signed=True))).as_tuple().digits
    assert Decimal((number.is_signed(), digits, -scale)) == number


def test_a_decimal_of_very_many_digits_is_exact() -> None:
    _, value = literals.unscaled(Decimal("-" + "1234567890" * 1000))
    assert int.from_bytes(value, "big", signed=True) == -sum(1234567890 * 10 ** (10 * n) for n in range(1000))


_items = st.recursive(st.none() | st.text(st.characters(exclude_characters="\0")), st.lists, max_leaves=8)


def _written(items: list[Any]) -> str:
    def one(item: Any) -> str:
        if item is None:
            return "NULL"
        if isinstance(item, list):
            return _written(item)
        return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(map(one, items)) + "}"


def _depth(item: Any) -> int:
    return 1 + max(map(_depth, item), default=0) if isinstance(item, list) else 0


@given(st.lists(_items).filter(lambda items: _depth(items) <= 6))
def test_arrays_are_read_as_they_are_written(items: list[Any]) -> None:
    assert literals.array_items(_written(items)) == items


@pytest.mark.fuzz
@given(st.text(st.sampled_from(list("{}[]:=,;\"\\' NULabc019.+-$()xTBC>")), max_size=40))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    for read in (
        literals.array_items, literals.hstore_items, literals.bytea, literals.bits, temporal.date_days,
        temporal.time_micros, temporal.timestamp_micros, temporal.zoned_time_iso, temporal.interval_micros,
        temporal.interval_iso, lambda text: temporal.timestamp_iso(text, 6),
    ):  # fmt: skip
        try:
            read(text)
        except DataError:
            pass
    for read in (literals.point, literals.money):
        try:
            read(text)
        except (DataError, ValueError, ArithmeticError):
            pass
