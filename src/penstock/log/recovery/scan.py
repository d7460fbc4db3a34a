"""Reads the batches of a segment file in order, in chunks, and validates them; for background work.

Cleaning, strict retention and the tools read closed segments (and the end of a growing one) with it. It has
one chunk or one batch in memory, whichever is larger. The file is not memory-mapped, because a reader is
killed if another process truncates a mapped file.
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
    """A batch that cannot be read, with the file and the position.

    `torn`: the file ends inside the batch. `next_position` is where the next batch must start, if only this
    one is damaged; otherwise None.
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
        # Pickled, because the cleaning process sends it to the broker.
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
    """Yields (position, header, batch bytes) for each batch from `start` to `end` (default: the end of the
    file).

    The view is valid until the next step. Raises CorruptSegment at the first invalid batch.
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
