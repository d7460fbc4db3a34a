"""Resets a group's committed offsets: chooses partitions, computes the new offsets, and commits them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.admin.cluster import EARLIEST, LATEST, Cluster, choose_partitions
from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.groups.model import Group, TopicPartitionKey
from penstock.admin.groups.state import find_groups
from penstock.admin.positions import Position, find_range
from penstock.admin.words import plural


@dataclass(frozen=True, slots=True)
class Move:
    """The committed offset of a partition (None: none) and its new value."""

    topic: str
    partition: int
    committed: int | None
    new: int


def busy(group: Group | None) -> CommandFailed | None:
    """Why the group's offsets cannot be reset now: it has members."""
    if group is None or not group.members:
        return None
    clients = sorted({f"{member.client_id} at {member.host.lstrip('/')}" for member in group.members})
    more = "" if len(clients) <= 3 else f" and {len(clients) - 3} more"
    return CommandFailed(
        f"group '{group.group}' has {plural(len(group.members), 'active member')} "
        f"({', '.join(clients[:3])}{more}): stop every member first."
    )


def choose(
    cluster: Cluster,
    committed: Mapping[TopicPartitionKey, int],
    topics: Sequence[str],
    partitions: Sequence[int] = (),
    on_missing: Callable[[str], object] = lambda sentence: None,
) -> dict[str, list[int]]:
    """The partitions to reset: those of `topics`, or all committed ones that still exist."""
    known = cluster.topics()
    chosen: dict[str, list[int]] = {}
    if topics:
        for topic in topics:
            if topic not in known:
                raise UnknownTopic(topic, known)
            chosen[topic] = choose_partitions(known[topic], partitions)
        return chosen
    for topic, partition in sorted(committed):
        if topic in known and partition < len(known[topic].partitions):
            chosen.setdefault(topic, []).append(partition)
        else:
            on_missing(f"{topic}-{partition} does not exist; its offset is unchanged.")
    return chosen


def plan(
    cluster: Cluster,
    chosen: Mapping[str, Sequence[int]],
    committed: Mapping[TopicPartitionKey, int],
    position: Position | int,
) -> list[Move]:
    """The new offset of each chosen partition."""
    moves: list[Move] = []
    for topic, partitions in chosen.items():
        if isinstance(position, int):
            earliest = {p: o.offset for p, o in cluster.offsets(topic, partitions, EARLIEST).items()}
            latest = {p: o.offset for p, o in cluster.offsets(topic, partitions, LATEST).items()}
            here = {p: committed[topic, p] for p in partitions if (topic, p) in committed}
            target = shifted(here, position, earliest, latest)
            missing = [p for p in partitions if p not in target]
            if missing:
                raise CommandFailed(
                    f"{topic}-{missing[0]} has no committed offset to shift from: "
                    "use --to-earliest or --to-latest, or name partitions with --partition."
                )
        else:
            target = find_range(cluster, topic, partitions, position, read_committed=False)[0]
        moves += [Move(topic, p, committed.get((topic, p)), target[p]) for p in partitions]
    return moves


def shifted(
    committed: Mapping[int, int], by: int, earliest: Mapping[int, int], latest: Mapping[int, int]
) -> dict[int, int]:
    """Each committed offset shifted by `by`, limited to the offsets of its partition."""
    return {p: min(max(offset + by, earliest[p]), latest[p]) for p, offset in committed.items()}


def execute(cluster: Cluster, group: str, moves: Sequence[Move]) -> None:
    """Commit the new offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

    targets = [TopicPartition(move.topic, move.partition, move.new) for move in moves]
    request = [ConsumerGroupTopicPartitions(group, targets)]
    futures = cluster.admin.alter_consumer_group_offsets(request, request_timeout=cluster.timeout)
    (future,) = futures.values()
    try:
        answer: Any = future.result()
        for each in answer.topic_partitions:
            if each.error is not None:
                raise KafkaException(each.error)
    except KafkaException as error:
        joined = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS)
        if error.args[0].code() in joined:
            why = busy(find_groups(cluster, [group])[group])
            if why is not None:  # somebody has joined in the meantime
                raise why from error
        raise cluster.failure(error, f"cannot move the offsets of group '{group}'") from error
