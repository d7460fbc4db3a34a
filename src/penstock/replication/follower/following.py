"""A follower's permission to change its log: valid for one leader and leader epoch, and checked at each
change.

Between a fetch request and its response, this broker may become the leader, follow another leader, or drop
the partition. The response of the former leader is then stale: truncating the log by it could remove records
that have been acknowledged since.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import FencedLeaderEpoch

if TYPE_CHECKING:
    from penstock.log.partition_log import AppendInfo
    from penstock.replication.partition import Partition


class Following:
    """Every method that changes the log raises FencedLeaderEpoch where `is_held` is false."""

    __slots__ = ("_ended", "leader", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.image.leader
        self.leader_epoch = partition.image.leader_epoch
        self._ended = False

    @property
    def is_held(self) -> bool:
        image = self.partition.image
        return not self._ended and image.leader_epoch == self.leader_epoch and image.leader == self.leader

    def end(self) -> None:
        """The partition is no longer followed, or no longer on this broker."""
        self._ended = True

    def check(self) -> None:
        if not self.is_held:
            image = self.partition.image
            raise FencedLeaderEpoch(
                f"{self.partition.key[0]}-{self.partition.key[1]} does not follow broker {self.leader} at"
                f" leader epoch {self.leader_epoch}: its leader is {image.leader} at {image.leader_epoch}"
            )

    def append(self, buf: bytearray, start: int, end: int) -> AppendInfo:
        self.check()
        info = self.partition.log.append_as_follower(buf, start, end)
        self.partition.traffic.replication_bytes_in += end - start
        self.partition.broken_ms = None
        return info

    def advance(self, high_watermark: int, log_start_offset: int) -> None:
        """Apply the leader's high watermark and log start offset."""
        self.check()
        self.partition.follow(high_watermark, log_start_offset)

    def common_end(self, epoch: int, end_offset: int) -> int:
        """The offset to truncate to: the end of the last leader epoch that both logs have (KIP-101, KIP-279).

        `epoch` is the leader's last epoch that is not above ours, and `end_offset` its end offset at the
        leader.
        """
        log = self.partition.log
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        offset = min(end_offset, own_end) if own_epoch >= 0 else end_offset
        if 0 <= own_epoch < epoch:
            offset = own_end  # we never had the leader's epoch; our last one before it ends here
        return min(offset, log.log_end_offset)

    async def truncate_to(self, offset: int) -> None:
        await self._truncate_near(offset)
        self.partition.log.truncate_to(offset)

    async def start_at(self, offset: int) -> None:
        """Truncate fully: the leader's log start offset is past the end of our log."""
        log = self.partition.log
        await self._truncate_near(log.segments[0].base_offset)
        log.truncate_fully_and_start_at(offset)

    async def _truncate_near(self, offset: int) -> None:
        """Remove most of the segments after `offset`, a few in each iteration of the event loop, the last
        ones first. So the log is consistent at each moment, as after a truncation to a higher offset."""
        self.check()
        log = self.partition.log
        while (step := log.truncation_step(offset)) > offset:
            log.truncate_to(step)
            await asyncio.sleep(0)
            self.check()
