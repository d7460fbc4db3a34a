"""A source task: polls, converts, produces, and commits offsets when the records before them are durable.

At least once by default: records are flushed, then offsets written. With exactly once (KIP-618) both are in
one transaction, under a transactional id that belongs to the task, so that starting it fences an earlier run.
If a task acknowledges records to its source, each batch is committed before the next poll. An unavailable
cluster does not fail the task: it starts again from the committed offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from penstock.client.errors import AuthenticationFailed, BadClientSetting, ClientError, TlsFailed
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
from penstock.connect.runtime.clients import (
    ClusterAway,
    cluster_error,
    make_producer,
    transaction_timeout_ms,
)
from penstock.connect.runtime.conversion import Conversion, Encoded, EncodedBatch
from penstock.connect.runtime.definitions import COMMON, SOURCE
from penstock.connect.runtime.offsets import key_text, read_offsets, value_text, write_files
from penstock.connect.runtime.task import RetriedCalls, TaskSpec
from penstock.connect.runtime.tolerance import Tolerance
from penstock.connect.runtime.topic_creation import NewTopicSettings, settings_for
from penstock.connect.runtime.transactions import commit_interval, transactional_id
from penstock.connect.settings import parse

log = logging.getLogger(__name__)
_IDLE_SECONDS = 0.05
T = TypeVar("T")


class SourceRunner:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        plugin = plugins.connector(spec.connector_config["connector.class"])
        assert issubclass(plugin, SourceConnector)
        self._config = {**plugin.defaults, **resolve(spec.connector_config)}
        self._settings = parse(COMMON + SOURCE, self._config)
        self._task_class = plugin.task_class
        self._acknowledges = plugin.task_class.acknowledge is not SourceTask.acknowledge
        self._topics: set[str] = set()
        tolerance = Tolerance(spec.connector, spec.task, self._settings, stopping=spec.stopping.wait)
        self._tolerance = tolerance
        self._conversion = Conversion(spec.worker, self._config, tolerance)
        self._exactly_once = spec.worker.exactly_once
        self._transaction_seconds = transaction_timeout_ms(spec.worker, self._config) / 1000
        # Records that the source waits to acknowledge are committed with each poll.
        interval = commit_interval(spec.worker, self._config, self._settings)
        self._interval = 0.0 if self._acknowledges else interval
        self._task: SourceTask | None = None

    def run(self) -> None:
        backoff = RetriedCalls(self._spec)
        try:
            while not self._spec.stopping.is_set():
                try:
                    self._begin(backoff)
                    self._loop(backoff)
                except ClusterAway as error:
                    log.warning("the cluster is away, beginning again: %s", error)
                    backoff.wait(error)
                finally:
                    self._end_task()
        finally:
            self._conversion.close()

    def _begin(self, backoff: RetriedCalls) -> None:
        """Fence earlier runs, discard uncommitted data, and start from the committed offsets."""
        spec = self._spec
        self._failures: list[Any] = []
        self._pending: dict[str, tuple[SourcePartition, SourceOffset]] = {}
        self._unacknowledged: list[SourceRecord] = []
        self._in_transaction = False
        name = transactional_id(spec.worker.group, spec.connector, spec.task)
        self._producer = make_producer(
            spec.worker,
            self._config,
            f"connector-producer-{spec.connector}-{spec.task}",
            self._delivered,
            transactional_id=name if self._exactly_once else None,
        )
        if self._exactly_once:
            seconds = self._transaction_seconds
            _kafka(lambda: self._producer.init_transactions(seconds), "fencing earlier tasks")
        # After fencing: everything that an earlier run committed is visible, and it can commit no more.
        offsets = _kafka(lambda: read_offsets(spec.worker, spec.connector), "reading the offsets")
        task = self._task_class()
        task.show_progress = lambda progress: spec.channel.send("progress", progress=progress)
        self._task = task
        task.start(resolve(spec.config), offsets)
        backoff.succeeded()
        spec.channel.send("running")

    def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.stop()

    def _loop(self, backoff: RetriedCalls) -> None:
        spec, task, interval = self._spec, self._task, self._interval
        assert task is not None
        due = time.monotonic() + interval
        while not spec.stopping.is_set():
            if spec.paused.is_set():
                self._commit(task)
                spec.wait_while_paused()
                continue
            begun = time.monotonic()
            try:
                records = task.poll()
            except RetriableError as error:
                # Do not delay the records already read, and leave no transaction open meanwhile.
                self._commit(task)
                self._producer.poll(0)
                self._check()
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
                spec.stopping.wait(_IDLE_SECONDS)  # a source that does not block must not use a whole core
            now = time.monotonic()
            if now >= due or interval == 0:
                self._commit(task)
                due = now + interval
        self._commit(task)

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
            # Most batches have one source partition: its offset is taken once, from the last record.
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
                if self._in_transaction and error.args[0].name() == "_STATE":
                    self._fail_transaction()
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
            raise cluster_error(f"a record for topic {topic} was not delivered", error)

    # Offsets

    def _commit(self, task: SourceTask) -> None:
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
            task.commit(pairs)
        if self._unacknowledged:
            records, self._unacknowledged = self._unacknowledged, []
            task.acknowledge(records)

    def _write_offsets(self, pending: dict[str, tuple[SourcePartition, SourceOffset]]) -> None:
        from confluent_kafka import KafkaException

        topic = self._spec.worker.offsets_topic
        assert topic is not None
        for key, (_, offset) in pending.items():
            while True:
                try:
                    self._producer.produce(topic, value_text(offset), key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._check()
                    if self._spec.abandoned():
                        raise ConnectError("the task was stopped while the cluster took no offsets") from None
                except KafkaException as error:
                    if self._exactly_once:
                        self._fail_transaction()
                    raise cluster_error("writing offsets", error.args[0]) from error

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
        self._end_transaction()
        self._in_transaction = False
        self._check()

    def _end_transaction(self) -> None:
        seconds = self._transaction_seconds
        _kafka(lambda: self._producer.commit_transaction(seconds), "committing a transaction")

    def _fail_transaction(self) -> None:
        """It accepts no more records; the commit raises the reason."""
        self._check()
        self._end_transaction()


def _kafka(work: Callable[[], T], doing: str) -> T:
    from confluent_kafka import KafkaException

    try:
        return work()
    except KafkaException as error:
        raise cluster_error(doing, error.args[0]) from error
    except (AuthenticationFailed, BadClientSetting, TlsFailed) as error:
        raise ConnectError(f"{doing}: {error}") from error
    except ClientError as error:
        raise ClusterAway(f"{doing}: {error}") from error


def create_topic(spec: TaskSpec, topic: str, settings: NewTopicSettings, *, at_most: bool = False) -> None:
    """Create a missing topic, so that a cluster without automatic creation works as well."""
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
            raise cluster_error(f"the topic {topic} cannot be created", error.args[0]) from error
