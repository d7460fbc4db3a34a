"""Records as columns, for tasks that read or write many records at once.

A batch has lists instead of an object per record. Transforms, headers and records that cannot be converted
need objects: then the runtime creates them (`records`) and processes each one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.connect.records import SinkRecord, SourceOffset, SourcePartition, SourceRecord
from penstock.connect.schemas import Schema


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Records of one source partition on their way to one topic.

    `source_offset` is how far the source partition was read with the last record. Columns have one length;
    a column that is None is null in every record.
    """

    topic: str
    values: Sequence[Any]
    value_schema: Schema | None = None
    keys: Sequence[Any] | None = None
    key_schema: Schema | None = None
    timestamps: Sequence[int | None] | None = None
    source_partition: Mapping[str, Any] = field(default_factory=dict)
    source_offset: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def records(self) -> list[SourceRecord]:
        """An object per record; all have the offset of the batch, which is committed as a whole."""
        nothing = [None] * len(self.values)
        return [
            SourceRecord(
                self.topic,
                value,
                key,
                self.value_schema,
                self.key_schema,
                timestamp=timestamp,
                source_partition=self.source_partition,
                source_offset=self.source_offset,
            )
            for value, key, timestamp in zip(
                self.values, self.keys or nothing, self.timestamps or nothing, strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Converted records of one topic partition, in order, without transforms and headers."""

    topic: str
    partition: int
    offsets: Sequence[int]
    values: Sequence[Any]
    keys: Sequence[Any]
    timestamps: Sequence[int | None]
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    timestamp_type: str = "CreateTime"

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self) -> list[SinkRecord]:
        """An object per record."""
        return [
            SinkRecord(
                self.topic,
                self.partition,
                offset,
                value,
                key,
                self.value_schema,
                self.key_schema,
                (),
                timestamp,
                self.timestamp_type,
                self.topic,
                self.partition,
                offset,
            )
            for offset, value, key, timestamp in zip(
                self.offsets, self.values, self.keys, self.timestamps, strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A whole record batch for a partition: its records are neither converted nor transformed.

    `data` is one batch of message format 2, with a record for each of its offsets. `offsets` are the offsets
    of its records in the source.
    """

    topic: str
    partition: int
    data: bytes | bytearray | memoryview
    offsets: Sequence[int]
    source_partition: SourcePartition
    source_offset: SourceOffset
