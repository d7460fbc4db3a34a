"""What logs say about transactions: each has one marker, and each marker one transaction.

Under transaction version 2 the epoch grows with every end: a marker carries an epoch above that of the
records it ends (KIP-890). One of their own epoch is a late duplicate of the marker before it.

A marker that ended nothing may be in order: a partition was added to the transaction and nothing written to
it, or a coordinator that took over has sent the marker again. `Decisions` tells these apart from markers that
should not be there, by what the coordinators wrote to `__transaction_state`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.log.recovery.scan import scan_batches
from penstock.transactions.records import decode_value
from penstock.transactions.state import PREPARED, TV_2
from penstock.wire.batches.records import iter_records, parse_control

TRANSACTION_STATE = "__transaction_state"


class TransactionalBatch(NamedTuple):
    offset: int
    producer_id: int
    epoch: int
    marker: str | None = None  # "commit" or "abort"
    coordinator_epoch: int = -1


@dataclass
class Markers:
    """Of the partitions that were read; each fault is a text with the partition and the offset."""

    transactions: int = 0
    ended_nothing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    of_their_own_epoch: list[str] = field(default_factory=list)
    hanging: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [*self.doubled, *self.of_their_own_epoch, *self.ended_nothing, *self.hanging]


def scan(data_directory: Path, topics: tuple[str, ...], *, version_2: bool = True) -> Markers:
    """The partitions of these topics that lie in a broker's directory."""
    found = Markers()
    for directory in sorted(data_directory.iterdir()):
        if directory.is_dir() and directory.name.rpartition("-")[0] in topics:
            _scan(directory, found, version_2)
    return found


def _scan(directory: Path, found: Markers, version_2: bool) -> None:
    open_since: dict[int, tuple[int, int]] = {}  # producer id -> epoch and offset of the first record
    ended: dict[int, set[int]] = defaultdict(set)  # producer id -> epochs of its markers
    for offset, producer, epoch, marker, _ in batches(directory):
        where = f"{directory.name} at {offset}: producer {producer}, epoch {epoch}"
        if marker is None:
            open_since.setdefault(producer, (epoch, offset))
            continue
        began = open_since.pop(producer, None)
        if version_2 and epoch in ended[producer]:
            found.doubled.append(f"{where}: a second {marker} marker of this epoch (open: {began})")
        ended[producer].add(epoch)
        if began is None:
            found.ended_nothing.append(f"{where}: a {marker} marker that ends nothing")
            continue
        found.transactions += 1
        if version_2 and began[0] == epoch:
            found.of_their_own_epoch.append(
                f"{where}: {marker} of records of the same epoch since {began[1]}"
            )
    for producer, (epoch, offset) in open_since.items():
        found.hanging.append(f"{directory.name} at {offset}: producer {producer}, epoch {epoch} has no end")


def batches(directory: Path) -> Iterator[TransactionalBatch]:
    """The transactional batches of a partition."""
    for segment in sorted(directory.glob("*.log")):
        for _, header, batch in scan_batches(str(segment)):
            if not header.is_transactional:
                continue
            kind, coordinator_epoch = None, -1
            if header.is_control:
                kind, coordinator_epoch = parse_control(next(iter_records(batch)))
            yield TransactionalBatch(
                header.base_offset, header.producer_id, header.producer_epoch, kind, coordinator_epoch
            )


class Decisions:
    """The transactions that coordinators have decided to end. No other marker may be anywhere, none more
    often than decided by one coordinator, and under version 2 none that ends records of its own epoch."""

    def __init__(self) -> None:
        self._ends: Counter[tuple[int, int, str, tuple[str, int]]] = Counter()
        self._version_2: set[tuple[int, int]] = set()

    def add(self, value: bytes | None) -> None:
        """The value of the next record of `__transaction_state`."""
        if value is None:
            return
        decided = decode_value(value)
        if decided.state not in PREPARED:
            return
        kind = "commit" if decided.committing else "abort"
        for partition in decided.partitions:
            self._ends[decided.producer_id, decided.producer_epoch, kind, partition] += 1
        if decided.client_version >= TV_2:
            self._version_2.add((decided.producer_id, decided.producer_epoch))

    def faults(self, partition: tuple[str, int], log: Iterable[TransactionalBatch]) -> list[str]:
        found: list[str] = []
        opened: dict[int, TransactionalBatch] = {}
        markers: Counter[tuple[int, int, str, int]] = Counter()
        for one in log:
            if one.marker is None:
                opened.setdefault(one.producer_id, one)
                continue
            began = opened.pop(one.producer_id, None)
            what = (
                f"{partition[0]}-{partition[1]} at {one.offset}: a {one.marker} marker of producer "
                f"{one.producer_id}, epoch {one.epoch}, coordinator epoch {one.coordinator_epoch}"
            )
            decided = self._ends[one.producer_id, one.epoch, one.marker, partition]
            markers[one.producer_id, one.epoch, one.marker, one.coordinator_epoch] += 1
            count = markers[one.producer_id, one.epoch, one.marker, one.coordinator_epoch]
            if count > decided:
                found.append(f"{what}: the {count}. of them, {decided} were decided")
            if began is not None and began.epoch == one.epoch:
                if (one.producer_id, one.epoch) in self._version_2:
                    found.append(f"{what}: ends records of its own epoch from {began.offset} on")
        return found


def decisions(data_directories: Iterable[Path]) -> Decisions:
    """What the coordinators of a cluster have written; of each partition the longest log counts."""
    longest: dict[str, list[bytes | None]] = {}
    for directory in data_directories:
        for partition in directory.glob(f"{TRANSACTION_STATE}-*"):
            values = [
                record.value
                for segment in sorted(partition.glob("*.log"))
                for _, _, batch in scan_batches(str(segment))
                for record in iter_records(batch)
            ]
            if len(values) > len(longest.get(partition.name, ())):
                longest[partition.name] = values
    found = Decisions()
    for values in longest.values():
        for value in values:
            found.add(value)
    return found


def undecided(data_directory: Path, topics: tuple[str, ...], decided: Decisions) -> list[str]:
    """The markers in a broker's directory that nobody decided to write."""
    found: list[str] = []
    for directory in sorted(data_directory.iterdir()):
        topic, _, index = directory.name.rpartition("-")
        if directory.is_dir() and topic in topics:
            found += decided.faults((topic, int(index)), batches(directory))
    return found
