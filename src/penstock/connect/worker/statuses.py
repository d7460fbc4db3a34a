"""The status topic: state, worker and error of each connector and task, and the topics that they used.

Every worker writes the status of its own units and reads those of all. The records have Kafka Connect's
format.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client.librdkafka import PROMPT_FETCH, with_login
from penstock.client.partitioning import KEY_PARTITIONER
from penstock.connect.worker.configs import Unit
from penstock.elected.errors import CannotStart
from penstock.elected.process import soon

log = logging.getLogger(__name__)

RUNNING, PAUSED, FAILED, RESTARTING = "RUNNING", "PAUSED", "FAILED", "RESTARTING"
UNASSIGNED, STOPPED, DESTROYED = "UNASSIGNED", "STOPPED", "DESTROYED"
ALIVE = frozenset((RUNNING, PAUSED, RESTARTING, FAILED))
"""A worker has a process for it, or waits to start one."""


@dataclass(frozen=True, slots=True)
class Status:
    state: str
    worker: str
    generation: int = 0
    trace: str | None = None
    version: str | None = None
    progress: Mapping[str, Any] | None = None
    """Progress of the task, such as that of a snapshot; Kafka Connect has no such field."""

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"state": self.state, "worker_id": self.worker}
        if self.trace:
            found["trace"] = self.trace
        if self.version:
            found["version"] = self.version
        if self.progress:
            found["progress"] = dict(self.progress)
        return found


class Statuses:
    """All known statuses, by unit. For the event loop; change them with `write`."""

    def __init__(self) -> None:
        self.by_unit: dict[Unit, Status] = {}
        self.topics: dict[str, dict[str, int]] = {}
        """By connector: each topic, and the task that used it first."""
        self.on_change: Callable[[], None] = lambda: None
        self._write: Callable[[str, str | None], None] = lambda key, value: None

    def of(self, connector: str) -> dict[Unit, Status]:
        return {unit: status for unit, status in self.by_unit.items() if unit.connector == connector}

    def put(self, unit: Unit, status: Status) -> None:
        self.by_unit[unit] = status
        value: dict[str, Any] = {
            "state": status.state,
            "trace": status.trace,
            "worker_id": status.worker,
            "generation": status.generation,
            "version": status.version,
        }
        if status.progress:
            value["progress"] = dict(status.progress)
        self._write(_unit_key(unit), json.dumps(value))
        self.on_change()

    def forget(self, unit: Unit) -> None:
        self.by_unit.pop(unit, None)
        self._write(_unit_key(unit), None)
        self.on_change()

    def used(self, connector: str, topic: str, task: int) -> None:
        known = self.topics.setdefault(connector, {})
        if topic not in known:
            known[topic] = task
            entry = {
                "name": topic,
                "connector": connector,
                "task": task,
                "discoverTimestamp": int(time.time() * 1000),
            }
            self._write(_topic_key(connector, topic), json.dumps({"topic": entry}))

    def forget_topics(self, connector: str) -> None:
        for topic in self.topics.pop(connector, {}):
            self._write(_topic_key(connector, topic), None)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the topic."""
        try:
            text = (key or b"").decode()
            content = None if value is None else json.loads(value)
            if text.startswith("status-topic-"):
                topic, _, connector = text.removeprefix("status-topic-").partition(":connector-")
                if content is None:
                    self.topics.get(connector, {}).pop(topic, None)
                else:
                    self.topics.setdefault(connector, {})[topic] = int(content["topic"]["task"])
                return
            unit = _unit_of(text)
            if unit is None:
                return
            if content is None or content["state"] == DESTROYED:
                self.by_unit.pop(unit, None)
            else:
                self.by_unit[unit] = Status(
                    content["state"],
                    content.get("worker_id") or "",
                    int(content.get("generation") or 0),
                    content.get("trace"),
                    content.get("version"),
                    content.get("progress"),
                )
        except (ValueError, KeyError, TypeError) as error:
            log.warning("skipped an invalid record of the status topic: %r", error)
        self.on_change()


def _unit_key(unit: Unit) -> str:
    return f"status-task-{unit}" if unit.is_task else f"status-connector-{unit}"


def _topic_key(connector: str, topic: str) -> str:
    return f"status-topic-{topic}:connector-{connector}"


def _unit_of(key: str) -> Unit | None:
    if key.startswith("status-connector-"):
        return Unit(key.removeprefix("status-connector-"))
    if key.startswith("status-task-"):
        name, _, number = key.removeprefix("status-task-").rpartition("-")
        return Unit(name, int(number))
    return None


class StatusTopic:
    """Reads the topic into `statuses` for as long as the worker runs, and writes changes."""

    def __init__(self, client: dict[str, str], topic: str, statuses: Statuses) -> None:
        self._client = client
        self._topic = topic
        self._statuses = statuses
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._caught_up: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._read, name="connect-status-reader", daemon=True)
        self._producer: Any = None

    async def start(self, timeout: float) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            with_login(
                {
                    **self._client,
                    "enable.idempotence": True,
                    "partitioner": KEY_PARTITIONER,
                    "linger.ms": 0,
                    "reconnect.backoff.max.ms": 1000,
                    "log_level": 0,
                }
            )
        )
        self._thread.start()
        try:
            await asyncio.wait_for(asyncio.shield(self._caught_up), timeout)
        except TimeoutError:
            raise CannotStart(
                f"the topic {self._topic} could not be read to its end in {timeout:g} s"
            ) from None
        self._statuses._write = self._write

    def _write(self, key: str, value: str | None) -> None:
        try:
            self._producer.produce(self._topic, value, key)
            self._producer.poll(0)
        except BufferError:
            log.warning("could not write the status of %s: the cluster does not accept records", key)

    def _read(self) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        consumer = Consumer(
            with_login(
                {
                    **self._client,
                    "group.id": "penstock-connect-status",  # wanted by librdkafka; nothing is joined
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 100,
                    **PROMPT_FETCH,
                    "reconnect.backoff.max.ms": 1000,
                    "log_level": 0,
                }
            )
        )
        try:
            partitions = set(consumer.list_topics(self._topic, timeout=30).topics[self._topic].partitions)
            unread = set(partitions)
            consumer.assign([TopicPartition(self._topic, each, 0) for each in partitions])
            while not self._stopping.is_set():
                first = consumer.poll(0.1)
                if first is None:
                    continue
                for message in (first, *consumer.consume(1000, 0)):
                    error = message.error()
                    if error is None:
                        key: Any = message.key()
                        value: Any = message.value()
                        soon(self._loop, self._statuses.apply, key, value)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                        if not unread:
                            soon(self._loop, _done, self._caught_up)
        except KafkaException as error:
            log.error("could not read topic %s: %s", self._topic, error)
        finally:
            consumer.close()

    async def close(self) -> None:
        self._stopping.set()
        if self._producer is not None:
            await self._loop.run_in_executor(None, self._producer.flush, 3)
        if self._thread.is_alive():
            await self._loop.run_in_executor(None, self._thread.join, 3)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
