"""Records of topics to files whose names and contents follow from the records alone: exactly once.

The records of a partition are divided into generations. One ends when a directory of it has `flush.size`
records, when a record is `rotate.interval.ms` later than its first, or when the schema changes; then its
files are written and its end may be committed. After a crash the generation is read again, and its files
replaced by the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from zoneinfo import available_timezones

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    OneOf,
    Range,
    Schema,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
    parse,
)
from penstock.connect.connectors.lake.encoding import EXTENSIONS, encode
from penstock.connect.connectors.lake.partitioning import PARTITIONING, directory_of, strftime_of, time_of
from penstock.connect.connectors.lake.stores import STORE, Store

_FIELDS = (
    *STORE,
    Field("topics.dir", default="topics", doc="The directory of all topics."),
    Field("format", default="parquet", doc="What the files hold.", validator=OneOf(*EXTENSIONS)),
    Field(
        "compression",
        default="snappy",
        doc="Of Parquet files.",
        validator=OneOf("none", "snappy", "gzip", "zstd", "lz4"),
    ),
    Field("flush.size", ConfigType.INT, 10_000, "The most records of one file.", Range(1)),
    Field(
        "rotate.interval.ms",
        ConfigType.LONG,
        600_000,
        "How much later than the first record of a file another one may be, by their times; 0: any.",
        Range(0),
    ),
    *PARTITIONING,
)


class _Generation:
    """The records of a partition since its last files."""

    def __init__(self, start: int, time: int, schema: Schema | None) -> None:
        self.start, self.time, self.schema = start, time, schema
        self.next = start
        self.full = False
        self.files: dict[str, list[SinkRecord]] = {}


class LakeSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._settings = parse(_FIELDS, config)
        self._store = Store(self._settings)
        self._directory = directory_of(self._settings)
        self._size: int = self._settings["flush.size"]
        self._interval: int = self._settings["rotate.interval.ms"]
        self._open: dict[TopicPartition, _Generation] = {}
        self._done: dict[TopicPartition, int] = {}

    def put(self, records: list[SinkRecord]) -> None:
        for place, full in list(self._open.items()):
            if full.full:  # its files could not be written before
                self._write(place, full)
        for record in records:
            place = (record.original_topic, record.original_partition)
            generation = self._open.get(place)
            if generation is not None and record.original_offset < generation.next:
                continue  # put again after a file of another partition could not be written
            if record.original_offset < self._done.get(place, 0):
                continue
            try:
                directory, time = self._place(record)
            except DataError as error:
                self.report(record, error)
                continue
            if generation is not None and self._ends(generation, record, time):
                self._write(place, generation)
                generation = None
            if generation is None:
                generation = _Generation(record.original_offset, time, record.value_schema)
                self._open[place] = generation
            file = generation.files.setdefault(directory, [])
            file.append(record)
            generation.next = record.original_offset + 1
            if len(file) >= self._size:
                generation.full = True
                self._write(place, generation)

    def _place(self, record: SinkRecord) -> tuple[str, int]:
        if record.value is None:
            raise DataError("a record without a value has no row: drop it with the transform Filter")
        if self._settings["format"] == "parquet" and record.value_schema is not None:
            struct = bool(record.value_schema.fields)
            if struct and not isinstance(record.value, dict):
                raise DataError(f"the value must be a struct, not {type(record.value).__name__}")
        return self._directory(record), time_of(record, self._settings) if self._interval else 0

    def _ends(self, generation: _Generation, record: SinkRecord, time: int) -> bool:
        if self._interval and time - generation.time >= self._interval:
            return True
        return record.value_schema is not generation.schema and record.value_schema != generation.schema

    def _write(self, place: TopicPartition, generation: _Generation) -> None:
        topic = quote(place[0], safe="")
        extension = EXTENSIONS[self._settings["format"]]
        for directory, records in sorted(generation.files.items()):
            name = f"{topic}+{place[1]}+{records[0].original_offset:010d}.{extension}"
            parts = (self._settings["topics.dir"].strip("/"), topic, directory, name)
            data = encode(records, self._settings["format"], self._settings["compression"])
            self._store.write("/".join(filter(None, parts)), data)
        self._open.pop(place, None)
        self._done[place] = generation.next

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Up to the generation that is open; where none is, all."""
        return {
            place: self._open[place].start if place in self._open else offset
            for place, offset in offsets.items()
        }

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._open.pop(place, None)
            self._done.pop(place, None)


class LakeSink(SinkConnector):
    """Parquet or JSON files in directories, on disk or in S3-compatible storage."""

    task_class = LakeSinkTask
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings: dict[str, Any] = parse(cls.fields, config)
        if settings["partitioner"] == "field" and not settings["partition.field.name"]:
            return {"partition.field.name": ["partitioner=field needs partition.field.name"]}
        try:
            strftime_of(settings["path.format"])
        except ValueError as error:
            return {"path.format": [str(error)]}
        if settings["timezone"] not in available_timezones():
            return {"timezone": [f"{settings['timezone']} is not a time zone: use one such as Europe/Berlin"]}
        try:
            Store(settings).check()
        except (ConnectError, OSError) as error:
            return {"url": [f"Invalid value {settings['url']} for configuration url: {error}"]}
        return {}
