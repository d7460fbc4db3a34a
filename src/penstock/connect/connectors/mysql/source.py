"""The MySQL and MariaDB source: snapshot, then the binlog, with Debezium's settings, topics and records."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pymysql.connections import Connection

from penstock.connect.api import (
    BadConfig,
    ConnectError,
    Field,
    OffsetsReader,
    RetriableError,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from penstock.connect.connectors.cdc.records import check_offsets, source_partition
from penstock.connect.connectors.cdc.table_schema import TableSchema
from penstock.connect.connectors.mysql import server
from penstock.connect.connectors.mysql.catalog import Catalog
from penstock.connect.connectors.mysql.changes import Changes
from penstock.connect.connectors.mysql.column_types import MySqlColumn
from penstock.connect.connectors.mysql.events import Idle, TableDescribed
from penstock.connect.connectors.mysql.offsets import Offset
from penstock.connect.connectors.mysql.records import Records
from penstock.connect.connectors.mysql.settings import FIELDS, SourceSettings
from penstock.connect.connectors.mysql.snapshot import Snapshot
from penstock.connect.connectors.mysql.stream import BinlogStream
from penstock.connect.connectors.mysql.table_schema import table_schema

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5
# Types that the binlog reports as their storage type; only the catalogue knows them.
_STORED_AS = {"uuid": "binary", "inet6": "binary", "inet4": "binary", "json": "text"}


class MySqlSourceTask(SourceTask):
    """Connects in `poll`, so that an unavailable server is retried instead of failing the task."""

    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._settings = SourceSettings.of(config)
        self._records = Records(self._settings)
        kept = offsets_reader.offset(source_partition(self._settings.prefix))
        self._start: Offset | None = None if kept is None else Offset.of(kept)
        """The start position; with `snapshot` the snapshot to continue."""
        self._always = self._settings.snapshot_mode == "always"
        self._connection: Connection | None = None
        self._snapshot: Snapshot | None = None
        self._changes: Changes | None = None
        self._stream: BinlogStream | None = None
        self._ended = False
        self._next_heartbeat = 0.0

    def poll(self) -> list[SourceRecord]:
        try:
            if self._changes is None:
                records = self._poll_snapshot()
                if records is not None:
                    return records
            if self._ended:
                time.sleep(_POLL_SECONDS)
                return []
            return self._poll_changes()
        except RetriableError:
            self._disconnect()
            raise

    def stop(self) -> None:
        self._disconnect()

    # --- connections ---

    def _queries(self) -> Connection:
        if self._connection is None or not self._connection.open:
            self._connection = server.connect(self._settings)
        return self._connection

    def _disconnect(self) -> None:
        if self._snapshot is not None:
            self._start = replace(self._snapshot.start, snapshot=self._snapshot.progress)
            self._snapshot.close()
        if self._stream is not None:
            self._stream.close()
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._snapshot = self._stream = self._connection = None

    # --- snapshot ---

    def _poll_snapshot(self) -> list[SourceRecord] | None:
        """The records of a chunk; None when the changes are next."""
        if self._snapshot is None and not self._begin_snapshot():
            self._begin_changes()
            return None
        assert self._snapshot is not None
        self._snapshot.show_progress = self.show_progress
        records = self._snapshot.next()
        if records is not None:
            return records
        self._start = replace(self._snapshot.start, snapshot=None)
        self._snapshot.close()
        self._snapshot = None
        self._always = False
        self._begin_changes()
        return None

    def _begin_snapshot(self) -> bool:
        """Whether to take or continue a snapshot; otherwise `_start` is set."""
        connection = self._queries()
        self._check_binlog(connection)
        start, mode = self._start, self._settings.snapshot_mode
        if start is not None and start.snapshot is not None:
            self._snapshot = Snapshot(self._settings, self._records, start)
        elif self._always or (start is None and mode != "no_data"):
            self._snapshot = Snapshot(self._settings, self._records, None)
        elif start is None:
            position = server.end_of_binlog(connection)
            self._start = Offset(
                position,
                gtids=server.gtids_at(connection, position),
                server_id=server.server_id(connection),
            )
        return self._snapshot is not None

    def _check_binlog(self, connection: Connection) -> None:
        """Resets the start position if its binlog was purged and a new snapshot is allowed."""
        start = self._start
        if (
            start is None
            or self._by_gtid(connection, start)
            or server.has_binlog(connection, start.position.file)
        ):
            return
        if self._settings.snapshot_mode not in ("when_needed", "always"):
            raise ConnectError(
                f"The server has no binlog file {start.position.file!r} any more, where reading is to "
                "continue: changes since then are lost. Delete the connector's offsets, or set snapshot.mode "
                "to when_needed, for a new snapshot."
            )
        _log.warning("The binlog file %s was purged: taking a new snapshot.", start.position.file)
        self._start = None

    def _by_gtid(self, connection: Connection, start: Offset) -> bool:
        """Files and positions belong to one server; on another one, GTIDs say where to continue."""
        if start.server_id is None or server.server_id(connection) == start.server_id:
            return False
        if start.gtids is None or not server.is_mariadb(connection):
            raise ConnectError(
                f"The server has the id {server.server_id(connection)}, and the offsets are of server "
                f"{start.server_id}, without GTIDs of MariaDB. Connect to that server, or delete the "
                "connector's offsets for a new snapshot."
            )
        return True

    def _begin_changes(self) -> None:
        self._ended = self._settings.snapshot_mode == "initial_only"
        assert self._start is not None
        self._changes = Changes(
            self._records, self._schema_of, self._schema_now, self._settings.takes_database, self._start
        )

    # --- changes ---

    def _poll_changes(self) -> list[SourceRecord]:
        changes = self._changes
        assert changes is not None
        if self._stream is None:
            self._stream = self._open_stream(changes)
        records: list[SourceRecord] = []
        try:
            self._read(self._stream, changes, records)
            self._heartbeat(changes, records)
        except ConnectError:
            # What was read is sent; the next poll connects again, and reports the error if it persists.
            if not records:
                raise
            self._disconnect()
        changes.returned()
        return records

    def _open_stream(self, changes: Changes) -> BinlogStream:
        connection = self._queries()
        start = Offset(changes.completed, gtids=changes.gtids, server_id=changes.server_id)
        by_gtid = self._by_gtid(connection, start)
        changes.connected(server.server_id(connection))
        _log.info(
            "Reading the binlog from %s.",
            f"GTID {start.gtids}" if by_gtid else f"{start.position.file}:{start.position.pos}",
        )
        return BinlogStream(self._settings, start, by_gtid=by_gtid)

    def _read(self, stream: BinlogStream, changes: Changes, records: list[SourceRecord]) -> None:
        most = self._settings.values["max.batch.size"]
        deadline = time.monotonic() + _POLL_SECONDS
        while len(records) < most:
            event, place = stream.read()
            records.extend(changes.handle(event, place, time.time_ns() // 1000))
            if isinstance(event, Idle) or time.monotonic() > deadline:
                return
            if records and not changes.in_transaction and not stream.has_more():
                return

    def _heartbeat(self, changes: Changes, records: list[SourceRecord]) -> None:
        interval = self._settings.values["heartbeat.interval.ms"] / 1000
        if not interval or time.monotonic() < self._next_heartbeat:
            return
        record = changes.heartbeat(time.time_ns() // 1000)
        if record is None:
            return
        records.append(record)
        self._next_heartbeat = time.monotonic() + interval
        statement = self._settings.values["heartbeat.action.query"]
        if statement:
            server.query(self._queries(), statement)

    def _schema_of(self, described: TableDescribed) -> TableSchema | None:
        if not self._settings.takes_table(described.database, described.table):
            return None
        columns: Sequence[MySqlColumn] = described.columns
        if any(column.kind in ("text", "binary") for column in columns):
            look = Catalog(self._queries()).look(described.database, described.table)
            known = {column.name: column.kind for column in look.columns}
            columns = [
                replace(column, kind=known[column.name])
                if _STORED_AS.get(known.get(column.name, "")) == column.kind
                else column
                for column in columns
            ]
        return table_schema(self._settings, described.database, described.table, columns, described.key)

    def _schema_now(self, database: str, table: str) -> TableSchema | None:
        if not self._settings.takes_table(database, table):
            return None
        look = Catalog(self._queries()).look(database, table)
        return table_schema(self._settings, database, table, look.columns, look.key)


class MySqlConnector(SourceConnector):
    """Captures the changes of MySQL and MariaDB databases, with Debezium's settings and records."""

    version: ClassVar[str] = "0.1.0"
    fields: ClassVar[tuple[Field, ...]] = FIELDS
    aliases: ClassVar[tuple[str, ...]] = (
        "io.debezium.connector.mysql.MySqlConnector",
        "io.debezium.connector.mariadb.MariaDbConnector",
    )
    task_class: ClassVar[type[SourceTask]] = MySqlSourceTask
    exactly_once: ClassVar[bool] = True

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        try:
            connection = server.connect(SourceSettings.of(config))
        except BadConfig as error:
            return error.problems
        except ConnectError as error:
            return {"database.hostname": [f"Invalid value for configuration database.hostname: {error}"]}
        try:
            return server.check_server(connection)
        except ConnectError as error:
            return {"database.user": [f"Invalid value for configuration database.user: {error}"]}
        finally:
            connection.close()

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        SourceSettings.of(config)

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
    ) -> bool:
        check_offsets(SourceSettings.of(config).prefix, offsets, Offset.of)
        return True
