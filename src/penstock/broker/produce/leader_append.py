"""Appends a batch of this broker to a topic: here if this broker is the leader, otherwise with Produce."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.cluster.peers import CLIENT_ID_OF_PEERS
from penstock.errors import ApiError, NotLeaderOrFollower, PeerUnavailable, RequestTimedOut, error_for_code
from penstock.metadata.acls import Operation
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import (
        HasAuthorizer,
        HasConfig,
        HasDelayed,
        HasId,
        HasImage,
        HasLoop,
        HasMembership,
        HasPartitions,
        HasPeers,
    )

    class LeaderAppendParts(
        HasAuthorizer,
        HasConfig,
        HasDelayed,
        HasId,
        HasImage,
        HasLoop,
        HasMembership,
        HasPartitions,
        HasPeers,
        Protocol,
    ): ...


_REPLICATION_MS = 30_000
_PRODUCE_VERSION = 9


def led_partition(broker: LeaderAppendParts, topic: str, number: int) -> tuple[int, int]:
    """A partition of the topic that has a leader, and its leader. The same `number` gives the same
    partition."""
    image = broker.image.topics.get(topic)
    led = [
        (one.index, one.leader)
        for one in (image.partitions if image is not None else ())
        if one.leader >= 0 and (one.leader != broker.id or (topic, one.index) in broker.partitions)
    ]
    if not led:
        raise NotLeaderOrFollower(f"no partition of {topic} has a leader")
    return led[number % len(led)]


async def append_to_leader(
    broker: LeaderAppendParts, topic: str, index: int, leader: int, batch: bytearray
) -> None:
    """Appends the batch and waits until the in-sync replicas have it."""
    if leader != broker.id:
        await _produce(broker, leader, topic, index, batch)
        return
    target = broker.partitions.get((topic, index))
    if target is None:
        raise NotLeaderOrFollower(f"{topic}-{index} was removed from this broker")
    info = target.append(batch, 0, len(batch), -1, origin="coordinator")
    await _replicated(broker, target, info.last_offset)


def is_of_a_broker(broker: LeaderAppendParts, context: RequestContext) -> bool:
    """Whether another broker sent this request, as far as the listener, client id and authorization show
    it."""
    if broker.membership is None or context.listener != broker.config.inter_broker_listener:
        return False
    if context.client_id is None or not context.client_id.startswith(CLIENT_ID_OF_PEERS):
        return False
    host = context.peer.rpartition(":")[0]
    return broker.authorizer is None or broker.authorizer.allows_on_cluster(
        str(context.principal), host, Operation.CLUSTER_ACTION
    )


async def _produce(broker: LeaderAppendParts, leader: int, topic: str, index: int, batch: bytearray) -> None:
    data = Message(index=index, records=bytes(batch))
    request = Message(
        transactional_id=None,
        acks=-1,
        timeout_ms=_REPLICATION_MS,
        topic_data=[Message(name=topic, partition_data=[data])],
    )
    try:
        answer = await broker.peers.call(
            leader, ApiKey.PRODUCE, _PRODUCE_VERSION, request, timeout_ms=2 * _REPLICATION_MS
        )
    except PeerUnavailable as error:
        raise NotLeaderOrFollower(str(error)) from error
    result = answer.responses[0].partition_responses[0]
    if result.error_code:
        raise error_for_code(result.error_code)(result.error_message)


async def _replicated(broker: LeaderAppendParts, target: Partition, last_offset: int) -> None:
    if target.is_replicated(last_offset):
        return
    done: asyncio.Future[set[tuple[str, int]]] = broker.loop.create_future()
    wait = ProduceWait(
        {target.key: (target, last_offset)},
        lambda missing: None if done.done() else done.set_result(missing),
    )
    broker.delayed.watch(wait, [target.key], _REPLICATION_MS)
    try:
        missing = await done
    finally:
        broker.delayed.remove(wait)
    if missing:
        error: ApiError = RequestTimedOut(f"{target.key[0]}-{target.key[1]} was not replicated in time")
        raise error
