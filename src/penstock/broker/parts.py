"""The parts of a broker, each as a Protocol: a handler or coordinator can use only the parts that it names.

A module lists its parts under `TYPE_CHECKING`: `class ListOffsetsParts(HasPartitions, HasTopics, Protocol)`.
It accepts any object that has these parts. The protocols exist only for type checking and cost nothing at run
time. `api_table.register` is where mypy checks that a `Broker` has the parts of every handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from penstock.broker.audit.audit import Audit
    from penstock.broker.cluster.membership import Membership
    from penstock.broker.cluster.peer_login import PeerLogin
    from penstock.broker.cluster.peers import Peers
    from penstock.broker.coordinators.coordinators import Coordinators
    from penstock.broker.coordinators.shard_host import ShardHost
    from penstock.broker.delegation.tokens import DelegationTokens
    from penstock.broker.fetch.sessions import FetchSessionCache
    from penstock.broker.maintenance.flusher import Flusher
    from penstock.broker.maintenance.jobs import Jobs
    from penstock.broker.metadata_cache import MetadataCache
    from penstock.broker.net.server import Server
    from penstock.broker.produce.producer_ids import ProducerIds
    from penstock.broker.security.authorization.authorizer import Authorizer
    from penstock.broker.security.quotas.quotas import ClientQuotas
    from penstock.broker.share.groups import Sharing
    from penstock.broker.telemetry.telemetry import Telemetry
    from penstock.broker.topics import Topics
    from penstock.broker.transactions.transaction_host import TransactionHost
    from penstock.clock import Clock
    from penstock.config import BrokerConfig
    from penstock.controller import Controller
    from penstock.groups.shard import GroupShard
    from penstock.log.manager import LogManager
    from penstock.metadata.image import BrokerInfo, ClusterImage
    from penstock.replication.delayed import DelayedOperations, Key
    from penstock.replication.partition import Partition
    from penstock.wire.produce import NodeEndpoint

T = TypeVar("T")


class HasId(Protocol):
    """The id of this broker."""

    @property
    def id(self) -> int: ...


class HasConfig(Protocol):
    """The current settings."""

    @property
    def config(self) -> BrokerConfig: ...


class HasClock(Protocol):
    @property
    def clock(self) -> Clock: ...


class HasLoop(Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class HasImage(Protocol):
    """The cluster as this broker has applied it."""

    @property
    def image(self) -> ClusterImage: ...


class HasController(Protocol):
    """The controller, which changes the metadata."""

    @property
    def controller(self) -> Controller: ...


class HasMembership(Protocol):
    """The membership in a cluster; None for a single broker."""

    @property
    def membership(self) -> Membership | None: ...


class HasPeers(Protocol):
    """Connections to other brokers; only in a cluster."""

    @property
    def peers(self) -> Peers: ...


class HasPeerLogin(Protocol):
    """The login at other brokers."""

    @property
    def peer_login(self) -> PeerLogin: ...


class HasEpoch(Protocol):
    """The epoch of the broker's registration."""

    @property
    def epoch(self) -> int: ...


class HasHost(Protocol):
    """The advertised address."""

    @property
    def host(self) -> str: ...


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


class HasTelemetry(Protocol):
    """What clients push about themselves."""

    @property
    def telemetry(self) -> Telemetry: ...


class HasPartitions(Protocol):
    """The replicas on this broker."""

    @property
    def partitions(self) -> dict[Key, Partition]: ...


class HasTopics(Protocol):
    """The owner of those replicas."""

    @property
    def topics(self) -> Topics: ...


class HasLogs(Protocol):
    @property
    def logs(self) -> LogManager: ...


class HasDelayed(Protocol):
    """Delayed operations."""

    @property
    def delayed(self) -> DelayedOperations: ...


class HasFetchSessions(Protocol):
    @property
    def sessions(self) -> FetchSessionCache: ...


class HasMetadataCache(Protocol):
    @property
    def metadata_cache(self) -> MetadataCache: ...


class HasProducerIds(Protocol):
    @property
    def producer_ids(self) -> ProducerIds: ...


class HasCoordinators(Protocol):
    @property
    def coordinators(self) -> Coordinators: ...


class HasGroups(Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> ShardHost[GroupShard]: ...


class HasShare(Protocol):
    """The share coordinator."""

    @property
    def share(self) -> Sharing: ...


class HasTransactions(Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> TransactionHost: ...


class HasAuthorizer(Protocol):
    """The authorizer; None without ACLs."""

    @property
    def authorizer(self) -> Authorizer | None: ...


class HasQuotas(Protocol):
    @property
    def quotas(self) -> ClientQuotas: ...


class HasTokens(Protocol):
    @property
    def tokens(self) -> DelegationTokens: ...


class HasAudit(Protocol):
    @property
    def audit(self) -> Audit | None: ...


class HasJobs(Protocol):
    """Periodic jobs."""

    @property
    def jobs(self) -> Jobs: ...


class HasFlusher(Protocol):
    @property
    def flusher(self) -> Flusher: ...


class HasServer(Protocol):
    @property
    def server(self) -> Server: ...


class CanFlush(Protocol):
    def flush(self, partition: Partition) -> asyncio.Task[None]: ...


class CanUseThreads(Protocol):
    """Runs work that would block the event loop in a thread."""

    def in_thread(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]: ...


class CanChangeLogs(Protocol):
    """Runs work in the one thread that may change the set of logs."""

    def with_logs(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]: ...


class CanCatchUp(Protocol):
    async def caught_up(self) -> None: ...


class CanFindEndpoints(Protocol):
    @property
    def shown_brokers(self) -> Mapping[int, BrokerInfo]: ...

    def endpoints(self, ids: Iterable[int], listener: str) -> list[NodeEndpoint]: ...


class CanFindConsumed(Protocol):
    async def consumed_offset(self, key: Key, groups: Iterable[str]) -> int | None: ...


class CanApplyLimits(Protocol):
    def apply_limits(self, config: BrokerConfig) -> None: ...


class CanSetConfig(Protocol):
    def set_config(self, config: BrokerConfig) -> None: ...


class CanCreateInternalTopics(Protocol):
    async def create_internal_topic(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None: ...
