"""A connection to an MQTT server: settings, and a client with its own thread that reconnects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

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
from penstock.connect.connectors.tls import client_context

CONNECTION = (
    Field(
        "mqtt.server.uri",
        doc="tcp://host:port, or ssl://host:port for TLS. Default ports: 1883 and 8883.",
        validator=NonEmpty(),
        importance=Importance.HIGH,
    ),
    Field("mqtt.username", default="", doc="The user.", importance=Importance.HIGH),
    Field("mqtt.password", ConfigType.PASSWORD, "", "The password.", importance=Importance.HIGH),
    Field(
        "mqtt.client.id", default="", doc="The client's id; default: penstock-CONNECTOR. The task is added."
    ),
    Field(
        "mqtt.protocol.version",
        default="5",
        doc="5, or 3.1.1 for a server that has no other.",
        validator=OneOf("5", "3.1.1"),
    ),
    Field("mqtt.keepalive.interval.seconds", ConfigType.INT, 60, "MQTT's keep alive.", Range(1, 65535)),
    Field("mqtt.connect.timeout.seconds", ConfigType.INT, 30, "How long connecting may take.", Range(1)),
    Field(
        "mqtt.ssl.trust.store.path", default="", doc="A PEM file with the authorities; default: the system's."
    ),
    Field("mqtt.ssl.key.store.path", default="", doc="A PEM file with the client's certificate and key."),
    Field("mqtt.ssl.key.password", ConfigType.PASSWORD, "", "The password of the key."),
)
_SCHEMES = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}
_NEVER = 0xFFFFFFFF
# Permanent errors: bad credentials, not authorized, bad client id or protocol version.
_DEFINITE = {
    "Bad user name or password",
    "Not authorized",
    "Unsupported protocol version",
    "Client identifier not valid",
    "Banned",
}


class MqttConnection:
    """`client` is paho's. Its callbacks run in its own thread; `on_connect` is called after each connect.

    The client reconnects automatically. `wait` waits for a connection, or raises the reason why there is
    none.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        clean: bool,
        receive_maximum: int | None = None,
        on_connect: Callable[[bool, Any], None] = lambda session, properties: None,
        on_disconnect: Callable[[], None] = lambda: None,
    ) -> None:
        settings = parse(CONNECTION, config)
        tls, self._host, self._port = address(settings["mqtt.server.uri"])
        self.address = f"MQTT {self._host}:{self._port}"
        self._on_connect, self._on_disconnect = on_connect, on_disconnect
        self._connected = threading.Event()
        self._changed = threading.Condition()
        self._problem = "not connected yet"
        self._definite = False
        self.v5 = settings["mqtt.protocol.version"] == "5"
        name = settings["mqtt.client.id"] or f"penstock-{config.get('name') or 'connector'}"
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{name}-{config.get('task.id', '0')}",
            clean_session=None if self.v5 else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if self.v5 else MQTTProtocolVersion.MQTTv311,
            manual_ack=True,
        )
        self.client.connect_timeout = settings["mqtt.connect.timeout.seconds"]
        self.client.reconnect_delay_set(1, 30)
        if settings["mqtt.username"]:
            self.client.username_pw_set(settings["mqtt.username"], settings["mqtt.password"])
        if tls:
            self.client.tls_set_context(
                client_context(
                    settings["mqtt.ssl.trust.store.path"],
                    settings["mqtt.ssl.key.store.path"],
                    settings["mqtt.ssl.key.password"],
                )
            )
        self.client.on_connect = self._connect_answered
        self.client.on_connect_fail = self._connect_failed
        self.client.on_disconnect = self._disconnected
        self._options: dict[str, Any] = {"keepalive": settings["mqtt.keepalive.interval.seconds"]}
        if self.v5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 0 if clean else _NEVER
            if receive_maximum is not None:
                properties.ReceiveMaximum = receive_maximum
            self._options |= {"clean_start": clean, "properties": properties}

    def open(self) -> None:
        self.client.connect_async(self._host, self._port, **self._options)
        self.client.loop_start()

    def _connect_answered(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            with self._changed:
                self._problem, self._definite = str(reason), str(reason) in _DEFINITE
                self._changed.notify_all()
            return
        self._on_connect(flags.session_present, properties)
        with self._changed:
            self._definite = False
            self._connected.set()
            self._changed.notify_all()

    def _connect_failed(self, client: Any, userdata: Any) -> None:
        self._lost("connection refused or no answer")

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._on_disconnect()
        if not self._definite:
            self._lost(f"connection lost: {reason}")

    def _lost(self, problem: str) -> None:
        with self._changed:
            self._connected.clear()
            self._problem = problem
            self._changed.notify_all()

    def refuse(self, problem: str) -> None:
        """The server does not allow what this connection is for."""
        with self._changed:
            self._problem, self._definite = problem, True
            self._connected.clear()
            self._changed.notify_all()

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def wait(self, seconds: float) -> None:
        """Wait until it is connected. Raises RetriableError after the timeout, ConnectError for a permanent
        error.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._definite or self._connected.is_set(), seconds)
            if self._definite:
                raise ConnectError(f"{self.address}: {self._problem}")
            if not self._connected.is_set():
                raise RetriableError(f"{self.address}: {self._problem}")

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def address(uri: str) -> tuple[bool, str, int]:
    """Whether with TLS, the host and the port; ConnectError says what a URI looks like."""
    try:
        parts = urlsplit(uri.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path or parts.username is not None:
        raise ConnectError(
            "it must be tcp://host:port or ssl://host:port, of one server and without a login (mqtt.username)"
        )
    default = _SCHEMES[parts.scheme]
    return default == 8883, parts.hostname, port or default


def problem_with(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Connection problems of this configuration, by field."""
    name = "mqtt.server.uri"
    try:
        probe = MqttConnection({**config, "task.id": "check"}, clean=True)
        probe.open()
        try:
            probe.wait(parse(CONNECTION, config)["mqtt.connect.timeout.seconds"])
        finally:
            probe.close()
    except ConnectError as error:
        shown = config[name].rpartition("@")[2]
        return {name: [f"Invalid value {shown} for configuration {name}: {error}"]}
    return {}
