"""The Kafka clients of a task, with settings in Java's or librdkafka's names.

The worker's own settings come first, then its `producer.` and `consumer.`, then the connector's
`producer.override.` and `consumer.override.`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.client.errors import BadClientSetting
from penstock.client.librdkafka import PROMPT_FETCH, with_login
from penstock.client.librdkafka_names import translate
from penstock.client.partitioning import KEY_PARTITIONER
from penstock.connect.errors import ConnectError
from penstock.connect.transforms.chain import prefixed

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

log = logging.getLogger(__name__)
librdkafka_log = logging.getLogger("penstock.connect.librdkafka")
librdkafka_log.setLevel(logging.ERROR)
_TRANSACTION_MS = 60_000
_RECORD_BYTES = 64 << 20
_BUFFER_KB = 64 << 10
_QUEUE = "queue.buffering.max.kbytes"
# librdkafka's errors while brokers are down or new leaders are elected.
_PASSING = frozenset({
    "_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT", "_PURGE_INFLIGHT", "_PURGE_QUEUE", "_RESOLVE", "_TIMED_OUT",
    "_TIMED_OUT_QUEUE", "_TRANSPORT", "_WAIT_COORD", "BROKER_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The worker's settings that a task needs, from the JSON that the worker sends."""

    client: Mapping[str, str]
    """librdkafka's settings, including `bootstrap.servers`."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The worker's, with Kafka's names: converters, `producer.`, `consumer.`, `offset.flush.interval.ms`."""
    group: str = "connect-cluster"
    offsets_topic: str | None = "connect-offsets"
    offsets_directory: str | None = None
    """For a standalone worker, instead of the topic."""
    exactly_once: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> WorkerSettings:
        return cls(**message)

    @property
    def flush_seconds(self) -> float:
        return float(self.properties.get("offset.flush.interval.ms", 60_000)) / 1000

    def setting(self, config: Mapping[str, str], name: str, default: str) -> tuple[str, dict[str, str]]:
        """A converter's class and its settings: the connector's, or else the worker's."""
        found = config if config.get(name) else self.properties
        return found.get(name) or default, prefixed(found, f"{name}.")


def _translated(settings: Mapping[str, str]) -> dict[str, str]:
    try:
        return translate(settings)
    except BadClientSetting as error:
        raise ConnectError(str(error).replace("kafka.", "", 1)) from error


class ClusterAway(ConnectError):
    """The cluster does not respond: a source task aborts its transaction, and starts again when it does."""


def cluster_error(doing: str, error: Any) -> ConnectError:
    """The exception for a KafkaError."""
    kind = ClusterAway if not error.fatal() and _passes(error) else ConnectError
    return kind(f"{doing}: {error.str()}")


def _passes(error: Any) -> bool:
    return error.retriable() or error.name() in _PASSING


def on_error(error: Any) -> None:
    log.debug("librdkafka: %s", error.str())


def make_producer(
    worker: WorkerSettings,
    config: Mapping[str, str],
    client_id: str,
    on_delivery: Callable[[Any, Any], None] | None = None,
    *,
    transactional_id: str | None = None,
    message_timeout_ms: int | None = None,
) -> Producer:
    """`message_timeout_ms` limits how long a record is retried, whatever the settings say."""
    from confluent_kafka import KafkaException
    from confluent_kafka import Producer as KafkaProducer

    own = _own_of_producer(worker, config)
    limits = [] if message_timeout_ms is None else [message_timeout_ms]
    if transactional_id is not None:
        timeout = transaction_timeout_ms(worker, config)
        own |= {"transactional.id": transactional_id, "transaction.timeout.ms": str(timeout)}
        limits.append(timeout)  # librdkafka wants it: a record that is late is late for its transaction
    if limits:
        given = int(own.get("message.timeout.ms", 0))
        own["message.timeout.ms"] = str(min(limits + ([given] if given else [])))
    try:
        return KafkaProducer(
            with_login(
                {
                    **worker.client,
                    "client.id": client_id,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 5,
                    "partitioner": KEY_PARTITIONER,
                    "queue.buffering.max.messages": 500_000,
                    # As in Kafka Connect: a record is retried for as long as the task runs.
                    "message.timeout.ms": 0,
                    **_sizes(own),
                    "delivery.report.only.error": True,
                    "reconnect.backoff.max.ms": 1000,
                    **own,
                    **({} if on_delivery is None else {"on_delivery": on_delivery}),
                    "error_cb": on_error,
                }
            ),
            logger=librdkafka_log,
        )
    except KafkaException as error:
        raise ConnectError(f"producer settings: {error.args[0].str()}") from error


def _own_of_producer(worker: WorkerSettings, config: Mapping[str, str]) -> dict[str, str]:
    given = {**prefixed(worker.properties, "producer."), **prefixed(config, "producer.override.")}
    own = _translated(given)
    for name in ("message.timeout.ms", "message.max.bytes", _QUEUE):
        if name in own:
            _number(name, own[name])
    if "buffer.memory" in given:
        own.setdefault(_QUEUE, str(max(1, _number("buffer.memory", given["buffer.memory"]) // 1024)))
    return own


def _sizes(own: Mapping[str, str]) -> dict[str, int]:
    """The buffer of a task while the cluster is slow, and its largest record, which has to fit into the
    buffer.
    """
    record = int(own.get("message.max.bytes", _RECORD_BYTES))
    queue = int(own.get(_QUEUE, max(_BUFFER_KB, record // 1024 + 1)))
    return {_QUEUE: queue, "message.max.bytes": min(record, queue * 1024)}


def transaction_timeout_ms(worker: WorkerSettings, config: Mapping[str, str]) -> int:
    """The transaction timeout of a task: how long the cluster waits before it aborts a transaction."""
    name = "transaction.timeout.ms"
    given = config.get(f"producer.override.{name}") or worker.properties.get(f"producer.{name}")
    return _TRANSACTION_MS if given is None else _number(name, given)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConnectError(f"producer settings: {name}={text} is not a whole number") from None


def make_consumer(
    worker: WorkerSettings, config: Mapping[str, str], client_id: str, more: Mapping[str, Any]
) -> Consumer:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import KafkaException

    own = {
        **_translated(_for_consumers(prefixed(worker.properties, "consumer."))),
        **_translated(_for_consumers(prefixed(config, "consumer.override."))),
    }
    try:
        return KafkaConsumer(
            with_login(
                {
                    **worker.client,
                    "client.id": client_id,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_uncommitted",
                    "fetch.wait.max.ms": 100,
                    "reconnect.backoff.max.ms": 1000,
                    # A slow task buffers no more than this.
                    "queued.max.messages.kbytes": 16_384,
                    **PROMPT_FETCH,
                    **own,
                    **more,
                    "error_cb": on_error,
                }
            ),
            logger=librdkafka_log,
        )
    except KafkaException as error:
        raise ConnectError(f"consumer settings: {error.args[0].str()}") from error


def _for_consumers(settings: dict[str, str]) -> dict[str, str]:
    settings.pop("max.poll.records", None)  # the task's own loop applies it
    return settings
