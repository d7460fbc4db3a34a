"""A produce that cannot be answered at once: fsync after flush.messages, replicas for acks=all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import ApiError, NotEnoughReplicasAfterAppend, NotLeaderOrFollower, RequestTimedOut
from penstock.log.partition_log import AppendInfo
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.wire.produce import PartitionResult, ProduceRequest, TopicResult, encode_produce_response

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Appended = list[tuple[Partition, AppendInfo, PartitionResult]]


def _shortfall(partition: Partition, info: AppendInfo, is_behind: bool) -> ApiError | None:
    """Why acks=all cannot be said of records that were appended here."""
    if not partition.is_leader or partition.epoch_start > info.base_offset:
        # The lead has changed hands since, maybe more than once: the records may be gone.
        return NotLeaderOrFollower()
    if is_behind:
        return RequestTimedOut()
    if len(partition.image.isr) < partition.log.config.min_insync_replicas:
        return NotEnoughReplicasAfterAppend()
    return None


def wait(
    broker: Broker, version: int, request: ProduceRequest, topics: list[TopicResult], unfinished: Appended
) -> asyncio.Future[bytes]:
    """The answer when what flush.messages and acks=all promise is done."""
    answer: asyncio.Future[bytes] = broker.loop.create_future()
    flushes = [broker.flush(partition) for partition, info, _ in unfinished if info.flush_required]
    missing: dict[Key, tuple[Partition, int]] = {}
    if request.acks == -1:
        for partition, info, _ in unfinished:
            if not partition.is_replicated(info.last_offset):
                missing[partition.key] = (partition, info.last_offset)

    def respond() -> None:
        if not answer.done():
            answer.set_result(encode_produce_response(version, topics))

    def replicated(behind: set[Key]) -> None:
        for partition, info, result in unfinished:
            error = _shortfall(partition, info, partition.key in behind)
            if error is not None:
                result.error_code, result.base_offset = error.code, -1
        respond()

    def flushed(done: asyncio.Future[list[None | BaseException]]) -> None:
        for (_, _, result), outcome in zip(
            [item for item in unfinished if item[1].flush_required], done.result(), strict=True
        ):
            if isinstance(outcome, ApiError):
                result.error_code, result.error_message = outcome.code, outcome.message
                result.base_offset = -1
        if missing:
            wait = ProduceWait(missing, replicated)
            broker.delayed.watch(wait, list(missing), max(request.timeout_ms, 0))
        else:
            respond()

    asyncio.gather(*flushes, return_exceptions=True).add_done_callback(flushed)
    return answer
