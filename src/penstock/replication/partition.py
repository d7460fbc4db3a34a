"""One replica of a partition on this broker: checks who may append and read up to which offset, and notifies
waiting operations.

The log stores the records. The partition knows its leader, leader epoch and replicas, and advances the high
watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.errors import (
    FencedLeaderEpoch,
    InvalidTopicException,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from penstock.log.files import FileSlice
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.replication.check import check_partition
from penstock.replication.progress import Progress, has_caught_up, lagging
from penstock.replication.selector import Candidate, preferred_replica
from penstock.replication.traffic import Traffic
from penstock.wire.fetch import FetchPartition, FetchPartitionResult

if TYPE_CHECKING:
    from penstock.log.partition_log import AppendInfo, PartitionLog
    from penstock.log.validate import Allowance
    from penstock.metadata.image import PartitionImage

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1
"""The replica id of a reader that is not a replica."""


def high_watermark(isr: Iterable[int], log_end_offsets: Mapping[int, int]) -> int:
    """The lowest log end offset of the in-sync replicas; a replica that has not fetched yet counts as
    empty."""
    return min([log_end_offsets.get(replica, 0) for replica in isr], default=0)


class Partition:
    """`asked_isr` is the last ISR requested from the controller that has no response yet. `pending_isr` has
    every replica of an ISR that may have been stored since the image was made: more than `asked_isr` if a
    response was lost (`is_unsure`). `epoch_start` is the log end offset at the beginning of the leader epoch;
    `broken_ms` is when a write to the log last failed."""

    __slots__ = (
        "_alone", "_broker_id", "_flush", "_now_ms", "_on_change", "asked_isr", "broken_ms", "epoch_start",
        "image", "is_internal", "is_unsure", "key", "log", "pending_isr", "progress", "traffic",
    )  # fmt: skip

    def __init__(
        self,
        image: PartitionImage,
        log: PartitionLog,
        broker_id: int,
        on_change: Callable[[tuple[str, int]], None],
        now_ms: Callable[[], int] = lambda: 0,
        traffic: Traffic | None = None,
        flush: Callable[[Partition], object] | None = None,
    ) -> None:
        """`flush` starts a sync of the log, and `flushed` is called at its end. Without it, nothing waits for
        flush.messages."""
        self.traffic = Traffic() if traffic is None else traffic
        self.image = image
        self.log = log
        self.key = (log.topic, log.partition)
        self.is_internal = log.topic in INTERNAL_TOPICS
        self._broker_id = broker_id
        self._on_change = on_change
        self._now_ms = now_ms
        self._flush = flush
        self.progress: dict[int, Progress] = {}
        self.pending_isr: tuple[int, ...] | None = None
        self.asked_isr: tuple[int, ...] = ()
        self.is_unsure = False
        self.broken_ms: int | None = None
        self.epoch_start = log.log_end_offset
        self._alone = image.isr == (broker_id,) and image.leader == broker_id
        self._take_over(image)
        self._advance()

    @property
    def is_leader(self) -> bool:
        return self.image.leader == self._broker_id

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is smaller than `min.insync.replicas` (or than the number of replicas, if that is
        lower). While it is, the high watermark does not advance (KIP-966)."""
        image = self.image
        return len(image.isr) < min(self.log.config.min_insync_replicas, len(image.replicas))

    def update(self, image: PartitionImage) -> None:
        """Apply a new image of this partition, as the controller has decided it."""
        new_epoch = image.leader_epoch != self.image.leader_epoch
        if image.partition_epoch != self.image.partition_epoch:
            # A requested ISR is either stored and in this image, or can no longer be stored: its epoch is
            # stale.
            self.pending_isr, self.is_unsure = None, False
        if self.is_leader and not new_epoch:
            self.traffic.isr_shrinks += len(image.isr) < len(self.image.isr)
            self.traffic.isr_expands += len(image.isr) > len(self.image.isr)
        self.image = image
        self._alone = image.isr == (self._broker_id,) and image.leader == self._broker_id
        if new_epoch:
            self.epoch_start = self.log.log_end_offset
            self._take_over(image)
        self._advance()

    def _take_over(self, image: PartitionImage) -> None:
        """Followers get replica.lag.time.max.ms to catch up with a new leader before they leave the ISR."""
        now = self._now_ms()
        self.progress = {
            replica: Progress(caught_up_ms=now)
            for replica in image.replicas
            if replica != self._broker_id and image.leader == self._broker_id
        }
        self.flush_if_required()

    def check_leader(self, current_leader_epoch: int = -1, *, or_follower: bool = False) -> None:
        """Fence a client whose leader epoch is older or newer than ours (KIP-320); -1 means that it has
        none."""
        epoch = self.image.leader_epoch
        if current_leader_epoch >= 0 and current_leader_epoch != epoch:
            if current_leader_epoch < epoch:
                raise FencedLeaderEpoch(f"the leader epoch is {epoch}, not {current_leader_epoch}")
            raise UnknownLeaderEpoch(
                f"the leader epoch on this broker is {epoch}, not yet {current_leader_epoch}"
            )
        if self.image.leader != self._broker_id and not or_follower:
            raise NotLeaderOrFollower()

    # -- writing

    def append(
        self,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        acks: int,
        *,
        origin: str = "client",
        allowance: Allowance | None = None,
        transaction_version: int = 0,
        announce: bool = True,
    ) -> AppendInfo:
        """With `announce` false, the caller wakes the operations that wait for the partition later."""
        image, log = self.image, self.log
        if image.leader != self._broker_id:
            raise NotLeaderOrFollower()
        if self.is_internal and origin == "client":
            # A coordinator would replay records of others when it loads the partition.
            raise InvalidTopicException(f"{log.topic} is written by brokers only")
        if acks == -1 and len(image.isr) < log.config.min_insync_replicas:
            needed = log.config.min_insync_replicas
            refusal = NotEnoughReplicas(
                f"{len(image.isr)} replicas are in sync, min.insync.replicas is {needed}"
            )
            log.refuse(buf, start, end, refusal)
            raise refusal
        try:
            info = log.append_as_leader(
                buf,
                start,
                end,
                image.leader_epoch,
                origin=origin,
                allowance=allowance,
                transaction_version=transaction_version,
            )
        except KafkaStorageError:
            self.broken_ms = self._now_ms()
            raise
        if not info.duplicate:
            traffic = self.traffic
            traffic.bytes_in += end - start
            traffic.messages_in += info.last_offset - info.base_offset + 1
        if info.flush_required:
            self.flush_if_required()
        if self._alone and self.pending_isr is None and not info.flush_required and not self.is_under_min_isr:
            log.update_high_watermark(info.last_offset + 1)
        else:
            self._advance()
        if announce:
            self._on_change(self.key)
        return info

    def is_replicated(self, last_offset: int) -> bool:
        """Whether all in-sync replicas have the record at this offset, and there are at least
        `min.insync.replicas` of them: what acks=all promises."""
        return self.log.high_watermark > last_offset

    def flush_if_required(self) -> None:
        if self._flush is not None and self.is_leader and self.log.flush_required:
            self._flush(self)

    def configured(self) -> None:
        """The settings of the topic have changed."""
        self.flush_if_required()
        self._advance_and_announce()

    def flushed(self) -> None:
        """A sync of the log has ended."""
        self._advance_and_announce()

    def _advance_and_announce(self) -> None:
        before = self.log.high_watermark
        self._advance()
        if self.log.high_watermark != before:
            self._on_change(self.key)

    def _advance(self) -> None:
        """Advance the high watermark to what all in-sync replicas have, unless there are fewer than
        min.insync.replicas; it never goes back. With flush.messages only records on the leader's disk count,
        and followers report their log end offset the same way.

        A replica that is about to join the ISR already counts: the controller may have stored the new ISR
        before we know it, and may then elect that replica.
        """
        if self.is_under_min_isr:
            return
        log = self.log
        own_end = log.log_end_offset if self._flush is None else log.reliable_end
        if self._alone and not self.pending_isr:
            log.update_high_watermark(own_end)
        elif self.image.leader == self._broker_id:
            isr: Collection[int] = self.image.isr
            if self.pending_isr:
                isr = {*isr, *self.pending_isr}
            progress = self.progress
            ends = {replica: progress[replica].log_end_offset for replica in isr if replica in progress}
            ends[self._broker_id] = own_end
            log.update_high_watermark(high_watermark(isr, ends))

    # -- reading

    def upper_bound(self, isolation_level: int, replica_id: int = CONSUMER) -> int:
        """The offset up to which (exclusive) this reader may read."""
        if replica_id >= 0:
            return self.log.log_end_offset
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def check_end_is_known(self, isolation_level: int = READ_UNCOMMITTED) -> None:
        """Raise OffsetNotAvailable while a new leader does not know how far consumers may read (KIP-207).

        The former leader's high watermark may have been as high as the log end offset at the beginning of
        this leader epoch. Until the followers have all that, the high watermark here may be lower. The same
        holds for the last stable offset after a truncation, until the open transactions are known.
        """
        log = self.log
        if self.image.leader != self._broker_id:
            return
        if isolation_level == READ_COMMITTED and not log.is_settled:
            raise OffsetNotAvailable(f"{log.topic}-{log.partition} is reloading producer state")
        if log.high_watermark < self.epoch_start:
            raise OffsetNotAvailable(
                f"the high watermark of {log.topic}-{log.partition} is {log.high_watermark}, before the start"
                f" {self.epoch_start} of leader epoch {self.image.leader_epoch}"
            )

    def check_fetch(self, wanted: FetchPartition, replica_id: int, *, at_follower: bool = False) -> None:
        """Raise an error unless this reader may fetch here, and from this offset. With `at_follower` it may
        fetch even if this broker is a follower (KIP-392)."""
        self.check_leader(wanted.current_leader_epoch, or_follower=at_follower)
        if replica_id >= 0 and replica_id not in self.image.replicas:
            raise NotLeaderOrFollower(f"broker {replica_id} is not a replica of this partition")
        log = self.log
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {wanted.fetch_offset} is not within {log.log_start_offset}..{log.log_end_offset}"
            )

    def readable(self, wanted: FetchPartition, isolation_level: int, replica_id: int) -> bool:
        return self.upper_bound(isolation_level, replica_id) > wanted.fetch_offset

    def slices(
        self, wanted: FetchPartition, max_bytes: int, min_one: bool, isolation_level: int, replica_id: int
    ) -> list[FileSlice]:
        bound = self.upper_bound(isolation_level, replica_id)
        if bound <= wanted.fetch_offset:
            return []
        return self.log.read(wanted.fetch_offset, min(max_bytes, wanted.max_bytes), bound, min_one=min_one)

    def fetch(
        self,
        wanted: FetchPartition,
        max_bytes: int,
        min_one: bool,
        isolation_level: int,
        replica_id: int,
        replica_epoch: int = -1,
        *,
        at_follower: bool = False,
    ) -> FetchPartitionResult:
        """Records from `wanted.fetch_offset` on. With `min_one`, a first batch larger than any limit is
        returned whole, so that a reader can get past it (KIP-74)."""
        log = self.log
        # Records past the end of a follower are no divergence: the reader has them from the leader.
        diverging = self.diverging_epoch(wanted) if self.is_leader or not at_follower else None
        if diverging is not None:
            self.check_leader(wanted.current_leader_epoch)
            return FetchPartitionResult(
                wanted.partition,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging_epoch=diverging,
            )
        self.check_fetch(wanted, replica_id, at_follower=at_follower)
        if replica_id >= 0:
            self.follower_fetched(replica_id, wanted.fetch_offset, wanted.log_start_offset, replica_epoch)
        slices: list[FileSlice] = []
        if max_bytes > 0 or min_one:
            slices = self.slices(wanted, max_bytes, min_one, isolation_level, replica_id)
        aborted: list[tuple[int, int]] | None = None
        if isolation_level == READ_COMMITTED and replica_id < 0:
            aborted = self._aborted(wanted.fetch_offset, slices) if slices else []
        return FetchPartitionResult(
            wanted.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted,
            -1,
            slices,
        )

    def _aborted(self, offset: int, slices: list[FileSlice]) -> list[tuple[int, int]]:
        """The aborted transactions within the slices. All slices are in one segment, so the search ends
        there."""
        end = self.log.last_stable_offset
        for segment in reversed(self.log.segments):
            if segment.file is slices[-1].file:
                break
            end = min(end, segment.base_offset)
        found = self.log.aborted_transactions(offset, end)
        return [(transaction.producer_id, transaction.first_offset) for transaction in found]

    def preferred_replica(
        self, wanted: FetchPartition, rack: str, racks: Mapping[int, str | None]
    ) -> FetchPartitionResult | None:
        """The result that sends a consumer to a follower in its rack; None if it should read here.

        `racks` has the rack of each registered broker.
        """
        image, log = self.image, self.log
        if image.leader != self._broker_id:
            return None
        followers = (
            Candidate(replica, racks[replica], one.log_start_offset, one.log_end_offset)
            for replica, one in self.progress.items()
            if replica in image.isr and replica in racks
        )
        found = preferred_replica(rack, wanted.fetch_offset, racks.get(self._broker_id), followers)
        if found is None:
            return None
        self.check_fetch(wanted, CONSUMER)
        return FetchPartitionResult(
            wanted.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            preferred_read_replica=found,
        )

    def diverging_epoch(self, wanted: FetchPartition) -> tuple[int, int] | None:
        """The leader epoch and offset at which the reader's log diverges from ours (KIP-595); None if it does
        not."""
        if wanted.last_fetched_epoch < 0:
            return None
        log = self.log
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if log.latest_epoch < wanted.last_fetched_epoch <= self.image.leader_epoch:
            # This log has no records of that epoch or a later one, so the epoch ends at our log end offset.
            epoch, end_offset = log.latest_epoch, log.log_end_offset
            if epoch < 0:
                epoch = wanted.last_fetched_epoch
        if epoch < 0 or end_offset < 0:
            raise OffsetOutOfRange(f"leader epoch {wanted.last_fetched_epoch} is unknown to this broker")
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            return epoch, end_offset
        return None

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The last leader epoch not above `epoch` and its end offset; (-1, -1) if there is none."""
        if epoch == self.image.leader_epoch:
            # The log does not know the current epoch before its first record.
            return epoch, self.log.log_end_offset
        found, end_offset = self.log.end_offset_for_epoch(epoch)
        return found, end_offset

    def follower_fetched(
        self, replica_id: int, offset: int, log_start_offset: int = -1, broker_epoch: int = -1
    ) -> None:
        """A follower that fetches from an offset has all records before it."""
        progress = self.progress.get(replica_id)
        if progress is None:
            progress = self.progress[replica_id] = Progress(caught_up_ms=self._now_ms())
        progress.fetched(offset, self.log.log_end_offset, self._now_ms())
        before = self.log.high_watermark, progress.log_start_offset
        progress.log_start_offset = log_start_offset
        progress.broker_epoch = broker_epoch
        self._advance()
        if (self.log.high_watermark, log_start_offset) != before:
            self._on_change(self.key)

    def is_all(self, wanted: FetchPartition, replica_id: int) -> bool:
        """Whether a follower that sends this fetch has all records of this leader, so that there is nothing
        to send."""
        log, image = self.log, self.image
        return (
            wanted.fetch_offset == log.log_end_offset
            and wanted.last_fetched_epoch == log.latest_epoch
            and wanted.current_leader_epoch == image.leader_epoch
            and image.leader == self._broker_id
            and replica_id in image.replicas
        )

    def is_at_end(self, replica_id: int, offset: int) -> bool:
        """Whether a follower that fetches from `offset` is in sync and at the end of the log."""
        image = self.image
        return (
            offset == self.log.log_end_offset
            and image.leader == self._broker_id
            and replica_id in image.isr
            and self.pending_isr is None
        )

    def follower_rested(self, replica_id: int, until_ms: int) -> None:
        """Record that a follower at the end of the log kept fetching until then. Its fetches were not counted
        one by one, because its fetch session let the partition rest."""
        progress = self.progress.get(replica_id)
        if progress is not None and until_ms > progress.fetched_ms and progress.log_end_offset >= 0:
            progress.fetched(progress.log_end_offset, progress.log_end_offset, until_ms)

    def announce(self) -> None:
        """Wake waiting operations: the ISR has changed and the high watermark may have advanced, or records
        were appended."""
        self._on_change(self.key)

    # -- following

    def follow(self, high_watermark: int, log_start_offset: int) -> None:
        """Apply the high watermark and the log start offset that the leader has reported."""
        log = self.log
        moved = log.update_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.delete_records_before(min(log_start_offset, log.high_watermark))
        if moved:
            self._on_change(self.key)

    # -- who is in sync

    def wanted_isr(self, max_lag_ms: int, live: Collection[int]) -> tuple[int, ...] | None:
        """The ISR to request from the controller, in the order of the replica list; None if it need not
        change."""
        image, log = self.image, self.log
        if image.leader != self._broker_id or (self.pending_isr is not None and not self.is_unsure):
            return None
        if self._broker_id not in image.replicas or self._broker_id not in image.isr:
            return None  # only a part of a change has arrived: this broker is no longer the leader
        late = lagging(
            image.isr, self._broker_id, self.progress, log.log_end_offset, self._now_ms(), max_lag_ms
        )
        joining = [
            replica
            for replica, one in self.progress.items()
            if replica not in image.isr
            and replica in image.replicas
            and replica in live
            and has_caught_up(one, log.high_watermark, self.epoch_start)
        ]
        if not late and not joining:
            # No change is needed. But if a response was lost, storing the same ISR again makes sure that the
            # lost request can no longer take effect.
            return image.isr if self.is_unsure else None
        return tuple(
            replica
            for replica in image.replicas
            if (replica in image.isr and replica not in late) or replica in joining
        )

    def may_join(self, replica_id: int) -> bool:
        """Whether a follower that has just fetched has caught up and is not in the ISR yet."""
        image = self.image
        one = self.progress.get(replica_id)
        return (
            one is not None
            and self.pending_isr is None
            and replica_id not in image.isr
            and has_caught_up(one, self.log.high_watermark, self.epoch_start)
        )

    def ask_for_isr(self, isr: tuple[int, ...]) -> None:
        self.asked_isr = isr
        self.pending_isr = tuple({*isr, *(self.pending_isr or ())}) if self.is_unsure else isr

    def isr_refused(self) -> None:
        """The controller has rejected the requested ISR; it may be requested again."""
        if not self.is_unsure:
            self.pending_isr = None
            self._advance_and_announce()  # the high watermark need not wait for the rejected replica

    def isr_unanswered(self) -> None:
        """The response was lost, so the requested ISR may be stored. It counts until the partition has a new
        epoch: the controller may elect a replica that it has added."""
        if self.pending_isr is not None:
            self.is_unsure = True

    # -- truncation from the start

    def delete_records_before(self, offset: int) -> int:
        """Deletes the records before `offset` (-1: before the high watermark) on this replica. Returns the
        offset."""
        self.check_leader()
        if "delete" not in self.log.config.cleanup_policy:
            raise PolicyViolation("records can be deleted only where cleanup.policy has delete")
        end = self.log.high_watermark
        if offset == -1:
            offset = end
        if not 0 <= offset <= end:
            raise OffsetOutOfRange(f"offset {offset} is not within 0..{end}")
        self.log.delete_records_before(offset)
        return offset

    def low_watermark(self, live: Collection[int]) -> int:
        """The lowest log start offset of this replica and of those on live brokers, as they have reported it;
        -1 while one of them has reported none."""
        starts = [self.log.log_start_offset]
        for replica in self.image.replicas:
            if replica != self._broker_id and replica in live:
                one = self.progress.get(replica)
                starts.append(-1 if one is None else one.log_start_offset)
        return min(starts)

    # -- for tests

    def check(self, *, whole_image: bool = True) -> None:
        """Raise InvariantViolated unless all invariants hold."""
        check_partition(self, whole_image=whole_image)
