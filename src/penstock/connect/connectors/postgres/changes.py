"""The stream of changes as a state machine without I/O: takes pgoutput messages, returns records.

It knows the position of the last event that was sent, so that after a reconnect or a restart it skips the
events of a transaction that it has already sent. It also knows the LSN up to which all records are durable,
so that the server may discard its WAL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.connect.api import ConnectError, SourceRecord
from penstock.connect.connectors.cdc.table_schema import TableSchema
from penstock.connect.connectors.postgres.offsets import Offset, Position
from penstock.connect.connectors.postgres.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Truncate,
    Type,
    Update,
)
from penstock.connect.connectors.postgres.records import Moment, Records

_KINDS = {
    Insert: "INSERT",
    Update: "UPDATE",
    Delete: "DELETE",
    Truncate: "TRUNCATE",
    LogicalMessage: "MESSAGE",
}


class Changes:
    """`schema_of` makes a table's schema from its relation, None if the table is not captured.

    `committed` is before `start` while records of the snapshot are not yet durable in Kafka.
    """

    def __init__(
        self,
        records: Records,
        schema_of: Callable[[Relation], TableSchema | None],
        forget_type: Callable[[int], None],
        start: Offset,
        committed: Position,
    ) -> None:
        self._records = records
        self._schema_of = schema_of
        self._forget_type = forget_type
        self.position = start.position
        self.completed_lsn = start.start_lsn
        """All transactions that end here or before were sent."""
        self._last_record = start.position
        self._committed = committed
        self._confirmed = start.start_lsn
        self._tables: dict[int, TableSchema | None] = {}
        self._transaction: Begin | None = None
        self._events = 0
        self._passed_over = 0
        self._moment = Moment(0, 0)
        self._last_offset: dict[str, Any] | None = None

    def reconnected(self) -> None:
        """The server sends the last transaction again if it was incomplete, and describes all relations
        again.
        """
        self._transaction = None
        self._tables.clear()
        self._last_offset = None

    def returned(self) -> None:
        """The records so far were returned to the worker: their offsets must not change any more."""
        self._last_offset = None

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    # --- what is durable ---

    def committed(self, offset: Offset) -> None:
        """The worker has committed the records up to this offset."""
        self._committed = max(self._committed, offset.position)
        self._confirmed = max(self._confirmed, offset.start_lsn)

    @property
    def confirmed_lsn(self) -> int:
        """The LSN up to which all records are durable, so that the server may discard its WAL."""
        if self._committed >= self._last_record:
            return max(self._confirmed, self.completed_lsn)
        return self._confirmed

    def idle(self, wal_end: int) -> None:
        """The server has sent everything up to `wal_end`; none of it was captured."""
        if self._transaction is None and wal_end > self.completed_lsn:
            self.completed_lsn = wal_end
            self.position = max(self.position, Position(wal_end))

    # --- messages ---

    def handle(self, message: Message, lsn: int, now: int) -> list[SourceRecord]:
        match message:
            case Insert() | Update() | Delete() | Truncate():
                return self._change(message, lsn, now)
            case Begin():
                self._begin(message)
            case Commit():
                self._commit(message)
            case Relation():
                self._tables[message.oid] = self._schema_of(message)
            case Type():
                self._forget_type(message.oid)
            case Origin():
                self._moment.origin = message.name
            case LogicalMessage():
                if message.transactional:
                    return self._change(message, lsn, now)
                return self._message_outside(message, now)
            case _:
                raise ConnectError(f"Unexpected message {type(message).__name__} from the server.")
        return []

    def _begin(self, begin: Begin) -> None:
        self._transaction = begin
        self._events = 0
        if begin.final_lsn < self.position.lsn:
            self._passed_over = 1 << 62
        else:
            self._passed_over = self.position.events if begin.final_lsn == self.position.lsn else 0
        self._moment = Moment(begin.commit_micros, begin.final_lsn, begin.xid, self.completed_lsn)

    def _commit(self, commit: Commit) -> None:
        self._transaction = None
        if commit.end_lsn <= self.completed_lsn:
            return
        self.completed_lsn = commit.end_lsn
        self.position = Position(commit.end_lsn)
        if self._last_offset is not None:
            # The last record of a transaction marks it as complete.
            self._last_offset.pop("tx_lsn")
            self._last_offset.pop("tx_events")
            self._last_offset["lsn_commit"] = self._last_offset["lsn_proc"] = commit.end_lsn
            self._last_record = self.position
            self._last_offset = None

    def _change(
        self, message: Insert | Update | Delete | Truncate | LogicalMessage, lsn: int, now: int
    ) -> list[SourceRecord]:
        transaction = self._transaction
        if transaction is None:
            raise ConnectError(f"The server sent {type(message).__name__} outside of a transaction.")
        self._events += 1
        if self._events <= self._passed_over:
            return []
        self._moment.lsn = lsn
        position = Position(transaction.final_lsn, self._events)
        offset = self._offset(_KINDS[type(message)], position)
        records = self._records_of(message, now, offset)
        if len(records) > 1:
            # A restart after some of them sends all of them again.
            before = {**offset, "tx_events": self._events - 1}
            records[:-1] = [record.changed(source_offset=before) for record in records[:-1]]
        if records:
            self._last_offset = offset
            self._last_record = self.position = position
        return records

    def _records_of(
        self,
        message: Insert | Update | Delete | Truncate | LogicalMessage,
        now: int,
        offset: dict[str, Any],
    ) -> list[SourceRecord]:
        make, moment = self._records, self._moment
        if isinstance(message, LogicalMessage):
            return [make.message(message, moment, now, offset)]
        if isinstance(message, Truncate):
            tables = [self._table(oid) for oid in message.relations]
            return [
                record
                for table in tables
                if table is not None
                for record in make.truncate(table, moment, now, offset)
            ]
        table = self._table(message.relation)
        if table is None:
            return []
        if isinstance(message, Insert):
            return make.insert(table, message.new, moment, now, offset)
        if isinstance(message, Update):
            return make.update(
                table, message.old, message.new, moment, now, offset, old_is_key=message.old_is_key
            )
        return make.delete(table, message.old, moment, now, offset, old_is_key=message.old_is_key)

    def _table(self, oid: int) -> TableSchema | None:
        try:
            return self._tables[oid]
        except KeyError:
            raise ConnectError(f"The server sent a change of relation {oid} before its columns.") from None

    def _message_outside(self, message: LogicalMessage, now: int) -> list[SourceRecord]:
        """A message outside of transactions is handled as a transaction with one event."""
        position = Position(message.lsn, 1)
        if position <= self.position:
            return []
        self._moment = Moment(now, message.lsn, None, self.completed_lsn)
        self._last_record = self.position = position
        self._last_offset = None
        offset = self._offset("MESSAGE", position)
        return [self._records.message(message, self._moment, now, offset)]

    def _offset(self, kind: str, position: Position) -> dict[str, Any]:
        moment = self._moment
        return {
            "ts_usec": moment.micros,
            "txId": moment.xid,
            "lsn": moment.lsn,
            "lsn_proc": self.completed_lsn,
            "lsn_commit": self.completed_lsn,
            "messageType": kind,
            "tx_lsn": position.lsn,
            "tx_events": position.events,
        }

    def heartbeat(self, now: int) -> SourceRecord | None:
        """None inside a transaction."""
        if self._transaction is not None:
            return None
        offset = {
            "ts_usec": now,
            "lsn": self.completed_lsn,
            "lsn_proc": self.completed_lsn,
            "lsn_commit": self.completed_lsn,
        }
        self._last_record = max(self._last_record, Position(self.completed_lsn))
        return self._records.heartbeat(now, offset)
