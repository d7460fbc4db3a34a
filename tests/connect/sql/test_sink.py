"""The SQL sink's task on real databases: rows, keys, deletes, tables, types, offsets, bad records."""

from __future__ import annotations

import datetime
import decimal
import json
import random
import signal
import subprocess
import sys
from typing import Any

import pytest

from penstock.connect.api import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    DATE_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectError,
    RetriableError,
    Schema,
    SinkRecord,
    array_schema,
    decimal_schema,
    struct_schema,
)
from penstock.connect.connectors.sql import SqlSink
from penstock.connect.connectors.sql.sink import SqlSinkTask
from tests.connect.postgres.server import PostgresServer
from tests.connect.sql.conftest import Target

ITEM = struct_schema({"id": INT32_SCHEMA, "name": STRING_SCHEMA.as_optional()})
KEY = struct_schema({"id": INT32_SCHEMA})
KEYED = {"insert.mode": "upsert", "pk.mode": "record_key", "auto.create": "true"}


def record(
    offset: int,
    value: Any,
    key: Any = None,
    schema: Schema | None = ITEM,
    topic: str = "items",
    partition: int = 0,
) -> SinkRecord:
    return SinkRecord(
        topic, partition, offset, value, key, schema, KEY if isinstance(key, dict) else None,
        original_topic=topic, original_partition=partition, original_offset=offset,
    )  # fmt: skip


def item(offset: int, number: int, name: str | None = "nail") -> SinkRecord:
    return record(offset, {"id": number, "name": name}, {"id": number})


def task_of(target: Target, **settings: str) -> SqlSinkTask:
    task = SqlSinkTask()
    task.start({"name": "sink", "connection.url": target.url, **settings})
    return task


def opened(target: Target, **settings: str) -> SqlSinkTask:
    task = task_of(target, **settings)
    task.open([("items", 0)])
    return task


@pytest.mark.promise("connect", "SQL: inserts, upserts, updates and deletes by key are applied in order")
def test_rows_are_inserted_updated_and_deleted_by_key(target: Target) -> None:
    task = opened(target, **KEYED, **{"delete.enabled": "true"})
    task.put([item(0, 1), item(1, 2), item(2, 1, "screw"), item(3, 3), record(4, None, {"id": 2}, None)])
    task.put([record(5, None, {"id": 3}, None), item(6, 3, None), item(7, 3, "again")])
    task.stop()
    assert target.query("SELECT id, name FROM items ORDER BY id") == [(1, "screw"), (3, "again")]


@pytest.mark.promise("connect", "SQL: inserts, upserts, updates and deletes by key are applied in order")
def test_inserts_and_updates_of_a_table_that_is_there(target: Target) -> None:
    target.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(100), extra INTEGER DEFAULT 7)")
    task = opened(target)
    task.put([record(0, {"id": 1, "name": "nail"}), record(1, {"id": 2, "name": "bolt"})])
    task.stop()
    task = opened(target, **{"insert.mode": "update", "pk.mode": "record_value", "pk.fields": "id"})
    task.put([record(2, {"id": 2, "name": "screw"}), record(3, {"id": 9, "name": "nobody"})])
    task.stop()
    assert target.query("SELECT id, name, extra FROM items ORDER BY id") == [(1, "nail", 7), (2, "screw", 7)]


@pytest.mark.promise(
    "connect",
    "SQL: a record is written once, even if it is put again, or by a task that has lost its partition",
)
def test_a_record_is_written_once_whoever_puts_it_and_however_often(target: Target) -> None:
    settings = {"auto.create": "true", "batch.size": "3"}
    first = opened(target, **settings)
    first.put([record(n, {"id": n, "name": "a"}) for n in range(5)])
    # The answer to a commit was lost: the worker puts the same records again.
    first.put([record(n, {"id": n, "name": "again"}) for n in range(2, 7)])
    # Another task has the partition now, and the first does not know it yet.
    second = task_of(target, **settings)
    assert second.open([("items", 0), ("items", 1)]) == {("items", 0): 7}
    second.put([record(n, {"id": n, "name": "b"}) for n in range(7, 10)])
    first.put([record(n, {"id": n, "name": "late"}) for n in range(7, 12)])
    second.put([record(n, {"id": n, "name": "b"}) for n in range(10, 14)])
    for task in (first, second):
        task.stop()
    rows = target.query("SELECT id, name FROM items ORDER BY id")
    names = ["a"] * 5 + ["again"] * 2 + ["b"] * 3 + ["late"] * 2 + ["b"] * 2
    assert rows == list(enumerate(names))


@pytest.mark.promise("connect", "SQL: a sink that is killed under load writes each record to its table once")
def test_kills_at_any_moment_lose_and_double_nothing(target: Target) -> None:
    chance, count = random.Random(5), 2000
    command = [sys.executable, "-m", "tests.connect.sql.killed_sink", target.url, str(count)]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(2, 8)):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=100).returncode == 0
    assert target.query("SELECT n FROM items ORDER BY n") == [(number,) for number in range(count)]


