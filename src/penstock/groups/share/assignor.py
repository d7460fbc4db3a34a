"""The `simple` assignor of share groups: computes a new target assignment from the previous one.

If there are more members than partitions, each member gets one partition, and the members are spread evenly
over the partitions. Otherwise each partition has one member, and the members have the same number of
partitions, plus or minus one. Previous assignments are kept if possible. Pure; the order of members and
partitions does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from penstock.groups.consumer.assignors import Partitions

TopicPartition = tuple[UUID, int]


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    targets: Mapping[str, Partitions],
    partition_counts: Mapping[UUID, int],
) -> dict[str, Partitions]:
    """`subscriptions`: the topics of each member; `targets`: the previous target of each."""
    members = sorted(subscriptions)
    held = {
        member: {(topic, number) for topic, numbers in targets.get(member, {}).items() for number in numbers}
        for member in members
    }
    found: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for topics in _rounds(subscriptions):
        subscribed = [member for member in members if topics <= subscriptions[member]]
        partitions = [
            (topic, number) for topic in sorted(topics) for number in range(partition_counts.get(topic, 0))
        ]
        if not partitions:
            continue
        share = _few_members if len(subscribed) <= len(partitions) else _many_members
        share(subscribed, partitions, held, found)
    return {member: _by_topic(partitions) for member, partitions in found.items()}


def _rounds(subscriptions: Mapping[str, frozenset[UUID]]) -> list[frozenset[UUID]]:
    """All topics at once if all members have the same subscription, otherwise topic by topic."""
    wanted = set(subscriptions.values())
    if len(wanted) == 1:
        return list(wanted)
    return [frozenset((topic,)) for topic in sorted(frozenset().union(*wanted))] if wanted else []


def _few_members(
    members: Sequence[str],
    partitions: Sequence[TopicPartition],
    held: Mapping[str, set[TopicPartition]],
    found: Mapping[str, set[TopicPartition]],
) -> None:
    """Each partition gets one member."""
    least, more = divmod(len(partitions), len(members))
    sizes = dict.fromkeys(members, 0)
    left = []
    owners: dict[TopicPartition, str] = {}
    for member in members:
        for partition in held[member]:
            owners.setdefault(partition, member)
    for partition in partitions:
        owner = owners.get(partition)
        if owner is None or sizes[owner] >= least + (1 if more else 0):
            left.append(partition)
            continue
        if sizes[owner] == least:
            more -= 1
        sizes[owner] += 1
        found[owner].add(partition)
    for partition in left:
        owner = min(members, key=lambda member: (sizes[member], member))
        sizes[owner] += 1
        found[owner].add(partition)


def _many_members(
    members: Sequence[str],
    partitions: Sequence[TopicPartition],
    held: Mapping[str, set[TopicPartition]],
    found: Mapping[str, set[TopicPartition]],
) -> None:
    """Each member gets one partition."""
    least, more = divmod(len(members), len(partitions))
    sizes = dict.fromkeys(partitions, 0)
    left = []
    for member in members:
        kept = next(
            (
                partition
                for partition in sorted(held[member])
                if partition in sizes and sizes[partition] < least + (1 if more else 0)
            ),
            None,
        )
        if kept is None:
            left.append(member)
            continue
        if sizes[kept] == least:
            more -= 1
        sizes[kept] += 1
        found[member].add(kept)
    for member in left:
        partition = min(partitions, key=lambda one: (sizes[one], one))
        sizes[partition] += 1
        found[member].add(partition)


def _by_topic(partitions: set[TopicPartition]) -> Partitions:
    topics: dict[UUID, set[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in topics.items()}
