"""MQTT source and sink on a real Mosquitto: acknowledgements, sessions, bad records, settings, logins."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.connect.api import ConnectError, RetriableError
from penstock.connect.connectors.mqtt import MqttSink, MqttSource
from penstock.connect.connectors.mqtt.sink import MqttSinkTask
from penstock.connect.connectors.mqtt.source import MqttSourceTask
from tests.connect.conftest import until
from tests.connect.messaging.helpers import NoOffsets, polled, problems, record
from tests.connect.messaging.servers import PASSWORD, USER, Server


class Client:
    """An ordinary MQTT client that publishes, and keeps what it receives."""

    def __init__(self, server: Server) -> None:
        self.received: list[Any] = []
        self._subscribed = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_message = lambda _, __, message: self.received.append(message)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.connect("127.0.0.1", server.port)
        self._client.loop_start()

    def publish(self, topic: str, *values: object, qos: int = 1, retain: bool = False, **user: str) -> None:
        properties = None
        if user:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = list(user.items())
        infos = [self._client.publish(topic, str(v).encode(), qos, retain, properties) for v in values]
        for info in infos:
            info.wait_for_publish(30)
            assert info.is_published()

    def subscribe(self, topic: str) -> None:
        self._client.subscribe(topic, 2)
        assert self._subscribed.wait(30)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def client(mosquitto: Server) -> Iterator[Client]:
    client = Client(mosquitto)
    yield client
    client.close()


def config(server: Server, name: str, **more: str) -> dict[str, str]:
    return {"name": name, "mqtt.server.uri": f"tcp://127.0.0.1:{server.port}", **more}


def source(server: Server, name: str, **more: str) -> MqttSourceTask:
    """One whose subscription is there."""
    task = MqttSourceTask()
    task.start(config(server, name, **{"mqtt.topics": f"{name}/#", **more}), NoOffsets())

    def subscribed() -> bool:
        try:
            return not task.poll() and task._subscribed
        except RetriableError:
            return False

    until(subscribed, "the subscription")
    return task


def sink(server: Server, name: str, **more: str) -> MqttSinkTask:
    task = MqttSinkTask()
    task.start(config(server, name, **more))
    return task


@pytest.mark.promise(
    "connect", "MQTT: a message is acknowledged when its record is in Kafka, and otherwise delivered again"
)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_messages_come_again_until_they_are_acknowledged(
    mosquitto: Server, client: Client, name: str, version: str
) -> None:
    more = {"mqtt.protocol.version": version, "kafka.topic": "measures"}
    task = source(mosquitto, name, **more)
    client.publish(f"{name}/a", *range(50), qos=1)
    client.publish(f"{name}/b/c", *range(50, 60), qos=2)
    first = polled(task, 20, acknowledge=False)
    assert [each.value for each in first[:20]] == [str(n).encode() for n in range(20)]
    assert first[0].topic == "measures" and first[0].key == f"{name}/a"
    task.stop()
    # The session is kept: what was not acknowledged and what came since is delivered to the next task.
    client.publish(f"{name}/a", *range(60, 70))
    task = MqttSourceTask()
    task.start(config(mosquitto, name, **{"mqtt.topics": f"{name}/#", **more}), NoOffsets())
    found = {int(each.value) for each in polled(task, 70)}
    assert found == set(range(70))
    client.publish(f"{name}/a", 70)
    assert [each.value for each in polled(task, 1)] == [b"70"], "what was acknowledged does not come again"
    task.stop()


def test_a_record_has_the_properties_of_its_message(mosquitto: Server, client: Client, name: str) -> None:
    client.publish(f"{name}/kept", "old", retain=True)
    task = MqttSourceTask()
    task.start(config(mosquitto, name, **{"mqtt.topics": f"{name}/#"}), NoOffsets())
    (kept,) = polled(task, 1)
    headers = {each.key: each.value for each in kept.headers}
    assert (
        headers["mqtt.retained"] is True and headers["mqtt.qos"] == 1 and headers["mqtt.duplicate"] is False
    )
    client.publish(f"{name}/a", "new", colour="red", qos=0)
    (new,) = polled(task, 1)
    headers = {each.key: each.value for each in new.headers}
    assert headers["colour"] == "red" and headers["mqtt.qos"] == 0 and headers["mqtt.retained"] is False
    task.stop()
    client.publish(f"{name}/kept", "", retain=True)


def test_a_topic_that_was_removed_from_the_configuration_is_not_read(
    mosquitto: Server, client: Client, name: str
) -> None:
    task = source(mosquitto, name, **{"mqtt.topics": f"{name}/a,{name}/b"})
    task.stop()
    task = source(mosquitto, name, **{"mqtt.topics": f"{name}/b"})
    client.publish(f"{name}/a", "not wanted")
    client.publish(f"{name}/b", "wanted")
    assert [each.value for each in polled(task, 1)] == [b"wanted"]
    task.stop()


def test_messages_that_are_not_taken_wait_at_the_server(mosquitto: Server, client: Client, name: str) -> None:
    task = source(mosquitto, name, **{"records.buffer.queue.size": "10"})
    client.publish(f"{name}/a", *range(200))
    until(lambda: task._queue.full(), "the buffer is full")
    assert task._queue.qsize() == 10
    assert [int(each.value) for each in polled(task, 200)] == list(range(200))
    task.stop()


def test_a_server_that_goes_away_is_reported_and_found_again(
    mosquitto: Server, client: Client, name: str
) -> None:
    task = source(mosquitto, name)
    writer = sink(mosquitto, f"{name}-sink", **{"mqtt.topic": f"{name}/out"})
    writer.put([record(0, "before")])
    assert [each.value for each in polled(task, 1)] == [b"before"]
    mosquitto.stop(signal.SIGTERM)  # it keeps its sessions
    try:

        def reported() -> bool:
            try:
                task.poll()
            except RetriableError as error:
                return "127.0.0.1" in str(error)
            return False

        until(reported, "the source reports it")
        with pytest.raises(RetriableError, match="MQTT"):
            writer._connect_seconds = 1
            writer.put([record(1, "after")])
    finally:
        mosquitto.start()
    writer._connect_seconds = 30
    # Mosquitto's access list does not know a client of a restored session before it has connected.
    until(lambda: task._connection.connected, "the source is connected again")

    def put() -> bool:
        try:
            writer.put([record(1, "after")])
        except RetriableError:
            return False
        return True

    until(put, "the sink is connected again")
    assert b"after" in [each.value for each in polled(task, 1)]
    task.stop()
    writer.stop()


@pytest.mark.promise(
    "connect", "MQTT: a record that cannot be sent as a message goes to the dead-letter topic"
)
def test_bad_records_are_reported_and_the_others_sent(mosquitto: Server, client: Client, name: str) -> None:
    client.subscribe(f"{name}/#")
    task = sink(mosquitto, name, **{"mqtt.topic": f"{name}/${{key}}"})
    bad: list[tuple[int, str]] = []
    task.report = lambda each, error: bad.append((each.original_offset, str(error)))
    task.put(
        [
            record(0, "a", "x"), record(1, {"n": 1}, "y"), record(2, "no key"), record(3, "wild", "a+b"),
            record(4, b"\xff", "z"), record(5, "x" * 1_100_000, "big"), record(6, None, "empty"),
        ]
    )  # fmt: skip
    assert [offset for offset, _ in bad] == [2, 3, 5]
    assert "no key" in bad[0][1] and "a+b" in bad[1][1] and "1000000" in bad[2][1]
    until(lambda: len(client.received) == 4, "the messages")
    assert {(each.topic.rpartition("/")[2], each.payload) for each in client.received} == {
        ("x", b"a"), ("y", b'{"n":1}'), ("z", b"\xff"), ("empty", b""),
    }  # fmt: skip
    task.stop()
    refused = sink(mosquitto, name, **{"mqtt.topic": "forbidden/${topic}"})
    refused.report = task.report
    refused.put([record(7, "a")])
    assert bad[-1][0] == 7 and "Not authorized" in bad[-1][1]
    refused.stop()


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_batch_is_there_in_order_at_each_quality_of_service(
    mosquitto: Server, client: Client, name: str, qos: str
) -> None:
    client.subscribe(name)
    task = sink(mosquitto, name, **{"mqtt.topic": name, "mqtt.qos": qos})
    task.put([record(n, str(n)) for n in range(1500)])
    until(lambda: len(client.received) == 1500, "the messages", lambda: str(len(client.received)))
    assert [int(each.payload) for each in client.received] == list(range(1500))
    task.stop()


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP connect with TLS and a login, and do not reveal passwords"
)
def test_tls_with_a_login(mosquitto: Server, name: str) -> None:
    secure = {
        "name": name, "mqtt.server.uri": f"ssl://127.0.0.1:{mosquitto.tls_port}", "mqtt.topics": name,
        "mqtt.username": USER, "mqtt.password": PASSWORD, "mqtt.topic": name,
        "mqtt.ssl.trust.store.path": str(mosquitto.authority), "mqtt.connect.timeout.seconds": "5",
    }  # fmt: skip
    assert MqttSink.validate(secure) == {} and MqttSource.validate(secure) == {}
    reader = MqttSourceTask()
    reader.start(secure, NoOffsets())
    until(lambda: not reader.poll() and reader._subscribed, "the subscription")
    writer = MqttSinkTask()
    writer.start({**secure, "name": f"{name}-sink"})
    writer.put([record(0, "secret words")])
    assert [each.value for each in polled(reader, 1)] == [b"secret words"]
    writer.stop()
    reader.stop()
    for change in (
        {"mqtt.password": "wrong-" + PASSWORD},
        {"mqtt.ssl.trust.store.path": ""},
        {"mqtt.ssl.trust.store.path": "/no/such/file"},
        {"mqtt.server.uri": f"ssl://{USER}:{PASSWORD}@127.0.0.1:{mosquitto.tls_port}"},
    ):
        found, text = problems(MqttSink.validate({**secure, **change}))
        assert found == ["mqtt.server.uri"] and PASSWORD not in text, text
    wrong = MqttSourceTask()
    wrong.start({**secure, "mqtt.password": "wrong"}, NoOffsets())

    def refused() -> bool:
        try:
            wrong.poll()
        except RetriableError:
            return False
        except ConnectError as error:
            return "Not authorized" in str(error)
        return False

    until(refused, "the login is refused")
    wrong.stop()


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP: invalid settings are rejected with an error that names them"
)
@pytest.mark.parametrize(
    ("plugin", "settings", "field"),
    [
        (MqttSink, {"mqtt.server.uri": "http://127.0.0.1"}, "mqtt.server.uri"),
        (MqttSink, {"mqtt.server.uri": "tcp://a:1,tcp://b:1"}, "mqtt.server.uri"),
        (MqttSink, {"mqtt.server.uri": "tcp://127.0.0.1:1"}, "mqtt.server.uri"),
        (MqttSink, {"mqtt.topic": "${nothing}"}, "mqtt.topic"),
        (MqttSource, {"mqtt.topics": "a/b+"}, "mqtt.topics"),
        (MqttSource, {"mqtt.topics": "a/#/b"}, "mqtt.topics"),
        (MqttSource, {"mqtt.topics": "$share/group"}, "mqtt.topics"),
    ],
)
def test_bad_settings_are_named(mosquitto: Server, plugin: Any, settings: dict[str, str], field: str) -> None:
    given = {"mqtt.topics": "a", "mqtt.connect.timeout.seconds": "1", **settings}
    assert list(plugin.validate(config(mosquitto, "bad", **given))) == [field]


def test_topics_are_divided_among_tasks() -> None:
    connector = MqttSource()
    connector.start({"mqtt.server.uri": "tcp://host", "mqtt.topics": "a,b,c"})
    assert [(each["mqtt.topics"], each["task.id"]) for each in connector.task_configs(2)] == [
        ("a,c", "0"),
        ("b", "1"),
    ]
    assert len(connector.task_configs(9)) == 3
