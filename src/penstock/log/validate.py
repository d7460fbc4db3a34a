"""What the leader demands of a batch from a client, and the two changes a topic may ask for.

A batch passes with its bytes untouched. Only `message.timestamp.type=LogAppendTime` (three header fields)
and a `compression.type` other than the producer's (the one case of re-encoding) change it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config import LogConfig
from penstock.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
from penstock.wire import compression
from penstock.wire.records import (
    CODEC_MASK,
    BatchHeader,
    build_batch,
    check_batch,
    check_compressed,
    iter_records,
    read_header,
    set_log_append_time,
)

_LONG_MAX = (1 << 63) - 1
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Admitted(NamedTuple):
    buf: bytearray | memoryview
    start: int
    end: int
    header: BatchHeader
    log_append_time: int  # -1 where the producer's own times hold


def admit(buf: bytearray | memoryview, start: int, end: int, config: LogConfig, now_ms: int) -> Admitted:
    """Check a client's batch against the rules of its topic. Raises the wire error for what is wrong."""
    size = end - start
    if size > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}")
    header = check_batch(buf, start, end)
    if header.size != size:
        raise InvalidRecord("a produce request carries exactly one batch for each partition")
    if header.attributes & ~CODEC_MASK:
        _check_flags(header)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(f"producer {header.producer_id} sent a batch without a sequence or an epoch")
    if header.codec:
        check_compressed(buf, start, header)
    if "compact" in config.cleanup_policy:
        for record in iter_records(buf, start):
            if record.key is None:
                raise InvalidRecord(
                    f"record {record.offset_delta} of the batch has no key, which a compacted topic needs"
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
    newest, oldest = header.max_timestamp, header.base_timestamp
    if config.message_timestamp_before_max_ms != _LONG_MAX:
        # the header does not tell the oldest record
        oldest = min(record.timestamp for record in iter_records(buf, start))
    if newest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {newest} is more than message.timestamp.after.max.ms="
            f"{config.message_timestamp_after_max_ms} ahead of the broker's {now_ms}"
        )
    if oldest >= 0 and now_ms - oldest > config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"timestamp {oldest} is more than message.timestamp.before.max.ms="
            f"{config.message_timestamp_before_max_ms} behind the broker's {now_ms}"
        )
    if newest < -1:
        raise InvalidTimestamp(f"timestamp {newest} is below -1, which means none")


def _recompress(
    buf: bytearray | memoryview, start: int, header: BatchHeader, codec: int, config: LogConfig
) -> bytes:
    level = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }.get(codec)
    return build_batch(
        iter_records(buf, start),
        codec=codec,
        level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
    )
