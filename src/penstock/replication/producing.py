"""The wait of an acks=all produce until the in-sync replicas have the appended records.

The wait is for the leader epoch in which the records were appended. In a later epoch they may have been
truncated, and other records may have their offsets. So a partition with another leader or leader epoch counts
as lost immediately.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.replication.delayed import DelayedOperation, Key
from penstock.replication.partition import Partition


class ProduceWait(DelayedOperation):
    """Must be created right after the append, without an await between, so that it has the leader epoch of
    the append; it may be watched later."""

    __slots__ = ("_epochs", "_on_complete", "gone", "missing")

    def __init__(
        self, missing: dict[Key, tuple[Partition, int]], on_complete: Callable[[set[Key]], None]
    ) -> None:
        """`missing` has the partitions to wait for, each with its last appended offset. `on_complete` gets
        those that were not replicated in time, or are lost."""
        self.missing = missing
        self.gone: set[Key] = set()  # of the missing, those with another leader or leader epoch
        self._epochs = {key: partition.image.leader_epoch for key, (partition, _) in missing.items()}
        self._on_complete = on_complete

    def is_satisfied(self, key: Key) -> bool:
        waiting = self.missing.get(key)
        if waiting is not None and key not in self.gone:
            partition, last_offset = waiting
            if not partition.is_leader or partition.image.leader_epoch != self._epochs[key]:
                self.gone.add(key)
            elif partition.is_replicated(last_offset):
                del self.missing[key]
        return len(self.gone) == len(self.missing)

    def lost(self, key: Key) -> bool:
        if key in self.missing:
            self.gone.add(key)
        return len(self.gone) == len(self.missing)

    def complete(self, expired: bool) -> None:
        self._on_complete(set(self.missing))
