"""Opens a partition's log: quickly after a clean shutdown, with recovery after a crash.

Recovery reads only what is past the recovery point. A partial batch at the end is truncated, corrupt indexes
are rebuilt from their segment, and an interrupted swap of cleaned segments is completed.
"""

from __future__ import annotations

import base64
import logging
import os
import uuid

from penstock.clock import Clock
from penstock.config import LogConfig
from penstock.errors import PenstockError
from penstock.fs import REAL_FS, Fs
from penstock.log.partition_log import PartitionLog
from penstock.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, FILE_KINDS, SWAP_SUFFIX, file_name

PARTITION_METADATA = "partition.metadata"

logger = logging.getLogger(__name__)


class LogLoadError(PenstockError):
    """A partition directory that cannot be opened; the message says which file and why."""


def open_log(
    directory: str,
    topic: str,
    partition: int,
    topic_id: uuid.UUID,
    config: LogConfig,
    clock: Clock,
    fs: Fs = REAL_FS,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
) -> PartitionLog:
    """Open the log in `directory`, or create an empty one. `clean`: the last shutdown was clean.

    `high_watermark` is the last known one; it is limited to the end of the log, which may have lost records.
    """
    log = PartitionLog(directory, topic, partition, topic_id, config, clock, fs)
    fs.makedirs(directory)
    bases = _tidy(log)
    write_partition_metadata(directory, topic_id, fs)
    if not bases:
        log.log_start_offset = log.log_end_offset = log.recovery_point = log_start_offset
        log.high_watermark = log_start_offset
        log.epochs.truncate_from_end(log_start_offset)
        log.producers.remove_snapshots(keep=set())
        log.roll(log_start_offset)
        return log
    log.set_segments([log.open_segment(base) for base in bases])
    log.log_start_offset = max(log_start_offset, bases[0])
    log.recovery_point = recovery_point
    _recover(log, clean)
    log.recovery_point = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
    log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
    log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
    if log.epochs.damaged or (not log.epochs.entries and log.log_end_offset > log.log_start_offset):
        _rebuild_epochs(log)
    log.epochs.truncate_from_end(log.log_end_offset)
    for _, _, header in log.headers(log.recovery_point):
        log.epochs.assign(header.leader_epoch, header.base_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.rebuild_producer_state(None if clean else log.segment_base(log.recovery_point))
    log.producers.on_high_watermark(log.high_watermark)
    for segment in log.segments[:-1]:
        segment.file.close()  # reopened when it is read
    return log


def _base_of(name: str) -> int | None:
    return int(name[:20]) if len(name) > 20 and name[:20].isdigit() else None


def _tidy(log: PartitionLog) -> list[int]:
    """Remove left-over files and complete interrupted swaps. Returns the base offsets of the segments."""
    fs, directory = log.fs, log.directory
    names = fs.listdir(directory)
    swapped = sorted(_base_of(name) or 0 for name in names if name.endswith(".log" + SWAP_SUFFIX))
    for name in names:
        # an index in a swap that was not completed for its log: keep the old log and its index
        undecided = name.endswith(SWAP_SUFFIX) and _base_of(name) not in swapped
        if undecided or name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, ".tmp")):
            fs.unlink(os.path.join(directory, name))
    for base in swapped:
        _complete_swap(log, base)
    bases = set()
    for name in fs.listdir(directory):
        if name.endswith(".log"):
            segment_base = _base_of(name)
            if segment_base is None or len(name) != 24:
                logger.warning("%s: ignored, not a log segment", os.path.join(directory, name))
            else:
                bases.add(segment_base)
    for name in fs.listdir(directory):
        if name.endswith(FILE_KINDS[1:]) and _base_of(name) not in bases:
            fs.unlink(os.path.join(directory, name))  # an index without a log
    return sorted(bases)


def _complete_swap(log: PartitionLog, base: int) -> None:
    fs, directory = log.fs, log.directory
    for kind in FILE_KINDS[1:]:
        target = os.path.join(directory, file_name(base, kind))
        if fs.exists(target + SWAP_SUFFIX):
            fs.rename(target + SWAP_SUFFIX, target)
        elif kind != ".txnindex" and fs.exists(target):
            fs.unlink(target)  # may be the old index; it is rebuilt. (Old aborted transactions are harmless.)
    path = os.path.join(directory, file_name(base, ".log"))
    fs.rename(path + SWAP_SUFFIX, path)
    last = log.open_segment(base).last_header()
    covered = last.last_offset if last is not None else base
    for name in fs.listdir(directory):  # replaced segments that were not deleted yet
        old = _base_of(name)
        if old is not None and name.endswith(FILE_KINDS) and base < old <= covered:
            fs.unlink(os.path.join(directory, name))


