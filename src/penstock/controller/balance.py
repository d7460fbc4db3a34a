"""Preferred and unclean elections: on request, and to balance leadership automatically. Pure.

The preferred leader is the first replica. It is elected if it is alive and in sync: immediately on request
(ElectLeaders), and automatically if a broker leads too few of the partitions that prefer it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from penstock.controller.elections import PartitionChange, changed, elect
from penstock.controller.reassignment import is_moving
from penstock.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage

PREFERRED, UNCLEAN = 0, 1
Key = tuple[str, int]


def plan_elections(
    image: ClusterImage, wanted: Iterable[Key], election: int
) -> dict[Key, PartitionChange | ApiError | None]:
    """For each partition its change, or the error."""
    found: dict[Key, PartitionChange | ApiError | None] = {}
    for topic, index in wanted:
        partition = image.partition(topic, index)
        try:
            if partition is None:
                raise UnknownTopicOrPartition(f"No such partition as {topic}-{index}")
            decide = _unclean if election == UNCLEAN else _preferred
            new = decide(partition, image.brokers.keys(), image.unfit(topic, index))
            found[topic, index] = PartitionChange(topic, image.topics[topic].id, partition, new)
        except ApiError as error:
            found[topic, index] = error
    return found


def _preferred(partition: PartitionImage, live: Collection[int], unfit: Collection[int]) -> PartitionImage:
    first = partition.replicas[0]
    if partition.leader == first:
        raise ElectionNotNeeded()
    if not _can_lead(partition, first, live, unfit):
        raise PreferredLeaderNotAvailable()
    return changed(partition, leader=first)


def _unclean(partition: PartitionImage, live: Collection[int], unfit: Collection[int]) -> PartitionImage:
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded()
    new = elect(partition, live, unfit, unclean=True)
    if new.leader == NO_LEADER:
        raise EligibleLeadersNotAvailable()
    return new


def _can_lead(partition: PartitionImage, broker: int, live: Collection[int], unfit: Collection[int]) -> bool:
    return broker in live and broker not in unfit and broker in partition.isr


def give_back(image: ClusterImage, percentage: int) -> dict[Key, PartitionChange | ApiError | None]:
    """The preferred elections that balance leadership: for brokers that lead too few of the partitions that
    prefer them.

    Up to `percentage` of these partitions may have another leader. Partitions that are being reassigned are
    left alone until that is complete.
    """
    live = image.brokers.keys()
    preferring: Counter[int] = Counter()
    away: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferring[first] += 1
            if partition.leader != first:
                away.setdefault(first, []).append((topic, partition))
    return {
        (topic.name, partition.index): PartitionChange(
            topic.name, topic.id, partition, changed(partition, leader=broker)
        )
        for broker, partitions in away.items()
        if broker in live and len(partitions) * 100 > percentage * preferring[broker]
        for topic, partition in partitions
        if not is_moving(partition)
        and _can_lead(partition, broker, live, image.unfit(topic.name, partition.index))
    }
