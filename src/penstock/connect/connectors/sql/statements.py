"""The statements that write rows, for each kind of database: a few for many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.engine import Connection

from penstock.connect.connectors.sql.catalog import Table
from penstock.connect.connectors.sql.database import Database

_MOST_VALUES = 20_000
"""In one statement: PostgreSQL takes 65,535, and a statement must stay small."""


class Writer:
    """Writes rows of one table that have the same columns. Each row is a tuple: key columns, then others."""

    def __init__(self, database: Database, table: Table, keys: Sequence[str], others: Sequence[str]) -> None:
        self._database = database
        self._table = database.quoted(table.name, table.schema)
        self._keys = [database.quoted(name) for name in keys]
        self._others = [database.quoted(name) for name in others]
        self._columns = self._keys + self._others

    def insert(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        self._insert(connection, rows, "")

    def upsert(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._database.dialect == "mysql":
            changed = self._others or self._keys[:1]
            sets = ", ".join(f"{name} = VALUES({name})" for name in changed)
            end = f" ON DUPLICATE KEY UPDATE {sets}"
        else:
            sets = ", ".join(f"{name} = excluded.{name}" for name in self._others)
            then = f"UPDATE SET {sets}" if sets else "NOTHING"
            end = f" ON CONFLICT ({', '.join(self._keys)}) DO {then}"
        # No statement may change a row twice; the last one counts.
        size = len(self._keys)
        self._insert(connection, list({row[:size]: row for row in rows}.values()), end)

    def _insert(self, connection: Connection, rows: Sequence[tuple[Any, ...]], end: str) -> None:
        begin = f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES "
        one = f"({', '.join([self._database.mark] * len(self._columns))})"
        if self._database.dialect == "sqlite":
            connection.exec_driver_sql(f"{begin}{one}{end}", list(rows))
            return
        for part in _parts(rows, len(self._columns)):
            values = tuple(value for row in part for value in row)
            connection.exec_driver_sql(f"{begin}{', '.join([one] * len(part))}{end}", values)

    def update(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        if not self._others:
            return
        mark, size = self._database.mark, len(self._keys)
        sets = ", ".join(f"{name} = {mark}" for name in self._others)
        where = " AND ".join(f"{name} = {mark}" for name in self._keys)
        statement = f"UPDATE {self._table} SET {sets} WHERE {where}"
        connection.exec_driver_sql(statement, [row[size:] + row[:size] for row in rows])

    def delete(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows of keys alone."""
        mark = self._database.mark
        one = f"({', '.join([mark] * len(self._keys))})"
        for part in _parts(list(dict.fromkeys(rows)), len(self._keys)):
            values = tuple(value for row in part for value in row)
            statement = (
                f"DELETE FROM {self._table} WHERE ({', '.join(self._keys)}) IN "
                f"({', '.join([one if len(self._keys) > 1 else mark] * len(part))})"
            )
            connection.exec_driver_sql(statement, values)


def _parts(rows: Sequence[tuple[Any, ...]], width: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    size = max(1, _MOST_VALUES // width)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
