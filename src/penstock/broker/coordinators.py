"""The coordinators of a broker: one host for each kind of state, told of new images and of the end."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.coordination import InternalTopic, ShardHost
from penstock.broker.transactions import CONSUMER_OFFSETS, TRANSACTION_STATE, TransactionHost
from penstock.config import group_setting
from penstock.errors import ApiError
from penstock.groups.consumer.groups import GroupTimes
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.metadata.image import ClusterImage
    from penstock.replication.delayed import Key


log = logging.getLogger(__name__)


class Coordinators:
    def __init__(self, broker: Broker) -> None:
        self.groups: ShardHost[GroupShard] = _groups(broker)
        self.transactions = TransactionHost(broker)
        self._hosts: dict[str, ShardHost[Any]] = {
            CONSUMER_OFFSETS: self.groups,
            TRANSACTION_STATE: self.transactions,
        }

    def on_image(self, image: ClusterImage) -> None:
        for host in self._hosts.values():
            try:
                host.on_image(image)
            except Exception:  # the border: a coordinator that cannot start must not stop other topics
                log.exception("%s: the new image could not be applied", host.topic.name)

    def on_replicated(self, key: Key) -> None:
        """The high watermark of a partition may have moved."""
        topic, index = key
        host = self._hosts.get(topic)
        if host is not None:
            host.on_replicated(index)

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()

    def consumed_offset(self, key: Key, groups: Iterable[str]) -> int | None:
        """The offset before which all these groups have consumed the partition.

        None while one of them has committed nothing, or is coordinated elsewhere: nothing may go then.
        """
        least: int | None = None
        for group in groups:
            try:
                offset = self.groups.shard_for(group).committed_offset(group, *key)
            except ApiError:
                return None
            if offset is None:
                return None
            least = offset if least is None else min(least, offset)
        return least


def _groups(broker: Broker) -> ShardHost[GroupShard]:
    config = broker.config
    topic = InternalTopic(
        CONSUMER_OFFSETS,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)},
    )
    rng = random.Random()

    def make_shard(index: int, leader_epoch: int) -> GroupShard:
        shard = GroupShard(GroupSettings.of(broker.config), lambda: broker.image, rng)
        shard.consumer.times = consumer_times
        return shard

    def consumer_times(group_id: str) -> GroupTimes:
        altered = broker.image.group_configs.get(group_id, {})
        return GroupTimes(
            group_setting(broker.config, altered, "consumer.session.timeout.ms"),
            group_setting(broker.config, altered, "consumer.heartbeat.interval.ms"),
        )

    return ShardHost(broker, topic, make_shard)
