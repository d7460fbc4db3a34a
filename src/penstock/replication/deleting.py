"""The wait of a DeleteRecords request until every live replica has deleted the records of one partition."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.errors import ApiError, NotLeaderOrFollower, RequestTimedOut
from penstock.replication.delayed import DelayedOperation, Key
from penstock.replication.partition import Partition


class DeleteWait(DelayedOperation):
    """`live` returns the registered brokers. Replicas on other brokers are not waited for: they learn the log
    start offset from the leader when they are back. `gone` returns why the partition is no longer on this
    broker."""

    __slots__ = ("_gone", "_leader_epoch", "_live", "_offset", "_partition", "on_complete")

    def __init__(
        self,
        partition: Partition,
        offset: int,
        live: Callable[[], Collection[int]],
        gone: Callable[[], ApiError | None],
    ) -> None:
        self._partition = partition
        self._offset = offset
        self._live = live
        self._gone = gone
        self._leader_epoch = partition.image.leader_epoch
        self.on_complete: Callable[[], None] = lambda: None

    @property
    def low_watermark(self) -> int:
        return self._partition.low_watermark(self._live())

    def is_satisfied(self, key: Key) -> bool:
        return self._lost() is not None or self.low_watermark >= self._offset

    def complete(self, expired: bool) -> None:
        self.on_complete()

    def error(self) -> ApiError | None:
        """Why the records cannot be reported as deleted; None if they are deleted."""
        lost = self._lost()
        if lost is None and self.low_watermark < self._offset:
            return RequestTimedOut()
        return lost

    def _lost(self) -> ApiError | None:
        """The error if this broker no longer leads the partition, and so does not know what the replicas
        have."""
        gone = self._gone()
        if gone is not None:
            return gone
        if self._partition.is_leader and self._partition.image.leader_epoch == self._leader_epoch:
            return None
        return NotLeaderOrFollower()  # a replica that has not deleted the records may be the leader now
