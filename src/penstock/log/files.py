"""Files of a log: one owner for each descriptor, and file slices that are sent to sockets.

A slice keeps its file open. If a segment is deleted while its bytes are still sent to a slow consumer, they
stay readable for that consumer; the descriptor is closed when the last slice is released.
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
    """An open descriptor, which is closed when the last reference to it is released. Every reader, in any
    thread, holds a reference, so that the number of the descriptor cannot be reused for another file
    meanwhile."""

    __slots__ = ("_fs", "fd")

    def __init__(self, fd: int, fs: Fs) -> None:
        self.fd = fd
        self._fs = fs

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._fs.close(self.fd)


class OpenFiles:
    """Limits the open files of closed segments: the oldest is closed first.

    A closed file is opened again when it is read, so a broker can have more segments than file descriptors.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._files: OrderedDict[weakref.ref[LogFile], None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def capacity(self) -> int:
        if self._capacity is None:  # read late: the broker raises its limit at startup
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
    """One `.log` file. `size` is the number of valid bytes; a preallocated file is larger.

    It always stands for the same file, even if another file gets its name: compaction replaces a file that
    may still be read.
    """

    __slots__ = ("__weakref__", "_fs", "_handle", "_identity", "_old_size", "path", "sealed", "size", "torn")

    def __init__(
        self, path: str, fs: Fs, size: int, handle: Handle | None = None, identity: Identity | None = None
    ) -> None:
        self.path = path
        self.size = size
        self.torn = False  # bytes of a failed write could not be truncated
        self.sealed = False  # no more appends; its descriptor may be closed between reads
        self._fs = fs
        self._handle = handle
        self._identity = identity
        self._old_size = size  # the bytes that an earlier process has written

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
        """The descriptor of this file. ESTALE if the file is closed and another one has its name now."""
        handle = self._handle
        while handle is None:
            path = self.path
            try:
                opened = Handle(self._fs.open(path, os.O_RDWR), self._fs)
            except FileNotFoundError:
                handle = self._handle  # opened by who has renamed it since `path` was read
                if handle is None and self.path == path:
                    raise
                continue
            identity = self._fs.identity(opened.fd)
            if self._identity is None or self._identity == identity:
                self._identity = identity
                self._handle = handle = opened
                if self.sealed:
                    _OPEN_FILES.add(self)
            elif self.path == path:
                raise OSError(errno.ESTALE, "another file has its name now", path)
            else:  # renamed since `path` was read: try again
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
        """Called before its name is reused or removed: keeps it open for readers."""
        with contextlib.suppress(OSError):
            self.open()
        self.unseal()

    def append(self, data: memoryview | bytes) -> None:
        """Write after the valid bytes. A failed write leaves no partial bytes."""
        if self.sealed:
            self.unseal()  # a roll has failed after sealing it
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
        """Truncate preallocated space that was not used."""
        handle = self.open()
        if os.fstat(handle.fd).st_size != self.size:
            self._fs.ftruncate(handle.fd, self.size)

    def is_resident(self, position: int, length: int) -> bool:
        """Whether these bytes can be sent without waiting for the disk, as those appended recently."""
        if position >= max(self._old_size, self.size - _JUST_WRITTEN):
            return True
        handle = self.open()
        return residency.is_resident(handle.fd, position, length)

    def prefetch(self, position: int, length: int) -> None:
        """Read these bytes into the page cache. Runs in a thread."""
        handle = self.open()
        end = min(position + length, self.size)
        while position < end:
            got = len(self._fs.pread(handle.fd, min(_PREFETCH_STEP, end - position), position))
            if not got:
                return
            position += got

    def sync(self) -> None:
        """Sync the file. Runs in a thread."""
        try:
            handle = self.open()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return  # deleted, or replaced, meanwhile: nothing is left to bring to disk
            raise
        self._fs.fsync(handle.fd)

    def close(self) -> None:
        """Close the descriptor, now or when the last current reader releases it."""
        _OPEN_FILES.forget(self)
        self._handle = None


def sync_path(path: str, fs: Fs) -> None:
    """Sync a file. Runs in a thread, with its own descriptor, because the event loop may close others
    meanwhile."""
    try:
        fd = fs.open(path, os.O_RDWR)
    except FileNotFoundError:
        return  # deleted, or replaced, meanwhile: nothing is left to bring to disk
    try:
        fs.fsync(fd)
    finally:
        fs.close(fd)


class FileSlice:
    """A range of bytes of a log file, sent to a socket with sendfile.

    The bytes before position `resident` were in the page cache at the last check.
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
