"""The producer state of a partition: epochs, the last five batches, open transactions.

It decides whether a batch is next in sequence, a duplicate, or out of order (KIP-98, KIP-360), and determines
the last stable offset. Snapshots are in Kafka's `.snapshot` format.
"""

from __future__ import annotations

import contextlib
import os
import struct
import weakref
from collections import deque
from typing import NamedTuple

import crc32c

from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    PenstockError,
    TransactionCoordinatorFenced,
)
from penstock.fs import Fs
from penstock.log.index import AbortedTxn
from penstock.wire.batches.records import BatchHeader

REMEMBERED_BATCHES = 5
NO_EPOCH = -1
SNAPSHOT_SUFFIX = ".snapshot"
_MAX_SEQUENCE = 0x7FFFFFFF
_EPOCH_PER_TRANSACTION = 2
"""The transaction version from which on each transaction has an epoch of its own (KIP-890)."""

_MOST_REFUSED = 10_000

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class BatchMark(NamedTuple):
    """A remembered batch. `first_sequence` and the base offset follow from the delta."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + _MAX_SEQUENCE + 1

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.batches: deque[BatchMark] = deque(maxlen=REMEMBERED_BATCHES)
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class VerificationGuard:
    """Held while a transaction of this producer and epoch is being verified; the marker that ends the
    transaction revokes it."""

    __slots__ = ("__weakref__", "producer")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer = (producer_id, epoch)


class FirstSeen(NamedTuple):
    """The lowest sequence among the batches to verify, of a producer that this partition does not know."""

    epoch: int
    sequence: int
    time_ms: int


class RefusedBatch(NamedTuple):
    """A batch that was rejected with a retriable error, and will be retried."""

    epoch: int
    sequence: int
    error: ApiError


class SnapshotError(PenstockError):
    """A damaged producer snapshot."""


class ProducerStateManager:
    def __init__(self, directory: str, fs: Fs) -> None:
        self.directory = directory
        self._fs = fs
        self.producers: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}  # first offset of an open transaction -> producer id
        self._unreplicated: dict[
            int, int
        ] = {}  # first offset -> offset of the marker, above the high watermark
        self._guards: weakref.WeakValueDictionary[tuple[int, int], VerificationGuard] = (
            weakref.WeakValueDictionary()
        )
        self._first_seen: dict[int, FirstSeen] = {}
        self._refused: dict[int, RefusedBatch] = {}
        self._snapshots: set[int] | None = None  # the offsets of the snapshots on disk, once listed

    # checks

    def refuse(self, header: BatchHeader, error: ApiError) -> None:
        """Note that a batch was rejected and will be retried. Later batches of the producer may already be in
        flight: until the batch arrives they get the same error. With OUT_OF_ORDER_SEQUENCE_NUMBER some
        clients would start a new epoch, and send records again that other partitions already have; and for an
        unknown producer, a later batch would be accepted as the first. Batches of an older epoch are ignored,
        because that producer is fenced."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0 or sequence < 0:
            return
        entry, known = self.producers.get(producer_id), self._refused.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            return
        if known is None or epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            if known is None and len(self._refused) >= _MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
            self._refused[producer_id] = RefusedBatch(epoch, sequence, error)

    def find_duplicate(self, header: BatchHeader) -> BatchMark | None:
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for mark in entry.batches:
            if mark.last_sequence == last and mark.first_sequence == first:
                return mark
        return None

    def check(self, header: BatchHeader, transaction_version: int = 0) -> None:
        """Raise Kafka's error unless the batch is the next one of its producer. If an earlier batch was
        rejected (`refuse`), raise the error of that one."""
        if not self._refused:
            self._check(header, transaction_version)
            return
        refused = self._refused.get(header.producer_id)
        if refused is not None and (
            refused.epoch != header.producer_epoch or header.base_sequence <= refused.sequence
        ):
            refused = None
        try:
            self._check(header, transaction_version)
        except OutOfOrderSequenceNumber:
            if refused is not None:
                raise refused.error.with_traceback(None) from None
            raise
        if refused is not None and self._is_unknown(header.producer_id):
            raise refused.error.with_traceback(None)  # it would be accepted as the first batch

    def _check(self, header: BatchHeader, transaction_version: int) -> None:
        """With transaction version 2 each transaction has its own epoch, so its first batch must have
        sequence 0. Before that version, an unknown producer may start with any sequence, but not above that
        of a batch whose verification has failed, because the client retries that one (KIP-890).
        """
        first = header.base_sequence
        starts_at_0 = transaction_version >= _EPOCH_PER_TRANSACTION
        if self._is_unknown(header.producer_id):
            seen = self._first_seen.get(header.producer_id)
            if starts_at_0:
                highest = 0
            elif seen is not None and seen.epoch == header.producer_epoch:
                highest = seen.sequence
            else:
                highest = first
            if first > highest:
                raise OutOfOrderSequenceNumber(
                    f"producer {header.producer_id}: sequence {first} of a producer that is not known here,"
                    f" expected {highest}"
                )
            return  # unknown producer (its records may have been deleted): any sequence may start
        self.check_epoch(header)
        entry = self.producers[header.producer_id]
        if header.producer_epoch != entry.epoch:
            if first != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {header.producer_id}: sequence {first} in the new epoch"
                    f" {header.producer_epoch}, expected 0"
                )
            return
        last = entry.last_sequence
        expected = 0 if last in (-1, _MAX_SEQUENCE) else last + 1
        if first != expected:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id}: sequence {first} after {last}, expected {expected}"
            )

    def _is_unknown(self, producer_id: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is None or entry.epoch == NO_EPOCH

    def check_epoch(self, header: BatchHeader) -> None:
        entry = self.producers.get(header.producer_id)
        if entry is None or header.producer_epoch == entry.epoch:
            return
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch {header.producer_epoch}"
            )
        if entry.txn_first_offset is not None and header.is_transactional:
            # Otherwise the records of the last transaction would end together with this one.
            raise ConcurrentTransactions(
                f"producer {header.producer_id} has a transaction of epoch {entry.epoch} that has not ended"
            )

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"marker of producer {header.producer_id} has epoch {header.producer_epoch},"
                f" current is {entry.epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of coordinator epoch {coordinator_epoch},"
                f" the partition has seen {entry.coordinator_epoch}"
            )

    def has_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> bool:
        """Whether a marker would be a duplicate: the same one was appended, and no records since."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.txn_first_offset is None
            and entry.epoch == epoch
            and entry.coordinator_epoch >= coordinator_epoch
        )

    # verification

    def start_verifying(self, producer_id: int, epoch: int) -> VerificationGuard:
        """Called before the coordinator is asked whether the producer's transaction has this partition. The
        guard is valid as long as it is referenced."""
        guard = self._guards.get((producer_id, epoch))
        if guard is None:
            guard = self._guards[producer_id, epoch] = VerificationGuard(producer_id, epoch)
        return guard

    def note_sequence(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> None:
        """Note the sequence of a batch to verify: if it is rejected, no batch with a higher sequence may be
        the first one."""
        if producer_id in self.producers:
            return
        seen = self._first_seen.get(producer_id)
        if seen is None or (seen.epoch, -seen.sequence) < (epoch, -sequence):
            self._first_seen[producer_id] = FirstSeen(epoch, sequence, now_ms)

    def is_verifying(self, guard: VerificationGuard) -> bool:
        """Whether the guard is valid: no marker has ended the transaction here since."""
        return self._guards.get(guard.producer) is guard

    def stop_verifying(self, producer_id: int, epoch: int, transaction_version: int = 0) -> None:
        """A marker with this epoch was appended: revoke the guards of the transaction that it ends. With
        transaction version 2 that one has an earlier epoch. The epoch of the marker is that of the next
        transaction, which may already be waiting for this marker."""
        before = epoch if transaction_version >= _EPOCH_PER_TRANSACTION else epoch + 1
        for guarded in [one for one in self._guards if one[0] == producer_id and one[1] < before]:
            self._guards.pop(guarded, None)

    # state changes

    def apply(self, header: BatchHeader) -> None:
        """Apply a data batch of the log."""
        entry = self._entry(header.producer_id, header.producer_epoch)
        if self._refused:
            self._refused.pop(header.producer_id, None)
        if header.base_sequence >= 0:  # transactional offset commits, written by a coordinator, have none
            entry.batches.append(_mark(header))
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.txn_first_offset is None:
            entry.txn_first_offset = header.base_offset
            self.ongoing[header.base_offset] = header.producer_id

    def apply_marker(self, header: BatchHeader, kind: str, coordinator_epoch: int) -> AbortedTxn | None:
        """Apply a transaction marker. Returns the aborted transaction, if it aborted one."""
        entry = self._entry(header.producer_id, header.producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first = entry.txn_first_offset
        if first is None:
            return None
        entry.txn_first_offset = None
        del self.ongoing[first]
        self._unreplicated[first] = header.base_offset
        if kind != "abort":
            return None
        return AbortedTxn(
            header.producer_id, first, header.base_offset, self._stable_before(header.base_offset + 1)
        )

    def _entry(self, producer_id: int, epoch: int) -> ProducerEntry:
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
            self._first_seen.pop(producer_id, None)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        return entry

    def _stable_before(self, limit: int) -> int:
        return min(self.ongoing, default=limit)

    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or whose marker is not yet
        replicated."""
        candidates = [min(pending) for pending in (self.ongoing, self._unreplicated) if pending]
        return min(candidates) if candidates else None

    def on_high_watermark(self, high_watermark: int) -> None:
        if self._unreplicated:
            self._unreplicated = {f: last for f, last in self._unreplicated.items() if last >= high_watermark}

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        gone = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.txn_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        self._first_seen = {
            producer_id: seen
            for producer_id, seen in self._first_seen.items()
            if now_ms - seen.time_ms < expiration_ms
        }

    def forget_before(self, log_start_offset: int) -> None:
        """Records before that offset were deleted: forget transactions that ended there."""
        for first in [f for f in self._unreplicated if f < log_start_offset]:
            del self._unreplicated[first]

    def remember_earlier(self, header: BatchHeader) -> None:
        """Add an earlier batch that was read from the end of the log. A snapshot has only the last batch of a
        producer; with the earlier ones, duplicates of the last five batches are detected even after a
        restart."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or header.base_sequence < 0:
            return
        # Keyed by offset, because in a snapshot the last batch has the timestamp of the producer's last
        # marker.
        marks = {kept.last_offset: kept for kept in entry.batches} | {header.last_offset: _mark(header)}
        entry.batches = deque((marks[offset] for offset in sorted(marks)), maxlen=REMEMBERED_BATCHES)

    def empty(self) -> ProducerStateManager:
        """A new empty producer state for the same log."""
        return ProducerStateManager(self.directory, self._fs)

    def take_over(self, other: ProducerStateManager) -> None:
        """Take over the state that `other` has read from the log; running verifications continue."""
        self.producers, self.ongoing = other.producers, other.ongoing
        self._unreplicated = other._unreplicated
        self._snapshots = None  # `other` may have removed some

    def clear(self) -> None:
        self.producers.clear()
        self.ongoing.clear()
        self._unreplicated.clear()
        self._guards.clear()
        self._first_seen.clear()

    # snapshots

    def snapshot_path(self, offset: int) -> str:
        return os.path.join(self.directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")

    def snapshot_offsets(self) -> list[int]:
        return sorted(
            int(name[: -len(SNAPSHOT_SUFFIX)])
            for name in self._fs.listdir(self.directory)
            if name.endswith(SNAPSHOT_SUFFIX) and name[: -len(SNAPSHOT_SUFFIX)].isdigit()
        )

    def take_snapshot(self, offset: int) -> None:
        """Write a snapshot of the state as of `offset`. It is not synced; a damaged one is skipped when
        loading."""
        path = self.snapshot_path(offset)
        fd = self._fs.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self._fs.write_all(fd, render_snapshot(self.producers))
        finally:
            self._fs.close(fd)
        self._fs.rename(path + ".tmp", path)
        if self._snapshots is not None:
            self._snapshots.add(offset)

    def load_latest(self, at_most: int, at_least: int = 0) -> int | None:
        """Load the newest readable snapshot within the bounds; if it is damaged, an older one."""
        self.clear()
        self._snapshots = None
        for offset in reversed(self.snapshot_offsets()):
            path = self.snapshot_path(offset)
            if offset > at_most:
                self._fs.unlink(path)  # of records that were truncated
                continue
            if offset < at_least:
                return None
            try:
                self.producers = parse_snapshot(self._fs.read_bytes(path))
            except SnapshotError:
                self._fs.unlink(path)
                continue
            for producer_id, entry in self.producers.items():
                if entry.txn_first_offset is not None:
                    self.ongoing[entry.txn_first_offset] = producer_id
            return offset
        return None

    def remove_snapshots(self, keep: set[int]) -> None:
        """Remove all snapshots except those in `keep`. The directory is listed only once, because it may be
        large: it also has the files of deleted segments for a while."""
        if self._snapshots is None:
            self._snapshots = set(self.snapshot_offsets())
        for offset in sorted(self._snapshots - keep):
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(self.snapshot_path(offset))
            self._snapshots.discard(offset)


def _mark(header: BatchHeader) -> BatchMark:
    return BatchMark(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)


def render_snapshot(producers: dict[int, ProducerEntry]) -> bytes:
    body = bytearray(struct.pack(">i", len(producers)))
    for producer_id, entry in producers.items():
        last = entry.batches[-1] if entry.batches else BatchMark(-1, -1, 0, -1)
        first = -1 if entry.txn_first_offset is None else entry.txn_first_offset
        body += _SNAPSHOT_ENTRY.pack(
            producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            first,
        )
    return struct.pack(">hI", 1, crc32c.crc32c(bytes(body))) + bytes(body)


def parse_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise SnapshotError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise SnapshotError(f"snapshot version {version}, expected 1")
    if crc != crc32c.crc32c(data[6:]):
        raise SnapshotError("CRC does not match")
    if count < 0 or len(data) < _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise SnapshotError(f"{count} entries do not fit into {len(data)} bytes")
    producers: dict[int, ProducerEntry] = {}
    for i in range(count):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = (
            _SNAPSHOT_ENTRY.unpack_from(data, _SNAPSHOT_HEAD.size + i * _SNAPSHOT_ENTRY.size)
        )
        entry = producers[producer_id] = ProducerEntry(epoch)
        entry.coordinator_epoch, entry.last_timestamp = coordinator_epoch, timestamp
        entry.txn_first_offset = first if first >= 0 else None
        if offset >= 0:
            entry.batches.append(BatchMark(sequence, offset, delta, timestamp))
    return producers
