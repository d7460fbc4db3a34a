"""Directories: reads files into a topic as they appear and grow, and writes records to files, exactly once.

The read position belongs to the file, not to its name, so that rotation and truncation neither lose nor
repeat records (`followed_files`). The sink names a file by its topic, partition and offsets, and makes it
visible in one step, if no other task owns the partition by then (`partition_claims`); the files in the
directory show where it continues.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    Importance,
    OffsetsReader,
    OneOf,
    Range,
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceRecord,
    SourceTask,
    TopicPartition,
)
from penstock.connect.connectors.followed_files import FileIdentity, reopen
from penstock.connect.connectors.formats import FORMATS, Row, read, write
from penstock.connect.connectors.misfits import misfits
from penstock.connect.connectors.partition_claims import PartitionClaim

_SCAN_SECONDS = 0.5
_MOST_EARLIER = 30
_ROTATED = re.compile(r"(\.[A-Za-z]\w*)[.-]\d[\d.-]*$")


@dataclass(slots=True)
class _FileRead:
    identity: FileIdentity
    position: int
    """The read position."""


class DirectorySourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._root = Path(config["path"])
        self._pattern = config.get("pattern") or "*"
        self._topic = config["topic"]
        self._format = config.get("format") or "text"
        self._batch = int(config.get("batch.size") or 2000)
        self._number, self._count = int(config["task.number"]), int(config["task.count"])
        self._offsets = offsets_reader
        self._files: dict[int, _FileRead] = {}
        """By inode."""
        self._names: dict[str, list[int]] = {}
        """The files that had a name, the latest first."""
        self._positions: dict[str, int] = {}
        """For offsets that do not identify the file."""
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._waiting: list[tuple[Path, bool]] = []
        """Files to read; True: without the rest of the previous file of that name."""
        self._scanned = False
        self._rows: Iterator[Row] = iter(())
        self._name = ""

    def poll(self) -> list[SourceRecord] | SourceBatch:
        """A batch comes from one file, whose rows have one schema."""
        while True:
            rows = list(islice(self._rows, self._batch))
            if rows:
                self._scanned = False
                self._files[self._names[self._name][0]].position = rows[-1].position
                return SourceBatch(
                    self._topic,
                    [row.value for row in rows],
                    rows[0].schema,
                    source_partition={"file": self._name},
                    source_offset=self._offset(self._name),
                )
            if not self._waiting:
                if self._scanned:
                    self._scanned = False
                    time.sleep(_SCAN_SECONDS)
                    return []
                self._scanned = True
                self._scan()
            if self._waiting:
                self._open(*self._waiting.pop(0))

    def _offset(self, name: str) -> dict[str, Any]:
        """Includes the positions of earlier files of the name: they have, or will have, other names."""
        this, *earlier = [self._files[inode] for inode in self._names[name]]
        offset: dict[str, Any] = {"position": this.position, **this.identity.fields()}
        if earlier:
            offset["earlier"] = [{"position": each.position, **each.identity.fields()} for each in earlier]
        return offset

    def _scan(self) -> None:
        """Find files of this task that are new or have changed, ordered by name."""
        found: list[tuple[str, Path, os.stat_result]] = []
        for path in sorted(self._root.glob(self._pattern)):
            name = str(path.relative_to(self._root))
            if _task_of(name, self._count) != self._number or path.name.startswith("."):
                continue
            try:
                state = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                found.append((name, path, state))
        self._recall([name for name, _, _ in found if name not in self._names])
        for name, path, state in found:
            now = (state.st_ino, state.st_size, state.st_mtime_ns)
            if self._seen.get(name) == now:
                continue
            if state.st_size or self._names[name][:1] in ([], [state.st_ino]):
                self._seen[name] = now  # otherwise the writer may still have the rotated file open
            self._waiting.append((path, False))

    def _recall(self, names: list[str]) -> None:
        """The committed offsets of these files."""
        for name, offset in zip(
            names, self._offsets.offsets([{"file": each} for each in names]), strict=True
        ):
            self._names[name] = []
            if offset is None:
                continue
            if FileIdentity.in_offset(offset) is None:
                self._positions[name] = int(offset.get("position", 0))
            for each in (offset, *offset.get("earlier", ())):
                identity = FileIdentity.in_offset(each)
                if identity is None:
                    continue
                self._names[name].append(identity.inode)
                read, known = _FileRead(identity, int(each["position"])), self._files.get(identity.inode)
                if known is None or read.position > known.position:
                    self._files[identity.inode] = read

    def _open(self, path: Path, now: bool) -> None:
        self._name = str(path.relative_to(self._root))
        try:
            file, position = self._find(path, now)
            there = path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RetriableError(f"{path} cannot be read: {error.strerror}") from error
        identity = FileIdentity.of(file)
        self._files[identity.inode] = _FileRead(identity, position)
        others = [each for each in self._names[self._name] if each != identity.inode]
        self._names[self._name] = [identity.inode, *others[:_MOST_EARLIER]]
        if there.st_ino != identity.inode and there.st_size:
            self._waiting.insert(0, (path, True))
        self._rows = read(file, str(path), self._format, position)

    def _find(self, path: Path, now: bool) -> tuple[BinaryIO, int]:
        """The file to read and the position: the file that had the name when it was read, or that has it
        now.
        """
        earlier = self._names[self._name]
        if earlier and not now:
            known = self._files[earlier[0]]
            file = reopen(path, known.identity, self._bytes(known.position))
            if file is not None:
                return file, known.position
        file = path.open("rb")
        state = os.fstat(file.fileno())
        there = self._files.get(state.st_ino)
        if there is not None and there.identity.begins(file, self._bytes(there.position)):
            return file, there.position
        position = 0 if earlier else self._positions.get(self._name, 0)
        return file, position if self._bytes(position) <= state.st_size else 0

    def _bytes(self, position: int) -> int:
        """The minimum size of a file with this position."""
        return 0 if self._format == "parquet" else position


def _task_of(name: str, count: int) -> int:
    """`app.log.1` and `app.log-20260101` are read by the same task as `app.log`."""
    return zlib.crc32(_ROTATED.sub(r"\1", name).encode()) % count


class DirectorySource(SourceConnector):
    """The files of a directory, distributed over its tasks by name."""

    task_class = DirectorySourceTask
    exactly_once = True
    fields = (
        Field("path", doc="The directory.", importance=Importance.HIGH),
        Field("topic", doc="The topic for the records.", importance=Importance.HIGH),
        Field("format", default="text", doc="What the files hold.", validator=OneOf(*FORMATS)),
        Field("pattern", default="*", doc="Which files; **/* for those of directories below, too."),
        Field("batch.size", ConfigType.INT, 2000, "The most records of one poll.", Range(1), Importance.LOW),
    )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        path = config["path"]
        if os.path.isdir(path):
            return {}
        return {"path": [f"Invalid value {path} for configuration path: it is not a directory"]}

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [
            {**self.config, "task.number": str(number), "task.count": str(max_tasks)}
            for number in range(max_tasks)
        ]


class _Waiting:
    """Records of a partition that are not yet in a file."""

    def __init__(self, first: int) -> None:
        self.first = self.next = first
        self.records: list[SinkRecord] = []


class DirectorySinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._root = Path(config["path"])
        self._format = config.get("format") or "json"
        self._most = int(config.get("flush.records") or 10_000)
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._claims: dict[TopicPartition, PartitionClaim] = {}
        self._next: dict[TopicPartition, int] = {}
        """The offset after the last record in a file, or after the last record put if none is waiting."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectError(f"{self._root} cannot be created: {error.strerror}") from error

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {}
        for place in partitions:
            prefix = _prefix(place)
            try:
                claim = self._claims[place] = PartitionClaim(self._root / f".{prefix}claim")
                names = os.listdir(self._root)
                for name in names:
                    if name.startswith(f".{prefix}") and name != f".{prefix}claim":
                        (self._root / name).unlink(missing_ok=True)  # a task that is gone was writing it
            except OSError as error:
                raise RetriableError(f"{self._root} cannot be used: {error.strerror}") from error
            pattern = re.compile(re.escape(prefix) + r"\d+\+(\d+)\.\w+")
            ends = [int(match[1]) for name in names if (match := pattern.fullmatch(name)) is not None]
            following = claim.next_after(max(ends, default=-1))
            if ends:
                found[place] = self._next[place] = following
        return found

    def put(self, records: list[SinkRecord]) -> None:
        self._write_full()
        for record in records:
            place = (record.original_topic, record.original_partition)
            waiting = self._waiting.get(place)
            taken = self._next.get(place, 0) if waiting is None else waiting.next
            if record.original_offset < taken:
                continue  # put again after a file could not be written
            if waiting is None:
                waiting = self._waiting[place] = _Waiting(record.original_offset)
            waiting.records.append(record)
            waiting.next = record.original_offset + 1
            if len(waiting.records) >= self._most:
                self._write(place)

    def _write_full(self) -> None:
        for place, waiting in list(self._waiting.items()):
            if len(waiting.records) >= self._most:
                self._write(place)

    def _write(self, place: TopicPartition) -> None:
        waiting = self._waiting.get(place)
        if waiting is None:
            return
        data = self._encode(waiting.records)
        span = f"{waiting.first:020d}+{waiting.next - 1:020d}"
        path = self._root / f"{_prefix(place)}{span}.{FORMATS[self._format]}"
        try:
            self._replace(self._claims[place], path, waiting.next, data)
        except OSError as error:
            raise RetriableError(f"{path} cannot be written: {error.strerror}") from error
        del self._waiting[place]
        self._next[place] = waiting.next

    def _encode(self, records: list[SinkRecord]) -> bytes | None:
        """Encode one file with the records that fit the format; the others are reported and removed."""
        try:
            return write([record.value for record in records], self._format)
        except DataError:
            pass
        bad = misfits(records, self._problem)
        for at, error in bad.items():
            self.report(records[at], error)
        records[:] = [record for at, record in enumerate(records) if at not in bad]
        return write([record.value for record in records], self._format) if records else None

    def _problem(self, records: Sequence[SinkRecord]) -> DataError | None:
        try:
            write([record.value for record in records], self._format)
        except DataError as error:
            return error
        return None

    def _replace(self, claim: PartitionClaim, path: Path, following: int, data: bytes | None) -> None:
        if data is None:
            claim.skip(following)
            return
        # Not the file of a task that hung while it wrote the same records.
        temporary = path.with_name(f".{path.name}.{claim.generation}")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        claim.replace(temporary, path, following)

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        for place in offsets:
            self._write(place)
        return {place: self._next.get(place, offset) for place, offset in offsets.items()}

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._waiting.pop(place, None)
            self._claims.pop(place, None)
            self._next.pop(place, None)


def _prefix(place: TopicPartition) -> str:
    """The prefix of the file names of a partition."""
    return f"{quote(place[0], safe='')}+{place[1]}+"


class DirectorySink(SinkConnector):
    """Files of records, one for each partition and flush."""

    task_class = DirectorySinkTask
    fields = (
        Field("path", doc="The directory. It is created if it does not exist.", importance=Importance.HIGH),
        Field("format", default="json", doc="What the files hold.", validator=OneOf(*FORMATS)),
        Field(
            "flush.records",
            ConfigType.INT,
            10_000,
            "The most records of one file; offset.flush.interval.ms of the worker also ends one.",
            Range(1),
        ),
    )
