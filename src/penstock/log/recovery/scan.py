"""Batches of a segment file in order, read in chunks and checked, for work beside the hot path.

Cleaning, strict retention and the tools read closed segments (and the tail of a growing one) with it.
It holds one chunk or one batch in memory, whichever is larger, and never maps the file: a mapped file
that another process truncates kills its reader.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from penstock.errors import ApiError, PenstockError
from penstock.fs import REAL_FS, Fs
from penstock.wire.batches.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch

CHUNK_BYTES = 1 << 20
SEGMENT_NAME = re.compile(r"(\d{20})\.log")


class CorruptSegment(PenstockError):
    """A batch that cannot be read. Names the file and the position; says whether one can read on.

    `torn` when the file ends inside the batch; `next_position` where the next batch must start if the
    damage is only inside this one, else None.
    """

    def __init__(
        self, path: str, position: int, reason: str, *, torn: bool = False, next_position: int | None = None
    ) -> None:
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason
        self.torn = torn
        self.next_position = next_position

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"

    def __reduce__(self) -> tuple[object, ...]:
        # It crosses from the cleaning process to the broker.
        state = {"torn": self.torn, "next_position": self.next_position}
        return type(self), (self.path, self.position, self.reason), state


def segment_path(directory: str, base_offset: int, suffix: str = ".log") -> str:
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


def scan_batches(
    path: str,
    *,
    start: int = 0,
    end: int | None = None,
    fs: Fs = REAL_FS,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, the whole batch) for each batch from `start` to `end` (the file's end).

    The view is valid until the next step. Raises CorruptSegment at the first batch that is not sound.
    """
    fd = fs.open(path, os.O_RDONLY)
    try:
        if end is None:
            end = os.fstat(fd).st_size
        base, chunk = start, b""  # chunk holds the file from position `base`
        position = start
        while position < end:
            at = position - base
            left = end - position
            if len(chunk) - at < LOG_OVERHEAD:
                base, chunk, at = position, _read(fs, fd, position, min(CHUNK_BYTES, left)), 0
                if len(chunk) < LOG_OVERHEAD:
                    raise CorruptSegment(path, position, f"{left} bytes are too few for a batch", torn=True)
            size = LOG_OVERHEAD + int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True)
            if size < HEADER_SIZE:
                raise CorruptSegment(path, position, f"a batch says it has {size} bytes, fewer than a header")
            if size > left:
                reason = f"a batch says it has {size} bytes, {left} are left in the file"
                raise CorruptSegment(path, position, reason, torn=True)
            if len(chunk) - at < size:
                base, chunk, at = position, _read(fs, fd, position, max(size, min(CHUNK_BYTES, left))), 0
                if len(chunk) < size:
                    raise CorruptSegment(path, position, "the file became shorter meanwhile", torn=True)
            batch = memoryview(chunk)[at : at + size]
            try:
                header = check_batch(batch, 0, size, stored=True)
            except ApiError as error:
                reason = error.message or error.kafka_name
                raise CorruptSegment(path, position, reason, next_position=position + size) from error
            yield position, header, batch
            position += size
    finally:
        fs.close(fd)


def _read(fs: Fs, fd: int, position: int, size: int) -> bytes:
    data = fs.pread(fd, size, position)
    while len(data) < size:
        more = fs.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data
