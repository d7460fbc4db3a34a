"""One version of a PostgreSQL table, created for each Relation message: after each change of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.connect.api import INT64_SCHEMA, STRING_SCHEMA, struct_schema
from penstock.connect.connectors.cdc.envelope import OPTIONAL_INT64, OPTIONAL_STRING, SNAPSHOT_SCHEMA
from penstock.connect.connectors.cdc.table_schema import Column, TableSchema
from penstock.connect.connectors.postgres.column_types import PgType, column_type
from penstock.connect.connectors.postgres.settings import SourceSettings

SOURCE_SCHEMA = struct_schema(
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
        "schema": STRING_SCHEMA,
        "table": STRING_SCHEMA,
        "txId": OPTIONAL_INT64,
        "lsn": OPTIONAL_INT64,
        "xmin": OPTIONAL_INT64,
        "origin": OPTIONAL_STRING,
        "origin_lsn": OPTIONAL_INT64,
    },
    name="io.debezium.connector.postgresql.Source",
    version=1,
)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table. Its index is its position in rows."""

    name: str
    type_oid: int
    type_modifier: int
    required: bool


def table_schema(
    settings: SourceSettings,
    schema: str,
    table: str,
    columns: Sequence[TableColumn],
    key: Sequence[str],
    types: Mapping[int, PgType],
) -> TableSchema:
    typed = [
        Column(
            column.name,
            column_type(column.type_oid, column.type_modifier, types, settings.modes),
            column.required,
        )
        for column in columns
    ]
    return TableSchema(settings, schema, table, typed, key, SOURCE_SCHEMA)
