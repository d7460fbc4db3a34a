"""Back up the data directories of a broker, which may keep running, and restore them.

The copy is opened once as a broker would open it after a crash: incomplete batches are cut off, the indexes
match the logs, and everything is on disk. It has no clean-shutdown marker: a broker that starts on it trusts
the contents of the log, gives its partitions new leader epochs, and in a cluster lets other in-sync replicas
lead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.backup.errors import BackupError, TargetNotEmpty
from penstock.backup.manifest import Manifest, read_manifest, utc, write_manifest
from penstock.backup.paused import holder_of, paused
from penstock.backup.staging import METADATA_FILES, Source, Staging, sources_of
from penstock.broker.data_directory import (
    META_PROPERTIES,
    DataDirectoryError,
    DirectoryLocks,
    read_properties,
)
from penstock.clock import Clock
from penstock.config import BrokerConfig, LogConfig
from penstock.fs import REAL_FS
from penstock.log.manager import CLEAN_SHUTDOWN, LogManager
from penstock.log.tools.verify import Report, verify

METADATA_FILE = METADATA_FILES[0]
_ATTEMPTS = 5
_CHUNK = 8 << 20
_IGNORED = frozenset({".lock", "lost+found"})

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class DataBackup:
    manifest: Manifest
    report: Report | None
    """The findings of `penstock log verify` for the copy; None if it was not run."""


def back_up_data(
    directories: Sequence[str],
    target: str,
    clock: Clock,
    *,
    check: bool = True,
    started: Callable[[int], Progress] = lambda total: lambda done: None,
) -> DataBackup:
    """Copy all data directories of a broker into the new directory `target`. `started` gets the number of
    bytes to copy.
    """
    directories = [os.path.abspath(directory) for directory in directories]
    target = os.path.abspath(target)
    for directory in directories:
        if not os.path.exists(os.path.join(directory, META_PROPERTIES)):
            raise BackupError(f"{directory} is not a broker's data directory: it has no {META_PROPERTIES}")
        if os.path.commonpath([directory, target]) == directory:
            raise BackupError(
                f"{target} is in the data directory {directory}; name a directory outside of it"
            )
    _demand_empty(target, "name a new directory for the backup")
    existed = os.path.isdir(target)
    os.makedirs(target, mode=0o700, exist_ok=True)
    try:
        with _found(directories, clock) as found:
            total = sum(source.size for _, sources in found.files for source in sources)
            _demand_room(target, total)
            copied = _Copied(started(total))
            names = [f"data-{number}" for number in range(1, len(directories) + 1)]
            copies = [os.path.join(target, name) for name in names]
            for copy, (staging, sources) in zip(copies, found.files, strict=True):
                _copy_directory(copy, staging, sources, copied)
            found.copy_metadata(copies[0])
        partitions = _open_once(copies, clock)
        report = _verified(copies) if check else None
        properties = read_properties(directories[0], REAL_FS) or {}
        manifest = Manifest(
            cluster_id=properties.get("cluster.id"),
            node_id=properties.get("node.id") or properties.get("broker.id"),
            running=found.running,
            point_in_time=utc(found.at_ms),
            directories=names,
            partitions=partitions,
            bytes=total,
            stopped_ms=round(found.stopped_ms, 1),
        )
        write_manifest(target, manifest, REAL_FS)
    except BaseException:
        _empty(target)
        if not existed:
            os.rmdir(target)
        raise
    return DataBackup(manifest, report)


def restore_data(
    backup: str,
    directories: Sequence[str],
    *,
    replace: bool = False,
    started: Callable[[int], Progress] = lambda total: lambda done: None,
) -> Manifest:
    """Restore into empty directories, in the order of log.dirs. `replace` empties them first."""
    manifest = read_manifest(backup, REAL_FS)
    if len(directories) != len(manifest.directories):
        raise BackupError(
            f"{backup} has {len(manifest.directories)} data directories; name as many to restore them to, "
            "in the order of log.dirs"
        )
    directories = [os.path.abspath(directory) for directory in directories]
    advice = "name an empty directory, or use --replace to delete what is there"
    if not replace:
        for directory in directories:
            _demand_empty(directory, advice)
    locks = DirectoryLocks()
    locks.acquire(directories)  # also prevents a broker from starting until everything is restored
    try:
        jobs = []
        for name, directory in zip(manifest.directories, directories, strict=True):
            if not replace:
                _demand_empty(directory, advice)
            _empty(directory)
            jobs.append((directory, _all_files(os.path.join(backup, name))))
        total = sum(source.size for _, sources in jobs for source in sources)
        _demand_room(directories[0], total)
        copied = _Copied(started(total))
        for directory, sources in jobs:
            # The file with the broker's identity comes last: without it an incomplete directory is not a data
            # directory.
            for source in sorted(sources, key=lambda one: one.name == META_PROPERTIES):
                _copy(source, os.path.join(directory, source.name), copied)
            REAL_FS.fsync_dir(directory)
    finally:
        locks.release()
    return manifest


# What there is to copy


@dataclass(slots=True)
class _Found:
    running: bool
    at_ms: int
    stopped_ms: float
    files: list[tuple[Staging | None, list[Source]]]
    metadata: sqlite3.Connection | None

    def copy_metadata(self, directory: str) -> None:
        if self.metadata is None:
            return
        copy = sqlite3.connect(os.path.join(directory, METADATA_FILE))
        try:
            # Within the transaction that started at that moment: later changes are not in it.
            self.metadata.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a separate journal
        finally:
            copy.close()
        _sync(os.path.join(directory, METADATA_FILE))


@contextlib.contextmanager
def _found(directories: Sequence[str], clock: Clock) -> Iterator[_Found]:
    """The files at one moment. Until the block ends no broker starts, and linked files stay."""
    locks = DirectoryLocks()
    try:
        locks.acquire(directories)
    except DataDirectoryError:
        with _found_running(directories, clock) as found:
            yield found
        return
    metadata = None
    try:
        metadata = _metadata(directories[0])
        files: list[tuple[Staging | None, list[Source]]] = [(None, sources_of(one)) for one in directories]
        yield _Found(False, clock.now_ms(), 0.0, files, metadata)
    finally:
        if metadata is not None:
            metadata.close()
        locks.release()


@contextlib.contextmanager
def _found_running(directories: Sequence[str], clock: Clock) -> Iterator[_Found]:
    holders = {holder_of(os.path.join(directory, ".lock")) for directory in directories}
    pid = holders.pop()
    if pid is None:
        raise BackupError(
            f"{directories[0]} is in use by a process that is not visible from here; "
            "stop the broker, or run this command where it runs"
        )
    if holders:
        raise BackupError("these data directories belong to different brokers; back up one broker at a time")
    stagings: list[Staging] = []
    metadata = None
    try:
        for directory in directories:
            stagings.append(Staging(directory))
            stagings[-1].sync()
        metadata = _metadata(directories[0])
        with paused(pid):
            begun = time.perf_counter()
            at_ms = clock.now_ms()
            files: list[tuple[Staging | None, list[Source]]] = [(one, one.sync()) for one in stagings]
            if metadata is not None:
                metadata.execute("BEGIN")
                metadata.execute("SELECT count(*) FROM node").fetchone()
            stopped_ms = (time.perf_counter() - begun) * 1000
        yield _Found(True, at_ms, stopped_ms, files, metadata)
    finally:
        if metadata is not None:
            metadata.close()
        for staging in stagings:
            staging.remove()


def _metadata(directory: str) -> sqlite3.Connection | None:
    path = os.path.join(directory, METADATA_FILE)
    if not os.path.exists(path):
        return None  # it is in ZooKeeper
    return sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None)


# The copy


class _Copied:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bytes = 0

    def add(self, count: int) -> None:
        self._bytes += count
        self._progress(self._bytes)


def _copy_directory(target: str, staging: Staging | None, sources: Iterable[Source], copied: _Copied) -> None:
    os.mkdir(target, 0o700)
    for directory, found in groupby(sorted(sources, key=_order), key=lambda one: os.path.dirname(one.name)):
        files = list(found)
        for _ in range(_ATTEMPTS):
            for source in files:
                _copy(source, os.path.join(target, source.name), copied)
            if not directory or staging is None or staging.is_current(directory):
                break
            shutil.rmtree(os.path.join(target, directory))
            files = staging.again(directory)
        else:
            raise BackupError(
                f"{directory}: its leader changed {_ATTEMPTS} times while it was copied; try again"
            )


def _order(source: Source) -> tuple[str, str]:
    return os.path.dirname(source.name), source.name


def _copy(source: Source, target: str, copied: _Copied) -> None:
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    read = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, source.mode)
        try:
            left = source.size
            while left > 0 and (count := _transfer(read, write, min(left, _CHUNK))):
                left -= count
                copied.add(count)
            os.fsync(write)
        finally:
            os.close(write)
    finally:
        os.close(read)


def _transfer(read: int, write: int, count: int) -> int:
    try:
        return os.copy_file_range(read, write, count)  # shares the blocks if the file system supports it
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    data = os.read(read, count)
    REAL_FS.write_all(write, data)
    return len(data)


def _open_once(copies: Sequence[str], clock: Clock) -> int:
    """Recover the copied logs and close them. Returns the number of partitions."""
    config = BrokerConfig.parse({"log.dirs": ",".join(copies)})
    logs = LogManager(config, clock)
    logs.load(lambda topic: LogConfig())
    logs.close()
    for copy in copies:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(copy, CLEAN_SHUTDOWN))
        REAL_FS.fsync_dir(copy)
    return len(logs.logs)


def _verified(copies: Sequence[str]) -> Report:
    whole = Report()
    for copy in copies:
        found = verify(copy)
        whole.partitions.extend(found.partitions)
        whole.problems.extend(found.problems)
    return whole


# Directories


def _all_files(directory: str) -> list[Source]:
    sources = sources_of(directory)
    metadata = os.path.join(directory, METADATA_FILE)
    if os.path.exists(metadata):
        sources.append(Source(metadata, METADATA_FILE, os.stat(metadata).st_size, 0o644))
    return sources


def _demand_empty(directory: str, what_to_do: str) -> None:
    try:
        found = sorted(set(os.listdir(directory)) - _IGNORED)
    except FileNotFoundError:
        return
    if found:
        raise TargetNotEmpty(directory, ", ".join(found[:3]) + (", …" if len(found) > 3 else ""), what_to_do)


def _demand_room(directory: str, size: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < size:
        raise BackupError(
            f"{directory} has {free} bytes free, {size} are to be copied; name another directory"
        )


def _empty(directory: str) -> None:
    for name in set(os.listdir(directory)) - _IGNORED:
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
