"""Messaging connectors in a Connect worker: kills, servers that go away, bad records, back pressure."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
import redis
from confluent_kafka import Consumer, KafkaException, TopicPartition
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.connect.conftest import WAIT_SECONDS, Topics, Worker, Workers, until
from tests.connect.messaging.helpers import TEXT, killed_twice, shows_error
from tests.connect.messaging.servers import PASSWORD, USER, Server
from tests.connect.messaging.web import Request, WebServer
from tests.connect.test_workers import task_processes

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker

pytestmark = pytest.mark.timeout(400)
COUNT = 2000
DEAD = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": 1,
    "errors.deadletterqueue.context.headers.enable": "true",
}
# A task that was killed leaves the group after this.
QUICK = {"consumer.override.session.timeout.ms": 3000}


@pytest.fixture
def web() -> Iterator[WebServer]:
    server = WebServer()
    server.start()
    yield server
    server.stop()


def redis_config(server: Server, **more: object) -> dict[str, object]:
    return {"redis.uri": f"redis://127.0.0.1:{server.port}", **TEXT, **more}


def rabbit_config(server: Server, **more: object) -> dict[str, object]:
    return {
        "rabbitmq.host": "127.0.0.1", "rabbitmq.port": server.port, "rabbitmq.username": USER,
        "rabbitmq.password": PASSWORD, **TEXT, **more,
    }  # fmt: skip


def mqtt_config(server: Server, **more: object) -> dict[str, object]:
    return {"mqtt.server.uri": f"tcp://127.0.0.1:{server.port}", **TEXT, **more}


def rabbit_channel(server: Server) -> Any:
    login = pika.PlainCredentials(USER, PASSWORD)
    parameters = pika.ConnectionParameters("127.0.0.1", server.port, credentials=login, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def mqtt_client(server: Server, session: str | None = None) -> paho.Client:
    """With a session, the server keeps its subscriptions and what arrives for them while it is away."""
    if session is None:
        client = paho.Client(CallbackAPIVersion.VERSION2)
    else:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=session, clean_session=False)
    client.connect("127.0.0.1", server.port)
    client.loop_start()
    return client


def end_of(broker: PenstockBroker, topic: str) -> Callable[[], int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "end"})

    def end() -> int:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
        except KafkaException:
            return 0  # there is no topic yet

    return end


def number(value: bytes) -> int:
    """Of an entry of a stream, or the value itself."""
    found = json.loads(value) if value.startswith(b"{") else value
    return int(found["body"]["n"] if isinstance(found, dict) else found)


def all_arrive(topics: Topics, topic: str) -> None:
    def complete(found: list[Any]) -> bool:
        return {number(each.value()) for each in found} == set(range(COUNT))

    topics.read_all(topic, complete, "all numbers")


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ: a source whose worker and task are killed under load loses nothing"
)
@pytest.mark.parametrize("kind", ["redis", "mqtt", "amqp"])
def test_a_killed_source_loses_nothing(
    kind: str,
    request: pytest.FixtureRequest,
    broker: PenstockBroker,
    workers: Workers,
    topics: Topics,
    name: str,
) -> None:
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        client: Any = redis.Redis(port=server.port)
        json_values = {"value.converter": "json", "value.converter.schemas.enable": "false"}
        config = redis_config(server, **{"redis.stream.name": name, "batch.size": 50, **json_values})
        config["connector.class"] = "com.redis.kafka.connect.RedisStreamSourceConnector"

        def write(first: int, last: int) -> None:
            for n in range(first, last):
                client.xadd(name, {"n": n})
    elif kind == "mqtt":
        server = request.getfixturevalue("mosquitto")
        config = mqtt_config(server, **{"mqtt.topics": f"{name}/+", "kafka.topic": name})
        config |= {"connector.class": "MqttSource", "mqtt.client.id": name, "records.buffer.queue.size": 50}
        # A session must be there before the messages: MQTT keeps none for those who never subscribed.
        session = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{name}-0", clean_session=False)
        session.connect("127.0.0.1", server.port)
        session.loop_start()
        subscribed: list[Any] = []
        session.on_subscribe = lambda *given: subscribed.append(given)
        until(session.is_connected, "the session")
        session.subscribe(f"{name}/+", 1)
        until(lambda: subscribed, "the subscription")
        session.disconnect()
        session.loop_stop()
        publisher = mqtt_client(server)
        request.addfinalizer(publisher.loop_stop)

        def write(first: int, last: int) -> None:
            for info in [publisher.publish(f"{name}/a", str(n), 1) for n in range(first, last)]:
                info.wait_for_publish(60)
    else:
        server = request.getfixturevalue("rabbitmq")
        channel = rabbit_channel(server)
        channel.queue_declare(name, durable=True)
        config = rabbit_config(server, **{"rabbitmq.queue": name, "kafka.topic": name})
        config |= {"connector.class": "AmqpSource", "rabbitmq.prefetch.count": 50}

        def write(first: int, last: int) -> None:
            for n in range(first, last):
                channel.basic_publish("", name, str(n).encode(), pika.BasicProperties(delivery_mode=2))

    killed_twice(workers, broker, name, config, write, end_of(broker, name), COUNT)
    all_arrive(topics, name)


@pytest.mark.promise("connect", "Redis: a sink that is killed under load has written each record once")
def test_a_killed_redis_sink_has_each_record_once(
    redis_server: Server, broker: PenstockBroker, workers: Workers, topics: Topics, name: str
) -> None:
    client: Any = redis.Redis(port=redis_server.port)
    json_values = {"value.converter": "json", "value.converter.schemas.enable": "false"}
    config = redis_config(redis_server, topics=name, **json_values, **QUICK)
    config |= {"connector.class": "RedisSink", "consumer.override.max.poll.records": 20}

    def write(first: int, last: int) -> None:
        topics.write(name, *(json.dumps({"n": n}).encode() for n in range(first, last)))

    worker = killed_twice(workers, broker, name, config, write, lambda: client.xlen(name), COUNT)
    assert worker.http.delete(f"/connectors/{name}").status_code == 204
    assert [int(fields[b"n"]) for _, fields in client.xrange(name)] == list(range(COUNT))


@pytest.mark.promise("connect", "MQTT, RabbitMQ, HTTP: a sink that is killed under load loses nothing")
@pytest.mark.parametrize("kind", ["mqtt", "amqp", "http"])
def test_a_killed_sink_loses_nothing(
    kind: str,
    request: pytest.FixtureRequest,
    broker: PenstockBroker,
    workers: Workers,
    topics: Topics,
    name: str,
) -> None:
    arrived: set[int] = set()
    if kind == "mqtt":
        server = request.getfixturevalue("mosquitto")
        client = mqtt_client(server)
        request.addfinalizer(client.loop_stop)
        client.on_message = lambda _, __, message: arrived.add(int(message.payload))
        client.subscribe(name, 1)
        config = mqtt_config(server, **{"connector.class": "MqttSink", "mqtt.topic": name})
    elif kind == "amqp":
        server = request.getfixturevalue("rabbitmq")
        channel = rabbit_channel(server)
        channel.queue_declare(name)
        config = rabbit_config(server, **{"connector.class": "AmqpSink", "rabbitmq.routing.key": name})
    else:
        web = request.getfixturevalue("web")
        config = {
            "connector.class": "HttpSink",
            "http.api.url": f"{web.url}/in",
            "batch.max.size": 50,
            **TEXT,
        }

    def progress() -> int:
        if kind == "http":
            arrived.update(int(n) for each in web.requests for n in each.body.split(b","))
        if kind == "amqp":
            while (found := channel.basic_get(name, auto_ack=True))[0] is not None:
                arrived.add(int(found[2]))
        return len(arrived)

    def write(first: int, last: int) -> None:
        topics.write(name, *(str(n).encode() for n in range(first, last)))

    config |= {"topics": name, "consumer.override.max.poll.records": 50, **QUICK}
    killed_twice(workers, broker, name, config, write, progress, COUNT)
    assert arrived == set(range(COUNT))


@pytest.mark.promise(
    "connect",
    "Redis, MQTT, HTTP: the status shows that a server is unavailable, and the server gets all records "
    "when it is available again",
)
@pytest.mark.parametrize("kind", ["redis", "mqtt", "http"])
def test_a_server_that_goes_away_is_shown_and_picked_up_again(
    kind: str, request: pytest.FixtureRequest, worker: Worker, topics: Topics, name: str
) -> None:
    server: Any
    subscribed = threading.Event()
    found: set[bytes] = set()
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        config = redis_config(server, **{"connector.class": "RedisSink", "redis.command": "RPUSH"})
        client: Any = redis.Redis(port=server.port)

        def count() -> int:
            try:
                return int(client.llen(name))
            except redis.ConnectionError:
                return 0
    elif kind == "mqtt":
        server = request.getfixturevalue("open_mosquitto")
        config = mqtt_config(server, **{"connector.class": "MqttSink", "mqtt.topic": name})
        reader = mqtt_client(server, f"reader-{name}")
        request.addfinalizer(reader.loop_stop)
        reader.on_subscribe = lambda *_: subscribed.set()
        reader.on_message = lambda _, __, message: found.add(message.payload)
        reader.subscribe(name, 1)
        assert subscribed.wait(WAIT_SECONDS)

        def count() -> int:
            return len(found)
    else:
        server = request.getfixturevalue("web")
        config = {"connector.class": "HttpSink", "http.api.url": f"{server.url}/in", **TEXT}

        def count() -> int:
            return len({each.body for each in server.requests})

    topics.write(name, *((f"k{n}", f"v{n}") for n in range(10)))
    worker.put(name, {**config, "topics": name})
    until(lambda: count() == 10, "the first records", lambda: str(worker.status(name)))
    if kind == "http":
        server.stop()
    else:
        # Mosquitto keeps sessions on disk only when it ends in order.
        server.stop(signal.SIGTERM if kind == "mqtt" else signal.SIGKILL)
    try:
        topics.write(name, *((f"k{n}", f"v{n}") for n in range(10, 20)))
        shows_error(worker, name)
    finally:
        server.start()
    # Also what was written during the outage.
    until(lambda: count() == 20, "the records after", lambda: f"{count()} {worker.status(name)}")
    until(lambda: not worker.status(name)["tasks"][0].get("trace"), "the status shows the error no more")
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.promise(
    "connect",
    "HTTP: a record that the server rejects goes to the dead-letter topic, and the other records are sent",
)
def test_a_poison_record_goes_to_the_dead_letter_topic(
    web: WebServer, worker: Worker, topics: Topics, name: str
) -> None:
    web.answer = lambda request: (400, {"error": "poison"}) if request.body == b"3" else (200, {})
    topics.write(name, *(str(n).encode() for n in range(10)))
    config = {"connector.class": "HttpSink", "http.api.url": f"{web.url}/in", "topics": name, **TEXT, **DEAD}
    worker.put(name, {**config, "errors.deadletterqueue.topic.name": f"{name}-dead"})
    until(lambda: len(web.requests) == 10, "all requests", lambda: str(worker.status(name)))
    (dead,) = topics.read(f"{name}-dead", 1)
    assert dead.value() == b"3"
    message = dict(dead.headers())["__connect.errors.exception.message"].decode()
    assert "status 400" in message and "poison" in message
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
@pytest.mark.promise(
    "connect", "HTTP: a slow server slows the sink down (back-pressure), and the task's memory stays bounded"
)
def test_a_slow_server_presses_back(web: WebServer, worker: Worker, topics: Topics, name: str) -> None:
    size, count = 50_000, 6000  # 300 MB
    data = b"x" * size
    topics.write(name, *(data for _ in range(count)))
    web.hold.clear()
    config = {"connector.class": "HttpSink", "http.api.url": f"{web.url}/in", "topics": name, **TEXT}
    worker.put(name, {**config, "http.request.timeout.ms": 500, "consumer.override.max.poll.records": 100})

    # Several requests time out and are sent again: the task had time to read all, if nothing held it back.
    def tried(request_count: int) -> Callable[[], bool]:
        return lambda: len(web.requests) >= request_count

    until(tried(4), "several attempts", lambda: str(worker.status(name)))
    # The task, and the process that answers questions about plugins.
    processes = task_processes(worker.process.pid)
    largest = max(map(resident, processes))
    assert largest < 250_000_000, largest
    keys: set[str] = {each.headers["idempotency-key"] for each in web.requests}
    assert keys == {f"{name}-0-0"}, "one record is tried, and the others wait"
    web.requests.clear()
    web.hold.set()

    def keys_of(requests: list[Request]) -> set[str]:
        return {each.headers["idempotency-key"] for each in requests}

    until(lambda: len(keys_of(web.requests)) >= 300, "it goes on", lambda: str(worker.status(name)))
    largest = max(map(resident, processes))
    assert largest < 250_000_000, largest
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP: invalid settings are rejected with an error that names them"
)
@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"connector.class": "RedisSink", "redis.uri": "redis://127.0.0.1:1", "topics": "t"}, "redis.uri"),
        ({"connector.class": "MqttSource", "mqtt.server.uri": "tcp://127.0.0.1:1"}, "mqtt.topics"),
        ({"connector.class": "AmqpSource", "rabbitmq.queue": "q"}, "kafka.topic"),
        ({"connector.class": "HttpSink", "http.api.url": "nowhere", "topics": "t"}, "http.api.url"),
    ],
)
def test_bad_settings_are_refused_by_name(
    worker: Worker, name: str, config: dict[str, str], field: str
) -> None:
    answer = worker.http.put(f"/connectors/{name}/config", json=config)
    assert answer.status_code == 400 and field in answer.json()["message"], answer.text
