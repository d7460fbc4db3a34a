"""One version of a MySQL table, made for each new description of it in the binlog."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.connect.api import INT32_SCHEMA, INT64_SCHEMA, STRING_SCHEMA, Schema, struct_schema
from penstock.connect.connectors.cdc.envelope import OPTIONAL_INT64, OPTIONAL_STRING, SNAPSHOT_SCHEMA
from penstock.connect.connectors.cdc.table_schema import Column, TableSchema
from penstock.connect.connectors.mysql.column_types import MySqlColumn, column_type
from penstock.connect.connectors.mysql.settings import SourceSettings


def source_schema(flavour: str) -> Schema:
    return struct_schema(
        {
            "version": STRING_SCHEMA,
            "connector": STRING_SCHEMA,
            "name": STRING_SCHEMA,
            "ts_ms": INT64_SCHEMA,
            "snapshot": SNAPSHOT_SCHEMA,
            "db": STRING_SCHEMA,
            "sequence": OPTIONAL_STRING,
            "ts_us": OPTIONAL_INT64,
            "ts_ns": OPTIONAL_INT64,
            "table": OPTIONAL_STRING,
            "server_id": INT64_SCHEMA,
            "gtid": OPTIONAL_STRING,
            "file": STRING_SCHEMA,
            "pos": INT64_SCHEMA,
            "row": INT32_SCHEMA,
            "thread": OPTIONAL_INT64,
            "query": OPTIONAL_STRING,
        },
        name=f"io.debezium.connector.{flavour}.Source",
        version=1,
    )


def table_schema(
    settings: SourceSettings, database: str, table: str, columns: Sequence[MySqlColumn], key: Sequence[str]
) -> TableSchema:
    typed = [Column(each.name, column_type(each, settings.modes), each.required) for each in columns]
    return TableSchema(settings, database, table, typed, key, source_schema(settings.flavour))
