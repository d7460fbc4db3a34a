"""The plugin API: what a connector is written with.

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
    """What was committed for source partitions before this task began."""

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        """The last committed offset of a source partition; None if there is none."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        raise NotImplementedError


class Connector:
    """One configured connector: checks its configuration and divides its work into tasks.

    Runs in a process of its own for as long as that takes, and longer only if it overrides `changed`.
    """

    version: ClassVar[str] = "0.1.0"
    fields: ClassVar[tuple[Field, ...]] = ()
    defaults: ClassVar[Mapping[str, str]] = {}
    """Settings of every connector (`key.converter`, ...) with another default than the worker's."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names for `connector.class`, such as the Java class whose settings this one takes."""
    poll_changes_seconds: ClassVar[float] = 10.0
    """How often `changed` is asked."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.settings: dict[str, Any] = {}

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        """Problems that the fields alone do not show, by field; called when all fields are allowed."""
        return {}

    def start(self, config: Mapping[str, str]) -> None:
        """Begin; `super().start(config)` fills `self.config` and `self.settings`."""
        self.config = dict(config)
        self.settings = parse(self.fields, config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The configuration of each task, at most `max_tasks`. By default one, with the connector's own."""
        return [dict(self.config)]

    def changed(self) -> bool:
        """Whether `task_configs` would now give other tasks: a table appeared, a partition was added."""
        return False

    def stop(self) -> None:
        """Release what `start` took."""


class SourceConnector(Connector):
    """Reads a system outside of Kafka."""

    task_class: ClassVar[type[SourceTask]]
    exactly_once: ClassVar[bool] = False
    """Whether its offsets say exactly which records were produced, so that a transaction of both suffices."""

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
    ) -> bool:
        """Check offsets that a user sets (None: deletes); ConnectError refuses. True: they were checked."""
        return False


class SinkConnector(Connector):
    """Writes to a system outside of Kafka."""

    task_class: ClassVar[type[SinkTask]]

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """As for sources: for offsets that the sink keeps itself, change them here."""
        return False


def _not_running(record: SinkRecord, error: Exception) -> None:
    raise error


def _nowhere(progress: Mapping[str, Any] | None) -> None:
    """Outside of a worker."""


class SourceTask:
    """Reads a part of a source, in batches. One thread calls all methods."""

    show_progress: Callable[[Mapping[str, Any] | None], None]
    """Call it with JSON that the task's status shows as `progress`, about once a second; None ends it."""

    def __new__(cls, *arguments: Any, **named: Any) -> SourceTask:
        # Here, so that a task need not call an initializer.
        task = super().__new__(cls)
        task.show_progress = _nowhere
        return task

    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        """Open the source and go to where `offsets_reader` says that an earlier run ended."""
        raise NotImplementedError

    def poll(self) -> list[SourceRecord] | SourceBatch:
        """The next records: block for a second at most, and return [] if there are none.

        A SourceBatch, with lists in place of an object for each record, is several times faster.
        """
        raise NotImplementedError

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset]]) -> None:
        """These offsets, and all records up to them, are durable in Kafka: a slot may be advanced."""

    def acknowledge(self, records: Sequence[SourceRecord]) -> None:
        """These records are durable in Kafka, or were skipped: a queue may forget them.

        Called with all records of each `poll`, before the next one, if the task overrides it. For sources
        that keep what is not acknowledged; their records need no source partition and offset.
        """

    def stop(self) -> None:
        """Release what `start` took. Called once, after the last `poll`."""


class BatchSourceTask(SourceTask):
    """Reads a part of a source that has record batches already, as another Kafka cluster.

    After an error of the cluster that is written to, the task is stopped and started again, with the offsets
    that are committed.
    """

    def poll(self) -> list[SourceRecord]:
        raise TypeError("a task with batches has poll_batches")

    def poll_batches(self) -> list[RawBatch]:
        """The next batches: block for a second at most, and return [] if there are none."""
        raise NotImplementedError

    def written(self, batches: Sequence[tuple[RawBatch, int]]) -> None:
        """These batches are durable, each with the offset that its first record has now."""


class SinkTask:
    """Writes a part of the topics' records, in batches. One thread calls all methods."""

    rewind: dict[TopicPartition, int]
    """Fill it in `put`: where to continue reading, for a sink that keeps offsets with its data."""
    report: Callable[[SinkRecord, Exception], None]
    """Call it for one bad record of a batch: `errors.tolerance` decides, the dead letter queue gets it."""

    def __new__(cls, *arguments: Any, **named: Any) -> SinkTask:
        # Here, so that a task need not call an initializer.
        task = super().__new__(cls)
        task.rewind = {}
        task.report = _not_running
        return task

    def start(self, config: Mapping[str, str]) -> None:
        raise NotImplementedError

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """These partitions are assigned from now on.

        A sink that keeps offsets with its data returns them here (the next offset to read), for exactly once.
        """
        return None

    def put(self, records: list[SinkRecord]) -> None:
        """Take records; RetriableError makes the same records come again after a backoff."""
        raise NotImplementedError

    def put_batch(self, batch: SinkBatch) -> None:
        """Override it, beside `put`, to take records as lists, which is several times faster.

        It is called in place of `put` for records that need no transforms and have no headers.
        """
        self.put(batch.records())

    def precommit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Which offsets may be committed now; by default all that were put, after `flush`.

        RetriableError: none; it is called again after `offset.flush.interval.ms`.
        """
        self.flush(offsets)
        return offsets

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make durable what was put up to these offsets."""

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are no longer assigned; what was put is committed where `precommit` allows."""

    def stop(self) -> None:
        """Release what `start` took."""
