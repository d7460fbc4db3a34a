"""ISR changes of the partitions that this broker leads: asks the controller to add and remove followers.

A new ISR takes effect only when the controller has stored it and the new image has it. A leader that cannot
reach the controller keeps its ISR, and does not acknowledge records that the ISR does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ApiError, PeerUnavailable, error_for_code
from penstock.metadata.partition_names import some_of
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import (
        HasConfig,
        HasController,
        HasEpoch,
        HasId,
        HasLoop,
        HasMembership,
        HasPartitions,
        HasPeers,
    )

    class IsrChangesParts(
        HasConfig, HasController, HasEpoch, HasId, HasLoop, HasMembership, HasPartitions, HasPeers, Protocol
    ): ...


VERSION = 3
_TIMEOUT_MS = 10_000
_RETRY_SECONDS = 0.2

log = logging.getLogger(__name__)


class InSyncReplicas:
    def __init__(self, broker: IsrChangesParts) -> None:
        self._broker = broker
        self._pending: dict[Key, Partition] = {}
        self._refused: dict[Key, int] = {}  # the partition epoch of rejected requests, until the next check
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failing = False

    def check(self) -> None:
        """Check all partitions that this broker leads for followers that have fallen behind or caught up."""
        config, live = self._broker.config, self._live()
        self._refused.clear()
        for partition in list(self._broker.partitions.values()):
            if partition.is_leader and len(partition.image.replicas) > 1:
                isr = partition.wanted_isr(config.replica_lag_time_max_ms, live)
                if isr is not None:
                    self._ask(partition, isr)

    def follower_fetched(self, partition: Partition, replica_id: int) -> None:
        """Adds a follower that has caught up to the ISR without waiting for the next check."""
        image = self._broker.controller.image
        if partition.may_join(replica_id) and replica_id in image.brokers and replica_id not in image.leaving:
            now = partition.image
            isr = tuple(one for one in now.replicas if one in now.isr or one == replica_id)
            known = {replica_id, self._broker.id}.issubset(isr)  # the image may have a part of a change
            if known and self._refused.get(partition.key) != now.partition_epoch:
                self._ask(partition, isr)

    def _ask(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.ask_for_isr(isr)
        self._pending[partition.key] = partition
        if self._task is None and not self._closed:
            self._task = self._broker.loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._pending and not self._closed:
                # For the others, a newer image has settled the change.
                pending = {key: one for key, one in self._pending.items() if one.pending_isr is not None}
                self._pending = {}
                if not pending:
                    break
                asked = {key: one.image.partition_epoch for key, one in pending.items()}
                try:
                    refused = await self._send(pending)
                    self._failing = False
                except (PeerUnavailable, ApiError) as error:
                    if not self._failing:
                        log.info("ISR unchanged for now: %s", error)
                        self._failing = True
                    await self._again(pending)
                    continue
                except Exception:  # the border: a request must not stay pending forever
                    log.exception("AlterPartition could not be sent to the controller")
                    await self._again(pending)
                    continue
                for key, partition in refused.items():
                    # With another epoch, the pending ISR belongs to a later request.
                    if partition.image.partition_epoch == asked[key]:
                        self._refused[key] = asked[key]
                        partition.isr_refused()
        finally:
            self._task = None

    async def _again(self, pending: dict[Key, Partition]) -> None:
        """The response is lost, so the ISR may be stored: repeat the request until an image shows the
        result."""
        for partition in pending.values():
            partition.isr_unanswered()
        await asyncio.sleep(_RETRY_SECONDS)
        lag, live = self._broker.config.replica_lag_time_max_ms, self._live()
        for key, partition in pending.items():
            if partition.is_unsure and self._broker.partitions.get(key) is partition:
                isr = partition.wanted_isr(lag, live)
                if isr is not None:
                    partition.ask_for_isr(isr)
                    self._pending[key] = partition

    def _live(self) -> Set[int]:
        image = self._broker.controller.image
        return image.brokers.keys() - image.leaving

    async def _send(self, pending: dict[Key, Partition]) -> dict[Key, Partition]:
        """Sends the requests; returns the rejected ones, which the next check looks at again."""
        broker = self._broker
        topics: dict[str, list[Partition]] = {}
        for partition in pending.values():
            topics.setdefault(partition.key[0], []).append(partition)
        images = broker.controller.image.topics
        request = Message(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            topics=[
                Message(
                    topic_id=images[name].id,
                    partitions=[_change(broker, partition) for partition in partitions],
                )
                for name, partitions in topics.items()
                if name in images
            ],
        )
        controller = broker.controller.image.controller_id
        if controller == broker.id:
            assert broker.membership is not None
            answer = await broker.membership.alter_partition(request)
        else:
            answer = await broker.peers.call(
                controller, ApiKey.ALTER_PARTITION, VERSION, request, timeout_ms=_TIMEOUT_MS
            )
        if answer.error_code:
            raise error_for_code(answer.error_code)()
        by_id = {topic.id: topic.name for topic in images.values()}
        refused: dict[Key, Partition] = dict(pending)
        rejected: dict[int, list[str]] = {}
        for topic in answer.topics:
            for result in topic.partitions:
                key = (by_id.get(topic.topic_id, ""), result.partition_index)
                if key not in pending:
                    continue
                if result.error_code:
                    rejected.setdefault(result.error_code, []).append(f"{key[0]}-{key[1]}")
                else:
                    del refused[key]  # stored; the image that shows it will follow
        for code, names in rejected.items():
            log.info(
                "the controller rejected AlterPartition with %s: %s",
                error_for_code(code).kafka_name,
                some_of(names),
            )
        return refused

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()


def _change(broker: IsrChangesParts, partition: Partition) -> Message:
    epochs = {replica: one.broker_epoch for replica, one in partition.progress.items()}
    epochs[broker.id] = broker.epoch
    return Message(
        partition_index=partition.key[1],
        leader_epoch=partition.image.leader_epoch,
        new_isr_with_epochs=[
            Message(broker_id=one, broker_epoch=epochs.get(one, -1)) for one in partition.asked_isr
        ],
        leader_recovery_state=0,
        partition_epoch=partition.image.partition_epoch,
    )
