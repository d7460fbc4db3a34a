"""Which partitions this broker follows, and from which leader: one `LeaderFetcher` for each leader."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.replication.delayed import Key
from penstock.replication.follower.leader_fetcher import Followed, LeaderFetcher
from penstock.replication.follower.truncations import Truncations
from penstock.replication.partition import Partition

if TYPE_CHECKING:
    from penstock.replication.follower.parts import FollowersParts


class Followers:
    """Assigns each followed partition to the fetcher of its leader, as the image says."""

    def __init__(self, broker: FollowersParts) -> None:
        self._broker = broker
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._truncations = Truncations(broker)
        self._where: dict[Key, tuple[int, Followed]] = {}
        self._closed = False

    def update(self, partition: Partition, topic_id: UUID) -> None:
        """The image of a partition on this broker has changed, or the partition is new on this broker."""
        if self._closed:
            return  # images still arrive while the broker stops; closed logs must not be written to
        image = partition.image
        key = partition.key
        leader = image.leader if image.leader in self._broker.controller.image.brokers else -1
        current = self._where.get(key)
        if leader < 0 or leader == self._broker.id:
            self.forget(key)
            return
        if (
            current is not None
            and current[0] == leader
            and current[1].partition is partition
            and current[1].following.leader_epoch == image.leader_epoch
        ):
            return
        self.forget(key)
        one = Followed(partition, topic_id)
        self._where[key] = (leader, one)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = LeaderFetcher(self._broker, leader, self._truncations)
        fetcher.add(one)

    def forget(self, key: Key) -> None:
        current = self._where.pop(key, None)
        if current is not None:
            leader, one = current
            self._fetchers[leader].remove(one.id)

    async def close(self) -> None:
        self._closed = True
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        await self._truncations.close()
        self._fetchers.clear()
        self._where.clear()
