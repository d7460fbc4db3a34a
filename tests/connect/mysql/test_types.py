"""Every common type, from a real MariaDB to the Connect value that Debezium has; and statements' texts."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pymysqlreplication")
from penstock.connect.api import ConnectError, Schema
from penstock.connect.connectors.mysql.column_types import Modes, MySqlColumn, column_type, shortest_float32
from penstock.connect.connectors.mysql.statements import (
    Begin,
    Commit,
    Other,
    RowStatement,
    SchemaChange,
    Statement,
    Truncate,
    classified,
)
from tests.connect.mysql.running import Running

if TYPE_CHECKING:
    from tests.connect.mysql.conftest import Database

MICROS = 1_478_267_490_123_456  # 2016-11-04 13:51:30.123456
DECIMAL, DATE = "org.apache.kafka.connect.data.Decimal", "io.debezium.time.Date"
ZONED, TIME = "io.debezium.time.ZonedTimestamp", "io.debezium.time.MicroTime"
UUID = "123e4567-e89b-12d3-a456-426655440000"
LINE = struct.pack("<BIIdddd", 1, 2, 2, 0, 0, 1, 1)
# Column type, SQL value, value, name of the schema, its Connect type.
TYPES: list[tuple[str, str, Any, str | None, str]] = [
    ("tinyint", "-128", -128, None, "int16"),
    ("tinyint unsigned", "255", 255, None, "int16"),
    ("boolean", "true", 1, None, "int16"),
    ("smallint", "-32768", -32768, None, "int16"),
    ("smallint unsigned", "65535", 65535, None, "int32"),
    ("mediumint", "-8388608", -8388608, None, "int32"),
    ("mediumint unsigned", "16777215", 16777215, None, "int32"),
    ("int", "-2147483648", -2147483648, None, "int32"),
    ("int unsigned", "4294967295", 4294967295, None, "int64"),
    ("bigint", "-9223372036854775808", -(2**63), None, "int64"),
    ("bigint unsigned", "9223372036854775807", 2**63 - 1, None, "int64"),
    ("bigint unsigned", "18446744073709551615", -1, None, "int64"),
    ("float", "3.1415927", 3.1415927, None, "float"),
    ("float", "-16777216", -16777216.0, None, "float"),
    ("double", "0.1", 0.1, None, "double"),
    ("decimal(10,3)", "-1234.5", Decimal("-1234.500"), DECIMAL, "bytes"),
    ("decimal(65,30)", "-0.000000000000000000000000000001", Decimal("-1E-30"), DECIMAL, "bytes"),
    ("decimal(4,0)", "-99", Decimal("-99"), DECIMAL, "bytes"),
    ("bit(1)", "b'1'", True, None, "boolean"),
    ("bit(10)", "b'1000000101'", b"\x05\x02", "io.debezium.data.Bits", "bytes"),
    ("bit(64)", "1", b"\x01" + bytes(7), "io.debezium.data.Bits", "bytes"),
    ("year", "2024", 2024, "io.debezium.time.Year", "int32"),
    ("year", "0", 0, "io.debezium.time.Year", "int32"),
    ("char(5)", "'ab'", "ab", None, "string"),
    ("varchar(20)", "'Zoë \U0001f600 \\\\ \"'", 'Zoë \U0001f600 \\ "', None, "string"),
    ("varchar(20) character set latin1", "'é €'", "é €", None, "string"),
    ("varchar(300) character set ucs2", "'Ω'", "Ω", None, "string"),
    ("varchar(20) character set utf16le", "'😀'", "😀", None, "string"),
    ("varchar(20) character set koi8r", "'ж'", "ж", None, "string"),
    ("varchar(20) character set utf8mb3", "'ñ'", "ñ", None, "string"),
    ("text", "''", "", None, "string"),
    ("longtext", "repeat('x', 70000)", "x" * 70000, None, "string"),
    ("binary(4)", "x'0100'", b"\x01\0\0\0", None, "bytes"),
    ("varbinary(4)", "x'0100'", b"\x01\0", None, "bytes"),
    ("blob", "x'00ff41'", b"\x00\xffA", None, "bytes"),
    ("enum('a','it''s','c,d')", "'it''s'", "it's", "io.debezium.data.Enum", "string"),
    ("set('p','q','r')", "'r,p'", "p,r", "io.debezium.data.EnumSet", "string"),
    ("set('p','q','r')", "''", "", "io.debezium.data.EnumSet", "string"),
    ("json", "'{\"a\":  [1]}'", '{"a":  [1]}', "io.debezium.data.Json", "string"),
    ("date", "'2016-11-04'", 17109, DATE, "int32"),
    ("date", "'1000-01-01'", -354285, DATE, "int32"),
    ("date", "'0000-00-00'", None, DATE, "int32"),
    ("time", "'13:51:30'", 49890000000, TIME, "int64"),
    ("time(6)", "'-838:59:58.999999'", -3020398999999, TIME, "int64"),
    ("time(6)", "'-00:00:00.000001'", -1, TIME, "int64"),
    ("time(3)", "'-00:00:01.2'", -1200000, TIME, "int64"),
    ("time(1)", "'-00:00:00.7'", -700000, TIME, "int64"),
    ("time(2)", "'12:00:00.25'", 43200250000, TIME, "int64"),
    ("datetime", "'2016-11-04 13:51:30'", MICROS // 10**6 * 1000, "io.debezium.time.Timestamp", "int64"),
    ("datetime(3)", "'2016-11-04 13:51:30.123'", MICROS // 1000, "io.debezium.time.Timestamp", "int64"),
    ("datetime(6)", "'2016-11-04 13:51:30.123456'", MICROS, "io.debezium.time.MicroTimestamp", "int64"),
    ("datetime", "'0000-00-00 00:00:00'", None, "io.debezium.time.Timestamp", "int64"),
    ("timestamp", "'2016-11-04 13:51:30'", "2016-11-04T11:51:30Z", ZONED, "string"),
    ("timestamp(4)", "'2016-11-04 13:51:30.12'", "2016-11-04T11:51:30.1200Z", ZONED, "string"),
    ("uuid", f"'{UUID}'", UUID, None, "string"),
    ("inet6", "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329", None, "string"),
    ("inet6", "'::ffff:192.0.2.128'", "::ffff:192.0.2.128", None, "string"),
    ("inet4", "'192.0.2.0'", "192.0.2.0", None, "string"),
    ("point", "ST_GeomFromText('POINT(1.5 -2)', 4326)",
     {"x": 1.5, "y": -2.0, "wkb": struct.pack("<BIdd", 1, 1, 1.5, -2.0), "srid": 4326},
     "io.debezium.data.geometry.Point", "struct"),
    ("geometry", "ST_GeomFromText('LINESTRING(0 0, 1 1)')", {"wkb": LINE, "srid": None},
     "io.debezium.data.geometry.Geometry", "struct"),
    ("int as (id + 1) virtual", "DEFAULT", None, None, "int32"),
    ("int as (id * 0 + 7) stored", "DEFAULT", 7, None, "int32"),
]  # fmt: skip
ALLOW = "SET sql_mode = '', time_zone = '+02:00'"


def both_ways(
    database: Database, columns: list[tuple[str, str]], **settings: str
) -> tuple[Schema, list[Any]]:
    """The row of a snapshot, which must be that of the stream; and its schema."""
    names = [f"c{number}" for number in range(len(columns))]
    declared = ", ".join(
        f"{name} {kind} {'' if ' as ' in kind else 'NULL'}"
        for name, (kind, _) in zip(names, columns, strict=True)
    )
    values = ", ".join(value for _, value in columns)
    nothing = ", ".join("DEFAULT" if value == "DEFAULT" else "NULL" for _, value in columns)
    database.execute(
        ALLOW,
        f"CREATE TABLE everything (id int PRIMARY KEY, {declared})",
        f"INSERT INTO everything VALUES (1, {values})",
    )
    with Running(database, **settings) as running:
        running.streaming()
        database.execute(
            ALLOW,
            f"INSERT INTO everything VALUES (2, {values})",
            f"INSERT INTO everything VALUES (3, {nothing})",
        )
        read, streamed, empty = running.count(3)
    rows = [[record.value["after"][name] for name in names] for record in (read, streamed)]
    given = [number for number, (_, value) in enumerate(columns) if value != "DEFAULT"]
    assert [repr(rows[0][number]) for number in given] == [repr(rows[1][number]) for number in given]
    assert {empty.value["after"][names[number]] for number in given} == {None}
    assert read.value_schema is not None and read.value_schema == streamed.value_schema
    schema = read.value_schema.field("after")
    assert schema is not None
    return schema, rows[0]


@pytest.mark.promise(
    "connect",
    "MySQL: every common type has the same value as with Debezium, both in the snapshot and in the stream",
)
def test_every_type_is_the_value_that_debezium_has(database: Database) -> None:
    schema, row = both_ways(database, [(kind, value) for kind, value, *_ in TYPES])
    for number, (kind, text, value, name, connect_type) in enumerate(TYPES):
        column = schema.field(f"c{number}")
        assert column is not None and column.optional
        assert (column.name, column.type.value) == (name, connect_type), (kind, text)
        if "virtual" in kind:
            assert row[number] == 2
        else:
            assert row[number] == value and type(row[number]) is type(value), (kind, text)
    by_type = {kind: schema.field(f"c{number}") for number, (kind, *_) in enumerate(TYPES)}
    assert dict(by_type["decimal(10,3)"].parameters) == {"scale": "3", "connect.decimal.precision": "10"}  # type: ignore[union-attr]
    assert dict(by_type["set('p','q','r')"].parameters) == {"allowed": "p,q,r"}  # type: ignore[union-attr]
    assert dict(by_type["bit(10)"].parameters) == {"length": "10"}  # type: ignore[union-attr]


@pytest.mark.promise(
    "connect",
    "MySQL: every common type has the same value as with Debezium, both in the snapshot and in the stream",
)
def test_other_modes(database: Database) -> None:
    schema, row = both_ways(
        database,
        [
            ("decimal(4,1)", "12.5"), ("blob", "x'fbff'"), ("date", "'2020-02-03'"),
            ("time(6)", "'01:02:03.456789'"), ("datetime(6)", "'2020-02-03 01:02:03.456789'"),
            ("bigint unsigned", "18446744073709551615"),
        ],
        decimal_handling_mode="string", binary_handling_mode="base64", time_precision_mode="connect",
        bigint_unsigned_handling_mode="precise",
    )  # fmt: skip
    assert row == [
        "12.5", "+/8=", datetime.date(2020, 2, 3), datetime.time(1, 2, 3, 456000),
        datetime.datetime(2020, 2, 3, 1, 2, 3, 456000, datetime.UTC), Decimal(2**64 - 1),
    ]  # fmt: skip
    assert [field.schema.name for field in schema.fields[-4:]] == [
        f"org.apache.kafka.connect.data.{name}" for name in ("Date", "Time", "Timestamp", "Decimal")
    ]


def test_dates_that_do_not_exist_are_the_epoch_where_null_is_not_allowed(database: Database) -> None:
    database.execute(
        ALLOW,
        "CREATE TABLE dates (id int PRIMARY KEY, d date NOT NULL, t timestamp NOT NULL, "
        "dt datetime NOT NULL)",
        "INSERT INTO dates VALUES (1, '0000-00-00', '0000-00-00', '2020-00-01')",
    )
    with Running(database) as running:
        running.streaming()
        database.execute(ALLOW, "INSERT INTO dates VALUES (2, '0000-00-00', '0000-00-00', '2020-00-01')")
        read, streamed = running.count(2)
    for record in (read, streamed):
        row = record.value["after"]
        assert (row["d"], row["t"], row["dt"]) == (0, "1970-01-01T00:00:00Z", 0)


def test_a_value_that_its_type_cannot_hold_is_null_or_an_error(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    columns = [("time", "'100:00:00'"), ("varchar(9)", "'there'")]
    _, row = both_ways(database, columns, time_precision_mode="connect")
    assert row == [None, "there"]
    assert f"{database.name}.everything.c0" in caplog.text and "time.precision.mode" in caplog.text
    settings = {"event_converting_failure_handling_mode": "fail", "time_precision_mode": "connect"}
    with Running(database, **settings) as running, pytest.raises(ConnectError, match=r"everything\.c0"):
        running.count(1)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_has_the_fewest_digits_that_are_the_same_float(value: float) -> None:
    assert struct.pack("<f", shortest_float32(value)) == struct.pack("<f", value)


def test_json_of_mysqls_binlog_is_text() -> None:
    """mysql-replication has bytes for keys and values of MySQL's binary JSON."""
    convert = column_type(MySqlColumn("j", "json"), Modes()).convert
    assert convert({b"a": [1, b"x", None, {b"b": True}]}) == '{"a": [1, "x", null, {"b": true}]}'


