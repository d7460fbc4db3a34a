"""The server's catalogue of tables. Read as of now, not as of a position in the binlog."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pymysql.connections import Connection

from penstock.connect.connectors.mysql.column_types import MySqlColumn
from penstock.connect.connectors.mysql.server import is_mariadb, query
from penstock.connect.connectors.mysql.settings import SourceSettings

_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,
       DATETIME_PRECISION, IS_NULLABLE
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEY = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""
# MariaDB's JSON is LONGTEXT with this check.
_CHECKS = """
SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""
_JSON_CHECK = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(TABLE_ROWS, 0) FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "nchar", "nvarchar"}
_BLOBS = {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_SHAPES = {
    "geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableLook:
    """The current definition of a table; without columns if it was dropped."""

    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...]
    """The columns of the primary key, in its order."""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    database: str
    table: str
    estimated_rows: int

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


class Catalog:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._mariadb = is_mariadb(connection)

    def tables(self, settings: SourceSettings) -> list[CapturedTable]:
        """The tables that match the settings, by name."""
        found = [
            CapturedTable(str(row[0]), str(row[1]), int(row[2])) for row in query(self._connection, _TABLES)
        ]
        taken = [table for table in found if settings.takes_table(table.database, table.table)]
        return sorted(taken, key=lambda table: table.name)

    def look(self, database: str, table: str) -> TableLook:
        texts = set()
        if self._mariadb:
            for (clause,) in query(self._connection, _CHECKS, database, table):
                if found := _JSON_CHECK.fullmatch(str(clause)):
                    texts.add(found[1].replace("``", "`"))
        columns = []
        for row in query(self._connection, _COLUMNS, database, table):
            name, kind, declared, octets, precision, scale, fraction, nullable = row
            kind, length, digits = _kind(str(kind)), int(octets or 0), int(fraction or 0)
            if kind == "text" and name in texts:
                kind = "json"
            if kind in ("decimal", "bit"):
                length, digits = int(precision), int(scale or 0)
            labels = ()
            if kind in ("enum", "set"):
                labels = tuple(each.replace("''", "'") for each in _LABEL.findall(str(declared)))
            unsigned = "unsigned" in str(declared) and kind not in ("enum", "set")
            columns.append(MySqlColumn(name, kind, nullable == "NO", unsigned, length, digits, labels))
        key = tuple(str(row[0]) for row in query(self._connection, _KEY, database, table))
        return TableLook(tuple(columns), key)


def _kind(name: str) -> str:
    name = name.lower()
    if name in _TEXTS:
        return "text"
    if name in _BLOBS:
        return "blob"
    return "geometry" if name in _SHAPES else name
