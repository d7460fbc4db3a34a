"""This broker as one of a cluster: the shared store, its registration, its session, coming and leaving.

A broker whose session has ended goes on serving what it leads: without its followers nothing that wants all
replicas is acknowledged, and they follow whom the controller has elected. When ZooKeeper answers again it
registers anew, with a new epoch, and hears what it has missed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.config import resolve_topic
from penstock.controller.cluster import ClusterController
from penstock.controller.office import Office
from penstock.errors import ApiError
from penstock.metadata.zookeeper import SessionState, ZooKeeperStore

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_RETRY_SECONDS = 0.5

log = logging.getLogger(__name__)


class Membership:
    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self.store = ZooKeeperStore(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )
        self.controller = ClusterController(self.store, broker.id, broker.clock, config)
        self.office = Office(self.controller, self.store, broker.id, self._unclean)
        self._lost = False
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.store.open()

    async def return_to_cluster(self) -> None:
        changed = await self.controller.return_to_cluster()
        if changed:
            log.info(
                "%d partitions have another leader or fewer replicas in sync since we were here", changed
            )

    async def register(self) -> None:
        """From here on the controller and the clients count on this broker."""
        await self._register()
        self.store.on_session(self._session_changed)
        self.office.start()

    def _unclean(self, topic: str) -> bool:
        image = self.controller.image.topics.get(topic)
        configs = {} if image is None else image.configs
        return resolve_topic(self.controller.broker_config, configs).unclean_leader_election_enable

    async def _register(self) -> None:
        broker = self._broker
        info = await self.controller.register_broker(broker.host, broker.port, broker.config.broker_rack)
        log.info("broker %d is registered with epoch %d", info.id, info.epoch)

    async def leave(self) -> None:
        """Before this broker stops serving."""
        await self.office.stop()
        if self._renewing is not None:
            self._renewing.cancel()

    # the session

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            log.warning("the session with ZooKeeper is over; what is led here is served on")
            self._lost = True
            self.office.session_lost()
        elif state is SessionState.SUSPENDED:
            log.warning("the connection to ZooKeeper is lost")
        elif self._renewing is None:
            # Also without a lost session: ZooKeeper may have ended it while nobody here could hear of it.
            self._renewing = self._broker.loop.create_task(self._renew())
            self._renewing.add_done_callback(self._renewed)

    async def _renew(self) -> None:
        while self._lost or self._broker.id not in self.controller.image.brokers:
            self._lost = False
            try:
                await self._register()
            except ApiError as error:
                self._lost = True
                log.warning("the broker could not be registered again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the broker is not registered any more", exc_info=task.exception())
