"""Delayed produce responses: they wait for an fsync (flush.messages) or for the in-sync replicas
(acks=all)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.net.context import RequestContext
from penstock.errors import (
    ApiError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from penstock.log.partition_log import AppendInfo
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.wire.produce import PartitionResult, ProduceRequest, TopicResult, encode_produce_response

if TYPE_CHECKING:
    from penstock.broker.parts import CanFindEndpoints, CanFlush, HasDelayed, HasImage, HasLoop

    class ProduceDelayedParts(CanFindEndpoints, CanFlush, HasDelayed, HasImage, HasLoop, Protocol): ...


Appended = list[tuple[Partition, AppendInfo, PartitionResult]]


def wait(
    broker: ProduceDelayedParts,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicResult],
    unfinished: Appended,
) -> asyncio.Future[bytes]:
    """The response, when the promises of flush.messages and acks=all are kept. It waits for both at the same
    time, because the replicas may be faster than the disk."""
    answer: asyncio.Future[bytes] = broker.loop.create_future()
    to_flush = [(partition, result) for partition, info, result in unfinished if info.flush_required]
    missing: dict[Key, tuple[Partition, int]] = {}
    if request.acks == -1:
        for partition, info, _ in unfinished:
            if not partition.is_replicated(info.last_offset):
                missing[partition.key] = (partition, info.last_offset)
    leaders: set[int] = set()
    left = bool(to_flush) + bool(missing)

    def finished() -> None:
        nonlocal left
        left -= 1
        if not left and not answer.done():
            endpoints = broker.endpoints(leaders, context.listener) if leaders else ()
            answer.set_result(encode_produce_response(context.version, topics, 0, endpoints))

    def fail(result: PartitionResult, error: ApiError, partition: Partition) -> None:
        if result.error_code:
            return  # the first error counts
        result.error_code, result.error_message, result.base_offset = error.code, error.message, -1
        if error.code == NotLeaderOrFollower.code:
            # KIP-951: return the current leader, so that the producer need not send a Metadata request
            result.current_leader = (partition.image.leader, partition.image.leader_epoch)
            leaders.add(partition.image.leader)

    def replicated(behind: set[Key]) -> None:
        for partition, _, result in unfinished:
            if partition.key in waited:
                error = _shortfall(broker, partition, partition.key in behind, partition.key in waiting.gone)
                if error is not None:
                    fail(result, error, partition)
        finished()

    def flushed(done: asyncio.Future[list[None | BaseException]]) -> None:
        for (partition, result), outcome in zip(to_flush, done.result(), strict=True):
            if isinstance(outcome, BaseException):
                # After any error it is unknown what is on disk.
                failure = outcome if isinstance(outcome, ApiError) else KafkaStorageError(repr(outcome))
                fail(result, failure, partition)
                if partition.key in missing:  # records that are not on disk here do not count as replicated
                    waiting.gone.add(partition.key)
                    broker.delayed.wake(partition.key)
        finished()

    if to_flush:
        flushes = [broker.flush(partition) for partition, _ in to_flush]
        asyncio.gather(*flushes, return_exceptions=True).add_done_callback(flushed)
    if missing:
        waited = frozenset(missing)
        waiting = ProduceWait(missing, replicated)
        broker.delayed.watch(waiting, waited, max(request.timeout_ms, 0))
        answer.add_done_callback(lambda _: broker.delayed.remove(waiting))
    return answer


def _shortfall(
    broker: ProduceDelayedParts, partition: Partition, is_behind: bool, is_lost: bool
) -> ApiError | None:
    """Why the appended records cannot be acknowledged with acks=all; None if they can."""
    if is_lost:
        # The leader has changed meanwhile, maybe more than once: the records may be lost.
        known = partition.key[0] in broker.image.topics
        return NotLeaderOrFollower() if known else UnknownTopicOrPartition()
    if is_behind:
        return RequestTimedOut()
    if partition.is_under_min_isr:  # the ISR has shrunk since the append
        return NotEnoughReplicasAfterAppend()
    return None
