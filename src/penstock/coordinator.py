"""What the coordinators' state machines have in common: records and replies out, nothing done.

A shard holds the state of one partition of `__consumer_offsets` or `__transaction_state`. Handling a request
gives an `Outcome`; the host appends its records, replays them into the shard, and only then sends its
replies. So what a client got survives, and a shard moves to another broker by replaying its partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from penstock.errors import ApiError
from penstock.wire.message import Message


class StateRecord(NamedTuple):
    """One record of the shard's partition; a value of None deletes the key."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    """The answer to the request that came with `token`. It may be the answer to an earlier request."""

    token: Any
    response: Message | ApiError


class Producer(NamedTuple):
    """In whose transaction records are written."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Outcome:
    records: list[StateRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    producer: Producer | None = None  # the records belong to its transaction and count when that commits
    actions: list[Any] = field(default_factory=list)  # what else the host is to do
    is_urgent: bool = True  # else nobody waits for the records, and they may go to replicas with later ones
    cuts: list[int] = field(default_factory=list)
    """Before which records another batch may begin where one cannot hold all (`max.message.bytes`). Those
    between two cuts are written together or not at all."""

    def add(self, other: Outcome) -> None:
        """Something else that was decided, and does not depend on this."""
        base = len(self.records)
        if base and other.records:
            self.cuts.append(base)
        self.cuts += [base + cut for cut in other.cuts]
        self.records += other.records
        self.replies += other.replies
        self.actions += other.actions
        self.is_urgent |= other.is_urgent

    def divide(self) -> None:
        """Each record stands for itself: deletions of many things, for example."""
        self.cuts = list(range(1, len(self.records)))

    def parts(self, room: int) -> list[list[StateRecord]]:
        """The records in as few parts as the cuts allow, none of more than about `room` bytes."""
        parts: list[list[StateRecord]] = []
        begin = size = 0
        for start, stop in pairwise((0, *self.cuts, len(self.records))):
            added = sum(map(_size, self.records[start:stop]))
            if size and size + added > room:
                parts.append(self.records[begin:start])
                begin, size = start, 0
            size += added
        return [*parts, self.records[begin:]]


def _size(record: StateRecord) -> int:
    """Of a record in a batch, at most."""
    return len(record.key) + len(record.value or b"") + 32


class Shard(Protocol):
    def replay(self, record: StateRecord, *, timestamp: int, producer: Producer | None) -> None:
        """Apply a record that is in the log. The only way in which lasting state changes."""

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A transaction with records in this partition has ended."""

    def next_deadline(self) -> int | None:
        """When `on_time` wants to be called, by the wall clock in milliseconds."""

    def on_time(self, now_ms: int) -> Outcome:
        """Time has passed: sessions and rebalances time out, offsets and transactions expire."""

    def resign(self, error: ApiError) -> list[Reply]:
        """This broker no longer leads the partition: every waiting request gets the error."""


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    """The partition with the state of a group or transactional id: Java's String.hashCode, as in Kafka."""
    value = 0
    for unit in _utf16_units(key):
        value = (value * 31 + unit) & 0xFFFFFFFF
    if value >= 1 << 31:  # negative in Java, where the absolute value of the least number is taken as 0
        value = ((1 << 32) - value) % (1 << 31)
    return value % partitions


def _utf16_units(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
