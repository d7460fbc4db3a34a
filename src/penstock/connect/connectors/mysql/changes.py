"""The stream of changes as a state machine without I/O: takes binlog events, returns records.

It knows which rows of the transaction after `completed` were sent, so that it skips them after a reconnect or
a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.connect.api import ConnectError, SourceRecord
from penstock.connect.connectors.cdc.table_schema import TableSchema
from penstock.connect.connectors.mysql import statements
from penstock.connect.connectors.mysql.events import (
    Committed,
    Event,
    Executed,
    Gtid,
    Idle,
    Place,
    Rotated,
    RowsChanged,
    TableDescribed,
)
from penstock.connect.connectors.mysql.offsets import Offset
from penstock.connect.connectors.mysql.records import Moment, Records
from penstock.connect.connectors.mysql.server import BinlogPosition


class Changes:
    """`schema_of` makes a table's schema from its description, None if the table is not captured.

    `schema_now` returns the current schema of a table by name; `takes_database` says whether DDL of a
    database is captured.
    """

    def __init__(
        self,
        records: Records,
        schema_of: Callable[[TableDescribed], TableSchema | None],
        schema_now: Callable[[str, str], TableSchema | None],
        takes_database: Callable[[str], bool],
        start: Offset,
    ) -> None:
        self._records = records
        self._schema_of, self._schema_now, self._takes = schema_of, schema_now, takes_database
        self.completed = start.position
        """All transactions up to this position were sent."""
        self._gtids = _by_domain(start.gtids)
        self.server_id = start.server_id
        self._sent = (start.event, start.row)
        """For the transaction that starts at `completed`: the number of events sent, and of rows of the next
        event.
        """
        self._moved_to: int | None = None
        self._tables: dict[int, TableSchema | None] = {}
        self.in_transaction = False
        self._event = 0
        self._gtid: str | None = None
        self._thread: int | None = None
        self._last_offset: dict[str, Any] | None = None

    def connected(self, server_id: int) -> None:
        """The server sends the transaction after `completed` again, and describes all tables again.

        On another server `completed` remains a position of the old one until a transaction was read.
        """
        self._moved_to = None if server_id == self.server_id else server_id
        self.in_transaction = False
        self._event = 0
        self._gtid = self._thread = None
        self._tables.clear()
        self._last_offset = None

    def returned(self) -> None:
        """The records so far were returned to the worker: their offsets must not change any more."""
        self._last_offset = None

    @property
    def gtids(self) -> str | None:
        """The GTIDs that a replica must have sent before the transaction after `completed`."""
        return ",".join(self._gtids[domain] for domain in sorted(self._gtids)) or None

    def handle(self, event: Event, place: Place, now: int) -> list[SourceRecord]:
        match event:
            case RowsChanged():
                return self._rows(event, place, now)
            case TableDescribed():
                self._begin()
                if event.id not in self._tables:
                    self._tables[event.id] = self._schema_of(event)
            case Gtid():
                self._gtid = event.gtid
                if not event.standalone:
                    self._begin()
            case Committed():
                self._complete(place)
            case Executed():
                return self._executed(event, place, now)
            case Rotated():
                # A restarted server reuses table numbers, and always starts a new file.
                self._tables.clear()
                self._passed(BinlogPosition(event.file, event.pos))
            case Idle():
                self._passed(BinlogPosition(place.file, place.end))
        return []

    def _passed(self, position: BinlogPosition) -> None:
        """Between transactions: nothing up to here was captured."""
        if not self.in_transaction and self._sent == (0, 0) and self._moved_to is None:
            self.completed = position

    def _begin(self) -> None:
        if not self.in_transaction:
            self.in_transaction = True
            self._event = 0

    def _complete(self, place: Place) -> None:
        self.in_transaction = False
        self.completed = BinlogPosition(place.file, place.end)
        if self._moved_to is not None:
            self.server_id, self._moved_to = self._moved_to, None
        if self._gtid is not None:
            self._gtids.update(_by_domain(self._gtid))
        self._event, self._sent = 0, (0, 0)
        self._gtid = self._thread = None
        if self._last_offset is not None:
            # The last record of a transaction marks it as complete.
            self._last_offset.clear()
            self._last_offset.update(self._offset(place.seconds))
            self._last_offset = None

    def _executed(self, event: Executed, place: Place, now: int) -> list[SourceRecord]:
        self._tables.clear()
        statement = statements.classified(event.text, event.database)
        if isinstance(statement, statements.Begin):
            self._begin()
            self._thread = event.thread
            return []
        if isinstance(statement, statements.Commit):
            self._complete(place)
            return []
        if isinstance(statement, statements.RowStatement) and self._takes(event.database):
            raise ConnectError(
                f"The binlog has a {statement.verb} statement of database {event.database!r} at "
                f"{place.file}:{place.pos} instead of its rows. Set binlog_format=ROW also in all sessions, "
                "and delete the connector's offsets for a new snapshot."
            )
        self._thread = event.thread
        records = self._statement(statement, event, place, now)
        if not self.in_transaction:
            self._complete(place)
        return records

    def _statement(
        self, statement: statements.Statement, event: Executed, place: Place, now: int
    ) -> list[SourceRecord]:
        """A statement counts as an event with one row."""
        number, self._event = self._event, self._event + 1
        if (number, 1) <= self._sent:
            return []
        moment, offset = self._moment(place), self._offset(place.seconds, number, 1)
        records: list[SourceRecord] = []
        if isinstance(statement, statements.Truncate):
            table = self._schema_now(statement.database, statement.table)
            if table is not None:
                records = self._records.truncate(table, moment, now, offset)
        elif isinstance(statement, statements.SchemaChange) and self._takes(statement.database):
            records = self._records.schema_change(statement, event.text, moment, now, offset)
        return self._numbered(records, place, number, 0, offset)

    def _rows(self, event: RowsChanged, place: Place, now: int) -> list[SourceRecord]:
        try:
            table = self._tables[event.table_id]
        except KeyError:
            raise ConnectError(
                f"The binlog has rows of table number {event.table_id} before its columns at "
                f"{place.file}:{place.pos}."
            ) from None
        self._begin()
        number, self._event = self._event, self._event + 1
        if table is None or number < self._sent[0]:
            return []
        passed_over = self._sent[1] if number == self._sent[0] else 0
        make, found = self._records, []
        for at, (before, after) in enumerate(event.rows()):
            if at < passed_over:
                continue
            moment, offset = self._moment(place, at), self._offset(place.seconds, number, at + 1)
            if before is None:
                assert after is not None
                records = make.insert(table, after, moment, now, offset)
            elif after is None:
                records = make.delete(table, before, moment, now, offset)
            else:
                records = make.update(table, before, after, moment, now, offset)
            found += self._numbered(records, place, number, at, offset)
        return found

    def _numbered(
        self, records: list[SourceRecord], place: Place, number: int, at: int, offset: dict[str, Any]
    ) -> list[SourceRecord]:
        """The records of one row, whose offset is `offset`."""
        if len(records) > 1:
            # A restart after some of them sends all of them again.
            before = self._offset(place.seconds, number, at)
            records[:-1] = [record.changed(source_offset=before) for record in records[:-1]]
        if records:
            self._sent = (number, at + 1)
            self._last_offset = offset
        return records

    def _moment(self, place: Place, row: int = 0) -> Moment:
        return Moment(place.seconds, place.server_id, place.file, place.pos, row, self._gtid, self._thread)

    def _offset(self, seconds: int, event: int = 0, row: int = 0) -> dict[str, Any]:
        return Offset(self.completed, event, row, self.gtids, self.server_id).fields(seconds)

    def heartbeat(self, now: int) -> SourceRecord | None:
        """None inside a transaction."""
        if self.in_transaction or self._sent != (0, 0):
            return None
        return self._records.heartbeat(now, self._offset(now // 1_000_000))


def _by_domain(gtids: str | None) -> dict[int, str]:
    """MariaDB's GTIDs, such as `0-1-42,1-1-7`, by their domains."""
    return {int(gtid.partition("-")[0]): gtid for gtid in (gtids or "").split(",") if gtid}
