"""The plugin API for connectors.

    class MySource(SourceConnector):
        fields = (Field("path", doc="What to read."),)
        task_class = MyTask

        def task_configs(self, max_tasks):
            return [dict(self.config)]

A plugin is found by its entry point in the group `penstock.connect` (`my_source = "my_package:MySource"`),
or by its full class name. Everything is synchronous: a task runs in a process of its own, and may block. A
connector sees its configuration as text, exactly as it was given; `self.settings` has the typed values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from penstock.config.types import EachOneOf, NonEmpty, OneOf, Range
from penstock.connect.batches import RawBatch, SinkBatch, SourceBatch
from penstock.connect.errors import ConnectError, DataError, RetriableError
from penstock.connect.records import Header, SinkRecord, SourceOffset, SourcePartition, SourceRecord
from penstock.connect.schemas import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    DATE_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    SchemaField,
    Type,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from penstock.connect.settings import REQUIRED, BadConfig, ConfigType, Field, Importance, Validator, parse

__all__ = [
    # connectors and tasks
    "Connector", "SourceConnector", "SinkConnector", "SourceTask", "BatchSourceTask", "SinkTask",
    "OffsetsReader", "TopicPartition",
    # records
    "Header", "SourceRecord", "SinkRecord", "SourcePartition", "SourceOffset", "SourceBatch", "RawBatch",
    "SinkBatch",
    # configuration
    "Field", "ConfigType", "Importance", "Validator", "REQUIRED", "OneOf", "EachOneOf", "Range",
    "NonEmpty", "parse",
    # schemas
    "Schema", "SchemaField", "Type", "INT8_SCHEMA", "INT16_SCHEMA", "INT32_SCHEMA", "INT64_SCHEMA",
    "FLOAT32_SCHEMA", "FLOAT64_SCHEMA", "BOOLEAN_SCHEMA", "STRING_SCHEMA", "BYTES_SCHEMA", "DATE_SCHEMA",
    "TIME_SCHEMA", "TIMESTAMP_SCHEMA", "decimal_schema", "array_schema", "map_schema", "struct_schema",
    # errors
    "ConnectError", "RetriableError", "DataError", "BadConfig",
]  # fmt: skip

TopicPartition = tuple[str, int]


class OffsetsReader:
    """The offsets that were committed for source partitions before this task started."""

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        """The last committed offset of a source partition; None if there is none."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        raise NotImplementedError


class Connector:
    """A configured connector: validates its configuration and divides its work into tasks.

    It runs in a separate process, which ends after the tasks are configured unless the connector overrides
    `changed`.
    """

    version: ClassVar[str] = "0.1.0"
    fields: ClassVar[tuple[Field, ...]] = ()
    defaults: ClassVar[Mapping[str, str]] = {}
    """Settings of every connector (`key.converter`, ...) whose default differs from the worker's."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names for `connector.class`, such as the Java class whose settings this one takes."""
    poll_changes_seconds: ClassVar[float] = 10.0
    """The interval in which `changed` is called."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.settings: dict[str, Any] = {}

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        """Problems that the fields alone do not show, by field; called when all fields are valid."""
        return {}

    def start(self, config: Mapping[str, str]) -> None:
        """Start the connector; `super().start(config)` sets `self.config` and `self.settings`."""
        self.config = dict(config)
        self.settings = parse(self.fields, config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The configurations of the tasks, at most `max_tasks`. Default: one task with the connector's
        configuration.
        """
        return [dict(self.config)]

    def changed(self) -> bool:
        """Whether `task_configs` would now return other tasks, because a table or a partition was added."""
        return False

    def stop(self) -> None:
        """Release the resources of `start`."""


class SourceConnector(Connector):
    """Reads from an external system."""

    task_class: ClassVar[type[SourceTask]]
    exactly_once: ClassVar[bool] = False
    """Whether its offsets identify exactly which records were produced, so that one transaction over both is
    exactly once.
    """

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
    ) -> bool:
        """Validate offsets that a user sets (None: deletes). Raise ConnectError to reject them; return True
        if they were validated.
        """
        return False


