"""A share partition that is open on this broker."""

from __future__ import annotations

import asyncio

from penstock.groups.share.partition import SharePartition
from penstock.groups.share.state_records import SharePartitionKey
from penstock.replication.partition import Partition


class Opened:
    """A share partition in memory, valid while this broker leads its partition in the same leader epoch."""

    __slots__ = (
        "armed_for",
        "key",
        "leader_epoch",
        "partition",
        "sending_letters",
        "share",
        "state_epoch",
        "timer",
    )

    def __init__(
        self, key: SharePartitionKey, partition: Partition, share: SharePartition, state_epoch: int
    ) -> None:
        self.key = key
        self.partition = partition
        self.share = share
        self.state_epoch = state_epoch
        self.leader_epoch = partition.image.leader_epoch
        self.timer: asyncio.TimerHandle | None = None
        self.armed_for = 0
        self.sending_letters = False

    def is_led(self, partition: Partition | None) -> bool:
        """Whether this broker leads the partition in the leader epoch for which it was opened."""
        image = self.partition.image
        return partition is self.partition and partition.is_leader and image.leader_epoch == self.leader_epoch
