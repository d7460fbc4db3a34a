"""The three indexes of a segment, in Kafka's formats.

`OffsetIndex` (offset to position), `TimeIndex` (timestamp to offset) and `TransactionIndex` (aborted
transactions). New entries are collected in memory and written in blocks: this is safe because an index is
rebuilt after a crash. Lookups read the file directly.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

from penstock.fs import Fs
from penstock.log import residency
from penstock.log.files import sync_path

_TAIL_ENTRIES = 256


class EntryFile:
    """An append-only file of entries of a fixed size, for binary search.

    A sealed index keeps no open descriptor, because a broker may have many thousand closed segments. The
    event loop appends; lookups may come from other threads too.
    """

    __slots__ = ("_fd", "_flushed", "_fs", "_lock", "_tail", "path", "sealed")

    ENTRY: struct.Struct

    def __init__(self, path: str, fs: Fs) -> None:
        self.path = path
        self.sealed = False
        self._fs = fs
        self._fd = -1
        self._lock = threading.RLock()
        self._tail = bytearray()
        self._flushed = fs.stat_size(path) // self.ENTRY.size if fs.exists(path) else 0

    @property
    def count(self) -> int:
        return self._flushed + len(self._tail) // self.ENTRY.size

    def _descriptor(self) -> int:
        if self._fd < 0:
            self._fd = self._fs.open(self.path, os.O_RDWR | os.O_CREAT)
        return self._fd

    def _add(self, entry: bytes) -> None:
        with self._lock:
            self.sealed = False
            self._tail += entry
            if len(self._tail) >= _TAIL_ENTRIES * self.ENTRY.size:
                # A full disk must not fail an append whose bytes are already in the log: keep the tail in
                # memory.
                with contextlib.suppress(OSError):
                    self.flush()

    def flush(self) -> None:
        size = self.ENTRY.size
        with self._lock:
            if self._tail or self._fd >= 0 or not self._fs.exists(self.path):
                fd = self._descriptor()
                if self._tail:
                    data, position = bytes(self._tail), self._flushed * size
                    written = 0
                    while written < len(data):
                        written += self._fs.pwrite(fd, data[written:], position + written)
                    self._flushed += len(data) // size
                    self._tail.clear()

    def seal(self) -> None:
        """Write all entries to the file; from now on it is opened for each lookup."""
        with self._lock:
            self.flush()
            self.close()
            self.sealed = True

    def _borrow(self) -> int:
        """A descriptor to read with; -1 if all entries are in memory. A read creates no file: on a full disk
        there might be no room for it."""
        if not self._flushed:
            return self._fd
        if self.sealed:
            return self._fs.open(self.path, os.O_RDONLY)
        return self._descriptor()

    def _give_back(self, fd: int) -> None:
        if fd != self._fd:
            self._fs.close(fd)

    def _read(self, fd: int, i: int) -> tuple[int, int]:
        size = self.ENTRY.size
        if i >= self._flushed:
            first, second = self.ENTRY.unpack_from(self._tail, (i - self._flushed) * size)
        else:
            residency.check(fd, i * size, size)
            data = self._fs.pread(fd, size, i * size)
            if len(data) < size:
                # another process has truncated the file: treat missing entries as absent
                return (-1, 0)
            first, second = self.ENTRY.unpack(data)
        return first, second

    def entry(self, i: int) -> tuple[int, int]:
        with self._lock:
            fd = self._borrow()
            try:
                return self._read(fd, i)
            finally:
                self._give_back(fd)

    def _floor(self, key: int, column: int = 0) -> int:
        """The number of the last entry whose `column` is at most `key`, or -1."""
        with self._lock:
            low, high = 0, self.count
            if high == 0:
                return -1
            fd = self._borrow()
            try:
                while low < high:
                    middle = (low + high) // 2
                    if self._read(fd, middle)[column] <= key:
                        low = middle + 1
                    else:
                        high = middle
            finally:
                self._give_back(fd)
            return low - 1

    def truncate_entries(self, count: int) -> None:
        size = self.ENTRY.size
        with self._lock:
            if count >= self.count:
                return
            if count >= self._flushed:
                del self._tail[(count - self._flushed) * size :]
            else:
                self._tail.clear()
                self._fs.ftruncate(self._descriptor(), count * size)
                self._flushed = count

    def reset(self) -> None:
        """Remove all entries, in memory and on disk."""
        with self._lock:
            self._tail.clear()
            self._flushed = 0
            if self._fd >= 0 or self._fs.exists(self.path):
                self._fs.ftruncate(self._descriptor(), 0)

    def sync(self) -> None:
        sync_path(self.path, self._fs)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class OffsetIndex(EntryFile):
    """Entries (last offset of a batch - base offset, position of the batch)."""

    __slots__ = ("base_offset",)

    ENTRY = struct.Struct(">ii")

    def __init__(self, path: str, base_offset: int, fs: Fs) -> None:
        super().__init__(path, fs)
        self.base_offset = base_offset

    def append(self, offset: int, position: int) -> None:
        self._add(self.ENTRY.pack(offset - self.base_offset, position))

    def position_for(self, offset: int) -> int:
        """A position at or before the batch that contains `offset`."""
        i = self._floor(offset - self.base_offset)
        return self.entry(i)[1] if i >= 0 else 0

    def floor_position(self, position: int) -> int:
        """The start of the last indexed batch at or before `position`."""
        i = self._floor(position, column=1)
        return self.entry(i)[1] if i >= 0 else 0

    def position_back(self, entries: int) -> int:
        """The position of the entry that is `entries` before the end."""
        i = self.count - entries
        return self.entry(i)[1] if i >= 0 else 0

    def is_sane(self, log_size: int) -> bool:
        if not self._fs.exists(self.path):
            return False
        if self._fs.stat_size(self.path) % self.ENTRY.size:
            return False
        if self.count == 0:
            return True
        offset, position = self.entry(self.count - 1)
        return offset >= 0 and 0 <= position < log_size

    def truncate_to(self, offset: int) -> None:
        self.truncate_entries(self._floor(offset - 1 - self.base_offset) + 1)


class TimeIndex(EntryFile):
    """Entries (largest timestamp so far, offset of the batch that has it - base offset)."""

    __slots__ = ("base_offset", "last_timestamp")

    ENTRY = struct.Struct(">qi")

    def __init__(self, path: str, base_offset: int, fs: Fs) -> None:
        super().__init__(path, fs)
        self.base_offset = base_offset
        self.last_timestamp = self.entry(self.count - 1)[0] if self.count else -1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        if timestamp > self.last_timestamp:
            self._add(self.ENTRY.pack(timestamp, offset - self.base_offset))
            self.last_timestamp = timestamp

    def last(self) -> tuple[int, int] | None:
        if not self.count:
            return None
        timestamp, relative = self.entry(self.count - 1)
        return timestamp, self.base_offset + relative

    def before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry (timestamp, offset) below `timestamp`.

        No batch up to the offset of an entry has a larger timestamp than the entry, so the search for the
        first record with at least `timestamp` may start there.
        """
        i = self._floor(timestamp - 1)
        if i < 0:
            return None
        found, relative = self.entry(i)
        return found, self.base_offset + relative

    def is_sane(self) -> bool:
        if not self._fs.exists(self.path):
            return False
        if self._fs.stat_size(self.path) % self.ENTRY.size:
            return False
        return self.count == 0 or (self.entry(self.count - 1)[1] >= 0 and self.last_timestamp >= 0)

    def truncate_to(self, offset: int) -> None:
        self.truncate_entries(self._floor(offset - 1 - self.base_offset, column=1) + 1)
        self.last_timestamp = self.entry(self.count - 1)[0] if self.count else -1

    def reset(self) -> None:
        super().reset()
        self.last_timestamp = -1


