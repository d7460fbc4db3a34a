"""The rows that tables have before changes are streamed: one consistent view, in chunks by primary key.

A snapshot that begins with a new slot sees exactly what was committed at the slot's consistent point, through
the snapshot that the slot exports. One that goes on after a restart or a lost connection reads the remaining
rows as they are then; what changed meanwhile comes again from the slot: the last record of each key is right.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg2 import sql

from penstock.connect.api import SourceRecord
from penstock.connect.connectors.postgres.catalog import Catalog, PublishedTable
from penstock.connect.connectors.postgres.offsets import SnapshotProgress, snapshot_offset
from penstock.connect.connectors.postgres.pgoutput import Row
from penstock.connect.connectors.postgres.records import Moment, Records
from penstock.connect.connectors.postgres.server import connect, query, translated_errors
from penstock.connect.connectors.postgres.settings import SourceSettings
from penstock.connect.connectors.postgres.table_schema import TableSchema

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Chunk:
    table: TableSchema
    rows: list[Row]
    progress: SnapshotProgress
    """After it."""
    first: bool
    """Of its table; so is `last`."""
    last: bool


class Snapshot:
    """`next` returns the records of a chunk, and None after the last one."""

    def __init__(
        self,
        settings: SourceSettings,
        records: Records,
        lsn: int,
        progress: SnapshotProgress | None,
        exported: str | None,
    ) -> None:
        self._settings, self._records, self._lsn = settings, records, lsn
        self._size = int(settings.values["snapshot.fetch.size"])
        self._progress = progress or SnapshotProgress("", None)
        self._begun = progress is not None
        self._micros = time.time_ns() // 1000
        self._connection = connect(settings)
        try:
            query(self._connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if exported is not None:
                query(self._connection, "SET TRANSACTION SNAPSHOT %s", exported)
            # The first query takes the snapshot, also where none is given.
            self._catalog = Catalog(self._connection)
            tables = self._catalog.published_tables(settings)
        except BaseException:
            self._connection.close()
            raise
        tables.sort(key=_name)
        self._tables = [table for table in tables if _name(table) >= self._progress.table]
        self._chunks = self._read()
        self._ahead = next(self._chunks, None)

    @property
    def progress(self) -> SnapshotProgress:
        """What was returned so far: where another snapshot continues."""
        return self._progress

    def next(self) -> list[SourceRecord] | None:
        chunk = self._ahead
        if chunk is None:
            return None
        following = next(self._chunks, None)
        self._ahead = following
        now = time.time_ns() // 1000
        before = snapshot_offset(self._lsn, self._micros, self._progress, last=False)
        after = snapshot_offset(self._lsn, self._micros, chunk.progress, last=following is None)
        end = len(chunk.rows) - 1
        records = []
        for at, row in enumerate(chunk.rows):
            flag = "true"
            if at == end and chunk.last:
                flag = "last" if following is None else "last_in_data_collection"
            elif at == 0 and chunk.first:
                flag = "first_in_data_collection" if self._begun else "first"
            moment = Moment(self._micros, self._lsn, None, None, None, flag)
            offset = after if at == end else before
            records.append(self._records.read(chunk.table, row, moment, now, offset))
            self._begun = True
        self._progress = chunk.progress
        return records

    def close(self) -> None:
        self._chunks.close()  # type: ignore[attr-defined]  # a generator
        self._connection.close()

    def _read(self) -> Iterator[_Chunk]:
        for number, published in enumerate(self._tables, 1):
            name = _name(published)
            look = self._catalog.look(published.oid)
            columns = [
                column
                for column in look.columns
                if published.columns is None or column.name in published.columns
            ]
            names = [column.name for column in columns]
            key = look.key if set(look.key) <= set(names) else ()
            table = TableSchema(
                self._settings, published.schema, published.name, columns, key,
                self._catalog.types(column.type_oid for column in columns),
            )  # fmt: skip
            _log.info(
                "Snapshot of %s, table %d of %d, about %d rows.",
                name, number, len(self._tables), published.estimated_rows,
            )  # fmt: skip
            count = 0
            pages = self._by_key(published, names, key) if key else self._by_cursor(published, names)
            with translated_errors(f"The snapshot of {name} was interrupted"):
                for rows, last in pages:
                    progress = SnapshotProgress(name, None)
                    if last:
                        # Sorts after this table and before any other.
                        progress = SnapshotProgress(f"{name}\0", None)
                    elif key:
                        progress = SnapshotProgress(
                            name, tuple(str(text) for text in table.key_text(rows[-1]))
                        )
                    if rows:
                        yield _Chunk(table, rows, progress, count == 0, last)
                    count += len(rows)
            _log.info("Snapshot of %s has read %d rows.", name, count)

    def _by_key(
        self, published: PublishedTable, names: list[str], key: tuple[str, ...]
    ) -> Iterator[tuple[list[Row], bool]]:
        after = self._progress.key if self._progress.table == _name(published) else None
        columns = sql.SQL(", ").join(map(sql.Identifier, key))
        while True:
            conditions = [_row_filter(published)] if published.row_filter else []
            if after is not None:
                values = sql.SQL(", ").join(map(sql.Literal, after))
                conditions.append(sql.SQL("({}) > ({})").format(columns, values))
            statement = _select(published, names, conditions) + sql.SQL(" ORDER BY {} LIMIT {}").format(
                columns, sql.Literal(self._size + 1)
            )
            rows = query(self._connection, statement)
            last = len(rows) <= self._size
            rows = rows[: self._size]
            yield rows, last
            if last:
                return
            after = tuple(rows[-1][names.index(name)] for name in key)

    def _by_cursor(self, published: PublishedTable, names: list[str]) -> Iterator[tuple[list[Row], bool]]:
        """Without a key there is no order to continue by: an interrupted table is read from its beginning."""
        conditions = [_row_filter(published)] if published.row_filter else []
        select = _select(published, names, conditions)
        query(self._connection, sql.SQL("DECLARE penstock NO SCROLL CURSOR FOR ") + select)
        fetch = f"FETCH {self._size} FROM penstock"
        rows = query(self._connection, fetch)
        while rows:
            following = query(self._connection, fetch)
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
        # A table that others inherit from has only its own rows; a partitioned one has none.
        sql.SQL("" if published.partitioned else "ONLY"),
        sql.Identifier(published.schema, published.name),
    )
    if conditions:
        statement += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions)
    return statement
