"""The wait of a produce request with acks=all until the in-sync replicas have its records."""

from __future__ import annotations

from collections.abc import Callable

from penstock.replication.delayed import DelayedOperation, Key
from penstock.replication.partition import Partition


class ProduceWait(DelayedOperation):
    __slots__ = ("_on_complete", "missing")

    def __init__(
        self, missing: dict[Key, tuple[Partition, int]], on_complete: Callable[[set[Key]], None]
    ) -> None:
        self.missing = missing  # the partitions that are behind, each with the offset to be reached
        self._on_complete = on_complete

    def is_satisfied(self, key: Key) -> bool:
        waiting = self.missing.get(key)
        if waiting is not None:
            partition, last_offset = waiting
            if partition.is_replicated(last_offset):
                del self.missing[key]
        return not self.missing

    def complete(self, expired: bool) -> None:
        """Tells which partitions were not reached."""
        self._on_complete(set(self.missing))
