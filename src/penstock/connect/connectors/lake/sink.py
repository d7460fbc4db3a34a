"""Writes records of topics to files whose names and contents depend only on the records: exactly once.

The records of a partition are divided into generations. A generation ends when a directory of it has
`flush.size` records, when all its records reach `flush.max.records` or `flush.max.bytes`, when a record is
`rotate.interval.ms` later than its first, or when the schema changes; then its files are written and its end
may be committed. After a crash the generation is read again, and its files are replaced by identical ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
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
    SinkBatch,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
    parse,
)
from penstock.connect.connectors.lake.encoding import EXTENSIONS, encode, problem_of
from penstock.connect.connectors.lake.partitioning import (
    PARTITIONING,
    directory_of,
    directory_of_partition,
    is_by_partition,
    strftime_of,
    time_of,
)
from penstock.connect.connectors.lake.stores import STORE, Store
from penstock.connect.connectors.misfits import misfits

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
        "flush.max.records",
        ConfigType.INT,
        200_000,
        "The most records that wait for the files of one partition of a topic; at least flush.size.",
        Range(1),
    ),
    Field(
        "flush.max.bytes",
        ConfigType.LONG,
        64 << 20,
        "The most bytes of values that wait for the files of one partition of a topic.",
        Range(1),
    ),
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
    """The records of a partition since its last files were written."""

    def __init__(self, start: int, time: int, schema: Schema | None) -> None:
        self.start, self.time, self.schema = start, time, schema
        self.next = start
        self.records = self.bytes = 0
        self.full = False
        self.files: dict[str, _File] = {}

    def file(self, directory: str, offset: int) -> _File:
        """The file for a directory; a new file starts with this offset."""
        found = self.files.get(directory)
        if found is None:
            found = self.files[directory] = _File(offset)
        return found


class _File:
    """The content of a future file, and the offset of its first record, which is in its name."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.values: list[Any] = []
        self.offsets: list[int] = []
        """Of the values."""


class LakeSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._settings = parse(_FIELDS, config)
        self._store = Store(self._settings)
        self._directory = directory_of(self._settings)
        self._in_one_directory = is_by_partition(self._settings)
        self._size: int = self._settings["flush.size"]
        self._most_records: int = max(self._size, self._settings["flush.max.records"])
        self._most_bytes: int = self._settings["flush.max.bytes"]
        self._interval: int = self._settings["rotate.interval.ms"]
        self._open: dict[TopicPartition, _Generation] = {}
        self._done: dict[TopicPartition, int] = {}

    def put(self, records: list[SinkRecord]) -> None:
        self._write_full()
        for record in records:
            place = (record.original_topic, record.original_partition)
            generation = self._open.get(place)
            if record.original_offset < self._next(place):
                continue  # put again after a file of another partition could not be written
            try:
                directory, time = self._place(record)
            except DataError as error:
                self.report(record, error)
                continue
            if generation is not None and self._ends(generation, record.value_schema, time):
                self._write(place, generation)
                generation = None
            if generation is None:
                generation = _Generation(record.original_offset, time, record.value_schema)
                self._open[place] = generation
            file = generation.file(directory, record.original_offset)
            file.values.append(record.value)
            file.offsets.append(record.original_offset)
            generation.next = record.original_offset + 1
            generation.records += 1
            generation.bytes += weight(record.value)
            self._write_if_full(place, generation, file)

    def put_batch(self, batch: SinkBatch) -> None:
        """Like `put` for each record; faster for ranges of records that go to one file."""
        if not self._in_one_directory or not self._all_have_rows(batch):
            self.put(batch.records())
            return
        self._write_full()
        place = (batch.topic, batch.partition)
        directory = directory_of_partition(batch.partition)
        at = bisect_left(batch.offsets, self._next(place))
        while at < len(batch):
            generation = self._open.get(place)
            time = (batch.timestamps[at] or 0) if self._interval else 0
            if generation is not None and self._ends(generation, batch.value_schema, time):
                self._write(place, generation)
                generation = None
            if generation is None:
                generation = _Generation(batch.offsets[at], time, batch.value_schema)
                self._open[place] = generation
            file = generation.file(directory, batch.offsets[at])
            room = min(self._size - len(file.values), self._most_records - generation.records)
            end = self._end(batch, at, generation, room)
            weights = list(map(weight, batch.values[at:end]))
            if sum(weights) >= self._most_bytes - generation.bytes:
                totals = accumulate(weights, initial=generation.bytes)
                end = at + next(number for number, total in enumerate(totals) if total >= self._most_bytes)
            file.values += batch.values[at:end]
            file.offsets += batch.offsets[at:end]
            generation.next = batch.offsets[end - 1] + 1
            generation.records += end - at
            generation.bytes += sum(weights[: end - at])
            at = end
            self._write_if_full(place, generation, file)

    def _all_have_rows(self, batch: SinkBatch) -> bool:
        """Whether all records pass the checks of `_place`, so that none is reported."""
        if None in batch.values or (self._interval and None in batch.timestamps):
            return False
        schema = batch.value_schema
        if self._settings["format"] != "parquet" or schema is None or not schema.fields:
            return True
        return all(isinstance(value, dict) for value in batch.values)

    def _end(self, batch: SinkBatch, at: int, generation: _Generation, room: int) -> int:
        """The index of the first record after `at` that does not go to the same file."""
        end = min(len(batch), at + room)
        if not self._interval:
            return end
        times: Sequence[Any] = batch.timestamps[at:end]
        late = generation.time + self._interval
        if max(times) < late:
            return end
        return at + next(index for index, time in enumerate(times) if time >= late)

    def _next(self, place: TopicPartition) -> int:
        """The offset after the last record that was put."""
        generation = self._open.get(place)
        return self._done.get(place, 0) if generation is None else generation.next

    def _write_full(self) -> None:
        for place, generation in list(self._open.items()):
            if generation.full:  # its files could not be written before
                self._write(place, generation)

    def _write_if_full(self, place: TopicPartition, generation: _Generation, file: _File) -> None:
        if (
            len(file.values) >= self._size
            or generation.records >= self._most_records
            or generation.bytes >= self._most_bytes
        ):
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

    def _ends(self, generation: _Generation, schema: Schema | None, time: int) -> bool:
        if self._interval and time - generation.time >= self._interval:
            return True
        return schema is not generation.schema and schema != generation.schema

    def _write(self, place: TopicPartition, generation: _Generation) -> None:
        topic = quote(place[0], safe="")
        extension = EXTENSIONS[self._settings["format"]]
        for directory, file in sorted(generation.files.items()):
            name = f"{topic}+{place[1]}+{file.offset:010d}.{extension}"
            parts = (self._settings["topics.dir"].strip("/"), topic, directory, name)
            data = self._encoded(place, generation.schema, file)
            if data is not None:
                self._store.write("/".join(filter(None, parts)), data)
        self._open.pop(place, None)
        self._done[place] = generation.next

    def _encoded(self, place: TopicPartition, schema: Schema | None, file: _File) -> Any:
        """The encoded values that fit into one table, if any; the others are reported and removed."""
        form, compression = self._settings["format"], self._settings["compression"]
        try:
            return encode(file.values, schema, form, compression)
        except DataError:
            bad = misfits(file.values, lambda values: problem_of(values, schema))
        for at, error in bad.items():
            offset = file.offsets[at]
            record = SinkRecord(
                *place,
                offset,
                file.values[at],
                value_schema=schema,
                original_topic=place[0],
                original_partition=place[1],
                original_offset=offset,
            )
            self.report(record, error)
        good = [at for at in range(len(file.values)) if at not in bad]
        file.values = [file.values[at] for at in good]
        file.offsets = [file.offsets[at] for at in good]
        return encode(file.values, schema, form, compression) if good else None

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Up to the start of the open generation; if none is open, everything."""
        return {
            place: self._open[place].start if place in self._open else offset
            for place, offset in offsets.items()
        }

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._open.pop(place, None)
            self._done.pop(place, None)


def weight(value: Any) -> int:
    """The approximate size in bytes; the end of a generation must depend on its records alone."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(weight, value.values()))
    return sum(map(weight, value)) if isinstance(value, list) else 8


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
