"""What clients did and were answered, and the judgement on it when all is over.

A value is unique: `writer:number`, or for a copy `copy of …`. Every violation is one line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from penstock.wire.batches.records import BatchHeader, Record, iter_records, parse_control, read_header
from tests.cluster.markers import Decisions, TransactionalBatch

Key = tuple[str, int]


def key_of(value: bytes) -> bytes:
    """The record key of a value in a compacted topic: every fifth of a writer has the same, in a ledger every
    23rd of all writers."""
    keys = 23 if value.startswith(b"ledger") else 5
    return b"key-%d" % (int(value.rpartition(b":")[2]) % keys)


def deletes(value: bytes) -> bool:
    """Whether the record of a ledger deletes its key, as a fourth of each key's do."""
    return int(value.rpartition(b":")[2]) % 4 == 3


def line_of(value: bytes) -> tuple[tuple[bytes, bytes], int]:
    """Writer and record key, and the number: the numbers of one writer and key grow along the log."""
    writer, _, number = value.rpartition(b":")
    return (writer, key_of(value)), int(number)


class End(Enum):
    OPEN = "open"  # nobody has asked for its end
    COMMITTED = "committed"  # answered so
    ABORTED = "aborted"
    COMMITTING = "committing"  # asked for, not answered
    NEVER = "never"  # its producer can no longer commit it


