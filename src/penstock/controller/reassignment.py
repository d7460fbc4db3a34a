"""Partition reassignments (KIP-455): start, complete, cancel. Pure; stores nothing.

During a reassignment a partition has the target replicas first, then the replicas to remove; `adding` and
`removing` say which. The reassignment completes when all target replicas are in sync; only then are the
others removed. The target may be replaced during a reassignment: a replica that is in neither the old
assignment nor the new target is in both lists, so that it is removed however the reassignment ends.

Removing a replica always raises the leader epoch, even if the leader stays: what the leader knows about that
replica's log must not count when the replica is added again with an empty log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.controller.elections import PartitionChange, elect
from penstock.errors import (
    ApiError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import ClusterImage, PartitionImage

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested replicas of one partition; None cancels its reassignment."""

    topic: str
    index: int
    replicas: tuple[int, ...] | None


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas after the reassignment."""
    return tuple(replica for replica in partition.replicas if replica not in partition.removing)


def find(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    found = image.topics.get(topic)
    if found is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {topic}.")
    if not 0 <= index < len(found.partitions):
        raise UnknownTopicOrPartition(f"Unable to find partition {topic}:{index}.")
    return found.partitions[index]


def plan_reassignments(
    image: ClusterImage, wanted: Sequence[Wanted], unclean: Collection[str], *, other_factor: bool = True
) -> dict[Key, PartitionChange | ApiError | None]:
    """For each partition its change, the error, or None if it already is as requested.

    `unclean` are the topics that allow unclean elections; without `other_factor` a partition must keep its
    replication factor.
    """
    found: dict[Key, PartitionChange | ApiError | None] = {}
    for one in wanted:
        try:
            partition = find(image, one.topic, one.index)
            if one.replicas is None:
                new: PartitionImage | None = _cancelled(image, partition, one, one.topic in unclean)
            else:
                _check(image, partition, one.replicas, other_factor)
                new = _begun(partition, one.replicas)
        except ApiError as error:
            found[one.topic, one.index] = error
        else:
            topic_id = image.topics[one.topic].id
            change = None if new is None else PartitionChange(one.topic, topic_id, partition, new)
            found[one.topic, one.index] = change
    return found


def _check(
    image: ClusterImage, partition: PartitionImage, target: tuple[int, ...], other_factor: bool
) -> None:
    if not target:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    if len(set(target)) < len(target):
        raise InvalidReplicaAssignment(
            f"The manual partition assignment {list(target)} includes a broker more than once."
        )
    for broker in target:
        if broker not in image.brokers and broker not in partition.replicas:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
    if not other_factor and len(target) != len(target_of(partition)):
        raise InvalidReplicationFactor(
            f"The replication factor is {len(target_of(partition))}, and {len(target)} replicas were given."
        )


def _begun(partition: PartitionImage, target: tuple[int, ...]) -> PartitionImage | None:
    original = [replica for replica in partition.replicas if replica not in partition.adding]
    removing = tuple(replica for replica in partition.replicas if replica not in target)
    adding = tuple(replica for replica in target if replica not in original)
    adding += tuple(replica for replica in removing if replica in partition.adding)
    shape = (target + removing, adding, removing)
    if shape == (partition.replicas, partition.adding, partition.removing):
        return None
    return replace(
        partition,
        replicas=target + removing,
        adding=adding,
        removing=removing,
        partition_epoch=partition.partition_epoch + 1,
    )


def _cancelled(image: ClusterImage, partition: PartitionImage, one: Wanted, unclean: bool) -> PartitionImage:
    if not is_moving(partition):
        raise NoReassignmentInProgress("No partition reassignment is in progress.")
    original = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    isr = tuple(replica for replica in partition.isr if replica in original)
    live = image.brokers.keys()
    if live.isdisjoint(isr) and (not isr or not live.isdisjoint(partition.isr)):
        # Only the replicas to be removed, and possibly an offline one, have the acknowledged records.
        alive = [replica for replica in original if replica in live]
        if not unclean or not alive:
            raise InvalidReplicaAssignment(
                f"Unable to revert partition assignment for {one.topic}:{one.index} because it would require "
                "an unclean leader election."
            )
        isr = (alive[0],)
    return _shaped(image, one.topic, partition, original, isr)


def completions(image: ClusterImage) -> Iterator[PartitionChange]:
    """The changes that complete reassignments whose target is in sync: they remove the other replicas."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if not (partition.adding or partition.removing):
                continue
            target = target_of(partition)
            if all(replica in partition.isr for replica in target) and any(
                replica in image.brokers for replica in target
            ):
                new = _shaped(image, topic.name, partition, target, target)
                yield PartitionChange(topic.name, topic.id, partition, new)


def _shaped(
    image: ClusterImage,
    topic: str,
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
) -> PartitionImage:
    """The partition with exactly these replicas, led by one of them."""
    shaped = replace(partition, replicas=replicas, isr=isr, adding=(), removing=())
    chosen = elect(shaped, image.brokers.keys(), image.unfit(topic, partition.index), unclean=False)
    return replace(
        chosen,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def under_way(
    image: ClusterImage, wanted: Mapping[str, Collection[int]] | None
) -> dict[str, list[PartitionImage]]:
    """The partitions with a reassignment in progress, of those requested (None: of all), by topic."""
    found: dict[str, list[PartitionImage]] = {}
    for name in image.topics if wanted is None else wanted:
        topic = image.topics.get(name)
        if topic is None:
            continue
        moving = [
            partition
            for partition in topic.partitions
            if is_moving(partition) and (wanted is None or partition.index in wanted[name])
        ]
        if moving:
            found[name] = moving
    return found
