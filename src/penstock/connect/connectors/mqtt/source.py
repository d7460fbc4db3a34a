"""Reads messages of MQTT topics into a Kafka topic.

The session at the server outlives the task, and a message is acknowledged when its record is durable in
Kafka: other messages are delivered again. Settings have the names of Confluent's MQTT source.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.connect.api import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    INT32_SCHEMA,
    STRING_SCHEMA,
    ConfigType,
    Field,
    Header,
    Importance,
    NonEmpty,
    OffsetsReader,
    OneOf,
    Range,
    SourceConnector,
    SourceRecord,
    SourceTask,
    parse,
)
from penstock.connect.connectors.mqtt.connection import CONNECTION, MqttConnection, problem_with

_FIELDS = (
    *CONNECTION,
    Field(
        "mqtt.topics",
        ConfigType.LIST,
        doc="The topics to subscribe to; + and # are MQTT's wildcards.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field("kafka.topic", default="mqtt", doc="The topic of the records.", importance=Importance.HIGH),
    Field(
        "mqtt.qos",
        default="1",
        doc="0: messages may be lost. 1 and 2: at least once; 2 is subscribed to with quality of service 1.",
        validator=OneOf("0", "1", "2"),
    ),
    Field(
        "mqtt.clean.session.enabled",
        ConfigType.BOOLEAN,
        False,
        "Whether the server forgets the session when the task is not connected, and with it messages.",
    ),
    Field("mqtt.retained.enabled", ConfigType.BOOLEAN, True, "Whether retained messages are read."),
    Field(
        "records.buffer.queue.size",
        ConfigType.INT,
        1000,
        "The most messages between MQTT and Kafka; past it the server must wait.",
        Range(1, 65535),
    ),
)
_WAIT_SECONDS = 0.5
_SUBSCRIBE_REFUSED = 0x80


class _Message:
    __slots__ = ("connection", "message", "time")

    def __init__(self, message: Any, connection: int, time: int) -> None:
        self.message, self.connection, self.time = message, connection, time


class MqttSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(_FIELDS, config)
        self._filters: list[str] = list(settings["mqtt.topics"])
        self._topic: str = settings["kafka.topic"]
        self._qos = min(int(settings["mqtt.qos"]), 1)
        self._retained: bool = settings["mqtt.retained.enabled"]
        self._most: int = settings["records.buffer.queue.size"]
        self._queue: queue.Queue[_Message] = queue.Queue(self._most)
        self._unacknowledged: list[_Message] = []
        # Message ids belong to a connection: a message from another connection is not acknowledged on this
        # one.
        self._number = 0
        self._numbers = threading.Lock()
        self._stopped = False
        self._subscribed = False
        self._connection = MqttConnection(
            config,
            clean=settings["mqtt.clean.session.enabled"],
            receive_maximum=self._most,
            on_connect=self._connected,
            on_disconnect=self._disconnected,
        )
        self._connection.client.on_message = self._arrived
        self._connection.client.on_subscribe = self._subscribe_answered
        self._connection.open()

    # In the thread of the client

    def _connected(self, session_present: bool, properties: Any) -> None:
        if self._subscribed and session_present:
            return
        if self._connection.v5:
            # Retained messages are sent only for a new subscription, not at each start.
            handling = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            if not self._retained:
                handling = SubscribeOptions.RETAIN_DO_NOT_SEND
            options = SubscribeOptions(self._qos, retainHandling=handling)
            self._connection.client.subscribe([(each, options) for each in self._filters])
        else:
            self._connection.client.subscribe([(each, self._qos) for each in self._filters])

    def _subscribe_answered(
        self, client: Any, userdata: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        for topic, reason in zip(self._filters, reasons):
            if reason.value >= _SUBSCRIBE_REFUSED:
                self._connection.refuse(f"the subscription to {topic} is refused: {reason}")
                return
        self._subscribed = True

    def _disconnected(self) -> None:
        with self._numbers:
            self._number += 1

    def _arrived(self, client: Any, userdata: Any, message: Any) -> None:
        item = _Message(message, self._number, int(time.time() * 1000))
        while not self._stopped:
            try:
                self._queue.put(item, timeout=_WAIT_SECONDS)
                return
            except queue.Full:
                continue  # the queue is full: the server must wait

    # In the thread of the task

    def poll(self) -> list[SourceRecord]:
        if not self._connection.connected and self._queue.empty():
            self._connection.wait(_WAIT_SECONDS)
        items: list[_Message] = []
        try:
            items.append(self._queue.get(timeout=_WAIT_SECONDS))
            while len(items) < self._most:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        records = []
        for item in items:
            # Messages from before a lost connection are delivered again, unless their quality of service is
            # 0.
            if item.message.qos and item.connection != self._number:
                continue
            self._unacknowledged.append(item)
            if self._wanted(item.message):
                records.append(self._record(item))
        if self._unacknowledged and not records:
            self.acknowledge(())
        return records

    def _wanted(self, message: Any) -> bool:
        """Sessions outlive their configuration: a removed topic may still be subscribed to."""
        if message.retain and not self._retained:
            return False
        return any(paho.topic_matches_sub(_plain(each), message.topic) for each in self._filters)

    def _record(self, item: _Message) -> SourceRecord:
        message = item.message
        headers = [
            Header("mqtt.message.id", message.mid, INT32_SCHEMA),
            Header("mqtt.qos", message.qos, INT32_SCHEMA),
            Header("mqtt.retained", bool(message.retain), BOOLEAN_SCHEMA),
            Header("mqtt.duplicate", bool(message.dup), BOOLEAN_SCHEMA),
        ]
        for name, value in getattr(message.properties, "UserProperty", None) or ():
            headers.append(Header(name, value, STRING_SCHEMA))
        return SourceRecord(
            self._topic,
            bytes(message.payload),
            message.topic,
            BYTES_SCHEMA,
            STRING_SCHEMA,
            headers=tuple(headers),
            timestamp=item.time,
        )

    def acknowledge(self, records: Sequence[SourceRecord]) -> None:
        """Acknowledge all polled messages: the runner commits each poll before the next one."""
        items, self._unacknowledged = self._unacknowledged, []
        with self._numbers:
            for item in items:
                if item.message.qos and item.connection == self._number:
                    self._connection.client.ack(item.message.mid, item.message.qos)

    def stop(self) -> None:
        self._stopped = True
        self._connection.close()


def _plain(filter_: str) -> str:
    """Without the prefix of a shared subscription: $share/GROUP/."""
    return filter_.split("/", 2)[2] if filter_.startswith("$share/") else filter_


class MqttSource(SourceConnector):
    """Messages of MQTT topics."""

    task_class = MqttSourceTask
    aliases = ("io.confluent.connect.mqtt.MqttSourceConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        for each in parse(cls.fields, config)["mqtt.topics"]:
            if not _is_filter(each):
                return {
                    "mqtt.topics": [
                        f"Invalid value {each} for configuration mqtt.topics: + must be a whole level, "
                        "and # the last one"
                    ]
                }
        return problem_with(config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The topics are divided among the tasks. A task keeps its session only as long as its number stays
        the same.
        """
        topics: list[str] = self.settings["mqtt.topics"]
        count = min(max_tasks, len(topics))
        return [
            {**self.config, "mqtt.topics": ",".join(topics[number::count]), "task.id": str(number)}
            for number in range(count)
        ]


def _is_filter(text: str) -> bool:
    if text.startswith("$share/") and (text.count("/") < 2 or not text.split("/", 2)[1]):
        return False
    levels = _plain(text).split("/")
    if not _plain(text) or len(text.encode()) > 65535 or "\0" in text:
        return False
    return all("+" not in level or level == "+" for level in levels) and all(
        "#" not in level or (level == "#" and place == len(levels) - 1) for place, level in enumerate(levels)
    )
