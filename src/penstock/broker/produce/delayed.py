"""A produce that cannot be answered at once: fsync after flush.messages, replicas for acks=all."""

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
    """The answer when what flush.messages and acks=all promise is done. Both are waited for at once: the
    replicas may be quicker than the disk."""
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
            return  # the first reason counts
        result.error_code, result.error_message, result.base_offset = error.code, error.message, -1
        if error.code == NotLeaderOrFollower.code:
            # KIP-951: who leads it now, so that the producer need not ask
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
                # Whatever it was: nobody knows what is on disk.
                failure = outcome if isinstance(outcome, ApiError) else KafkaStorageError(repr(outcome))
                fail(result, failure, partition)
                if partition.key in missing:  # it is not replicated before it is on disk here
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
    """Why acks=all cannot be said of records that were appended here."""
    if is_lost:
        # The lead has changed hands since, maybe more than once: the records may be gone.
        known = partition.key[0] in broker.image.topics
        return NotLeaderOrFollower() if known else UnknownTopicOrPartition()
    if is_behind:
        return RequestTimedOut()
    if partition.is_under_min_isr:  # since all of the former in-sync replicas got it
        return NotEnoughReplicasAfterAppend()
    return None
