"""A task's claim on the files of one partition: a task that hung while another took over writes nothing.

A hidden file of the directory has the number of the last claim, and is locked while a file is made visible.
It also stores how far records were read after the last file, if none of them could be written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.connect.errors import ConnectError, RetriableError

_NONE = -1
_WIDTH = 20  # digits of a number: fixed, so that the line is overwritten in one call


class PartitionClaim:
    """Valid until the next claim on the same partition."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._locked() as file:
            generation, self._file_end, self._next = _read(file)
            self._generation = generation + 1
            self._write(file)

    def next_after(self, file_end: int) -> int:
        """Where to continue if the newest file ends with this offset; -1 if there is no file."""
        if self._file_end != file_end:
            self._file_end, self._next = file_end, file_end + 1
        return self._next

    def replace(self, temporary: Path, path: Path, following: int) -> None:
        """Make the file of the records before `following` visible, if this claim is still valid."""
        with self._held() as file:
            os.replace(temporary, path)
            self._file_end, self._next = following - 1, following
            self._write(file)

    def skip(self, following: int) -> None:
        """Continue there: the records before were reported, and are in no file."""
        with self._held() as file:
            self._next = following
            self._write(file)

    @property
    def generation(self) -> int:
        return self._generation

    @contextmanager
    def _held(self) -> Iterator[int]:
        with self._locked() as file:
            generation, _, _ = _read(file)
            if generation > self._generation:
                raise ConnectError(
                    f"Another task writes the files of {self._path} now: this one was out of its group, and"
                    " begins again"
                )
            yield file

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield file
            finally:
                os.close(file)
        except BlockingIOError as error:
            raise RetriableError(f"{self._path} is locked by another task") from error

    def _write(self, file: int) -> None:
        numbers = (self._generation, self._file_end, self._next)
        os.pwrite(file, b" ".join(b"%*d" % (_WIDTH, number) for number in numbers) + b"\n", 0)
        os.fsync(file)


def _read(file: int) -> tuple[int, int, int]:
    """The number of the last claim, the last offset of the newest file, and the next offset after it."""
    try:
        generation, file_end, following = map(int, os.pread(file, 4 * _WIDTH, 0).split())
    except ValueError:  # new
        return 0, _NONE, _NONE
    return generation, file_end, following
