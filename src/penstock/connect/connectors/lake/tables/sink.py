"""Writes records of topics as rows of Delta or Iceberg tables: exactly once, with columns that follow the
schema.

Rows wait until there are `flush.size` of them or offsets are due to be committed; then they are added to the
table together with their offsets. If a table has offsets, they override those of the group.
"""

from __future__ import annotations

import importlib.util
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.connect.api import (
    BadConfig,
    ConfigType,
    ConnectError,
    DataError,
    EachOneOf,
    Field,
    Importance,
    OneOf,
    Range,
    SinkBatch,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
    parse,
)
from penstock.connect.connectors.lake.stores import STORE, Store
from penstock.connect.connectors.lake.tables.catalog import catalog_properties
from penstock.connect.connectors.lake.tables.table import LakeTable, Moved, Span
from penstock.errors import MissingExtra

FORMATS = {"delta": "deltalake", "iceberg": "pyiceberg"}
"""The formats, and the package that each needs."""
_TOPIC = "${topic}"
_FIELDS = (
    *STORE,
    Field(
        "format",
        default="delta",
        doc="The table format: delta or iceberg.",
        validator=OneOf(*FORMATS),
        importance=Importance.HIGH,
    ),
    Field(
        "table.name.format",
        default=_TOPIC,
        doc="The name of a topic's table; ${topic} is replaced. A Delta table is the directory URL/NAME.",
    ),
    Field("iceberg.namespace", default="default", doc="The namespace of Iceberg tables."),
    Field("flush.size", ConfigType.INT, 100_000, "The most rows of one commit.", Range(1)),
    Field(
        "behavior.on.null.values",
        default="fail",
        doc="What to do with a record without a value: fail reports it as an error, ignore skips it.",
        validator=OneOf("fail", "ignore"),
    ),
    Field(
        "record.columns",
        ConfigType.LIST,
        (),
        "What is added of each record, as kafka_NAME: topic, partition, offset, timestamp, key.",
        EachOneOf("topic", "partition", "offset", "timestamp", "key"),
    ),
)


class _Waiting:
    """Rows of one table that are not committed yet."""

    def __init__(self) -> None:
        self.rows: list[tuple[TopicPartition, Any]] = []
        self.spans: dict[TopicPartition, Span] = {}

    @property
    def count(self) -> int:
        return sum(rows.num_rows for _, rows in self.rows)

    def drop(self, place: TopicPartition) -> None:
        self.rows = [(each, rows) for each, rows in self.rows if each != place]
        self.spans.pop(place, None)


class _Rewound(Exception):
    """The partition is read again from another offset: the records in memory are discarded."""


class TableSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._settings = parse(_FIELDS, config)
        self._make = _table_maker(config, self._settings)
        self._size: int = self._settings["flush.size"]
        self._extra: Sequence[str] = self._settings["record.columns"]
        self._skips_nulls: bool = self._settings["behavior.on.null.values"] == "ignore"
        self._tables: dict[str, LakeTable] = {}
        self._schemas: dict[str, Any] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._written: dict[TopicPartition, int] = {}
        self._taken: dict[TopicPartition, int] = {}

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        for place in partitions:
            name = self._name_of(place[0])
            table = self._tables.get(name)
            if table is None:
                table = self._make(name)
                self._schemas[name] = table.schema()
                self._tables[name] = table
            self._taken.pop(place, None)
            self._written.pop(place, None)
            self._written |= table.offsets([place])
        return {place: self._written[place] for place in partitions if place in self._written}

    def put(self, records: list[SinkRecord]) -> None:
        """Consecutive records with the same partition and schema are processed together."""
        at = 0
        while at < len(records):
            end = at + 1
            while end < len(records) and _alike(records[at], records[end]):
                end += 1
            some, first = records[at:end], records[at]
            self._put(
                SinkBatch(
                    first.original_topic,
                    first.original_partition,
                    [each.original_offset for each in some],
                    [each.value for each in some],
                    [each.key for each in some],
                    [each.timestamp for each in some],
                    first.value_schema,
                    first.key_schema,
                ),
                some,
            )
            at = end

    def put_batch(self, batch: SinkBatch) -> None:
        self._put(batch, None)

    def _put(self, batch: SinkBatch, records: Sequence[SinkRecord] | None) -> None:
        place = (batch.topic, batch.partition)
        name = self._name_of(batch.topic)
        # Records that an earlier call took before a commit failed are not taken twice.
        begin = bisect_left(batch.offsets, self._taken.get(place, self._written.get(place, 0)))
        for at in range(begin, len(batch), self._size):
            end = min(at + self._size, len(batch))
            part = _slice(batch, at, end)
            try:
                try:
                    self._take(name, place, part)
                except DataError:
                    given = records[at:end] if records is not None else part.records()
                    self._take_good_ones(name, place, part, given)
                if self._waiting[name].count >= self._size:
                    self._commit(name)
            except _Rewound:
                return

    def _take_good_ones(
        self, name: str, place: TopicPartition, batch: SinkBatch, records: Sequence[SinkRecord]
    ) -> None:
        for index, record in enumerate(records):
            try:
                self._take(name, place, _slice(batch, index, index + 1))
            except DataError as error:
                self.report(record, error)
                self._advance(name, place, record.original_offset + 1)

    def _take(self, name: str, place: TopicPartition, batch: SinkBatch) -> None:
        from penstock.connect.connectors.lake.tables import columns

        if place in self.rewind:
            raise _Rewound
        end = batch.offsets[-1] + 1
        if None in batch.values:
            if not self._skips_nulls:
                raise DataError("a record without a value has no row: set behavior.on.null.values=ignore")
            batch = _chosen(batch, [at for at, value in enumerate(batch.values) if value is not None])
            if not batch:
                self._advance(name, place, end)
                return
        current = columns.without_record_columns(self._schemas[name], self._extra)
        made, merged = columns.rows(batch.values, batch.value_schema, current, self._tables[name].rules)
        if not len(merged):
            raise DataError("a value without fields has no row")
        made = columns.with_record_columns(
            made, self._extra, batch.topic, batch.partition, batch.offsets, batch.timestamps, batch.keys
        )
        waiting = self._waiting.get(name)
        if waiting is not None and waiting.rows and waiting.rows[0][1].schema != made.schema:
            self._commit(name)  # rows of one commit have the same schema
            if place in self.rewind:
                raise _Rewound
        self._schemas[name] = made.schema
        self._waiting.setdefault(name, _Waiting()).rows.append((place, made))
        self._advance(name, place, end)

    def _advance(self, name: str, place: TopicPartition, offset: int) -> None:
        spans = self._waiting.setdefault(name, _Waiting()).spans
        start = spans[place].start if place in spans else self._written.get(place)
        spans[place] = Span(start, offset)
        self._taken[place] = offset

    def _commit(self, name: str) -> None:
        import pyarrow as arrow

        waiting = self._waiting.get(name)
        while waiting is not None and waiting.rows:
            try:
                self._tables[name].append(
                    arrow.concat_tables([rows for _, rows in waiting.rows]), waiting.spans
                )
            except Moved as moved:
                # Another task has owned the partition in between. Nothing was written; retry the rest without
                # it.
                for place, offset in moved.offsets.items():
                    waiting.drop(place)
                    self.rewind[place] = self._written[place] = self._taken[place] = offset
                continue
            self._written |= {place: span.next for place, span in waiting.spans.items()}
            break
        self._waiting.pop(name, None)

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        for name in list(self._waiting):
            self._commit(name)
        return {place: self.rewind.get(place, offset) for place, offset in offsets.items()}

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Uncommitted rows are left to the next owner of the partition."""
        for place in partitions:
            for waiting in self._waiting.values():
                waiting.drop(place)
            self._taken.pop(place, None)
            self._written.pop(place, None)

    def _name_of(self, topic: str) -> str:
        return str(self._settings["table.name.format"]).replace(_TOPIC, topic)


def _alike(first: SinkRecord, other: SinkRecord) -> bool:
    return (
        first.original_partition == other.original_partition
        and first.original_topic == other.original_topic
        and (first.value_schema is other.value_schema or first.value_schema == other.value_schema)
    )


def _slice(batch: SinkBatch, start: int, end: int) -> SinkBatch:
    if (start, end) == (0, len(batch)):
        return batch
    return _chosen(batch, range(start, end))


def _chosen(batch: SinkBatch, rows: Sequence[int]) -> SinkBatch:
    return replace(
        batch,
        offsets=[batch.offsets[row] for row in rows],
        values=[batch.values[row] for row in rows],
        keys=[batch.keys[row] for row in rows],
        timestamps=[batch.timestamps[row] for row in rows],
    )


def _table_maker(config: Mapping[str, str], settings: Mapping[str, Any]) -> Any:
    """A function that opens a table by its name."""
    connector = config.get("name", "")
    if settings["format"] == "delta":
        from penstock.connect.connectors.lake.tables.delta import DeltaLakeTable

        root = Store(settings).uri
        return lambda name: DeltaLakeTable(f"{root}/{name}", connector, settings)
    from penstock.connect.connectors.lake.tables.iceberg import IcebergLakeTable, open_catalog

    catalog = open_catalog(catalog_properties(config, settings))
    return lambda name: IcebergLakeTable(
        catalog, settings["iceberg.namespace"], re.sub(r"[^A-Za-z0-9_]", "_", name), connector
    )


class TableSink(SinkConnector):
    """A Delta or Iceberg table for each topic, on disk or in S3-compatible storage."""

    task_class = TableSinkTask
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        try:
            if settings["url"].startswith("hdfs://"):
                raise ConnectError("tables are kept in a directory or in S3-compatible storage, not in HDFS")
            Store(settings).check()
        except (ConnectError, OSError) as error:
            return {"url": [f"Invalid value {settings['url']} for configuration url: {error}"]}
        package = FORMATS[settings["format"]]
        if importlib.util.find_spec(package) is None:
            missing = MissingExtra(f"format={settings['format']}", package, "connect-lake")
            return {"format": [str(missing)]}
        if settings["format"] == "iceberg":
            try:
                catalog_properties(config, settings)
            except BadConfig as error:
                return error.problems
        return {}

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        raise ConnectError(
            "TableSink keeps its offsets in the table. To write a topic again, use another connector name or"
            " another table"
        )