STATEMENTS: list[tuple[str, Statement]] = [
    ("BEGIN", Begin()),
    ("XA START X'61',X'',1", Begin()),
    ("COMMIT", Commit()),
    ("ROLLBACK", Commit()),
    ("truncate table t", Truncate("db", "t")),
    ("/* c */ TRUNCATE `my db`.`a``b`", Truncate("my db", "a`b")),
    ("DELETE FROM `db2`.`mem` /* generated by server */", Truncate("db2", "mem")),
    ("-- why\nALTER ONLINE TABLE x.y ADD z int", SchemaChange("ALTER", "x", "y")),
    ("CREATE OR REPLACE TABLE IF NOT EXISTS t (i int)", SchemaChange("CREATE", "db", "t")),
    ("DROP TABLE IF EXISTS `a`,`b` /* generated by server */", SchemaChange("DROP", "db", None)),
    ('DROP TABLE "Ä"', SchemaChange("DROP", "db", "Ä")),
    ("RENAME TABLE a TO b", SchemaChange("RENAME", "db", "a")),
    ("CREATE UNIQUE INDEX i ON t (c)", SchemaChange("CREATE", "db", None)),
    ("DROP DATABASE IF EXISTS gone", SchemaChange("DROP", "gone", None)),
    ("INSERT INTO t VALUES (1)", RowStatement("INSERT")),
    ("delete from t where a = 1", RowStatement("DELETE")),
    ("UPDATE t SET a = 1", RowStatement("UPDATE")),
    ("CREATE USER x", Other()),
    ("CREATE TEMPORARY TABLE x (i int)", Other()),
    ("SAVEPOINT s", Other()),
    ("XA COMMIT X'61',X'',1", Other()),
    ("", Other()),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_statements_of_the_binlog_are_told_apart(text: str, expected: Statement) -> None:
    assert classified(text, "db") == expected


@pytest.mark.fuzz
@given(st.text(st.sampled_from(list('TRUNCATEDROPL `"./*-#\n,;()aä')), max_size=60))
def test_any_text_is_a_statement(text: str) -> None:
    classified(text, "db")
