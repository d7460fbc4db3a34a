"""Converts between Kafka's and Connect's records: converters and transforms, with the task's error
tolerance.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.connect import plugins
from penstock.connect.api import Header, SinkBatch, SinkRecord, SourceBatch, SourceRecord
from penstock.connect.converters import Converter
from penstock.connect.records import Origin
from penstock.connect.runtime.clients import WorkerSettings
from penstock.connect.runtime.tolerance import Tolerance, as_data_error
from penstock.connect.transforms.chain import steps

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger(__name__)

_NO_HEADERS: list[tuple[str, bytes | None]] = []
_JSON = "org.apache.kafka.connect.json.JsonConverter"
DEFAULT_CONVERTERS = {
    "key.converter": _JSON,
    "value.converter": _JSON,
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
}
"""Of a worker that names none."""


class Encoded(NamedTuple):
    """A source's record as the producer takes it."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int | None
    headers: list[tuple[str, bytes | None]]


class EncodedBatch(NamedTuple):
    """Records for one topic, as columns."""

    topic: str
    keys: list[bytes | None] | None
    values: list[bytes | None]
    timestamps: Sequence[int | None] | None


class Conversion:
    """The converters and transforms of one task."""

    def __init__(self, worker: WorkerSettings, config: Mapping[str, str], tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self.key = _converter(worker, config, "key.converter", is_key=True)
        self.value = _converter(worker, config, "value.converter")
        self.header = _converter(worker, config, "header.converter")
        self._steps = steps(config, plugins.transform_class, plugins.predicate_class)

    def encode(self, record: SourceRecord) -> Encoded | None:
        """None for a record that a transform dropped, or that was skipped as an error."""
        if not self._steps and not record.headers:
            # The fast path: if it fails, the record is converted again below, with error handling.
            try:
                topic, key = record.topic, None
                if record.key is not None or record.key_schema is not None:
                    key = self.key.to_bytes(topic, record.key_schema, record.key)
                value = self.value.to_bytes(topic, record.value_schema, record.value)
                return Encoded(topic, key, value, record.partition, record.timestamp, _NO_HEADERS)
            except Exception as error:  # noqa: BLE001
                log.debug("converting: %s", error)
        return self._encode_with_errors(record)

    def encode_batch(self, batch: SourceBatch) -> EncodedBatch | None:
        """None if the records must be encoded one by one: with transforms, or if one cannot be converted."""
        if self._steps:
            return None
        try:
            keys = None
            if batch.keys is not None or batch.key_schema is not None:
                given = batch.keys if batch.keys is not None else [None] * len(batch)
                keys = self.key.many_to_bytes(batch.topic, batch.key_schema, given)
            values = self.value.many_to_bytes(batch.topic, batch.value_schema, batch.values)
        except Exception as error:  # noqa: BLE001 - done again for each record, where errors are handled
            log.debug("converting a batch: %s", error)
            return None
        return EncodedBatch(batch.topic, keys, values, batch.timestamps)

    def _encode_with_errors(self, record: SourceRecord) -> Encoded | None:
        stage, executor, origin = "TRANSFORMATION", "", record
        try:
            for step in self._steps:
                executor = _name(step)
                changed: Any = self._tolerance.retried(lambda s=step, r=record: s(r), stage)  # type: ignore[misc]
                if changed is None:
                    return None
                record = changed
            topic = record.topic
            stage, executor = "KEY_CONVERTER", _name(self.key)
            key = None
            if record.key is not None or record.key_schema is not None:
                key = self._tolerance.retried(
                    lambda: self.key.to_bytes(topic, record.key_schema, record.key), stage
                )
            stage, executor = "VALUE_CONVERTER", _name(self.value)
            value = self._tolerance.retried(
                lambda: self.value.to_bytes(topic, record.value_schema, record.value), stage
            )
            headers: list[tuple[str, bytes | None]] = []
            if record.headers:
                stage, executor = "HEADER_CONVERTER", _name(self.header)
                headers = [
                    (each.key, self.header.to_bytes(topic, each.schema, each.value))
                    for each in record.headers
                ]
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises for a record
            self._tolerance.failed(as_data_error(error, stage), stage, executor, None, origin)
            return None
        return Encoded(topic, key, value, record.partition, record.timestamp, headers)

    def decode(self, message: Message) -> SinkRecord | None:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        raw_key: Any = message.key()
        raw_value: Any = message.value()
        raw_headers: Any = message.headers() or []
        origin: Origin = (topic, partition, offset, raw_key, raw_value, raw_headers)
        stage, executor = "KEY_CONVERTER", _name(self.key)
        try:
            key_schema, key = self._tolerance.retried(lambda: self.key.from_bytes(topic, raw_key), stage)
            stage, executor = "VALUE_CONVERTER", _name(self.value)
            value_schema, value = self._tolerance.retried(
                lambda: self.value.from_bytes(topic, raw_value), stage
            )
            headers = ()
            if raw_headers:
                stage, executor = "HEADER_CONVERTER", _name(self.header)
                headers = tuple(self._header(topic, name, data) for name, data in raw_headers)  # type: ignore[assignment]
            kind, timestamp = message.timestamp()
            record = SinkRecord(
                topic,
                partition,
                offset,
                value,
                key,
                value_schema,
                key_schema,
                headers,
                timestamp if kind else None,
                "LogAppendTime" if kind == 2 else "CreateTime",
                topic,
                partition,
                offset,
                origin if self._tolerance.keeps else None,
            )
            stage = "TRANSFORMATION"
            for step in self._steps:
                executor = _name(step)
                changed: Any = self._tolerance.retried(lambda s=step, r=record: s(r), stage)  # type: ignore[misc]
                if changed is None:
                    return None
                record = changed
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises for a record
            self._tolerance.failed(as_data_error(error, stage), stage, executor, origin, raw_value)
            return None
        return record

    def decode_batch(self, messages: Sequence[Message]) -> SinkBatch | None:
        """The messages of one partition; None if they must be decoded one by one, as in `encode_batch`."""
        # Lists, not generators: this is the hot path of sinks.
        headers = [each.headers() for each in messages]
        if self._steps or any(headers):
            return None
        stamps = [each.timestamp() for each in messages]
        kind = stamps[0][0]
        times = [time for each, time in stamps if each == kind]
        if len(times) != len(stamps):
            return None
        topic, partition = messages[0].topic() or "", messages[0].partition() or 0
        raw_keys: list[Any] = [each.key() for each in messages]
        raw_values: list[Any] = [each.value() for each in messages]
        try:
            if raw_keys.count(None) == len(raw_keys):  # the common case of a topic without keys
                schema, key = self.key.from_bytes(topic, None)
                keys: tuple[Any, list[Any]] | None = (schema, [key] * len(raw_keys))
            else:
                keys = self.key.many_from_bytes(topic, raw_keys)
            values = self.value.many_from_bytes(topic, raw_values)
        except Exception as error:  # noqa: BLE001 - done again for each record, where errors are handled
            log.debug("converting a batch: %s", error)
            return None
        if keys is None or values is None:
            return None
        offsets: list[Any] = [each.offset() for each in messages]
        return SinkBatch(
            topic,
            partition,
            offsets,
            values[1],
            keys[1],
            times if kind else [None] * len(messages),
            values[0],
            keys[0],
            "LogAppendTime" if kind == 2 else "CreateTime",
        )

    def _header(self, topic: str, name: str, data: bytes | None) -> Header:
        schema, value = self.header.from_bytes(topic, data)
        return Header(name, value, schema)

    def close(self) -> None:
        for each in (self.key, self.value, self.header):
            each.close()


def _converter(
    worker: WorkerSettings, config: Mapping[str, str], part: str, *, is_key: bool = False
) -> Converter:
    name, own = worker.setting(config, part, DEFAULT_CONVERTERS[part])
    return plugins.converter_class(name, header=part == "header.converter")(own, is_key=is_key)


def _name(step: Any) -> str:
    owner = getattr(step, "__self__", step)
    kind = owner if isinstance(owner, type) or callable(getattr(owner, "__code__", None)) else type(owner)
    return f"{kind.__module__}.{getattr(kind, '__qualname__', kind.__class__.__name__)}"
