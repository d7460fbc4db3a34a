"""Records in Debezium's envelope, for rows of a snapshot and for changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import penstock
from penstock.connect.api import (
    BYTES_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Header,
    SourceOffset,
    SourceRecord,
    struct_schema,
)
from penstock.connect.connectors.postgres.offsets import source_partition
from penstock.connect.connectors.postgres.pgoutput import Delete, LogicalMessage, Row, Update, Value
from penstock.connect.connectors.postgres.settings import SourceSettings
from penstock.connect.connectors.postgres.table_schema import ENVELOPE_TAIL, TableSchema

_HEARTBEAT_KEY = struct_schema(
    {"serverName": STRING_SCHEMA}, name="io.debezium.connector.common.ServerNameKey", version=1
)
_HEARTBEAT_VALUE = struct_schema(
    {"ts_ms": INT64_SCHEMA}, name="io.debezium.connector.common.Heartbeat", version=1
)
_MESSAGE_KEY = struct_schema(
    {"prefix": STRING_SCHEMA.as_optional()}, name="io.debezium.connector.postgresql.MessageKey", version=1
)
_MESSAGE_VALUE = struct_schema(
    {
        **ENVELOPE_TAIL,
        "message": struct_schema(
            {"prefix": STRING_SCHEMA.as_optional(), "content": BYTES_SCHEMA.as_optional()},
            name="io.debezium.connector.postgresql.Message",
            version=1,
        ),
    },
    name="io.debezium.connector.postgresql.MessageValue",
    version=1,
)


@dataclass(slots=True)
class Moment:
    """Where and when a change happened."""

    micros: int
    """Of the commit, or of the snapshot."""
    lsn: int
    xid: int | None = None
    last_commit_lsn: int | None = None
    origin: str | None = None
    snapshot: str = "false"


class Records:
    """Makes all records of one task. All records of a change have the same offset; the caller says which."""

    def __init__(self, settings: SourceSettings) -> None:
        values = settings.values
        self._tombstones = values["tombstones.on.delete"]
        self._skipped = set(values["skipped.operations"])
        self.partition = source_partition(settings.prefix)
        self._heartbeat_topic = f"{values['topic.heartbeat.prefix']}.{settings.prefix}"
        self._message_topic = f"{settings.prefix}{values['topic.delimiter']}message"
        self._prefix = settings.prefix
        self._source = {
            "version": penstock.__version__,
            "connector": "postgresql",
            "name": settings.prefix,
            "db": values["database.dbname"],
            "xmin": None,
            "origin_lsn": None,
        }

    def read(
        self, table: TableSchema, row: Sequence[Value], moment: Moment, now: int, offset: SourceOffset
    ) -> SourceRecord:
        return self._change(table, "r", None, table.value(row), table.key(row), moment, now, offset)

    def insert(
        self, table: TableSchema, row: Row, moment: Moment, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        if "c" in self._skipped:
            return []
        return [self._change(table, "c", None, table.value(row), table.key(row), moment, now, offset)]

    def update(
        self, table: TableSchema, change: Update, moment: Moment, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        old = None if change.old_is_key else change.old
        new_key = table.key(change.new)
        if change.old is not None and table.has_key:
            old_key = table.key(change.old)
            if old_key != new_key:
                return self._moved(table, change, old_key, new_key, moment, now, offset)
        if "u" in self._skipped:
            return []
        before = None if old is None else table.value(old)
        after = table.value(change.new, old)
        return [self._change(table, "u", before, after, new_key, moment, now, offset)]

    def _moved(
        self,
        table: TableSchema,
        change: Update,
        old_key: dict[str, Any] | None,
        new_key: dict[str, Any] | None,
        moment: Moment,
        now: int,
        offset: SourceOffset,
    ) -> list[SourceRecord]:
        """An update of the key: a delete of the old one and a create of the new one, as Debezium has it."""
        assert change.old is not None
        records = self._deleted(table, change.old, change.old_is_key, moment, now, offset)
        if records:
            header = Header("__debezium.newkey", new_key, table.key_schema)
            records[0] = records[0].changed(headers=(header,))
        if "c" not in self._skipped:
            after = table.value(change.new, None if change.old_is_key else change.old)
            created = self._change(table, "c", None, after, new_key, moment, now, offset)
            records.append(created.changed(headers=(Header("__debezium.oldkey", old_key, table.key_schema),)))
        return records

    def delete(
        self, table: TableSchema, change: Delete, moment: Moment, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        return self._deleted(table, change.old, change.old_is_key, moment, now, offset)

    def _deleted(
        self, table: TableSchema, old: Row, old_is_key: bool, moment: Moment, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        if "d" in self._skipped:
            return []
        key = table.key(old)
        before = table.identity(old) if old_is_key else table.value(old)
        records = [self._change(table, "d", before, None, key, moment, now, offset)]
        if self._tombstones and key is not None:
            records.append(
                SourceRecord(
                    table.topic,
                    None,
                    key,
                    None,
                    table.key_schema,
                    source_partition=self.partition,
                    source_offset=offset,
                )
            )
        return records

    def truncate(
        self, table: TableSchema, moment: Moment, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        if "t" in self._skipped:
            return []
        return [self._change(table, "t", None, None, None, moment, now, offset)]

    def message(
        self, message: LogicalMessage, moment: Moment, now: int, offset: SourceOffset
    ) -> SourceRecord:
        value = {
            "message": {"prefix": message.prefix, "content": message.content},
            "source": self._source_block("", "", moment),
            "transaction": None,
            "op": "m",
            "ts_ms": now // 1000,
            "ts_us": now,
            "ts_ns": now * 1000,
        }
        return SourceRecord(
            self._message_topic,
            value,
            {"prefix": message.prefix},
            _MESSAGE_VALUE,
            _MESSAGE_KEY,
            source_partition=self.partition,
            source_offset=offset,
        )

    def heartbeat(self, now: int, offset: SourceOffset) -> SourceRecord:
        return SourceRecord(
            self._heartbeat_topic,
            {"ts_ms": now // 1000},
            {"serverName": self._prefix},
            _HEARTBEAT_VALUE,
            _HEARTBEAT_KEY,
            source_partition=self.partition,
            source_offset=offset,
        )

    def _source_block(self, schema: str, table: str, moment: Moment) -> dict[str, Any]:
        commit = "null" if moment.last_commit_lsn is None else f'"{moment.last_commit_lsn}"'
        return {
            **self._source,
            "ts_ms": moment.micros // 1000,
            "snapshot": moment.snapshot,
            "sequence": f'[{commit},"{moment.lsn}"]',
            "ts_us": moment.micros,
            "ts_ns": moment.micros * 1000,
            "schema": schema,
            "table": table,
            "txId": moment.xid,
            "lsn": moment.lsn,
            "origin": moment.origin,
        }

    def _change(
        self,
        table: TableSchema,
        operation: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        key: dict[str, Any] | None,
        moment: Moment,
        now: int,
        offset: SourceOffset,
    ) -> SourceRecord:
        value = {
            "before": before,
            "after": after,
            "source": self._source_block(table.schema, table.table, moment),
            "transaction": None,
            "op": operation,
            "ts_ms": now // 1000,
            "ts_us": now,
            "ts_ns": now * 1000,
        }
        return SourceRecord(
            table.topic,
            value,
            key,
            table.value_schema,
            None if key is None else table.key_schema,
            source_partition=self.partition,
            source_offset=offset,
        )
