"""A SQL server through PEP 249 and SQLAlchemy, as pandas, notebooks and BI tools ask it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas
import pytest
import sqlalchemy
from sqlalchemy import create_engine

from penstock.sql import dbapi
from tests.sql.serving import SqlServer

pytestmark = pytest.mark.timeout(300)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def connection(server: SqlServer) -> Iterator[dbapi.Connection]:
    with dbapi.connect(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def readings(connection: dbapi.Connection) -> str:
    """A stream with three rows."""
    name = f"dbapi_readings_{next(_numbers)}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE STREAM {name} (id STRING KEY, at TIMESTAMP, celsius DOUBLE, paid DECIMAL(10, 2)) "
            "WITH (format = 'json', partitions = 1)"
        )
        assert cursor.description is None and cursor.messages
        cursor.executemany(
            f"INSERT INTO {name} (id, at, celsius, paid) VALUES (%(id)s, %(at)s, %(celsius)s, %(paid)s)",
            [
                {
                    "id": place,
                    "at": dt.datetime(2026, 1, day, 12, 30, tzinfo=dt.UTC),
                    "celsius": celsius,
                    "paid": Decimal("19.99") * day,
                }
                for day, (place, celsius) in enumerate(
                    [("o'hare\\", -3.5), ("oslo", 4.0), ("100 % warm", 31.25)], start=1
                )
            ],
        )
    return name


@pytest.mark.promise(
    "sql",
    "Python programs query a SQL server through DB-API 2.0 (`penstock.sql.dbapi`) and SQLAlchemy "
    "(`penstock://`), as do pandas, notebooks and BI tools",
)
def test_rows_have_python_values_and_parameters_are_only_values(
    connection: dbapi.Connection, readings: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, at, celsius, paid FROM {readings} ORDER BY at")
        assert cursor.description is not None
        assert [one[0] for one in cursor.description] == ["id", "at", "celsius", "paid"]
        kinds = [one[1] for one in cursor.description]
        assert [kinds[0] == dbapi.STRING, kinds[1] == dbapi.DATETIME] == [True, True]
        assert [kinds[2] == dbapi.NUMBER, kinds[3] == dbapi.NUMBER] == [True, True]
        first = cursor.fetchone()
        assert first == ("o'hare\\", dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC), -3.5, Decimal("19.99"))
        assert [row[0] for row in cursor.fetchmany(5)] == ["oslo", "100 % warm"]
        assert cursor.fetchone() is None and cursor.nextset() is None
        for wanted in ("o'hare\\", "100 % warm", "' OR TRUE --", "%(id)s"):
            cursor.execute(f"SELECT id FROM {readings} WHERE id = %(id)s", {"id": wanted})
            assert cursor.fetchall() == ([(wanted,)] if wanted in ("o'hare\\", "100 % warm") else [])


@pytest.mark.promise(
    "sql",
    "Python programs query a SQL server through DB-API 2.0 (`penstock.sql.dbapi`) and SQLAlchemy "
    "(`penstock://`), as do pandas, notebooks and BI tools",
)
@pytest.mark.parametrize(
    "value",
    [
        None, True, -7, 2**40, 1.5, float("inf"), Decimal("-0.10"), "", "a\n\t\"'\\'%s;--", "日本 🚲",
        b"\x00\xff", dt.date(1999, 12, 31), dt.datetime(2026, 1, 2, 3, 4, 5, 678901),
        dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=2))), [1, 2, 3],
    ],
    ids=repr,
)  # fmt: skip
def test_what_goes_in_as_a_parameter_comes_back(connection: dbapi.Connection, value: Any) -> None:
    with connection.cursor() as cursor:
        assert cursor.execute("SELECT %(value)s AS v", {"value": value}).fetchall() == [(value,)]


@pytest.mark.promise(
    "sql",
    "Python programs query a SQL server through DB-API 2.0 (`penstock.sql.dbapi`) and SQLAlchemy "
    "(`penstock://`), as do pandas, notebooks and BI tools",
)
def test_nested_values_are_read_by_their_types(connection: dbapi.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT named_struct('at', DATE '2026-01-02', 'list', array(X'01', X'02')) AS s, "
            "map(1, TIMESTAMP_NTZ '2026-01-02 03:04:05') AS m"
        )
        assert cursor.fetchall() == [
            (
                {"at": dt.date(2026, 1, 2), "list": [b"\x01", b"\x02"]},
                {1: dt.datetime(2026, 1, 2, 3, 4, 5)},
            )
        ]


@pytest.mark.promise(
    "sql",
    "Python programs query a SQL server through DB-API 2.0 (`penstock.sql.dbapi`) and SQLAlchemy "
    "(`penstock://`), as do pandas, notebooks and BI tools",
)
def test_a_live_query_gives_rows_as_they_come_until_its_cursor_is_closed(
    connection: dbapi.Connection, readings: str
) -> None:
    with connection.cursor() as live, connection.cursor() as other:
        live.execute("SET 'auto.offset.reset' = 'earliest'")
        live.execute(f"SELECT id FROM {readings} EMIT CHANGES")
        assert live.live
        with pytest.raises(dbapi.InterfaceError, match="does not end"):
            live.fetchall()
        rows = iter(live)
        assert {next(rows) for _ in range(3)} == {("o'hare\\",), ("oslo",), ("100 % warm",)}
        other.execute(f"INSERT INTO {readings} (id) VALUES ('later')")
        assert next(rows) == ("later",)
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        live.fetchone()


@pytest.mark.promise(
    "sql",
    "Python programs query a SQL server through DB-API 2.0 (`penstock.sql.dbapi`) and SQLAlchemy "
    "(`penstock://`), as do pandas, notebooks and BI tools",
)
def test_errors_are_those_of_the_standard_and_say_where(
    connection: dbapi.Connection, server: SqlServer
) -> None:
    with connection.cursor() as cursor:
        with pytest.raises(dbapi.ProgrammingError, match="no_such") as caught:
            cursor.execute("SELECT *\nFROM no_such")
        assert caught.value.line == 2
        with pytest.raises(dbapi.ProgrammingError, match="no value for the parameter b"):
            cursor.execute("SELECT %(a)s, %(b)s", {"a": 1})
        with pytest.raises(dbapi.ProgrammingError, match="%%"):
            cursor.execute("SELECT '5 %', %(a)s", {"a": 1})
        with pytest.raises(dbapi.ProgrammingError, match="type set"):
            cursor.execute("SELECT %(a)s", {"a": {1}})
        with pytest.raises(dbapi.InterfaceError):
            cursor.fetchone()
        assert cursor.execute("SELECT '5 %' AS v").fetchall() == [("5 %",)]
    with pytest.raises(dbapi.NotSupportedError):
        connection.rollback()
    with pytest.raises(dbapi.OperationalError, match="no SQL server answers"):
        dbapi.connect("http://127.0.0.1:1")
    with dbapi.connect(server.url) as own:
        cursor = own.cursor()
    with pytest.raises(dbapi.InterfaceError):
        cursor.execute("SELECT 1")


@pytest.mark.promise(
    "sql",
    "Python programs query a SQL server through DB-API 2.0 (`penstock.sql.dbapi`) and SQLAlchemy "
    "(`penstock://`), as do pandas, notebooks and BI tools",
)
def test_pandas_and_sqlalchemy_read_streams_and_tables(server: SqlServer, readings: str) -> None:
    engine = create_engine(f"penstock://{server.url.removeprefix('http://')}")
    try:
        frame = pandas.read_sql(
            sqlalchemy.text(f"SELECT id, celsius FROM {readings} WHERE celsius > :least ORDER BY id"),
            engine,
            params={"least": 0},
        )
        assert frame.to_dict("list") == {"id": ["100 % warm", "oslo"], "celsius": [31.25, 4.0]}
        found = sqlalchemy.inspect(engine)
        assert readings in found.get_table_names() and not found.has_table("no_such")
        table = sqlalchemy.Table(readings, sqlalchemy.MetaData(), autoload_with=engine)
        assert isinstance(table.c.paid.type, sqlalchemy.Numeric) and table.c.paid.type.scale == 2
        query = (
            sqlalchemy.select(table.c.id, sqlalchemy.cast(table.c.celsius, sqlalchemy.String).label("text"))
            .where(table.c.id.in_(["oslo", "o'hare\\"]), table.c.celsius.is_not(None))
            .order_by(table.c.celsius.desc())
            .limit(2)
        )
        with engine.connect() as connected:
            assert [tuple(row) for row in connected.execute(query)] == [("oslo", "4.0"), ("o'hare\\", "-3.5")]
        with pytest.raises(sqlalchemy.exc.NoSuchTableError):
            sqlalchemy.Table("no_such", sqlalchemy.MetaData(), autoload_with=engine)
        with pytest.raises(sqlalchemy.exc.ArgumentError, match="colour"):
            create_engine("penstock://h?colour=red").connect()
    finally:
        engine.dispose()
