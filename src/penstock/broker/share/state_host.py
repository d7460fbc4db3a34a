"""The topic with the state of share partitions, and the host of its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.coordinators.hosted_shard import InternalTopic
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.groups.share.settings import ShareSettings
from penstock.groups.share.state import ShareStateShard

if TYPE_CHECKING:
    from penstock.broker.coordinators.shard_host import ShardHostParts
    from penstock.broker.parts import HasConfig

    class ShareStateHostParts(ShardHostParts, HasConfig, Protocol): ...


SHARE_GROUP_STATE = "__share_group_state"


def share_state_host(broker: ShareStateHostParts, settings: ShareSettings) -> ShardHost[ShareStateShard]:
    config = broker.config
    topic = InternalTopic(
        SHARE_GROUP_STATE,
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        {
            # Updates build on earlier ones, so they cannot be compacted; `prune` deletes those no longer
            # needed.
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    )
    return ShardHost(
        broker,
        topic,
        lambda index, leader_epoch: ShareStateShard(settings),
        write_timeout_ms=lambda: broker.config.share_coordinator_write_timeout_ms,
    )
