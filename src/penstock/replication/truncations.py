"""What follows from cutting a log, before anything is appended to it again: by this follower, or as leader.

No recovery point on disk may vouch for what takes the place of the records that were cut, and what is known
of producers is read back. Both take long, and this broker may be made leader meanwhile: until then the log
refuses records (`PartitionLog.is_settled`), and clients try again. One task for each log, which outlives the
fetcher that has cut it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog
    from penstock.replication.follower_parts import FollowersParts

log = logging.getLogger(__name__)


class Truncations:
    def __init__(self, broker: FollowersParts) -> None:
        self._broker = broker
        self._tasks: dict[PartitionLog, asyncio.Task[None]] = {}

    def settle(self, one: PartitionLog) -> asyncio.Future[None]:
        """Done when records may be appended. Whoever waits for it may be cancelled, the work is not."""
        task = self._tasks.get(one)
        if task is None:
            task = self._tasks[one] = self._broker.loop.create_task(self._settle(one))
            task.add_done_callback(lambda _: self._tasks.pop(one, None))
        return asyncio.shield(task)

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
            one.take_producers(rebuild)  # unless it was cut again

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
