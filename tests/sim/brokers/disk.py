"""The disk of a simulated broker: real files, of which only what was synced surely outlives a loss of
power.

In threads each call that takes long stops, so that the loop goes on meanwhile, and the process may be
killed there. A killed process keeps all it has written; when the power is lost, each file keeps a part of
what was not synced, sometimes with a hole in it.
"""

from __future__ import annotations

import errno
import os
import random

from penstock.fs import Data, Fs
from tests.sim.brokers.loop import PROCESS, Killed, pause


class SyncFailed(OSError):
    """What was written since the last sync may be on disk or not, and nobody knows."""


class NoRoom(OSError):
    """The disk is full."""


class SimFs(Fs):
    """The files of a machine as one process has them open."""

    def __init__(self, root: str, rng: random.Random, before: SimFs | None = None) -> None:
        """`before` is of the process that was there before, on the same disk."""
        self.root = root
        self._rng = rng
        self._synced: dict[int, int] = (
            {} if before is None else before._synced
        )  # by inode: bytes that are safe
        self._open: dict[int, None] = {}
        self._logs: set[int] = set()  # descriptors of segments
        self.failing_syncs = 0  # so many of the next ones fail, of segments
        self.is_full = before is not None and before.is_full

    @staticmethod
    def _alive() -> None:
        if not PROCESS.get().alive:
            raise Killed

    def _has_room(self) -> None:
        if self.is_full:
            raise NoRoom(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._alive()
        if flags & os.O_CREAT and not os.path.exists(path):
            self._has_room()
        fd = super().open(path, flags, mode)
        self._open[fd] = None
        if path.endswith(".log"):
            self._logs.add(fd)
        state = os.fstat(fd)
        # What a child process has written (compaction) was synced there.
        self._synced.setdefault(state.st_ino, state.st_size)
        if flags & os.O_TRUNC:
            self._synced[state.st_ino] = 0
        return fd

    def close(self, fd: int) -> None:
        self._logs.discard(fd)
        if self._open.pop(fd, 0) is None:
            super().close(fd)

    def write(self, fd: int, data: Data) -> int:
        self._alive()
        self._has_room()
        return super().write(fd, data)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        self._alive()
        self._has_room()
        return super().pwrite(fd, data, offset)

    def pread(self, fd: int, n: int, offset: int) -> bytes:
        if fd in self._logs:  # an index is read under its lock, for which another thread would wait
            pause()
        return super().pread(fd, n, offset)

    def fsync(self, fd: int) -> None:
        self._alive()
        if self.failing_syncs and fd in self._logs:
            self.failing_syncs -= 1
            pause()
            raise SyncFailed(errno.EIO, "the disk failed")
        state = os.fstat(fd)
        pause()  # what is written from here on may or may not be synced with it
        self._synced[state.st_ino] = state.st_size
        pause()

    def fsync_dir(self, path: str) -> None:
        self._alive()
        pause()

    def ftruncate(self, fd: int, n: int) -> None:
        self._alive()
        super().ftruncate(fd, n)
        inode = os.fstat(fd).st_ino
        self._synced[inode] = min(self._synced.get(inode, 0), n)

    def rename(self, source: str, target: str) -> None:
        self._alive()
        super().rename(source, target)
        pause()

    def unlink(self, path: str) -> None:
        self._alive()
        super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        self._alive()
        self._has_room()
        super().mkdir(path, mode)
        pause()

    def rmtree(self, path: str) -> None:
        self._alive()
        pause()
        super().rmtree(path)

    # the end of a process

    def killed(self) -> None:
        """Its descriptors are closed. What is left of it in memory does so again, and must not close those of
        the next process, which have the same numbers."""
        for fd in list(self._open):
            self.close(fd)

    def _punch(self, path: str, safe: int, kept: int) -> int:
        """A page was not written, though one behind it was."""
        start = self._rng.randint(safe, kept)
        end = self._rng.randint(start, kept)
        with open(path, "r+b") as file:
            file.seek(start)
            file.write(bytes(end - start))
        return end - start

    def lose_power(self) -> int:
        """Each file keeps its synced bytes and some of the others. How many bytes were lost."""
        lost = 0
        for directory, _, names in sorted(os.walk(self.root)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                state = os.stat(path)
                safe = min(self._synced.get(state.st_ino, state.st_size), state.st_size)
                if safe < state.st_size and name != ".lock":
                    kept = self._rng.randint(safe, state.st_size)
                    lost += state.st_size - kept
                    os.truncate(path, kept)
                    if self._rng.random() < 0.3:
                        lost += self._punch(path, safe, kept)
        return lost
