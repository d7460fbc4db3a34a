"""Writes records of topics to keys of Redis, with their offsets in the same atomic step: exactly once.

Settings have the names of Redis's own Kafka connector. A batch is one script: Redis runs it as a whole, and
replicates and persists its writes as one transaction. The script skips records below the stored offset of
their partition, and stops at a record that Redis rejects; the offset before it is then stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connect.api import (
    ConnectError,
    DataError,
    Field,
    Importance,
    OneOf,
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
    parse,
)
from penstock.connect.connectors.payloads import fields, filled, payload, placeholder_problem
from penstock.connect.connectors.redis.server import CONNECTION, RedisServer, passes, problem_with

_FIELDS = (
    *CONNECTION,
    Field(
        "redis.command",
        default="XADD",
        doc="What is written: SET, HSET, XADD, LPUSH, RPUSH, SADD or ZADD.",
        validator=OneOf("SET", "HSET", "XADD", "LPUSH", "RPUSH", "SADD", "ZADD"),
        importance=Importance.HIGH,
    ),
    Field(
        "redis.key",
        default="${topic}",
        doc="The key of a stream, list or set, and the first part of the key of a string or hash. Empty: the "
        "record's key alone.",
    ),
    Field("redis.separator", default=":", doc="Between redis.key and the record's key."),
    Field(
        "redis.offsets.key",
        default="penstock:offsets:${connector}",
        doc="The first part of the keys with the offsets. Empty: none are kept (at least once).",
        importance=Importance.LOW,
    ),
)
_NONE_YET = -1
_MOST_ARGUMENTS = 4000  # of one command: Lua's stack

# KEYS: of the offsets. ARGV: the known offset of each key, then of each record: the index of its key
# (0: none), its offset, the number of words of its command, and those.
# Returns {0}, or {number of a record, error}, or {"back", index of a key, its offset}.
_SCRIPT = """
local stored, last = {}, {}
for i, key in ipairs(KEYS) do
  local found = redis.call('GET', key)
  stored[i] = tonumber(found or '-1')
  if stored[i] < tonumber(ARGV[i]) then return {'back', i, stored[i]} end
end
local at, number, failure = #KEYS + 1, 0, nil
while at <= #ARGV do
  local key, offset, words = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  number = number + 1
  if key == 0 or offset >= stored[key] then
    local answer = redis.pcall(unpack(ARGV, at + 3, at + 2 + words))
    if type(answer) == 'table' and answer.err then
      failure = {number, answer.err}
      break
    end
    if key > 0 then last[key] = offset + 1 end
  end
  at = at + 3 + words
end
for key, offset in pairs(last) do redis.call('SET', KEYS[key], string.format('%.0f', offset)) end
return failure or {0}
"""

Words = list[bytes]


class Commands:
    """Returns the command of each record. DataError for a record without one."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._command: str = settings["redis.command"]
        self._key: str = settings["redis.key"]
        self._separator: bytes = settings["redis.separator"].encode()

    def of(self, record: SinkRecord) -> Words:
        words = self._words(record)
        if len(words) > _MOST_ARGUMENTS:
            raise DataError(f"The value has {len(words)} parts; a command has at most {_MOST_ARGUMENTS}")
        return words

    def _words(self, record: SinkRecord) -> Words:
        command, key = self._command, filled(self._key, record).encode()
        if command == "XADD":
            if record.value is None:
                raise DataError("A record without a value has no entry in a stream: drop it with Filter")
            return [b"XADD", key, b"*", *self._pairs(record)]
        member = self._record_key(record)
        if command in ("SET", "HSET"):
            key = key + self._separator + member if key else member
            if record.value is None:
                return [b"DEL", key]
            if command == "SET":
                return [b"SET", key, payload(record.value_schema, record.value)]
            return [b"HSET", key, *self._pairs(record)]
        if record.value is None:
            remove = {"SADD": [b"SREM", key], "ZADD": [b"ZREM", key]}.get(command, [b"LREM", key, b"0"])
            return [*remove, member]
        if command == "ZADD":
            return [b"ZADD", key, _score(record.value), member]
        return [command.encode(), key, member]

    def _record_key(self, record: SinkRecord) -> bytes:
        if record.key is None:
            raise DataError(f"The record has no key, which {self._command} needs")
        return payload(record.key_schema, record.key)

    def _pairs(self, record: SinkRecord) -> Words:
        found = fields(record, self._command)
        words = [
            word
            for name, value in found.items()
            if value is not None
            for word in (str(name).encode(), _plain(value))
        ]
        if not words:
            raise DataError(f"The value has no field, which {self._command} needs")
        return words


