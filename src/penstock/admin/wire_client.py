"""A small Kafka client for requests that confluent-kafka does not support (transactions, types of groups).

It starts with the bootstrap servers, learns the brokers from Metadata, uses the newest version that both
sides support, and retries while a coordinator or leader moves. TLS and SASL come from `penstock.client`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed, Unreachable
from penstock.client import ClientError, ClientSettings
from penstock.client import connection as client
from penstock.client.errors import ConnectionFailed
from penstock.client.settings import kafka_names
from penstock.errors import ApiError, error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1  # the key types of FindCoordinator
_BACKOFF_SECONDS = 0.05


class CommandConnection(client.Connection):
    """A connection whose errors are those of commands: one line that says what to do."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        with _failures():
            super().__init__(host, port, settings)

    def request(self, api: ApiKey, message: Message, *, at_most: int = 32767) -> Message:
        with _failures():
            return super().request(api, message, at_most=at_most)


class WireCluster:
    """The brokers of a cluster, connected to on demand. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        with _failures():
            self._settings = client_settings(cluster)
        self._deadline = time.monotonic() + cluster.timeout
        self._connections: dict[tuple[str, int], CommandConnection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._bootstrap: CommandConnection | None = None

    def __enter__(self) -> WireCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    # Whom to ask

    def metadata(self, topics: Iterable[str] | None = ()) -> Message:
        """Metadata of `topics`, which are not created by the request; None means all topics."""
        wanted = None if topics is None else [Message(name=name) for name in topics]
        request = Message(topics=wanted, allow_auto_topic_creation=False)
        answer = self._any().request(ApiKey.METADATA, request)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def brokers(self) -> list[CommandConnection]:
        """A connection to each broker that is up."""
        self.metadata()
        return [self.broker(node_id) for node_id in sorted(self._brokers)]

    def broker(self, node_id: int) -> CommandConnection:
        if node_id not in self._brokers:
            self.metadata()
        if node_id not in self._brokers:
            raise CommandFailed(f"broker {node_id} is not up.")
        return self._connect(*self._brokers[node_id])

    def coordinator(self, key: str, key_type: int) -> CommandConnection:
        """The broker that coordinates the group or transactional id `key`."""

        def ask() -> CommandConnection:
            connection = self._any()
            version = connection.version(ApiKey.FIND_COORDINATOR)
            request = Message(key=key, key_type=key_type, coordinator_keys=[key])
            answer = connection.request(ApiKey.FIND_COORDINATOR, request)
            found = answer.coordinators[0] if version >= 4 else answer
            check(found.error_code, found.error_message)
            return self._connect(found.host, found.port)

        return self.retry(ask)

    def _any(self) -> CommandConnection:
        """The first bootstrap server that can be reached."""
        if self._bootstrap is None:
            self._cluster.reach()
            trouble: Unreachable | None = None
            for host, port in self._settings.bootstrap:
                try:
                    self._bootstrap = self._connect(host, port)
                    return self._bootstrap
                except Unreachable as error:
                    trouble = error
            assert trouble is not None
            raise trouble
        return self._bootstrap

    def _connect(self, host: str, port: int) -> CommandConnection:
        key = (host, port)
        if key not in self._connections:
            self._connections[key] = CommandConnection(host, port, self._settings)
        return self._connections[key]

    # Asking

    def retry(self, ask: Callable[[], T]) -> T:
        """Retry `ask` while it raises retriable errors, until the cluster's timeout."""
        while True:
            try:
                return ask()
            except ApiError as error:
                if not error.retriable or time.monotonic() > self._deadline:
                    raise
            time.sleep(_BACKOFF_SECONDS)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except ConnectionFailed as error:
        raise Unreachable(f"{error}.") from error
    except ClientError as error:
        raise CommandFailed(f"{error}.") from error


def client_settings(cluster: Cluster) -> ClientSettings:
    """The settings of a command for librdkafka, converted for `penstock.client`."""
    timeout_ms = str(max(1, round(cluster.timeout * 1000)))
    named = kafka_names(cluster.settings)
    named.setdefault("client.id", "penstock-cli")
    named |= {
        "bootstrap.servers": cluster.bootstrap,
        "request.timeout.ms": timeout_ms,
        "socket.connection.setup.timeout.ms": timeout_ms,
    }
    return ClientSettings.from_kafka(named)


def check(error_code: int, message: str | None = None) -> None:
    """Raise the ApiError for a nonzero code."""
    if error_code:
        raise error_for_code(error_code)(message)


def failure(error: ApiError, doing: str) -> CommandFailed:
    """`error` as one line that begins with `doing`."""
    words = error.kafka_name.lower().replace("_", " ")
    return CommandFailed(f"{doing}: {error.message or words} ({error.kafka_name})")
