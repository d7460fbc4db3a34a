"""A segment: one `.log` file with its indexes, named by the offset of its first record.

It appends batches, finds them by offset, position and time, and rebuilds its indexes from them. The partition
log decides which batches are appended, and when a new segment starts.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.errors import ApiError, CorruptMessage
from penstock.fs import Fs
from penstock.log.files import LogFile
from penstock.log.index import OffsetIndex, TimeIndex, TransactionIndex
from penstock.wire.batches.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch, read_header

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
FILE_KINDS: Final = (".log", ".index", ".timeindex", ".txnindex")

_SCAN_CHUNK = 4096
_RECOVER_CHUNK = 1 << 20
_MAX_OFFSET = (1 << 63) - 1

logger = logging.getLogger(__name__)


def file_name(base_offset: int, kind: str) -> str:
    return f"{base_offset:020d}{kind}"


def rename_segments(directory: str, bases: Iterable[int], old: str, new: str, fs: Fs) -> None:
    """Change the suffix of the files of these segments. The log file is last, because its name commits the
    swap."""
    for base in bases:
        for kind in (*FILE_KINDS[1:], FILE_KINDS[0]):
            path = os.path.join(directory, file_name(base, kind))
            if fs.exists(path + old):
                fs.rename(path + old, path + new)


class Segment:
    __slots__ = (
        "_bytes_since_index",
        "_fs",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "first_timestamp",
        "index_interval_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "offsets",
        "retired",
        "times",
        "txns",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        file: LogFile,
        fs: Fs,
        *,
        index_interval_bytes: int,
        created_ms: int,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.retired = False  # no longer part of the log; remaining readers do not use the indexes
        self._fs = fs
        self.offsets = OffsetIndex(self.path(".index"), base_offset, fs)
        self.times = TimeIndex(self.path(".timeindex"), base_offset, fs)
        self.txns = TransactionIndex(self.path(".txnindex"), fs)
        self._bytes_since_index = 0
        self.first_timestamp: int | None = None
        last = self.times.last()
        self.max_timestamp, self.offset_of_max_timestamp = last or (-1, base_offset)

    # creating and opening

    @classmethod
    def create(
        cls,
        directory: str,
        base_offset: int,
        fs: Fs,
        *,
        index_interval_bytes: int,
        now_ms: int,
        preallocate: int = 0,
    ) -> Segment:
        for kind in FILE_KINDS[1:]:  # left over from an earlier segment at this offset
            path = os.path.join(directory, file_name(base_offset, kind))
            if fs.exists(path):
                fs.unlink(path)
        path = os.path.join(directory, file_name(base_offset, ".log"))
        try:
            file = LogFile.create(path, fs, preallocate)
        except OSError:
            # The next start would take an empty file for the active segment.
            with contextlib.suppress(OSError):
                fs.unlink(path)
            raise
        return cls(
            directory, base_offset, file, fs, index_interval_bytes=index_interval_bytes, created_ms=now_ms
        )

    @classmethod
    def open(cls, directory: str, base_offset: int, fs: Fs, *, index_interval_bytes: int) -> Segment:
        path = os.path.join(directory, file_name(base_offset, ".log"))
        stat = os.stat(path)
        file = LogFile(path, fs, stat.st_size, identity=(stat.st_dev, stat.st_ino))
        segment = cls(
            directory,
            base_offset,
            file,
            fs,
            index_interval_bytes=index_interval_bytes,
            created_ms=int(stat.st_mtime * 1000),
        )
        segment.offsets.seal()
        segment.times.seal()
        file.sealed = True  # the first append to the active segment reverts it
        return segment

    def path(self, kind: str) -> str:
        return os.path.join(self.directory, file_name(self.base_offset, kind))

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; if no record has one, the time of the last write."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def indexes_are_sane(self) -> bool:
        """Whether the indexes of a sealed segment cover its end and its largest timestamp.

        A wrong entry in the middle is detected when it is used.
        """
        if not (self.offsets.is_sane(self.size) and self.times.is_sane()):
            return False
        last, end = self._last()
        if end != self.size:
            return False
        if last is not None and last.max_timestamp > self.times.last_timestamp:
            return False
        newest = self.times.last()
        if newest is not None and not self._has(*newest):
            return False
        # an empty index is correct only if no entry was due
        return self.offsets.count > 0 or end - (0 if last is None else last.size) <= self.index_interval_bytes

    def _has(self, max_timestamp: int, offset: int) -> bool:
        """Whether the batch that contains `offset` exists and has that maximum timestamp."""
        for _, header in self.headers(self._start_for(offset, mend=False)):
            if header.last_offset >= offset:
                return header.max_timestamp == max_timestamp
        return False

    def _last(self) -> tuple[BatchHeader | None, int]:
        """The last complete batch after the last index entry, and its end position."""
        last, end = None, self.offsets.position_back(1)
        for position, header in self.headers(end):
            last, end = header, position + header.size
        return last, end

    # appending

    def append(self, data: memoryview | bytes, last_offset: int, max_timestamp: int) -> None:
        position = self.file.size
        self.file.append(data)
        self._note(position, len(data), last_offset, max_timestamp)

    def _note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def seal(self) -> None:
        """Called after the last append: adds the largest timestamp to the time index."""
        self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.file.seal()
        self.offsets.seal()
        self.times.seal()

    def sync(self, *, sealed: bool) -> None:
        """Sync the segment. The indexes of the active segment need no sync, because recovery rebuilds
        them."""
        self.file.sync()
        if sealed:
            self.offsets.sync()
            self.times.sync()
            self.txns.sync()

    # finding

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Batch headers from `position` on. Stops at the end, or at bytes that are not a complete batch."""
        file, next_offset = self.file, self.base_offset
        stop = file.size if end is None else min(end, file.size)
        chunk, start = b"", position
        while position + HEADER_SIZE <= stop:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = file.pread(_SCAN_CHUNK, position), position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            header = read_header(chunk, at)
            if not self._plausible(header, position, next_offset):
                return
            yield position, header
            next_offset = header.last_offset + 1
            position += header.size

    def _plausible(self, header: BatchHeader, position: int, next_offset: int) -> bool:
        return (
            header.magic == 2
            and header.length >= HEADER_SIZE - LOG_OVERHEAD
            and position + header.size <= self.file.size
            and header.base_offset >= next_offset
            and header.last_offset_delta >= 0
        )

    def from_offset(self, offset: int, *, mend: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """All batches from one at or before `offset`; CorruptMessage if the bytes are not batches.

        A wrong index entry, which points to no batch or to a later one, is detected: the index is then
        rebuilt. In a thread (`mend` is false) the segment is read from its first byte instead.
        """
        end = self._start_for(offset, mend)
        for position, header in self.headers(end):
            yield position, header
            end = position + header.size
        if end != self.file.size:
            raise CorruptMessage(f"{self.file.path}: no batch at byte {end}; see penstock log verify")

    def _start_for(self, offset: int, mend: bool) -> int:
        position = 0
        if offset > self.base_offset and not self.retired:
            try:
                position = self.offsets.position_for(offset)
            except FileNotFoundError:
                if not self.retired:
                    raise
        if not position or self._is_batch(position, offset):
            return position
        # Checked after the lookup: compaction may just have replaced the index files by those of another
        # segment.
        if self.retired or not mend:
            return 0
        logger.warning("%s: corrupt index entry, rebuilding the indexes", self.file.path)
        self.rebuild_indexes()
        return self.offsets.position_for(offset)

    def _is_batch(self, position: int, at_most: int) -> bool:
        for _, header in self.headers(position, position + HEADER_SIZE):
            return header.base_offset <= at_most
        return False

    def locate(self, offset: int, *, mend: bool = True) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is at least `offset`; see `from_offset` for `mend`."""
        for position, header in self.from_offset(offset, mend=mend):
            if header.last_offset >= offset:
                return position, header
        return None

    def boundary_before(self, start: int, limit: int) -> tuple[int, int]:
        """The last batch start between `start` and `limit`, and the base offset of that batch.

        `start` must be a batch start. If the batch at `start` ends after `limit`, the result is `start`.
        """
        best, offset = start, -1
        near = self.offsets.floor_position(limit)
        if near <= start or not self._is_batch(near, _MAX_OFFSET):
            near = start
        for position, header in self.headers(near):
            if position > limit:
                break
            best, offset = position, header.base_offset
        return best, offset

    def batch(self, position: int, header: BatchHeader) -> bytes:
        return self.file.pread(header.size, position)

    def last_header(self) -> BatchHeader | None:
        return self._last()[0]

    def timed_batches(self, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches whose maximum timestamp is at least `timestamp`, in offset order. May run in a thread. If
        the time index is wrong, all batches are read."""
        start = self.base_offset
        try:
            known = None if self.retired else self.times.before(timestamp)
        except FileNotFoundError:
            known = None
        if known is not None and self._has(*known):
            start = known[1]
        for position, header in self.from_offset(start, mend=False):
            if header.max_timestamp >= timestamp:
                yield position, header

    # repair

    def load_tail(self) -> int:
        """Read the end of the segment, which the indexes do not cover (after a clean shutdown). Returns the
        next offset."""
        next_offset = self.base_offset
        start = self.offsets.position_back(1)
        for position, header in self.headers(start):
            next_offset = header.last_offset + 1
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset
            if position == 0:
                self.first_timestamp = header.max_timestamp
        self._bytes_since_index = self.size - start
        if self.first_timestamp is None:
            self.first_timestamp = next((h.max_timestamp for _, h in self.headers(0, HEADER_SIZE)), None)
        return next_offset

    def cut_tail(self) -> int:
        """Truncate bytes after the last complete batch (after a clean shutdown). Returns how many."""
        _, end = self._last()
        cut = self.file.size - end
        if cut:
            self.file.truncate(end)
        return cut

    def recover(self, trusted_until: int = 0) -> tuple[int, int]:
        """After a crash: validate every batch, rebuild the indexes, truncate at the first invalid batch.

        Flushed batches (before `trusted_until`) are never truncated because of a wrong checksum: readers get
        an error for them, and the records after them are kept. Returns the next offset and the number of
        truncated bytes. The transaction index was not synced and may lack entries; the rebuild of the
        producer state adds them.
        """
        next_offset, valid = self._index(self._checked_batches(trusted_until))
        cut = self.file.size - valid
        if cut:
            self.file.truncate(valid)
        self.txns.reset()
        return next_offset, cut

    def rebuild_indexes(self) -> tuple[int, int]:
        """Rebuild the indexes from the batch headers; the log file is not changed.

        Returns the next offset and the number of bytes at the end that are not a complete batch.
        """
        next_offset, valid = self._index(self.headers())
        return next_offset, self.file.size - valid

    def _index(self, batches: Iterator[tuple[int, BatchHeader]]) -> tuple[int, int]:
        """Write the indexes for these batches. Returns the next offset and the end position of the last
        batch."""
        self.offsets.reset()
        self.times.reset()
        self._bytes_since_index = 0
        self.first_timestamp = None
        self.max_timestamp, self.offset_of_max_timestamp = -1, self.base_offset
        next_offset, valid = self.base_offset, 0
        for position, header in batches:
            self._note(position, header.size, header.last_offset, header.max_timestamp)
            next_offset, valid = header.last_offset + 1, position + header.size
        self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.offsets.seal()
        self.times.seal()
        return next_offset, valid

    def _checked_batches(self, trusted_until: int) -> Iterator[tuple[int, BatchHeader]]:
        file, position, next_offset = self.file, 0, self.base_offset
        chunk, start = b"", 0
        while position + HEADER_SIZE <= file.size:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = file.pread(_RECOVER_CHUNK, position), position, 0
            header = read_header(chunk, at)
            if not self._plausible(header, position, next_offset):
                return
            if at + header.size > len(chunk):
                chunk, start, at = file.pread(max(_RECOVER_CHUNK, header.size), position), position, 0
            try:
                check_batch(chunk, at, at + header.size, stored=True)
            except ApiError as error:
                if header.last_offset >= trusted_until:
                    return
                logger.error("%s: corrupt batch at byte %d: %s", file.path, position, error)
            yield position, header
            next_offset = header.last_offset + 1
            position += header.size

    def truncate_to(self, offset: int) -> int:
        """Remove all batches from the one that contains `offset`. Returns the next offset."""
        found = self.locate(offset)
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.txns.truncate_to(offset)
        if found is not None:
            self.file.truncate(found[0])
        last = self.times.last()
        self.max_timestamp, self.offset_of_max_timestamp = last or (-1, self.base_offset)
        self._bytes_since_index = 0
        if self.size == 0:
            self.first_timestamp = None
        return self.load_tail()

    # deletion

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; the caller deletes them later. Returns their new paths.

        Nothing is closed: a flush may be running, and a slice may still be sent to a socket.
        """
        self.retired = True
        self.file.retire()
        renamed = []
        for kind in FILE_KINDS:
            path = self.path(kind)
            if self._fs.exists(path):
                self._fs.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        self.file.path = self.path(".log") + DELETED_SUFFIX
        return renamed

    def close(self) -> None:
        self.offsets.close()
        self.times.close()
        self.file.close()
