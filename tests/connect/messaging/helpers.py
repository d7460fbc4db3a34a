"""What the tests of all messaging connectors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.connect.api import OffsetsReader, RetriableError, Schema, SinkRecord, SourceRecord, SourceTask
from penstock.testing import PenstockBroker
from tests.connect.conftest import Worker, Workers, until
from tests.connect.test_workers import group, kill_tasks

TEXT = {"key.converter": "string", "value.converter": "string"}


class NoOffsets(OffsetsReader):
    def offsets(self, partitions: Any) -> list[Any]:
        return [None for _ in partitions]


class FixedOffsets(OffsetsReader):
    def __init__(self, offset: Any) -> None:
        self._offset = offset

    def offsets(self, partitions: Any) -> list[Any]:
        return [self._offset for _ in partitions]


def record(
    offset: int,
    value: Any,
    key: Any = None,
    schema: Schema | None = None,
    topic: str = "items",
    partition: int = 0,
) -> SinkRecord:
    return SinkRecord(
        topic, partition, offset, value, key, schema, original_topic=topic, original_partition=partition,
        original_offset=offset,
    )  # fmt: skip


def polled(task: SourceTask, count: int, *, acknowledge: bool = True) -> list[SourceRecord]:
    """As the worker does it: until there are so many records."""
    found: list[SourceRecord] = []

    def enough() -> bool:
        try:
            records = task.poll()
        except RetriableError:
            return False
        found.extend(records)
        if records and acknowledge:
            task.acknowledge(records)
        return len(found) >= count

    until(enough, f"{count} records", lambda: f"{len(found)} so far")
    return found


def problems(answer: dict[str, list[str]]) -> tuple[list[str], str]:
    """The fields, and all that is said about them."""
    return list(answer), " ".join(text for texts in answer.values() for text in texts)


def shows_error(worker: Worker, name: str) -> None:
    """The status has the reason while the call is repeated, and the task still runs."""

    def shown() -> bool:
        tasks = worker.status(name)["tasks"]
        return bool(tasks) and "RetriableError" in (tasks[0].get("trace") or "")

    until(shown, "the status has the error", lambda: str(worker.status(name)))
    assert worker.status(name)["tasks"][0]["state"] == "RUNNING"


def killed_twice(
    workers: Workers,
    broker: PenstockBroker,
    name: str,
    config: dict[str, object],
    write: Callable[[int, int], None],
    progress: Callable[[], int],
    count: int,
) -> Worker:
    """A connector under load whose worker, and then whose task, is killed; it ends with `count` records."""
    write(0, count // 2)
    worker = workers.start(broker.bootstrap, *group(name))
    worker.put(name, config)
    until(lambda: progress() > 0, "the first records", lambda: str(worker.status(name)))
    worker.kill()
    write(count // 2, count)
    worker = workers.start(broker.bootstrap, *group(name))
    worker.until_running(name)
    kill_tasks(worker.process.pid)
    until(lambda: progress() >= count, f"{count} records", lambda: f"{progress()}, {worker.status(name)}")
    return worker