class SinkConnector(Connector):
    """Writes to an external system."""

    task_class: ClassVar[type[SinkTask]]

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """As for sources. If the sink stores offsets itself, change them here."""
        return False


def _not_running(record: SinkRecord, error: Exception) -> None:
    raise error


def _nowhere(progress: Mapping[str, Any] | None) -> None:
    """Used outside of a worker."""


class SourceTask:
    """Reads a part of a source, in batches. One thread calls all methods."""

    show_progress: Callable[[Mapping[str, Any] | None], None]
    """Call it with JSON to show it as `progress` in the task's status, at most about once a second; None
    removes it.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> SourceTask:
        # Set here, so that a task need not call an initializer.
        task = super().__new__(cls)
        task.show_progress = _nowhere
        return task

    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        """Open the source and continue after the offsets of `offsets_reader`."""
        raise NotImplementedError

    def poll(self) -> list[SourceRecord] | SourceBatch:
        """Return the next records: block for at most a second, and return [] if there are none.

        Returning a SourceBatch, with lists instead of an object per record, is several times faster.
        """
        raise NotImplementedError

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset]]) -> None:
        """These offsets, and all records up to them, are durable in Kafka: for example, advance a replication
        slot.
        """

    def acknowledge(self, records: Sequence[SourceRecord]) -> None:
        """These records are durable in Kafka, or were skipped: a queue may delete them.

        Called with all records of each `poll`, before the next one, if the task overrides it. For sources
        that keep what is not acknowledged; their records need no source partition and offset.
        """

    def stop(self) -> None:
        """Release the resources of `start`. Called once, after the last `poll`."""


class BatchSourceTask(SourceTask):
    """Reads a source that has record batches already, such as another Kafka cluster.

    After an error of the target cluster the task is stopped and started again with the committed offsets.
    """

    def poll(self) -> list[SourceRecord]:
        raise TypeError("a task with batches has poll_batches")

    def poll_batches(self) -> list[RawBatch]:
        """Return the next batches: block for at most a second, and return [] if there are none."""
        raise NotImplementedError

    def written(self, batches: Sequence[tuple[RawBatch, int]]) -> None:
        """These batches are durable, each with the new offset of its first record."""


class SinkTask:
    """Writes a part of the topics' records, in batches. One thread calls all methods."""

    rewind: dict[TopicPartition, int]
    """Set it in `put` to the offsets to continue from, if the sink stores offsets with its data."""
    report: Callable[[SinkRecord, Exception], None]
    """Call it for a bad record of a batch: `errors.tolerance` applies, and the record goes to the dead-letter
    topic.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> SinkTask:
        # Set here, so that a task need not call an initializer.
        task = super().__new__(cls)
        task.rewind = {}
        task.report = _not_running
        return task

    def start(self, config: Mapping[str, str]) -> None:
        raise NotImplementedError

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """These partitions are now assigned.

        A sink that stores offsets with its data returns them here (the next offset to read), for exactly
        once.
        """
        return None

    def put(self, records: list[SinkRecord]) -> None:
        """Write records. After a RetriableError the same records are put again after a backoff."""
        raise NotImplementedError

    def put_batch(self, batch: SinkBatch) -> None:
        """Override it, in addition to `put`, to get records as lists, which is several times faster.

        It is called instead of `put` for records without transforms and headers.
        """
        self.put(batch.records())

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets that may be committed now. Default: those of all records put so far, after
        `flush`.

        RetriableError commits none; it is called again after `offset.flush.interval.ms`.
        """
        self.flush(offsets)
        return offsets

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make the records up to these offsets durable."""

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are no longer assigned. Offsets that `precommit` returns are committed."""

    def stop(self) -> None:
        """Release the resources of `start`."""
