"""Verifies logs: reads a partition directory or a data directory and reports every problem with its position.

It only reads, streams the files, and may run while a broker uses them: it waits for a batch that is just
being written, and reads a directory again if its segments are swapped or deleted meanwhile.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.errors import PenstockError
from penstock.fs import REAL_FS, Fs
from penstock.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    parse_checkpoint,
)
from penstock.log.manager import KRAFT_METADATA
from penstock.log.producer_state import SnapshotError, parse_snapshot
from penstock.log.recovery.scan import SEGMENT_NAME
from penstock.log.tools.verify_segment import REBUILD, LogState, Problem, SegmentCheck
from penstock.log.tools.verify_transactions import TransactionCheck

OFFSET_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

_PARTITION_NAME = re.compile(rf"(?!{KRAFT_METADATA}-).+-\d+")
_FILE_NAME = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")
# Temporary files of an interrupted or running pass; the next start deletes them or completes the pass.
_PASSING = (".cleaned", ".swap", ".deleted", ".tmp")
_ATTEMPTS = 3
_TAIL_WAIT_SECONDS = 0.05

Progress = Callable[[int], None]


class NotALogDirectory(PenstockError):
    """The directory has neither segments nor partitions."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    directory: str
    segments: int
    batches: int
    records: int
    bytes: int
    first_offset: int | None
    end_offset: int | None
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class Report:
    """The reports of all partitions, and the problems in the files of the data directory itself."""

    partitions: list[PartitionReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def all_problems(self) -> list[Problem]:
        return [*self.problems, *(p for partition in self.partitions for p in partition.problems)]

    @property
    def is_clean(self) -> bool:
        """Whether there are no errors; warnings may be harmless."""
        return all(problem.severity == "warning" for problem in self.all_problems)


def _wait_for_tail() -> None:
    time.sleep(_TAIL_WAIT_SECONDS)


def _no_progress(_: int) -> None:
    return None


def total_bytes(directory: str, fs: Fs = REAL_FS) -> int:
    """How many bytes of log the verification of this directory reads."""
    total = 0
    for path in find_partitions(directory, fs) or [directory]:
        for base_offset in _base_offsets(fs.listdir(path)):
            try:
                total += fs.stat_size(os.path.join(path, f"{base_offset:020d}.log"))
            except FileNotFoundError:
                continue
    return total


def find_partitions(directory: str, fs: Fs = REAL_FS) -> list[str]:
    """The partition directories of a data directory, sorted."""
    names = sorted(name for name in fs.listdir(directory) if _PARTITION_NAME.fullmatch(name))
    paths = [os.path.join(directory, name) for name in names]
    return [path for path in paths if os.path.isdir(path)]


def verify(
    directory: str,
    *,
    fs: Fs = REAL_FS,
    wait: Callable[[], None] = _wait_for_tail,
    progress: Progress = _no_progress,
    transaction_version: int | None = None,
) -> Report:
    """Verify a partition directory, or a data directory with all its partitions.

    `transaction_version` is that of all producers; without it, it is derived from the log as far as possible.
    """
    names = fs.listdir(directory)
    if any(_FILE_NAME.fullmatch(name) for name in names) or PARTITION_METADATA in names:
        version = transaction_version
        return Report(
            [verify_partition(directory, fs=fs, wait=wait, progress=progress, transaction_version=version)]
        )
    paths = find_partitions(directory, fs)
    if not paths and META_PROPERTIES not in names:
        raise NotALogDirectory(f"{directory} is neither a partition's directory nor a data directory")
    report = Report(problems=_check_data_directory(directory, names, fs))
    done = 0

    def overall(bytes_of_partition: int) -> None:
        progress(done + bytes_of_partition)

    for path in paths:
        try:
            partition = verify_partition(
                path, fs=fs, wait=wait, progress=overall, transaction_version=transaction_version
            )
        except FileNotFoundError:
            continue  # the topic was deleted meanwhile
        done += partition.bytes
        report.partitions.append(partition)
    return report


def verify_partition(
    directory: str,
    *,
    fs: Fs = REAL_FS,
    wait: Callable[[], None] = _wait_for_tail,
    progress: Progress = _no_progress,
    transaction_version: int | None = None,
) -> PartitionReport:
    """Verify one partition. Segments that have changed during the read are not reported as a problem."""
    attempt = 0
    while True:
        attempt += 1
        before = _identities(directory, fs)
        try:
            report = _verify_once(directory, fs, wait, progress, transaction_version)
        except FileNotFoundError:
            if attempt >= _ATTEMPTS or not fs.exists(directory):
                raise
            continue
        if not report.problems or attempt >= _ATTEMPTS:
            return report
        # The indexes of a segment are completed shortly after the next segment is created: check twice.
        in_index = any(problem.path.endswith("index") for problem in report.problems)
        if before == _identities(directory, fs) and not (in_index and attempt == 1):
            return report
        wait()


def _verify_once(
    directory: str, fs: Fs, wait: Callable[[], None], progress: Progress, transaction_version: int | None
) -> PartitionReport:
    names = sorted(fs.listdir(directory))
    base_offsets = _base_offsets(names)
    state = LogState(transactions=TransactionCheck(transaction_version))
    state.problems += _check_names(directory, names, base_offsets)
    first_offset: int | None = None
    for base_offset in base_offsets:
        is_active = base_offset == base_offsets[-1]
        if base_offset < state.next_offset:
            path = os.path.join(directory, f"{base_offset:020d}.log")
            what = f"the segment before it reaches to offset {state.next_offset - 1}"
            state.problems.append(Problem(path, None, what, "keep both files and report this as a bug"))
        elif state.next_offset >= 0 and base_offset > state.next_offset:
            state.holes += 1
        SegmentCheck(
            directory, base_offset, state, fs, is_active=is_active, wait=wait, progress=progress
        ).run()
        if first_offset is None:
            first_offset = base_offset
        state.next_offset = max(state.next_offset, base_offset)
    for name in names:
        problem = _check_side_file(os.path.join(directory, name), fs)
        if problem is not None:
            state.problems.append(problem)
    return PartitionReport(
        directory=directory,
        segments=len(base_offsets),
        batches=state.batches,
        records=state.records,
        bytes=state.bytes,
        first_offset=first_offset,
        end_offset=state.next_offset if base_offsets else None,
        problems=state.problems,
    )


def _base_offsets(names: list[str]) -> list[int]:
    found = (SEGMENT_NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in found if match)


def _identities(directory: str, fs: Fs) -> list[tuple[str, int]]:
    identities = []
    for base_offset in _base_offsets(fs.listdir(directory)):
        path = os.path.join(directory, f"{base_offset:020d}.log")
        try:
            identities.append((path, os.stat(path).st_ino))
        except FileNotFoundError:
            continue
    return identities


def _check_names(directory: str, names: list[str], base_offsets: list[int]) -> list[Problem]:
    problems = []
    bases = set(base_offsets)
    for name in names:
        path = os.path.join(directory, name)
        if name in (EPOCH_CHECKPOINT, PARTITION_METADATA) or name.endswith(_PASSING):
            continue
        if not _FILE_NAME.fullmatch(name):
            what = "is not a name that a log has"
            problems.append(Problem(path, None, what, "move it out of the partition's directory"))
        elif name.endswith("index") and int(name[:20]) not in bases:
            problems.append(Problem(path, None, "no segment of this name exists", "delete the file"))
    return problems


def _check_side_file(path: str, fs: Fs) -> Problem | None:
    name = os.path.basename(path)
    try:
        if name.endswith(".snapshot"):
            parse_snapshot(fs.read_bytes(path))
        elif name == EPOCH_CHECKPOINT:
            rows = [(int(epoch), int(start)) for epoch, start in parse_checkpoint(fs.read_bytes(path), 2)]
            for a, b in pairwise(rows):
                if b[0] <= a[0] or b[1] < a[1]:
                    return Problem(path, None, f"entry {b} does not follow {a}", REBUILD)
        elif name == PARTITION_METADATA:
            values = parse_properties(fs.read_bytes(path), separator=":")
            if "topic_id" not in values:
                return Problem(
                    path, None, "has no topic_id", "restore it from another replica of the partition"
                )
    except FileNotFoundError:
        return None
    except (SnapshotError, CheckpointError, ValueError) as error:
        return Problem(path, None, f"does not read: {error}", REBUILD)
    return None


def _check_data_directory(directory: str, names: list[str], fs: Fs) -> list[Problem]:
    problems = []
    for name in names:
        path = os.path.join(directory, name)
        try:
            if name in OFFSET_CHECKPOINTS:
                for _, partition, offset in parse_checkpoint(fs.read_bytes(path), 3):
                    if int(partition) < 0 or int(offset) < 0:
                        raise CheckpointError(f"entry {partition} {offset} is negative")
            elif name == META_PROPERTIES:
                parse_properties(fs.read_bytes(path))
        except FileNotFoundError:
            continue
        except (CheckpointError, ValueError) as error:
            remedy = "stop the broker and delete this file: it is written again, recovery takes longer once"
            if name == META_PROPERTIES:
                remedy = "write it again with the cluster id and node id that the directory belongs to"
            problems.append(Problem(path, None, f"does not read: {error}", remedy))
    return problems


def parse_properties(data: bytes, separator: str = "=") -> dict[str, str]:
    """Parses `name=value` lines (or `name: value`); comments start with #. ValueError if a line has no
    value."""
    values = {}
    for number, line in enumerate(data.decode("utf-8").splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"line {number} has no {separator!r}")
        values[name.strip()] = value.strip()
    return values
