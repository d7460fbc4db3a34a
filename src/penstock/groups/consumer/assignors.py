"""The assignors that run on the server, by name: what is to be whose, from what was whose.

Pure functions: `assign(spec) -> {member id: {topic id: partitions}}`. Both give the same answer for the same
spec, whatever the order of its dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions of several topics, by topic id. Topics without partitions are left out."""

NOTHING: Partitions = {}


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it: the topics there are of those it wants, and what it was to have."""

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
    """Of each topic a contiguous range to each of its members, in one order of members for all topics.

    So topics with the same number of partitions and the same members are co-partitioned. Static members come
    first, by their names, as these outlive a restart and a member id does not.
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
    """Everybody the same number of partitions, give or take one, and as few moves as that allows.

    Where members want different topics, the numbers are as even as the subscriptions allow: no sequence of
    moves would make a fuller member give to one that has two less.
    """
    topics = [member.topics for member in spec.members.values()]
    if all(wanted == topics[0] for wanted in topics):
        return _Shares(spec).even()
    return _Shares(spec).levelled()


_Partition = tuple[UUID, int]


class _Shares:
    """Who has what while it is worked out. Begins with what everybody was to have and still wants."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._order = sorted(spec.members)
        self._share: dict[str, list[_Partition]] = {}
        counts = spec.partition_counts
        taken: set[_Partition] = set()
        for member_id in self._order:
            member = spec.members[member_id]
            share: list[_Partition] = []
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
        """All want the same: quotas say how many each may have."""
        share, free = self._share, self._free
        if not share:
            return {}
        quota, extra = divmod(sum(map(len, share.values())) + len(free), len(share))
        # Those with the most keep the odd ones: that moves the least.
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
        share = self._share
        subscribers: dict[UUID, list[str]] = {}
        for member_id in self._order:
            for topic in self._spec.members[member_id].topics:
                subscribers.setdefault(topic, []).append(member_id)
        # Topics with few takers first: the others can make up for it.
        self._free.sort(key=lambda key: (len(subscribers[key[0]]), key))
        for key in self._free:
            least = min(subscribers[key[0]], key=lambda member_id: len(share[member_id]))
            share[least].append(key)
        stuck: set[str] = set()
        while True:
            giver = max((m for m in self._order if m not in stuck), key=lambda m: len(share[m]), default=None)
            if giver is None or len(share[giver]) - min(map(len, share.values())) < 2:
                return self._result()
            path = self._path_to_a_poorer_one(giver, subscribers)
            if path is None:
                stuck.add(giver)
            else:
                for source, key, taker in path:
                    share[source].remove(key)
                    share[taker].append(key)
                # What was handed on may have opened ways for others that had none.
                stuck.clear()

    def _path_to_a_poorer_one(
        self, giver: str, subscribers: Mapping[UUID, list[str]]
    ) -> list[tuple[str, _Partition, str]] | None:
        """The shortest chain of hand-overs from `giver` to a member with at least two partitions less."""
        share = self._share
        limit = len(share[giver]) - 2
        came_from: dict[str, tuple[str, _Partition]] = {}
        seen_topics: set[UUID] = set()
        queue = [giver]
        for member_id in queue:
            for key in reversed(share[member_id]):
                topic = key[0]
                if topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in subscribers[topic]:
                    if taker in came_from or taker == giver:
                        continue
                    came_from[taker] = (member_id, key)
                    if len(share[taker]) <= limit:
                        return _walk_back(came_from, giver, taker)
                    queue.append(taker)
        return None

    def _result(self) -> Assignment:
        result: Assignment = {}
        for member_id, keys in self._share.items():
            by_topic: dict[UUID, set[int]] = {}
            for topic, partition in keys:
                by_topic.setdefault(topic, set()).add(partition)
            result[member_id] = {topic: frozenset(numbers) for topic, numbers in by_topic.items()}
        return result


def _walk_back(
    came_from: Mapping[str, tuple[str, _Partition]], giver: str, taker: str
) -> list[tuple[str, _Partition, str]]:
    path = []
    while taker != giver:
        source, key = came_from[taker]
        path.append((source, key, taker))
        taker = source
    return path


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""In the order of group.consumer.assignors: a group whose members do not choose gets the first."""
