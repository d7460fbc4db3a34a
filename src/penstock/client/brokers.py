"""The brokers of a cluster: connections, metadata, and retries while leaders move.

It starts with the bootstrap servers, learns the brokers from Metadata, and caches topics until a leader has
moved or `metadata.max.age.ms` has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from penstock.client.connection import Connection
from penstock.client.errors import ClusterTimeout, ConnectionFailed
from penstock.client.settings import ClientSettings
from penstock.errors import (
    ApiError,
    LeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for_code,
)
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

T = TypeVar("T")

CONTROL, FETCH = "control", "fetch"  # the purpose of a connection: records must not delay small responses


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in Metadata. In clusters older than Kafka 2.8 it has the zero id."""

    name: str
    id: UUID
    is_internal: bool
    leaders: tuple[int, ...]
    """The node id of each partition's leader, -1 if there is none at the moment."""
    leader_epochs: tuple[int, ...]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)


class Brokers:
    """Connections and metadata; for one thread."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self._monotonic = monotonic
        self._sleep = sleep
        self._addresses: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self.cluster_id: str | None = None
        """As in the latest metadata."""
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._replaced: list[Connection] = []
        self._avoided: set[tuple[str, int]] = set()
        self._topics: dict[str, tuple[float, TopicInfo]] = {}

    def close(self) -> None:
        for connection in (*self._connections.values(), *self._replaced):
            connection.close()
        self._connections.clear()
        self._replaced.clear()

    # ---- asking again ----

    def retry(self, doing: str, ask: Callable[[], T]) -> T:
        """Call `ask`, and retry it while it fails with retriable errors, until `default.api.timeout.ms`.

        `doing` begins the error's message: "reading the offsets of orders".
        """
        settings = self.settings
        deadline = self._monotonic() + settings.api_timeout_ms / 1000
        backoff = settings.retry_backoff_ms / 1000
        while True:
            try:
                return ask()
            except (ConnectionFailed, ApiError) as error:
                if isinstance(error, ApiError) and not error.retriable:
                    raise
                self.forget()
                reason = error
            if self._monotonic() + backoff > deadline:
                raise ClusterTimeout(
                    f"{doing} did not succeed within {settings.api_timeout_ms} ms "
                    f"(default.api.timeout.ms) at {settings.bootstrap_servers}: {reason}. "
                    f"Check that the brokers run and that bootstrap.servers and "
                    f"security.protocol={settings.security.protocol} fit their listeners."
                ) from reason
            self._sleep(backoff)
            backoff = min(2 * backoff, settings.retry_backoff_max_ms / 1000)

    def forget(self) -> None:
        """The cached leaders may be outdated: ask again before they are used."""
        self._topics.clear()

    # ---- whom to ask ----

    def any(self) -> Connection:
        """A broker that responds: preferably a connected one, then a known one, then a bootstrap server."""
        for (_, _, purpose), connection in self._connections.items():
            if connection.usable and purpose == CONTROL:
                return connection
        trouble: list[str] = []
        # Brokers that failed come last: one that hangs would cost each attempt its timeout.
        for host, port in sorted(dict.fromkeys(self._candidates()), key=self._avoided.__contains__):
            try:
                return self._connect(host, port, CONTROL)
            except ConnectionFailed as error:
                trouble.append(str(error))
                self._avoided.add((host, port))
        raise ConnectionFailed("; ".join(trouble))

    def _candidates(self) -> Iterator[tuple[str, int]]:
        yield from self._addresses.values()
        yield from self.settings.bootstrap

    def broker(self, node_id: int, purpose: str = CONTROL) -> Connection:
        if node_id not in self._addresses:
            self.metadata([])
        address = self._addresses.get(node_id)
        if address is None:
            raise LeaderNotAvailable(f"broker {node_id} is not up")
        return self._connect(*address, purpose)

    def node_ids(self) -> list[int]:
        """The brokers in the latest metadata."""
        return sorted(self._addresses)

    def controller(self) -> Connection:
        """The broker that creates topics. With KRaft it is any broker: each forwards the request."""
        self.metadata([])
        return self.broker(self._controller) if self._controller in self._addresses else self.any()

    def coordinator(self, name: str, *, transactional: bool = False) -> Connection:
        """The connection to the coordinator of a group, or of a transactional id."""
        kind, what = (1, "transactional id") if transactional else (0, "group")
        connection = self.any()
        request = Message(key=name, key_type=kind, coordinator_keys=[name])
        answer = connection.request(ApiKey.FIND_COORDINATOR, request)
        found = answer.coordinators[0] if connection.version(ApiKey.FIND_COORDINATOR) >= 4 else answer
        check(found.error_code, found.error_message or f"the coordinator of {what} {name}")
        return self._connect(found.host, found.port, CONTROL)

    def leader(self, topic: str, partition: int) -> tuple[TopicInfo, int]:
        """The cached topic, and the node id of the partition's leader."""
        info = self.topic(topic)
        if partition >= info.partition_count:
            self._topics.pop(topic, None)
            raise UnknownTopicOrPartition(f"{topic} has {info.partition_count} partitions, no {partition}")
        node_id = info.leaders[partition]
        if node_id < 0:
            self._topics.pop(topic, None)
            raise LeaderNotAvailable(f"{topic}-{partition} has no leader now")
        return info, node_id

    def _connect(self, host: str, port: int, purpose: str) -> Connection:
        key = (host, port, purpose)
        connection = self._connections.get(key)
        if connection is None or not connection.usable:
            replaced = connection
            connection = self._connections[key] = Connection(host, port, self.settings)
            self._avoided.discard((host, port))
            if replaced is not None and replaced.is_open:
                self._replaced.append(replaced)  # a response may still be in flight on it
        return connection

    # ---- metadata ----

    def topic(self, name: str) -> TopicInfo:
        """A topic, from the cache if it is fresh. Raises UnknownTopicOrPartition if it does not exist."""
        known = self._topics.get(name)
        if known is not None and self._monotonic() - known[0] < self.settings.metadata_max_age_ms / 1000:
            return known[1]
        found = self.metadata([name])
        if name not in found:
            raise UnknownTopicOrPartition(f"topic {name} does not exist")
        return found[name]

    def remembered(self, name: str) -> TopicInfo | None:
        """The cached topic; None if it was never requested or did not exist."""
        known = self._topics.get(name)
        return None if known is None else known[1]

    def metadata(self, topics: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Those of `topics` that exist; None asks for all. Does not create topics."""
        connection = self.any()
        wanted = None if topics is None else [Message(name=name) for name in topics]
        if not wanted and connection.version(ApiKey.METADATA) == 0:
            wanted = []  # the only way to ask for all in version 0
        request = Message(topics=wanted, allow_auto_topic_creation=False)
        answer = connection.request(ApiKey.METADATA, request)
        self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        self._controller = answer.controller_id
        self.cluster_id = answer.cluster_id or None
        now = self._monotonic()
        found: dict[str, TopicInfo] = {}
        for each in answer.topics:
            if each.error_code in (UnknownTopicOrPartition.code, UnknownTopicId.code):
                self._topics.pop(each.name, None)
                continue
            check(each.error_code, f"topic {each.name}")
            partitions = sorted(each.partitions, key=lambda partition: partition.partition_index)
            info = TopicInfo(
                each.name,
                each.topic_id,
                each.is_internal,
                tuple(partition.leader_id for partition in partitions),
                tuple(partition.leader_epoch for partition in partitions),
            )
            self._topics[each.name] = (now, info)
            found[each.name] = info
        return found


def check(error_code: int, message: str | None = None) -> None:
    """Raise the ApiError for a nonzero code."""
    if error_code:
        raise error_for_code(error_code)(message)