@pytest.mark.promise(
    "connect",
    "SQL: offsets are stored in the same database as the data, and can be set while the connector is stopped",
)
def test_offsets_that_a_user_sets_are_those_of_the_next_start(target: Target) -> None:
    task = opened(target, **{"auto.create": "true"})
    task.put([record(n, {"id": n, "name": "a"}) for n in range(5)])
    config = {"name": "sink", "connection.url": target.url}
    assert SqlSink.alter_offsets(config, {("items", 0): 3, ("items", 1): None})
    with pytest.raises(ConnectError, match="went back from 5 to 3"):
        task.put([record(5, {"id": 5, "name": "a"})])
    task.stop()
    task = task_of(target)
    assert task.open([("items", 0), ("items", 1)]) == {("items", 0): 3}
    task.put([record(n, {"id": n, "name": "b"}) for n in range(3, 6)])
    task.stop()
    assert target.query("SELECT count(*) FROM items") == [(8,)]


def test_a_topic_is_a_table_with_columns_for_its_place_in_kafka(target: Target) -> None:
    task = opened(target, **{"pk.mode": "kafka", "auto.create": "true", "table.name.format": "t_${topic}"})
    task.put([record(7, {"id": 1, "name": "a"})])
    task.stop()
    rows = target.query("SELECT __connect_topic, __connect_partition, __connect_offset, id FROM t_items")
    assert rows == [("items", 0, 7, 1)]


def test_keys_that_are_no_structs_and_values_without_a_schema(target: Target) -> None:
    task = opened(target, **KEYED, **{"pk.fields": "code", "auto.evolve": "true"})
    task.put([record(0, {"n": 1}, "a", None), record(1, {"n": 2, "more": 1.5}, "b", None)])
    task.put([record(2, {"n": 3}, "a", None)])
    task.stop()
    assert target.query("SELECT code, n, more FROM items ORDER BY code") == [("a", 3, None), ("b", 2, 1.5)]


@pytest.mark.promise(
    "connect",
    "SQL: tables are created and extended from the schemas of records, with a column for every type",
)
def test_every_type_has_a_column(target: Target) -> None:
    fields = {
        "i8": INT8_SCHEMA, "i16": INT16_SCHEMA, "i32": INT32_SCHEMA, "i64": INT64_SCHEMA,
        "f32": FLOAT32_SCHEMA, "f64": FLOAT64_SCHEMA, "yes": BOOLEAN_SCHEMA, "text": STRING_SCHEMA,
        "raw": BYTES_SCHEMA, "day": DATE_SCHEMA, "hour": TIME_SCHEMA, "moment": TIMESTAMP_SCHEMA,
        "price": decimal_schema(4), "tags": array_schema(STRING_SCHEMA),
        "part": struct_schema({"a": INT32_SCHEMA}),
        "nothing": STRING_SCHEMA.as_optional(),
    }  # fmt: skip
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=datetime.UTC)
    value = {
        "i8": -8, "i16": -3000, "i32": 1 << 30, "i64": 1 << 60, "f32": 0.5, "f64": 0.1, "yes": True,
        "text": "naïve 100% '; --", "raw": b"\0\xff", "day": moment.date(), "hour": datetime.time(4, 5, 6),
        "moment": moment, "price": decimal.Decimal("12345678901234567890.1234"), "tags": ["a", "b"],
        "part": {"a": 1}, "nothing": None,
    }  # fmt: skip
    task = opened(target, **{"auto.create": "true"})
    task.put([record(0, value, None, struct_schema(fields)), record(1, value, None, struct_schema(fields))])
    task.stop()
    columns = ", ".join(target.quoted(name) for name in fields)
    row = dict(zip(fields, target.query(f"SELECT {columns} FROM items")[0]))
    for name in ("i8", "i16", "i32", "i64", "f32", "f64", "text", "nothing"):
        assert row[name] == value[name], name
    assert bool(row["yes"]) is True and bytes(row["raw"]) == value["raw"]
    assert str(row["day"]) == "2026-02-03" and str(row["hour"]) in ("04:05:06", "4:05:06")
    assert str(row["moment"])[:23] == "2026-02-03 04:05:06.789"
    assert str(row["price"]) == "12345678901234567890.1234"
    for name in ("tags", "part"):
        found = row[name]
        assert (json.loads(found) if isinstance(found, str) else found) == value[name]


