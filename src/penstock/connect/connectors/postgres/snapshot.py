"""Reads the existing rows of tables before changes are streamed: one consistent view, in chunks by primary
key.

A snapshot with a new slot reads exactly what was committed at the slot's consistent point, through the
snapshot that the slot exports. A snapshot that continues after a restart or a lost connection reads the
current state of the remaining rows; changes in between come again from the slot, so the last record of each
key is right.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from psycopg2 import sql

from penstock.connect.connectors.cdc.records import Row
from penstock.connect.connectors.cdc.snapshot import SnapshotChunks, SnapshotProgress, TablePages
from penstock.connect.connectors.postgres.catalog import Catalog, PublishedTable
from penstock.connect.connectors.postgres.offsets import snapshot_offset
from penstock.connect.connectors.postgres.records import Moment, Records
from penstock.connect.connectors.postgres.server import connect, query, translated_errors
from penstock.connect.connectors.postgres.settings import SourceSettings
from penstock.connect.connectors.postgres.table_schema import table_schema


class Snapshot(SnapshotChunks[Moment]):
    def __init__(
        self,
        settings: SourceSettings,
        records: Records,
        lsn: int,
        progress: SnapshotProgress | None,
        exported: str | None,
    ) -> None:
        self._settings = settings
        self._size = int(settings.values["snapshot.fetch.size"])
        self._connection = connect(settings)
        micros = time.time_ns() // 1000
        try:
            query(self._connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if exported is not None:
                query(self._connection, "SET TRANSACTION SNAPSHOT %s", exported)
            # The first query takes the snapshot if none is given.
            self._catalog = Catalog(self._connection)
            tables = sorted(self._catalog.published_tables(settings), key=_name)
            if progress is not None:
                tables = [table for table in tables if _name(table) >= progress.table]
            super().__init__(
                records,
                (self._open(table, progress) for table in tables),
                len(tables),
                progress,
                lambda flag: Moment(micros, lsn, None, None, None, flag),
                lambda sent, last: snapshot_offset(lsn, micros, sent, last=last),
            )
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        super().close()
        self._connection.close()

    def _open(self, published: PublishedTable, progress: SnapshotProgress | None) -> TablePages:
        name = _name(published)
        look = self._catalog.look(published.oid)
        columns = [
            column for column in look.columns if published.columns is None or column.name in published.columns
        ]
        names = [column.name for column in columns]
        key = look.key if set(look.key) <= set(names) else ()
        types = self._catalog.types(column.type_oid for column in columns)
        table = table_schema(self._settings, published.schema, published.name, columns, key, types)
        if key:
            after = progress.key if progress is not None and progress.table == name else None
            pages = self._by_key(published, names, key, after)
        else:
            pages = self._by_cursor(published, names)

        def key_text(row: Row) -> tuple[str, ...]:
            return tuple(map(str, table.key_columns(row)))

        return TablePages(
            name, table, self._translated(name, pages), published.estimated_rows, key_text if key else None
        )

    @staticmethod
    def _translated(name: str, pages: Iterator[tuple[list[Row], bool]]) -> Iterator[tuple[list[Row], bool]]:
        with translated_errors(f"The snapshot of {name} was interrupted"):
            yield from pages

    def _by_key(
        self, published: PublishedTable, names: list[str], key: tuple[str, ...], after: tuple[str, ...] | None
    ) -> Iterator[tuple[list[Row], bool]]:
        columns = sql.SQL(", ").join(map(sql.Identifier, key))
        while True:
            conditions = [_row_filter(published)] if published.row_filter else []
            if after is not None:
                values = sql.SQL(", ").join(map(sql.Literal, after))
                conditions.append(sql.SQL("({}) > ({})").format(columns, values))
            statement = _select(published, names, conditions) + sql.SQL(" ORDER BY {} LIMIT {}").format(
                columns, sql.Literal(self._size + 1)
            )
            found = query(self._connection, statement)
            last = len(found) <= self._size
            rows: list[Row] = list(found[: self._size])
            yield rows, last
            if last:
                return
            after = tuple(rows[-1][names.index(name)] for name in key)

    def _by_cursor(self, published: PublishedTable, names: list[str]) -> Iterator[tuple[list[Row], bool]]:
        """There is no order to continue by without a key: an interrupted table is read again."""
        conditions = [_row_filter(published)] if published.row_filter else []
        select = _select(published, names, conditions)
        query(self._connection, sql.SQL("DECLARE penstock NO SCROLL CURSOR FOR ") + select)
        fetch = f"FETCH {self._size} FROM penstock"
        rows: list[Row] = list(query(self._connection, fetch))
        while rows:
            following: list[Row] = list(query(self._connection, fetch))
            yield rows, not following
            rows = following
        query(self._connection, "CLOSE penstock")


def _name(table: PublishedTable) -> str:
    return f"{table.schema}.{table.name}"


def _row_filter(published: PublishedTable) -> sql.Composable:
    return sql.SQL("(") + sql.SQL(published.row_filter or "true") + sql.SQL(")")


def _select(published: PublishedTable, names: list[str], conditions: list[sql.Composable]) -> sql.Composable:
    statement = sql.SQL("SELECT {} FROM {} {}").format(
        sql.SQL(", ").join(map(sql.Identifier, names)),
        # ONLY: a parent table's own rows. A partitioned table has none.
        sql.SQL("" if published.partitioned else "ONLY"),
        sql.Identifier(published.schema, published.name),
    )
    if conditions:
        statement += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions)
    return statement
