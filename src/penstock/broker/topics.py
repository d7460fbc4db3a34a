"""The partitions of this broker: applies images by creating, changing and deleting logs.

Images are applied in order, one at a time; directory operations run in a thread. `image` is the last one that
is completely applied, so everything in it exists.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from penstock.broker.cluster.known_brokers import KnownBrokers
from penstock.config import BrokerConfig, resolve_topic
from penstock.errors import ApiError, KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from penstock.log.partition_log import PartitionLog
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.traffic import Traffic

if TYPE_CHECKING:
    from penstock.broker.parts import (
        CanApplyLimits,
        CanChangeLogs,
        CanFlush,
        CanSetConfig,
        HasClock,
        HasConfig,
        HasController,
        HasCoordinators,
        HasDelayed,
        HasId,
        HasLogs,
        HasLoop,
        HasMembership,
    )

    class TopicsParts(
        CanApplyLimits,
        CanChangeLogs,
        CanFlush,
        CanSetConfig,
        HasClock,
        HasConfig,
        HasController,
        HasCoordinators,
        HasDelayed,
        HasId,
        HasLogs,
        HasLoop,
        HasMembership,
        Protocol,
    ): ...


log = logging.getLogger(__name__)

_AGAIN_S = 1.0


class Topics:
    def __init__(self, broker: TopicsParts) -> None:
        self._broker = broker
        self.image = ClusterImage(cluster_id="", controller_id=broker.id)
        self.brokers = KnownBrokers(broker.id)
        self.partitions: dict[Key, Partition] = {}
        self.traffic: dict[str, Traffic] = {}  # by topic
        self._config: BrokerConfig = broker.config
        self.unavailable: set[Key] = set()  # partitions whose logs could not be created
        self._dropped: list[Key] = []  # removed; operations that wait for them complete with the next image
        self._wanted: ClusterImage | None = None
        self._applying: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """The controller has a new image."""
        self._wanted = new
        self._resume()

    def _resume(self) -> None:
        if self._applying is None:
            self._applying = self._broker.loop.create_task(self._apply_wanted())

    async def caught_up(self) -> None:
        while self._applying is not None:
            await asyncio.shield(self._applying)

    async def _apply_wanted(self) -> None:
        try:
            while self._wanted is not None:
                image, self._wanted = self._wanted, None
                try:
                    await self.apply(image)
                except Exception:
                    # The image is not sent again, so without a retry leaders and coordinators would stay
                    # outdated.
                    log.exception("could not apply the new metadata; retrying")
                    self._wanted = self._wanted or image
                    self.close()
                    self._again = self._broker.loop.call_later(_AGAIN_S, self._resume)
                    raise
        finally:
            self._applying = None

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def apply(self, image: ClusterImage) -> None:
        broker, old = self._broker, self.image
        config = broker.controller.broker_config
        broker.set_config(config)
        config_changed = config is not self._config
        gone = [topic for topic in old.topics.values() if topic.id not in image.topics_by_id]
        if gone:
            await self._remove(gone)
            for topic in gone:
                self.traffic.pop(topic.name, None)
        for topic in image.topics.values():
            if topic is not old.topics.get(topic.name) or config_changed:
                await self._update(topic, config)
        self._config = config
        if config_changed:
            broker.apply_limits(config)
        self.image = image
        self.brokers.on_image(image)
        if broker.membership is not None:
            broker.membership.on_image(old, image)
        # Only now, so that requests that wait for a deleted topic get the error of the new image.
        dropped, self._dropped = self._dropped, []
        for key in dropped:
            broker.delayed.complete_all(key)
        broker.coordinators.on_image(image)

    def missing(self, key: Key) -> ApiError:
        """The error for a partition that is not on this broker. If other brokers have it, the client looks
        for the leader."""
        if key in self.unavailable:
            return KafkaStorageError()
        return NotLeaderOrFollower() if self.image.partition(*key) is not None else UnknownTopicOrPartition()

    async def retry_unavailable(self) -> None:
        """Retry to create the logs that could not be created, for example because the disk was full."""
        # After an image that could not be applied, `image` is older than some partitions.
        if self.unavailable and self._applying is None and self._wanted is None:
            self._applying = self._broker.loop.create_task(self._make_unavailable())
            await self.caught_up()

    async def _make_unavailable(self) -> None:
        """Runs like applying an image: a newer image, which may delete the topic, waits until this is
        done."""
        try:
            for name in {name for name, _ in self.unavailable}:
                topic = self.image.topics.get(name)
                if topic is not None:
                    await self._update(topic, self._config)
        finally:
            self._applying = None
            if self._wanted is not None:
                self._resume()

    def _progressed(self, key: Key) -> None:
        """Records were appended to a coordinator's topic, or its high watermark has advanced."""
        self._broker.delayed.wake(key)
        self._broker.coordinators.on_replicated(key)

    async def _remove(self, topics: list[TopicImage]) -> None:
        keys = [
            (topic.name, partition.index)
            for topic in topics
            for partition in topic.partitions
            if (topic.name, partition.index) in self.partitions
        ]
        self.unavailable.difference_update(
            (topic.name, partition.index) for topic in topics for partition in topic.partitions
        )
        await self._drop(keys)

    async def _drop(self, keys: list[Key]) -> None:
        """Stop using the logs of these partitions."""
        broker = self._broker
        if not keys:
            return
        for key in keys:
            del self.partitions[key]
            if broker.membership is not None:
                broker.membership.followers.forget(key)

        def delete() -> None:
            for key in keys:
                try:
                    broker.logs.delete(*key)
                except OSError as error:
                    log.error("%s-%d was deleted, but its directory could not be removed: %s", *key, error)

        await broker.with_logs(delete)
        self._dropped += keys

    async def _update(self, topic: TopicImage, config: BrokerConfig) -> None:
        broker = self._broker
        log_config = resolve_topic(config, topic.configs)
        missing: list[PartitionImage] = []
        moved: list[Key] = []  # to other brokers
        for image in topic.partitions:
            partition = self.partitions.get((topic.name, image.index))
            if partition is None:
                if broker.id in image.replicas:
                    missing.append(image)
                continue
            if broker.id not in image.replicas:
                moved.append((topic.name, image.index))
                continue
            if partition.log.config is not log_config:
                partition.log.update_config(log_config)
                partition.configured()
            if partition.image is not image:
                new_epoch = partition.image.leader_epoch != image.leader_epoch
                partition.update(image)
                self._roles_changed(partition, topic)
                if new_epoch:
                    broker.delayed.complete_all(partition.key)
                else:
                    partition.announce()
        for key in moved:
            self.unavailable.discard(key)
        await self._drop(moved)
        if not missing:
            return

        def create() -> list[tuple[PartitionImage, PartitionLog | KafkaStorageError]]:
            created: list[tuple[PartitionImage, PartitionLog | KafkaStorageError]] = []
            for image in missing:
                try:
                    created.append((image, broker.logs.create(topic.name, image.index, topic.id, log_config)))
                except KafkaStorageError as error:
                    created.append((image, error))
            return created

        for image, one in await broker.with_logs(create):
            key = (topic.name, image.index)
            if isinstance(one, KafkaStorageError):
                if key not in self.unavailable:
                    log.error("%s-%d is not available: %s", *key, one)
                self.unavailable.add(key)
            else:
                self.unavailable.discard(key)
                # Coordinators also wait for the high watermark of their topics.
                progressed = self._progressed if topic.is_internal else broker.delayed.wake
                traffic = self.traffic.setdefault(topic.name, Traffic())
                partition = Partition(
                    image, one, broker.id, progressed, broker.clock.now_ms, traffic, broker.flush
                )
                self.partitions[key] = partition
                self._roles_changed(partition, topic)

    def _roles_changed(self, partition: Partition, topic: TopicImage) -> None:
        membership = self._broker.membership
        if membership is not None:
            membership.followers.update(partition, topic.id)
