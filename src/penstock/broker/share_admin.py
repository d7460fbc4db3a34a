"""The state of share groups as administrators see it: begin elsewhere, delete, tell; and keeping it small."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.broker.share import SHARE_GROUP_STATE, Sharing
from penstock.errors import ApiError
from penstock.groups.share.partition import SharePartition
from penstock.groups.share.state import ShareState
from penstock.groups.share.state_records import SharePartitionKey

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)

_PRUNE_RECORDS = 1_000
"""A partition of the state topic is left alone below so many records."""


def lag(sharing: Sharing, key: SharePartitionKey, state: ShareState) -> int:
    """How many records the group is not done with; -1 where it is not known."""
    try:
        partition = sharing.partition(key.topic_id, key.partition)
    except ApiError:
        return -1
    share = sharing.in_flight(key) or SharePartition(state.start_offset, state.batches)
    return share.lag(partition.log.high_watermark)


async def begin_at(sharing: Sharing, key: SharePartitionKey, offset: int) -> None:
    """The group goes on at this offset, whatever was in flight."""
    await sharing.states.ensure_topic()
    sharing.partition(key.topic_id, key.partition)
    known = sharing.state(key)
    epoch = 0 if known is None else known.state_epoch + 1
    sharing.forget(key)
    result = sharing.states.call(
        key.coordinator_key, lambda shard, token, now: shard.initialize(key, epoch, offset, token, now)
    )
    if isinstance(result, asyncio.Future):
        await result


def keys_of(sharing: Sharing, wanted: Callable[[SharePartitionKey], bool]) -> list[SharePartitionKey]:
    return [key for shard in sharing.states.shards() for key in shard.keys(wanted)]


async def delete(sharing: Sharing, keys: Iterable[SharePartitionKey]) -> None:
    pending = []
    for key in keys:
        sharing.forget(key)
        result = sharing.states.call(
            key.coordinator_key,
            lambda shard, token, now, key=key: shard.delete([key], token),  # type: ignore[misc]
        )
        if isinstance(result, asyncio.Future):
            pending.append(result)
    for written in pending:
        await written


async def group_deleted(sharing: Sharing, group_id: str) -> None:
    """Its state goes with it."""
    try:
        await delete(sharing, keys_of(sharing, lambda key: key.group_id == group_id))
    except ApiError as error:
        log.warning("the share state of the deleted group %s stays: %s", group_id, error)


async def prune(broker: Broker, sharing: Sharing) -> None:
    """Forget deleted topics; write what is needed of the state topic again, and delete what lies before."""
    topics = broker.image.topics_by_id
    try:
        await delete(sharing, keys_of(sharing, lambda key: key.topic_id not in topics))
        shards = list(sharing.states.shards())
    except ApiError:
        return  # one of them is being read: at the next turn
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
