"""What a `ShardHost` keeps of each shard: its topic, its state, the next attempt to load it, its records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.broker.coordinators.shard_answers import Answers
from penstock.coordinator import Outcome, Producer, Shard, StateRecord
from penstock.errors import (
    ApiError,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownServerError,
)
from penstock.replication.partition import Partition
from penstock.wire.batches.records import Record, build_batch

S = TypeVar("S", bound=Shard)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0


class InternalTopic:
    """The internal topic of a coordinator, created when the first client asks for the coordinator."""

    def __init__(self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.configs = configs


class HostedShard(Generic[S]):
    """One shard on this broker. `shard` is None while it is being loaded. It is valid for one leader epoch of
    its partition: in the next one, the log may have changed."""

    __slots__ = (
        "announcing", "answers", "deadline", "deferred", "epoch", "loading", "partition", "shard", "timer",
    )  # fmt: skip

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard: S | None = None
        self.loading: asyncio.Task[None] | None = None
        self.answers: Answers
        self.timer: asyncio.TimerHandle | None = None
        self.deadline = 0  # for which the timer was armed
        self.announcing: asyncio.TimerHandle | None = None  # for appended records that no client waits for
        self.deferred: list[Callable[[S], Outcome]] = []  # steps to run when it is loaded

    def leads(self, partition: Partition | None) -> bool:
        """Whether this broker leads the partition in the leader epoch in which the shard was loaded."""
        return (
            partition is self.partition and partition.is_leader and partition.image.leader_epoch == self.epoch
        )


class LoadRetry:
    """The next attempt to load a shard, with exponential backoff up to a limit."""

    __slots__ = ("_pause_s", "timer")

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self.timer: asyncio.TimerHandle | None = None

    def next_pause_s(self) -> float:
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def batch_of(records: list[StateRecord], producer: Producer | None, now_ms: int) -> bytearray:
    return bytearray(
        build_batch(
            [Record(0, now_ms, record.key, record.value) for record in records],
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            transactional=producer is not None,
        )
    )


def as_coordinators_say(error: ApiError) -> ApiError:
    """The error that clients of a coordinator get when a write to its partition fails, as in Kafka."""
    if isinstance(error, NotLeaderOrFollower):
        return NotCoordinator(error.message)
    if isinstance(error, MessageTooLarge):
        return UnknownServerError(f"the change is too large to be written: {error.message}")
    return CoordinatorNotAvailable(f"the change could not be written: {error}")
