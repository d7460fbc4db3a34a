"""What the coordinators' state machines have in common: records and replies out, nothing done.

A shard holds the state of one partition of `__consumer_offsets` or `__transaction_state`. Handling a request
gives an `Outcome`; the host appends its records, replays them into the shard, and only then sends its
replies. So what a client was told survives, and a shard moves to another broker by replaying its partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