def _recover(log: PartitionLog, clean: bool) -> None:
    _drop_empty_overlap(log)
    next_offset = log.segments[0].base_offset
    for i, segment in enumerate(log.segments):
        is_active = i == len(log.segments) - 1
        end = log.segments[i + 1].base_offset if not is_active else None
        if not clean and (end is None or end > log.recovery_point):
            next_offset, cut = segment.recover(log.recovery_point)
            if cut:
                logger.warning("%s: truncated %d bytes after the last complete batch", segment.file.path, cut)
                _drop_from(log, i + 1)
                break
            if end is not None and next_offset < end and not _may_have_gaps(log):
                # The end of the file was not on disk, and by chance it ends with a whole batch.
                logger.warning(
                    "%s: ends before offset %d, and the next segment begins at %d",
                    segment.file.path,
                    next_offset,
                    end,
                )
                _drop_from(log, i + 1)
                break
        else:
            if not segment.indexes_are_sane():
                _, unreadable = segment.rebuild_indexes()
                logger.warning("%s: rebuilt the indexes", segment.file.path)
                if unreadable and not is_active:
                    logger.error(
                        "%s: the last %d bytes are not record batches; run penstock log verify",
                        segment.file.path,
                        unreadable,
                    )
            if is_active:
                cut = segment.cut_tail()
                if cut:
                    logger.warning(
                        "%s: truncated %d bytes after the last complete batch", segment.file.path, cut
                    )
                next_offset = segment.load_tail()
    log.log_end_offset = max(next_offset, log.segments[-1].base_offset)


def _may_have_gaps(log: PartitionLog) -> bool:
    """Whether segments may have been rewritten without their last records."""
    return "compact" in log.config.cleanup_policy or log.config.retention_strict


def _drop_empty_overlap(log: PartitionLog) -> None:
    """Removes an empty segment that starts inside the one before it: it is left over from a failed roll."""
    while len(log.segments) > 1 and log.segments[-1].size == 0:
        last = log.segments[-2].last_header()
        if last is None or last.last_offset < log.segments[-1].base_offset:
            return
        logger.warning(
            "%s: deleted this empty segment; the segment before it ends after its base offset",
            log.active.file.path,
        )
        log.active.mark_deleted()
        log.set_segments(log.segments[:-1])


def _drop_from(log: PartitionLog, count: int) -> None:
    """Removes the segments after one that lost its end, because there would be a gap that readers cannot
    detect."""
    for segment in log.segments[count:]:
        logger.warning("%s: deleted, because the segment before it lost its end", segment.file.path)
        segment.mark_deleted()
    log.set_segments(log.segments[:count])


def _rebuild_epochs(log: PartitionLog) -> None:
    log.epochs.clear()
    log.epochs.damaged = False
    for _, _, header in log.headers(log.log_start_offset):
        log.epochs.assign(header.leader_epoch, max(header.base_offset, log.log_start_offset))


def write_partition_metadata(directory: str, topic_id: uuid.UUID, fs: Fs) -> None:
    path = os.path.join(directory, PARTITION_METADATA)
    if read_partition_metadata(directory, fs) != topic_id:
        text = f"version: 0\ntopic_id: {encode_id(topic_id)}\n"
        fs.write_atomic(path, text.encode("ascii"))


def read_partition_metadata(directory: str, fs: Fs) -> uuid.UUID | None:
    """The topic id of a partition; None if the file is missing or malformed."""
    path = os.path.join(directory, PARTITION_METADATA)
    if not fs.exists(path):
        return None
    for line in fs.read_bytes(path).decode("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            try:
                return decode_id(value.strip())
            except ValueError:
                break
    logger.warning("%s: has no topic id; rewriting it", path)
    return None


def encode_id(value: uuid.UUID) -> str:
    """Kafka's text form of an id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def decode_id(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
