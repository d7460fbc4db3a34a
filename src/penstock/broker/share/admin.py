"""Administration of share group state: start offsets, lag, deletion, pruning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from penstock.broker.share.groups import Sharing
from penstock.broker.share.state_host import SHARE_GROUP_STATE
from penstock.broker.share.states import StoredState
from penstock.errors import ApiError, NotLeaderOrFollower, PeerUnavailable, UnknownTopicOrPartition
from penstock.groups.share.partition import SharePartition
from penstock.groups.share.state_records import SharePartitionKey
from penstock.metadata.store import StoreError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import (
        HasController,
        HasGroups,
        HasImage,
        HasMembership,
        HasPartitions,
        HasPeers,
        HasShare,
    )

    class ShareAdminParts(
        HasController, HasGroups, HasImage, HasMembership, HasPartitions, HasPeers, HasShare, Protocol
    ): ...


log = logging.getLogger(__name__)

LATEST = -1
_LIST_OFFSETS_VERSION = 7
_PRUNE_RECORDS = 1_000
"""A partition of the state topic with fewer records than this is not pruned."""


async def lag(broker: ShareAdminParts, key: SharePartitionKey, state: StoredState) -> int:
    """The number of records that the group has not completed; -1 if unknown."""
    sharing = broker.share
    topic = broker.image.topics_by_id.get(key.topic_id)
    if topic is None:
        return -1
    share = sharing.in_flight(key) or SharePartition(state.start_offset, state.batches)
    try:
        partition = sharing.partition(key.topic_id, key.partition)
    except UnknownTopicOrPartition:
        if broker.membership is None:
            return -1
    except NotLeaderOrFollower:
        pass
    else:
        return share.lag(partition.log.high_watermark)
    share = SharePartition(state.start_offset, state.batches)
    end = await _end_elsewhere(broker, topic.name, key.partition)
    return -1 if end is None else share.lag(end)


async def _end_elsewhere(broker: ShareAdminParts, topic: str, index: int) -> int | None:
    """The high watermark that the partition's leader on another broker returns."""
    image = broker.image.partition(topic, index)
    if image is None or image.leader < 0:
        return None
    asked = Message(partition_index=index, current_leader_epoch=-1, timestamp=LATEST)
    request = Message(replica_id=-1, isolation_level=0, topics=[Message(name=topic, partitions=[asked])])
    try:
        answer = await broker.peers.call(image.leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, request)
    except PeerUnavailable:
        return None
    found = answer.topics[0].partitions[0]
    return None if found.error_code else found.offset


async def begin_at(broker: ShareAdminParts, key: SharePartitionKey, offset: int) -> None:
    """Makes the group continue at this offset, and discards its in-flight records."""
    sharing = broker.share
    await sharing.states.ensure_topic()
    try:
        sharing.partition(key.topic_id, key.partition)
    except (NotLeaderOrFollower, UnknownTopicOrPartition):
        topic = broker.image.topics_by_id.get(key.topic_id)
        if topic is None or broker.membership is None or not 0 <= key.partition < len(topic.partitions):
            raise
        # Another broker leads the partition; the new state epoch fences it.
    known = await sharing.stored.summary(key)
    epoch = 0 if known is None else known.state_epoch + 1
    sharing.forget(key)
    result = sharing.stored.initialize(key, epoch, offset)
    if isinstance(result, asyncio.Future):
        await result


def keys_of(sharing: Sharing, wanted: Callable[[SharePartitionKey], bool]) -> list[SharePartitionKey]:
    return [key for shard in sharing.states.shards() for key in shard.keys(wanted)]


async def delete(sharing: Sharing, keys: Iterable[SharePartitionKey]) -> None:
    pending = []
    for key in keys:
        sharing.forget(key)
        result = sharing.stored.delete(key)
        if isinstance(result, asyncio.Future):
            pending.append(result)
    for outcome in await asyncio.gather(*pending, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def keys_of_group(broker: ShareAdminParts, group_id: str) -> set[SharePartitionKey]:
    """The share partitions that a group coordinated here has state for, wherever the state is coordinated."""
    try:
        keys = set(keys_of(broker.share, lambda key: key.group_id == group_id))
    except ApiError:
        keys = set()  # a shard is loading
    try:
        group = broker.groups.shard_for(group_id).share.find(group_id)
    except ApiError:
        return keys
    for topic_id, (_, numbers) in group.initialized.items():
        keys.update(SharePartitionKey(group_id, topic_id, index) for index in numbers)
    return keys


async def delete_state_of(broker: ShareAdminParts, group_id: str) -> None:
    """Deletes a group's share state, before the group itself is deleted; ApiError if that is not possible
    now."""
    keys = keys_of_group(broker, group_id)
    if keys:
        await broker.groups.read(group_id, lambda shard: shard.group(group_id).check_delete())
        await delete(broker.share, keys)


async def _of_deleted_topics(broker: ShareAdminParts, sharing: Sharing) -> list[SharePartitionKey]:
    """The keys of deleted topics. A topic that is missing in the image may only be new, so the store is
    asked."""
    topics = broker.image.topics_by_id
    suspects = keys_of(sharing, lambda key: key.topic_id not in topics)
    if not suspects:
        return []
    existing = await broker.controller.all_topic_ids()
    return [key for key in suspects if key.topic_id not in existing]


async def prune(broker: ShareAdminParts, sharing: Sharing) -> None:
    """Remove the state of deleted topics, rewrite old records that are still needed to the end of the state
    topic, and delete the records before."""
    try:
        await delete(sharing, await _of_deleted_topics(broker, sharing))
        shards = list(sharing.states.shards())
    except ApiError:
        return  # a shard is loading; retried at the next run
    except StoreError as error:
        log.info("share state is not pruned now: %s", error)
        return
    for shard in shards:
        if not shard.states:
            continue
        name = next(iter(shard.states)).coordinator_key
        partition = broker.partitions[SHARE_GROUP_STATE, sharing.states.partition_of(name)]
        end = partition.log.log_end_offset
        if end - partition.log.log_start_offset < _PRUNE_RECORDS + 2 * len(shard.states):
            continue
        written = sharing.states.call(name, lambda one, token, now: one.snapshot_all(token, now))
        if isinstance(written, asyncio.Future):
            await written
        partition.delete_records_before(end)
