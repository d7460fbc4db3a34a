"""Runs transaction coordinators: the shards of `__transaction_state`, and a stock of producer ids."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

from penstock.broker.coordinators.hosted_shard import InternalTopic
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.broker.transactions.append_order import AppendOrder
from penstock.broker.transactions.markers import MarkerWriter
from penstock.broker.transactions.verification import Verifier
from penstock.errors import ApiError
from penstock.replication.delayed import Key
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import TransactionShard, WriteMarkers
from penstock.transactions.state import PREPARED

if TYPE_CHECKING:
    from penstock.broker.parts import (
        CanCreateInternalTopics,
        CanUseThreads,
        HasClock,
        HasConfig,
        HasController,
        HasDelayed,
        HasGroups,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
        HasPeers,
        HasProducerIds,
        HasTransactions,
    )

    class TransactionHostParts(
        CanCreateInternalTopics,
        CanUseThreads,
        HasClock,
        HasConfig,
        HasController,
        HasDelayed,
        HasGroups,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
        HasPeers,
        HasProducerIds,
        HasTransactions,
        Protocol,
    ): ...


TRANSACTION_STATE = "__transaction_state"
_IDS_AT_HAND = 32

log = logging.getLogger(__name__)


class ReadyProducerIds:
    """A stock of producer ids, for a state machine that cannot wait for the next block."""

    def __init__(self, broker: TransactionHostParts) -> None:
        self._broker = broker
        self._ready: deque[int] = deque()
        self._filling: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        if len(self._ready) <= _IDS_AT_HAND // 2:
            self._fill()
        return self._ready.popleft() if self._ready else None

    async def filled(self) -> None:
        """Waits until a producer id is available."""
        while not self._ready:
            await asyncio.shield(self._fill())

    def _fill(self) -> asyncio.Task[None]:
        if self._filling is None:
            self._filling = self._broker.loop.create_task(self._refill())
            self._filling.add_done_callback(self._filled)
        return self._filling

    async def _refill(self) -> None:
        while len(self._ready) < _IDS_AT_HAND:
            self._ready.append(await self._broker.producer_ids.next())

    def _filled(self, task: asyncio.Task[None]) -> None:
        self._filling = None
        if not task.cancelled() and task.exception() is not None:
            log.error("could not allocate producer ids: %s", task.exception())

    def close(self) -> None:
        if self._filling is not None:
            self._filling.cancel()


class TransactionHost(ShardHost[TransactionShard]):
    """The shards of `__transaction_state` that this broker leads, and their markers."""

    def __init__(self, broker: TransactionHostParts) -> None:
        config = broker.config
        self._broker = broker
        self.producer_ids = ReadyProducerIds(broker)
        self.verifier = Verifier(broker)
        self.append_order = AppendOrder(broker.loop)
        self._markers = MarkerWriter(broker, self._report)
        self._ending: dict[str, list[asyncio.Future[None]]] = {}  # waiters for the end, by transactional id
        topic = InternalTopic(
            TRANSACTION_STATE,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
        super().__init__(broker, topic, self._make, self._write_markers)

    def _make(self, index: int, leader_epoch: int) -> TransactionShard:
        settings = TransactionSettings.of(self._broker.config)
        return TransactionShard(settings, leader_epoch, self.producer_ids.take)

    def close(self) -> None:
        self.producer_ids.close()
        self.verifier.close()
        self.append_order.close()
        self._markers.close()
        super().close()

    def _write_markers(self, shard: TransactionShard, markers: WriteMarkers) -> None:
        if shard.wants(markers):  # otherwise the decision could not be written
            self._markers.write(markers)

    def _report(self, markers: WriteMarkers, written: set[Key]) -> None:
        try:
            self.decide(
                markers.transactional_id, lambda shard, now: shard.markers_written(markers, written, now)
            )
        except ApiError as error:
            log.info("%s: %s", markers.transactional_id, error)
            return
        if not self.is_ending(markers.transactional_id):
            for waiting in self._ending.pop(markers.transactional_id, ()):
                if not waiting.done():
                    waiting.set_result(None)

    def is_ending(self, transactional_id: str) -> bool:
        """Whether markers of this transaction are still to be written, as far as this broker knows."""
        try:
            known = self.shard_for(transactional_id).transactions.get(transactional_id)
        except ApiError:
            return False
        return known is not None and known.state in PREPARED

    async def ended(self, transactional_id: str, within_ms: int) -> None:
        """Waits until the ending transaction of this id is complete, at most `within_ms`. If another broker
        coordinates it, this always waits for the whole time."""
        waiting: asyncio.Future[None] = self._broker.loop.create_future()
        self._ending.setdefault(transactional_id, []).append(waiting)
        try:
            async with asyncio.timeout(within_ms / 1000):
                await waiting
        except TimeoutError:
            pass
        finally:
            others = self._ending.get(transactional_id, [])
            if waiting in others:
                others.remove(waiting)
                if not others:
                    del self._ending[transactional_id]
