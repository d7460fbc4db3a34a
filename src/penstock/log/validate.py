"""Validation of a client's batch by the leader, and the two settings of a topic that change a batch.

A batch is normally stored unchanged. Only `message.timestamp.type=LogAppendTime` (three header fields) and a
`compression.type` other than that of the producer (the only case of re-encoding) change it. How much a
request may have decompressed only to count records is limited: see `Allowance`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.config import LogConfig
from penstock.errors import ApiError, InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
from penstock.wire.batches import compression
from penstock.wire.batches.records import (
    CODEC_MASK,
    MAX_PRODUCED_BYTES,
    BatchHeader,
    Record,
    build_batch,
    check_batch,
    check_compressed,
    iter_records,
    read_header,
    set_log_append_time,
)

_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


# Validating a record takes about as much time as this many bytes.
_RECORD_COST = 64


class Allowance:
    """Limits how much of a request's compressed batches is decompressed to validate their record counts.

    A few kilobytes can decompress to many megabytes, and decompression blocks the event loop. When the
    allowance is spent, further batches of the request are accepted by their headers: a wrong count harms only
    the readers of that topic, but a blocked event loop harms all clients. Checks that settings of the topic
    require (keys, timestamps, another compression) are always made.
    """

    __slots__ = ("left",)

    def __init__(self, left: int = MAX_PRODUCED_BYTES) -> None:
        self.left = left

    def spend(self, unpacked: int, records: int) -> None:
        self.left -= max(unpacked, records * _RECORD_COST)


class Admitted(NamedTuple):
    buf: bytearray | memoryview
    start: int
    end: int
    header: BatchHeader
    log_append_time: int  # -1 if the timestamps of the producer are kept


def admit(
    buf: bytearray | memoryview,
    start: int,
    end: int,
    config: LogConfig,
    now_ms: int,
    allowance: Allowance | None = None,
) -> Admitted:
    """Validate a client's batch by the settings of its topic. Raises the error for the client.

    Without an allowance the batch is the only one of its request, and is decompressed if necessary.
    """
    size = end - start
    if size > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}")
    header = check_batch(buf, start, end)
    if header.size != size:
        raise InvalidRecord("a produce request carries exactly one batch for each partition")
    if header.attributes & ~CODEC_MASK:
        _check_flags(header)
    if header.producer_id < -1:
        raise InvalidRecord(f"{header.producer_id} is not a producer id")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(f"producer {header.producer_id} sent a batch without a sequence or an epoch")
    compact = "compact" in config.cleanup_policy
    if header.codec and (compact or allowance is None or allowance.left > 0):
        unpacked = check_compressed(buf, start, header)
        if allowance is not None:
            allowance.spend(unpacked, header.count)
    if compact and header.keyless:
        _refuse(
            InvalidRecord("a compacted topic needs a key in every record"),
            [(r.offset_delta, "no key") for r in _records(buf, start) if r.key is None],
        )

    codec = header.codec if config.compression_type == "producer" else _CODECS[config.compression_type]
    if codec != header.codec:
        buf = bytearray(_recompress(buf, start, header, codec, config))
        start, end = 0, len(buf)
        header = read_header(buf, 0)
        if end > config.max_message_bytes:
            raise MessageTooLarge(
                f"compressed as {config.compression_type} the batch has {end} bytes,"
                f" above max.message.bytes={config.max_message_bytes}"
            )
    if end - start > config.segment_bytes:
        raise RecordListTooLarge(
            f"a batch of {end - start} bytes is above segment.bytes={config.segment_bytes}"
        )

    if config.message_timestamp_type == "LogAppendTime":
        set_log_append_time(buf, start, now_ms)
        header.max_timestamp = now_ms
        return Admitted(buf, start, end, header, now_ms)
    _check_timestamps(buf, start, header, config, now_ms)
    return Admitted(buf, start, end, header, -1)


def _records(buf: bytearray | memoryview, start: int) -> Iterator[Record]:
    return iter_records(buf, start, max_bytes=MAX_PRODUCED_BYTES)


def _check_flags(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecord("clients may not write control batches")
    if header.has_delete_horizon:
        raise InvalidRecord("the delete horizon is for the log cleaner to set")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord("a transactional batch needs a producer id")
    if header.is_log_append_time:
        raise InvalidTimestamp("LogAppendTime is for the broker to set")


def _check_timestamps(
    buf: bytearray | memoryview, start: int, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    header_is_wrong = header.max_timestamp > latest or header.max_timestamp < -1
    # The header alone is not enough: a record may have a larger timestamp than it says.
    if not header_is_wrong and earliest <= 0 and header.base_timestamp + header.largest_delta <= latest:
        return
    # The header does not show the smallest timestamp, nor which record is too new.
    error = InvalidTimestamp(
        f"timestamps must be within {max(earliest, 0)} and {latest}:"
        " message.timestamp.before.max.ms and message.timestamp.after.max.ms around the broker's time"
    )
    _refuse(
        error,
        [
            (record.offset_delta, f"timestamp {record.timestamp}")
            for record in _records(buf, start)
            if record.timestamp > latest or record.timestamp < -1 or -1 < record.timestamp < earliest
        ],
    )
    if header_is_wrong:
        raise error


def _refuse(error: ApiError, records: list[tuple[int, str]]) -> None:
    """Reject the batch if any of its records is invalid, and return which (KIP-467)."""
    if records:
        error.record_errors = tuple(records)
        raise error


def _recompress(
    buf: bytearray | memoryview, start: int, header: BatchHeader, codec: int, config: LogConfig
) -> bytes:
    level = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }.get(codec)
    return build_batch(
        _records(buf, start),
        codec=codec,
        level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
    )
