"""A database's catalogue: the columns, types and primary keys of its tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection
from sqlalchemy.types import TypeEngine

from penstock.connect.connectors.sql.database import Database


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: TypeEngine[Any]
    nullable: bool


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    schema: str | None
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]

    def column(self, name: str) -> Column | None:
        return next((each for each in self.columns if each.name == name), None)


def find_table(
    database: Database, connection: Connection, name: str, schema: str | None = None
) -> Table | None:
    """None if there is no table or view of this name."""
    if database.dialect == "duckdb":
        return _duckdb_table(connection, name, schema)
    inspector = sqlalchemy.inspect(connection)
    try:
        columns = inspector.get_columns(name, schema)
        keys = inspector.get_pk_constraint(name, schema)["constrained_columns"]
    except exc.NoSuchTableError:
        return None
    if not columns:
        return None
    found = tuple(Column(each["name"], each["type"], bool(each["nullable"])) for each in columns)
    return Table(name, schema, found, tuple(keys))


def table_names(database: Database, connection: Connection, schema: str | None = None) -> list[str]:
    if database.dialect == "duckdb":
        rows = connection.exec_driver_sql(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = ? AND NOT temporary "
            "AND database_name = current_database()",
            (schema or "main",),
        )
        return sorted(row[0] for row in rows)
    return sorted(sqlalchemy.inspect(connection).get_table_names(schema))


def typed_by_values(connection: Connection, table: Table, source: str) -> Table:
    """SQLite: an expression of a query has no type, only its values do."""
    kinds: dict[str, Any] = {
        "integer": sqlalchemy.BigInteger(),
        "real": sqlalchemy.Double(),
        "blob": sqlalchemy.LargeBinary(),
    }
    columns = []
    for column in table.columns:
        if isinstance(column.type, sqlalchemy.types.NullType):
            name = connection.dialect.identifier_preparer.quote_identifier(column.name)
            found = connection.exec_driver_sql(
                f"SELECT typeof({name}) FROM {source} WHERE {name} IS NOT NULL LIMIT 1"
            ).scalar()
            column = replace(column, type=kinds.get(found or "", sqlalchemy.Text()))
        columns.append(column)
    return replace(table, columns=tuple(columns))


# SQLAlchemy's reflection of DuckDB queries PostgreSQL's catalog, which DuckDB has only in part.

_DUCKDB_TYPES: dict[str, Any] = {
    "TINYINT": sqlalchemy.SmallInteger,
    "SMALLINT": sqlalchemy.SmallInteger,
    "UTINYINT": sqlalchemy.SmallInteger,
    "INTEGER": sqlalchemy.Integer,
    "USMALLINT": sqlalchemy.Integer,
    "BIGINT": sqlalchemy.BigInteger,
    "UINTEGER": sqlalchemy.BigInteger,
    "UBIGINT": sqlalchemy.Numeric(20, 0),
    "HUGEINT": sqlalchemy.Numeric(38, 0),
    "FLOAT": sqlalchemy.REAL,
    "DOUBLE": sqlalchemy.Double,
    "BOOLEAN": sqlalchemy.Boolean,
    "VARCHAR": sqlalchemy.Text,
    "BLOB": sqlalchemy.LargeBinary,
    "DATE": sqlalchemy.Date,
    "TIME": sqlalchemy.Time,
    "TIMESTAMP": sqlalchemy.DateTime,
    "TIMESTAMP_MS": postgresql.TIMESTAMP(precision=3),
    "TIMESTAMP_S": postgresql.TIMESTAMP(precision=0),
    "TIMESTAMP WITH TIME ZONE": sqlalchemy.DateTime(timezone=True),
    "JSON": sqlalchemy.JSON,
    "UUID": sqlalchemy.Uuid,
}


def _duckdb_table(connection: Connection, name: str, schema: str | None) -> Table | None:
    rows = connection.exec_driver_sql(
        "SELECT column_name, data_type, is_nullable, numeric_precision, numeric_scale FROM duckdb_columns() "
        "WHERE table_name = ? AND schema_name = ? AND database_name IN (current_database(), 'temp') "
        "ORDER BY column_index",
        (name, schema or "main"),
    ).fetchall()
    if not rows:
        return None
    keys = connection.exec_driver_sql(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE table_name = ? AND schema_name = ? "
        "AND constraint_type = 'PRIMARY KEY' AND database_name = current_database()",
        (name, schema or "main"),
    ).scalar()
    columns = []
    for column, kind, nullable, precision, scale in rows:
        found: Any = _DUCKDB_TYPES.get(kind, sqlalchemy.types.NullType)
        if kind.startswith("DECIMAL"):
            found = sqlalchemy.Numeric(precision, scale)
        columns.append(Column(column, found() if isinstance(found, type) else found, bool(nullable)))
    return Table(name, schema, tuple(columns), tuple(keys or ()))
