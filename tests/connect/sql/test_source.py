"""The SQL source's task on real databases: each mode, restarts, types, changes of tables."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.connect.api import ConnectError, OffsetsReader, SourcePartition, SourceRecord
from penstock.connect.connectors.sql import SqlSource
from penstock.connect.connectors.sql.source import SqlSourceTask
from penstock.connect.runtime.offsets import key_text
from penstock.connect.schemas import check
from tests.connect.sql.conftest import Target

TABLE = "CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20), changed {} NOT NULL)"
TIMES = {"sqlite": "DATETIME", "postgresql": "TIMESTAMP", "mariadb": "DATETIME(6)", "duckdb": "TIMESTAMP"}


class Kept(OffsetsReader):
    """Offsets that outlive a task."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def offsets(self, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        return [self.last.get(key_text("x", each)) for each in partitions]


class Running:
    def __init__(self, target: Target, kept: Kept | None = None, **settings: str) -> None:
        self.kept = kept or Kept()
        config = {
            "connection.url": target.url, "topic.prefix": "db-", "poll.interval.ms": "1", "tables": "items",
            "timestamp.column.name": "changed", **settings,
        }  # fmt: skip
        self.task = SqlSourceTask()
        self.task.start(config, self.kept)

    def poll(self) -> list[SourceRecord]:
        records = self.task.poll()
        for record in records:
            assert record.value_schema is not None
            check(record.value_schema, record.value)
            self.kept.last[key_text("x", record.source_partition)] = dict(record.source_offset)
        return records

    def rest(self) -> list[SourceRecord]:
        """All that is there: until the tables were asked twice without an answer."""
        found: list[SourceRecord] = []
        empty = 0
        while empty < 3 * len(self.task._readers):
            records = self.poll()
            found += records
            empty = 0 if records else empty + 1
        return found

    def ids(self) -> list[int]:
        return [record.value["id"] for record in self.rest()]

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.task.stop()


def table(target: Target) -> None:
    target.execute(TABLE.format(TIMES[target.kind]))


def row(number: int, name: str, moment: str) -> str:
    return f"INSERT INTO items VALUES ({number}, '{name}', '{moment}')"


@pytest.mark.promise(
    "connect",
    "SQL: new and changed rows of tables and queries become records; after a restart the source "
    "continues after the last one",
)
def test_new_rows_by_an_incrementing_column(target: Target) -> None:
    table(target)
    target.execute(*(row(n, "a", "2026-01-01 00:00:00") for n in range(1, 8)))
    with Running(target, mode="incrementing", **{"batch.max.rows": "3"}) as running:
        assert [len(running.poll()) for _ in range(3)] == [3, 3, 1]
        target.execute(row(8, "b", "2025-01-01 00:00:00"))
        [record] = running.rest()
    assert record.topic == "db-items" and record.key is None
    assert record.value["id"] == 8 and record.value["name"] == "b"
    assert record.source_partition == {"protocol": "1", "table": "items"}
    assert record.source_offset == {"incrementing": 8}
    target.execute(row(9, "c", "2025-01-01 00:00:00"))
    with Running(target, running.kept, mode="incrementing", **{"incrementing.column.name": "id"}) as again:
        assert again.ids() == [9]


@pytest.mark.promise(
    "connect",
    "SQL: new and changed rows of tables and queries become records; after a restart the source "
    "continues after the last one",
)
def test_changed_rows_by_a_timestamp(target: Target) -> None:
    table(target)
    target.execute(*(row(n, "a", "2026-01-01 00:00:00.250") for n in range(1, 6)))
    target.execute(row(6, "a", "2026-01-01 00:00:00.251"), row(7, "later", "2999-01-01 00:00:00"))
    with Running(target, mode="timestamp", **{"batch.max.rows": "2"}) as running:
        first = running.poll()
        # A restart here must not pass over a part of the rows of one moment.
        assert sorted(record.value["id"] for record in first) == [1, 2, 3, 4, 5]
    with Running(target, running.kept, mode="timestamp") as running:
        assert running.ids() == [6]
        target.execute("UPDATE items SET name = 'b', changed = '2026-01-02 00:00:00' WHERE id = 2")
        [record] = running.rest()
    assert record.value["name"] == "b"
    assert record.value["changed"] == datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert record.source_offset == {"timestamp": 1767312000000, "timestamp_nanos": 0}


