"""RabbitMQ source and sink on a real server: acknowledgements, confirms, bad records, settings, logins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from penstock.connect.api import ConnectError, Header, RetriableError
from penstock.connect.connectors.amqp import AmqpSink, AmqpSource
from penstock.connect.connectors.amqp.sink import AmqpSinkTask
from penstock.connect.connectors.amqp.source import AmqpSourceTask
from tests.connect.conftest import until
from tests.connect.messaging.helpers import NoOffsets, polled, problems, record
from tests.connect.messaging.servers import PASSWORD, USER, Server

# The server of Erlang takes its time where others use the cores.
pytestmark = pytest.mark.timeout(400)


class Client:
    """An ordinary client with a durable queue."""

    def __init__(self, server: Server, queue: str) -> None:
        self._server, self.queue = server, queue
        self._connect()
        self.channel.queue_declare(queue, durable=True)

    def _connect(self) -> None:
        login = pika.PlainCredentials(USER, PASSWORD)
        self._connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._server.port, credentials=login, heartbeat=0)
        )
        self.channel = self._connection.channel()
        self.channel.confirm_delivery()

    def publish(self, *bodies: object, **properties: Any) -> None:
        for body in bodies:
            wanted = pika.BasicProperties(delivery_mode=2, **properties)
            self.channel.basic_publish("", self.queue, str(body).encode(), wanted)

    def waiting(self) -> int:
        """Ready for a consumer, and not delivered to one."""
        count: int = self.channel.queue_declare(self.queue, passive=True).method.message_count
        return count

    def take(self) -> list[tuple[Any, Any, bytes]]:
        found = []
        while (each := self.channel.basic_get(self.queue, auto_ack=True))[0] is not None:
            found.append(each)
        return found

    def again(self) -> None:
        """After the server was away: it takes connections before it has its queues back."""
        self._connect()
        self.channel.queue_declare(self.queue, durable=True)

    def close(self) -> None:
        self.channel.queue_delete(self.queue)
        self._connection.close()


@pytest.fixture
def client(rabbitmq: Server, name: str) -> Iterator[Client]:
    client = Client(rabbitmq, name)
    yield client
    client.close()


def config(server: Server, queue: str, **more: str) -> dict[str, str]:
    return {
        "name": "rabbit", "rabbitmq.host": "127.0.0.1", "rabbitmq.port": str(server.port),
        "rabbitmq.username": USER, "rabbitmq.password": PASSWORD, "rabbitmq.queue": queue,
        "kafka.topic": "orders", "rabbitmq.routing.key": queue, **more,
    }  # fmt: skip


def source(server: Server, queue: str, **more: str) -> AmqpSourceTask:
    task = AmqpSourceTask()
    task.start(config(server, queue, **more), NoOffsets())
    return task


def sink(server: Server, queue: str, **more: str) -> AmqpSinkTask:
    task = AmqpSinkTask()
    task.start(config(server, queue, **more))
    return task


@pytest.mark.promise(
    "connect",
    "RabbitMQ: a message is acknowledged when its record is in Kafka, and otherwise returned to its queue",
)
def test_messages_come_again_until_they_are_acknowledged(rabbitmq: Server, client: Client) -> None:
    client.publish(*range(30))
    task = source(rabbitmq, client.queue, **{"rabbitmq.prefetch.count": "10"})
    polled(task, 10, acknowledge=False)
    assert client.waiting() == 20, "more than the prefetch is not taken"
    task.stop()
    until(lambda: client.waiting() == 30, "what was not acknowledged is back")
    task = source(rabbitmq, client.queue, **{"rabbitmq.prefetch.count": "7"})
    assert [int(each.value) for each in polled(task, 30)] == list(range(30))
    task.stop()
    assert client.waiting() == 0


def test_a_record_has_the_properties_of_its_message(rabbitmq: Server, client: Client) -> None:
    client.publish(
        "body",
        message_id="id-1",
        content_type="text/plain",
        timestamp=1_700_000_000,
        headers={"n": 5, "s": "x"},
    )
    task = source(rabbitmq, client.queue)
    (found,) = polled(task, 1)
    task.stop()
    assert (found.topic, found.key, found.value) == ("orders", client.queue, b"body")
    assert found.timestamp == 1_700_000_000_000
    headers = {each.key: each.value for each in found.headers}
    assert headers == {
        "rabbitmq.exchange": "", "rabbitmq.routing.key": client.queue, "rabbitmq.delivery.mode": 2,
        "rabbitmq.content.type": "text/plain", "rabbitmq.message.id": "id-1", "rabbitmq.n": 5,
        "rabbitmq.s": "x",
    }  # fmt: skip


def test_records_are_persistent_messages_with_what_is_forwarded(rabbitmq: Server, client: Client) -> None:
    task = sink(
        rabbitmq, client.queue,
        **{
            "rabbitmq.headers": "from:kafka", "rabbitmq.forward.kafka.key": "true",
            "rabbitmq.forward.kafka.metadata": "true", "rabbitmq.forward.kafka.headers": "true",
            "rabbitmq.publish.max.batch.size": "400",
        },
    )  # fmt: skip
    task.put([record(n, {"n": n}, f"k{n}").changed(headers=(Header("h", 7),)) for n in range(1000)])
    task.put([record(1000, b"\xff"), record(1001, None)])
    task.stop()
    found = client.take()
    assert [body for _, _, body in found] == [b'{"n":%d}' % n for n in range(1000)] + [b"\xff", b""]
    properties = found[5][1]
    assert properties.delivery_mode == 2 and properties.message_id == "items-0-5"
    assert properties.headers == {
        "from": "kafka", "kafka.key": "k5", "kafka.topic": "items", "kafka.partition": 0, "kafka.offset": 5,
        "h": "7",
    }  # fmt: skip


@pytest.mark.promise(
    "connect", "RabbitMQ: a record that cannot be routed to a queue goes to the dead-letter topic"
)
def test_records_that_no_queue_takes_are_reported(rabbitmq: Server, client: Client) -> None:
    task = sink(rabbitmq, client.queue, **{"rabbitmq.routing.key": "${key}"})
    bad: list[tuple[int, str]] = []
    task.report = lambda each, error: bad.append((each.original_offset, str(error)))
    task.put(
        [
            record(0, "a", client.queue), record(1, "b", "nowhere"), record(2, "c"),
            record(3, "d", "x" * 300), record(4, "e", client.queue),
        ]
    )  # fmt: skip
    task.stop()
    assert sorted(offset for offset, _ in bad) == [1, 2, 3]
    assert any("no queue takes the message" in text for _, text in bad)
    assert [body for _, _, body in client.take()] == [b"a", b"e"]


@pytest.mark.promise(
    "connect", "RabbitMQ: a full queue slows the sink down (back-pressure), and no record is sent to it twice"
)
def test_a_full_queue_presses_back(rabbitmq: Server, name: str) -> None:
    client = Client(rabbitmq, f"{name}-first")
    full = f"{name}-full"
    client.channel.queue_declare(full, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    task = sink(rabbitmq, full)
    with pytest.raises(RetriableError, match="a queue is full"):
        task.put([record(n, str(n)) for n in range(10)])
    seen: list[bytes] = []

    def drained() -> bool:
        client.queue, kept = full, client.queue
        seen.extend(body for _, _, body in client.take())
        client.queue = kept
        try:
            task.put([record(n, str(n)) for n in range(10)])
        except RetriableError:
            return False
        return True

    until(drained, "all are sent")
    task.stop()
    client.queue = full
    seen += [body for _, _, body in client.take()]
    assert sorted(seen) == [str(n).encode() for n in range(10)]
    client.close()


def test_a_queue_that_is_deleted_is_reported(rabbitmq: Server, client: Client) -> None:
    task = source(rabbitmq, client.queue)
    client.publish("a")
    polled(task, 1)
    client.channel.queue_delete(client.queue)

    def reported() -> str:
        try:
            task.poll()
        except ConnectError as error:
            return str(error)
        return ""

    assert "queue was deleted" in until(reported, "the queue is gone")
    until(lambda: "no queue" in reported(), "there is no such queue")
    task.stop()


def test_a_server_that_goes_away_is_reported_and_found_again(rabbitmq: Server, client: Client) -> None:
    client.publish("before")
    task = source(rabbitmq, client.queue)
    writer = sink(rabbitmq, client.queue)
    assert [each.value for each in polled(task, 1)] == [b"before"]
    writer.put([record(0, "while it runs")])
    assert [each.value for each in polled(task, 1)] == [b"while it runs"]
    rabbitmq.stop()
    try:
        for work in (task.poll, lambda: writer.put([record(1, "after")])):

            def reported(work: Any = work) -> bool:
                try:
                    work()
                except RetriableError as error:
                    return "127.0.0.1" in str(error)
                return False

            until(reported, "the server is away")
    finally:
        rabbitmq.start()
        client.again()
    writer.put([record(1, "after")])
    found: list[Any] = []
    # What was acknowledged in the last moment may come again.
    until(lambda: found.extend(polled(task, 1)) or found[-1].value == b"after", "the message after")
    task.stop()
    writer.stop()


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP connect with TLS and a login, and do not reveal passwords"
)
def test_tls_with_a_login(rabbitmq: Server, client: Client) -> None:
    secure = {
        "rabbitmq.security.protocol": "SSL", "rabbitmq.port": str(rabbitmq.tls_port),
        "rabbitmq.https.ssl.truststore.location": str(rabbitmq.authority),
    }  # fmt: skip
    assert AmqpSink.validate(config(rabbitmq, client.queue, **secure)) == {}
    writer = sink(rabbitmq, client.queue, **secure)
    writer.put([record(0, "secret words")])
    writer.stop()
    assert [body for _, _, body in client.take()] == [b"secret words"]
    for change in (
        {"rabbitmq.password": "wrong-" + PASSWORD},
        {"rabbitmq.https.ssl.truststore.location": ""},
        {"rabbitmq.https.ssl.truststore.location": "/no/such/file"},
        {"rabbitmq.virtual.host": "nowhere"},
    ):
        found, text = problems(AmqpSink.validate(config(rabbitmq, client.queue, **{**secure, **change})))
        assert found == ["rabbitmq.host"] and PASSWORD not in text, text


@pytest.mark.promise(
    "connect", "Redis, MQTT, RabbitMQ and HTTP: invalid settings are rejected with an error that names them"
)
@pytest.mark.parametrize(
    ("plugin", "settings", "field"),
    [
        (AmqpSource, {"rabbitmq.port": "1"}, "rabbitmq.host"),
        (AmqpSource, {"rabbitmq.queue": "no-such-queue"}, "rabbitmq.queue"),
        (AmqpSink, {"rabbitmq.exchange": "no-such-exchange"}, "rabbitmq.exchange"),
        (AmqpSink, {"rabbitmq.routing.key": "${nothing}"}, "rabbitmq.routing.key"),
        (AmqpSink, {"rabbitmq.headers": "no colon"}, "rabbitmq.headers"),
    ],
)
def test_bad_settings_are_named(
    rabbitmq: Server, client: Client, plugin: Any, settings: dict[str, str], field: str
) -> None:
    found, text = problems(plugin.validate(config(rabbitmq, client.queue, **settings)))
    assert found == [field], text
    assert plugin.validate(config(rabbitmq, client.queue)) == {}
