"""The server-side assignors, by name: they compute a new target assignment from the previous one.

Pure functions: `assign(spec) -> {member id: {topic id: partitions}}`. Both return the same result for the
same spec, whatever the order of its dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from penstock.groups.consumer.levelling import Key, Levels

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions of several topics, by topic id. Topics without partitions are left out."""

NOTHING: Partitions = {}


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member for an assignor: its subscribed topics that exist, and its previous target assignment."""

    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


Assignment = dict[str, Partitions]
Assignor = Callable[[GroupSpec], Assignment]


def assign_range(spec: GroupSpec) -> Assignment:
    """Assigns a contiguous range of each topic to each subscribed member, in the same order of members for
    all topics.

    So topics with the same number of partitions and the same members are co-partitioned. Static members come
    first, sorted by instance id, because an instance id survives a restart and a member id does not.
    """
    order = sorted(
        spec.members,
        key=lambda member_id: (
            spec.members[member_id].instance_id is None,
            spec.members[member_id].instance_id or member_id,
        ),
    )
    subscribers: dict[UUID, list[str]] = {}
    for member_id in order:
        for topic in spec.members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic, members in subscribers.items():
        quota, extra = divmod(spec.partition_counts[topic], len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + quota + (index < extra)
            if start < end:
                assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def assign_uniform(spec: GroupSpec) -> Assignment:
    """Assigns the same number of partitions to each member, plus or minus one, with as few moves as possible.

    If members subscribe to different topics, the numbers are as even as the subscriptions allow: no sequence
    of moves could take a partition from a member to one that has at least two fewer. levelling.py has the
    limits.
    """
    topics = [member.topics for member in spec.members.values()]
    if all(wanted == topics[0] for wanted in topics):
        return _Shares(spec).even()
    return _Shares(spec).levelled()


class _Shares:
    """The assignment during the computation. Starts with the previous targets that are still subscribed."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._order = sorted(spec.members)
        self._share: dict[str, list[Key]] = {}
        counts = spec.partition_counts
        taken: set[Key] = set()
        for member_id in self._order:
            member = spec.members[member_id]
            share: list[Key] = []
            for topic in sorted(member.target.keys() & member.topics):
                count = counts[topic]
                for partition in sorted(member.target[topic]):
                    key = (topic, partition)
                    if partition < count and key not in taken:
                        taken.add(key)
                        share.append(key)
            self._share[member_id] = share
        wanted = sorted(frozenset[UUID]().union(*(member.topics for member in spec.members.values())))
        self._free = [
            (topic, partition)
            for topic in wanted
            for partition in range(counts[topic])
            if (topic, partition) not in taken
        ]

    def even(self) -> Assignment:
        """All members have the same subscriptions: each gets a quota."""
        share, free = self._share, self._free
        if not share:
            return {}
        quota, extra = divmod(sum(map(len, share.values())) + len(free), len(share))
        # Members with the most partitions get the remainder, because that needs the fewest moves.
        order = sorted(self._order, key=lambda member_id: -len(share[member_id]))
        limits = {member_id: quota + (index < extra) for index, member_id in enumerate(order)}
        for member_id, limit in limits.items():
            mine = share[member_id]
            if len(mine) > limit:
                free += mine[limit:]
                del mine[limit:]
        free.sort(reverse=True)
        for member_id in reversed(order):
            mine = share[member_id]
            while len(mine) < limits[member_id]:
                mine.append(free.pop())
        return self._result()

    def levelled(self) -> Assignment:
        """Members have different subscriptions."""
        topics = {member_id: member.topics for member_id, member in self._spec.members.items()}
        self._share = Levels(self._share, topics).level(self._free)
        return self._result()

    def _result(self) -> Assignment:
        result: Assignment = {}
        for member_id, keys in self._share.items():
            by_topic: dict[UUID, set[int]] = {}
            for topic, partition in keys:
                by_topic.setdefault(topic, set()).add(partition)
            result[member_id] = {topic: frozenset(numbers) for topic, numbers in by_topic.items()}
        return result


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""In the order of group.consumer.assignors: the first is the default."""
