"""The Kafka clients of a task, with settings in Java's names or librdkafka's.

The worker's own settings come first, then its `producer.` and `consumer.`, then `producer.override.` and
`consumer.override.` of the connector.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.client.errors import BadClientSetting
from penstock.client.librdkafka import with_login
from penstock.client.librdkafka_names import translate
from penstock.client.partitioning import KEY_PARTITIONER
from penstock.connect.errors import ConnectError
from penstock.connect.transforms.chain import prefixed

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

log = logging.getLogger(__name__)
librdkafka_log = logging.getLogger("penstock.connect.librdkafka")
librdkafka_log.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a task must know of its worker; from the JSON that the worker sends."""

    client: Mapping[str, str]
    """librdkafka's, `bootstrap.servers` among them."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The worker's, in Kafka's names: converters, `producer.`, `consumer.`, `offset.flush.interval.ms`."""
    group: str = "connect-cluster"
    offsets_topic: str | None = "connect-offsets"
    offsets_directory: str | None = None
    """Of a standalone worker, in place of the topic."""
    exactly_once: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> WorkerSettings:
        return cls(**message)

    @property
    def flush_seconds(self) -> float:
        return float(self.properties.get("offset.flush.interval.ms", 60_000)) / 1000

    def setting(self, config: Mapping[str, str], name: str, default: str) -> tuple[str, dict[str, str]]:
        """A converter's class and its own settings: the connector's, or the worker's where it has none."""
        found = config if config.get(name) else self.properties
        return found.get(name) or default, prefixed(found, f"{name}.")


def _translated(settings: Mapping[str, str]) -> dict[str, str]:
    try:
        return translate(settings)
    except BadClientSetting as error:
        raise ConnectError(str(error).replace("kafka.", "", 1)) from error


def on_error(error: Any) -> None:
    log.debug("librdkafka: %s", error.str())


def make_producer(
    worker: WorkerSettings, config: Mapping[str, str], client_id: str, more: Mapping[str, Any] | None = None
) -> Producer:
    from confluent_kafka import KafkaException
    from confluent_kafka import Producer as KafkaProducer

    own = {
        **_translated(prefixed(worker.properties, "producer.")),
        **_translated(prefixed(config, "producer.override.")),
    }
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
                    # As Kafka Connect: a record is tried for as long as the task runs.
                    "message.timeout.ms": 0,
                    "message.max.bytes": 64 << 20,
                    "delivery.report.only.error": True,
                    "reconnect.backoff.max.ms": 1000,
                    **own,
                    **(more or {}),
                    "error_cb": on_error,
                }
            ),
            logger=librdkafka_log,
        )
    except KafkaException as error:
        raise ConnectError(f"producer settings: {error.args[0].str()}") from error


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
                    # A task that is slow holds no more than this.
                    "queued.max.messages.kbytes": 16_384,
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
    settings.pop("max.poll.records", None)  # the task's own loop has it
    return settings
