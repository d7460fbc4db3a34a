"""The wait until the in-sync replicas have records that were appended here: what acks=all promises.

It holds for the leader epoch in which the records were appended. In a later one they may have been cut, and
others may lie at their offsets; so a partition with another leader or epoch counts as lost, at once.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.replication.delayed import DelayedOperation, Key
from penstock.replication.partition import Partition


class ProduceWait(DelayedOperation):
    """Made in the turn of the append, whose leader epoch it takes; it may be watched later."""

    __slots__ = ("_epochs", "_on_complete", "gone", "missing")

    def __init__(
        self, missing: dict[Key, tuple[Partition, int]], on_complete: Callable[[set[Key]], None]
    ) -> None:
        """`missing`: the partitions that are behind, each with the offset to be reached. `on_complete` gets
        those that were not reached in time, or are lost."""
        self.missing = missing
        self.gone: set[Key] = set()  # of the missing, those that are not led as they were
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
