"""Whether bytes of a file are in the page cache: sending others from the loop would wait for the disk."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

_CACHESTAT = 451  # Linux 6.5, of all architectures that came before it with one table
_PAGE = mmap.PAGESIZE
_libc = ctypes.PyDLL(None, use_errno=True)  # too short to be worth giving up the interpreter for


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


_has_cachestat = True


def is_resident(fd: int, position: int, length: int) -> bool:
    """Whether these bytes can be read without waiting. True where the system cannot tell."""
    last = position + length - 1
    # Pages that are on their way from the disk count as cached: the first and the last are really tried.
    if not _can_read(fd, position) or not _can_read(fd, last):
        return False
    return last // _PAGE - position // _PAGE <= 1 or _are_cached(fd, position, length)


def _can_read(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return True  # this file system, or this system, does not know the flag
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
