"""A Redis server: its settings, a client that does not retry, and Redis's errors as Connect's."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.connect.api import ConfigType, ConnectError, Field, Importance, Range, RetriableError, parse
from penstock.connect.connectors.tls import client_context, reason

CONNECTION = (
    Field(
        "redis.uri",
        default="",
        doc="redis://host:port/database, or rediss:// for TLS. In place of redis.host and redis.port.",
        importance=Importance.HIGH,
    ),
    Field("redis.host", default="localhost", doc="The host.", importance=Importance.HIGH),
    Field("redis.port", ConfigType.INT, 6379, "The port.", Range(1, 65535), importance=Importance.HIGH),
    Field("redis.username", default="", doc="The user; default: Redis's user `default`."),
    Field("redis.password", ConfigType.PASSWORD, "", "The password."),
    Field("redis.timeout", ConfigType.LONG, 60, "How many seconds an answer may take.", Range(1)),
    Field("redis.tls", ConfigType.BOOLEAN, False, "Whether to connect with TLS."),
    Field("redis.insecure", ConfigType.BOOLEAN, False, "Accept any certificate. For tests only."),
    Field("redis.cacert", default="", doc="A PEM file with the authorities; default: the system's."),
    Field("redis.key.cert", default="", doc="A PEM file with the client's certificate."),
    Field("redis.key.file", default="", doc="A PEM file with the key of the client's certificate."),
    Field("redis.key.password", ConfigType.PASSWORD, "", "The password of the key."),
)

_CONNECT_SECONDS = 10
_DEFINITE = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.MasterDownError,
)
_PASSING_CODES = ("OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY", "TRYAGAIN")


class RedisServer:
    """`client` returns bytes. Wrap its calls in `errors()`."""

    def __init__(self, config: Mapping[str, str]) -> None:
        settings = parse(CONNECTION, config)
        host, port, database = settings["redis.host"], settings["redis.port"], 0
        tls = settings["redis.tls"]
        username, password = settings["redis.username"], settings["redis.password"]
        if settings["redis.uri"]:
            url = _url(settings["redis.uri"])
            host, port, database = url["host"], url["port"], url["database"]
            tls = tls or url["tls"]
            username, password = username or url["username"], password or url["password"]
        self.address = f"Redis {host}:{port}"
        self._seconds: int = settings["redis.timeout"]
        self.client: Any = redis.Redis(
            host=host,
            port=port,
            db=database,
            username=username or None,
            password=password or None,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=self._seconds,
            # The connectors decide what to retry: a repeated read of a stream would skip entries.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            client_name="penstock",
            **(_tls(settings) if tls else {}),
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except exceptions.RedisError as error:
            raise translated(self.address, error) from error

    def close(self) -> None:
        self.client.close()


def translated(address: str, error: Exception) -> ConnectError:
    """Translates Redis's errors to Connect's: retriable and permanent ones."""
    text = f"{address}: {reason(error)}"
    if isinstance(error, _DEFINITE):
        return ConnectError(text)
    if isinstance(error, _PASSING) or passes(str(error)):
        return RetriableError(text)
    return ConnectError(text)


def passes(message: str) -> bool:
    """Whether Redis rejects all writes for now, independently of the record."""
    return message.startswith(_PASSING_CODES)


def _url(text: str) -> dict[str, Any]:
    try:
        parts = urlsplit(text)
        port = parts.port or 6379
    except ValueError:
        parts, port = urlsplit(""), 0
    database = parts.path.strip("/") or "0"
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or not database.isdigit():
        raise ConnectError("it must be redis://host:port/database or rediss://host:port/database")
    return {
        "host": parts.hostname,
        "port": port,
        "database": int(database),
        "tls": parts.scheme == "rediss",
        "username": parts.username or "",
        "password": parts.password or "",
    }


def _tls(settings: Mapping[str, Any]) -> dict[str, Any]:
    authorities, certificate = settings["redis.cacert"], settings["redis.key.cert"]
    key, password = settings["redis.key.file"], settings["redis.key.password"]
    client_context(authorities, "", "")  # names a file that cannot be read
    insecure = settings["redis.insecure"]
    return {
        "ssl": True,
        "ssl_ca_certs": authorities or None,
        "ssl_certfile": certificate or None,
        "ssl_keyfile": key or certificate or None,
        "ssl_password": password or None,
        "ssl_cert_reqs": ssl.CERT_NONE if insecure else ssl.CERT_REQUIRED,
        "ssl_check_hostname": not insecure,
    }


def problem_with(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Connection problems of this configuration, by field. A URI is not shown, because it may contain a
    password.
    """
    name = "redis.uri" if config.get("redis.uri") else "redis.host"
    try:
        server = RedisServer(config)
        try:
            with server.errors():
                server.client.ping()
        finally:
            server.close()
    except ConnectError as error:
        return {name: [f"Invalid value for configuration {name}: {error}"]}
    return {}
