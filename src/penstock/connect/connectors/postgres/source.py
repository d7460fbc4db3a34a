"""The PostgreSQL source: snapshot, then changes, with Debezium's settings, topics and records."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from psycopg2.extensions import connection as Connection

from penstock.connect.api import (
    BadConfig,
    ConnectError,
    Field,
    OffsetsReader,
    RetriableError,
    SourceConnector,
    SourceOffset,
    SourcePartition,
    SourceRecord,
    SourceTask,
)
from penstock.connect.connectors.cdc.records import check_offsets, source_partition
from penstock.connect.connectors.cdc.snapshot import SnapshotProgress
from penstock.connect.connectors.cdc.table_schema import TableSchema
from penstock.connect.connectors.postgres import server
from penstock.connect.connectors.postgres.catalog import Catalog
from penstock.connect.connectors.postgres.changes import Changes
from penstock.connect.connectors.postgres.offsets import Offset, Position
from penstock.connect.connectors.postgres.pgoutput import PgOutputError, Relation
from penstock.connect.connectors.postgres.records import Records
from penstock.connect.connectors.postgres.settings import FIELDS, SourceSettings
from penstock.connect.connectors.postgres.snapshot import Snapshot
from penstock.connect.connectors.postgres.stream import ReplicationStream
from penstock.connect.connectors.postgres.table_schema import TableColumn, table_schema

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5


class PostgresSourceTask(SourceTask):
    """Connects in `poll`, so that an unavailable server is retried instead of failing the task."""

    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._settings = SourceSettings.of(config)
        self._records = Records(self._settings)
        kept = offsets_reader.offset(source_partition(self._settings.prefix))
        self._kept = None if kept is None else Offset.of(kept)
        self._connection: Connection | None = None
        self._catalog: Catalog | None = None
        self._snapshot: Snapshot | None = None
        self._progress: SnapshotProgress | None = self._kept.snapshot if self._kept else None
        self._snapshot_lsn: int | None = None
        self._snapshot_sent = False
        self._changes: Changes | None = None
        self._stream: ReplicationStream | None = None
        self._ended = False
        self._next_heartbeat = 0.0

    def poll(self) -> list[SourceRecord]:
        try:
            if self._ended:
                time.sleep(_POLL_SECONDS)
                return []
            if self._changes is None:
                records = self._poll_snapshot()
                if records is not None:
                    return records
            return self._poll_changes()
        except RetriableError:
            self._disconnect()
            raise
        except PgOutputError as error:
            self._disconnect()
            raise ConnectError(f"The replication stream cannot be read: {error}") from error

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset]]) -> None:
        if self._changes is None:
            return
        for partition, offset in offsets:
            if dict(partition) == self._records.partition:
                self._changes.committed(Offset.of(offset))
        self._confirm()

    def stop(self) -> None:
        self._disconnect()
        if self._settings.values["slot.drop.on.stop"]:
            try:
                connection = server.connect(self._settings)
                try:
                    server.drop_slot(connection, self._settings)
                finally:
                    connection.close()
            except ConnectError as error:
                _log.warning("Replication slot %s was not dropped: %s", self._settings.slot, error)

    # --- connections ---

    def _queries(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = server.connect(self._settings)
            self._catalog = Catalog(self._connection)
        return self._connection

    def _disconnect(self) -> None:
        if self._snapshot is not None:
            self._progress = self._snapshot.progress
        for each in (self._snapshot, self._stream, self._connection):
            if each is not None:
                each.close()
        self._snapshot = self._stream = self._connection = None
        if self._changes is not None:
            self._changes.reconnected()

    # --- snapshot ---

    def _poll_snapshot(self) -> list[SourceRecord] | None:
        """The records of a chunk; None when the changes are next."""
        if self._snapshot is None:
            self._snapshot = self._begin()
            if self._snapshot is not None:
                self._snapshot.show_progress = self.show_progress
        records = self._snapshot.next() if self._snapshot is not None else None
        if records is not None:
            self._snapshot_sent = True
            return records
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        self._ended = self._settings.snapshot_mode == "initial_only"
        self._begin_changes()
        return None

    def _begin(self) -> Snapshot | None:
        """Sets up publication and slot, and starts or continues the snapshot if one is due."""
        connection = self._queries()
        server.ensure_publication(connection, self._settings)
        slot = server.find_slot(connection, self._settings)
        kept, mode = self._kept, self._settings.snapshot_mode
        if slot is None and kept is not None and self._snapshot_lsn is None:
            self._slot_lost(kept)
            kept = self._kept = None
        wanted = mode == "always" or (kept is None and mode != "no_data") or self._progress is not None
        if slot is not None:
            self._snapshot_lsn = self._snapshot_lsn or (kept.start_lsn if kept else slot.confirmed_lsn)
            if not wanted:
                return None
            return Snapshot(self._settings, self._records, self._snapshot_lsn, self._progress, None)
        replication = server.connect_for_replication(self._settings)
        try:
            self._snapshot_lsn, exported = server.create_slot(replication, self._settings)
            if not wanted:
                return None
            return Snapshot(self._settings, self._records, self._snapshot_lsn, self._progress, exported)
        finally:
            replication.close()

    def _slot_lost(self, kept: Offset) -> None:
        if self._settings.snapshot_mode not in ("when_needed", "always"):
            raise ConnectError(
                f"Replication slot {self._settings.slot!r} does not exist, but offsets up to LSN "
                f"{server.lsn_text(kept.start_lsn)} do: changes since then are lost. Delete the connector's "
                "offsets, or set snapshot.mode to when_needed, for a new snapshot."
            )
        _log.warning("Replication slot %s was lost: taking a new snapshot.", self._settings.slot)
        self._progress = None

    def _begin_changes(self) -> None:
        assert self._snapshot_lsn is not None
        start = Offset(Position(self._snapshot_lsn), self._snapshot_lsn, None)
        committed = start.position
        if self._snapshot_sent:
            committed = Position(self._snapshot_lsn, -1)
        elif self._kept is not None and self._kept.snapshot is None:
            start, committed = self._kept, self._kept.position
        self._changes = Changes(self._records, self._schema_of, self._forget_type, start, committed)

    # --- changes ---

    def _poll_changes(self) -> list[SourceRecord]:
        changes = self._changes
        assert changes is not None
        if self._ended:
            return []
        if self._stream is None:
            self._queries()
            self._stream = ReplicationStream(self._settings, changes.completed_lsn)
            _log.info("Streaming from slot %s.", self._settings.slot)
        records: list[SourceRecord] = []
        try:
            self._read(self._stream, changes, records)
            self._confirm()
            self._heartbeat(changes, records)
        except RetriableError:
            # What was read is sent; the next poll connects again.
            if not records:
                raise
            self._disconnect()
        changes.returned()
        return records

    def _read(self, stream: ReplicationStream, changes: Changes, records: list[SourceRecord]) -> None:
        most = self._settings.values["max.batch.size"]
        now = time.time_ns() // 1000
        deadline = time.monotonic() + _POLL_SECONDS
        while len(records) < most:
            received = stream.read()
            if received is not None:
                records.extend(changes.handle(*received, now))
                continue
            changes.idle(stream.wal_end)
            left = deadline - time.monotonic()
            if left <= 0 or (records and not changes.in_transaction):
                return
            stream.wait(left)
            now = time.time_ns() // 1000

    def _confirm(self) -> None:
        if self._stream is not None and self._changes is not None:
            try:
                self._stream.confirm(self._changes.confirmed_lsn)
            except RetriableError as error:
                # It is reported again after the next connect.
                _log.info("%s", error)
                self._disconnect()

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

    def _schema_of(self, relation: Relation) -> TableSchema | None:
        if not self._settings.takes_table(relation.schema, relation.name):
            return None
        self._queries()
        assert self._catalog is not None
        look = self._catalog.look(relation.oid)
        required = {(column.name, column.type_oid) for column in look.columns if column.required}
        columns = [
            TableColumn(
                column.name, column.type_oid, column.type_modifier, (column.name, column.type_oid) in required
            )
            for column in relation.columns
        ]
        names = {column.name for column in relation.columns}
        key: Sequence[str] = look.key if set(look.key) <= names else ()
        if not key and relation.replica_identity in "di":
            key = [column.name for column in relation.columns if column.is_key]
        types = self._catalog.types(column.type_oid for column in relation.columns)
        return table_schema(self._settings, relation.schema, relation.name, columns, key, types)

    def _forget_type(self, oid: int) -> None:
        if self._catalog is not None:
            self._catalog.forget(oid)


class PostgresConnector(SourceConnector):
    """Captures the changes of a PostgreSQL database, with Debezium's settings and records."""

    version: ClassVar[str] = "0.1.0"
    fields: ClassVar[tuple[Field, ...]] = FIELDS
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.connector.postgresql.PostgresConnector",)
    task_class: ClassVar[type[SourceTask]] = PostgresSourceTask
    exactly_once: ClassVar[bool] = True

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        try:
            settings = SourceSettings.of(config)
            connection = server.connect(settings)
        except BadConfig as error:
            return error.problems
        except ConnectError as error:
            return {"database.hostname": [f"Invalid value for configuration database.hostname: {error}"]}
        try:
            return server.check_server(connection)
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
