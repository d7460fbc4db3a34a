"""Leader elections: the changes of leaders and in-sync replicas that an image needs. Pure; stores nothing.

The leader is the first alive replica of the ISR, in the order of the replica list. Every change of the leader
has a new leader epoch. The last in-sync replica stays in the ISR however long it is offline, because only it
is known to have all acknowledged records; another replica replaces it only if unclean elections are enabled.
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
    """The change applies only to the topic with this id, not to a recreated topic of the same name."""
    old: PartitionImage
    new: PartitionImage


def changed(
    partition: PartitionImage, *, leader: int | None = None, isr: tuple[int, ...] | None = None
) -> PartitionImage:
    """The partition with another leader (and a new leader epoch) or another ISR."""
    new_leader = partition.leader if leader is None else leader
    return replace(
        partition,
        leader=new_leader,
        isr=partition.isr if isr is None else isr,
        # "No leader" has a new epoch too: it fences the old leader, if that is still alive.
        leader_epoch=partition.leader_epoch + (new_leader != partition.leader),
        partition_epoch=partition.partition_epoch + 1,
    )


def elect(
    partition: PartitionImage, live: Collection[int], leaving: Collection[int], unclean: bool
) -> PartitionImage:
    """The partition after an election with these live brokers; unchanged if no election is needed.

    Brokers in `leaving` are alive, but are elected only if no other can be: they are shutting down, or cannot
    write the log.
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
        # Remove a broker that shuts down from the ISR now, so that produces do not wait for it.
        isr = tuple(replica for replica in isr if replica not in leaving)
    if leader == partition.leader and isr == partition.isr:
        return partition
    return changed(partition, leader=leader, isr=isr)


def reconcile(image: ClusterImage, unclean: Callable[[str], bool]) -> Iterator[PartitionChange]:
    """The changes that give every partition a leader, if one can be elected."""
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
    """The changes that a restarted broker makes before it registers, in case no controller noticed its
    absence.

    It may have lost the unflushed end of its logs. If another in-sync replica is alive, that one has all
    records: the broker gives up leadership and follows. Otherwise it is the best replica and leads with a new
    leader epoch, because offsets of lost records must not be assigned again in the same epoch.
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
