"""The wait of a DeleteRecords request until every live replica has deleted the records of one partition."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.errors import ApiError, NotLeaderOrFollower, RequestTimedOut
from penstock.replication.delayed import DelayedOperation, Key
from penstock.replication.partition import Partition


class DeleteWait(DelayedOperation):
    """`live` gives the brokers that are registered: those that are away learn it from the leader when they
    are back, and are not waited for."""

    __slots__ = ("_leader_epoch", "_live", "_offset", "_partition", "on_complete")

    def __init__(self, partition: Partition, offset: int, live: Callable[[], Collection[int]]) -> None:
        self._partition = partition
        self._offset = offset
        self._live = live
        self._leader_epoch = partition.image.leader_epoch
        self.on_complete: Callable[[], None] = lambda: None

    @property
    def low_watermark(self) -> int:
        return self._partition.low_watermark(self._live())

    def is_satisfied(self, key: Key) -> bool:
        return not self._leads() or self.low_watermark >= self._offset

    def complete(self, expired: bool) -> None:
        self.on_complete()

    def error(self) -> ApiError | None:
        """Why it cannot be said, by now, that the records are deleted."""
        if not self._leads():
            return NotLeaderOrFollower()  # a replica that had not heard of it may lead now
        return None if self.low_watermark >= self._offset else RequestTimedOut()

    def _leads(self) -> bool:
        return self._partition.is_leader and self._partition.image.leader_epoch == self._leader_epoch
