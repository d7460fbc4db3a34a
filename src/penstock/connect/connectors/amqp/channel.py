"""A channel of a RabbitMQ server, in its own thread: heartbeats continue while the task waits for Kafka.

A closed channel stays closed: create another one instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pika
from pika import exceptions

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    Field,
    Importance,
    NonEmpty,
    OneOf,
    Range,
    RetriableError,
    parse,
)
from penstock.connect.connectors.tls import client_context, reason

CONNECTION = (
    Field(
        "rabbitmq.host",
        default="localhost",
        doc="The host.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field("rabbitmq.port", ConfigType.INT, 5672, "The port; with TLS usually 5671.", Range(1, 65535)),
    Field("rabbitmq.username", default="guest", doc="The user.", importance=Importance.HIGH),
    Field("rabbitmq.password", ConfigType.PASSWORD, "guest", "The password.", importance=Importance.HIGH),
    Field("rabbitmq.virtual.host", default="/", doc="The virtual host.", importance=Importance.HIGH),
    Field(
        "rabbitmq.connection.timeout.ms", ConfigType.INT, 60_000, "How long connecting may take.", Range(1)
    ),
    Field("rabbitmq.requested.heartbeat.seconds", ConfigType.INT, 60, "0: no heartbeats.", Range(0, 65535)),
    Field(
        "rabbitmq.security.protocol",
        default="PLAINTEXT",
        doc="PLAINTEXT, or SSL for TLS.",
        validator=OneOf("PLAINTEXT", "SSL"),
    ),
    Field(
        "rabbitmq.https.ssl.truststore.location",
        default="",
        doc="A PEM file; default: the system's authorities.",
    ),
    Field(
        "rabbitmq.https.ssl.keystore.location", default="", doc="A PEM file with a certificate and its key."
    ),
    Field("rabbitmq.https.ssl.key.password", ConfigType.PASSWORD, "", "The password of the key."),
)
# Access refused, no such queue or exchange, no such virtual host, resource locked, a queue of another kind.
_DEFINITE = {402, 403, 404, 405, 406, 530}


class ServerChannel:
    """`ready` is called in the channel's thread with pika's channel when it is open.

    Use pika's channel only through `run`. `fail` and any close end it; `wait` raises the reason.
    """

    def __init__(
        self, config: Mapping[str, str], ready: Callable[[Any], None] = lambda channel: None
    ) -> None:
        settings = parse(CONNECTION, config)
        self.address = f"RabbitMQ {settings['rabbitmq.host']}:{settings['rabbitmq.port']}"
        self._seconds: float = settings["rabbitmq.connection.timeout.ms"] / 1000
        self._ready = ready
        self._changed = threading.Condition()
        self._open = False
        self._problem: ConnectError | None = None
        self.blocked = ""
        """Why the server accepts no messages at the moment."""
        self._connection: Any = None
        self._parameters = _parameters(settings, self._seconds)
        self._thread = threading.Thread(target=self._run, name="amqp", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._open

    def wait(self) -> None:
        """Wait until the channel is open. Raises ConnectError, or RetriableError if another attempt may
        succeed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._problem is not None, self._seconds)
            if self._problem is not None:
                raise self._problem
            if not self._open:
                raise RetriableError(f"{self.address}: no answer in {self._seconds:g} s")

    def run(self, work: Callable[[], None]) -> None:
        """Run a function in the channel's thread; does nothing if the thread has ended."""
        if not self._open:
            return

        def safely() -> None:
            try:
                work()
            except exceptions.AMQPError as error:
                self.fail(RetriableError(f"{self.address}: {reason(error)}"))

        self._connection.ioloop.add_callback_threadsafe(safely)

    def fail(self, problem: ConnectError) -> None:
        with self._changed:
            self._open = False
            self._problem = self._problem or problem
            self._changed.notify_all()

    def close(self) -> None:
        """Close the channel. Unacknowledged messages return to their queue."""
        connection, self._open = self._connection, False
        if connection is not None and self._thread.is_alive():
            connection.ioloop.add_callback_threadsafe(self._end)
        self._thread.join(10)

    # In the thread of the channel

    def _run(self) -> None:
        try:
            self._connection = pika.SelectConnection(
                self._parameters,
                on_open_callback=self._opened,
                on_open_error_callback=self._not_opened,
                on_close_callback=self._closed,
            )
            self._connection.ioloop.start()
        except Exception as error:  # noqa: BLE001 - whatever ends the thread must reach the task
            self.fail(RetriableError(f"{self.address}: {reason(error)}"))

    def _end(self) -> None:
        if self._connection.is_open:
            self._connection.close()
        elif not self._connection.is_closing:
            self._connection.ioloop.stop()

    def _opened(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._now_blocked)
        connection.add_on_connection_unblocked_callback(self._not_blocked)
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(self._cancelled)
        self._ready(channel)
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def _cancelled(self, frame: Any) -> None:
        """The server cancelled a consumer: its queue was deleted, or moved to another server."""
        self.fail(RetriableError(f"{self.address} cancelled the consumer: its queue was deleted or moved"))
        self._end()

    def _channel_closed(self, channel: Any, error: BaseException) -> None:
        self.fail(self._translated(error))
        self._end()

    def _not_opened(self, connection: Any, error: BaseException) -> None:
        self.fail(self._translated(error))
        connection.ioloop.stop()

    def _closed(self, connection: Any, error: BaseException) -> None:
        self.fail(self._translated(error))
        connection.ioloop.stop()

    def _now_blocked(self, connection: Any, frame: Any) -> None:
        self.blocked = frame.method.reason

    def _not_blocked(self, connection: Any, frame: Any) -> None:
        self.blocked = ""

    def _translated(self, error: BaseException) -> ConnectError:
        code = getattr(error, "reply_code", None)
        text = getattr(error, "reply_text", "") or reason(error)
        definite = code in _DEFINITE or isinstance(
            error, (exceptions.ProbableAuthenticationError, exceptions.ProbableAccessDeniedError)
        )
        return (ConnectError if definite else RetriableError)(f"{self.address}: {text}")


