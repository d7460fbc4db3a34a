"""Decodes pgoutput, PostgreSQL's built-in logical replication plugin, to dataclasses.

Protocol versions 1 and 2 (PostgreSQL's documentation, "Logical Replication Message Formats"). Version 2 adds
transactions that are sent while they run; the messages inside such a stream begin with the transaction's id,
so `PgOutputDecoder` knows whether it is inside one. That is its only state: the caller keeps the columns of
relations. Invalid bytes raise `PgOutputError` and no other exception.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.connect.connectors.cdc.column_types import UNCHANGED, Unchanged
from penstock.errors import PenstockError


class PgOutputError(PenstockError):
    """Bytes of the replication stream that are not a pgoutput message of protocol version 1 or 2."""


Value: TypeAlias = str | bytes | Literal[Unchanged.UNCHANGED] | None
"""Text form, binary form (only where `binary 'true'` was asked for), unchanged, or null."""
Row: TypeAlias = tuple[Value, ...]

EPOCH_MICROS: Final = 946_684_800_000_000
"""2000-01-01, where PostgreSQL's time begins, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Begin:
    final_lsn: int
    commit_micros: int
    """Time of the commit, in microseconds since 1970."""
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: int
    end_lsn: int
    commit_micros: int


@dataclass(frozen=True, slots=True)
class Origin:
    commit_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type_oid: int
    type_modifier: int
    is_key: bool
    """Part of the replica identity."""


