"""Removes records from a batch, for the log cleaner.

Retained records are copied as bytes, with unchanged offset and timestamp deltas, so nothing that a client
wrote is encoded again. The batch keeps its base and last offset, its producer id, epoch and sequence, its
leader epoch, codec and timestamp type; only count, maximum timestamp and CRC change.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import InvalidRecord
from penstock.wire.batches import compression
from penstock.wire.batches.records import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_UNPACKED_BYTES,
    BatchHeader,
    Buffer,
    build_batch,
)

_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")


class RawRecord(NamedTuple):
    """The position of a record in the decompressed payload, and the fields that a filter needs."""

    start: int
    body: int  # after the timestamp delta: these bytes do not depend on the batch's base timestamp
    end: int
    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool


class Filtered(NamedTuple):
    """The rest of a batch: None if nothing is left. `records_read` counts the records of the original."""

    data: Buffer | None
    max_timestamp: int
    records_read: int
    records_kept: int


KeepRecord = Callable[[RawRecord], bool]


def payload(header: BatchHeader, batch: Buffer) -> bytes:
    """The records of a batch, decompressed."""
    packed = memoryview(batch)[HEADER_SIZE : header.size]
    return compression.decompress(header.codec, packed, MAX_UNPACKED_BYTES) if header.codec else bytes(packed)


def raw_records(header: BatchHeader, data: bytes) -> Iterator[RawRecord]:
    """Iterate over the decompressed records without decoding values and headers. InvalidRecord if
    malformed."""
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    pos, total = 0, len(data)
    try:
        for _ in range(header.count):
            start = pos
            size, pos = _varint(data, pos)
            end = pos + size
            if size < 6 or end > total:
                raise InvalidRecord("a record goes past the end of its batch")
            timestamp_delta, body = _varint(data, pos + 1)
            offset_delta, pos = _varint(data, body)
            key_size, pos = _varint(data, pos)
            key = None
            if key_size >= 0:
                key = data[pos : pos + key_size]
                pos += key_size
            value_size, pos = _varint(data, pos)
            if pos > end or value_size > end - pos:
                raise InvalidRecord("a field goes past the end of its record")
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            yield RawRecord(start, body, end, base_offset + offset_delta, timestamp, key, value_size >= 0)
            pos = end
    except IndexError:
        raise InvalidRecord("a record goes past the end of its batch") from None
    if pos != total:
        raise InvalidRecord(f"{total - pos} bytes follow the last record of a batch")


def filter_batch(
    header: BatchHeader,
    batch: Buffer,
    keep: KeepRecord,
    *,
    retain_empty: bool = False,
    delete_horizon: int | None = None,
    always_horizon: bool = False,
) -> Filtered:
    """The batch with only the records for which `keep` returns True.

    If all are kept, the same bytes. If none is kept, nothing, or with `retain_empty` the header alone. A
    batch without a delete horizon gets `delete_horizon` if it retains a tombstone (KIP-534), with
    `always_horizon` in any case (for a marker whose transaction has no data left).
    """
    data = payload(header, batch)
    kept: list[RawRecord] = []
    has_tombstone = False
    for record in raw_records(header, data):
        if keep(record):
            kept.append(record)
            if not record.has_value:
                has_tombstone = True
    if not kept:
        if not retain_empty:
            return Filtered(None, -1, header.count, 0)
        return Filtered(empty_batch(header), header.max_timestamp, header.count, 0)
    needs_horizon = (
        delete_horizon is not None and not header.has_delete_horizon and (has_tombstone or always_horizon)
    )
    if len(kept) == header.count and not needs_horizon:
        return Filtered(batch, header.max_timestamp, header.count, header.count)
    horizon = delete_horizon if needs_horizon else None
    rebuilt, max_timestamp = _rebuild(header, data, kept, horizon)
    return Filtered(rebuilt, max_timestamp, header.count, len(kept))


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone, which keeps a producer's sequence or the last offset of the log."""
    return build_batch(
        [],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
        last_offset_delta=header.last_offset_delta,
        max_timestamp=header.max_timestamp,
    )


def _rebuild(
    header: BatchHeader, data: bytes, kept: list[RawRecord], horizon: int | None
) -> tuple[bytes, int]:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon is None:
        body = b"".join([data[record.start : record.end] for record in kept])
    else:
        # The delete horizon replaces the base timestamp, so every delta changes (KIP-534).
        attributes |= DELETE_HORIZON
        body = _shift_timestamps(header, data, kept, horizon)
        base_timestamp = horizon
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(record.timestamp for record in kept)
    packed = compression.compress(header.codec, body) if header.codec else body
    after = _AFTER_CRC.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        len(kept),
    )
    crc = crc32c(packed, crc32c(after))
    length = HEADER_SIZE - LOG_OVERHEAD + len(packed)
    before = _BEFORE_CRC.pack(header.base_offset, length, header.leader_epoch, 2, crc)
    return before + after + packed, max_timestamp


def _shift_timestamps(header: BatchHeader, data: bytes, kept: list[RawRecord], horizon: int) -> bytes:
    out = bytearray()
    for record in kept:
        # With log append time readers ignore the deltas; 0 keeps them short.
        delta = 0 if header.is_log_append_time else record.timestamp - horizon
        moved = _zigzag(delta)
        out += _zigzag(1 + len(moved) + record.end - record.body)
        out.append(0)
        out += moved
        out += data[record.body : record.end]
    return bytes(out)


def _zigzag(value: int) -> bytes:
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    pos += 1
    raw = byte & 127
    shift = 7
    while byte > 127:
        byte = data[pos]
        pos += 1
        raw |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise InvalidRecord("a varint is longer than 64 bits")
    return (raw >> 1) ^ -(raw & 1), pos
