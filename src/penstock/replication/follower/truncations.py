"""Settles a truncated log before anything is appended to it again, by this follower or as a leader.

The recovery point on disk must be lowered first, because it must not cover the records that replace the
truncated ones; then the producer state is rebuilt. Both take time, and this broker may become the leader
meanwhile: until the log is settled (`PartitionLog.is_settled`) it rejects records, and clients retry. Each
log has one task, which outlives the fetcher that truncated the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog
    from penstock.replication.follower.parts import FollowersParts

log = logging.getLogger(__name__)


class Truncations:
    def __init__(self, broker: FollowersParts) -> None:
        self._broker = broker
        self._tasks: dict[PartitionLog, asyncio.Task[None]] = {}

    def settle(self, one: PartitionLog) -> asyncio.Future[None]:
        """Done when records may be appended. Cancelling the waiter does not cancel the work."""
        task = self._tasks.get(one)
        if task is None or task.done():  # a task that is done does not see a truncation after its end
            task = self._tasks[one] = self._broker.loop.create_task(self._settle(one))
            task.add_done_callback(lambda done: self._ended(one, done))
        return asyncio.shield(task)

    def _ended(self, one: PartitionLog, task: asyncio.Task[None]) -> None:
        if self._tasks.get(one) is task:
            del self._tasks[one]

    async def _settle(self, one: PartitionLog) -> None:
        broker = self._broker
        while (rebuild := one.producer_rebuild()) is not None and not one.closed:
            try:
                await broker.with_logs(broker.logs.truncated, one, one.log_end_offset)
                await broker.in_thread(rebuild.run)
                one.epochs.save()
            except (OSError, PenstockError) as error:
                if broker.logs.get(one.topic, one.partition) is not one:
                    return  # it was deleted
                log.error(
                    "%s-%d was truncated and cannot be written yet: %s", one.topic, one.partition, error
                )
                await asyncio.sleep(broker.config.replica_fetch_backoff_ms / 1000)
                continue
            one.take_producers(rebuild)  # has no effect if the log was truncated again

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
