"""Files of a log: one owner for each descriptor, and slices of them on their way to a socket.

A slice keeps its file alive. A segment that is deleted while a slow consumer is still being sent
its bytes stays readable for that consumer, and the descriptor is closed when the last slice is gone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import weakref
from collections import OrderedDict

from penstock.fs import Fs


class OpenFiles:
    """The files of closed segments that are open: only so many, the oldest is closed first.

    A closed one is opened again when it is read, so a broker can have more segments than descriptors.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._files: OrderedDict[int, weakref.ref[LogFile]] = OrderedDict()

    @property
    def capacity(self) -> int:
        if self._capacity is None:  # asked for late: the broker raises its limit when it starts
            self._capacity = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 64)
        return self._capacity

    def add(self, file: LogFile) -> None:
        self._files[id(file)] = weakref.ref(file)
        while len(self._files) > self.capacity:
            oldest = self._files.popitem(last=False)[1]()
            if oldest is not None and oldest is not file:
                oldest.close()

    def forget(self, file: LogFile) -> None:
        self._files.pop(id(file), None)


_OPEN_FILES = OpenFiles()


class LogFile:
    """One `.log` file. `size` is the number of valid bytes, which a preallocated file exceeds."""

    __slots__ = ("__weakref__", "_fd", "_fs", "path", "sealed", "size", "torn")

    def __init__(self, path: str, fs: Fs, size: int, fd: int = -1) -> None:
        self.path = path
        self.size = size
        self.torn = False  # bytes of a failed write could not be cut off
        self.sealed = False  # nothing more is appended; it may be closed while it is not read
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
            if self.sealed:
                _OPEN_FILES.add(self)
        return self._fd

    def seal(self) -> None:
        self.trim()
        self.sealed = True
        if self._fd >= 0:
            _OPEN_FILES.add(self)

    def keep_open(self) -> None:
        """Its path is about to change: while it is read, its descriptor is all there is."""
        self.sealed = False
        _OPEN_FILES.forget(self)

    def append(self, data: memoryview | bytes) -> None:
        """Write at the end of the valid bytes. A write that fails leaves no torn bytes behind."""
        if self.sealed:
            self.keep_open()  # a roll failed after it was sealed
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
        sync_path(self.path, self._fs)

    def close(self) -> None:
        _OPEN_FILES.forget(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


def sync_path(path: str, fs: Fs) -> None:
    """Bring a file to disk. Runs off the loop, beside which a descriptor may be closed: it takes its own."""
    try:
        fd = fs.open(path, os.O_RDWR)
    except FileNotFoundError:
        return  # deleted, or replaced, meanwhile: nothing is left to bring to disk
    try:
        fs.fsync(fd)
    finally:
        fs.close(fd)


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
