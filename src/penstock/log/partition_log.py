"""The log of one partition: ordered batches in segments, and the state that is derived from them.

Promises: offsets never change and are never reused; a batch is either completely in the log or not at all;
what `flush` has synced survives a crash. Everything but `flush` is called from the event loop's thread.
Segments and reading are in `segmented_log`, opening and recovery in `loading`, the validation of a client's
batches in `validate`.
"""

from __future__ import annotations

import bisect
import errno
import logging
import os
import random
import threading
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from penstock.clock import Clock
from penstock.config import LogConfig
from penstock.errors import (
    ApiError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from penstock.fs import Fs
from penstock.log.check import check_log
from penstock.log.delayed_delete import DelayedDeletes
from penstock.log.epochs import LeaderEpochCache
from penstock.log.producer_state import ProducerStateManager
from penstock.log.recovery.producer_rebuild import ProducerRebuild
from penstock.log.recovery.replay import marker_of
from penstock.log.retention import RetainedSegment, segments_to_delete
from penstock.log.segment import (
    CLEANED_SUFFIX,
    FILE_KINDS,
    SWAP_SUFFIX,
    Segment,
    file_name,
    rename_segments,
)
from penstock.log.segmented_log import SegmentedLog
from penstock.log.validate import Admitted, Allowance, admit
from penstock.wire.batches.records import BatchHeader, check_batch, stamp

_INT_MAX = (1 << 31) - 1
SEGMENTS_AT_ONCE = 8
"""How many segments are deleted in one iteration of the event loop: each has up to five files to rename."""
_TRANSIENT = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

logger = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False
    flush_required: bool = False  # flush.messages is reached: respond after `flush`


@dataclass(slots=True)
class _Flush:
    """A running flush: when it is done, everything before `end` is on disk."""

    end: int


class PartitionLog(SegmentedLog):
    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        clock: Clock,
        fs: Fs,
        rng: random.Random | None = None,
    ) -> None:
        epochs = LeaderEpochCache(os.path.join(directory, "leader-epoch-checkpoint"), fs)
        super().__init__(directory, topic, partition, clock, epochs)
        self.topic_id = topic_id
        self.config = config
        self.fs = fs
        self.high_watermark = 0
        self.recovery_point = 0
        self.last_flush_ms = clock.now_ms()
        self._flushes: list[_Flush] = []  # running
        self._flush_lock = threading.Lock()
        self._producers = ProducerStateManager(directory, fs)
        self._rebuild: ProducerRebuild | None = None  # after a truncation, until it is settled
        self._swapping: list[int] = []  # base offsets of segments whose `.swap` files are on disk
        self._directory_dirty = False  # files were removed that must not come back after a crash
        self.failed: OSError | None = None
        self.closed = False
        self.truncations = 0  # a rewrite that was planned before a truncation must not be swapped in
        self.delayed_deletes = DelayedDeletes(clock, fs)
        self._rng = rng or random.Random()
        self._jitter_ms = 0

    # content

    @property
    def producers(self) -> ProducerStateManager:
        """The producer state. Raises NotLeaderOrFollower while a truncation is not settled."""
        self._check_settled()
        return self._producers

    @property
    def verifying(self) -> ProducerStateManager:
        """The producer state for running verifications, which do not depend on the log and are always
        known."""
        return self._producers

    @property
    def is_settled(self) -> bool:
        """Whether the last truncation is settled, so that records may be appended again: see
        `producer_rebuild`. Settling may take long, so it never runs on the event loop."""
        return self._rebuild is None

    def _check_settled(self) -> None:
        if self._rebuild is not None:
            raise NotLeaderOrFollower(
                f"{self.topic}-{self.partition} is reloading producer state after truncation"
            )

    @property
    def last_stable_offset(self) -> int:
        """Not below the log start offset, even if an open transaction has begun before it: else consumers
        that begin at the end would be out of range."""
        if self._rebuild is not None:
            unstable: int | None = self._rebuild.stable_until
        else:
            unstable = self.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    # appending

    def append_as_leader(
        self,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        leader_epoch: int,
        *,
        origin: str = "client",
        allowance: Allowance | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Validate a batch, set its offset in place, and append it with one write.

        A coordinator's batch (`origin="coordinator"`) is trusted and may be a transaction marker; a batch of
        another broker (`origin="broker"`) is validated like a client's. A request with several batches has an
        allowance for the bytes that are decompressed to validate them.
        """
        if self.failed is not None:
            raise self._storage_error(self.failed)
        if origin != "coordinator":
            admitted = admit(buf, start, end, self.config, self.clock.now_ms(), allowance)
        else:
            admitted = Admitted(buf, start, end, check_batch(buf, start, end), -1)
        buf, start, end, header, append_time = admitted
        try:
            self._check_settled()
        except NotLeaderOrFollower as refusal:
            if origin != "coordinator":
                self._producers.refuse(header, refusal)
            raise
        marker = None
        if header.is_control:
            marker = marker_of(buf, start)
            self.producers.check_marker(header, marker[1])
        elif header.producer_id >= 0 and origin == "coordinator":
            self.producers.check_epoch(header)  # a coordinator's batch has no sequence
        elif header.producer_id >= 0:
            known = self.producers.find_duplicate(header)
            if known is not None:
                time = known.timestamp if append_time >= 0 else -1
                # The original may still wait for its flush, so the retry must wait too.
                flush = known.last_offset >= self.recovery_point and self.flush_required
                return AppendInfo(
                    known.base_offset, known.last_offset, time, self.log_start_offset, True, flush
                )
            self.producers.check(header, transaction_version if header.is_transactional else 0)
        base = self.log_end_offset
        stamp(buf, start, base, leader_epoch)
        header.base_offset = base
        header.leader_epoch = leader_epoch
        self._write(memoryview(buf)[start:end], header, marker)
        return AppendInfo(
            base,
            header.last_offset,
            append_time,
            self.log_start_offset,
            flush_required=self.flush_required,
        )

    def append_as_follower(self, buf: bytearray | memoryview, start: int, end: int) -> AppendInfo:
        """Append batches unchanged, with the offsets and leader epochs of the leader."""
        if self.failed is not None:
            raise self._storage_error(self.failed)
        self._check_settled()
        first, last = -1, -1
        while start < end:
            header = check_batch(buf, start, end, stored=True)
            if header.base_offset < self.log_end_offset and not self._begins_within(header):
                raise OffsetOutOfRange(
                    f"{self.topic}-{self.partition} ends at {self.log_end_offset},"
                    f" the leader sent {header.base_offset}"
                )
            marker = marker_of(buf, start) if header.is_control and header.count else None
            data = memoryview(buf)[start : start + header.size]
            if header.base_offset < self.log_end_offset:
                self._write_around_start(data, header, marker)
            else:
                self._write(data, header, marker)
            if marker is not None:
                self.producers.stop_verifying(header.producer_id, header.producer_epoch)
            first = header.base_offset if first < 0 else first
            last = header.last_offset
            start += header.size
        return AppendInfo(first, last, -1, self.log_start_offset, flush_required=self.flush_required)

    def _begins_within(self, header: BatchHeader) -> bool:
        """Whether the log is empty and its start offset is inside this batch: DeleteRecords has moved the
        leader's log start offset into the batch, and batches are sent completely."""
        return self.size == 0 and self.log_start_offset == self.log_end_offset <= header.last_offset

    def _write_around_start(
        self, data: memoryview, header: BatchHeader, marker: tuple[str, int] | None
    ) -> None:
        """Start the segment with the batch; the log start offset stays inside it."""
        start, high_watermark = self.log_start_offset, self.high_watermark
        self.truncate_fully_and_start_at(header.base_offset)
        self.settle()  # the log is empty, so this does not block
        self._write(data, header, marker)
        self.log_start_offset = start
        self.high_watermark = max(high_watermark, start)

    @property
    def flush_required(self) -> bool:
        """Whether flush.messages is reached: records that are not synced do not count as stored."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def reliable_end(self) -> int:
        """The end of what counts as stored: everything, or with flush.messages what is on disk."""
        return self.recovery_point if self.flush_required else self.log_end_offset

    def _write(self, data: memoryview, header: BatchHeader, marker: tuple[str, int] | None) -> None:
        last_offset = header.last_offset
        try:
            segment = self.segments[-1]
            if self._must_roll(segment, len(data), header, last_offset):
                segment = self.roll(header.base_offset)
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            segment.append(data, last_offset, header.max_timestamp)
        except OSError as error:
            if error.errno not in _TRANSIENT or segment.file.torn:
                self.failed = error
            refusal = self._storage_error(error)
            if not header.is_control:
                self._producers.refuse(header, refusal)
            raise refusal from error
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0:
            self._note_producer(segment, header, marker)

    def _note_producer(self, segment: Segment, header: BatchHeader, marker: tuple[str, int] | None) -> None:
        if marker is None:
            if not header.is_control:
                self.producers.apply(header)
            return
        aborted = self.producers.apply_marker(header, *marker)
        if aborted is not None:
            try:
                segment.txns.append(aborted)
            except (
                OSError
            ) as error:  # readers would get aborted records: stop writing; recovery rebuilds the index
                self.failed = error
                raise self._storage_error(error) from error

    def _must_roll(self, segment: Segment, size: int, header: BatchHeader, last_offset: int) -> bool:
        config = self.config
        if segment.file.size == 0:
            return last_offset - segment.base_offset > _INT_MAX
        if segment.file.size + size > config.segment_bytes or last_offset - segment.base_offset > _INT_MAX:
            return True
        # Index entries are written at intervals of bytes, so a small log cannot have filled the indexes.
        if segment.file.size >= config.segment_index_bytes // 12 * config.index_interval_bytes and (
            (segment.offsets.count + 1) * 8 > config.segment_index_bytes
            or (segment.times.count + 1) * 12 > config.segment_index_bytes
        ):
            return True
        first = segment.first_timestamp
        if first is not None and first >= 0 and header.max_timestamp >= 0:
            age = header.max_timestamp - first
        else:
            age = self.clock.now_ms() - segment.created_ms
        limit = config.segment_ms
        if "compact" in config.cleanup_policy:
            limit = min(limit, config.max_compaction_lag_ms)  # the active segment is never cleaned
        return age > limit - self._jitter_ms

    def roll(self, base_offset: int | None = None) -> Segment:
        """Start a new segment at the log end offset. The old one is complete and no longer changes."""
        old = self.segments[-1] if self.segments else None
        base = self.log_end_offset if base_offset is None else base_offset
        if old is not None and old.size == 0 and old.base_offset == base:
            return old
        if old is not None:
            old.seal()
            if self.is_settled:
                self._producers.take_snapshot(base)
        # Create the new file last: if a step before it fails, the old segment stays active.
        new = self._create_segment(base)
        self.segments.append(new)
        self._bases.append(base)
        self._remove_old_snapshots(base)
        return new

    def _create_segment(self, base: int) -> Segment:
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = self._rng.randrange(jitter) if jitter > 0 else 0
        return Segment.create(
            self.directory,
            base,
            self.fs,
            index_interval_bytes=self.config.index_interval_bytes,
            now_ms=self.clock.now_ms(),
            preallocate=self.config.segment_bytes if self.config.preallocate else 0,
        )

    def _remove_old_snapshots(self, newest: int) -> None:
        self._producers.remove_snapshots(keep={*self._bases, newest})

    def update_high_watermark(self, offset: int) -> bool:
        """Advance the high watermark. Returns whether it has changed."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._rebuild is None:
            self._producers.on_high_watermark(offset)
        return True

    # truncation and deletion

    def truncation_step(self, offset: int) -> int:
        """The next offset to truncate to, for a truncation to `offset` over several iterations of the event
        loop; `offset` itself once only few segments are left to remove."""
        bases = self._bases
        return offset if len(bases) <= SEGMENTS_AT_ONCE else max(offset, bases[-SEGMENTS_AT_ONCE])

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on. The log then ends with the last complete batch before it.

        The last segment is removed first, so that a crash in between leaves no gap in the log.
        """
        if offset >= self.log_end_offset:
            # An append that had no room may have left a leader epoch without records.
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        self.cancel_swap()
        stable_until = self._stable_after(offset)
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        keep = self._floor(offset) + 1
        for segment in reversed(self.segments[keep:]):
            self._delete_later(segment.mark_deleted())
        self.set_segments(self.segments[:keep])
        end = self.active.truncate_to(offset)
        self.log_end_offset = max(end, self.active.base_offset)
        self._after_truncation(stable_until)

    def _stable_after(self, offset: int) -> int:
        """The offset below which no transaction can be open after the truncation: the current last stable
        offset, unless the truncation removes replicated markers."""
        return self.last_stable_offset if offset >= self.high_watermark else self.log_start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.cancel_swap()
        # Create the new segment first: if that fails, because the disk is full, the log is unchanged. Also,
        # other threads read the log, so it must always have a segment.
        new = None if offset in self._bases else self._create_segment(offset)
        for segment in self.segments:
            self._delete_later(segment.mark_deleted())
        self.set_segments([self._create_segment(offset) if new is None else new])
        self.log_end_offset = self.log_start_offset = offset
        self._rebuild = None
        self._producers.clear()
        self._remove_old_snapshots(offset)
        self._after_truncation(offset)

    def _after_truncation(self, stable_until: int) -> None:
        end = self.log_end_offset
        self.truncations += 1
        with self._flush_lock:
            # A running flush does not cover records that replace the truncated ones.
            self.recovery_point = min(self.recovery_point, end)
            for flush in self._flushes:
                flush.end = min(flush.end, end)
        self.log_start_offset = min(self.log_start_offset, end)
        # A log that starts again at a higher offset is replicated up to that offset.
        self.high_watermark = max(min(self.high_watermark, end), self.log_start_offset)
        self._rebuild = ProducerRebuild(
            self._producers, self.segments, self.log_start_offset, end, end, stable_until=stable_until
        )
        self.epochs.truncate_from_end(end)  # if that fails, it is saved before the truncation is settled

    def producer_rebuild(self) -> ProducerRebuild | None:
        """The rebuild of the producer state after a truncation, if one is needed. Call its `run` in a thread
        and lower the checkpoints; then `take_producers`, on the event loop, settles the truncation."""
        return self._rebuild

    def take_producers(self, rebuild: ProducerRebuild) -> None:
        """Use the rebuilt producer state, unless the log was truncated again since."""
        if self._rebuild is rebuild:
            self._producers.take_over(rebuild.run())
            self._producers.on_high_watermark(self.high_watermark)
            self._rebuild = None

    def settle(self) -> None:
        """Rebuild the producer state now. Blocking: use it on the event loop only if there is little to
        read."""
        if self._rebuild is not None:
            self.take_producers(self._rebuild)

    def refuse(self, buf: bytearray | memoryview, start: int, end: int, error: ApiError) -> None:
        """Note that a batch was rejected and that its producer will retry it: see `ProducerStateManager`.
        Malformed batches are ignored."""
        try:
            header = check_batch(buf, start, end)
        except ApiError:
            return
        if not header.is_control:
            self._producers.refuse(header, error)

    def rebuild_producer_state(self, snapshot_at_most: int | None = None) -> None:
        """Rebuild the producer state when the log is opened.

        After a crash, snapshots past the recovery point are not trusted: `snapshot_at_most` limits the
        snapshot, and the log is read from there.
        """
        end = self.log_end_offset
        at_most = end if snapshot_at_most is None else min(snapshot_at_most, end)
        rebuild = ProducerRebuild(
            self._producers, self.segments, self.log_start_offset, end, at_most, mend=True
        )
        self._producers.take_over(rebuild.run())

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset`. Deletes a few of the segments below it now;
        `drop_below_start` deletes the others. Returns the new log start offset."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete up to {offset}: the high watermark of {self.topic}-{self.partition}"
                f" is {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self._move_start(offset)
            self.drop_below_start()
        return self.log_start_offset

    def _move_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self._producers.forget_before(offset)

    @property
    def segments_below_start(self) -> int:
        """How many segments are below the log start offset and are to be deleted. May run in a thread."""
        return max(bisect.bisect_right(self._bases, self.log_start_offset) - 1, 0)

    def drop_below_start(self) -> int:
        """Delete some of the segments below the log start offset. Returns how many."""
        return self._drop_segments(min(self.segments_below_start, SEGMENTS_AT_ONCE))

    def apply_retention(self, consumed_offset: int | None = None, most: int | None = None) -> int:
        """Delete segments by the retention settings of the topic, at most `most`: their files are renamed
        here. Returns how many were deleted."""
        if consumed_offset is not None and consumed_offset > self.log_start_offset:
            self._move_start(min(consumed_offset, self.high_watermark))
        count = self._deletable(self.clock.now_ms())
        return self._drop_segments(count if most is None else min(count, most))

    def _deletable(self, now_ms: int) -> int:
        ends = [*self._bases[1:], self.log_end_offset]
        facts = [
            RetainedSegment(segment.base_offset, end, segment.size, segment.largest_timestamp)
            for segment, end in zip(self.segments, ends, strict=True)
        ]
        return segments_to_delete(facts, self.config, now_ms, self.log_start_offset, self.high_watermark)

    def _drop_segments(self, count: int) -> int:
        if count == 0:
            return 0
        if count == len(self.segments):
            try:
                self.roll()  # the active segment is never deleted, so roll it first
            except OSError:
                if count == 1:
                    raise
                count -= 1  # without room for a new segment, the others make some
        gone, kept = self.segments[:count], self.segments[count:]
        # Move the log start offset first: a crash in between leaves files that the next pass deletes.
        if kept[0].base_offset > self.log_start_offset:
            self._move_start(kept[0].base_offset)
        self.set_segments(kept)
        for segment in gone:
            self._delete_later(segment.mark_deleted())
        self._remove_old_snapshots(self.log_end_offset)
        return count

    def begin_swap(self, base_offsets: list[int]) -> None:
        """Rename `.cleaned` files to `.swap`. After the directory is synced, `finish_swap` may follow, and if
        the broker crashes `loading` completes the swap. Nothing changes for readers yet."""
        self._swapping = base_offsets
        rename_segments(self.directory, base_offsets, CLEANED_SUFFIX, SWAP_SUFFIX, self.fs)

    def finish_swap(self, old: list[Segment]) -> None:
        """Remove the old segments and rename the `.swap` files to their final names. The caller must sync the
        directory afterwards."""
        bases, self._swapping = self._swapping, []
        gone = {segment.base_offset for segment in old}
        try:
            renamed = [path for segment in old for path in segment.mark_deleted()]
            rename_segments(self.directory, bases, SWAP_SUFFIX, "", self.fs)
            new = [self.open_segment(base) for base in bases]
        except OSError as error:
            self.failed = error  # the swap is half done: the next start completes it
            raise
        kept = [segment for segment in self.segments if segment.base_offset not in gone]
        self.set_segments(sorted([*kept, *new], key=lambda segment: segment.base_offset))
        self._delete_later(renamed)

    def cancel_swap(self) -> None:
        """The log has changed since the rewrite: delete the `.swap` files, so that they are not used after a
        crash."""
        bases, self._swapping = self._swapping, []
        for base in bases:
            for kind in FILE_KINDS:  # the log first: without it the next start deletes the indexes
                path = os.path.join(self.directory, file_name(base, kind) + SWAP_SUFFIX)
                if self.fs.exists(path):
                    self.fs.unlink(path)
                    self._directory_dirty = True

    def open_segment(self, base_offset: int) -> Segment:
        return Segment.open(
            self.directory, base_offset, self.fs, index_interval_bytes=self.config.index_interval_bytes
        )

    def _delete_later(self, paths: list[str]) -> None:
        # Strict retention is for legal requirements, so it deletes without delay. Readers keep their
        # descriptors.
        self.delayed_deletes.add(
            paths, 0 if self.config.retention_strict else self.config.file_delete_delay_ms
        )

    # maintenance

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def flush(self) -> None:
        """Sync everything appended before this call. Blocking; runs in a thread, concurrently with all else.

        After a failed sync the kernel may have dropped the pages, and the next sync would succeed without
        them. So no other sync is tried until the log is opened again and its content has been read from disk.
        """
        with self._flush_lock:
            if self.failed is not None:
                raise self._storage_error(self.failed)
            flush = _Flush(self.log_end_offset)
            if flush.end <= self.recovery_point:
                return
            self._flushes.append(flush)
        try:
            self._sync(list(self.segments), self.recovery_point)
        except OSError as error:
            self.failed = error
            raise self._storage_error(error) from error
        else:
            with self._flush_lock:
                if self.failed is not None:  # a concurrent flush has failed
                    raise self._storage_error(self.failed)
                self.recovery_point = max(self.recovery_point, flush.end)
            self.last_flush_ms = self.clock.now_ms()
        finally:
            with self._flush_lock:
                self._flushes.remove(flush)

    def _sync(self, segments: list[Segment], recovery_point: int) -> None:
        bases = [segment.base_offset for segment in segments]
        # Include the segment before: if it was active at the last sync, its indexes were not synced.
        unsynced = segments[max(bisect.bisect_left(bases, recovery_point) - 1, 0) :]
        for segment in unsynced:
            segment.sync(sealed=segment is not segments[-1])
        has_new_epochs = self.epochs.sync()
        if has_new_epochs or len(unsynced) > 1 or recovery_point == bases[-1] or self._directory_dirty:
            self._directory_dirty = False
            self.fs.fsync_dir(self.directory)

    def check(self, *, whole: bool = True) -> None:
        """Raise InvariantViolated unless memory and files are consistent. For tests: it reads all batch
        headers, or with `whole` false those at the end."""
        check_log(self, whole=whole)

    def close(self) -> None:
        """Close cleanly: complete the indexes, save the producer state, sync everything."""
        if self.failed is None and self.segments:
            self.settle()
            self.active.seal()
            self.producers.take_snapshot(self.log_end_offset)
            self._remove_old_snapshots(self.log_end_offset)
            self.epochs.save()
            self.flush()
            self.active.sync(sealed=True)
        for segment in self.segments:
            segment.close()
        self.closed = True
