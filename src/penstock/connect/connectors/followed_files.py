"""Identifies files independently of their names: a read position belongs to a file, whatever its name is now.

A file is identified by its inode and its first bytes. So a file that was rotated (renamed or copied, with
other content in its place), truncated or replaced is not mistaken for the one that was read before, also
after a restart, and the rest of the old one is found in its directory.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

HEAD = 1024
"""The number of first bytes that are compared."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    inode: int
    size: int
    """The size of the head, which is shorter than HEAD if the file was; `checksum` is also that of the
    head.
    """
    checksum: int

    @classmethod
    def of(cls, file: BinaryIO) -> FileIdentity:
        head = os.pread(file.fileno(), HEAD, 0)
        return cls(os.fstat(file.fileno()).st_ino, len(head), zlib.crc32(head))

    @classmethod
    def in_offset(cls, offset: Mapping[str, Any]) -> FileIdentity | None:
        """None if an offset does not have it."""
        found = offset.get("inode"), offset.get("head_size"), offset.get("head_crc32")
        return cls(*found) if all(isinstance(each, int) for each in found) else None  # type: ignore[arg-type]

    def fields(self) -> dict[str, int]:
        """The fields of an offset."""
        return {"inode": self.inode, "head_size": self.size, "head_crc32": self.checksum}

    def begins(self, file: BinaryIO, size: int = 0) -> bool:
        """Whether this file starts with the head and has at least `size` bytes."""
        head = os.pread(file.fileno(), self.size, 0)
        return (
            len(head) == self.size
            and zlib.crc32(head) == self.checksum
            and os.fstat(file.fileno()).st_size >= size
        )


def reopen(path: Path, identity: FileIdentity, size: int) -> BinaryIO | None:
    """Open the file that had this name when `size` bytes of it were read, wherever it is in the directory
    now.

    None if it is gone: another file has the name now.
    """
    own = None
    with suppress(FileNotFoundError):
        own = open(path, "rb")
    if own is not None and os.fstat(own.fileno()).st_ino == identity.inode and identity.begins(own, size):
        return own
    for other in _others(path, identity):
        with suppress(OSError):
            file = open(other, "rb")
            if identity.begins(file, size):
                if own is not None:
                    own.close()
                return file
            file.close()
    if own is not None:
        if os.fstat(own.fileno()).st_ino != identity.inode and identity.begins(own, size):
            return own  # a copy: restored, or replaced by a longer file
        own.close()
    return None


def _others(path: Path, identity: FileIdentity) -> Iterator[str]:
    """Renamed files first, then copies with names such as `app.log.1` or `app.log-20260101`."""
    copies = []
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name == path.name or not entry.is_file(follow_symlinks=False):
                continue
            if entry.inode() == identity.inode:
                yield entry.path
            elif identity.size and entry.name.startswith((f"{path.name}.", f"{path.name}-")):
                copies.append(entry.path)
    yield from copies
