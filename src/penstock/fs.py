"""The file system as an argument: `Fs` is the real one, `FaultyFs` fails where a test says.

Methods have the semantics of `os` (OSError on failure, short writes happen) unless their docstring says
more. Nothing here knows about logs; what is durable when is decided by the callers.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from errno import EIO, ENOSPC

Data = bytes | bytearray | memoryview
Identity = tuple[int, int]
"""Of a file, whatever its name: device and inode."""


class Fs:
    """The real file system."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: Data) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def pread(self, fd: int, n: int, offset: int) -> bytes:
        return os.pread(fd, n, offset)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def ftruncate(self, fd: int, n: int) -> None:
        os.ftruncate(fd, n)

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces the target."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        os.mkdir(path, mode)

    def makedirs(self, path: str) -> None:
        """No error if it is there already."""
        os.makedirs(path, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def stat_size(self, path: str) -> int:
        return os.stat(path).st_size

    def identity(self, fd: int) -> Identity:
        stat = os.fstat(fd)
        return stat.st_dev, stat.st_ino

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        """Makes creations, renames and removals inside the directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def write_all(self, fd: int, data: Data) -> None:
        """Goes on after short writes until all is written."""
        written = self.write(fd, data)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += self.write(fd, view[written:])

    def read_bytes(self, path: str) -> bytes:
        fd = self.open(path, os.O_RDONLY)
        try:
            chunks = []
            offset = 0
            while chunk := self.pread(fd, 1 << 20, offset):
                chunks.append(chunk)
                offset += len(chunk)
            return b"".join(chunks)
        finally:
            self.close(fd)

    def write_atomic(self, path: str, data: Data) -> None:
        """After this the file holds `data`, whatever crashes; until then it holds what it held before."""
        temporary = path + ".tmp"
        fd = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.write_all(fd, data)
            self.fsync(fd)
        finally:
            self.close(fd)
        self.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path) or ".")


REAL_FS = Fs()


@dataclass(slots=True)
class _Fault:
    """One planned failure: lets `after` matching calls pass, then fails `times` of them (-1: all)."""

    op: str
    path_part: str
    errno: int
    after: int = 0
    times: int = 1
    keep_bytes: int = 0

    def due(self, op: str, path: str) -> bool:
        if op != self.op or self.path_part not in path or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times > 0:
            self.times -= 1
        return True


class FaultyFs(Fs):
    """The real file system with planned failures; the part of a write that is kept really is on disk.

    Operations are named after the methods below; a `write` fault also meets `pwrite`. Faults are matched
    in the order they were planned, by a part of the path that the file had when it was opened.
    """

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._faults: list[_Fault] = []
        self._space: int | None = None

    def fail(self, op: str, path_part: str, errno: int, after: int = 0, times: int = 1) -> None:
        """The calls of `op` on matching paths raise OSError(errno), without effect; times=-1 for ever."""
        if op not in _FAULT_OPS:
            raise ValueError(f"no operation {op!r}. Available: {', '.join(sorted(_FAULT_OPS))}")
        self._faults.append(_Fault(op, path_part, errno, after, times))

    def torn(self, path_part: str, keep_bytes: int, after: int = 0) -> None:
        """The next write to a matching path writes `keep_bytes` of its bytes and then raises EIO."""
        self._faults.append(_Fault("write", path_part, EIO, after, keep_bytes=keep_bytes))

    def disk_limit(self, limit: int | None) -> None:
        """From now on this many bytes can be written, then ENOSPC as on a full disk; None lifts it."""
        self._space = limit

    def heal(self) -> None:
        """Forgets every planned failure and the disk limit."""
        self._faults.clear()
        self._space = None

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._strike("open", path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        super().close(fd)  # a failed close(2) has closed the descriptor all the same
        self._strike("close", self._paths.pop(fd, ""))

    def write(self, fd: int, data: Data) -> int:
        return super().write(fd, self._admit(fd, data, None))

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        return super().pwrite(fd, self._admit(fd, data, offset), offset)

    def pread(self, fd: int, n: int, offset: int) -> bytes:
        self._strike("pread", self._path(fd))
        return super().pread(fd, n, offset)

    def fsync(self, fd: int) -> None:
        self._strike("fsync", self._path(fd))
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._strike("fsync_dir", path)
        super().fsync_dir(path)

    def ftruncate(self, fd: int, n: int) -> None:
        self._strike("ftruncate", self._path(fd))
        super().ftruncate(fd, n)

    def rename(self, source: str, target: str) -> None:
        self._strike("rename", f"{source}\n{target}")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._strike("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        self._strike("mkdir", path)
        super().mkdir(path, mode)

    def makedirs(self, path: str) -> None:
        self._strike("makedirs", path)
        super().makedirs(path)

    def listdir(self, path: str) -> list[str]:
        self._strike("listdir", path)
        return super().listdir(path)

    def stat_size(self, path: str) -> int:
        self._strike("stat_size", path)
        return super().stat_size(path)

    def rmtree(self, path: str) -> None:
        self._strike("rmtree", path)
        super().rmtree(path)

    def _path(self, fd: int) -> str:
        return self._paths.get(fd, "")

    def _due(self, op: str, path: str) -> _Fault | None:
        return next((fault for fault in self._faults if fault.due(op, path)), None)

    def _strike(self, op: str, path: str) -> None:
        fault = self._due(op, path)
        if fault is not None:
            raise OSError(fault.errno, os.strerror(fault.errno), path)

    def _admit(self, fd: int, data: Data, offset: int | None) -> Data:
        """The part of a write that the disk takes; raises where it takes none or tears it."""
        path = self._path(fd)
        fault = self._due("write", path)
        if fault is not None:
            kept = memoryview(data)[: fault.keep_bytes]
            if kept and offset is None:
                super().write(fd, kept)
            elif kept and offset is not None:
                super().pwrite(fd, kept, offset)
            raise OSError(fault.errno, os.strerror(fault.errno), path)
        if self._space is None:
            return data
        if self._space <= 0 and len(data) > 0:
            raise OSError(ENOSPC, os.strerror(ENOSPC), path)
        # A disk that fills up gives a short write first; the next one fails.
        admitted = memoryview(data)[: self._space]
        self._space -= len(admitted)
        return admitted


_FAULT_OPS = frozenset(
    {"open", "close", "write", "pread", "fsync", "fsync_dir", "ftruncate", "rename", "unlink", "mkdir"}
    | {"makedirs", "listdir", "stat_size", "rmtree"}
)
