"""Runs the task of a change data capture source as a worker does, without one: polls it, commits offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from penstock.connect.api import OffsetsReader, RetriableError, SourcePartition, SourceRecord, SourceTask
from penstock.connect.schemas import check


class Kept(OffsetsReader):
    """Offsets that outlive a task."""

    def __init__(self) -> None:
        self.last: dict[str, Any] | None = None

    def offsets(self, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        return [self.last for _ in partitions]


class RunningTask:
    """A task, its records so far, and the offsets that were committed."""

    def __init__(self, task: SourceTask, config: dict[str, str], kept: Kept | None = None) -> None:
        self.kept = kept or Kept()
        self.records: list[SourceRecord] = []
        self.errors: list[str] = []
        self.config = config
        self.task: Any = task
        self.task.start(self.config, self.kept)

    def poll(self, *, commit: bool = True) -> list[SourceRecord]:
        try:
            records = self.task.poll()
        except RetriableError as error:
            self.errors.append(str(error))
            time.sleep(0.05)
            return []
        for record in records:
            if record.key_schema is not None:
                check(record.key_schema, record.key, "key")
            if record.value_schema is not None:
                check(record.value_schema, record.value, "value")
        self.records += records
        if records and commit:
            self.commit(records[-1])
        return records

    def commit(self, record: SourceRecord) -> None:
        self.kept.last = dict(record.source_offset)
        self.task.commit([(record.source_partition, record.source_offset)])

    def until(
        self, done: Callable[[list[SourceRecord]], bool], *, commit: bool = True, seconds: float = 60
    ) -> list[SourceRecord]:
        """All records, when they are enough."""
        deadline = time.monotonic() + seconds
        while not done(self.records):
            assert time.monotonic() < deadline, f"{len(self.records)} records, {self.errors[-3:]}"
            self.poll(commit=commit)
        return self.records

    def count(self, number: int, **options: Any) -> list[SourceRecord]:
        return self.until(lambda records: len(records) >= number, **options)

    def streaming(self) -> None:
        """Polls until the snapshot is over: what is written from now on is a change."""
        deadline = time.monotonic() + 60
        while self.task._stream is None:
            assert time.monotonic() < deadline, self.errors[-3:]
            self.poll()

    def stop(self) -> None:
        self.task.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def changes(records: list[SourceRecord]) -> list[tuple[Any, ...]]:
    """Operation, before and after; None for a tombstone."""
    return [
        (None,)
        if record.value is None
        else (record.value["op"], record.value["before"], record.value["after"])
        for record in records
    ]


def state(records: list[SourceRecord]) -> dict[Any, Any]:
    """What a compacted topic has at the end: the last value of each key."""
    table: dict[Any, Any] = {}
    for record in records:
        key = tuple(record.key.values())
        if record.value is None or record.value["op"] == "d":
            table.pop(key, None)
        else:
            table[key] = record.value["after"]
    return table
