"""A segment: one `.log` file with its indexes, named by the offset of its first record.

It appends what it is given, finds batches by offset, position and time, and rebuilds its indexes
from its batches. Which bytes may be appended, and when a new segment starts, is decided above.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from penstock.errors import ApiError
from penstock.fs import Fs
from penstock.log.files import LogFile
from penstock.log.index import OffsetIndex, TimeIndex, TransactionIndex
from penstock.wire.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch, read_header

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
FILE_KINDS: Final = (".log", ".index", ".timeindex", ".txnindex")

_SCAN_CHUNK = 4096
_RECOVER_CHUNK = 1 << 20


def file_name(base_offset: int, kind: str) -> str:
    return f"{base_offset:020d}{kind}"


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
        self._fs = fs
        self.offsets = OffsetIndex(self.path(".index"), base_offset, fs)
        self.times = TimeIndex(self.path(".timeindex"), base_offset, fs)
        self.txns = TransactionIndex(self.path(".txnindex"), fs)
        self._bytes_since_index = 0
        self.first_timestamp: int | None = None
        last = self.times.last()
        self.max_timestamp, self.offset_of_max_timestamp = last or (-1, base_offset)

    # making and opening

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
        for kind in FILE_KINDS[1:]:  # left-overs of an earlier segment at this offset
            path = os.path.join(directory, file_name(base_offset, kind))
            if fs.exists(path):
                fs.unlink(path)
        file = LogFile.create(os.path.join(directory, file_name(base_offset, ".log")), fs, preallocate)
        return cls(
            directory, base_offset, file, fs, index_interval_bytes=index_interval_bytes, created_ms=now_ms
        )

    @classmethod
    def open(cls, directory: str, base_offset: int, fs: Fs, *, index_interval_bytes: int) -> Segment:
        path = os.path.join(directory, file_name(base_offset, ".log"))
        stat = os.stat(path)
        file = LogFile(path, fs, stat.st_size)
        return cls(
            directory,
            base_offset,
            file,
            fs,
            index_interval_bytes=index_interval_bytes,
            created_ms=int(stat.st_mtime * 1000),
        )

    def path(self, kind: str) -> str:
        return os.path.join(self.directory, file_name(self.base_offset, kind))

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def largest_timestamp(self) -> int:
        """Of the newest record; where no record has a timestamp, the time of the last write."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def indexes_are_sane(self) -> bool:
        if not (self.offsets.is_sane(self.size) and self.times.is_sane()):
            return False
        # an index with no entry at all is right only where the log is within one interval
        return self.offsets.count > 0 or self.size <= self.index_interval_bytes or self._is_one_run()

    def _is_one_run(self) -> bool:
        """Whether the last batch starts within the first interval, so that no entry was ever due."""
        last_start = 0
        for position, _ in self.headers():
            last_start = position
            if position > self.index_interval_bytes:
                return False
        return last_start <= self.index_interval_bytes

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
        """Called when nothing more will be appended: the largest timestamp goes into the time index."""
        self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.file.trim()
        self.flush_indexes()

    def flush_indexes(self) -> None:
        self.offsets.flush()
        self.times.flush()

    def sync(self, *, sealed: bool) -> None:
        """Bring it to disk. The indexes of the active segment are rebuilt after a crash and may wait."""
        self.file.sync()
        if sealed:
            self.offsets.sync()
            self.times.sync()

    # finding

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Batch headers from `position` on. Stops at the end, or at bytes that are no whole batch."""
        file = self.file
        stop = file.size if end is None else min(end, file.size)
        chunk, start = b"", position
        while position + HEADER_SIZE <= stop:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = file.pread(_SCAN_CHUNK, position), position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            header = read_header(chunk, at)
            if header.length < HEADER_SIZE - LOG_OVERHEAD or position + header.size > file.size:
                return
            yield position, header
            position += header.size

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is at least `offset`."""
        for position, header in self.headers(self.offsets.position_for(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def boundary_before(self, start: int, limit: int) -> tuple[int, int]:
        """The last batch start at or before `limit`, from `start` on, and the offset found there.

        `start` must be a batch start. Where the batch at `start` reaches beyond `limit`, that is `start`.
        """
        best, offset = start, -1
        for position, header in self.headers(max(start, self.offsets.floor_position(limit))):
            if position > limit:
                break
            best, offset = position, header.base_offset
        return best, offset

    def batch(self, position: int, header: BatchHeader) -> bytes:
        return self.file.pread(header.size, position)

    def last_header(self) -> BatchHeader | None:
        last = None
        for _, header in self.headers(self.offsets.position_back(1)):
            last = header
        return last

    def timed_batches(self, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches whose newest record is at least that old, oldest offset first."""
        start = self.offsets.position_for(self.times.offset_for(timestamp))
        for position, header in self.headers(start):
            if header.max_timestamp >= timestamp:
                yield position, header

    # mending

    def load_tail(self) -> int:
        """Read what the indexes do not tell (after a clean open). Returns the next offset."""
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

    def recover(self) -> tuple[int, int]:
        """Check every batch, rebuild the indexes, cut off what is not whole.

        Returns the next offset and the number of bytes cut. Aborted transactions that are missing from
        their index come back with the replay of the producers' state.
        """
        self.offsets.reset()
        self.times.reset()
        self._bytes_since_index = 0
        self.first_timestamp = None
        self.max_timestamp, self.offset_of_max_timestamp = -1, self.base_offset
        next_offset, valid = self.base_offset, 0
        for position, header in self._checked_batches(next_offset):
            self._note(position, header.size, header.last_offset, header.max_timestamp)
            next_offset, valid = header.last_offset + 1, position + header.size
        cut = self.file.size - valid
        if cut:
            self.file.truncate(valid)
        self.txns.truncate_to(next_offset)
        self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.flush_indexes()
        return next_offset, cut

    def _checked_batches(self, next_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        file, position = self.file, 0
        chunk, start = b"", 0
        while position + HEADER_SIZE <= file.size:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = file.pread(_RECOVER_CHUNK, position), position, 0
            header = read_header(chunk, at)
            if header.length < HEADER_SIZE - LOG_OVERHEAD or position + header.size > file.size:
                return
            if at + header.size > len(chunk):
                chunk, start, at = file.pread(max(_RECOVER_CHUNK, header.size), position), position, 0
            try:
                check_batch(chunk, at, at + header.size, stored=True)
            except ApiError:
                return
            if header.base_offset < next_offset or header.last_offset < header.base_offset:
                return
            yield position, header
            next_offset = header.last_offset + 1
            position += header.size

    def truncate_to(self, offset: int) -> int:
        """Drop every batch from the one that holds `offset` on. Returns the next offset."""
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

    # going away

    def mark_deleted(self) -> list[str]:
        """Rename the files out of the way; the caller removes them later. Returns their new paths.

        Nothing is closed: a flush may be running, and a slice may be on its way to a socket.
        """
        renamed = []
        for kind in FILE_KINDS:
            path = self.path(kind)
            if self._fs.exists(path):
                self._fs.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed

    def close(self) -> None:
        self.offsets.close()
        self.times.close()
        self.file.close()
