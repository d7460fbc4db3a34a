"""MySQL's records in Debezium's envelope: its `source` block, and DDL statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import penstock
from penstock.connect.api import (
    INT64_SCHEMA,
    STRING_SCHEMA,
    SourceOffset,
    SourceRecord,
    array_schema,
    struct_schema,
)
from penstock.connect.connectors.cdc.envelope import OPTIONAL_STRING
from penstock.connect.connectors.cdc.records import ChangeRecords
from penstock.connect.connectors.mysql.settings import SourceSettings
from penstock.connect.connectors.mysql.statements import SchemaChange
from penstock.connect.connectors.mysql.table_schema import source_schema

_TABLE_CHANGE = struct_schema(
    {"type": STRING_SCHEMA, "id": STRING_SCHEMA}, name="io.debezium.connector.schema.Change", version=1
)


@dataclass(slots=True)
class Moment:
    """Where and when a change happened."""

    seconds: int
    """When the statement began, or the snapshot."""
    server_id: int
    file: str
    pos: int
    row: int = 0
    gtid: str | None = None
    thread: int | None = None
    snapshot: str = "false"


class Records(ChangeRecords[Moment]):
    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        flavour = settings.flavour
        self._schema_changes = settings.values["include.schema.changes"]
        self._schema_topic = settings.prefix
        self._source = {
            "version": penstock.__version__,
            "connector": flavour,
            "name": settings.prefix,
            "sequence": None,
            "query": None,
        }
        name = f"io.debezium.connector.{flavour}.SchemaChange"
        self._schema_key = struct_schema({"databaseName": STRING_SCHEMA}, name=f"{name}Key", version=1)
        self._schema_value = struct_schema(
            {
                "source": source_schema(flavour),
                "ts_ms": INT64_SCHEMA,
                "databaseName": OPTIONAL_STRING,
                "schemaName": OPTIONAL_STRING,
                "ddl": OPTIONAL_STRING,
                "tableChanges": array_schema(_TABLE_CHANGE),
            },
            name=f"{name}Value",
            version=1,
        )

    def source_block(self, space: str, table: str, moment: Moment) -> dict[str, Any]:
        return {
            **self._source,
            "ts_ms": moment.seconds * 1000,
            "snapshot": moment.snapshot,
            "db": space,
            "ts_us": moment.seconds * 1_000_000,
            "ts_ns": moment.seconds * 1_000_000_000,
            "table": table or None,
            "server_id": moment.server_id,
            "gtid": moment.gtid,
            "file": moment.file,
            "pos": moment.pos,
            "row": moment.row,
            "thread": moment.thread,
        }

    def schema_change(
        self, change: SchemaChange, text: str, moment: Moment, now: int, offset: SourceOffset
    ) -> list[SourceRecord]:
        if not self._schema_changes:
            return []
        tables = []
        if change.table is not None:
            tables = [{"type": change.verb, "id": f'"{change.database}"."{change.table}"'}]
        value = {
            "source": self.source_block(change.database, change.table or "", moment),
            "ts_ms": now // 1000,
            "databaseName": change.database,
            "schemaName": None,
            "ddl": text,
            "tableChanges": tables,
        }
        return [
            SourceRecord(
                self._schema_topic,
                value,
                {"databaseName": change.database},
                self._schema_value,
                self._schema_key,
                source_partition=self.partition,
                source_offset=offset,
            )
        ]
