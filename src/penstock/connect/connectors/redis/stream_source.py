"""Reads entries of Redis streams into topics, as a consumer of a consumer group.

An entry is acknowledged (XACK) when its record is durable in Kafka. Entries that were delivered to this
consumer and not acknowledged are read again after a start and after an error; those of consumers that no
longer exist are claimed. Settings have the names of Redis's own Kafka connector.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from redis import exceptions

from penstock.connect.api import (
    STRING_SCHEMA,
    ConfigType,
    ConnectError,
    Field,
    Importance,
    NonEmpty,
    OffsetsReader,
    OneOf,
    Range,
    SourceConnector,
    SourceRecord,
    SourceTask,
    map_schema,
    parse,
    struct_schema,
)
from penstock.connect.connectors.payloads import placeholder_problem
from penstock.connect.connectors.redis.server import CONNECTION, RedisServer, problem_with

_FIELDS = (
    *CONNECTION,
    Field(
        "redis.stream.name",
        ConfigType.LIST,
        doc="The streams to read.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field("topic", default="${stream}", doc="The topic; ${stream} is the name of the stream."),
    Field("redis.stream.consumer.group", default="kafka-consumer-group", doc="The consumer group."),
    Field("redis.stream.consumer.name", default="consumer-${task}", doc="The consumer; ${task} is its task."),
    Field("redis.stream.offset", default="0-0", doc="Where a new group begins: an id, or $ for the end."),
    Field(
        "redis.stream.delivery",
        default="at-least-once",
        doc="at-least-once acknowledges entries that are in Kafka, at-most-once as they are read.",
        validator=OneOf("at-least-once", "at-most-once"),
    ),
    Field("redis.stream.block", ConfigType.LONG, 100, "How many ms a read waits.", Range(1, 1000)),
    Field(
        "redis.stream.claim.idle.ms",
        ConfigType.LONG,
        300_000,
        "Entries that another consumer has held for so long are claimed.",
        Range(1),
    ),
    Field("batch.size", ConfigType.INT, 1000, "The most entries of one read.", Range(1)),
)
_VALUE = struct_schema(
    {"id": STRING_SCHEMA, "stream": STRING_SCHEMA, "body": map_schema(STRING_SCHEMA, STRING_SCHEMA)}
)
_FIRST = "0-0"

Entry = tuple[bytes, Mapping[bytes, bytes] | None]


class RedisStreamSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(_FIELDS, config)
        self._server = RedisServer(config)
        self._streams: list[str] = list(settings["redis.stream.name"])
        self._topic: str = settings["topic"]
        self._group: str = settings["redis.stream.consumer.group"]
        task = config.get("task.id", "0")
        self._consumer: str = settings["redis.stream.consumer.name"].replace("${task}", task)
        self._begin: str = settings["redis.stream.offset"]
        self._block: int = settings["redis.stream.block"]
        self._most: int = settings["batch.size"]
        self._idle: int = settings["redis.stream.claim.idle.ms"]
        self._at_most_once = settings["redis.stream.delivery"] == "at-most-once"
        self._forget()

    def _forget(self) -> None:
        """The next poll reads unacknowledged entries again, because a response may have been lost."""
        self._ready = False
        # Of each stream, the entry after which unacknowledged ones are read; without one, new entries are
        # read.
        self._pending = dict.fromkeys(self._streams, _FIRST)
        self._next_claim = 0.0

    def poll(self) -> list[SourceRecord]:
        try:
            with self._server.errors():
                return self._poll()
        except ConnectError:
            self._forget()
            raise

    def _poll(self) -> list[SourceRecord]:
        if not self._ready:
            for stream in self._streams:
                self._create_group(stream)
            self._ready = True
        client = self._server.client
        if self._pending:
            found = client.xreadgroup(self._group, self._consumer, dict(self._pending), self._most)
            self._advance(found)
            return self._records(found)
        claimed = self._claim()
        if claimed:
            return self._records(claimed)
        new = dict.fromkeys(self._streams, ">")
        found = client.xreadgroup(
            self._group, self._consumer, new, self._most, block=self._block, noack=self._at_most_once
        )
        return self._records(found)

    def _create_group(self, stream: str) -> None:
        try:
            self._server.client.xgroup_create(stream, self._group, self._begin, mkstream=True)
        except exceptions.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def _advance(self, found: Sequence[tuple[bytes, list[Entry]]]) -> None:
        last = {stream.decode(): entries[-1][0].decode() for stream, entries in found if entries}
        self._pending = {stream: last[stream] for stream in self._pending if stream in last}

    def _claim(self) -> list[tuple[bytes, list[Entry]]]:
        """Claims entries that a consumer has not acknowledged for a long time: its task no longer runs."""
        now = time.monotonic()
        if now < self._next_claim:
            return []
        found = []
        for stream in self._streams:
            answer = self._server.client.xautoclaim(
                stream, self._group, self._consumer, self._idle, _FIRST, count=self._most
            )
            if answer[1]:
                found.append((stream.encode(), answer[1]))
        if not found:
            self._next_claim = now + self._idle / 1000
        return found

    def _records(self, found: Sequence[tuple[bytes, list[Entry]]]) -> list[SourceRecord]:
        records = []
        for name, entries in found:
            stream = name.decode()
            topic = self._topic.replace("${stream}", stream)
            for entry, body in entries:
                if not body:  # deleted from the stream since it was delivered
                    self._acknowledge(stream, [entry.decode()])
                    continue
                records.append(self._record(topic, stream, entry.decode(), body))
        return records

    def _record(self, topic: str, stream: str, entry: str, body: Mapping[bytes, bytes]) -> SourceRecord:
        # Text that is not UTF-8 stays bytes, which the converter rejects: errors.tolerance applies.
        value = {
            "id": entry,
            "stream": stream,
            "body": {_text(name): _text(data) for name, data in body.items()},
        }
        moment = int(entry.partition("-")[0])
        return SourceRecord(topic, value, entry, _VALUE, STRING_SCHEMA, timestamp=moment)

    def acknowledge(self, records: Sequence[SourceRecord]) -> None:
        by_stream: dict[str, list[str]] = defaultdict(list)
        for record in records:
            by_stream[record.value["stream"]].append(record.key)
        try:
            for stream, entries in by_stream.items():
                self._acknowledge(stream, entries)
        except exceptions.RedisError:
            self._forget()  # they are read again

    def _acknowledge(self, stream: str, entries: list[str]) -> None:
        if not self._at_most_once:
            self._server.client.xack(stream, self._group, *entries)

    def stop(self) -> None:
        self._server.close()


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class RedisStreamSource(SourceConnector):
    """Entries of streams, through a consumer group."""

    task_class = RedisStreamSourceTask
    aliases = ("com.redis.kafka.connect.RedisStreamSourceConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        for name, known in (("topic", "stream"), ("redis.stream.consumer.name", "task")):
            problem = placeholder_problem(name, settings[name], frozenset({known}))
            if problem:
                return {name: problem}
        tasks = config.get("tasks.max", "1")
        if tasks != "1" and "${task}" not in settings["redis.stream.consumer.name"]:
            name = "redis.stream.consumer.name"
            return {name: [f"With tasks.max={tasks} the name of the consumer needs ${{task}}"]}
        return problem_with(config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Each is a consumer of the group: Redis divides the entries among them."""
        return [{**self.config, "task.id": str(number)} for number in range(max_tasks)]
