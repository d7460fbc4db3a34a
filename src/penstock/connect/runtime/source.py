"""A source task: polls, converts, produces, and commits offsets once the records before them are durable.

At least once by default: records are flushed, then offsets written. With exactly once (KIP-618) both are in
one transaction, under a transactional id that belongs to the task, so that starting it fences an earlier run.
A task that acknowledges records to its source has each batch committed before the next poll.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.client.librdkafka import with_login
from penstock.connect import plugins
from penstock.connect.api import (
    SourceBatch,
    SourceConnector,
    SourceOffset,
    SourcePartition,
    SourceRecord,
    SourceTask,
)
from penstock.connect.errors import ConnectError, RetriableError
from penstock.connect.providers import resolve
from penstock.connect.runtime.clients import WorkerSettings, make_producer
from penstock.connect.runtime.conversion import Conversion, Encoded, EncodedBatch
from penstock.connect.runtime.definitions import COMMON, SOURCE
from penstock.connect.runtime.offsets import key_text, read_offsets, value_text, write_files
from penstock.connect.runtime.task import Backoff, TaskSpec
from penstock.connect.runtime.tolerance import Tolerance
from penstock.connect.runtime.topic_creation import NewTopicSettings, settings_for
from penstock.connect.settings import parse

if TYPE_CHECKING:
    from confluent_kafka import Producer

log = logging.getLogger(__name__)
_IDLE_SECONDS = 0.05
_TRANSACTION_SECONDS = 60.0


class SourceRunner:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        plugin = plugins.connector(spec.connector_config["connector.class"])
        assert issubclass(plugin, SourceConnector)
        self._config = {**plugin.defaults, **resolve(spec.connector_config)}
        self._settings = parse(COMMON + SOURCE, self._config)
        self._task: SourceTask = plugin.task_class()
        self._failures: list[Any] = []
        self._pending: dict[str, tuple[SourcePartition, SourceOffset]] = {}
        self._acknowledges = type(self._task).acknowledge is not SourceTask.acknowledge
        self._unacknowledged: list[SourceRecord] = []
        self._in_transaction = False
        self._topics: set[str] = set()
        self._task.show_progress = lambda progress: spec.channel.send("progress", progress=progress)
        tolerance = Tolerance(spec.connector, spec.task, self._settings, stopping=spec.stopping.wait)
        self._tolerance = tolerance
        self._conversion = Conversion(spec.worker, self._config, tolerance)
        self._exactly_once = spec.worker.exactly_once
        self._producer = self._make_producer()

    def _make_producer(self) -> Producer:
        spec = self._spec
        more: dict[str, Any] = {"on_delivery": self._delivered}
        if self._exactly_once:
            more |= {
                "transactional.id": transactional_id(spec.worker.group, spec.connector, spec.task),
                "transaction.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
                "message.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
            }
        return make_producer(
            spec.worker, self._config, f"connector-producer-{spec.connector}-{spec.task}", more
        )

    def run(self) -> None:
        spec = self._spec
        if self._exactly_once:
            _kafka(lambda: self._producer.init_transactions(_TRANSACTION_SECONDS), "fencing earlier tasks")
        # After the fence: whatever an earlier run committed is there, and it commits no more.
        offsets = read_offsets(spec.worker, spec.connector)
        self._task.start(resolve(spec.config), offsets)
        try:
            spec.channel.send("running")
            self._loop()
        finally:
            self._task.stop()
            self._conversion.close()

    def _loop(self) -> None:
        spec = self._spec
        # What the source waits to acknowledge is committed with each poll.
        interval = 0.0 if self._acknowledges else commit_interval(spec.worker, self._settings)
        due = time.monotonic() + interval
        backoff = Backoff(spec)
        while not spec.stopping.is_set():
            if spec.paused.is_set():
                self._commit()
                spec.wait_while_paused()
                continue
            begun = time.monotonic()
            try:
                records = self._task.poll()
            except RetriableError as error:
                backoff.wait(error)
                continue
            backoff.succeeded()
            if records:
                if self._acknowledges:
                    self._unacknowledged += records.records() if isinstance(records, SourceBatch) else records
                self._send(records)
                self._producer.poll(0)
                self._check()
            elif time.monotonic() - begun < _IDLE_SECONDS:
                spec.stopping.wait(_IDLE_SECONDS)  # a source that does not wait must not take a whole core
            now = time.monotonic()
            if now >= due or interval == 0:
                self._commit()
                due = now + interval
        self._commit()

    # Producing

    def _send(self, polled: list[SourceRecord] | SourceBatch) -> None:
        if not isinstance(polled, SourceBatch):
            self._send_records(polled)
            return
        encoded = self._conversion.encode_batch(polled)
        if encoded is None:
            self._send_records(polled.records())
            return
        self._produce_batch(encoded)
        self._note(polled)

    def _send_records(self, records: list[SourceRecord]) -> None:
        encode, produce = self._conversion.encode, self._produce
        partition: Any = None
        last: SourceRecord | None = None
        for record in records:
            encoded = encode(record)
            if encoded is not None:
                produce(encoded)
            # Most batches are of one partition: its offset is taken once, from the last record.
            if record.source_partition is not partition:
                if last is not None:
                    self._note(last)
                partition = record.source_partition
            last = record
        if last is not None:
            self._note(last)

    def _note(self, record: SourceRecord | SourceBatch) -> None:
        if record.source_partition:
            key = key_text(self._spec.connector, record.source_partition)
            self._pending[key] = (record.source_partition, record.source_offset)

    def _produce_batch(self, batch: EncodedBatch) -> None:
        from confluent_kafka import KafkaException

        topic, produce = batch.topic, self._producer.produce
        self._prepare(topic)
        if batch.keys is None and batch.timestamps is None:
            for value in batch.values:
                try:
                    produce(topic, value)
                except (BufferError, KafkaException):
                    self._produce(Encoded(topic, None, value, None, None, []))
            return
        keys: Iterable[bytes | None] = repeat(None) if batch.keys is None else batch.keys
        times: Iterable[int | None] = repeat(None) if batch.timestamps is None else batch.timestamps
        for key, value, time_ms in zip(keys, batch.values, times):
            self._produce(Encoded(topic, key, value, None, time_ms, []))

    def _prepare(self, topic: str) -> None:
        if topic not in self._topics:
            self._new_topic(topic)
        if self._exactly_once and not self._in_transaction:
            _kafka(self._producer.begin_transaction, "beginning a transaction")
            self._in_transaction = True

    def _produce(self, record: Encoded) -> None:
        from confluent_kafka import KafkaException

        self._prepare(record.topic)
        more: dict[str, Any] = {}
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp is not None:
            more["timestamp"] = record.timestamp
        if record.headers:
            more["headers"] = record.headers
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, **more)
                return
            except BufferError:
                self._producer.poll(0.1)
                self._check()
                if self._spec.abandoned():
                    raise ConnectError("the task was stopped while the cluster took no records") from None
            except KafkaException as error:
                reason = ConnectError(f"a record for topic {record.topic} is refused: {error.args[0].str()}")
                self._tolerance.failed(reason, "KAFKA_PRODUCE", "Producer", None, record)
                return

    def _new_topic(self, topic: str) -> None:
        self._topics.add(topic)
        create_topic(self._spec, topic, settings_for(topic, self._config))
        self._spec.channel.send("topics", topics=[topic])

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append((error, message.topic()))

    def _check(self) -> None:
        if self._failures:
            error, topic = self._failures[0]
            raise ConnectError(f"a record for topic {topic} was not delivered: {error.str()}")

    # Offsets

    def _commit(self) -> None:
        pending, self._pending = self._pending, {}
        if not pending and not self._in_transaction and not self._unacknowledged:
            return
        pairs = list(pending.values())
        if self._exactly_once:
            self._commit_transaction(pending)
        else:
            self._flush()
            if self._spec.worker.offsets_directory is not None:
                write_files(Path(self._spec.worker.offsets_directory), self._spec.connector, pairs)
            else:
                self._write_offsets(pending)
                self._flush()
        if pairs:
            self._task.commit(pairs)
        if self._unacknowledged:
            records, self._unacknowledged = self._unacknowledged, []
            self._task.acknowledge(records)

    def _write_offsets(self, pending: dict[str, tuple[SourcePartition, SourceOffset]]) -> None:
        topic = self._spec.worker.offsets_topic
        assert topic is not None
        for key, (_, offset) in pending.items():
            while True:
                try:
                    self._producer.produce(topic, value_text(offset), key)
                    break
                except BufferError:
                    self._producer.poll(0.1)

    def _flush(self) -> None:
        while self._producer.flush(0.5):
            self._check()
            if self._spec.abandoned():
                raise ConnectError("the task was stopped while the cluster took no records")
        self._check()

    def _commit_transaction(self, pending: dict[str, tuple[SourcePartition, SourceOffset]]) -> None:
        if not self._in_transaction:
            _kafka(self._producer.begin_transaction, "beginning a transaction")
        if pending:
            self._write_offsets(pending)
        _kafka(lambda: self._producer.commit_transaction(_TRANSACTION_SECONDS), "committing a transaction")
        self._in_transaction = False
        self._check()


def commit_interval(worker: WorkerSettings, settings: Mapping[str, Any]) -> float:
    """Seconds between commits; 0: after each poll."""
    if not worker.exactly_once:
        return worker.flush_seconds
    if settings["transaction.boundary"] == "poll":
        return 0.0
    given = settings["transaction.boundary.interval.ms"]
    return worker.flush_seconds if given is None else given / 1000


def transactional_id(group: str, connector: str, task: int) -> str:
    """Kafka Connect's name for it."""
    return f"{group}-{connector}-{task}"


def _kafka(work: Any, doing: str) -> None:
    from confluent_kafka import KafkaException

    try:
        work()
    except KafkaException as error:
        raise ConnectError(f"{doing}: {error.args[0].str()}") from error


def create_topic(spec: TaskSpec, topic: str, settings: NewTopicSettings, *, at_most: bool = False) -> None:
    """Create a topic that is missing, so that a cluster without automatic creation serves as well."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(with_login({**spec.worker.client, "log_level": 0}))
    try:
        metadata = admin.list_topics(timeout=30)
        if topic in metadata.topics:
            return
        replicas = settings.replication_factor
        if at_most and replicas is not None:
            replicas = min(replicas, len(metadata.brokers))
        new = NewTopic(topic, settings.partitions or -1, replicas or -1, config=settings.config)
        admin.create_topics([new])[topic].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise ConnectError(f"the topic {topic} cannot be created: {error.args[0].str()}") from error