@dataclass(eq=False)
class Transaction:
    name: str
    producer_id: int
    epoch: int
    version: int
    values: dict[Key, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    offsets: dict[bytes, int] = field(default_factory=dict)  # of values, where they were answered
    end: End = End.OPEN
    offset: tuple[Key, int, int] | None = None  # of the input: from where to where it was consumed


@dataclass
class Batch:
    """One batch of a log, as a reader gets it."""

    header: BatchHeader
    values: list[bytes]
    offsets: list[int]  # of the values; compaction leaves holes
    marker: str | None = None  # "commit" or "abort"
    coordinator_epoch: int = -1


def batches_of(data: bytes) -> list[Batch]:
    """The whole batches in the answer to a fetch."""
    found: list[Batch] = []
    pos = 0
    while len(data) - pos >= 61:
        header = read_header(data, pos)
        if pos + header.size > len(data):
            break
        records = list(iter_records(data, pos))
        if header.is_control:
            found.append(Batch(header, [], [], *(parse_control(records[0]) if records else ("",))))
        else:
            values = [_value(record) for record in records]
            found.append(Batch(header, values, [record.offset for record in records]))
        pos += header.size
    return found


def _value(record: Record) -> bytes:
    if record.value is None and record.headers:
        return record.headers[0][1] or b""
    return record.value or b""


def transactional(batches: Iterable[Batch]) -> Iterator[TransactionalBatch]:
    for one in batches:
        header = one.header
        if header.is_transactional:
            yield TransactionalBatch(
                header.base_offset,
                header.producer_id,
                header.producer_epoch,
                one.marker,
                one.coordinator_epoch,
            )


class History:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.note: Callable[[str], None] = lambda text: None
        self.acknowledged: dict[Key, dict[bytes, int]] = defaultdict(dict)  # without a transaction
        self.sent: dict[Key, list[bytes]] = defaultdict(list)  # the same, in the order of the writer
        self.transactions: list[Transaction] = []
        self.seen: dict[Key, dict[int, bytes]] = defaultdict(dict)  # what readers were shown
        self.seen_committed: dict[Key, dict[int, bytes]] = defaultdict(dict)
        # By isolation level, and the leader epoch that said so.
        self._ends: dict[tuple[Key, int], dict[int, int]] = defaultdict(dict)
        self.earliest: dict[Key, int] = defaultdict(int)
        self.earliest_wanted: dict[Key, int] = defaultdict(int)
        self.compacted: set[Key] = set()
        # Before this offset a replica may have missed a deletion that the others no longer have.
        self.missed_deletions: dict[Key, float] = defaultdict(float)
        self.seen_compacted: set[bytes] = set()  # what read_committed readers of those were shown
        self.counts: Counter[str] = Counter()

    def violation(self, text: str) -> None:
        self.note(f"VIOLATION {text}")
        self.violations.append(text)

    def read(self, key: Key, isolation: int, offset: int, value: bytes) -> None:
        shown = self.seen_committed if isolation else self.seen
        known = shown[key].setdefault(offset, value)
        if known != value:
            self.violation(f"{key}: offset {offset} was {known!r} and is now {value!r}")

    def end_at(self, key: Key, isolation: int, epoch: int) -> int:
        """What readers were shown by the leaders up to this epoch lies before this offset. (A leader that was
        replaced and does not know it yet lags behind the one of the next epoch, as with Kafka.)"""
        return max((end for one, end in self._ends[key, isolation].items() if one <= epoch), default=0)

    def saw_end(self, key: Key, isolation: int, epoch: int, end: int) -> None:
        ends = self._ends[key, isolation]
        ends[epoch] = max(ends.get(epoch, 0), end)

    # the judgement

    def judge(
        self, logs: dict[Key, list[Batch]], committed: dict[Key, dict[int, bytes]], decided: Decisions
    ) -> None:
        """`logs` is every batch of every partition, `committed` what a read_committed reader gets, `decided`
        what coordinators have written down."""
        for key, batches in logs.items():
            for fault in decided.faults(key, transactional(batches)):
                self.violation(fault)
            if key in self.compacted:
                self._judge_compacted(key, batches)
            else:
                self._judge_log(key, batches)
        visible: dict[bytes, list[tuple[Key, int]]] = defaultdict(list)
        for key, values in committed.items():
            for offset, value in values.items():
                visible[value].append((key, offset))
        self._judge_acknowledged(visible)
        self._judge_transactions(visible, committed)
        for key in self.compacted & committed.keys():
            self.judge_ledger(key, self.newest_committed(key), committed[key])
        for key, shown in self.seen_committed.items():
            self._judge_shown(key, shown, committed.get(key, {}), "read_committed")
        for key, shown in self.seen.items():
            have = {
                offset: value
                for batch in logs.get(key, [])
                for offset, value in zip(batch.offsets, batch.values, strict=True)
            }
            self._judge_shown(key, shown, have, "read_uncommitted")

    def _judge_compacted(self, key: Key, batches: list[Batch]) -> None:
        """Of each record key the newest value is there, and none of a writer twice or before an older one."""
        last: dict[tuple[bytes, bytes], int] = {}
        for batch in batches:
            for value in batch.values:
                name, number = line_of(value)
                if number <= last.get(name, -1):
                    self.violation(f"{key}: {value!r} comes after number {last[name]} of its key")
                last[name] = number
        for value in self.acknowledged[key]:
            name, number = line_of(value)
            if number > last.get(name, -1):
                self.violation(
                    f"{key}: {value!r} was acknowledged, the newest of its key is {last.get(name)}"
                )

    def _judge_shown(self, key: Key, shown: dict[int, bytes], have: dict[int, bytes], level: str) -> None:
        for offset, value in shown.items():
            if offset >= self.earliest[key] and have.get(offset) != value:
                self.violation(
                    f"{key}: a {level} reader was shown {value!r} at {offset}, where there is "
                    f"{have.get(offset)!r} at the end"
                )

    def _judge_acknowledged(self, visible: dict[bytes, list[tuple[Key, int]]]) -> None:
        for key, values in self.sent.items():
            if key in self.compacted:
                continue
            last = -1
            for value in values:
                places = visible.get(value, [])
                offset = self.acknowledged[key].get(value)
                if len(places) > 1:
                    self.violation(f"{value!r} is there {len(places)} times: {places}")
                if offset is not None and offset < self.earliest[key]:
                    continue
                if not places:
                    if offset is not None:
                        self.violation(f"{value!r} was acknowledged at {key} {offset} and is lost")
                    continue
                if offset is not None and offset >= 0 and (key, offset) != places[0]:
                    self.violation(f"{value!r} was acknowledged at {key} {offset} and is at {places[0]}")
                if places[0][1] <= last:
                    self.violation(f"{value!r} at {places[0]} is before what was sent before it")
                last = places[0][1]

    def newest_committed(self, key: Key) -> dict[bytes, int]:
        """By record key of a ledger: the offset of the newest value that is known to be committed."""
        found: dict[bytes, int] = {}
        for one in self.transactions:
            if one.end is End.COMMITTED:
                for value in one.values.get(key, ()):
                    place = one.offsets.get(value, -1)
                    found[key_of(value)] = max(place, found.get(key_of(value), -1))
        return found

    def judge_ledger(self, key: Key, newest: dict[bytes, int], shown: dict[int, bytes]) -> None:
        """What is shown of a ledger has the newest value of each record key, or a newer one. Where that is a
        deletion, which compaction removes later, there may be none, but no older one, unless a replica was
        away for longer than deletions are kept."""
        last: dict[bytes, int] = {}
        for offset, value in shown.items():
            last[key_of(value)] = max(offset, last.get(key_of(value), -1))
        deleted: dict[bytes, float] = {}  # where the last deletion may be
        for one in self.transactions:
            for value in one.values.get(key, ()):
                place = one.offsets.get(value)
                if place is not None and shown.get(place, value) != value:
                    self.violation(f"{key}: {value!r} was written at {place}, there is {shown[place]!r}")
                if deletes(value) and one.end in (End.COMMITTED, End.COMMITTING):
                    name = key_of(value)
                    deleted[name] = max(inf if place is None else place, deleted.get(name, -1))
        for name, offset in newest.items():
            found, gone = last.get(name), deleted.get(name, -1)
            if found is not None and found < offset <= gone < self.missed_deletions[key]:
                continue
            if (gone if found is None else found) < offset:
                self.violation(f"{key}: of {name!r} {offset} was committed, the last one is {found}")

    def _judge_transactions(
        self, visible: dict[bytes, list[tuple[Key, int]]], committed: dict[Key, dict[int, bytes]]
    ) -> None:
        for one in self.transactions:
            all_values = [value for values in one.values.values() for value in values]
            there = [value for value in all_values if value in visible or value in self.seen_compacted]
            what = f"transaction {one.name} ({one.producer_id}, {one.epoch}), {one.end.value}"
            if not self.compacted.isdisjoint(one.values):
                if one.end in (End.ABORTED, End.NEVER, End.OPEN) and there:
                    self.violation(f"{what}: {there} is visible")
            elif one.end is End.COMMITTED and len(there) < len(all_values):
                missing = [value for value in all_values if value not in visible]
                self.violation(f"{what}: {missing} is not visible")
            elif one.end in (End.ABORTED, End.NEVER, End.OPEN) and there:
                self.violation(f"{what}: {there} is visible")
            elif one.end is End.COMMITTING and 0 < len(there) < len(all_values):
                self.violation(f"{what}: torn, {len(there)} of {len(all_values)} records are visible")
            for key, values in one.values.items():
                last = -1
                for value in values:
                    places = visible.get(value, [])
                    if len(places) > 1:
                        self.violation(f"{what}: {value!r} is there {len(places)} times: {places}")
                    if places and places[0][0] != key:
                        self.violation(f"{what}: {value!r} is at {places[0]}")
                    if places and places[0][1] <= last:
                        self.violation(f"{what}: {value!r} is before what was sent before it")
                    last = places[0][1] if places else last

    def _judge_log(self, key: Key, batches: list[Batch]) -> None:
        """Offsets grow, sequences of a producer's epoch are whole, markers end what they are for."""
        end = -1
        sequences: dict[tuple[int, int], int] = {}
        opened: dict[int, tuple[int, int]] = {}  # producer id: epoch and first offset
        versions = {(one.producer_id, one.epoch): one.version for one in self.transactions}
        for batch in batches:
            header = batch.header
            if header.base_offset <= end:
                self.violation(f"{key}: batch {header.base_offset} after the end {end}")
            end = header.last_offset
            producer = (header.producer_id, header.producer_epoch)
            if batch.marker is not None:
                self._judge_marker(key, batch, opened, versions)
                continue
            if header.producer_id >= 0 and header.base_sequence >= 0:
                expected = sequences.get(producer, 0)
                if header.base_sequence != expected and not self.earliest[key]:
                    self.violation(
                        f"{key}: batch {header.base_offset} of producer {producer} has sequence "
                        f"{header.base_sequence}, not {expected}"
                    )
                sequences[producer] = header.base_sequence + header.count
            if header.is_transactional:
                epoch, _ = opened.setdefault(header.producer_id, (header.producer_epoch, header.base_offset))
                if epoch != header.producer_epoch:
                    self.violation(f"{key}: {producer} writes at {header.base_offset} into epoch {epoch}")
        for producer_id, (epoch, first) in opened.items():
            self.violation(f"{key}: the transaction of ({producer_id}, {epoch}) from {first} on hangs")

    def _judge_marker(
        self,
        key: Key,
        batch: Batch,
        opened: dict[int, tuple[int, int]],
        versions: dict[tuple[int, int], int],
    ) -> None:
        header = batch.header
        found = opened.pop(header.producer_id, None)
        if found is None:
            self.counts["markers that ended nothing"] += 1
            return
        epoch, first = found
        version = versions.get((header.producer_id, epoch), 0)
        where = f"{key}: the {batch.marker} marker at {header.base_offset} of producer {header.producer_id}"
        if header.producer_epoch < epoch:
            self.violation(f"{where}, epoch {header.producer_epoch}, ends a transaction of epoch {epoch}")
        elif version == 2 and header.producer_epoch == epoch:
            self.violation(f"{where} has the epoch {epoch} of the transaction that it ends, from {first} on")
