"""Redis sources and sink on a real server: commands, offsets, bad records, queues, settings, logins."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from penstock.connect.api import (
    BYTES_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    ConnectError,
    DataError,
    RetriableError,
    struct_schema,
)
from penstock.connect.connectors.redis import RedisListSource, RedisSink, RedisStreamSource
from penstock.connect.connectors.redis.list_source import RedisListSourceTask
from penstock.connect.connectors.redis.sink import RedisSinkTask
from penstock.connect.connectors.redis.stream_source import RedisStreamSourceTask
from tests.connect.messaging.helpers import NoOffsets, polled, problems, record
from tests.connect.messaging.servers import PASSWORD, USER, Server

PLACE = ("items", 0)


@pytest.fixture
def client(redis_server: Server) -> Iterator[Any]:
    """With nothing in the server."""
    client: Any = redis.Redis(port=redis_server.port, protocol=2)
    client.flushall()
    yield client
    client.close()


def config(server: Server, **more: str) -> dict[str, str]:
    return {"name": "sink", "redis.uri": f"redis://127.0.0.1:{server.port}", **more}


def sink(server: Server, **more: str) -> RedisSinkTask:
    task = RedisSinkTask()
    task.start(config(server, **more))
    task.open([PLACE])
    return task


def test_each_command_writes_its_kind_of_key(redis_server: Server, client: Any) -> None:
    struct = struct_schema({"n": INT64_SCHEMA, "raw": BYTES_SCHEMA, "gone": STRING_SCHEMA.as_optional()})
    value = {"n": 5, "raw": b"\xff", "gone": None}
    for command, given in {
        "SET": [(b"a", b"\x00\xff"), (b"b", "text"), (b"c", {"x": [1]}), (b"d", "old"), (b"d", None)],
        "HSET": [("a", value), ("b", {"n": 1.5, "deep": {"x": 1}}), ("c", {"n": 1}), ("c", None)],
        "XADD": [(None, value), (None, {"n": 6})],
        "RPUSH": [("a", 1), ("b", 1), ("a", 1), ("b", None)],
        "LPUSH": [("a", 1), ("b", 1)],
        "SADD": [("a", 1), ("b", 1), ("a", 1), ("b", None)],
        "ZADD": [("a", 2), ("b", 1.5), ("c", 1), ("c", None)],
    }.items():
        task = sink(redis_server, **{"redis.command": command, "redis.key": f"{command}-${{topic}}"})
        task.put(
            [
                record(n, v, k, struct if v is value else None, topic=f"{command}")
                for n, (k, v) in enumerate(given)
            ]
        )
        task.stop()
    assert client.get("SET-SET:a") == b"\x00\xff" and client.get("SET-SET:b") == b"text"
    assert json.loads(client.get("SET-SET:c")) == {"x": [1]} and client.get("SET-SET:d") is None
    assert client.hgetall("HSET-HSET:a") == {b"n": b"5", b"raw": b"/w=="}
    assert client.hgetall("HSET-HSET:b") == {b"n": b"1.5", b"deep": b'{"x":1}'}
    assert not client.exists("HSET-HSET:c")
    assert [fields for _, fields in client.xrange("XADD-XADD")] == [
        {b"n": b"5", b"raw": b"/w=="},
        {b"n": b"6"},
    ]
    assert client.lrange("RPUSH-RPUSH", 0, -1) == [b"a", b"a"]
    assert client.lrange("LPUSH-LPUSH", 0, -1) == [b"b", b"a"]
    assert client.smembers("SADD-SADD") == {b"a"}
    assert client.zrange("ZADD-ZADD", 0, -1, withscores=True) == [(b"b", 1.5), (b"a", 2.0)]


@pytest.mark.promise(
    "connect", "Redis: a record is written once, no matter how often and by which task it is put"
)
def test_a_record_is_written_once_whoever_puts_it_and_however_often(
    redis_server: Server, client: Any
) -> None:
    def items(first: int, last: int, by: str) -> list[Any]:
        return [record(n, {"n": n, "by": by}) for n in range(first, last)]

    first = sink(redis_server)
    first.put(items(0, 5, "a"))
    first.put(items(2, 7, "again"))  # the answer to a script was lost
    second = RedisSinkTask()
    second.start(config(redis_server))
    assert second.open([PLACE, ("items", 1)]) == {PLACE: 7}
    second.put(items(7, 10, "b"))
    first.put(items(7, 12, "late"))  # it has lost the partition, and does not know yet
    second.put(items(10, 14, "b"))
    for task in (first, second):
        task.stop()
    found = [(int(fields[b"n"]), fields[b"by"].decode()) for _, fields in client.xrange("items")]
    assert found == list(enumerate(["a"] * 5 + ["again"] * 2 + ["b"] * 3 + ["late"] * 2 + ["b"] * 2))


@pytest.mark.promise("connect", "Redis: a sink that is killed under load has written each record once")
def test_kills_at_any_moment_lose_and_double_nothing(redis_server: Server, client: Any) -> None:
    chance, count = random.Random(7), 3000
    command = [
        sys.executable,
        "-m",
        "tests.connect.messaging.killed_sink",
        str(redis_server.port),
        str(count),
    ]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(2, 12)):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=100).returncode == 0
    assert [int(fields[b"n"]) for _, fields in client.xrange("items")] == list(range(count))


@pytest.mark.promise(
    "connect", "Redis: a record that Redis rejects goes to the dead-letter topic, and the others are written"
)
def test_a_bad_record_is_reported_and_the_others_are_written(redis_server: Server, client: Any) -> None:
    client.rpush("items:2", "a list, not a hash")
    task = sink(redis_server, **{"redis.command": "HSET"})
    bad: list[tuple[int, str]] = []
    task.report = lambda each, error: bad.append((each.original_offset, str(error)))
    task.put(
        [record(n, {"n": n}, str(n)) for n in range(4)]
        + [record(4, "no struct", "4"), record(5, {}, "5"), record(6, {"n": 6}), record(7, {"n": 7}, "7")]
        + [record(8, {str(n): n for n in range(3000)}, "8"), record(9, {"n": 9}, "9")]
    )
    task.stop()
    assert [offset for offset, _ in bad] == [2, 4, 5, 6, 8]
    assert (
        "WRONGTYPE" in bad[0][1] and "not str" in bad[1][1] and "no key" in bad[3][1] and "6002" in bad[4][1]
    )
    assert sorted(client.keys("items:*")) == [
        b"items:0",
        b"items:1",
        b"items:2",
        b"items:3",
        b"items:7",
        b"items:9",
    ]
    assert client.get("penstock:offsets:sink:items:0") == b"10"


def test_a_bad_record_that_is_not_tolerated_stops_the_task_before_it(
    redis_server: Server, client: Any
) -> None:
    client.rpush("items:2", "a list, not a hash")
    task = sink(redis_server, **{"redis.command": "HSET"})
    with pytest.raises(DataError, match="WRONGTYPE"):
        task.put([record(n, {"n": n}, str(n)) for n in range(4)])
    assert task.open([PLACE]) == {PLACE: 2}
    task.stop()


@pytest.mark.promise(
    "connect", "Redis: a server that was restored from an older state gets the records that it lost again"
)
def test_a_server_that_went_back_is_written_from_there_on(redis_server: Server, client: Any) -> None:
    task = sink(redis_server)
    task.put([record(n, {"n": n}) for n in range(10)])
    client.set("penstock:offsets:sink:items:0", 4)
    task.put([record(10, {"n": 10})])
    assert task.rewind == {PLACE: 4} and client.xlen("items") == 10
    task.rewind = {}
    task.put([record(n, {"n": n}) for n in range(4, 11)])
    assert client.xlen("items") == 17
    client.flushall()
    with pytest.raises(ConnectError, match="lost the offset of items-0, which was 11"):
        task.put([record(11, {"n": 11})])
    task.stop()


def test_offsets_can_be_set_and_deleted(redis_server: Server, client: Any) -> None:
    task = sink(redis_server)
    task.put([record(n, {"n": n}) for n in range(3)])
    assert RedisSink.alter_offsets(config(redis_server), {PLACE: 1, ("items", 1): None})
    assert task.open([PLACE]) == {PLACE: 1}
    assert RedisSink.alter_offsets(config(redis_server), {PLACE: None})
    assert task.open([PLACE]) == {}
    task.stop()
    plain = sink(redis_server, **{"redis.offsets.key": ""})
    plain.put([record(0, {"n": 0})])
    plain.put([record(0, {"n": 0})])
    plain.stop()
    assert client.xlen("items") == 5


def stream_task(server: Server, **more: str) -> RedisStreamSourceTask:
    task = RedisStreamSourceTask()
    task.start(config(server, **{"redis.stream.name": "orders,returns", **more}), NoOffsets())
    return task


@pytest.mark.promise(
    "connect", "Redis: a stream entry is acknowledged when its record is in Kafka, and otherwise read again"
)
def test_entries_of_streams_come_again_until_they_are_acknowledged(redis_server: Server, client: Any) -> None:
    for n in range(5):
        client.xadd("orders", {"n": n, "text": "naïve"})
    client.xadd("returns", {"n": 9}, id="1700000000000-0")
    task = stream_task(redis_server, topic="redis-${stream}")
    first = polled(task, 6, acknowledge=False)
    assert {each.topic for each in first} == {"redis-orders", "redis-returns"}
    back = next(each for each in first if each.topic == "redis-returns")
    assert back.key == "1700000000000-0" and back.timestamp == 1700000000000
    assert back.value == {"id": "1700000000000-0", "stream": "returns", "body": {"n": "9"}}
    task.stop()
    # Killed before they were in Kafka: the next task has the same name in the group.
    task = stream_task(redis_server, topic="redis-${stream}", **{"batch.size": "2"})
    again = polled(task, 6)
    assert sorted(each.key for each in again) == sorted(each.key for each in first)
    assert client.xpending("orders", "kafka-consumer-group")["pending"] == 0
    client.xadd("orders", {"n": 5})
    assert [each.value["body"] for each in polled(task, 1)] == [{"n": "5"}]
    task.stop()
    assert client.xinfo_groups("returns")[0]["pending"] == 0


def test_entries_of_a_consumer_that_is_gone_are_claimed(redis_server: Server, client: Any) -> None:
    client.xadd("orders", {"n": 1})
    gone = stream_task(redis_server, **{"task.id": "3"})
    polled(gone, 1, acknowledge=False)
    gone.stop()
    task = stream_task(redis_server, **{"redis.stream.claim.idle.ms": "1"})
    assert [each.value["body"] for each in polled(task, 1)] == [{"n": "1"}]
    task.stop()
    assert client.xpending("orders", "kafka-consumer-group")["pending"] == 0


def test_an_entry_deleted_before_it_was_acknowledged_does_not_stop_the_stream(
    redis_server: Server, client: Any
) -> None:
    entries = [client.xadd("orders", {"n": n}) for n in range(2)]
    task = stream_task(redis_server)
    polled(task, 2, acknowledge=False)
    task.stop()
    client.xdel("orders", entries[0])
    task = stream_task(redis_server)
    assert [each.key for each in polled(task, 1)] == [entries[1].decode()]
    task.stop()
    assert client.xpending("orders", "kafka-consumer-group")["pending"] == 0


def list_task(server: Server, **more: str) -> RedisListSourceTask:
    task = RedisListSourceTask()
    task.start(config(server, **{"redis.list.name": "jobs", **more}), NoOffsets())
    return task


@pytest.mark.promise(
    "connect", "Redis: a list element is moved to a second list until its record is in Kafka"
)
def test_elements_of_a_list_come_again_until_they_are_acknowledged(redis_server: Server, client: Any) -> None:
    client.rpush("jobs", *range(7))
    task = list_task(redis_server, **{"batch.size": "5"})
    first = polled(task, 5, acknowledge=False)
    assert [each.value for each in first] == [b"0", b"1", b"2", b"3", b"4"] and first[0].topic == "jobs"
    task.stop()
    task = list_task(redis_server, **{"batch.size": "3"})
    assert [each.value for each in polled(task, 7)] == [str(n).encode() for n in range(7)]
    task.stop()
    assert client.keys() == []
    client.lpush("jobs", "a", "b")
    task = list_task(redis_server, **{"redis.list.side": "right", "topic": "t-${list}"})
    assert [(each.topic, each.value) for each in polled(task, 2)] == [("t-jobs", b"a"), ("t-jobs", b"b")]
    task.stop()


def test_a_server_that_refuses_writes_for_now_is_tried_again(redis_server: Server, client: Any) -> None:
    task = sink(redis_server)
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(RetriableError, match="maxmemory"):
            task.put([record(0, {"n": 0})])
    finally:
        client.config_set("maxmemory", "0")
    task.put([record(0, {"n": 0})])
    task.stop()
    assert client.xlen("items") == 1


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP connect with TLS and a login, and do not reveal passwords"
)
def test_tls_with_a_login(redis_server: Server, client: Any) -> None:
    secure = {
        "name": "sink", "redis.host": "127.0.0.1", "redis.port": str(redis_server.tls_port),
        "redis.tls": "true", "redis.cacert": str(redis_server.authority), "redis.username": USER,
        "redis.password": PASSWORD,
    }  # fmt: skip
    assert RedisSink.validate(secure) == {}
    task = RedisSinkTask()
    task.start(secure)
    task.open([PLACE])
    task.put([record(0, {"n": 0})])
    task.stop()
    assert client.xlen("items") == 1
    in_uri = {"redis.uri": f"rediss://{USER}:{PASSWORD}@127.0.0.1:{redis_server.tls_port}/0"}
    for change in (
        {"redis.password": "wrong-" + PASSWORD},
        {"redis.cacert": ""},
        {"redis.cacert": "/no/such/file"},
        {**in_uri, "redis.cacert": ""},
        {"redis.uri": f"nonsense://{USER}:{PASSWORD}@127.0.0.1"},
    ):
        found, text = problems(RedisSink.validate({**secure, **change}))
        assert found in (["redis.host"], ["redis.uri"]) and PASSWORD not in text, change


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP: invalid settings are rejected with an error that names them"
)
@pytest.mark.parametrize(
    ("plugin", "settings", "field"),
    [
        (RedisSink, {"redis.uri": "redis://127.0.0.1:1"}, "redis.uri"),
        (RedisSink, {"redis.uri": "", "redis.host": "127.0.0.1", "redis.port": "1"}, "redis.host"),
        (RedisSink, {"redis.uri": "http://127.0.0.1"}, "redis.uri"),
        (RedisSink, {"redis.key": "${tpic}"}, "redis.key"),
        (RedisSink, {"redis.key": "", "redis.command": "XADD"}, "redis.key"),
        (RedisStreamSource, {"redis.stream.name": "a", "topic": "${list}"}, "topic"),
        (
            RedisStreamSource,
            {"redis.stream.name": "a", "redis.stream.consumer.name": "me", "tasks.max": "2"},
            "redis.stream.consumer.name",
        ),
        (RedisListSource, {"redis.list.name": "a", "redis.list.processing": "a"}, "redis.list.processing"),
    ],
)
def test_bad_settings_are_named(
    redis_server: Server, plugin: Any, settings: dict[str, str], field: str
) -> None:
    assert list(plugin.validate(config(redis_server, **settings))) == [field]


def test_a_good_configuration_has_no_problem(redis_server: Server) -> None:
    assert RedisSink.validate(config(redis_server)) == {}
    assert RedisStreamSource.validate(config(redis_server, **{"redis.stream.name": "a"})) == {}
    assert RedisListSource.validate(config(redis_server, **{"redis.list.name": "a"})) == {}
