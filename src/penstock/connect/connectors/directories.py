"""Directories: files as they appear and grow to a topic, and records of topics to files, exactly once.

The sink names a file by its topic, partition and the offsets in it, and makes it visible in one step; what is
in the directory says where it continues.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    Field,
    Importance,
    OffsetsReader,
    OneOf,
    Range,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceRecord,
    SourceTask,
    TopicPartition,
)
from penstock.connect.connectors.formats import FORMATS, Row, read, write

_SCAN_SECONDS = 0.5


class DirectorySourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._root = Path(config["path"])
        self._pattern = config.get("pattern") or "*"
        self._topic = config["topic"]
        self._format = config.get("format") or "text"
        self._batch = int(config.get("batch.size") or 2000)
        self._number, self._count = int(config["task.number"]), int(config["task.count"])
        self._offsets = offsets_reader
        self._positions: dict[str, int] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._rows: Iterator[Row] = iter(())
        self._partition: dict[str, Any] = {}
        self._waiting: list[Path] = []

    def poll(self) -> list[SourceRecord] | SourceBatch:
        """A batch is of one file, whose rows have one schema."""
        while True:
            rows = list(islice(self._rows, self._batch))
            if rows:
                self._positions[self._partition["file"]] = rows[-1].position
                return SourceBatch(
                    self._topic,
                    [row.value for row in rows],
                    rows[0].schema,
                    source_partition=self._partition,
                    source_offset={"position": rows[-1].position},
                )
            if not self._waiting:
                self._waiting = self._scan()
            if not self._waiting:
                time.sleep(_SCAN_SECONDS)
                return []
            self._open(self._waiting.pop(0))

    def _scan(self) -> list[Path]:
        """Files of this task that are new or have changed, the oldest names first."""
        found = []
        for path in sorted(self._root.glob(self._pattern)):
            name = str(path.relative_to(self._root))
            if zlib.crc32(name.encode()) % self._count != self._number or path.name.startswith("."):
                continue
            try:
                state = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file() and self._sizes.get(name) != (state.st_size, state.st_mtime_ns):
                self._sizes[name] = (state.st_size, state.st_mtime_ns)
                found.append(path)
        return found

    def _open(self, path: Path) -> None:
        name = str(path.relative_to(self._root))
        self._partition = {"file": name}
        if name not in self._positions:
            found = self._offsets.offset(self._partition) or {}
            self._positions[name] = int(found.get("position", 0))
        if not path.exists():
            return
        self._rows = read(path.open("rb"), str(path), self._format, self._positions[name])


class DirectorySource(SourceConnector):
    """The files of a directory, divided among its tasks by name."""

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


class DirectorySinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._root = Path(config["path"])
        self._format = config.get("format") or "json"
        self._most = int(config.get("flush.records") or 10_000)
        self._waiting: dict[TopicPartition, list[SinkRecord]] = {}
        self._next: dict[TopicPartition, int] = {}
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectError(f"{self._root} cannot be made: {error.strerror}") from error

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {}
        for place in partitions:
            prefix = f"{quote(place[0], safe='')}+{place[1]}+"
            ends = [
                int(match[1])
                for path in self._root.glob(f"{prefix}*")
                if (match := re.fullmatch(r".*\+\d+\+(\d+)\.\w+", path.name)) is not None
            ]
            if ends:
                found[place] = self._next[place] = max(ends) + 1
            self._waiting[place] = []
        return found

    def put(self, records: list[SinkRecord]) -> None:
        for record in records:
            place = (record.original_topic, record.original_partition)
            self._waiting[place].append(record)
            if len(self._waiting[place]) >= self._most:
                self._write(place)

    def _write(self, place: TopicPartition) -> None:
        records = self._waiting[place]
        if not records:
            return
        first, last = records[0].original_offset, records[-1].original_offset
        name = f"{quote(place[0], safe='')}+{place[1]}+{first:020d}+{last:020d}.{FORMATS[self._format]}"
        data = write([record.value for record in records], self._format)
        temporary = self._root / f".{name}"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._root / name)
        self._waiting[place] = []
        self._next[place] = last + 1

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        for place in offsets:
            self._write(place)
        return {place: self._next.get(place, offset) for place, offset in offsets.items()}

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._waiting.pop(place, None)
            self._next.pop(place, None)


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
