"""Files of a log: one owner for each descriptor, and slices of them on their way to a socket.

A slice keeps its file alive. A segment that is deleted while a slow consumer is still being sent
its bytes stays readable for that consumer, and the descriptor is closed when the last slice is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
import weakref
from collections import OrderedDict

from penstock.fs import Fs, Identity
from penstock.log import residency

_JUST_WRITTEN = 1 << 20
_PREFETCH_STEP = 1 << 18


class Handle:
    """An open descriptor. It is closed when nobody refers to it any more: whoever reads holds it meanwhile,
    so that its number cannot become that of another file under them, in whatever thread they are."""

    __slots__ = ("_fs", "fd")

    def __init__(self, fd: int, fs: Fs) -> None:
        self.fd = fd
        self._fs = fs

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._fs.close(self.fd)


class OpenFiles:
    """The files of closed segments that are open: only so many, the oldest is closed first.

    A closed one is opened again when it is read, so a broker can have more segments than descriptors.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._files: OrderedDict[weakref.ref[LogFile], None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def capacity(self) -> int:
        if self._capacity is None:  # asked for late: the broker raises its limit when it starts
            self._capacity = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 64)
        return self._capacity

    def add(self, file: LogFile) -> None:
        evicted = []
        with self._lock:
            self._files[weakref.ref(file)] = None
            while len(self._files) > self.capacity:
                oldest = self._files.popitem(last=False)[0]()
                if oldest is not None and oldest is not file:
                    evicted.append(oldest)
        for one in evicted:
            one.close()

    def forget(self, file: LogFile) -> None:
        self._files.pop(weakref.ref(file), None)


_OPEN_FILES = OpenFiles()


class LogFile:
    """One `.log` file. `size` is the number of valid bytes, which a preallocated file exceeds.

    It is always the same file, also after its name has gone to another one: compaction puts a new file in the
    place of an old one that may still be read.
    """

    __slots__ = ("__weakref__", "_fs", "_handle", "_identity", "_old_size", "path", "sealed", "size", "torn")

    def __init__(
        self, path: str, fs: Fs, size: int, handle: Handle | None = None, identity: Identity | None = None
    ) -> None:
        self.path = path
        self.size = size
        self.torn = False  # bytes of a failed write could not be cut off
        self.sealed = False  # nothing more is appended; it may be closed while it is not read
        self._fs = fs
        self._handle = handle
        self._identity = identity
        self._old_size = size  # what this process has not written itself

    @classmethod
    def create(cls, path: str, fs: Fs, preallocate: int = 0) -> LogFile:
        handle = Handle(fs.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), fs)
        if preallocate:
            os.posix_fallocate(handle.fd, 0, preallocate)
        return cls(path, fs, 0, handle, fs.identity(handle.fd))

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    def open(self) -> Handle:
        """The descriptor of this very file. ESTALE where its name is another file's now, and it has none."""
        handle = self._handle
        while handle is None:
            path = self.path
            opened = Handle(self._fs.open(path, os.O_RDWR), self._fs)
            identity = self._fs.identity(opened.fd)
            if self._identity is None or self._identity == identity:
                self._identity = identity
                self._handle = handle = opened
                if self.sealed:
                    _OPEN_FILES.add(self)
            elif self.path == path:
                raise OSError(errno.ESTALE, "another file has its name now", path)
            else:  # it was renamed between the two looks
                handle = self._handle
        return handle

    def seal(self) -> None:
        self.trim()
        self.sealed = True
        if self._handle is not None:
            _OPEN_FILES.add(self)

    def unseal(self) -> None:
        self.sealed = False
        _OPEN_FILES.forget(self)

    def retire(self) -> None:
        """Its name is about to go to another file, or away: who still reads it keeps it open."""
        with contextlib.suppress(OSError):
            self.open()
        self.unseal()

    def append(self, data: memoryview | bytes) -> None:
        """Write at the end of the valid bytes. A write that fails leaves no torn bytes behind."""
        if self.sealed:
            self.unseal()  # a roll failed after it was sealed
        fs, position = self._fs, self.size
        handle = self._handle or self.open()
        fd, length = handle.fd, len(data)
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
        handle = self._handle or self.open()
        length = min(length, self.size - position)
        if position < self._old_size or position < self.size - _JUST_WRITTEN:
            residency.check(handle.fd, position, length)
        return self._fs.pread(handle.fd, length, position)

    def truncate(self, size: int) -> None:
        handle = self.open()
        self._fs.ftruncate(handle.fd, size)
        self.size = size
        self._old_size = min(self._old_size, size)

    def trim(self) -> None:
        """Give back what was preallocated and not used."""
        handle = self.open()
        if os.fstat(handle.fd).st_size != self.size:
            self._fs.ftruncate(handle.fd, self.size)

    def is_resident(self, position: int, length: int) -> bool:
        """Whether these bytes can be sent without waiting for the disk. What was just appended can."""
        if position >= max(self._old_size, self.size - _JUST_WRITTEN):
            return True
        handle = self.open()
        return residency.is_resident(handle.fd, position, length)

    def prefetch(self, position: int, length: int) -> None:
        """Read these bytes into the page cache. Runs off the loop."""
        handle = self.open()
        end = min(position + length, self.size)
        while position < end:
            got = len(self._fs.pread(handle.fd, min(_PREFETCH_STEP, end - position), position))
            if not got:
                return
            position += got

    def sync(self) -> None:
        """Runs off the loop."""
        try:
            handle = self.open()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return  # deleted, or replaced, meanwhile: nothing is left to bring to disk
            raise
        self._fs.fsync(handle.fd)

    def close(self) -> None:
        """Its descriptor is closed now, or when who reads it at this moment has done."""
        _OPEN_FILES.forget(self)
        self._handle = None


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
    """A run of bytes of a log file, sent to a socket without passing through Python.

    Up to `resident` they were in the page cache when they were looked at.
    """

    __slots__ = ("file", "length", "position", "resident")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.resident = position

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, {self.position}, {self.length})"
