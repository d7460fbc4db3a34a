"""Files of a log: one owner for each descriptor, and slices of them on their way to a socket.

A slice keeps its file alive. A segment that is deleted while a slow consumer is still being sent
its bytes stays readable for that consumer, and the descriptor is closed when the last slice is gone.
"""

from __future__ import annotations

import contextlib
import os

from penstock.fs import Fs


class LogFile:
    """One `.log` file. `size` is the number of valid bytes, which a preallocated file exceeds."""

    __slots__ = ("_fd", "_fs", "path", "size", "torn")

    def __init__(self, path: str, fs: Fs, size: int, fd: int = -1) -> None:
        self.path = path
        self.size = size
        self.torn = False  # bytes of a failed write could not be cut off
        self._fs = fs
        self._fd = fd

    @classmethod
    def create(cls, path: str, fs: Fs, preallocate: int = 0) -> LogFile:
        fd = fs.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if preallocate:
            os.posix_fallocate(fd, 0, preallocate)
        return cls(path, fs, 0, fd)

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = self._fs.open(self.path, os.O_RDWR)
        return self._fd

    def append(self, data: memoryview | bytes) -> None:
        """Write at the end of the valid bytes. A write that fails leaves no torn bytes behind."""
        fs, fd, position = self._fs, self.fd, self.size
        length = len(data)
        try:
            written = fs.pwrite(fd, data, position)
            while written < length:
                written += fs.pwrite(fd, memoryview(data)[written:], position + written)
        except OSError:
            try:
                fs.ftruncate(fd, position)
            except OSError:
                self.torn = True
            raise
        self.size = position + length

    def pread(self, length: int, position: int) -> bytes:
        return self._fs.pread(self.fd, min(length, self.size - position), position)

    def truncate(self, size: int) -> None:
        self._fs.ftruncate(self.fd, size)
        self.size = size

    def trim(self) -> None:
        """Give back what was preallocated and not used."""
        if os.fstat(self.fd).st_size != self.size:
            self._fs.ftruncate(self.fd, self.size)

    def sync(self) -> None:
        self._fs.fsync(self.fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class FileSlice:
    """A run of bytes of a log file, sent to a socket without passing through Python."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, {self.position}, {self.length})"