@pytest.mark.promise(
    "connect",
    "SQL: new and changed rows of tables and queries become records; after a restart the source "
    "continues after the last one",
)
def test_new_and_changed_rows_by_both_columns(target: Target) -> None:
    table(target)
    target.execute(*(row(n, "a", "2026-01-01 00:00:00.123") for n in range(1, 6)))
    mode = {"mode": "timestamp+incrementing", "batch.max.rows": "2"}
    with Running(target, **mode) as running:
        assert [record.value["id"] for record in running.poll()] == [1, 2]
    with Running(target, running.kept, **mode) as running:
        assert running.ids() == [3, 4, 5], "it goes on inside of one moment"
        target.execute(row(6, "b", "2026-01-01 00:00:00.124"))
        target.execute("UPDATE items SET changed = '2026-01-01 00:00:00.125' WHERE id = 1")
        assert running.ids() == [6, 1]


@pytest.mark.promise(
    "connect",
    "SQL: new and changed rows of tables and queries become records; after a restart the source "
    "continues after the last one",
)
def test_bulk_reads_everything_each_time(target: Target) -> None:
    table(target)
    target.execute(*(row(n, "a", "2026-01-01 00:00:00") for n in range(1, 4)))
    with Running(target, mode="bulk", **{"batch.max.rows": "2"}) as running:
        found = []
        while len(found) < 6:
            found += [record.value["id"] for record in running.poll()]
    assert found == [1, 2, 3, 1, 2, 3]


@pytest.mark.promise(
    "connect",
    "SQL: new and changed rows of tables and queries become records; after a restart the source "
    "continues after the last one",
)
def test_a_query_in_place_of_tables(target: Target) -> None:
    table(target)
    target.execute(row(1, "a%b", "2026-01-01 00:00:00"), row(2, "ab", "2026-01-01 00:00:00"))
    text = "SELECT id, name, id * 2 AS twice FROM items WHERE name LIKE 'a%b'"
    settings = {"mode": "incrementing", "query": text, "incrementing.column.name": "id"}
    with Running(target, **settings) as running:
        records = running.rest()
        target.execute(row(3, "axb", "2026-01-01 00:00:00"))
        assert running.ids() == [3]
    assert [record.value for record in records] == [
        {"id": 1, "name": "a%b", "twice": 2},
        {"id": 2, "name": "ab", "twice": 4},
    ]
    assert {record.topic for record in records} == {"db-"}
    assert records[0].source_partition == {"query": "query"}


@pytest.mark.promise("connect", "SQL: every common column type is mapped to a Connect value")
def test_types_become_values_of_connect(target: Target) -> None:
    types = (
        "i BIGINT, f DOUBLE PRECISION, n NUMERIC(10, 2), yes BOOLEAN, day DATE, hour TIME, raw "
        + {
            "sqlite": "BLOB, moment DATETIME",
            "postgresql": "BYTEA, moment TIMESTAMPTZ, j JSONB, u UUID, big NUMERIC",
            "mariadb": "BLOB, moment TIMESTAMP, w BIGINT UNSIGNED",
            "duckdb": "BLOB, moment TIMESTAMPTZ, l INTEGER[]",
        }[target.kind]
    )
    binary = {"postgresql": "'\\x00ff'", "duckdb": "'\\x00\\xff'::BLOB"}.get(target.kind, "x'00ff'")
    moment = "2026-01-02 03:04:05" + ("+00" if target.kind in ("postgresql", "duckdb") else "")
    more = {
        "sqlite": "",
        "postgresql": ", '{\"a\": 1}', '8c5d0d0e-1c1f-4a0e-9a51-111111111111', 1.50",
        "mariadb": ", 18446744073709551615",
        "duckdb": ", [1, 2]",
    }[target.kind]
    target.execute(
        f"CREATE TABLE items (id INTEGER PRIMARY KEY, {types})",
        f"INSERT INTO items VALUES (1, 4000000000, 0.1, 12.5, TRUE, '2026-01-02', '03:04:05', {binary}, "
        f"'{moment}'{more})",
        "INSERT INTO items (id) VALUES (2)",
    )
    if target.kind == "mariadb":
        target.execute(
            "SET time_zone = '+00:00'", "UPDATE items SET moment = '2026-01-02 03:04:05' WHERE id = 1"
        )
    with Running(target, mode="incrementing", **{"incrementing.column.name": "id"}) as running:
        full, empty = [record.value for record in running.rest()]
    assert full["i"] == 4_000_000_000 and full["f"] == 0.1 and full["yes"] is True
    assert full["n"] == decimal.Decimal("12.50") and full["raw"] == b"\0\xff"
    assert full["day"] == datetime.date(2026, 1, 2) and full["hour"] == datetime.time(3, 4, 5)
    assert full["moment"] == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    if target.kind == "postgresql":
        assert full["j"] == '{"a":1}' and full["u"].startswith("8c5d") and full["big"] == "1.50"
    if target.kind == "mariadb":
        assert full["w"] == 18446744073709551615
    if target.kind == "duckdb":
        assert full["l"] == "[1,2]"
    assert {name for name, value in empty.items() if value is not None} <= {"id", "moment"}


