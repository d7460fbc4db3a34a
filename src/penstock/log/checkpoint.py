"""Kafka's text checkpoints: a version line, a count line, then one entry a line.

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint` and
`cleaner-offset-checkpoint` hold `topic partition offset`; `leader-epoch-checkpoint` holds `epoch offset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import PenstockError
from penstock.fs import Fs

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]


class CheckpointError(PenstockError):
    """A malformed checkpoint file."""


def parse_checkpoint(data: bytes, columns: int) -> list[list[str]]:
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError("not ASCII") from error
    if len(lines) < 2 or lines[0].strip() != "0":
        raise CheckpointError(f"version line {lines[0]!r}, expected '0'")
    if not lines[1].strip().isdigit():
        raise CheckpointError(f"count line {lines[1]!r} is not a number")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        raise CheckpointError(f"{len(rows)} entries, the count line says {lines[1].strip()}")
    for row in rows:
        if len(row) != columns:
            raise CheckpointError(f"entry {' '.join(row)!r} has {len(row)} columns, expected {columns}")
    return rows


def render_checkpoint(rows: Sequence[Sequence[str]]) -> bytes:
    return "\n".join(["0", str(len(rows)), *(" ".join(row) for row in rows), ""]).encode("ascii")


def read_offsets(path: str, fs: Fs) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; empty if the file does not exist. Raises CheckpointError."""
    if not fs.exists(path):
        return {}
    try:
        rows = parse_checkpoint(fs.read_bytes(path), 3)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def write_offsets(path: str, offsets: Mapping[TopicPartition, int], fs: Fs) -> None:
    rows = [(topic, str(partition), str(offset)) for (topic, partition), offset in sorted(offsets.items())]
    fs.write_atomic(path, render_checkpoint(rows))
