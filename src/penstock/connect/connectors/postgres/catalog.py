"""PostgreSQL's catalogue of tables and types. Read as of now, not as of a position in the WAL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection

from penstock.connect.connectors.postgres.column_types import PgType
from penstock.connect.connectors.postgres.literals import array_items
from penstock.connect.connectors.postgres.server import query
from penstock.connect.connectors.postgres.settings import SourceSettings
from penstock.connect.connectors.postgres.table_schema import TableColumn

_TYPES = """
SELECT t.oid, t.typname, t.typtype, CASE WHEN e.typarray = t.oid THEN e.oid ELSE 0 END, e.typdelim,
       t.typbasetype, t.typtypmod,
       (SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid)
FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem WHERE t.oid = ANY(%s::oid[])
"""
_COLUMNS = """
SELECT attname, atttypid, atttypmod, attnotnull FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)
"""


@dataclass(frozen=True, slots=True)
class TableLook:
    """The current definition of a table; without columns if it was dropped."""

    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    """The columns of the primary key, in its order."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    oid: int
    schema: str
    name: str
    columns: tuple[str, ...] | None
    """None: all. A publication may name some (PostgreSQL 15)."""
    row_filter: str | None
    partitioned: bool
    estimated_rows: int


class Catalog:
    """Types are cached: an oid is not reused while its type exists."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types: dict[int, PgType] = {}

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        """These types, and the types that they are composed of."""
        missing = {oid for oid in oids if oid not in self._types}
        while missing:
            for oid, name, kind, element, delimiter, base, modifier, labels in query(
                self._connection, _TYPES, [str(each) for each in sorted(missing)]
            ):
                self._types[int(oid)] = PgType(
                    int(oid), name, kind, int(element), delimiter or ",", int(base), int(modifier),
                    tuple(array_items(labels)) if labels else (),
                )  # fmt: skip
            found = [self._types[oid] for oid in missing if oid in self._types]
            missing = {oid for each in found for oid in (each.element, each.base) if oid} - self._types.keys()
        return self._types

    def forget(self, oid: int) -> None:
        """Removes a type from the cache: an enum may have new labels."""
        self._types.pop(oid, None)

    def look(self, table: int) -> TableLook:
        columns = tuple(
            TableColumn(name, int(oid), int(modifier), required == "t")
            for name, oid, modifier, required in query(self._connection, _COLUMNS, table)
        )
        return TableLook(columns, tuple(name for (name,) in query(self._connection, _KEY, table)))

    def published_tables(self, settings: SourceSettings) -> list[PublishedTable]:
        """The tables that are in the publication and match the settings, by name."""
        has_lists = self._connection.server_version >= 150000
        rows = query(
            self._connection,
            "SELECT c.oid, p.schemaname, p.tablename, c.relkind, c.reltuples::bigint, "
            + ("p.attnames, p.rowfilter" if has_lists else "NULL, NULL")
            + " FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename "
            'WHERE p.pubname = %s ORDER BY p.schemaname COLLATE "C", p.tablename COLLATE "C"',
            settings.publication,
        )
        return [
            PublishedTable(
                int(oid), schema, name, tuple(array_items(columns)) if columns else None, row_filter,
                kind == "p", max(0, int(estimate)),
            )
            for oid, schema, name, kind, estimate, columns, row_filter in rows
            if settings.takes_table(schema, name)
        ]  # fmt: skip
