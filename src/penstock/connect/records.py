"""Single records of sources and sinks, as tasks and transforms see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.connect.schemas import Schema

SourcePartition = Mapping[str, Any]
"""The origin of a record, such as a file or a table: JSON. Offsets are kept for each."""
SourceOffset = Mapping[str, Any]
"""How far a source partition was read: JSON."""


Origin = tuple[str, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""A sink's record as it was consumed: topic, partition, offset, key, value, headers."""


@dataclass(frozen=True, slots=True)
class Header:
    key: str
    value: Any
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record for a topic, and its position in the source.

    With `partition` None the producer chooses; `timestamp` is in milliseconds. Without a schema a value is
    whatever the converter accepts: JSON-like for JSON, str, bytes.
    """

    topic: str
    value: Any = None
    key: Any = None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    source_partition: SourcePartition = field(default_factory=dict)
    source_offset: SourceOffset = field(default_factory=dict)

    def changed(self, **changes: Any) -> SourceRecord:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A record of a topic, converted and transformed.

    `original_*` is its position in the topic from which it was read, even if transforms changed the topic:
    offsets are kept for it.
    """

    topic: str
    partition: int
    offset: int
    value: Any = None
    key: Any = None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    timestamp_type: str = "CreateTime"
    original_topic: str = ""
    original_partition: int = -1
    original_offset: int = -1
    origin: Origin | None = field(default=None, repr=False, compare=False)
    """For the dead-letter topic, if there is one."""

    def changed(self, **changes: Any) -> SinkRecord:
        return replace(self, **changes)
