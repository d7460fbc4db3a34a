"""Writes records of topics to a RabbitMQ exchange. The server confirms each one before offsets are committed.

Settings have the names of Confluent's RabbitMQ sink. A message that cannot be routed to a queue is a bad
record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pika

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    Importance,
    OneOf,
    Range,
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    parse,
)
from penstock.connect.connectors.amqp.channel import CONNECTION, ServerChannel, problem_with
from penstock.connect.connectors.payloads import filled, payload, placeholder_problem, text

_FIELDS = (
    *CONNECTION,
    Field(
        "rabbitmq.exchange",
        default="",
        doc="The exchange; default: RabbitMQ's own, which takes the name of a queue as routing key.",
        importance=Importance.HIGH,
    ),
    Field(
        "rabbitmq.routing.key",
        default="${topic}",
        doc="The routing key; ${topic} is the topic, ${key} the record's key.",
        importance=Importance.HIGH,
    ),
    Field(
        "rabbitmq.delivery.mode",
        default="PERSISTENT",
        doc="Whether RabbitMQ keeps messages on disk.",
        validator=OneOf("PERSISTENT", "NON_PERSISTENT"),
    ),
    Field(
        "rabbitmq.headers",
        ConfigType.LIST,
        (),
        "Headers of each message, as name:value.",
    ),
    Field(
        "rabbitmq.forward.kafka.key", ConfigType.BOOLEAN, False, "Add the record's key as header kafka.key."
    ),
    Field(
        "rabbitmq.forward.kafka.metadata",
        ConfigType.BOOLEAN,
        False,
        "Add the headers kafka.topic, kafka.partition and kafka.offset.",
    ),
    Field("rabbitmq.forward.kafka.headers", ConfigType.BOOLEAN, False, "Add the record's headers."),
    Field(
        "rabbitmq.publish.ack.timeout",
        ConfigType.INT,
        10_000,
        "How many ms RabbitMQ may take to confirm messages before they are sent again.",
        Range(1),
    ),
    Field(
        "rabbitmq.publish.max.batch.size", ConfigType.INT, 1000, "The most unconfirmed messages.", Range(1)
    ),
)

Message = tuple[SinkRecord, str, bytes, Any]
Place = tuple[str, int, int]


class AmqpSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._settings = parse(_FIELDS, config)
        self._most: int = self._settings["rabbitmq.publish.max.batch.size"]
        self._channel: ServerChannel | None = None
        self._raw: Any = None
        self._sent = 0
        # Confirmed records of a batch that is put again: they are not sent twice.
        self._confirmed: set[Place] = set()

    def put(self, records: list[SinkRecord]) -> None:
        for start in range(0, len(records), self._most):
            self._publish(
                [r for r in records[start : start + self._most] if _place(r) not in self._confirmed]
            )
        self._confirmed.clear()

    def _publish(self, records: list[SinkRecord]) -> None:
        messages: list[Message] = []
        for record in records:
            try:
                messages.append(self._message(record))
            except DataError as error:
                self.report(record, error)
                self._confirmed.add(_place(record))
        if not messages:
            return
        batch = _Batch(messages)
        try:
            self._connect(batch)
            assert self._channel is not None
            first, self._sent = self._sent + 1, self._sent + len(batch)
            self._channel.run(lambda: batch.send(self._raw, self._settings["rabbitmq.exchange"], first))
            self._await(self._channel, batch)
        except ConnectError:
            self.stop()
            raise
        finally:
            self._confirmed |= {_place(each) for each in batch.confirmed()}
        for record, problem in batch.returned:
            self.report(record, DataError(f"{self._channel.address}: {problem}"))

    def _message(self, record: SinkRecord) -> Message:
        settings = self._settings
        key = filled(settings["rabbitmq.routing.key"], record)
        if len(key.encode()) > 255:
            raise DataError(f"The routing key {key[:40]}... has more than 255 bytes")
        headers: dict[str, Any] = dict(
            [part.strip() for part in each.split(":", 1)] for each in settings["rabbitmq.headers"]
        )
        if settings["rabbitmq.forward.kafka.key"] and record.key is not None:
            headers["kafka.key"] = text(record.key_schema, record.key, "The key")
        if settings["rabbitmq.forward.kafka.metadata"]:
            headers |= {
                "kafka.topic": record.original_topic,
                "kafka.partition": record.original_partition,
                "kafka.offset": record.original_offset,
            }
        if settings["rabbitmq.forward.kafka.headers"]:
            for each in record.headers:
                headers[each.key] = None if each.value is None else text(each.schema, each.value, each.key)
        properties = pika.BasicProperties(
            headers=headers or None,
            message_id="-".join(str(part) for part in _place(record)),
            delivery_mode=2 if settings["rabbitmq.delivery.mode"] == "PERSISTENT" else 1,
            timestamp=None if record.timestamp is None else record.timestamp // 1000,
        )
        return record, key, payload(record.value_schema, record.value), properties

    def _connect(self, batch: _Batch) -> None:
        if self._channel is None or not self._channel.is_open:
            self.stop()
            self._channel = ServerChannel(self._config, self._opened)
        self._channel.wait()
        self._batch = batch

    def _opened(self, raw: Any) -> None:
        self._raw, self._sent = raw, 0
        raw.confirm_delivery(lambda frame: self._batch.answered(frame.method))
        raw.add_on_return_callback(
            lambda channel, method, properties, body: self._batch.came_back(method, properties)
        )

    def _await(self, channel: ServerChannel, batch: _Batch) -> None:
        seconds = self._settings["rabbitmq.publish.ack.timeout"] / 1000
        deadline = time.monotonic() + seconds
        while not batch.done.wait(0.2):
            if not channel.is_open:
                channel.wait()
            if time.monotonic() > deadline:
                why = f" ({channel.blocked})" if channel.blocked else ""
                raise RetriableError(
                    f"{channel.address} confirmed {batch.count()} of {len(batch)} messages "
                    f"in {seconds:g} s{why}"
                )
        if batch.refused:
            raise RetriableError(
                f"{channel.address} refused {len(batch.refused)} messages: a queue is full or not available"
            )

    def stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class _Batch:
    """Messages in flight. In each channel the server numbers them from 1, in the order in which they are
    sent.
    """

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._by_tag: dict[int, SinkRecord] = {}
        self._by_id = {each[3].message_id: each[0] for each in messages}
        self._acknowledged: list[SinkRecord] = []
        self.returned: list[tuple[SinkRecord, str]] = []
        self.refused: list[SinkRecord] = []
        self.done = threading.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def count(self) -> int:
        return len(self._acknowledged)

    def confirmed(self) -> list[SinkRecord]:
        """The records whose messages are in a queue."""
        returned = {_place(record) for record, _ in self.returned}
        return [each for each in self._acknowledged if _place(each) not in returned]

    # In the thread of the channel

    def send(self, raw: Any, exchange: str, first: int) -> None:
        for tag, (record, key, body, properties) in enumerate(self._messages, first):
            self._by_tag[tag] = record
            raw.basic_publish(exchange, key, body, properties, mandatory=True)

    def came_back(self, method: Any, properties: Any) -> None:
        """Called before the confirmation of the same message."""
        record = self._by_id[properties.message_id]
        self.returned.append((record, f"no queue takes the message: {method.reply_text}"))

    def answered(self, method: Any) -> None:
        tag = method.delivery_tag
        tags = [each for each in self._by_tag if each <= tag] if method.multiple else [tag]
        ok = isinstance(method, pika.spec.Basic.Ack)
        for each in tags:
            record = self._by_tag.pop(each, None)
            if record is not None:
                (self._acknowledged if ok else self.refused).append(record)
        if not self._by_tag:
            self.done.set()


def _place(record: SinkRecord) -> Place:
    return record.original_topic, record.original_partition, record.original_offset


class AmqpSink(SinkConnector):
    """Sends messages to a RabbitMQ exchange."""

    task_class = AmqpSinkTask
    aliases = ("io.confluent.connect.rabbitmq.sink.RabbitMQSinkConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        problem = placeholder_problem("rabbitmq.routing.key", settings["rabbitmq.routing.key"])
        if problem:
            return {"rabbitmq.routing.key": problem}
        for each in settings["rabbitmq.headers"]:
            if ":" not in each:
                return {
                    "rabbitmq.headers": [f"Invalid value {each} for configuration rabbitmq.headers: no colon"]
                }

        def look(channel: Any, done: Callable[[Any], None]) -> None:
            if settings["rabbitmq.exchange"]:
                channel.exchange_declare(settings["rabbitmq.exchange"], passive=True, callback=done)
            else:
                done(None)

        return problem_with(config, "rabbitmq.exchange", look)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self.config) for _ in range(max_tasks)]
