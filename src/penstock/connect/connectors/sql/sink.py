"""Writes records of topics to tables, with their offsets in the same transaction: exactly once.

Settings have the names of Confluent's JDBC sink. Reading starts after the last record in the database,
whatever offset the group has committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import Connection

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    Importance,
    OneOf,
    Range,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
    parse,
)
from penstock.connect.connectors.sql.catalog import Column, Table
from penstock.connect.connectors.sql.column_types import bound
from penstock.connect.connectors.sql.database import CONNECTION, Database, problem_with, short
from penstock.connect.connectors.sql.offsets import NONE_YET, OffsetTable
from penstock.connect.connectors.sql.rows import Row, RowShape
from penstock.connect.connectors.sql.statements import Writer
from penstock.connect.connectors.sql.target_tables import TargetTables

_FIELDS = (
    *CONNECTION,
    Field(
        "insert.mode",
        default="insert",
        doc="insert, upsert (insert, or update the row of the same key) or update.",
        validator=OneOf("insert", "upsert", "update"),
        importance=Importance.HIGH,
    ),
    Field(
        "pk.mode",
        default="none",
        doc="What the primary key is made of: the record's key, fields of its value, or its place in Kafka.",
        validator=OneOf("none", "kafka", "record_key", "record_value"),
        importance=Importance.HIGH,
    ),
    Field("pk.fields", ConfigType.LIST, (), "The columns of the primary key."),
    Field("fields.whitelist", ConfigType.LIST, (), "The fields of the value that are written; default: all."),
    Field("table.name.format", default="${topic}", doc="The table; a dot divides schema and table."),
    Field("auto.create", ConfigType.BOOLEAN, False, "Whether a missing table is created."),
    Field("auto.evolve", ConfigType.BOOLEAN, False, "Whether missing columns are added."),
    Field("delete.enabled", ConfigType.BOOLEAN, False, "Whether a record without a value deletes the row."),
    Field("batch.size", ConfigType.INT, 3000, "The most records of one transaction.", Range(1)),
    Field(
        "offsets.table",
        default="penstock_connect_offsets",
        doc="The table with the offsets; empty: none is kept, and delivery is at least once.",
        importance=Importance.LOW,
    ),
)


class SqlSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        settings = parse(_FIELDS, config)
        self._mode: str = settings["insert.mode"]
        self._most: int = settings["batch.size"]
        self._shape = RowShape(
            settings["pk.mode"],
            tuple(settings["pk.fields"]),
            frozenset(settings["fields.whitelist"]),
            settings["delete.enabled"],
        )
        self._database = Database(config)
        self._tables = TargetTables(
            self._database,
            settings["table.name.format"],
            create=settings["auto.create"],
            evolve=settings["auto.evolve"],
        )
        self._offsets = _offset_table(self._database, settings)
        self._created = False
        self._next: dict[TopicPartition, int] = {}

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        if self._offsets is None:
            return None
        try:
            if not self._created:
                self._offsets.create()
                self._created = True
            found = self._offsets.open(partitions)
        except exc.DBAPIError as error:
            raise ConnectError(f"{self._database.address}: {short(error)}") from error
        self._next |= found
        return found

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._next.pop(place, None)

    def put(self, records: list[SinkRecord]) -> None:
        with self._database.held():
            self._put(records)

    def _put(self, records: list[SinkRecord]) -> None:
        for start in range(0, len(records), self._most):
            part = records[start : start + self._most]
            try:
                self._write(part)
            except DataError:
                self._write_each(part)
            except exc.DBAPIError:
                self._tables.forget()
                self._write_each(part)

    def _write_each(self, records: list[SinkRecord]) -> None:
        """One record is bad: write each record in its own transaction, so that the others are written."""
        refused: dict[TopicPartition, int] = {}
        for record in records:
            place = (record.original_topic, record.original_partition)
            try:
                self._write([record])
                refused.pop(place, None)
                continue
            except DataError as error:
                self.report(record, error)
            except exc.DBAPIError as error:
                self._tables.forget()
                self.report(record, DataError(f"{self._database.address}: {short(error)}"))
            refused[place] = record.original_offset + 1
        self._pass_over(refused)

    def _pass_over(self, ends: Mapping[TopicPartition, int]) -> None:
        """Stores the offset after reported records, so that another task does not read them again."""
        if self._offsets is None or not ends:
            return
        with self._database.transaction() as connection:
            self._store(connection, ends)
        self._advance(ends)

    def _write(self, records: list[SinkRecord]) -> None:
        """Writes all of them with their offsets, or nothing."""
        ends: dict[TopicPartition, int] = {}
        for record in records:
            ends[record.original_topic, record.original_partition] = record.original_offset + 1
        # Tables are altered before, because DDL ends a transaction in MySQL.
        rows = [(record, *self._row(record)) for record in records]
        with self._database.transaction() as connection:
            if self._offsets is not None:
                stored = self._store(connection, ends)
                rows = [
                    each
                    for each in rows
                    if each[0].original_offset >= stored[each[0].original_topic, each[0].original_partition]
                ]
            self._execute(connection, rows)
        self._advance(ends)

    def _store(self, connection: Connection, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Stores offsets that are higher than the stored ones. Returns those that were stored before."""
        assert self._offsets is not None
        stored = {place: self._stored(connection, place) for place in sorted(ends)}
        for place, offset in ends.items():
            if offset > stored[place]:
                self._offsets.store(connection, place, offset)
        return stored

    def _advance(self, ends: Mapping[TopicPartition, int]) -> None:
        for place, offset in ends.items():
            self._next[place] = max(offset, self._next.get(place, 0))

    def _stored(self, connection: Connection, place: TopicPartition) -> int:
        assert self._offsets is not None
        stored = self._offsets.lock(connection, place)
        known = self._next.get(place, NONE_YET)
        if stored < known:
            raise ConnectError(
                f"The stored offset of {place[0]}-{place[1]} went back from {known} to {stored}: the task "
                "starts again from there"
            )
        return stored

    def _row(self, record: SinkRecord) -> tuple[Table, Row]:
        row = self._shape.row(record)
        return self._tables.fitting(record.topic, row.key, row.schemas), row

    def _execute(self, connection: Connection, rows: Sequence[tuple[SinkRecord, Table, Row]]) -> None:
        """Groups of consecutive rows of the same kind, in the order of the records."""
        runs: list[tuple[tuple[Any, ...], Table, list[Column], list[tuple[Any, ...]]]] = []
        last: dict[tuple[str | None, str], int] = {}
        dialect = self._database.dialect
        for _, table, row in rows:
            place = (table.schema, table.name)
            kind = (place, tuple(row.key), None if row.values is None else tuple(row.values))
            at = last.get(place)
            # Tables are independent; the order within a table is kept.
            if at is None or runs[at][0] != kind:
                at = last[place] = len(runs)
                columns = [_column(table, name) for name in (*row.key, *(row.values or ()))]
                runs.append((kind, table, columns, []))
            items = (*row.key.values(), *row.values.values()) if row.values else row.key.values()
            _, _, columns, values = runs[at]
            values.append(tuple([bound(item, dialect, column) for item, column in zip(items, columns)]))
        for (_, keys, others), table, _, values in runs:
            writer = Writer(self._database, table, keys, others or ())
            if others is None:
                writer.delete(connection, values)
            elif self._mode == "upsert":
                writer.upsert(connection, values)
            elif self._mode == "update":
                writer.update(connection, values)
            else:
                writer.insert(connection, values)

    def stop(self) -> None:
        self._database.close()


