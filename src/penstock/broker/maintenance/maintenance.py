"""Log maintenance in the background: retention, compaction, flushing, checkpoints, removal of files.

The event loop owns the logs, so it decides and swaps segments. Threads do fsync and directory operations. A
child process rewrites segments; it gets and returns plain values.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from penstock.errors import KafkaStorageError
from penstock.log.cleaning.cleaner import clean
from penstock.log.cleaning.compaction import facts_of, plan_cleaning, read_first_timestamps
from penstock.log.cleaning.strict_retention import Oldest, plan_strict_retention, rewrite_expired
from penstock.log.cleaning.swap import Rewritten, swapping
from penstock.log.partition_log import SEGMENTS_AT_ONCE, PartitionLog
from penstock.log.recovery.scan import CorruptSegment
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition

if TYPE_CHECKING:
    from penstock.broker.parts import (
        CanChangeLogs,
        CanFindConsumed,
        CanUseThreads,
        HasClock,
        HasConfig,
        HasFlusher,
        HasJobs,
        HasLogs,
        HasLoop,
        HasPartitions,
        HasServer,
        HasTopics,
    )

    class MaintenanceParts(
        CanChangeLogs,
        CanFindConsumed,
        CanUseThreads,
        HasClock,
        HasConfig,
        HasFlusher,
        HasJobs,
        HasLogs,
        HasLoop,
        HasPartitions,
        HasServer,
        HasTopics,
        Protocol,
    ): ...


log = logging.getLogger(__name__)

T = TypeVar("T")

_PRODUCER_EXPIRY_CHECK_MS = 600_000
_PURGE_MS = 1_000
_RETRY_LOGS_MS = 10_000
_IDLE_CHECK_MS = 5_000
_LONGEST_FLUSH_CHECK_MS = 3_000
_SHORTEST_FLUSH_CHECK_MS = 10
# How many partitions are checked in one iteration of the event loop.
_STRIDE = 50


class Maintenance:
    def __init__(self, broker: MaintenanceParts) -> None:
        self._broker = broker
        # Compaction and strict retention rewrite segments, one log at a time.
        self._rewriting = asyncio.Lock()
        self._stopping = False
        # Weak, so that a deleted log and its files are released.
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()
        # With the number of truncations of the log for which it is valid.
        self._oldest: WeakKeyDictionary[PartitionLog, tuple[int, Mapping[int, Oldest]]] = WeakKeyDictionary()

    def schedule(self) -> None:
        broker = self._broker
        jobs = broker.jobs
        jobs.add("retention", lambda: broker.config.log_retention_check_interval_ms, self.retention)
        if broker.config.log_cleaner_enable:
            jobs.add("compaction", lambda: max(broker.config.log_cleaner_backoff_ms, 1), self.compaction)
        jobs.add("flush", self._flush_interval_ms, self.flush)
        jobs.add("checkpoint", self._checkpoint_interval_ms, self.checkpoint)
        jobs.add("high watermarks", self._high_watermark_interval_ms, self.checkpoint_high_watermarks)
        jobs.add("unavailable logs", lambda: _RETRY_LOGS_MS, broker.topics.retry_unavailable)
        jobs.add("purge", lambda: _PURGE_MS, self.purge)
        jobs.add("producer expiry", lambda: _PRODUCER_EXPIRY_CHECK_MS, self.expire_producers)
        jobs.add("idle connections", lambda: _IDLE_CHECK_MS, broker.server.reap)

    # -- durability

    def _flush_interval_ms(self) -> int:
        shortest = min(
            (partition.log.config.flush_ms for partition in self._broker.partitions.values()),
            default=_LONGEST_FLUSH_CHECK_MS,
        )
        return min(max(shortest, _SHORTEST_FLUSH_CHECK_MS), _LONGEST_FLUSH_CHECK_MS)

    async def flush(self) -> None:
        due = await self._broker.with_logs(self._broker.logs.logs_to_flush)
        await asyncio.gather(*(self._flush(one) for one in due))

    async def _flush(self, one: PartitionLog) -> None:
        try:
            await self._broker.flusher.flush(one)
        except KafkaStorageError as error:
            log.error("flush failed; the partition is offline for writes: %s", error)

    def _checkpoint_interval_ms(self) -> int:
        return max(int(self._broker.config.log_flush_offset_checkpoint_interval_ms), 1)

    def _high_watermark_interval_ms(self) -> int:
        return int(self._broker.config.replica_high_watermark_checkpoint_interval_ms)

    async def checkpoint_high_watermarks(self) -> None:
        await self._broker.with_logs(self._broker.logs.checkpoint_high_watermarks)

    async def checkpoint(self) -> None:
        """Sync closed segments, so that recovery after a crash reads only one segment; then write the
        checkpoints."""
        broker = self._broker
        logs = [partition.log for partition in broker.partitions.values()]
        rolled = [one for one in logs if one.failed is None and one.recovery_point < one.active.base_offset]
        await asyncio.gather(*(self._flush(one) for one in rolled))
        await broker.with_logs(broker.logs.checkpoint)

    async def purge(self) -> None:
        broker = self._broker
        for one in await broker.with_logs(broker.logs.logs_to_trim):
            try:
                while self._is_open(one) and one.drop_below_start():
                    await asyncio.sleep(0)
            except OSError as error:
                log.error("segments of %s-%d could not be deleted: %s", one.topic, one.partition, error)
        await broker.with_logs(broker.logs.purge)

    # -- retention

    async def expire_producers(self) -> None:
        broker = self._broker
        now, age = broker.clock.now_ms(), broker.config.producer_id_expiration_ms
        for i, partition in enumerate(list(broker.partitions.values())):
            if partition.log.is_settled:
                partition.log.producers.expire(now, age)
            if i % _STRIDE == 0:
                await asyncio.sleep(0)

    async def retention(self) -> None:
        broker = self._broker
        moved = False
        for i, partition in enumerate(list(broker.partitions.values())):
            one = partition.log
            if i % _STRIDE == 0:
                await asyncio.sleep(0)
            if broker.partitions.get(partition.key) is not partition:
                continue
            consumed = None
            if one.config.retention_consumed_groups:
                consumed = await broker.consumed_offset(partition.key, one.config.retention_consumed_groups)
                if broker.partitions.get(partition.key) is not partition:
                    continue
            if "delete" in one.config.cleanup_policy or consumed is not None:
                before = one.log_start_offset
                try:
                    removed = await self._delete_segments(partition, consumed)
                except (OSError, KafkaStorageError) as error:
                    log.error("retention of %s-%d failed: %s", one.topic, one.partition, error)
                    continue
                moved = moved or one.log_start_offset != before
                if removed:
                    log.info(
                        "%s-%d: retention deleted %d segments; log start offset is %d, was %d",
                        one.topic, one.partition, removed, one.log_start_offset, before,
                    )  # fmt: skip
            if one.config.retention_strict:
                try:
                    await self._strict_retention(one)
                    await broker.with_logs(one.delayed_deletes.purge)
                except (OSError, KafkaStorageError) as error:
                    log.error("strict retention of %s-%d failed: %s", one.topic, one.partition, error)
        if moved:
            await broker.with_logs(broker.logs.checkpoint_log_starts)
        if not self._rewriting.locked():
            self._close_child()

    async def _delete_segments(self, partition: Partition, consumed: int | None) -> int:
        """Deletes a few segments in each iteration of the event loop."""
        removed = 0
        while True:
            count = partition.log.apply_retention(consumed, SEGMENTS_AT_ONCE)
            removed += count
            if count < SEGMENTS_AT_ONCE:
                return removed
            await asyncio.sleep(0)
            if self._broker.partitions.get(partition.key) is not partition:
                return removed

    async def _strict_retention(self, one: PartitionLog) -> None:
        async with self._rewriting:
            for _ in range(2):
                await self._know_times([one])
                if not self._is_open(one) or not one.is_settled:
                    return
                truncations, known = self._oldest.get(one, (0, {}))
                if truncations != one.truncations:
                    known = {}  # it was about truncated records
                job = plan_strict_retention(facts_of(one), self._broker.clock.now_ms(), known)
                if job is None:
                    return
                result = await self._in_child(one, rewrite_expired, job)
                if result is None or not self._is_open(one):
                    return
                if not await self._swap(one, result):
                    return  # it was truncated meanwhile; the next pass checks it again
                self._oldest[one] = (result.truncations, result.oldest)
                if result.first_offset is not None and result.first_offset > one.log_start_offset:
                    one.delete_records_before(min(result.first_offset, one.high_watermark))
                if not result.active_expired:
                    return
                # Old records of the active segment can be removed after a roll.
                one.roll()

    async def compaction(self) -> None:
        broker = self._broker
        while True:
            async with self._rewriting:
                await self._know_times(self._compacted().values())
                offsets = broker.logs.cleaner_offsets
                job = plan_cleaning(
                    [
                        facts_of(one, offsets.get(key))
                        for key, one in self._compacted().items()
                        if one.is_settled
                    ],
                    broker.clock.now_ms(),
                    dedupe_buffer_bytes=broker.config.log_cleaner_dedupe_buffer_size,
                )
                if job is None:
                    self._close_child()
                    return
                key = (job.topic, job.partition)
                one = broker.partitions[key].log
                result = await self._in_child(one, clean, job)
                if result is None:
                    return
                if not self._is_open(one):
                    continue
                if not await self._swap(one, result):
                    continue  # it was truncated meanwhile: plan again
                broker.logs.cleaner_offsets[key] = result.end_offset
                log.info(
                    "%s-%d: cleaned the log up to offset %d, retained %d of %d records",
                    *key, result.end_offset, result.stats.records_written, result.stats.records_read,
                )  # fmt: skip

    def _compacted(self) -> dict[Key, PartitionLog]:
        return {
            key: partition.log
            for key, partition in self._broker.partitions.items()
            if "compact" in partition.log.config.cleanup_policy and partition.log not in self._uncleanable
        }

    async def _know_times(self, logs: Iterable[PartitionLog]) -> None:
        """Read the first timestamps of segments that an earlier process has written: they are only on
        disk."""
        unknown = [
            segment
            for one in logs
            for segment in one.segments[:-1]
            if segment.first_timestamp is None and segment.size
        ]
        if unknown:
            await self._broker.in_thread(read_first_timestamps, unknown)

    def _is_open(self, one: PartitionLog) -> bool:
        partition = self._broker.partitions.get((one.topic, one.partition))
        return partition is not None and partition.log is one

    async def _swap(self, one: PartitionLog, result: Rewritten) -> bool:
        """False if the log was truncated or deleted, or could not be synced: then it is unchanged."""
        steps = swapping(one, result)
        try:
            while self._is_open(one):
                await self._broker.in_thread(one.fs.fsync_dir, next(steps))
        except StopIteration as done:
            return bool(done.value)
        except OSError as error:
            if self._is_open(one):
                log.error("rewritten segments of %s-%d: %s", one.topic, one.partition, error)
        finally:
            steps.close()
        return False

    # -- the child process

    _child: ProcessPoolExecutor | None = None

    async def _in_child(self, one: PartitionLog, work: Callable[[Any], T], job: Any) -> T | None:
        """Runs `work` in the child process. None if it failed: the partition's log is unchanged, and the
        reason is logged."""
        truncations = one.truncations
        try:
            if self._child is None:
                self._child = await self._broker.in_thread(_start_child)
            if self._stopping:
                self.stop()
                return None
            return await self._broker.loop.run_in_executor(self._child, work, job)
        except CorruptSegment as error:
            if one.truncations != truncations:
                return None  # it was truncated while the child read it
            self._uncleanable.add(one)
            log.error("%s-%d: marked uncleanable, compaction stopped: %s", one.topic, one.partition, error)
        except (OSError, BrokenProcessPool) as error:
            self._close_child()
            if self._is_open(one) and not self._stopping:
                log.error("rewriting %s-%d failed: %s", one.topic, one.partition, error)
        return None

    def _close_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Abort a running rewrite; the files that it has written are removed at the next start."""
        self._stopping = True
        if self._child is not None:
            for process in list(self._child._processes.values()):
                process.terminate()


def _start_child() -> ProcessPoolExecutor:
    """Blocks until the process has started, but not until it has loaded its modules."""
    child = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    child.submit(os.getpid)
    return child


def _end_with_parent() -> None:
    """Runs in the child. The child holds both ends of its queue, so without this it would not notice that the
    broker was killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent watch").start()
