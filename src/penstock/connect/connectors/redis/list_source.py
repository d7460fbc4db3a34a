"""Reads elements of a Redis list, used as a queue, into a topic without losing any.

Elements move to a second list (LMOVE), and are removed from it when their records are durable in Kafka.
Elements that an earlier run left there are read first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redis import exceptions

from penstock.connect.api import (
    BYTES_SCHEMA,
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
    parse,
)
from penstock.connect.connectors.payloads import placeholder_problem
from penstock.connect.connectors.redis.server import CONNECTION, RedisServer, problem_with

_FIELDS = (
    *CONNECTION,
    Field("redis.list.name", doc="The list to read.", validator=NonEmpty(), importance=Importance.HIGH),
    Field("topic", default="${list}", doc="The topic; ${list} is the name of the list."),
    Field(
        "redis.list.side",
        default="left",
        doc="Which element is next: left if the list is filled with RPUSH, right if with LPUSH.",
        validator=OneOf("left", "right"),
    ),
    Field(
        "redis.list.processing",
        default="${list}:processing",
        doc="The list of the elements that are not in Kafka yet. No other program may use it.",
    ),
    Field("batch.size", ConfigType.INT, 1000, "The most elements of one read.", Range(1)),
)
_WAIT_SECONDS = 0.5


class RedisListSourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        settings = parse(_FIELDS, config)
        self._server = RedisServer(config)
        self._list: str = settings["redis.list.name"]
        self._topic: str = settings["topic"].replace("${list}", self._list)
        self._processing: str = settings["redis.list.processing"].replace("${list}", self._list)
        self._side: str = settings["redis.list.side"].upper()
        self._most: int = settings["batch.size"]
        self._left_over = True

    def poll(self) -> list[SourceRecord]:
        try:
            with self._server.errors():
                elements = self._take()
        except ConnectError:
            self._left_over = True  # the response may have been lost
            raise
        return [SourceRecord(self._topic, each, value_schema=BYTES_SCHEMA) for each in elements]

    def _take(self) -> list[bytes]:
        client = self._server.client
        if self._left_over:
            found: list[bytes] = client.lrange(self._processing, 0, self._most - 1)
            if found:
                return found
            self._left_over = False
        first = client.blmove(self._list, self._processing, _WAIT_SECONDS, self._side, "RIGHT")
        if first is None:
            return []
        more = min(client.llen(self._list), self._most - 1)
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(more):
                pipeline.lmove(self._list, self._processing, self._side, "RIGHT")
            answers = pipeline.execute()
        return [first, *(each for each in answers if each is not None)]

    def acknowledge(self, records: Sequence[SourceRecord]) -> None:
        try:
            self._server.client.ltrim(self._processing, len(records), -1)
        except exceptions.RedisError:
            self._left_over = True  # they are read again

    def stop(self) -> None:
        self._server.close()


class RedisListSource(SourceConnector):
    """Elements of a list that is used as a queue. One task, because the second list has one owner."""

    task_class = RedisListSourceTask
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        for name in ("topic", "redis.list.processing"):
            problem = placeholder_problem(name, settings[name], frozenset({"list"}))
            if problem:
                return {name: problem}
        if settings["redis.list.processing"] in ("${list}", settings["redis.list.name"]):
            return {"redis.list.processing": ["It must be another list than redis.list.name"]}
        return problem_with(config)
