"""Keeps the files of a data directory as of one moment, with hard links, until they are copied.

Files of a log are appended to, renamed and deleted, but existing bytes do not change: a link keeps the
contents of a segment that is deleted or replaced by compaction in the meantime. `sync` is called while the
broker runs, which links most files, and once more while it is paused, which links the rest and notes the
lengths of the logs.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.backup.errors import BackupError
from penstock.log.tools.verify import EPOCH_CHECKPOINT

STAGING = ".penstock-backup"
METADATA_FILES = ("metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm", "metadata.sqlite-journal")

_LEFT_OUT = frozenset({".lock", ".kafka_cleanshutdown", STAGING, *METADATA_FILES})
_PASSING = (".cleaned", ".deleted", ".tmp")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-(delete|stray)")


@dataclass(frozen=True, slots=True)
class Source:
    """A file to copy: its path, its name in the data directory, and the number of bytes."""

    path: str
    name: str
    size: int
    mode: int


def files_of(directory: str) -> Iterator[os.DirEntry[str]]:
    """Every regular file of a data directory that belongs to a backup. The metadata store is copied
    separately.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT or entry.name.endswith(_PASSING):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not _DELETED_DIRECTORY.fullmatch(entry.name):
                    try:
                        yield from files_of(entry.path)
                    except FileNotFoundError:
                        continue  # a partition that is being deleted
            elif entry.is_file(follow_symlinks=False):
                yield entry


def sources_of(directory: str) -> list[Source]:
    """The files of a directory that no broker uses."""
    found = []
    for entry in files_of(directory):
        size, mode = _size_and_mode(entry.path)
        found.append(Source(entry.path, os.path.relpath(entry.path, directory), size, mode))
    return found


class Staging:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = os.path.join(directory, STAGING)
        self._linked: dict[str, int] = {}  # name: inode
        self.remove()
        os.mkdir(self.path, 0o700)

    def sync(self) -> list[Source]:
        """Link the current files, and forget those that no longer exist. The last call counts."""
        seen: dict[str, int] = {}
        for entry in files_of(self.directory):
            name = os.path.relpath(entry.path, self.directory)
            inode = entry.inode()
            if self._linked.get(name) == inode or self._link(entry.path, name):
                seen[name] = inode
        for name in self._linked.keys() - seen.keys():
            os.unlink(os.path.join(self.path, name))
        self._linked = seen
        return [self._source(name) for name in seen]

    def is_current(self, partition: str) -> bool:
        """Whether the partition got no records of another leader epoch since it was linked.

        A follower of a new leader truncates its log: the links then contain less, or other records.
        """
        live = os.path.join(self.directory, partition)
        return not os.path.isdir(live) or _latest_epoch(live) == _latest_epoch(
            os.path.join(self.path, partition)
        )

    def again(self, partition: str) -> list[Source]:
        """The current files of the partition."""
        prefix = partition + os.sep
        for name in [name for name in self._linked if name.startswith(prefix)]:
            os.unlink(os.path.join(self.path, name))
            del self._linked[name]
        for entry in files_of(os.path.join(self.directory, partition)):
            if self._link(entry.path, prefix + entry.name):
                self._linked[prefix + entry.name] = entry.inode()
        return [self._source(name) for name in self._linked if name.startswith(prefix)]

    def _source(self, name: str) -> Source:
        path = os.path.join(self.path, name)
        size, mode = _size_and_mode(path)
        return Source(path, name, size, mode)

    def _link(self, path: str, name: str) -> bool:
        target = os.path.join(self.path, name)
        try:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            if name in self._linked:
                os.unlink(target)
            os.link(path, target, follow_symlinks=False)
        except FileNotFoundError:
            return False  # it was deleted in the meantime
        except OSError as error:
            raise BackupError(
                f"{path}: cannot make a hard link: {error.strerror}. Stop the broker to back it up"
            ) from error
        return True

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _size_and_mode(path: str) -> tuple[int, int]:
    found = os.stat(path, follow_symlinks=False)
    return found.st_size, stat.S_IMODE(found.st_mode)


def _latest_epoch(partition: str) -> str | None:
    try:
        with open(os.path.join(partition, EPOCH_CHECKPOINT), encoding="ascii") as file:
            entries = file.read().split("\n")[2:]
    except FileNotFoundError:
        return None
    epochs = [line.split()[0] for line in entries if line.strip()]
    return epochs[-1] if epochs else None
