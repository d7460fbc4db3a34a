"""Writes a new segment beside the old ones: `<base>.log.cleaned` and its three indexes.

Compaction and strict retention write it and sync it; then the partition log swaps it in (`swap`). Until then
it is not part of the log: after a crash, all files that end in `.cleaned` are deleted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.fs import Fs
from penstock.log.index import AbortedTxn, OffsetIndex, TimeIndex, TransactionIndex
from penstock.log.recovery.scan import segment_path
from penstock.wire.batches.records import Buffer

CLEANED_SUFFIX = ".cleaned"
KINDS = (".log", ".index", ".timeindex", ".txnindex")
_WRITE_BYTES = 1 << 20
_MAX_INT = 0x7FFFFFFF


class CleanedSegment:
    """Appends batches in offset order. `finish` makes the files durable; leaving the block closes them."""

    def __init__(
        self, directory: str, base_offset: int, fs: Fs, *, index_interval_bytes: int, max_index_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.max_timestamp = -1
        self._directory = directory
        self._fs = fs
        self._interval = index_interval_bytes
        self._max_index_entries = max_index_bytes // OffsetIndex.ENTRY.size
        self._max_time_entries = max_index_bytes // TimeIndex.ENTRY.size
        self._pending = bytearray()
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []
        self._aborted: list[AbortedTxn] = []
        self._offset_of_max_timestamp = base_offset
        self._since_entry = 0
        self._fd = fs.open(self._path(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset
        if self._since_entry > self._interval and self.size <= _MAX_INT:
            self._since_entry = 0
            if len(self._offsets) < self._max_index_entries:
                self._offsets.append((last_offset - self.base_offset, self.size))
            if len(self._times) < self._max_time_entries - 1:  # the last entry is for the end
                self._add_time_entry()
        self._since_entry += len(batch)
        self.size += len(batch)
        self._pending += batch
        if len(self._pending) >= _WRITE_BYTES:
            self._flush()

    def add_aborted(self, transactions: Sequence[AbortedTxn]) -> None:
        self._aborted.extend(transactions)

    def finish(self, modified_ns: int) -> None:
        """Write and sync all files. The log file keeps its modification time, which retention uses for
        records without a timestamp."""
        self._flush()
        self._fs.fsync(self._fd)
        if self.max_timestamp >= 0:
            self._add_time_entry()
        self._write(".index", b"".join([OffsetIndex.ENTRY.pack(*entry) for entry in self._offsets]))
        self._write(".timeindex", b"".join([TimeIndex.ENTRY.pack(*entry) for entry in self._times]))
        # Written even if it is empty: the swap must replace an old one.
        self._write(".txnindex", b"".join([TransactionIndex.ENTRY.pack(0, *txn) for txn in self._aborted]))
        os.utime(self._path(".log"), ns=(modified_ns, modified_ns))
        self._fs.fsync_dir(self._directory)

    def __enter__(self) -> CleanedSegment:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._fs.close(fd)

    def _add_time_entry(self) -> None:
        if not self._times or self.max_timestamp > self._times[-1][0]:
            self._times.append((self.max_timestamp, self._offset_of_max_timestamp - self.base_offset))

    def _flush(self) -> None:
        if self._pending:
            self._fs.write_all(self._fd, self._pending)
            self._pending = bytearray()

    def _write(self, kind: str, data: bytes) -> None:
        fd = self._fs.open(self._path(kind), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self._fs.write_all(fd, data)
            self._fs.fsync(fd)
        finally:
            self._fs.close(fd)

    def _path(self, kind: str) -> str:
        return segment_path(self._directory, self.base_offset, kind + CLEANED_SUFFIX)


def discard_cleaned(directory: str, base_offset: int, fs: Fs) -> None:
    """Remove the `.cleaned` files of this segment, complete or not."""
    for kind in KINDS:
        path = segment_path(directory, base_offset, kind + CLEANED_SUFFIX)
        if fs.exists(path):
            fs.unlink(path)
