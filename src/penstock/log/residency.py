"""Checks whether bytes of a file are in the page cache, so that reading or sending them does not wait for the
disk."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CACHESTAT = 451  # Linux 6.5, of all architectures that came before it with one table
_PAGE = mmap.PAGESIZE
_libc = ctypes.PyDLL(None, use_errno=True)  # the calls are too short to release the GIL for them


_impatient: int | None = None  # the thread that must not wait for the disk


class NotResident(Exception):
    """The bytes to read are not in memory, and the reader must not wait for the disk."""


@contextmanager
def no_waiting() -> Iterator[None]:
    """In this block, reads of logs and indexes by this thread raise NotResident instead of waiting for the
    disk."""
    global _impatient
    before, _impatient = _impatient, threading.get_ident()
    try:
        yield
    finally:
        _impatient = before


def check(fd: int, position: int, length: int) -> None:
    """Called before these bytes are read."""
    if _impatient is not None and length > 0 and _impatient == threading.get_ident():
        if not is_resident(fd, position, length):
            raise NotResident


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


_has_cachestat = True


def is_resident(fd: int, position: int, length: int) -> bool:
    """Whether these bytes can be read without waiting. True if the system does not support the check."""
    last = position + length - 1
    # Pages that are still being read from disk count as cached, so try to read the first and the last one.
    if not _can_read(fd, position) or not _can_read(fd, last):
        return False
    return last // _PAGE - position // _PAGE <= 1 or _are_cached(fd, position, length)


def _can_read(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return True  # the file system or the kernel does not support the flag
    return True


def _are_cached(fd: int, position: int, length: int) -> bool:
    global _has_cachestat
    if not _has_cachestat:
        return True
    first = position // _PAGE * _PAGE
    asked, found = _Range(first, position + length - first), _Stat()
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(asked), ctypes.byref(found), 0) != 0:
        if ctypes.get_errno() == errno.ENOSYS:
            _has_cachestat = False
        return True
    pages = (position + length - first + _PAGE - 1) // _PAGE
    return bool(found.cached >= pages)
