"""The coordinators of a broker: groups, share groups and transactions, each with its own shard host."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.coordinators.hosted_shard import InternalTopic
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.broker.coordinators.store_check import StoreCheck
from penstock.broker.share.groups import Sharing
from penstock.broker.share.state_host import SHARE_GROUP_STATE
from penstock.broker.transactions.markers import CONSUMER_OFFSETS
from penstock.broker.transactions.transaction_host import TRANSACTION_STATE, TransactionHost
from penstock.config import group_setting
from penstock.errors import ApiError, PeerUnavailable, error_for_code
from penstock.groups.consumer.groups import GroupTimes
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.share.membership import MemberGone
from penstock.groups.share.settings import ShareSettings
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.share.groups import ShareGroupsParts
    from penstock.broker.transactions.transaction_host import TransactionHostParts
    from penstock.metadata.image import ClusterImage, TopicImage
    from penstock.replication.delayed import Key

    class CoordinatorsParts(ShareGroupsParts, TransactionHostParts, Protocol): ...


_OFFSET_FETCH_VERSION = 8

log = logging.getLogger(__name__)


class Coordinators:
    def __init__(self, broker: CoordinatorsParts) -> None:
        self._broker = broker
        self.share = Sharing(broker)
        self._store_check = StoreCheck(broker)
        self.groups: ShardHost[GroupShard] = _groups(broker, self.share, self._store_check)
        self.transactions = TransactionHost(broker)
        self._hosts: dict[str, ShardHost[Any]] = {
            CONSUMER_OFFSETS: self.groups,
            TRANSACTION_STATE: self.transactions,
            SHARE_GROUP_STATE: self.share.states,
        }
        self._topics: Mapping[str, TopicImage] = {}

    def on_image(self, image: ClusterImage) -> None:
        gone = {topic.id for topic in self._topics.values() if topic.id not in image.topics_by_id}
        self._topics = image.topics
        for host in self._hosts.values():
            try:
                host.on_image(image)
            except Exception:  # the border: a coordinator that cannot start must not stop other topics
                log.exception("%s: could not apply the new metadata image", host.topic.name)
        self.share.on_image()
        if gone:
            self._store_check.deleted(gone)

    def on_replicated(self, key: Key) -> None:
        """The high watermark of a partition may have advanced."""
        topic, index = key
        host = self._hosts.get(topic)
        if host is not None:
            host.on_replicated(index)

    def close(self) -> None:
        self._store_check.close()
        self.share.close()
        for host in self._hosts.values():
            host.close()

    async def consumed_offset(self, key: Key, groups: Iterable[str]) -> int | None:
        """The offset before which all these groups have consumed the partition.

        None while one of them has no committed offset, or its coordinator is not available: then nothing may
        be deleted.
        """
        least: int | None = None
        for group in groups:
            try:
                offset = await self._committed(group, key)
            except (ApiError, PeerUnavailable):
                return None
            if offset is None:
                return None
            least = offset if least is None else min(least, offset)
        return least

    async def _committed(self, group: str, key: Key) -> int | None:
        broker = self._broker
        if broker.membership is None or self.groups.leader_of(group) == broker.id:
            return await self.groups.read(group, lambda shard: shard.committed_offset(group, *key))
        topic, index = key
        asked = Message(
            group_id=group,
            member_id=None,
            member_epoch=-1,
            topics=[Message(name=topic, partition_indexes=[index])],
        )
        answer = await broker.peers.call(
            self.groups.leader_of(group),
            ApiKey.OFFSET_FETCH,
            _OFFSET_FETCH_VERSION,
            Message(groups=[asked], require_stable=False),
        )
        found = answer.groups[0]
        if found.error_code:
            raise error_for_code(found.error_code)()
        committed = found.topics[0].partitions[0]
        if committed.error_code or committed.committed_offset < 0:
            return None
        offset: int = committed.committed_offset
        return offset


def _groups(broker: CoordinatorsParts, share: Sharing, check: StoreCheck) -> ShardHost[GroupShard]:
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
        shard.share.settings = ShareSettings.of(broker.config)
        shard.share.config = share.config
        return shard

    def consumer_times(group_id: str) -> GroupTimes:
        altered = broker.image.group_configs.get(group_id, {})
        return GroupTimes(
            group_setting(broker.config, altered, "consumer.session.timeout.ms"),
            group_setting(broker.config, altered, "consumer.heartbeat.interval.ms"),
        )

    def perform(shard: GroupShard, action: Any) -> None:
        if isinstance(action, MemberGone):
            share.member_gone(action.group_id, action.member_id)

    return ShardHost(
        broker,
        topic,
        make_shard,
        perform,
        lambda: broker.config.offsets_commit_timeout_ms,
        on_loaded=check.loaded,
    )
