"""Batches and logs for the tests of the log layer."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import Any

from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS, Fs
from penstock.log.partition_log import AppendInfo, PartitionLog
from penstock.log.recovery.loading import open_log
from penstock.wire.batches.records import Record, build_batch, control_marker, iter_records, read_header

TOPIC_ID = uuid.UUID(int=7)


def make_log(
    path: Path, clock: ManualClock | None = None, fs: Fs = REAL_FS, clean: bool = False, **settings: Any
) -> PartitionLog:
    where: dict[str, int] = {
        name: settings.pop(name) for name in ("recovery_point", "log_start_offset") if name in settings
    }
    config = dataclasses.replace(LogConfig(), **settings)
    return open_log(
        str(path / "t-0"), "t", 0, TOPIC_ID, config, clock or ManualClock(), fs, clean=clean, **where
    )


def batch(
    values: list[bytes],
    *,
    key: bytes | None = None,
    timestamp: int = 1_700_000_000_000,
    producer: tuple[int, int, int] | None = None,
    **more: Any,
) -> bytearray:
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    records = [Record(0, timestamp, key, value) for value in values]
    return bytearray(
        build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)
    )


def append(log: PartitionLog, data: bytearray, epoch: int = 0, origin: str = "client") -> AppendInfo:
    info = log.append_as_leader(data, 0, len(data), epoch, origin=origin)
    log.update_high_watermark(log.log_end_offset)
    return info


def marker(log: PartitionLog, kind: str, producer_id: int, epoch: int = 0) -> AppendInfo:
    data = bytearray(control_marker(kind, 0, producer_id, epoch, log.clock.now_ms()))  # type: ignore[arg-type]
    return append(log, data, origin="coordinator")


def contents(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record, read the way a consumer does, a little at a time."""
    found = []
    offset = log.log_start_offset if start is None else start
    while slices := log.read(offset, 300, log.log_end_offset):
        data = b"".join(piece.read() for piece in slices)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            found += [(r.offset, r.value) for r in iter_records(data, position) if r.offset >= offset]
            position += header.size
            offset = header.last_offset + 1
    return found
