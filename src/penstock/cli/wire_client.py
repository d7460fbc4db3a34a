"""A small Kafka client for the requests that confluent-kafka does not have (transactions, types of groups).

It begins at the bootstrap servers, learns the brokers from Metadata, talks to each in the newest version that
both know, and asks again while a coordinator or leader is moving. PLAINTEXT only.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

from penstock.cli.client import Cluster, parse_bootstrap
from penstock.cli.failure import CommandFailed, Unreachable
from penstock.errors import ApiError, UnsupportedVersion, WireError, error_for_code
from penstock.wire.api_keys import ApiKey, request_header_version, response_header_version
from penstock.wire.codec import Message, decode_response, encode_request, valid_versions

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1  # the key types of FindCoordinator
_CLIENT_ID = b"penstock-cli"
_FRAME = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_LARGEST_ANSWER = 256 << 20
_BACKOFF_SECONDS = 0.05


class Connection:
    """One connection to one broker, one request at a time."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.address = f"{host}:{port}"
        self._timeout = timeout
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise Unreachable(
                f"cannot reach the broker at {self.address} ({(error.strerror or str(error)).lower()})."
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._served: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        self._socket.close()

    def version(self, api: ApiKey) -> int:
        """The newest version that the broker and this client know; UnsupportedVersion if there is none."""
        if not self._served:
            answer = self._exchange(ApiKey.API_VERSIONS, 0, Message())
            check(answer.error_code)
            self._served = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        lowest, highest = self._served.get(api, (0, -1))
        known = valid_versions(api)
        version = min(highest, known[-1])
        if version < max(lowest, known[0]):
            name = api.name.title().replace("_", "")
            raise UnsupportedVersion(f"the broker at {self.address} does not serve {name}")
        return version

    def request(self, api: ApiKey, message: Message, *, at_most: int = 32767) -> Message:
        """The answer to `message`."""
        return self._exchange(api, min(at_most, self.version(api)), message)

    def _exchange(self, api: ApiKey, version: int, message: Message) -> Message:
        self._correlation_id += 1
        header = _HEADER.pack(api, version, self._correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
        if request_header_version(api, version) >= 2:
            header += b"\0"  # no tagged fields
        payload = header + encode_request(api, version, message)
        try:
            self._socket.sendall(_FRAME.pack(len(payload)) + payload)
            (length,) = _FRAME.unpack(self._receive(4))
            if not 4 <= length <= _LARGEST_ANSWER:
                raise WireError(f"an answer of {length} bytes")
            answer = self._receive(length)
            start = 4 + response_header_version(api, version)
            if _FRAME.unpack_from(answer)[0] != self._correlation_id:
                raise WireError("the answer to another request")
            return decode_response(api, version, answer, start)
        except TimeoutError as error:
            raise Unreachable(f"no answer from {self.address} in {self._timeout:g} s.") from error
        except OSError as error:
            raise Unreachable(
                f"lost the connection to {self.address} ({error.strerror or error}). "
                "Is it a Kafka broker, and does it want TLS or SASL?"
            ) from error
        except WireError as error:
            raise CommandFailed(f"{self.address} did not answer as a Kafka broker does: {error}.") from error

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise ConnectionResetError("closed by the broker")
            data += chunk
        return bytes(data)


class WireCluster:
    """The brokers of a cluster, connected to as they are needed; a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        require_plaintext(cluster)
        self._cluster = cluster
        self._deadline = time.monotonic() + cluster.timeout
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._bootstrap: Connection | None = None

    def __enter__(self) -> WireCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    # Whom to ask

    def metadata(self, topics: Iterable[str] | None = ()) -> Message:
        """Metadata of `topics`, which are not created by asking; None is all of them."""
        wanted = None if topics is None else [Message(name=name) for name in topics]
        request = Message(topics=wanted, allow_auto_topic_creation=False)
        answer = self._any().request(ApiKey.METADATA, request)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def brokers(self) -> list[Connection]:
        """A connection to each broker that is up."""
        self.metadata()
        return [self.broker(node_id) for node_id in sorted(self._brokers)]

    def broker(self, node_id: int) -> Connection:
        if node_id not in self._brokers:
            self.metadata()
        if node_id not in self._brokers:
            raise CommandFailed(f"broker {node_id} is not up.")
        return self._connect(*self._brokers[node_id])

    def coordinator(self, key: str, key_type: int) -> Connection:
        """The broker that coordinates the group or transactional id `key`."""

        def ask() -> Connection:
            connection = self._any()
            version = connection.version(ApiKey.FIND_COORDINATOR)
            request = Message(key=key, key_type=key_type, coordinator_keys=[key])
            answer = connection.request(ApiKey.FIND_COORDINATOR, request)
            found = answer.coordinators[0] if version >= 4 else answer
            check(found.error_code, found.error_message)
            return self._connect(found.host, found.port)

        return self.retry(ask)

    def _any(self) -> Connection:
        """The first bootstrap server that can be reached."""
        if self._bootstrap is None:
            self._cluster.reach()
            trouble: Unreachable | None = None
            for host, port in parse_bootstrap(self._cluster.bootstrap):
                try:
                    self._bootstrap = self._connect(host, port)
                    return self._bootstrap
                except Unreachable as error:
                    trouble = error
            assert trouble is not None
            raise trouble
        return self._bootstrap

    def _connect(self, host: str, port: int) -> Connection:
        key = (host, port)
        if key not in self._connections:
            self._connections[key] = Connection(host, port, self._cluster.timeout)
        return self._connections[key]

    # Asking

    def retry(self, ask: Callable[[], T]) -> T:
        """`ask` again while it raises an error that passes, until the cluster's timeout."""
        while True:
            try:
                return ask()
            except ApiError as error:
                if not error.retriable or time.monotonic() > self._deadline:
                    raise
            time.sleep(_BACKOFF_SECONDS)


def require_plaintext(cluster: Cluster) -> None:
    """Fail, with the reason, where the cluster's settings ask for TLS or SASL."""
    protocol = cluster.settings.get("security.protocol", "plaintext")
    if protocol.lower() != "plaintext":
        raise CommandFailed(
            f"this command speaks PLAINTEXT only, and the client settings have security.protocol={protocol}. "
            "Name a PLAINTEXT listener with --bootstrap."
        )


def check(error_code: int, message: str | None = None) -> None:
    """Raise the ApiError of a code that is not 0."""
    if error_code:
        raise error_for_code(error_code)(message)


def failure(error: ApiError, doing: str) -> CommandFailed:
    """`error` as one line that begins with `doing`."""
    words = error.kafka_name.lower().replace("_", " ")
    return CommandFailed(f"{doing}: {error.message or words} ({error.kafka_name})")
