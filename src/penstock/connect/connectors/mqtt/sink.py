"""Sends records of topics as messages to an MQTT server. The server acknowledges each one before offsets are
committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from paho.mqtt.enums import MQTTErrorCode

from penstock.connect.api import (
    ConfigType,
    DataError,
    Field,
    Importance,
    NonEmpty,
    OneOf,
    Range,
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    parse,
)
from penstock.connect.connectors.mqtt.connection import CONNECTION, MqttConnection, problem_with
from penstock.connect.connectors.payloads import filled, payload, placeholder_problem

_FIELDS = (
    *CONNECTION,
    Field(
        "mqtt.topic",
        default="${topic}",
        doc="The topic of the messages; ${topic} is Kafka's topic, ${key} the record's key.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field(
        "mqtt.qos",
        default="1",
        doc="The quality of service. 0: messages may be lost; 1 and 2: at least once.",
        validator=OneOf("0", "1", "2"),
    ),
    Field("mqtt.retained.enabled", ConfigType.BOOLEAN, False, "Whether messages are retained."),
    Field(
        "mqtt.publish.timeout.ms",
        ConfigType.LONG,
        30_000,
        "How long the server may take to acknowledge messages before they are sent again.",
        Range(1),
    ),
)
_MOST_AT_ONCE = 1000
_OVERHEAD = 64  # per message, in addition to topic and payload


class MqttSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        settings = parse(_FIELDS, config)
        self._config = dict(config)
        self._topic: str = settings["mqtt.topic"]
        self._qos = int(settings["mqtt.qos"])
        self._retain: bool = settings["mqtt.retained.enabled"]
        self._seconds: float = settings["mqtt.publish.timeout.ms"] / 1000
        self._connect_seconds: float = settings["mqtt.connect.timeout.seconds"]
        self._connection: MqttConnection | None = None
        self._most_bytes: int | None = None
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()

    def put(self, records: list[SinkRecord]) -> None:
        for start in range(0, len(records), _MOST_AT_ONCE):
            try:
                self._publish(records[start : start + _MOST_AT_ONCE])
            except RetriableError:
                # A client keeps unacknowledged messages and would send them again in addition to the next
                # attempt.
                self.stop()
                raise

    def _publish(self, records: list[SinkRecord]) -> None:
        connection = self._connected()
        self._answers.clear()
        sent: dict[int, SinkRecord] = {}
        bad: list[tuple[SinkRecord, DataError]] = []
        for record in records:
            try:
                topic, data = filled(self._topic, record), payload(record.value_schema, record.value)
                self._check(topic, data)
            except DataError as error:
                bad.append((record, error))
                continue
            info = connection.client.publish(topic, data, self._qos, self._retain)
            if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise RetriableError(f"{connection.address}: {info.rc.name}")
            sent[info.mid] = record
        self._await(connection, sent)
        for mid, record in sent.items():
            reason = self._answers.get(mid)
            if reason is not None and reason.is_failure:
                bad.append((record, DataError(f"{connection.address} refused the message: {reason}")))
        for record, problem in bad:
            self.report(record, problem)

    def _check(self, topic: str, data: bytes) -> None:
        if not topic or any(each in topic for each in "+#\0") or len(topic.encode()) > 65535:
            raise DataError(
                f"{topic!r} cannot be the topic of a message: it is empty, too long, or has + or #"
            )
        size = len(topic.encode()) + len(data) + _OVERHEAD
        if self._most_bytes is not None and size > self._most_bytes:
            raise DataError(f"The message has {size} bytes; the server takes at most {self._most_bytes}")

    def _await(self, connection: MqttConnection, sent: Mapping[int, SinkRecord]) -> None:
        deadline = time.monotonic() + self._seconds
        with self._answered:
            while not sent.keys() <= self._answers.keys():
                left = deadline - time.monotonic()
                if left <= 0 or not connection.connected:
                    missing = len(sent.keys() - self._answers.keys())
                    why = f"{missing} messages were not acknowledged"
                    raise RetriableError(f"{connection.address}: {why}")
                self._answered.wait(min(left, 0.2))

    def _connected(self) -> MqttConnection:
        if self._connection is None:
            self._connection = MqttConnection(self._config, clean=True, on_connect=self._limits)
            self._connection.client.on_publish = self._publish_answered
            self._connection.open()
        self._connection.wait(self._connect_seconds)
        return self._connection

    # In the thread of the client

    def _limits(self, session_present: bool, properties: Any) -> None:
        self._most_bytes = getattr(properties, "MaximumPacketSize", None)

    def _publish_answered(self, client: Any, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._answered:
            self._answers[mid] = reason
            self._answered.notify_all()

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class MqttSink(SinkConnector):
    """Sends messages to an MQTT server."""

    task_class = MqttSinkTask
    aliases = ("io.confluent.connect.mqtt.MqttSinkConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        problem = placeholder_problem("mqtt.topic", parse(cls.fields, config)["mqtt.topic"])
        return {"mqtt.topic": problem} if problem else problem_with(config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self.config, "task.id": str(number)} for number in range(max_tasks)]
