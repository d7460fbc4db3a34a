"""Reads files of a data lake into a topic, exactly once: existing files, and files that are added later.

The files below `url` are read in the order of their names, each from the position of an earlier run: offsets
contain the position in each file. A file is complete when it appears, as those of LakeSink and of Spark are;
a file that is replaced by a longer one is read on from its position.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    Field,
    Importance,
    OffsetsReader,
    OneOf,
    Range,
    RetriableError,
    SourceBatch,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.formats import FORMATS, Row, read
from penstock.connect.connectors.lake.stores import STORE, Store

_WAIT_SECONDS = 0.5
_FIELDS = (
    *STORE,
    Field("topic", doc="The topic for the records.", importance=Importance.HIGH),
    Field("format", default="parquet", doc="What the files hold.", validator=OneOf(*FORMATS)),
    Field("pattern", default="*", doc="Which files, by their names below url; * also matches /."),
    Field(
        "scan.interval.ms",
        ConfigType.LONG,
        10_000,
        "How often to look for new files when all are read.",
        Range(1),
    ),
    Field("batch.size", ConfigType.INT, 5000, "The most records of one poll.", Range(1), Importance.LOW),
)


class LakeSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._settings = parse(_FIELDS, config)
        self._number, self._count = int(config.get("task.number", 0)), int(config.get("task.count", 1))
        self._store = Store(self._settings)
        self._offsets = offsets_reader
        self._positions: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._waiting: list[tuple[str, int]] = []
        self._rows: Iterator[Row] = iter(())
        self._name = ""
        self._next_scan = 0.0

    def poll(self) -> list[SourceRecord] | SourceBatch:
        """A batch comes from one file, whose rows have one schema."""
        while True:
            rows = self._next_rows()
            if rows:
                self._positions[self._name] = rows[-1].position
                return SourceBatch(
                    self._settings["topic"],
                    [row.value for row in rows],
                    rows[0].schema,
                    source_partition={"file": self._name},
                    source_offset={"position": rows[-1].position},
                )
            if not self._waiting:
                self._scan()
            if not self._waiting:
                time.sleep(_WAIT_SECONDS)
                return []
            self._open()

    def _next_rows(self) -> list[Row]:
        try:
            return list(islice(self._rows, self._settings["batch.size"]))
        except OSError as error:
            # The store failed in the middle of a file: the rest is read when it is available again.
            self._sizes.pop(self._name, None)
            self._rows, self._next_scan = iter(()), 0.0
            raise RetriableError(f"{self._store.url}/{self._name} cannot be read: {error}") from error

    def _scan(self) -> None:
        """Find files of this task that are new or whose size changed."""
        if time.monotonic() < self._next_scan:
            return
        self._waiting = [
            (name, size)
            for name, size in self._store.files()
            if fnmatchcase(name, self._settings["pattern"])
            and zlib.crc32(name.encode()) % self._count == self._number
            and self._sizes.get(name) != size
        ]
        self._next_scan = time.monotonic() + self._settings["scan.interval.ms"] / 1000

    def _open(self) -> None:
        name, size = self._waiting[0]
        if name not in self._positions:
            found = self._offsets.offset({"file": name}) or {}
            self._positions[name] = int(found.get("position", 0))
        file = self._store.open(name)
        self._rows = read(file, f"{self._store.url}/{name}", self._settings["format"], self._positions[name])
        self._name, self._sizes[name] = name, size
        self._waiting.pop(0)


class LakeSource(SourceConnector):
    """Parquet, JSON, CSV or text files on disk or in S3-compatible storage, divided among its tasks."""

    task_class = LakeSourceTask
    exactly_once = True
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings: dict[str, Any] = parse(cls.fields, config)
        try:
            Store(settings).check(writes=False)
        except (ConnectError, OSError) as error:
            return {"url": [f"Invalid value {settings['url']} for configuration url: {error}"]}
        return {}

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Any) -> bool:
        for partition, offset in offsets:
            if not isinstance(partition.get("file"), str):
                raise ConnectError("Source partition must contain the key 'file': a name below url")
            position = 0 if offset is None else offset.get("position")
            if not isinstance(position, int) or isinstance(position, bool) or position < 0:
                raise ConnectError(
                    f"Source offset must contain 'position' with a whole number, not {position!r}"
                )
        return True

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [
            {**self.config, "task.number": str(number), "task.count": str(max_tasks)}
            for number in range(max_tasks)
        ]
