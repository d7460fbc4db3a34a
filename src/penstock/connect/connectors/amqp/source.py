"""Reads messages of RabbitMQ queues into a topic, and acknowledges them when their records are durable in
Kafka.

Unacknowledged messages return to their queue when the task ends or its connection is lost. Settings have the
names of Confluent's RabbitMQ source.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.connect.api import (
    BYTES_SCHEMA,
    INT32_SCHEMA,
    STRING_SCHEMA,
    ConfigType,
    Field,
    Header,
    Importance,
    NonEmpty,
    OffsetsReader,
    Range,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.amqp.channel import CONNECTION, ServerChannel, problem_with

_FIELDS = (
    *CONNECTION,
    Field(
        "rabbitmq.queue",
        ConfigType.LIST,
        doc="The queues to read. They must exist.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field("kafka.topic", doc="The topic of the records.", validator=NonEmpty(), importance=Importance.HIGH),
    Field(
        "rabbitmq.prefetch.count",
        ConfigType.INT,
        500,
        "The most messages of a queue between RabbitMQ and Kafka; past it the queue waits.",
        Range(1, 65535),
    ),
)
_WAIT_SECONDS = 0.5
_PROPERTIES = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type",
    "user_id", "app_id",
)  # fmt: skip

Delivery = tuple[Any, Any, bytes]


class AmqpSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(_FIELDS, config)
        self._config = dict(config)
        self._queues: list[str] = list(settings["rabbitmq.queue"])
        self._topic: str = settings["kafka.topic"]
        self._prefetch: int = settings["rabbitmq.prefetch.count"]
        self._channel: ServerChannel | None = None
        self._raw: Any = None
        self._arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._last_tag = 0

    def poll(self) -> list[SourceRecord]:
        if self._channel is None or not self._channel.is_open:
            self._connect()
        found: list[Delivery] = []
        try:
            found.append(self._arrived.get(timeout=_WAIT_SECONDS))
            while len(found) < self._prefetch:
                found.append(self._arrived.get_nowait())
        except queue.Empty:
            pass
        if found:
            self._last_tag = found[-1][0].delivery_tag
        return [self._record(*each) for each in found]

    def _connect(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            channel.close()
            channel.wait()  # raises why the last channel ended, so that the status shows it
        # Messages that the last connection delivered and that were not polled are delivered again.
        arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()

        def consume(raw: Any) -> None:
            self._raw = raw
            raw.basic_qos(prefetch_count=self._prefetch)
            for each in self._queues:
                raw.basic_consume(
                    each, lambda _, method, properties, body: arrived.put((method, properties, body))
                )

        self._arrived = arrived
        self._channel = ServerChannel(self._config, consume)
        self._channel.wait()

    def _record(self, method: Any, properties: Any, body: bytes) -> SourceRecord:
        headers = [
            Header("rabbitmq.exchange", method.exchange, STRING_SCHEMA),
            Header("rabbitmq.routing.key", method.routing_key, STRING_SCHEMA),
        ]
        if properties.delivery_mode is not None:
            headers.append(Header("rabbitmq.delivery.mode", properties.delivery_mode, INT32_SCHEMA))
        for name in _PROPERTIES:
            value = getattr(properties, name)
            if value is not None:
                headers.append(Header(f"rabbitmq.{name.replace('_', '.')}", value, STRING_SCHEMA))
        for name, value in (properties.headers or {}).items():
            headers.append(Header(f"rabbitmq.{name}", value))
        moment = properties.timestamp
        return SourceRecord(
            self._topic,
            body,
            method.routing_key,
            BYTES_SCHEMA,
            STRING_SCHEMA,
            headers=tuple(headers),
            timestamp=int(time.time() * 1000) if moment is None else int(moment) * 1000,
        )

    def acknowledge(self, records: Sequence[SourceRecord]) -> None:
        """Acknowledge everything up to the last polled message. Delivery tags belong to a channel: a closed
        one accepts none.
        """
        if self._channel is not None:
            raw, tag = self._raw, self._last_tag
            self._channel.run(lambda: raw.basic_ack(tag, multiple=True))

    def stop(self) -> None:
        if self._channel is not None:
            self._channel.close()


class AmqpSource(SourceConnector):
    """Messages of RabbitMQ queues. Several tasks share the messages of each queue."""

    task_class = AmqpSourceTask
    aliases = ("io.confluent.connect.rabbitmq.RabbitMQSourceConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        queues: list[str] = parse(cls.fields, config)["rabbitmq.queue"]

        def look(channel: Any, done: Callable[[Any], None]) -> None:
            for each in queues[:-1]:
                channel.queue_declare(each, passive=True, callback=lambda frame: None)
            channel.queue_declare(queues[-1], passive=True, callback=done)

        return problem_with(config, "rabbitmq.queue", look)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self.config) for _ in range(max_tasks)]
