"""The replication connection: reads the binlog's events and converts them to the connector's own."""

from __future__ import annotations

import datetime
import logging
import random
import ssl
import struct
import warnings
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from pymysqlreplication.event import (
    BinLogEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from penstock.connect.api import ConnectError, RetriableError
from penstock.connect.connectors.mysql import events
from penstock.connect.connectors.mysql.column_types import MySqlColumn
from penstock.connect.connectors.mysql.offsets import Offset
from penstock.connect.connectors.mysql.server import (
    READ_TIMEOUT_SECONDS,
    connection_settings,
    translated_errors,
)
from penstock.connect.connectors.mysql.settings import SourceSettings

_log = logging.getLogger(__name__)
# It uses datetime.utcfromtimestamp.
warnings.filterwarnings("ignore", category=DeprecationWarning, module="pymysqlreplication")
_HEARTBEAT_SECONDS = 0.5
_READ = [
    RotateEvent, MariadbGtidEvent, QueryEvent, XidEvent, XAPrepareEvent, TableMapEvent, WriteRowsEvent,
    UpdateRowsEvent, DeleteRowsEvent, HeartbeatLogEvent, NotImplementedEvent,
]  # fmt: skip
_STANDALONE = 1
_HEADER = 19
_COMPRESSED = {
    40: "binlog_transaction_compression",
    39: "binlog_row_value_options",
    **dict.fromkeys(range(165, 172), "log_bin_compress"),
}
"""Events with rows in an unsupported format, and the server variable that causes them."""
_KINDS = {
    FIELD_TYPE.TINY: "tinyint", FIELD_TYPE.SHORT: "smallint", FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int", FIELD_TYPE.LONGLONG: "bigint", FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double", FIELD_TYPE.NEWDECIMAL: "decimal", FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.BIT: "bit", FIELD_TYPE.ENUM: "enum", FIELD_TYPE.SET: "set", FIELD_TYPE.JSON: "json",
    FIELD_TYPE.DATE: "date", FIELD_TYPE.NEWDATE: "date", FIELD_TYPE.TIME: "time", FIELD_TYPE.TIME2: "time",
    FIELD_TYPE.DATETIME: "datetime", FIELD_TYPE.DATETIME2: "datetime", FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.TIMESTAMP2: "timestamp", FIELD_TYPE.GEOMETRY: "geometry",
}  # fmt: skip
_CODECS = {
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "macce": "mac_latin2", "macroman": "mac_roman", "tis620": "tis_620",
}  # fmt: skip
"""Python's names of MySQL's character sets that the library does not know."""
_ZERO_DATES = {
    NONE_SOURCE.OUT_OF_DATE_RANGE,
    NONE_SOURCE.OUT_OF_DATETIME_RANGE,
    NONE_SOURCE.OUT_OF_DATETIME2_RANGE,
}


def _read_time(event: Any, column: Any) -> datetime.timedelta:
    """TIME with fractions. The library's own reader is wrong for negative values with a fraction."""
    size = (column.fsp + 1) // 2
    number = int.from_bytes(event.packet.read(3 + size), "big") - (0x800000 << 8 * size)
    whole, fraction = divmod(abs(number), 1 << 8 * size)
    time = datetime.timedelta(
        hours=whole >> 12,
        minutes=whole >> 6 & 63,
        seconds=whole & 63,
        microseconds=fraction * 100 ** (3 - size),
    )
    return -time if number < 0 else time


RowsEvent._RowsEvent__read_time2 = _read_time


class BinlogStream:
    """Reads from `start`, by GTID if `by_gtid`, and otherwise by file and position."""

    def __init__(self, settings: SourceSettings, start: Offset, *, by_gtid: bool) -> None:
        self._what = "Reading the binlog was interrupted"
        self._connections: list[Any] = []
        self._reader = BinLogStreamReader(
            connection_settings(settings),
            server_id=settings.values["database.server.id"] or random.randrange(1 << 20, 1 << 31),
            resume_stream=True,
            blocking=True,
            only_events=_READ,
            filter_non_implemented_events=False,
            log_file=None if by_gtid else start.position.file,
            log_pos=None if by_gtid else max(4, start.position.pos),
            auto_position=start.gtids if by_gtid else None,
            is_mariadb=by_gtid,
            slave_heartbeat=_HEARTBEAT_SECONDS,
            pymysql_wrapper=self._connect,
            # A table whose number is known is not described again; `_event` forgets the numbers in time.
            freeze_schema=True,
            enable_logging=False,
        )

    def _connect(self, **parameters: Any) -> Any:
        # One connection for the binlog and one for queries. The library would connect again after a failure,
        # and continue inside a transaction, without the columns of its tables.
        if len(self._connections) == 2:
            raise RetriableError(f"{self._what}: the connection was lost.")
        connection = pymysql.connect(**parameters)
        self._connections.append(connection)
        return connection

    def read(self) -> tuple[events.Event, events.Place]:
        """The next event; `Idle` when the server has sent none for a while."""
        while True:
            with translated_errors(self._what):
                try:
                    found = self._reader.fetchone()
                except (struct.error, IndexError, UnicodeDecodeError, AssertionError) as error:
                    after = f"{self._reader.log_file}:{self._reader.log_pos}"
                    raise ConnectError(f"The binlog cannot be read after {after}: {error}") from error
            if found is None:
                raise RetriableError(f"{self._what}: the server closed the connection.")
            event = self._event(found)
            if event is not None:
                packet = found.packet
                end = packet.log_pos
                place = events.Place(
                    self._reader.log_file, end - packet.event_size, end, found.timestamp, packet.server_id
                )
                return event, place

    def has_more(self) -> bool:
        """Whether an event can be read without waiting for the server."""
        if not self._connections:
            return False
        connection = self._connections[0]
        try:
            connection._sock.settimeout(0)
            try:
                return bool(connection._rfile.peek(1))
            finally:
                connection._sock.settimeout(READ_TIMEOUT_SECONDS)
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except (OSError, AttributeError, ValueError):
            return True  # reading raises the error

    def close(self) -> None:
        for connection in self._connections:
            try:
                connection._force_close()
            except OSError as error:
                _log.debug("Closing the binlog connection: %s", error)

    def _event(self, found: BinLogEvent) -> events.Event | None:
        match found:
            case RowsEvent():
                return events.RowsChanged(found.table_id, lambda: _rows(found))
            case TableMapEvent():
                return _described(found)
            case MariadbGtidEvent():
                return events.Gtid(found.gtid, bool(found.flags & _STANDALONE))
            case XidEvent() | XAPrepareEvent():
                return events.Committed()
            case QueryEvent():
                # It may have altered a table.
                self._reader.table_map.clear()
                return events.Executed(
                    found.schema.decode(errors="replace"), found.query, found.slave_proxy_id
                )
            case RotateEvent():
                # After a crash numbers start again in a new file, which the library does not notice.
                self._reader.table_map.clear()
                return events.Rotated(found.next_binlog, found.position)
            case HeartbeatLogEvent():
                return events.Idle()
            case _ if found.event_type in _COMPRESSED:
                name = _COMPRESSED[found.event_type]
                raise ConnectError(
                    f"The binlog has compressed or partial rows ({name}), which cannot be read. Turn {name} "
                    "off, delete the connector's offsets and take a new snapshot."
                )
        return None


def _described(found: TableMapEvent) -> events.TableDescribed:
    metadata = found.optional_metadata
    if not metadata.column_name_list:
        raise ConnectError(
            f"The binlog does not name the columns of {found.schema}.{found.table}: "
            "SET GLOBAL binlog_row_metadata = FULL, delete the connector's offsets and take a new snapshot."
        )
    shapes = iter(metadata.geometry_type_list)
    columns = tuple(
        _column(column, not found.null_bitmask[at // 8] & 1 << at % 8, shapes)
        for at, column in enumerate(found.columns)
    )
    places = metadata.simple_primary_key_list or list(metadata.primary_keys_with_prefix)
    key = tuple(columns[at].name for at in places)
    return events.TableDescribed(found.table_id, found.schema, found.table, columns, key)


def _column(column: Any, required: bool, shapes: Any) -> MySqlColumn:
    kind = _KINDS.get(column.type)
    length = scale = 0
    values: tuple[str, ...] = ()
    match kind:
        case None:  # characters and bytes
            kind = "text"
            # The library decodes by this name.
            column.character_set_name = _CODECS.get(column.character_set_name, column.character_set_name)
            if column.character_set_name == "binary":
                kind, length = (
                    ("binary", column.max_length) if column.type == FIELD_TYPE.STRING else ("blob", 0)
                )
        case "geometry":
            kind = "point" if next(shapes, 0) == 1 else "geometry"
        case "decimal":
            length, scale = column.precision, column.decimals
        case "bit":
            length = column.bits
        case "enum":
            values = tuple(column.enum_values[1:])
        case "set":
            values = tuple(column.set_values)
        case "datetime" | "timestamp" | "time":
            scale = getattr(column, "fsp", 0)
    return MySqlColumn(column.name, kind, required, column.unsigned, length, scale, values)


def _rows(found: RowsEvent) -> list[tuple[events.Row | None, events.Row | None]]:
    what = f"{found.schema}.{found.table}"
    try:
        rows = found.rows
    except (struct.error, IndexError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise ConnectError(f"A row of {what} in the binlog cannot be decoded: {error}") from error
    if isinstance(found, UpdateRowsEvent):
        return [
            (
                _row(what, row["before_values"], row["before_none_sources"]),
                _row(what, row["after_values"], row["after_none_sources"]),
            )
            for row in rows
        ]
    plain = [_row(what, row["values"], row["none_sources"]) for row in rows]
    if isinstance(found, DeleteRowsEvent):
        return [(row, None) for row in plain]
    return [(None, row) for row in plain]


def _row(what: str, values: dict[str, Any], none_sources: dict[str, str]) -> events.Row:
    for name, source in none_sources.items():
        if source == NONE_SOURCE.NULL:
            continue
        if source == NONE_SOURCE.EMPTY_SET:
            values[name] = ""
        elif source in _ZERO_DATES:
            values[name] = "0000-00-00"
        else:
            raise ConnectError(
                f"A row of {what} in the binlog has no value of column {name!r} ({source}). Set "
                "binlog_row_image=FULL also in all sessions, and delete the connector's offsets for a new "
                "snapshot."
            )
    return list(values.values())
