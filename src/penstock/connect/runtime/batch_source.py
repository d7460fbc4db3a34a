"""A source task with whole record batches: written unchanged, with their source offsets.

As in `source.py`, exactly once is one transaction of records and offsets under a transactional id of the
task; otherwise offsets are written when the records are durable. Errors of the target cluster do not fail the
task: the transaction is aborted and the task continues from the committed offsets.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from penstock.client import ClientError, ClientSettings
from penstock.client.batch_producer import BatchProducer, NewBatch, SentBatch
from penstock.client.errors import AuthenticationFailed, BadClientSetting, TlsFailed
from penstock.client.partitioning import partition_for_key
from penstock.client.settings import kafka_names
from penstock.connect import plugins
from penstock.connect.api import BatchSourceTask, RawBatch, SourceConnector, SourceOffset, SourcePartition
from penstock.connect.errors import ConnectError, RetriableError
from penstock.connect.providers import resolve
from penstock.connect.runtime.clients import transaction_timeout_ms
from penstock.connect.runtime.definitions import COMMON, SOURCE
from penstock.connect.runtime.offsets import key_text, read_offsets, value_text, write_files
from penstock.connect.runtime.task import RetriedCalls, TaskSpec
from penstock.connect.runtime.transactions import commit_interval, transactional_id
from penstock.connect.settings import parse
from penstock.connect.transforms.chain import prefixed
from penstock.errors import ApiError, OutOfOrderSequenceNumber, UnknownProducerId
from penstock.wire.batches.records import Record, build_batch

log = logging.getLogger(__name__)
_MOST_BYTES = 32 << 20  # of a transaction, so that it is short and cheap to repeat
_LOST_PLACE = (OutOfOrderSequenceNumber, UnknownProducerId)
_FATAL = (AuthenticationFailed, BadClientSetting, TlsFailed)


class BatchRunner:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        plugin = plugins.connector(spec.connector_config["connector.class"])
        assert issubclass(plugin, SourceConnector) and issubclass(plugin.task_class, BatchSourceTask)
        self._config = {**plugin.defaults, **resolve(spec.connector_config)}
        self._settings = parse(COMMON + SOURCE, self._config)
        self._task: BatchSourceTask = plugin.task_class()
        self._started = False
        self._exactly_once = spec.worker.exactly_once
        self._pending: dict[str, tuple[SourcePartition, SourceOffset]] = {}
        self._sent: list[tuple[RawBatch, SentBatch]] = []
        self._bytes = 0
        self._topics: set[str] = set()
        self._offset_partitions: int | None = None
        self._producer = self._make_producer()

    def _make_producer(self) -> BatchProducer:
        spec = self._spec
        client = kafka_names(
            {
                **spec.worker.client,
                **prefixed(spec.worker.properties, "producer."),
                **prefixed(self._config, "producer.override."),
            }
        )
        client["client.id"] = f"connector-producer-{spec.connector}-{spec.task}"
        name = transactional_id(spec.worker.group, spec.connector, spec.task) if self._exactly_once else None
        timeout = transaction_timeout_ms(spec.worker, self._config)
        return BatchProducer(ClientSettings.from_kafka(client), name, transaction_timeout_ms=timeout)

    def run(self) -> None:
        spec = self._spec
        backoff = RetriedCalls(spec)
        try:
            while not spec.stopping.is_set():
                try:
                    self._begin()
                    backoff.succeeded()
                    spec.channel.send("running")
                    self._loop(backoff)
                except (ClientError, ApiError) as error:
                    if not _passes(error):
                        raise ConnectError(f"writing to the target cluster: {error}") from error
                    log.warning("the cluster that is written to failed, repeating: %s", error)
                    backoff.wait(error)
                finally:
                    self._end_task()
        finally:
            self._producer.close()

    def _begin(self) -> None:
        """Fence earlier runs, discard uncommitted data, and start from the committed offsets."""
        self._pending.clear()
        self._sent.clear()
        self._bytes = 0
        self._producer.start()
        # After fencing: everything that an earlier run committed is visible, and it can commit no more.
        offsets = read_offsets(self._spec.worker, self._spec.connector)
        self._started = True
        self._task.start(resolve(self._spec.config), offsets)

    def _end_task(self) -> None:
        if self._started:
            self._started = False
            self._task.stop()

    def _loop(self, backoff: RetriedCalls) -> None:
        spec = self._spec
        interval = commit_interval(spec.worker, self._config, self._settings)
        due = time.monotonic() + interval
        while not spec.stopping.is_set():
            if spec.paused.is_set():
                self._commit()
                spec.wait_while_paused()
                continue
            try:
                batches = self._task.poll_batches()
            except RetriableError as error:
                self._commit()
                backoff.wait(error)
                continue
            backoff.succeeded()
            if batches:
                self._write(batches)
            now = time.monotonic()
            if now >= due or self._bytes >= _MOST_BYTES:
                self._commit()
                due = now + interval
        self._commit()

    def _write(self, batches: list[RawBatch]) -> None:
        topics = {each.topic for each in batches} - self._topics
        if topics:
            self._topics |= topics
            self._spec.channel.send("topics", topics=sorted(topics))
        sent = self._producer.write([NewBatch(each.topic, each.partition, each.data) for each in batches])
        for batch, on_its_way in zip(batches, sent, strict=True):
            self._sent.append((batch, on_its_way))
            self._bytes += len(batch.data)
            key = key_text(self._spec.connector, batch.source_partition)
            self._pending[key] = (batch.source_partition, batch.source_offset)

    def _commit(self) -> None:
        if not self._pending:
            return
        spec, pairs = self._spec, list(self._pending.values())
        if self._exactly_once:
            self._producer.write(self._offset_batches())
            self._producer.commit()
        else:
            self._producer.flush()
            if spec.worker.offsets_directory is not None:
                write_files(Path(spec.worker.offsets_directory), spec.connector, pairs)
            else:
                self._producer.write(self._offset_batches())
                self._producer.flush()
        written = [(batch, on_its_way.base_offset) for batch, on_its_way in self._sent]
        self._pending.clear()
        self._sent.clear()
        self._bytes = 0
        self._task.written(written)
        self._task.commit(pairs)

    def _offset_batches(self) -> list[NewBatch]:
        topic = self._spec.worker.offsets_topic
        if topic is None:
            raise ConnectError("a standalone worker keeps offsets in files: it cannot deliver exactly once")
        if self._offset_partitions is None:
            self._offset_partitions = self._producer.cluster.partitions([topic])[topic].partition_count
        count = self._offset_partitions
        now = int(time.time() * 1000)
        records: dict[int, list[Record]] = {}
        for key, (_, offset) in self._pending.items():
            value = value_text(offset)
            raw = key.encode()
            record = Record(0, now, raw, None if value is None else value.encode())
            records.setdefault(partition_for_key(raw, count), []).append(record)
        return [NewBatch(topic, partition, build_batch(each)) for partition, each in records.items()]


def _passes(error: ClientError | ApiError) -> bool:
    """Whether a restart may help. Being fenced by another run is final."""
    if isinstance(error, ApiError):
        return error.retriable or isinstance(error, _LOST_PLACE)
    return not isinstance(error, _FATAL)
