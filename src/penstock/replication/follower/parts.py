"""The parts of the broker that replication uses, as Protocols: connections, logs, threads and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.config import BrokerConfig
    from penstock.log.manager import LogManager
    from penstock.metadata.image import ClusterImage
    from penstock.replication.partition import Partition
    from penstock.replication.throttle import Throttle
    from penstock.wire.api_keys import ApiKey
    from penstock.wire.codec import Message

T = TypeVar("T")


class Leaders(Protocol):
    """Connections to other brokers."""

    async def call(self, broker_id: int, api: ApiKey, version: int, request: Message) -> Message: ...

    async def exchange(
        self, broker_id: int, api: ApiKey, version: int, body: bytes, *, purpose: str
    ) -> tuple[bytearray, int]: ...


class StoredCluster(Protocol):
    """The cluster as stored in the metadata store, which may be newer than what this broker has applied."""

    @property
    def image(self) -> ClusterImage: ...


class FollowerMembership(Protocol):
    @property
    def follower_throttle(self) -> Throttle: ...


class FollowersParts(Protocol):
    """The parts of the broker that followers use."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def peers(self) -> Leaders: ...
    @property
    def controller(self) -> StoredCluster: ...
    @property
    def membership(self) -> FollowerMembership | None: ...
    def flush(self, partition: Partition) -> asyncio.Task[None]: ...
    def in_thread(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]: ...
    def with_logs(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]: ...