def _parameters(settings: Mapping[str, Any], seconds: float) -> Any:
    tls = None
    if settings["rabbitmq.security.protocol"] == "SSL":
        context = client_context(
            settings["rabbitmq.https.ssl.truststore.location"],
            settings["rabbitmq.https.ssl.keystore.location"],
            settings["rabbitmq.https.ssl.key.password"],
        )
        tls = pika.SSLOptions(context, settings["rabbitmq.host"])
    return pika.ConnectionParameters(
        host=settings["rabbitmq.host"],
        port=settings["rabbitmq.port"],
        virtual_host=settings["rabbitmq.virtual.host"],
        credentials=pika.PlainCredentials(settings["rabbitmq.username"], settings["rabbitmq.password"]),
        heartbeat=settings["rabbitmq.requested.heartbeat.seconds"],
        socket_timeout=seconds,
        stack_timeout=seconds,
        ssl_options=tls,
        client_properties={"connection_name": "penstock"},
    )


def problem_with(
    config: Mapping[str, str], name: str, look: Callable[[Any, Callable[[Any], None]], None]
) -> dict[str, list[str]]:
    """The problems of this configuration, by field.

    `look` asks a channel for the object that the setting `name` names, and calls back when it exists.
    """
    field, shown = "rabbitmq.host", config.get("rabbitmq.host", "localhost")
    found = threading.Event()
    opened: list[Any] = []
    try:
        channel = ServerChannel(config, opened.append)
        try:
            channel.wait()
            field, shown = name, config.get(name, "")
            channel.run(lambda: look(opened[0], lambda frame: found.set()))
            while not found.wait(0.05):
                if not channel.is_open:
                    channel.wait()
        finally:
            channel.close()
    except ConnectError as error:
        return {field: [f"Invalid value {shown} for configuration {field}: {error}"]}
    return {}
