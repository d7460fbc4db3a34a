"""This broker as a member of a cluster: the shared metadata store, registration, session, joining and
leaving.

A broker whose session has expired continues to serve the partitions that it leads. That is safe: its
followers follow the leader that the controller has elected, so it cannot acknowledge acks=all produces
without them. When ZooKeeper is available again the broker registers with a new epoch and receives the changes
that it has missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from penstock.broker.cluster.alter_partition import InSyncReplicas
from penstock.broker.cluster.peers import CLIENT_ID_OF_PEERS, Peers, may_be_alive
from penstock.config import BrokerConfig, resolve_topic
from penstock.controller.balance import give_back
from penstock.controller.cluster import CHUNK, ClusterController, state_ops
from penstock.controller.elected_controller import ElectedController, Plan
from penstock.controller.elections import PartitionChange
from penstock.controller.in_sync import WantedIsr, check_sender, plan_isr
from penstock.controller.reassignment import completions
from penstock.errors import ApiError, ConfigError, InvalidUpdateVersion, NotController, PeerUnavailable
from penstock.metadata import layout
from penstock.metadata.image import ClusterImage
from penstock.metadata.store import (
    ANY_VERSION,
    BadVersion,
    NodeExists,
    NoNode,
    StoreError,
    StoreUnavailable,
)
from penstock.metadata.zookeeper import SessionState, ZooKeeperStore
from penstock.replication.follower.assignment import Followers
from penstock.replication.throttle import Throttle
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.cluster.alter_partition import IsrChangesParts
    from penstock.broker.cluster.peers import PeersParts
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import (
        CanCatchUp,
        CanChangeLogs,
        CanFlush,
        CanUseThreads,
        HasClock,
        HasHost,
        HasJobs,
        HasLogs,
        HasPort,
        HasTopics,
    )

    class MembershipParts(
        IsrChangesParts,
        PeersParts,
        CanCatchUp,
        CanChangeLogs,
        CanFlush,
        CanUseThreads,
        HasClock,
        HasLogs,
        HasHost,
        HasJobs,
        HasPort,
        HasTopics,
        Protocol,
    ): ...


_RETRY_SECONDS = 0.5
_LONGEST_CHECK_MS = 2_000
_HAND_OVER_SECONDS = 15.0
_SESSION_MARGIN_S = 3.0
# After a failed write, a log is reported as broken for this long, unless a fetch succeeds earlier.
_BROKEN_MS, _BROKEN_CHECK_MS = 10_000, 500

log = logging.getLogger(__name__)


def zookeeper_store(config: BrokerConfig) -> ZooKeeperStore:
    """The metadata store of the cluster, with the settings of this broker."""
    return ZooKeeperStore(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        auth=config.zookeeper_auth,
        tls=config.zookeeper_ssl_client_enable,
        keystore=config.zookeeper_ssl_keystore_location,
        truststore=config.zookeeper_ssl_truststore_location,
    )


class Membership:
    def __init__(self, broker: MembershipParts) -> None:
        config = broker.config
        self._broker = broker
        self.store = zookeeper_store(config)
        self.controller = ClusterController(self.store, broker.id, broker.clock, config)
        self.elected = ElectedController(self.controller, self.store, broker.id, self.unclean, (completions,))
        self.peers = Peers(broker)
        self.leader_throttle = Throttle(
            broker.id,
            lambda: broker.config.leader_replication_throttled_rate,
            lambda config: config.leader_replication_throttled_replicas,
            broker.clock.monotonic,
        )
        self.follower_throttle = Throttle(
            broker.id,
            lambda: broker.config.follower_replication_throttled_rate,
            lambda config: config.follower_replication_throttled_replicas,
            broker.clock.monotonic,
        )
        self.followers = Followers(broker)
        self.isr = InSyncReplicas(broker)
        self._leaving = False
        self._lost = False
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.store.open()

    async def return_to_cluster(self) -> None:
        await self._former_is_gone()
        changed = await self.controller.return_to_cluster()
        if changed:
            log.info("%d partitions changed leader or ISR while this broker was down", changed)

    async def _former_is_gone(self) -> None:
        """Waits until an earlier registration with our id expires. If it stays and the broker responds, it is
        another broker with the same id: both would lead the same partitions, so the startup fails."""
        config, image = self._broker.config, self.controller.image
        former = image.brokers.get(self._broker.id)
        if former is None:
            return
        if not await may_be_alive(
            *(former.address(config.inter_broker_listener) or (former.host, former.port)),
            tls=self._broker.peer_login.tls,
        ):
            return
        log.info(
            "broker %d is already registered at %s:%d; waiting until that registration expires",
            former.id,
            former.host,
            former.port,
        )
        end = self._broker.loop.time() + config.zookeeper_session_timeout_ms / 1000 + _SESSION_MARGIN_S
        while self.controller.image.brokers.get(former.id) == former:
            if self._broker.loop.time() > end:
                raise ConfigError(
                    f"node.id={former.id} is taken: a broker with that number answers at "
                    f"{former.host}:{former.port}. Give each broker of a cluster its own node.id"
                )
            await asyncio.sleep(_RETRY_SECONDS)

    async def register(self) -> None:
        """Registers this broker. From now on the controller elects it and clients connect to it."""
        await self._register()
        self.store.on_session(self._session_changed)
        self.elected.start()
        self._broker.jobs.add("in-sync replicas", self._check_interval_ms, self._check_isr)
        self._broker.jobs.add("broken logs", lambda: _BROKEN_CHECK_MS, self._report_broken)
        self._broker.jobs.add("preferred leaders", self._balance_interval_ms, self._balance)

    def _check_interval_ms(self) -> int:
        # Half of replica.lag.time.max.ms, as in Kafka, but limited: a follower may be waiting to join the
        # ISR.
        half: int = self._broker.config.replica_lag_time_max_ms // 2
        return max(min(half, _LONGEST_CHECK_MS), 10)

    async def _check_isr(self) -> None:
        self.isr.check()

    async def _report_broken(self) -> None:
        """Report to the controller which logs cannot be written, so that it elects other leaders, and when
        they can be written again."""
        broker, now = self._broker, self._broker.clock.now_ms()
        broken = set(broker.topics.unavailable)
        for partition in broker.partitions.values():
            since = partition.broken_ms
            if partition.log.failed is not None or (since is not None and now - since < _BROKEN_MS):
                broken.add(partition.key)
            elif since is not None and partition.is_leader:
                partition.broken_ms = (
                    None  # no other broker could become the leader, so writes are retried here
                )
        if broken == self.controller.image.broken.get(broker.id, frozenset()):
            return
        path, value = layout.broken_path(broker.id), layout.broken_value(broken)
        try:
            if not broken:
                await self.store.delete(path)
            elif broker.id in self.controller.image.broken:
                await self.store.compare_and_set(path, value, ANY_VERSION)
            else:
                await self.store.create(path, value, ephemeral=True)
        except StoreError as error:
            log.warning("could not report %d failed logs to the controller yet: %s", len(broken), error)

    def _balance_interval_ms(self) -> int:
        seconds: int = self._broker.config.leader_imbalance_check_interval_seconds
        return seconds * 1000

    async def _balance(self) -> None:
        """If this broker is the controller: elect preferred leaders where leadership is imbalanced."""
        config = self._broker.config
        if self.elected.is_held and config.auto_leader_rebalance_enable:
            percentage: int = config.leader_imbalance_per_broker_percentage
            await self.elected.carry_out(lambda image: give_back(image, percentage))

    def unclean(self, topic: str) -> bool:
        image = self.controller.image.topics.get(topic)
        configs = {} if image is None else image.configs
        return resolve_topic(self.controller.broker_config, configs).unclean_leader_election_enable

    async def _register(self) -> None:
        broker = self._broker
        info = await self.controller.register_broker(broker.host, broker.port, broker.config.broker_rack)
        log.info("registered broker %d with broker epoch %d", info.id, info.epoch)

    async def leave(self) -> None:
        """Called before this broker stops serving: hand over leadership, then stop replication and
        connections to other brokers."""
        self._leaving = True
        if self._renewing is not None:
            self._renewing.cancel()
        if self._broker.config.controlled_shutdown_enable:
            await self._hand_over()
        await self.elected.stop()
        await self.followers.close()
        self.isr.close()
        self.peers.close()

    async def _hand_over(self) -> None:
        """Ask the controller for other leaders, and wait until they have taken over what they can."""
        try:
            await self.store.create(layout.leaving_path(self._broker.id), b"{}", ephemeral=True)
        except NodeExists:
            pass
        except StoreUnavailable as error:
            log.warning("uncontrolled shutdown, leadership was not transferred: %s", error)
            return
        moved = asyncio.Event()
        self.controller.subscribe(lambda old, new: moved.set())
        end = self._broker.loop.time() + _HAND_OVER_SECONDS
        while (left := self._still_led()) and self._broker.loop.time() < end:
            moved.clear()
            try:
                await asyncio.wait_for(moved.wait(), _RETRY_SECONDS)
            except TimeoutError:
                continue  # check again: an image may have arrived just before `clear`
        if left:
            log.warning("%d partitions still have this broker as leader and become unavailable with it", left)
        # Apply the image with the new leaders, so that requests that still arrive here get
        # NOT_LEADER_OR_FOLLOWER.
        await self._broker.caught_up()

    def _still_led(self) -> int:
        """The number of partitions that this broker leads and another broker could lead."""
        image = self.controller.image
        others = image.brokers.keys() - image.leaving - {self._broker.id}
        return sum(
            1
            for topic in image.topics.values()
            for partition in topic.partitions
            if partition.leader == self._broker.id and not others.isdisjoint(partition.isr)
        )

    # replication

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Called when an image is completely applied: all partitions on this broker have their new images."""
        if old.brokers == new.brokers:
            return
        for broker_id in old.brokers.keys() | new.brokers.keys():
            if old.brokers.get(broker_id) != new.brokers.get(broker_id):
                self.peers.forget(broker_id)
        for topic in new.topics.values():
            for partition in topic.partitions:
                found = self._broker.partitions.get((topic.name, partition.index))
                if found is not None:
                    self.followers.update(found, topic.id)

    async def alter_partition(self, request: Message) -> Message:
        """As the controller: store the ISR that a leader requests."""
        image = self.controller.image
        self.elected.epoch  # noqa: B018 - NotController unless this broker is
        check_sender(image, request.broker_id, request.broker_epoch)
        topics: list[Message] = []
        changes: list[tuple[PartitionChange, Message]] = []
        for asked in request.topics:
            topic = image.topics_by_id.get(asked.topic_id)
            wanted = [
                WantedIsr(one.partition_index, one.leader_epoch, one.partition_epoch, _isr_of(one))
                for one in asked.partitions
            ]
            results = []
            for one, found in zip(wanted, plan_isr(image, request.broker_id, topic, wanted), strict=True):
                if isinstance(found, PartitionChange):
                    new = found.new
                    result = Message(
                        partition_index=one.index,
                        error_code=0,
                        leader_id=new.leader,
                        leader_epoch=new.leader_epoch,
                        isr=list(new.isr),
                        leader_recovery_state=0,
                        partition_epoch=new.partition_epoch,
                    )
                    changes.append((found, result))
                else:
                    result = Message(partition_index=one.index, error_code=found.code)
                results.append(result)
            topics.append(Message(topic_id=asked.topic_id, partitions=results))
        joining = {one for change, _ in changes for one in change.new.isr if one not in change.old.isr}
        try:
            checks = self.controller.still_registered(joining)  # as in `image`: nothing was awaited
        except BadVersion:  # a broker has registered again, which is not in the image yet
            _refuse(changes)
            changes = []
        for start in range(0, len(changes), CHUNK):
            chunk = changes[start : start + CHUNK]
            try:
                await self.elected.write([*checks, *state_ops(change for change, _ in chunk)])
            except (BadVersion, NoNode) as conflict:
                if layout.is_id_path(conflict.path):
                    await self.controller.replan(conflict)
                _refuse(chunk)
            except StoreUnavailable as error:
                raise NotController(str(error)) from error
        return Message(throttle_time_ms=0, error_code=0, topics=topics)

    async def at_controller(
        self, context: RequestContext, request: Message, do: Callable[[], Awaitable[Message]]
    ) -> Message:
        """The response of the elected controller, which is this broker or another one."""
        controller = self.controller.image.controller_id
        from_peer = context.client_id is not None and context.client_id.startswith(CLIENT_ID_OF_PEERS)
        if controller == self._broker.id or from_peer or controller not in self.controller.image.brokers:
            return await do()
        try:
            return await self.peers.call(controller, ApiKey(context.api_key), context.version, request)
        except PeerUnavailable as error:
            raise NotController(str(error)) from error

    async def carry_out(self, plan: Plan) -> dict[tuple[str, int], ApiError | None]:
        """As the controller: carry out a client's request. When this returns, this broker has applied the
        change."""
        results = await self.elected.carry_out(plan)
        await self._broker.caught_up()
        return results

    # the session

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            log.warning("ZooKeeper session expired; this broker still serves the partitions that it leads")
            self._lost = True
            self.elected.session_lost()
        elif state is SessionState.SUSPENDED:
            log.warning("lost connection to ZooKeeper")
        elif self._renewing is None and not self._leaving:
            # Even if no session loss was reported: ZooKeeper may have expired it while the connection was
            # down.
            self._renewing = self._broker.loop.create_task(self._renew())
            self._renewing.add_done_callback(self._renewed)

    async def _renew(self) -> None:
        while self._lost or self._broker.id not in self.controller.image.brokers:
            self._lost = False
            try:
                await self._register()
            except ApiError as error:
                self._lost = True
                log.warning("could not re-register this broker: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled() and task.exception() is not None:
            log.error("this broker lost its registration", exc_info=task.exception())


def _refuse(changes: Iterable[tuple[PartitionChange, Message]]) -> None:
    """A partition or a broker has changed meanwhile: the leaders retry with the new image."""
    for _, result in changes:
        result.__dict__["error_code"] = InvalidUpdateVersion.code


def _isr_of(one: Message) -> dict[int, int]:
    """The requested ISR with broker epochs; version 2 has none, which counts as -1."""
    if one.new_isr_with_epochs:
        return {each.broker_id: each.broker_epoch for each in one.new_isr_with_epochs}
    return dict.fromkeys(getattr(one, "new_isr", None) or (), -1)