def test_a_new_column_is_in_the_next_records(target: Target) -> None:
    table(target)
    target.execute(row(1, "a", "2026-01-01 00:00:00"))
    with Running(target, mode="incrementing") as running:
        assert running.ids() == [1]
        target.execute("ALTER TABLE items ADD COLUMN size INTEGER")
        target.execute("INSERT INTO items (id, changed, size) VALUES (2, '2026-01-01 00:00:00', 5)")
        [record] = running.rest()
    assert record.value["size"] == 5


def test_columns_of_the_mode_are_checked(target: Target) -> None:
    target.execute("CREATE TABLE items (id INTEGER, changed VARCHAR(40))")
    with (
        Running(target, mode="incrementing") as running,
        pytest.raises(ConnectError, match="set incrementing"),
    ):
        running.poll()
    with Running(target, mode="incrementing", **{"incrementing.column.name": "nope"}) as running:
        with pytest.raises(ConnectError, match="no column nope"):
            running.poll()
    with Running(target, mode="incrementing", **{"incrementing.column.name": "id"}) as running:
        with pytest.raises(ConnectError, match="allows nulls"):
            running.poll()


def test_tables_are_divided_among_tasks_and_new_ones_are_found(target: Target) -> None:
    target.execute(
        "CREATE TABLE a (id INTEGER)", "CREATE TABLE b (id INTEGER)", "CREATE TABLE c (id INTEGER)"
    )
    connector = SqlSource()
    base = {"connection.url": target.url, "topic.prefix": "x", "mode": "bulk", "table.blacklist": "b"}
    connector.start(base)
    assert [each["tables"] for each in connector.task_configs(1)] == ["a,c"]
    assert not connector.changed()
    target.execute("CREATE TABLE d (id INTEGER)")
    assert connector.changed()
    assert [each["tables"] for each in connector.task_configs(2)] == ["a,d", "c"]
    connector.stop()
    connector = SqlSource()
    connector.start({**base, "table.whitelist": "a,zzz"})
    with pytest.raises(ConnectError, match="zzz"):
        connector.task_configs(1)
    connector.stop()


@pytest.mark.promise("connect", "SQL: invalid settings are rejected with an error that names them")
@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"mode": "incrementing", "query": "SELECT 1 AS a"}, "incrementing.column.name"),
        ({"mode": "bulk", "query": "SELECT 1", "table.whitelist": "a"}, "query"),
        ({"mode": "bulk", "db.timezone": "Mars/Olympus"}, "db.timezone"),
        ({"mode": "bulk", "exactly.once.support": "required"}, "mode"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, str], field: str) -> None:
    config = {"connection.url": "sqlite://", "topic.prefix": "x", **settings}
    assert list(SqlSource.validate(config)) == [field]
