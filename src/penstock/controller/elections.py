"""Who leads, and who is in sync: what an image of the cluster asks to be changed. Pure; nothing is stored.

A leader comes from the in-sync replicas, in the order of the replica list, and every change of leader has
its own epoch. The last in-sync replica stays one however long it is away, because it alone is known to have
all that was acknowledged; only where unclean elections are allowed does another take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage


@dataclass(frozen=True, slots=True)
class PartitionChange:
    topic: str
    topic_id: UUID
    """Another topic of that name is not to be changed."""
    old: PartitionImage
    new: PartitionImage


def changed(
    partition: PartitionImage, *, leader: int | None = None, isr: tuple[int, ...] | None = None
) -> PartitionImage:
    """The partition with another leader (and so another epoch) or other replicas in sync."""
    new_leader = partition.leader if leader is None else leader
    return replace(
        partition,
        leader=new_leader,
        isr=partition.isr if isr is None else isr,
        # An epoch also for no leader: the old one, if it lives after all, must not continue under its own.
        leader_epoch=partition.leader_epoch + (new_leader != partition.leader),
        partition_epoch=partition.partition_epoch + 1,
    )


def elect(
    partition: PartitionImage, live: Collection[int], leaving: Collection[int], unclean: bool
) -> PartitionImage:
    """The partition as it should be with these brokers alive; itself when nothing is to be done.

    Those `leaving` are alive, but lead only where no other can: they shut down, or cannot write its log.
    """
    isr = tuple(replica for replica in partition.isr if replica in live) or partition.isr
    candidates = [replica for replica in partition.replicas if replica in isr and replica in live]
    staying = [replica for replica in candidates if replica not in leaving]
    leader = partition.leader
    if leader not in live or leader not in partition.replicas or leader in leaving:
        if staying:
            leader = staying[0]
        elif leader not in candidates:
            leader = candidates[0] if candidates else NO_LEADER
    if leader == NO_LEADER and unclean:
        alive = [replica for replica in partition.replicas if replica in live]
        if alive:
            leader, isr = alive[0], (alive[0],)
    if staying and leader in staying and any(replica in leaving for replica in isr):
        # Who leaves in order is out of sync from now on: its end must not hold up a produce.
        isr = tuple(replica for replica in isr if replica not in leaving)
    if leader == partition.leader and isr == partition.isr:
        return partition
    return changed(partition, leader=leader, isr=isr)


def reconcile(image: ClusterImage, unclean: Callable[[str], bool]) -> Iterator[PartitionChange]:
    """What the controller has to change so that every partition that can be led is led."""
    live = image.brokers.keys()
    for topic in image.topics.values():
        allowed: bool | None = None
        for partition in topic.partitions:
            leaving = image.unfit(topic.name, partition.index)
            if (
                partition.leader in live
                and partition.leader not in leaving
                and all(replica in live and replica not in leaving for replica in partition.isr)
                and partition.leader in partition.replicas
            ):
                continue
            if allowed is None:
                allowed = unclean(topic.name)
            new = elect(partition, live, leaving, allowed)
            if new is not partition:
                yield PartitionChange(topic.name, topic.id, partition, new)


def plan_return(image: ClusterImage, broker_id: int) -> Iterator[PartitionChange]:
    """What a broker changes before it registers again, in case nobody has noticed that it was away.

    It may have lost the unflushed end of its logs. Where another in-sync replica is alive, that one has it
    all: the broker steps back and follows. Where there is none it is the best there is, and leads under a new
    epoch, because offsets of a lost end would else be given out a second time under the same one.
    """
    live = image.brokers.keys() - {broker_id}
    for topic in image.topics.values():
        for partition in topic.partitions:
            if broker_id not in partition.isr and partition.leader != broker_id:
                continue
            others = tuple(replica for replica in partition.isr if replica != broker_id)
            alive = [replica for replica in partition.replicas if replica in others and replica in live]
            if alive:
                leader = alive[0] if partition.leader == broker_id else partition.leader
                yield PartitionChange(
                    topic.name, topic.id, partition, changed(partition, leader=leader, isr=others)
                )
            elif partition.leader == broker_id:
                new = replace(
                    partition,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
                yield PartitionChange(topic.name, topic.id, partition, new)
