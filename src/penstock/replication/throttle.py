"""Replication throttling: limits how fast replicas that are behind catch up, on the leader and on the
follower.

A broker setting has the rate; a topic setting selects the replicas (`partition:broker`, or `*` for all).
In-sync replicas are never throttled, because a throttle could push them out of the ISR. A response is not cut
to the limit: if it exceeds the limit, the next one waits until the rate allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.config import LogConfig

if TYPE_CHECKING:
    from penstock.replication.partition import Partition

EVERY_REPLICA = "*"


class Bucket:
    """A token bucket of bytes: holds at most one second's worth of the rate, and can go below zero."""

    __slots__ = ("_filled", "_left", "_monotonic", "_rate")

    def __init__(self, rate: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._filled = monotonic()
        self._left: float = rate()

    def is_empty(self) -> bool:
        self._fill()
        return self._left <= 0

    def take(self, size: int) -> None:
        self._fill()
        self._left -= size

    def _fill(self) -> None:
        now, rate = self._monotonic(), self._rate()
        # A higher rate also refills a negative bucket faster; a lower one caps the bytes saved so far.
        self._left = min(self._left + (now - self._filled) * rate, rate)
        self._filled = now


class Throttle:
    """The throttle of one side (leader or follower) on one broker. `replicas` reads the topic setting of that
    side."""

    __slots__ = ("_broker_id", "_bucket", "_replicas")

    def __init__(
        self,
        broker_id: int,
        rate: Callable[[], int],
        replicas: Callable[[LogConfig], tuple[str, ...]],
        monotonic: Callable[[], float],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._bucket = Bucket(rate, monotonic)

    def applies_to(self, partition: Partition) -> bool:
        named = self._replicas(partition.log.config)
        return bool(named) and (EVERY_REPLICA in named or f"{partition.key[1]}:{self._broker_id}" in named)

    def holds_back(self, partition: Partition, follower: int) -> bool:
        """Whether this follower gets no records of the partition for now."""
        return self.applies_to(partition) and follower not in partition.image.isr and self._bucket.is_empty()

    def count(self, partition: Partition, size: int) -> None:
        if self.applies_to(partition):
            self._bucket.take(size)