class AbortedTxn(NamedTuple):
    """An aborted transaction: the offsets of its first record and its marker, and the last stable offset
    then."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of a segment. The file exists only if there are any.

    A partial entry that a crash has left is overwritten by the next one; otherwise later entries would be
    misread.
    """

    __slots__ = ("_entries", "_fs", "_size", "path")

    ENTRY = struct.Struct(">hqqqq")

    def __init__(self, path: str, fs: Fs) -> None:
        self.path = path
        self._fs = fs
        self._entries: list[AbortedTxn] = []
        self._size = 0  # of the complete entries in the file
        if fs.exists(path):
            data = fs.read_bytes(path)
            self._size = len(data) - len(data) % self.ENTRY.size
            for version, *fields in self.ENTRY.iter_unpack(data[: self._size]):
                if version == 0:
                    self._entries.append(AbortedTxn(*fields))

    def __iter__(self) -> Iterator[AbortedTxn]:
        return iter(self._entries)

    def append(self, txn: AbortedTxn) -> None:
        self._entries.append(txn)
        entry, written = self.ENTRY.pack(0, *txn), 0
        fd = self._fs.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            while written < len(entry):
                written += self._fs.pwrite(fd, entry[written:], self._size + written)
        finally:
            self._fs.close(fd)
        self._size += len(entry)

    def sync(self) -> None:
        """Sync the file: of synced segments, recovery does not read the markers again."""
        if self._entries:
            sync_path(self.path, self._fs)

    def truncate_to(self, offset: int) -> None:
        """Truncate the file in place, because a rewritten one might not fit on a full disk. Entries are
        ordered by their last offset."""
        kept = [txn for txn in self._entries if txn.last_offset < offset]
        if len(kept) == len(self._entries):
            return
        if not kept:
            self.reset()
            return
        size = self._size - (len(self._entries) - len(kept)) * self.ENTRY.size
        fd = self._fs.open(self.path, os.O_WRONLY)
        try:
            self._fs.ftruncate(fd, size)
        finally:
            self._fs.close(fd)
        self._entries, self._size = kept, size

    def reset(self) -> None:
        self._entries = []
        self._size = 0
        if self._fs.exists(self.path):
            self._fs.unlink(self.path)
