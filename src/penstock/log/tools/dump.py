"""Dumps the content of log files as rows: batches and records, index entries, snapshots, checkpoints.

The name of a file selects the generator for its type. Rows are dicts of plain values, ready for JSON; bytes
are text if they are UTF-8, otherwise `{"hex": ...}`. Files are streamed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import ApiError, PenstockError
from penstock.fs import REAL_FS, Fs
from penstock.log.checkpoint import CheckpointError, parse_checkpoint
from penstock.log.index import OffsetIndex, TimeIndex, TransactionIndex
from penstock.log.producer_state import SnapshotError, parse_snapshot
from penstock.log.recovery.scan import CorruptSegment, scan_batches
from penstock.log.tools.verify import (
    EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    parse_properties,
)
from penstock.wire.batches import compression
from penstock.wire.batches.records import BatchHeader, Record, iter_records, parse_control

Row = dict[str, Any]

_PASSING = (".cleaned", ".swap", ".deleted")


class DumpError(PenstockError):
    """A file whose content does not match its name; the message says which file and what is wrong."""


def dump_file(path: str, *, records: bool = False, deep: bool = False, fs: Fs = REAL_FS) -> Iterator[Row]:
    """The rows of a file. `deep` adds a row for each record of a log, `records` also their contents.

    Raises DumpError, or CorruptSegment if the rest of a log cannot be read; the rows before are valid.
    """
    name = os.path.basename(path)
    for suffix in _PASSING:
        name = name.removesuffix(suffix)
    if name.endswith(".log"):
        return _log(path, records, deep or records, fs)
    reader = _READERS.get(os.path.splitext(name)[1]) or _BY_NAME.get(name)
    if reader is None:
        raise DumpError(f"{path}: not the name of a file that a log has")
    return reader(path, fs)


def _log(path: str, contents: bool, deep: bool, fs: Fs) -> Iterator[Row]:
    for position, header, batch in scan_batches(path, fs=fs):
        yield _batch_row(position, header)
        if deep:
            try:
                for record in iter_records(batch):
                    yield _record_row(header, record, contents)
            except ApiError as error:
                raise CorruptSegment(path, position, f"records do not decode: {error.message}") from error


def _batch_row(position: int, header: BatchHeader) -> Row:
    return {
        "type": "batch",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "leader_epoch": header.leader_epoch,
        "magic": header.magic,
        "crc": header.crc,
        "codec": compression.NAMES[header.codec],
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "delete_horizon": header.base_timestamp if header.has_delete_horizon else None,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


def _record_row(header: BatchHeader, record: Record, contents: bool) -> Row:
    row: Row = {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
    }
    if header.base_sequence >= 0:
        row["sequence"] = (header.base_sequence + record.offset - header.base_offset) % (1 << 31)
    if header.is_control:
        row["marker"], row["coordinator_epoch"] = parse_control(record)
    elif contents:
        row["key"] = printable(record.key)
        row["value"] = printable(record.value)
        row["headers"] = [[_readable(key), printable(value)] for key, value in record.headers]
    else:
        row["header_keys"] = [_readable(key) for key, _ in record.headers]
    return row


def printable(data: bytes | None) -> str | dict[str, str] | None:
    """Text if the bytes are UTF-8 without control characters (except whitespace), otherwise hexadecimal."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    if all(char.isprintable() or char in "\t\n\r" for char in text):
        return text
    return {"hex": data.hex()}


def _entries(path: str, layout: struct.Struct, fs: Fs) -> Iterator[tuple[int, tuple[Any, ...]]]:
    data = fs.read_bytes(path)
    whole = len(data) - len(data) % layout.size
    for number, entry in enumerate(layout.iter_unpack(data[:whole])):
        yield number * layout.size, entry
    if whole != len(data):
        raise DumpError(f"{path} at position {whole}: {len(data) - whole} bytes are not a whole entry")


def _base_offset(path: str) -> int:
    name = os.path.basename(path)
    if not name[:20].isdigit():
        raise DumpError(f"{path}: the name does not start with an offset of 20 digits")
    return int(name[:20])


def _index(path: str, fs: Fs) -> Iterator[Row]:
    base = _base_offset(path)
    for at, (relative, position) in _entries(path, OffsetIndex.ENTRY, fs):
        yield {"type": "index_entry", "at": at, "offset": base + relative, "position": position}


def _timeindex(path: str, fs: Fs) -> Iterator[Row]:
    base = _base_offset(path)
    for at, (timestamp, relative) in _entries(path, TimeIndex.ENTRY, fs):
        yield {"type": "time_entry", "at": at, "timestamp": timestamp, "offset": base + relative}


def _txnindex(path: str, fs: Fs) -> Iterator[Row]:
    for at, (version, producer_id, first, last, stable) in _entries(path, TransactionIndex.ENTRY, fs):
        yield {
            "type": "aborted_transaction",
            "at": at,
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _snapshot(path: str, fs: Fs) -> Iterator[Row]:
    try:
        producers = parse_snapshot(fs.read_bytes(path))
    except SnapshotError as error:
        raise DumpError(f"{path}: {error}") from error
    for producer_id, entry in producers.items():
        last = entry.batches[-1] if entry.batches else None
        yield {
            "type": "producer",
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "first_sequence": last.first_sequence if last else -1,
            "last_sequence": last.last_sequence if last else -1,
            "last_offset": last.last_offset if last else -1,
            "offset_delta": last.offset_delta if last else 0,
            "timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.txn_first_offset,
        }


def _checkpoint(path: str, fs: Fs) -> Iterator[Row]:
    for topic, partition, offset in _checkpoint_rows(path, 3, fs):
        yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _epochs(path: str, fs: Fs) -> Iterator[Row]:
    for epoch, start_offset in _checkpoint_rows(path, 2, fs):
        yield {"type": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _checkpoint_rows(path: str, columns: int, fs: Fs) -> Iterator[list[str | int]]:
    try:
        for row in parse_checkpoint(fs.read_bytes(path), columns):
            numbers = [int(column) for column in row[columns - 2 :]]
            yield [*row[: columns - 2], *numbers]
    except (CheckpointError, ValueError) as error:
        raise DumpError(f"{path}: {error}") from error


def _properties(separator: str) -> Callable[[str, Fs], Iterator[Row]]:
    def read(path: str, fs: Fs) -> Iterator[Row]:
        try:
            values = parse_properties(fs.read_bytes(path), separator)
        except ValueError as error:
            raise DumpError(f"{path}: {error}") from error
        yield {"type": "properties", **values}

    return read


_READERS: dict[str, Callable[[str, Fs], Iterator[Row]]] = {
    ".index": _index,
    ".timeindex": _timeindex,
    ".txnindex": _txnindex,
    ".snapshot": _snapshot,
}
_BY_NAME: dict[str, Callable[[str, Fs], Iterator[Row]]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _checkpoint),
    EPOCH_CHECKPOINT: _epochs,
    PARTITION_METADATA: _properties(":"),
    META_PROPERTIES: _properties("="),
}


def _readable(key: str) -> str:
    """The key of a record header as text; keys may be any bytes, and those that are not text are shown as
    \\x."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