@pytest.mark.promise(
    "connect",
    "SQL: tables are created and extended from the schemas of records, with a column for every type",
)
def test_a_table_gets_new_columns_if_they_may_be_empty(target: Target) -> None:
    task = opened(target, **{"auto.create": "true", "auto.evolve": "true"})
    task.put([record(0, {"id": 1, "name": "a"})])
    wide = struct_schema(
        {"id": INT32_SCHEMA, "name": STRING_SCHEMA.as_optional(), "size %": INT64_SCHEMA.as_optional()}
    )
    task.put([record(1, {"id": 2, "name": "b", "size %": 5}, None, wide), record(2, {"id": 3, "name": "c"})])
    size = target.quoted("size %").replace("%%", "%")
    rows = target.query(f"SELECT id, {size} FROM items ORDER BY id")
    assert rows == [(1, None), (2, 5), (3, None)]
    required = struct_schema({"id": INT32_SCHEMA, "weight": INT64_SCHEMA})
    with pytest.raises(ConnectError, match="Cannot add the column weight"):
        task.put([record(3, {"id": 4, "weight": 1}, None, required)])
    task.stop()


def test_a_missing_table_or_column_is_named(target: Target) -> None:
    task = opened(target)
    with pytest.raises(ConnectError, match=r"Table items is missing .* auto.create=true"):
        task.put([item(0, 1)])
    target.execute("CREATE TABLE items (id INTEGER)")
    with pytest.raises(ConnectError, match=r"no column for name: .* auto.evolve=true"):
        task.put([item(0, 1)])
    task.stop()
    task = opened(target, **{"fields.whitelist": "id"})
    task.put([item(0, 1)])
    task.stop()
    assert target.query("SELECT id FROM items") == [(1,)]


@pytest.mark.promise(
    "connect",
    "SQL: a record that the database rejects goes to the dead-letter topic, and the others are written "
    "to the table",
)
@pytest.mark.promise(
    "connect", "DirectorySink and SqlSink report a rejected record once, even if it is the last one"
)
def test_a_bad_record_is_reported_and_the_others_are_written(target: Target) -> None:
    target.execute("CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(100) NOT NULL)")
    task = opened(target)
    bad: list[int] = []
    task.report = lambda each, error: bad.append(each.original_offset)
    task.put(
        [record(0, {"id": 1, "name": "a"}), record(1, {"id": 1, "name": "twice"}), record(2, "no struct")]
    )
    task.put([record(3, {"id": 2, "name": None}), record(4, {"id": 3, "name": "c"}), record(5, None)])
    task.put([record(6, {"id": 3, "name": "twice"})])
    assert task.open([("items", 0)]) == {("items", 0): 7}, "what is reported is passed over"
    task.stop()
    assert bad == [1, 2, 3, 5, 6]
    assert target.query("SELECT id, name FROM items ORDER BY id") == [(1, "a"), (3, "c")]


@pytest.mark.promise(
    "connect", "SQL: an error of the server or of the login is not reported as an error of a record"
)
def test_records_wait_while_the_server_takes_no_writes(shared_postgres: PostgresServer) -> None:
    database = shared_postgres.create_database("sql_read_only")
    target = Target("postgresql", f"postgresql://penstock@127.0.0.1:{shared_postgres.port}/sql_read_only")
    try:
        target.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
        task = opened(target)
        target.execute("ALTER DATABASE sql_read_only SET default_transaction_read_only = on")
        again = task_of(target)
        for each in (task, again):
            each._database.engine.dispose()
            with pytest.raises(RetriableError, match="read-only transaction"):
                each.put([item(0, 1), item(1, 2)])
        target.execute(
            "SET transaction_read_only = off",
            "ALTER DATABASE sql_read_only SET default_transaction_read_only = off",
        )
        task.put([item(0, 1), item(1, 2)])
        assert target.query("SELECT id FROM items ORDER BY id") == [(1,), (2,)]
        target.execute("CREATE ROLE reader LOGIN", "GRANT SELECT ON items TO reader")
        url = target.url.replace("penstock@", "reader@")
        unable = task_of(Target("postgresql", url), **{"offsets.table": ""})
        with pytest.raises(ConnectError, match="permission denied") as caught:
            unable.put([item(2, 3)])
        assert type(caught.value) is ConnectError
        for each in (task, again, unable):
            each.stop()
    finally:
        database.drop()


@pytest.mark.promise("connect", "SQL: invalid settings are rejected with an error that names them")
@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"delete.enabled": "true", "pk.mode": "record_value"}, "delete.enabled"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields"),
        ({"connection.url": "oracle://host/db"}, "connection.url"),
        ({"connection.url": "nonsense"}, "connection.url"),
        ({"connection.url": "sqlite:////no/such/directory/x.db"}, "connection.url"),
        ({"connection.url": "jdbc:postgresql://127.0.0.1:1/db"}, "connection.url"),
        ({"connection.url": "jdbc:mysql://127.0.0.1:1/db?user=a&password=b"}, "connection.url"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, str], field: str) -> None:
    assert list(SqlSink.validate({"connection.url": "sqlite://", **settings})) == [field]
