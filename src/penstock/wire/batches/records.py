"""Reads and builds batches of single records: for compaction, tools, coordinators and tests.

A record has its absolute offset. build_batch can preserve gaps between offsets, and the header of a batch
from which records were removed. The names of batch.py are exported here too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptMessage, InvalidRecord
from penstock.wire.batches import compression
from penstock.wire.batches.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAX_PRODUCED_BYTES,
    MAX_UNPACKED_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
    check_compressed,
    payload,
    read_header,
    refuse_old_magic,
    set_log_append_time,
    set_producer,
    stamp,
)
from penstock.wire.primitives import Buffer

__all__ = [
    "ATTRIBUTES_POSITION",
    "CODEC_MASK",
    "CONTROL",
    "CRC_POSITION",
    "DELETE_HORIZON",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC_POSITION",
    "MAX_PRODUCED_BYTES",
    "MAX_UNPACKED_BYTES",
    "NO_TIMESTAMP",
    "TRANSACTIONAL",
    "BatchHeader",
    "Buffer",
    "Record",
    "build_batch",
    "check_batch",
    "check_compressed",
    "control_marker",
    "iter_records",
    "parse_control",
    "read_header",
    "set_log_append_time",
    "set_producer",
    "stamp",
]

NO_TIMESTAMP = -1

_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")


class Record(NamedTuple):
    """One record. The deltas are those in the batch it was read from; build_batch computes them."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset_delta: int = 0
    timestamp_delta: int = 0


def iter_records(buf: Buffer, pos: int = 0, *, max_bytes: int = MAX_UNPACKED_BYTES) -> Iterator[Record]:
    """The records of the batch at pos. The caller must check the CRC; everything else is checked here."""
    header = read_header(buf, pos)
    if header.magic != 2:
        refuse_old_magic(buf, pos, len(buf))
        raise CorruptMessage(f"magic {header.magic} is not a record format")
    data = bytes(payload(buf, pos, header, max_bytes))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    at, end = 0, len(data)
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    try:
        for _ in range(header.count):
            size, at = _varint(data, at)
            record_end = at + size
            if size < 0 or record_end > end:
                raise InvalidRecord("a record goes past the end of its batch")
            at += 1  # attributes: none are defined
            # One-byte numbers are read inline, without a function call.
            byte = data[at]
            if byte < 128:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                timestamp_delta, at = _varint(data, at)
            byte = data[at]
            if byte < 128:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                offset_delta, at = _varint(data, at)
            if data[at] == 1:
                key = None
                at += 1
            else:
                key, at = _nullable(data, at, record_end)
            value, at = _nullable(data, at, record_end)
            if data[at]:
                headers, at = _headers(data, at, record_end)
            else:
                headers = ()
                at += 1
            if at != record_end:
                raise InvalidRecord("a record's length and its fields disagree")
            yield Record(
                base_offset + offset_delta,
                base_timestamp + timestamp_delta if append_time is None else append_time,
                key,
                value,
                headers,
                offset_delta,
                timestamp_delta,
            )
    except IndexError:
        raise InvalidRecord("a record goes past the end of its batch") from None
    if at != end:
        raise InvalidRecord(f"{end - at} bytes follow the last record of a batch")


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    raw = byte & 127
    shift = 7
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise InvalidRecord("a varint is longer than 64 bits")


def _nullable(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size = data[pos]
    if size < 128 and not size & 1:
        size >>= 1
        pos += 1
    else:
        size, pos = _varint(data, pos)
    if size < 0:
        if size == -1:
            return None, pos
        raise InvalidRecord(f"a field of a record has length {size}")
    stop = pos + size
    if stop > end:
        raise InvalidRecord("a field goes past the end of its record")
    return data[pos:stop], stop


def _headers(data: bytes, pos: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    number, pos = _varint(data, pos)
    if number < 0 or number > end - pos:
        raise InvalidRecord(f"a record says it has {number} headers")
    found = []
    for _ in range(number):
        key, pos = _nullable(data, pos, end)
        if key is None:
            raise InvalidRecord("a header has no key")
        value, pos = _nullable(data, pos, end)
        # Kafka accepts any bytes as a header key. Those that are not UTF-8 are preserved by surrogateescape.
        found.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(found), pos


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = compression.NONE,
    level: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    offsets: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """A batch of these records.

    Offsets are consecutive from base_offset, unless `offsets` has the offset of each record: then gaps are
    preserved, and `last_offset_delta` preserves the end of a batch whose last records were removed. A
    delete_horizon replaces the base timestamp, as in Kafka's cleaner.
    """
    items = list(records)
    count = len(items)
    if base_timestamp is None:
        base_timestamp = items[0].timestamp if items else NO_TIMESTAMP
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    if max_timestamp is None:
        max_timestamp = max((item.timestamp for item in items), default=NO_TIMESTAMP)
    if log_append_time is not None:
        max_timestamp = log_append_time
    if offsets is None:
        deltas: Sequence[int] = range(count)
    else:
        deltas = [offset - base_offset for offset in offsets]
        if len(deltas) != count:
            raise ValueError(f"{count} records but {len(deltas)} offsets")
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else 0

    out = bytearray()
    for item, delta in zip(items, deltas, strict=True):
        _write_record(out, item, item.timestamp - base_timestamp, delta)
    packed = compression.compress(codec, out, level) if codec else bytes(out)

    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )
    body = _AFTER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(packed, crc32c(body))
    length = HEADER_SIZE - LOG_OVERHEAD + len(packed)
    return _BEFORE_CRC.pack(base_offset, length, leader_epoch, 2, crc) + body + packed


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\x00")
    _put_varint(body, timestamp_delta)
    _put_varint(body, offset_delta)
    _put_nullable(body, record.key)
    _put_nullable(body, record.value)
    _put_varint(body, len(record.headers))
    for key, value in record.headers:
        _put_nullable(body, key.encode("utf-8", "surrogateescape"))
        _put_nullable(body, value)
    _put_varint(out, len(body))
    out += body


def _put_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)


def _put_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    _put_varint(out, len(data))
    out += data


def control_marker(
    kind: Literal["commit", "abort"],
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction in a partition."""
    marker = Record(
        base_offset,
        timestamp,
        _CONTROL_KEY.pack(0, 1 if kind == "commit" else 0),
        _CONTROL_VALUE.pack(0, coordinator_epoch),
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def parse_control(record: Record) -> tuple[str, int]:
    """("commit" or "abort", coordinator epoch) of a marker; other control records: (type number, -1)."""
    key, value = record.key, record.value
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidRecord("a control record has no type")
    _, kind = _CONTROL_KEY.unpack_from(key)
    if kind not in (0, 1):
        return str(kind), -1
    if value is None or len(value) < _CONTROL_VALUE.size:
        raise InvalidRecord("a transaction marker has no coordinator epoch")
    _, coordinator_epoch = _CONTROL_VALUE.unpack_from(value)
    return ("commit" if kind else "abort"), coordinator_epoch