def _column(table: Table, name: str) -> Column:
    found = table.column(name)
    assert found is not None
    return found


def _offset_table(database: Database, settings: Mapping[str, Any]) -> OffsetTable | None:
    name = settings["offsets.table"]
    return OffsetTable(database, name, str(settings.get("name") or "sink")) if name else None


class SqlSink(SinkConnector):
    """Rows of tables, one for each record or for each key."""

    task_class = SqlSinkTask
    aliases = ("io.confluent.connect.jdbc.JdbcSinkConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        mode = settings["pk.mode"]
        if settings["insert.mode"] != "insert" and mode == "none":
            return {"pk.mode": [f"insert.mode={settings['insert.mode']} needs a primary key: set pk.mode"]}
        if settings["delete.enabled"] and mode != "record_key":
            return {
                "delete.enabled": ["Deletes need pk.mode=record_key: the key is all that such a record has"]
            }
        if mode == "kafka" and len(settings["pk.fields"]) not in (0, 3):
            return {"pk.fields": ["pk.mode=kafka has three columns: topic, partition, offset"]}
        return problem_with(config)

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        settings = parse(cls.fields, config)
        database = Database(config)
        try:
            table = _offset_table(database, settings)
            if table is not None:
                table.create()
                table.alter(offsets)
        except exc.DBAPIError as error:
            raise ConnectError(f"{database.address}: {short(error)}") from error
        finally:
            database.close()
        return True