@dataclass(frozen=True, slots=True)
class Relation:
    oid: int
    schema: str
    name: str
    replica_identity: str
    """d: primary key, n: nothing, f: all columns, i: an index."""
    columns: tuple[Column, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    oid: int
    schema: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    relation: int
    new: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    relation: int
    new: Row
    old: Row | None = None
    old_is_key: bool = False
    """`old` has only the columns of the replica identity, the others are null; otherwise the whole row."""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    relation: int
    old: Row
    old_is_key: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message of `pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    pass


@dataclass(frozen=True, slots=True)
class StreamCommit:
    xid: int
    commit_lsn: int
    end_lsn: int
    commit_micros: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    xid: int
    subtransaction_xid: int


Message: TypeAlias = (
    Begin
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_STREAM_COMMIT = struct.Struct(">IBQQq")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_COLUMN = struct.Struct(">Ii")
_MESSAGE = struct.Struct(">BQ")
_STREAM_START = struct.Struct(">IB")
_STREAM_ABORT = struct.Struct(">II")
_IN_STREAM = frozenset(b"RYIUDTM")


class PgOutputDecoder:
    """Create one for each replication connection."""

    def __init__(self) -> None:
        self._in_stream = False

    def decode(self, data: bytes) -> Message:
        """Decodes `data`, which must be one whole message."""
        if not data:
            raise PgOutputError("An empty message in the replication stream.")
        kind = data[0]
        at = 1
        xid = None
        try:
            if self._in_stream and kind in _IN_STREAM:
                xid = _U32.unpack_from(data, 1)[0]
                at = 5
            if kind == 0x49:  # I
                return _insert(data, at, xid)
            if kind == 0x55:  # U
                return _update(data, at, xid)
            if kind == 0x44:  # D
                return _delete(data, at, xid)
            message, end = self._others(kind, data, at, xid)
        except (struct.error, IndexError):
            raise PgOutputError(f"{_named(kind)} of {len(data)} bytes is cut short.") from None
        except UnicodeDecodeError as error:
            raise PgOutputError(
                f"{_named(kind)} holds text that is not UTF-8 ({error.reason} at byte {error.start}): "
                "a database with encoding SQL_ASCII cannot be captured."
            ) from None
        _whole(kind, data, end)
        if isinstance(message, StreamStart | StreamStop):
            self._in_stream = isinstance(message, StreamStart)
        return message

    def _others(self, kind: int, data: bytes, at: int, xid: int | None) -> tuple[Message, int]:
        match chr(kind):
            case "B":
                lsn, micros, transaction = _BEGIN.unpack_from(data, at)
                return Begin(lsn, micros + EPOCH_MICROS, transaction), at + _BEGIN.size
            case "C":
                _, lsn, end_lsn, micros = _COMMIT.unpack_from(data, at)
                return Commit(lsn, end_lsn, micros + EPOCH_MICROS), at + _COMMIT.size
            case "R":
                return _relation(data, at, xid)
            case "Y":
                (oid,) = _U32.unpack_from(data, at)
                schema, at = _string(data, at + 4)
                name, at = _string(data, at)
                return Type(oid, schema, name, xid), at
            case "T":
                return _truncate(data, at, xid)
            case "O":
                (lsn,) = _U64.unpack_from(data, at)
                name, at = _string(data, at + 8)
                return Origin(lsn, name), at
            case "M":
                flags, lsn = _MESSAGE.unpack_from(data, at)
                prefix, at = _string(data, at + _MESSAGE.size)
                content, at = _sized(data, at)
                return LogicalMessage(bool(flags & 1), lsn, prefix, content, xid), at
            case "S":
                if self._in_stream:
                    raise PgOutputError("A stream of a transaction begins inside another one.")
                transaction, first = _STREAM_START.unpack_from(data, at)
                return StreamStart(transaction, bool(first)), at + _STREAM_START.size
            case "E":
                if not self._in_stream:
                    raise PgOutputError("A stream of a transaction ends that did not begin.")
                return StreamStop(), at
            case "c":
                transaction, _, lsn, end_lsn, micros = _STREAM_COMMIT.unpack_from(data, at)
                return StreamCommit(
                    transaction, lsn, end_lsn, micros + EPOCH_MICROS
                ), at + _STREAM_COMMIT.size
            case "A":
                transaction, inner = _STREAM_ABORT.unpack_from(data, at)
                return StreamAbort(transaction, inner), at + _STREAM_ABORT.size
            case _:
                raise PgOutputError(f"{_named(kind)} is not known in pgoutput's protocol versions 1 and 2.")


def _named(kind: int) -> str:
    return f"Message {chr(kind)!r}" if 0x20 < kind < 0x7F else f"Message 0x{kind:02x}"


def _whole(kind: int, data: bytes, end: int) -> None:
    if end != len(data):
        raise PgOutputError(f"{_named(kind)} ends after {end} bytes, and {len(data)} were sent.")


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(0, at)
    if end < 0:
        raise IndexError
    return data[at:end].decode(), end + 1


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _U32.unpack_from(data, at)
    at += 4
    if size > len(data) - at:
        raise IndexError
    return data[at : at + size], at + size


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """TupleData. The hot path of the decoder: per column it only calls functions in C."""
    (count,) = _U16.unpack_from(data, at)
    at += 2
    size_at = _U32.unpack_from
    end = len(data)
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74 or kind == 0x62:  # t, b
            start = at + 4
            at = start + size_at(data, at)[0]
            if at > end:
                raise IndexError
            values.append(data[start:at].decode() if kind == 0x74 else data[start:at])
        elif kind == 0x6E:  # n
            values.append(None)
        elif kind == 0x75:  # u
            values.append(UNCHANGED)
        else:
            raise PgOutputError(f"A column of kind 0x{kind:02x}: known are 'n', 'u', 't' and 'b'.")
    return tuple(values), at


def _insert(data: bytes, at: int, xid: int | None) -> Insert:
    (relation,) = _U32.unpack_from(data, at)
    _expect(data, at + 4, "N")
    new, end = _row(data, at + 5)
    _whole(0x49, data, end)
    return Insert(relation, new, xid)


def _update(data: bytes, at: int, xid: int | None) -> Update:
    (relation,) = _U32.unpack_from(data, at)
    at += 4
    old: Row | None = None
    kind = data[at]
    if kind == 0x4B or kind == 0x4F:  # K, O
        old, at = _row(data, at + 1)
    _expect(data, at, "N")
    new, end = _row(data, at + 1)
    _whole(0x55, data, end)
    return Update(relation, new, old, kind == 0x4B, xid)


def _delete(data: bytes, at: int, xid: int | None) -> Delete:
    (relation,) = _U32.unpack_from(data, at)
    kind = _expect(data, at + 4, "KO")
    old, end = _row(data, at + 5)
    _whole(0x44, data, end)
    return Delete(relation, old, kind == "K", xid)


def _expect(data: bytes, at: int, kinds: str) -> str:
    kind = chr(data[at])
    if kind not in kinds:
        raise PgOutputError(f"A row marked {kind!r} where {' or '.join(map(repr, kinds))} was expected.")
    return kind


def _relation(data: bytes, at: int, xid: int | None) -> tuple[Relation, int]:
    (oid,) = _U32.unpack_from(data, at)
    schema, at = _string(data, at + 4)
    name, at = _string(data, at)
    identity = chr(data[at])
    (count,) = _U16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _string(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(Column(column, type_oid, modifier, bool(flags & 1)))
    # An empty name means pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns), xid), at


def _truncate(data: bytes, at: int, xid: int | None) -> tuple[Truncate, int]:
    (count,) = _U32.unpack_from(data, at)
    options = data[at + 4]
    at += 5
    if count * 4 > len(data) - at:
        raise IndexError
    relations = struct.unpack_from(f">{count}I", data, at)
    return Truncate(relations, bool(options & 1), bool(options & 2), xid), at + count * 4
