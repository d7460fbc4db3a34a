"""The broker: starts the metadata store, the logs, the partitions and the server in this order, and stops
them in reverse.

`image` is the cluster as this broker has applied it: a topic is in it when its logs are open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.audit.audit import Audit
from penstock.broker.cluster import adopt
from penstock.broker.cluster.peer_login import PeerLogin
from penstock.broker.coordinators.coordinators import Coordinators
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.broker.data_directory import DirectoryLocks, claim, known_cluster_id
from penstock.broker.delegation.tokens import DelegationTokens
from penstock.broker.fetch.sessions import FetchSessionCache
from penstock.broker.maintenance.flusher import Flusher
from penstock.broker.maintenance.jobs import Jobs
from penstock.broker.maintenance.maintenance import Maintenance
from penstock.broker.metadata_cache import MetadataCache
from penstock.broker.net.dispatch import Dispatcher
from penstock.broker.net.interceptor import Interceptor
from penstock.broker.net.server import Server
from penstock.broker.produce.producer_ids import ProducerIds
from penstock.broker.produce.topic_writer import RETRY_MS
from penstock.broker.security.authentication.listener import ListenerSecurity
from penstock.broker.security.authentication.own_users import missing_users
from penstock.broker.security.authorization.authorizer import Authorizer
from penstock.broker.security.quotas.quotas import ClientQuotas
from penstock.broker.share.admin import prune
from penstock.broker.share.groups import Sharing
from penstock.broker.telemetry.telemetry import Telemetry
from penstock.broker.topics import Topics
from penstock.broker.transactions.transaction_host import TransactionHost
from penstock.clock import Clock, SystemClock
from penstock.config import BrokerConfig, LogConfig, resolve_topic
from penstock.config.access import overrides, principals
from penstock.config.listeners import Listener
from penstock.controller import Controller, TopicSpec
from penstock.credentials.scram import ScramCredential
from penstock.errors import KafkaStorageError, TopicAlreadyExists
from penstock.fs import REAL_FS, Fs
from penstock.groups.shard import GroupShard
from penstock.log.manager import LogManager
from penstock.metadata import layout
from penstock.metadata.image import BrokerInfo, ClusterImage
from penstock.metadata.local import LocalStore
from penstock.metadata.store import Create, StoreUnavailable
from penstock.replication.delayed import DelayedOperations, Key
from penstock.replication.partition import Partition
from penstock.wire.produce import NodeEndpoint

if TYPE_CHECKING:
    from penstock.broker.cluster.membership import Membership
    from penstock.broker.cluster.peers import Peers
    from penstock.broker.metrics.port import MetricsPort

log = logging.getLogger(__name__)

T = TypeVar("T")

METADATA_FILE = "metadata.sqlite"
_INTERNAL_REPLICAS = 3
_CERTIFICATES_CHECK_MS = 2_000
_STORE_RETRY_SECONDS = 0.5
# One in this many file descriptors is kept for segment files.
_FILES_SHARE = 4


class Broker:
    loop: asyncio.AbstractEventLoop
    server: Server
    port: int
    peer_login: PeerLogin  # only in a cluster
    metrics: MetricsPort | None = None

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        fs: Fs = REAL_FS,
        interceptor: Interceptor | None = None,
    ) -> None:
        self.config = config
        self.id: int = config.node_id
        self.clock: Clock = SystemClock() if clock is None else clock
        self.fs = fs
        self._interceptor = interceptor
        self._directories = [os.path.abspath(path) for path in config.log_dirs]
        self._locks = DirectoryLocks()
        self.metadata_cache = MetadataCache()
        self.sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, self.clock, random.Random()
        )
        self.quotas = ClientQuotas(
            lambda: self.clock.monotonic() * 1000,
            samples=config.quota_window_num,
            window_s=config.quota_window_size_seconds,
            mutation_samples=config.controller_quota_window_num,
            mutation_window_s=config.controller_quota_window_size_seconds,
        )
        self.authorizer: Authorizer | None = None
        if config.authorizer_class_name:
            self.authorizer = Authorizer(
                principals(config.super_users), allow_everyone=config.allow_everyone_if_no_acl_found
            )
        self.tokens = DelegationTokens(self)
        self.audit: Audit | None = Audit(self, config.audit_events) if config.audit_enable else None
        self.telemetry = Telemetry(self)
        self.stopping = asyncio.Event()
        """Set when the process gets a signal to stop: a startup that waits for ZooKeeper then gives up."""

    # -- start and stop

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.loop.run_in_executor(None, self._locks.acquire, self._directories)
        # A single thread makes all changes to the set of logs, so that no two run concurrently.
        self._log_thread = ThreadPoolExecutor(1, thread_name_prefix="logs")
        self.membership: Membership | None = None
        self.controller: Controller
        if self.config.zookeeper_connect:
            # Imported here so that a single broker does not load the ZooKeeper client.
            from penstock.broker.cluster.membership import Membership

            self.membership = Membership(self)
            self.controller = self.membership.controller
        else:
            self._store = LocalStore(os.path.join(self._directories[0], METADATA_FILE))
            self.controller = Controller(self._store, self.id, self.clock, self.config)
        self.delayed = DelayedOperations(self.loop)
        self.flusher = Flusher(self.loop, self.in_thread)
        self._flushing: set[asyncio.Task[None]] = set()
        self.jobs = Jobs(self.clock, self.loop)
        self.producer_ids = ProducerIds(self.controller.allocate_producer_ids)
        self.logs = LogManager(self.config, self.clock, self.fs)
        self.topics = Topics(self)
        self.coordinators = Coordinators(self)
        self._recovered = False  # log recovery is complete, including the leader epochs
        try:
            await self._load()
            await self._listen()
        except BaseException:
            await self._abandon()
            raise
        self.jobs.start()

    async def _load(self) -> None:
        if self.membership is not None:
            await self.membership.open()
        else:
            await self._keep_cluster_id()
        image = await self._once_stored(self.controller.load)
        await self.in_thread(claim, self._directories, self.id, image.cluster_id, self.fs)
        await self._secure()
        await self.with_logs(self.logs.load, self._config_of, self._id_of)
        if self.membership is None:
            await self._adopt(image)
        # With the current image, because recovery may have taken long.
        await self.with_logs(adopt.drop_strays, self.logs, self.controller.image, self.id)
        if self.membership is not None:
            await self._once_stored(self.membership.return_to_cluster)
        elif not self.logs.clean:
            await self.controller.bump_leader_epochs()
        self._recovered = True
        await self.topics.apply(self.controller.image)
        self.controller.subscribe(self.topics.changed)
        self._access_changed(self.controller.image, self.controller.image)
        self.controller.subscribe(self._access_changed)

    async def _once_stored(self, step: Callable[[], Awaitable[T]]) -> T:
        """Runs a step of the startup, and retries it if ZooKeeper becomes unavailable after it was reached,
        as Kafka did: so nobody needs to start the broker again."""
        reported = False
        while True:
            try:
                return await step()
            except KafkaStorageError as error:
                is_away = isinstance(error.__cause__, StoreUnavailable)
                if self.membership is None or not is_away or self.stopping.is_set():
                    raise
                if not reported:
                    log.warning("the start waits for ZooKeeper: %s", error)
                    reported = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), _STORE_RETRY_SECONDS)

    def _access_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Applies ACLs and quotas immediately, even while the topics of the same image are still being
        created."""
        if self.authorizer is not None:
            self.authorizer.update(new.acls)
        self.quotas.update(new.quotas)
        if new.quotas is not old.quotas and hasattr(self, "server"):
            self.server.connection_quotas.update(new.quotas)

    def set_config(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self.config = config

    def apply_limits(self, config: BrokerConfig) -> None:
        """Apply the connection limits to the server. If the server does not exist yet, it starts with
        them."""
        if not hasattr(self, "server"):
            return
        self.server.places.most = self.most_connections(config)
        quotas = self.server.connection_quotas
        quotas.most = config.max_connections_per_ip
        quotas.overrides = overrides(config.max_connections_per_ip_overrides) or {}
        quotas.most_new = config.max_connection_creation_rate

    async def _keep_cluster_id(self) -> None:
        """A new metadata store takes over the cluster id of existing data directories."""
        cluster_id = await self.in_thread(known_cluster_id, self._directories, self.fs)
        if cluster_id is not None and await self._store.get(layout.CLUSTER_ID) is None:
            await self._store.multi(
                [
                    Create(layout.CLUSTER_ID, cluster_id.encode()),
                    Create(layout.PRODUCER_IDS, layout.encode({"next": 0})),
                    Create(layout.BROKER_EPOCH, b"{}"),
                ]
            )

    async def _adopt(self, image: ClusterImage) -> None:
        if not self.logs.logs or not adopt.is_new(image):
            return
        known = await self._store.get(layout.PRODUCER_IDS)
        assert known is not None
        await self._store.multi(adopt.adoption(self.logs.logs.values(), self.id, known[1]))
        await self.controller.load()

    def _config_of(self, topic: str) -> LogConfig:
        image = self.controller.image.topics.get(topic)
        return resolve_topic(self.controller.broker_config, {} if image is None else image.configs)

    def _id_of(self, topic: str) -> uuid.UUID | None:
        image = self.controller.image.topics.get(topic)
        return None if image is None else image.id

    async def _listen(self) -> None:
        config = self.config
        self._dispatcher = Dispatcher(self, self._interceptor)
        self.server = Server(
            self._dispatcher.dispatch,
            self.clock,
            self.loop,
            max_frame=config.socket_request_max_bytes,
            queued_bytes=config.queued_max_request_bytes,
            max_connections=self.most_connections(config),
            max_idle_ms=config.connections_max_idle_ms,
            on_lost=self.share.disconnected,
            between_brokers=config.inter_broker_listener if len(config.protocols) > 1 else None,
        )
        self.apply_limits(config)
        self.server.connection_quotas.update(self.controller.image.quotas)
        self._maintenance = Maintenance(self)
        self._maintenance.schedule()
        self.jobs.add(
            "pruning of share state",
            lambda: self.config.share_coordinator_state_topic_prune_interval_ms,
            lambda: prune(self, self.share),
        )
        if config.delegation_token_secret_key is not None:
            self.jobs.add(
                "expired delegation tokens",
                lambda: config.delegation_token_expiry_check_interval_ms,
                self.tokens.remove_expired,
            )
        if self.audit is not None:
            self.jobs.add("audit", lambda: RETRY_MS, self.audit.tick)
        self.jobs.add("client metrics", lambda: RETRY_MS, self.telemetry.tick)
        ports = {
            one: self.server.bind(one.host, one.port, self.listeners[one.name]) for one in config.listeners
        }
        if any(listener.tls is not None for listener in self.listeners.values()):
            self.jobs.add("TLS certificates", lambda: _CERTIFICATES_CHECK_MS, self._refresh_certificates)
        self.controller.listeners = _addresses(config, ports)
        self.host, self.port = _for_clients(config, self.controller.listeners)
        if self.membership is not None:
            await self._once_stored(self.membership.register)
        else:
            await self.controller.register_broker(self.host, self.port, config.broker_rack)
        await self.topics.caught_up()
        await self.server.serve()
        if config.metrics_listener:
            self.metrics = await self.in_thread(_metrics_port, self, self._dispatcher)
            self.metrics.start()

    async def _secure(self) -> None:
        """Sets up TLS and SASL; must run before the first connection in or out."""
        self.listeners = await self._listener_security()
        known = self.controller.image.credentials
        users = await self.in_thread(lambda: list(missing_users(self.config, self.listeners, known)))
        if users:
            await self._once_stored(lambda: self.controller.alter_scram_credentials(users))
        if self.membership is not None:
            listener = self.listeners[self.config.inter_broker_listener]
            self.peer_login = PeerLogin(lambda: self.config, listener)

    async def _listener_security(self) -> dict[str, ListenerSecurity]:
        protocols = self.config.protocols
        uses_sasl = any(protocol.startswith("SASL") for protocol in protocols.values())
        salt_key = await self._once_stored(self.controller.salt_key) if uses_sasl else b""

        def credentials() -> Mapping[tuple[str, str], ScramCredential]:
            return self.controller.image.credentials

        on_failure = None if self.audit is None else self.audit.login_failed
        return {
            name: ListenerSecurity(
                name, lambda: self.config, self.clock, credentials, salt_key, self.tokens.login, on_failure
            )
            for name in sorted(protocols)
        }

    async def _refresh_certificates(self) -> None:
        for listener in self.listeners.values():
            if listener.tls is not None:
                await self.in_thread(listener.tls.refresh)

    @staticmethod
    def most_connections(config: BrokerConfig) -> int:
        """max.connections, or less if the process cannot open as many files."""
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit: int = min(config.max_connections, descriptors - descriptors // _FILES_SHARE)
        return limit

    async def stop(self) -> None:
        """Stop in order: accept no new requests, finish those in progress, sync the logs, then write the
        clean shutdown marker."""
        if self.audit is not None:
            await self.audit.close()
        await self.telemetry.close()
        if self.membership is not None:
            await self.membership.leave()
        if self.metrics is not None:
            await self.in_thread(self.metrics.stop)
        self._maintenance.stop()
        await self.jobs.stop()
        await self.server.stop()
        await self._dispatcher.drain()
        await self.topics.caught_up()
        await self.flusher.drain()
        await self._abandon()

    async def _abandon(self) -> None:
        self.topics.close()
        if self._recovered:
            # Also after a failed startup, for example if a port is in use: the logs were opened and are
            # closed cleanly.
            self.coordinators.close()
            await self.with_logs(self.logs.close)
        await self.controller.close()
        self._log_thread.shutdown()
        self._locks.release()

    # -- for handlers and jobs

    @property
    def image(self) -> ClusterImage:
        return self.topics.image

    @property
    def epoch(self) -> int:
        """The epoch of this broker's registration, by which others notice that it has restarted."""
        return -1 if self.membership is None else self.membership.controller.broker_epoch

    @property
    def peers(self) -> Peers:
        assert self.membership is not None, "a single broker has no peers"
        return self.membership.peers

    @property
    def partitions(self) -> dict[Key, Partition]:
        return self.topics.partitions

    async def caught_up(self) -> None:
        """Waits until every change that the controller has made is applied on this broker."""
        await self.topics.caught_up()

    def in_thread(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        return self.loop.run_in_executor(None, lambda: work(*args))

    def with_logs(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Runs `work` in the one thread that may change or iterate over the set of logs."""
        return self.loop.run_in_executor(self._log_thread, lambda: work(*args))

    def flush(self, partition: Partition) -> asyncio.Task[None]:
        """Done when everything appended before this call is on disk; the partition is notified first."""
        task = self.flusher.flush(partition.log)
        if task not in self._flushing:
            self._flushing.add(task)
            task.add_done_callback(lambda _: self._flushed(task, partition))
        return task

    def _flushed(self, task: asyncio.Task[None], partition: Partition) -> None:
        self._flushing.discard(task)
        if not task.cancelled() and task.exception() is None:  # the waiters get an error themselves
            partition.flushed()

    async def consumed_offset(self, key: Key, groups: Iterable[str]) -> int | None:
        """The offset before which all these groups have consumed; None while one of them has no committed
        offset."""
        return await self.coordinators.consumed_offset(key, groups)

    @property
    def groups(self) -> ShardHost[GroupShard]:
        return self.coordinators.groups

    @property
    def share(self) -> Sharing:
        return self.coordinators.share

    @property
    def transactions(self) -> TransactionHost:
        return self.coordinators.transactions

    async def create_internal_topic(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Creates the topic and waits until its partitions have leaders."""
        if self.membership is not None and replication_factor == 1:
            # With several brokers, groups and transactions must not depend on a single replica.
            replication_factor = min(_INTERNAL_REPLICAS, max(len(self.controller.image.brokers), 2))
        spec = TopicSpec(name, partitions, replication_factor, configs=configs)
        for result in await self.controller.create_topics([spec]):
            if result.error is not None and not isinstance(result.error, TopicAlreadyExists):
                raise result.error
        await self.caught_up()

    @property
    def shown_brokers(self) -> Mapping[int, BrokerInfo]:
        return self.topics.brokers.shown

    def endpoints(self, ids: Iterable[int], listener: str) -> list[NodeEndpoint]:
        """The endpoints of these brokers on a listener; brokers without that listener are left out."""
        brokers = self.shown_brokers
        found = ((one, one.address(listener)) for one in map(brokers.get, sorted(ids)) if one is not None)
        return [(one.id, *address, one.rack) for one, address in found if address is not None]


def _metrics_port(broker: Broker, dispatcher: Dispatcher) -> MetricsPort:
    """Imports the Prometheus client here, because a broker without metrics does not need it."""
    from penstock.broker.metrics.port import MetricsPort

    return MetricsPort(broker, dispatcher, broker.loop, broker.config)


def _addresses(config: BrokerConfig, bound: Mapping[Listener, int]) -> tuple[tuple[str, str, int], ...]:
    """Name, host and port of each listener, as advertised."""
    found = {one.name: (_reachable(one.host), port) for one, port in reversed(list(bound.items()))}
    for one in config.advertised_listeners:
        found[one.name] = one.host, one.port or found[one.name][1]
    return tuple((name, *found[name]) for name in dict.fromkeys(one.name for one in bound))


def _for_clients(config: BrokerConfig, addresses: Iterable[tuple[str, str, int]]) -> tuple[str, int]:
    """The address for the ready file: a plaintext listener if there is one, otherwise the first listener that
    is not only for brokers."""
    by_name = {name: (host, port) for name, host, port in addresses}
    if "PLAINTEXT" in by_name:
        return by_name["PLAINTEXT"]
    names = [name for name in by_name if name != config.inter_broker_listener]
    return by_name[(names or list(by_name))[0]]


def _reachable(host: str) -> str:
    """An address to which a client on this machine can connect."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