def _plain(value: Any) -> bytes:
    return payload(None, value)


def _score(value: Any) -> bytes:
    try:
        return repr(float(value)).encode()
    except (TypeError, ValueError):
        raise DataError(f"The score of ZADD must be a number, not {value!r}") from None


class RedisSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        settings = parse(_FIELDS, config)
        self._commands = Commands(settings)
        self._server = RedisServer(config)
        self._script = self._server.client.register_script(_SCRIPT)
        self._offsets = _OffsetKeys(settings)
        self._next: dict[TopicPartition, int] = {}

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        if not self._offsets:
            return None
        with self._server.errors():
            found = self._server.client.mget([self._offsets.key(place) for place in partitions])
        stored = {place: int(text) for place, text in zip(partitions, found) if text is not None}
        self._next |= stored
        return stored

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._next.pop(place, None)

    def put(self, records: list[SinkRecord]) -> None:
        commands: list[tuple[SinkRecord, Words]] = []
        for record in records:
            try:
                commands.append((record, self._commands.of(record)))
            except DataError as error:
                # In the order of the records: those before it are stored before it is skipped.
                self._write(commands)
                commands = []
                self.report(record, error)
        self._write(commands)

    def _write(self, commands: list[tuple[SinkRecord, Words]]) -> None:
        while commands:
            places = sorted({_place(record) for record, _ in commands}) if self._offsets else []
            keys = [self._offsets.key(place) for place in places]
            number = {place: index for index, place in enumerate(places, 1)}
            arguments: list[Any] = [self._next.get(place, _NONE_YET) for place in places]
            for record, words in commands:
                arguments += (number.get(_place(record), 0), record.original_offset, len(words), *words)
            with self._server.errors():
                answer = self._script(keys, arguments)
            if answer[0] == b"back":
                self._went_back(places[answer[1] - 1], answer[2])
                commands = [each for each in commands if _place(each[0]) not in self.rewind]
                continue
            done = commands if answer[0] == 0 else commands[: answer[0] - 1]
            for record, _ in done:
                place = _place(record)
                if self._offsets:
                    self._next[place] = max(self._next.get(place, 0), record.original_offset + 1)
            if answer[0] == 0:
                return
            bad, message = commands[answer[0] - 1][0], answer[1].decode("utf-8", "replace")
            if passes(message):
                raise RetriableError(f"{self._server.address}: {message}")
            self.report(bad, DataError(f"{self._server.address}: {message}"))
            commands = commands[answer[0] :]

    def _went_back(self, place: TopicPartition, stored: int) -> None:
        """Redis was restored from an older state: the records after that state are written again."""
        known = self._next.pop(place)
        if stored == _NONE_YET:
            raise ConnectError(
                f"{self._server.address} has lost the offset of {place[0]}-{place[1]}, which was {known}: "
                "the task continues where the group has committed. To write all records again, stop the "
                "connector and delete its offsets"
            )
        self._next[place] = stored
        self.rewind[place] = stored

    def stop(self) -> None:
        self._server.close()


def _place(record: SinkRecord) -> TopicPartition:
    return record.original_topic, record.original_partition


class _OffsetKeys:
    """The names of the keys with the offsets; false if offsets are not stored."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        name = str(settings.get("name") or "sink")
        self._prefix: str = settings["redis.offsets.key"].replace("${connector}", name)

    def __bool__(self) -> bool:
        return bool(self._prefix)

    def key(self, place: TopicPartition) -> str:
        return f"{self._prefix}:{place[0]}:{place[1]}"


class RedisSink(SinkConnector):
    """Strings, hashes, streams, lists and sets."""

    task_class = RedisSinkTask
    aliases = ("com.redis.kafka.connect.RedisSinkConnector",)
    fields = _FIELDS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        settings = parse(cls.fields, config)
        for name, known in (
            ("redis.key", frozenset({"topic", "partition"})),
            ("redis.offsets.key", frozenset({"connector"})),
        ):
            problem = placeholder_problem(name, settings[name], known)
            if problem:
                return {name: problem}
        if not settings["redis.key"] and settings["redis.command"] not in ("SET", "HSET"):
            return {"redis.key": [f"redis.command={settings['redis.command']} needs redis.key"]}
        return problem_with(config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self.config) for _ in range(max_tasks)]

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        keys = _OffsetKeys(parse(cls.fields, config))
        if not keys:
            return True
        server = RedisServer(config)
        try:
            with server.errors():
                for place, offset in offsets.items():
                    if offset is None:
                        server.client.delete(keys.key(place))
                    else:
                        server.client.set(keys.key(place), offset)
        finally:
            server.close()
        return True
