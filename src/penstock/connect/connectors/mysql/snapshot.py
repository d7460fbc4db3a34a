"""Reads the existing rows of tables before changes are streamed: one consistent view, in chunks by primary
key.

MariaDB knows the binlog position of a view; for MySQL a global read lock, held while the view starts, makes
both the same. A snapshot that continues after a restart or a lost connection reads the current state of the
remaining rows; changes in between come again from the binlog, so the last record of each key is right.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pymysql.cursors

from penstock.connect.api import ConnectError
from penstock.connect.connectors.cdc.records import Row
from penstock.connect.connectors.cdc.snapshot import SnapshotChunks, SnapshotProgress, TablePages
from penstock.connect.connectors.mysql import server
from penstock.connect.connectors.mysql.catalog import CapturedTable, Catalog
from penstock.connect.connectors.mysql.column_types import MySqlColumn
from penstock.connect.connectors.mysql.offsets import Offset
from penstock.connect.connectors.mysql.records import Moment, Records
from penstock.connect.connectors.mysql.server import BinlogPosition, query, translated_errors
from penstock.connect.connectors.mysql.settings import SourceSettings
from penstock.connect.connectors.mysql.table_schema import table_schema
from penstock.sqltext.identifiers import quoted

# Kinds whose order is that of the comparison with a literal.
_ORDERED = {
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "text", "binary", "blob", "date",
    "datetime", "timestamp", "time", "year", "uuid", "inet4", "inet6",
}  # fmt: skip


class Snapshot(SnapshotChunks[Moment]):
    """`start` is where an earlier snapshot started, which this one continues; None for a new one."""

    def __init__(self, settings: SourceSettings, records: Records, start: Offset | None) -> None:
        self._settings = settings
        self._size = int(settings.values["snapshot.fetch.size"])
        self._connection = server.connect(settings)
        seconds = int(time.time())
        try:
            position = self._begin_view()
            if start is None:
                start = Offset(
                    position,
                    gtids=server.gtids_at(self._connection, position),
                    server_id=server.server_id(self._connection),
                )
            self.start = start
            """The position of the first change after the snapshot."""
            progress = start.snapshot
            self._catalog = Catalog(self._connection)
            tables = self._catalog.tables(settings)
            if progress is not None:
                tables = [table for table in tables if table.name >= progress.table]
            file, pos, origin = start.position.file, start.position.pos, start.server_id or 0
            super().__init__(
                records,
                (self._open(table, progress) for table in tables),
                len(tables),
                progress,
                lambda flag: Moment(seconds, origin, file, pos, snapshot=flag),
                lambda sent, last: self._offset_at(sent, last, seconds),
            )
        except BaseException:
            self._connection.close()
            raise

    def _offset_at(self, sent: SnapshotProgress, last: bool, seconds: int) -> dict[str, Any]:
        start = self.start
        progress = None if last else sent
        return Offset(start.position, 0, 0, start.gtids, start.server_id, progress).fields(seconds)

    def _begin_view(self) -> BinlogPosition:
        connection = self._connection
        query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if server.is_mariadb(connection):
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = dict(query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            return BinlogPosition(status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"]))
        locked = self._settings.values["snapshot.locking.mode"] == "minimal"
        if locked:
            try:
                query(connection, "FLUSH TABLES WITH READ LOCK")
            except ConnectError as error:
                raise ConnectError(
                    f"The snapshot needs a global read lock for a moment: {error}. GRANT RELOAD ON *.* TO "
                    "the user, or set snapshot.locking.mode=none: rows that change while it begins are then "
                    "sent twice."
                ) from error
        position = server.end_of_binlog(connection)
        query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        if locked:
            query(connection, "UNLOCK TABLES")
        return position

    def close(self) -> None:
        super().close()
        self._connection.close()

    def _open(self, captured: CapturedTable, progress: SnapshotProgress | None) -> TablePages:
        name = captured.name
        look = self._catalog.look(captured.database, captured.table)
        kinds = {column.name: column.kind for column in look.columns}
        table = table_schema(self._settings, captured.database, captured.table, look.columns, look.key)
        keyed = bool(look.key) and all(kinds[each] in _ORDERED for each in look.key)
        if keyed:
            after = progress.key if progress is not None and progress.table == name else None
            pages = self._by_key(captured, look.columns, look.key, after)
        else:
            pages = self._by_cursor(captured, look.columns)

        def key_text(row: Row) -> tuple[str, ...]:
            return tuple(map(tagged, table.key_columns(row)))

        return TablePages(
            name, table, self._translated(name, pages), captured.estimated_rows, key_text if keyed else None
        )

    @staticmethod
    def _translated(name: str, pages: Iterator[tuple[list[Row], bool]]) -> Iterator[tuple[list[Row], bool]]:
        with translated_errors(f"The snapshot of {name} was interrupted"):
            yield from pages

    def _by_key(
        self,
        captured: CapturedTable,
        columns: Sequence[MySqlColumn],
        key: tuple[str, ...],
        after: tuple[str, ...] | None,
    ) -> Iterator[tuple[list[Row], bool]]:
        names = [column.name for column in columns]
        order = ", ".join(map(quoted, key))
        while True:
            condition = ""
            if after is not None:
                condition = f" WHERE {_later(key, [self._literal(each) for each in after])}"
            statement = f"{_select(captured, columns)}{condition} ORDER BY {order} LIMIT {self._size + 1}"
            found = query(self._connection, statement)
            last = len(found) <= self._size
            rows: list[Row] = list(found[: self._size])
            yield rows, last
            if last:
                return
            after = tuple(tagged(rows[-1][names.index(each)]) for each in key)

    def _by_cursor(
        self, captured: CapturedTable, columns: Sequence[MySqlColumn]
    ) -> Iterator[tuple[list[Row], bool]]:
        """Without a key there is no order to continue by: an interrupted table is read again from its
        start.
        """
        with self._connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(_select(captured, columns))
            rows: list[Row] = list(cursor.fetchmany(self._size))
            while rows:
                following: list[Row] = list(cursor.fetchmany(self._size))
                yield rows, not following
                rows = following

    def _literal(self, text: str) -> str:
        kind, _, value = text.partition(":")
        if kind == "n":
            return str(Decimal(value))
        if kind == "x":
            return f"x'{bytes.fromhex(value).hex()}'"
        if kind == "s":
            return str(self._connection.escape(value))
        raise ValueError(text)


def tagged(value: Any) -> str:
    """A key value as text with its type: a number, bytes or characters."""
    if isinstance(value, (int, Decimal)):
        return f"n:{value}"
    if isinstance(value, bytes):
        return f"x:{value.hex()}"
    if isinstance(value, datetime.timedelta):
        micros = value // datetime.timedelta(microseconds=1)
        seconds, fraction = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else ""
        return f"s:{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"s:{value}"


def _select(captured: CapturedTable, columns: Sequence[MySqlColumn]) -> str:
    # The text of a FLOAT is rounded to fewer digits; that of a double is exact.
    shown = [
        f"{quoted(column.name)} + 0e0" if column.kind == "float" else quoted(column.name)
        for column in columns
    ]
    return f"SELECT {', '.join(shown)} FROM {quoted(captured.database)}.{quoted(captured.table)}"


def _later(key: Sequence[str], values: Sequence[str]) -> str:
    """Rows after those values in the order of the key; servers use an index for this form only."""
    name, value = quoted(key[0]), values[0]
    if len(key) == 1:
        return f"{name} > {value}"
    return f"{name} >= {value} AND ({name} > {value} OR {_later(key[1:], values[1:])})"
