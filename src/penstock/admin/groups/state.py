"""The groups of a cluster: members, committed offsets, and lag.

Lag has two units: records (end offset minus committed offset), and seconds (the age of the oldest record that
was not consumed). Users care about the second one; it requires reading one record of each partition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.admin.cluster import LATEST, Cluster
from penstock.admin.failure import CommandFailed
from penstock.admin.groups.classic import find_classic_group
from penstock.admin.groups.model import (
    Group,
    ListedGroup,
    Member,
    PartitionLag,
    TopicPartitionKey,
    UnknownGroup,
)
from penstock.admin.groups.share import find_share_group, share_start_offsets
from penstock.admin.wire_client import WireCluster, check, failure
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from confluent_kafka import Consumer

STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
TYPES = ("classic", "consumer", "share", "streams")
_STATE_NAMES = {  # confluent-kafka's names
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
_POLL_SECONDS = 0.1


# Listing


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Every group, by id."""
    # Not librdkafka's listing: that omits share groups, and does not know every state.
    found: dict[str, ListedGroup] = {}

    def ask() -> None:
        for broker in wire.brokers():
            answer = broker.request(ApiKey.LIST_GROUPS, Message(states_filter=[], types_filter=[]))
            check(answer.error_code)
            for each in answer.groups:
                found[each.group_id] = ListedGroup(
                    each.group_id,
                    (each.group_type or "Unknown").lower(),
                    each.group_state or "Unknown",
                    each.protocol_type,
                )

    with WireCluster(cluster) as wire:
        try:
            wire.retry(ask)
        except ApiError as error:
            raise failure(error, "cannot list groups") from error
    return sorted(found.values(), key=lambda each: each.group)


def _state_name(state: Any) -> str:
    name: str = state.name
    return _STATE_NAMES.get(name, name.title())


# Describing


def find_groups(cluster: Cluster, names: Sequence[str]) -> dict[str, Group | None]:
    """The groups without their offsets; None for an id without a group."""
    from confluent_kafka import KafkaError, KafkaException

    if not names:
        return {}
    futures = cluster.admin.describe_consumer_groups(list(names), request_timeout=cluster.timeout)
    found: dict[str, Group | None] = {}
    for name, future in futures.items():
        try:
            found[name] = _group(name, future.result())
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                found[name] = None
            # Not a group of consumers, or its assignment cannot be decoded.
            elif code in (KafkaError._DESTROY, KafkaError._INVALID_ARG):
                found[name] = find_classic_group(cluster, name)
            else:
                raise cluster.failure(error, f"cannot describe group '{name}'") from error
    return found


def _group(name: str, found: Any) -> Group | None:
    state = _state_name(found.state)
    if state == "Dead" and not found.members:
        return None  # how brokers before KIP-1043 report that the group does not exist
    node = found.coordinator
    return Group(
        name,
        found.type.name.lower(),
        state,
        found.partition_assignor or "",
        f"{node.host}:{node.port}" if node is not None else "",
        tuple(sorted((_member(each) for each in found.members), key=lambda m: (m.client_id, m.member_id))),
    )


def _member(found: Any) -> Member:
    assigned = found.assignment.topic_partitions if found.assignment is not None else []
    return Member(
        found.member_id,
        found.client_id,
        found.host,
        found.group_instance_id or None,
        tuple(sorted((each.topic, each.partition) for each in assigned)),
    )


def describe_groups(cluster: Cluster, names: Sequence[str], topics: Sequence[str] = ()) -> list[Group]:
    """The groups, which must exist, with the lag of their partitions (only of `topics`, if given)."""
    found = find_groups(cluster, names)
    committed = committed_offsets(cluster, [name for name, group in found.items() if group is not None])
    groups: list[Group] = []
    for name, group in found.items():
        if group is None:
            group = _other_group(cluster, name)
            committed[name] = share_start_offsets(cluster, [name]).get(name, {})
        groups.append(group)
    wanted: dict[str, dict[TopicPartitionKey, Member | None]] = {}
    for group in groups:
        owners: dict[TopicPartitionKey, Member | None] = dict.fromkeys(committed[group.group])
        for member in group.members:
            # Members of a share group share partitions.
            owners.update(dict.fromkeys(member.assignment, None if group.type == "share" else member))
        wanted[group.group] = {
            key: owner for key, owner in sorted(owners.items()) if not topics or key[0] in topics
        }
    ends = end_offsets(cluster, {key for owners in wanted.values() for key in owners})
    behind = {
        (key, offset)
        for group, owners in wanted.items()
        for key in owners
        if (offset := committed[group].get(key)) is not None and offset < ends.get(key, 0)
    }
    ages = lag_seconds(cluster, behind)
    return [
        replace(
            group,
            partitions=tuple(
                _partition_lag(key, committed[group.group].get(key), ends.get(key), ages, member)
                for key, member in wanted[group.group].items()
            ),
        )
        for group in groups
    ]


def _other_group(cluster: Cluster, name: str) -> Group:
    """A group that the client does not support: a share group, or none."""
    listed = {each.group: each for each in list_groups(cluster)}
    if name not in listed:
        raise UnknownGroup(name, listed)
    if listed[name].type != "share":
        raise CommandFailed(
            f"'{name}' is a group of type {listed[name].type} (protocol '{listed[name].protocol}'), "
            "whose members and offsets cannot be shown."
        )
    return find_share_group(cluster, name)


def _partition_lag(
    key: TopicPartitionKey,
    committed: int | None,
    end: int | None,
    ages: Mapping[tuple[TopicPartitionKey, int], float | None],
    member: Member | None,
) -> PartitionLag:
    topic, partition = key
    if committed is None or end is None:
        return PartitionLag(topic, partition, committed, end, None, None, member)
    lag = max(0, end - committed)
    seconds = ages.get((key, committed)) if lag else 0.0
    return PartitionLag(topic, partition, committed, end, lag, seconds, member)


def committed_offsets(cluster: Cluster, groups: Sequence[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """What each group has committed, by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures: dict[str, Any] = {}
    for group in groups:  # all at once: the client takes one group per call
        request = [ConsumerGroupTopicPartitions(group)]
        futures |= cluster.admin.list_consumer_group_offsets(request, request_timeout=cluster.timeout)
    found: dict[str, dict[TopicPartitionKey, int]] = {}
    for group, future in futures.items():
        doing = f"cannot fetch the offsets of group '{group}'"
        offsets = found[group] = {}
        for each in cluster.wait(future, doing).topic_partitions or ():
            if each.error is not None:
                raise cluster.failure(each.error, doing)
            if each.offset >= 0:
                offsets[each.topic, each.partition] = each.offset
    return found


def end_offsets(cluster: Cluster, partitions: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
    """The end offsets of the partitions that (still) exist and have a leader."""
    wanted = sorted(partitions)
    if not wanted:
        return {}
    known = cluster.topics()
    led = {
        (topic, each.index)
        for topic in {topic for topic, _ in wanted} & known.keys()
        for each in known[topic].partitions
        if each.leader >= 0
    }
    answers = cluster.offsets_of([key for key in wanted if key in led], LATEST)
    return {key: answer.offset for key, answer in answers.items()}


# Ages


def lag_seconds(
    cluster: Cluster, places: Iterable[tuple[TopicPartitionKey, int]]
) -> dict[tuple[TopicPartitionKey, int], float | None]:
    """The age of the first record at or after each offset.

    0 if only transaction markers are left, None if the cluster does not respond in time.
    """
    left: dict[TopicPartitionKey, list[int]] = {}
    for key, offset in sorted(places):
        left.setdefault(key, []).append(offset)
    if not left:
        return {}
    # One fetch is enough for one record; if retention has passed an offset, read from the log start.
    settings = {
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 10,
        "fetch.message.max.bytes": 16_384,
        "queued.min.messages": 1,
    }
    ages: dict[tuple[TopicPartitionKey, int], float | None] = {}
    # Several groups can be at several places of one partition, which is assigned only once at a time; and a
    # consumer that is assigned a partition again can give out what it had fetched of it before.
    while left:
        places_now = {key: offsets.pop(0) for key, offsets in left.items()}
        left = {key: offsets for key, offsets in left.items() if offsets}
        consumer = cluster.consumer(settings)
        try:
            stamps = _first_timestamps(consumer, places_now, time.monotonic() + cluster.timeout)
        finally:
            consumer.close()
        now = time.time() * 1000
        for key, offset in places_now.items():
            stamp = stamps.get(key)
            ages[key, offset] = None if stamp is None else round(max(0.0, now - stamp) / 1000, 3)
    return ages


def _first_timestamps(
    consumer: Consumer, places: Mapping[TopicPartitionKey, int], deadline: float
) -> dict[TopicPartitionKey, float]:
    """The timestamp of the first record from each offset on; infinity if there is none."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, TopicPartition

    consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in places.items()])
    open_keys = set(places)
    stamps: dict[TopicPartitionKey, float] = {}
    while open_keys and time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            continue
        topic, partition = message.topic(), message.partition()
        error = message.error()
        if topic is None or partition is None or partition < 0:
            continue  # of no partition: about connections, which librdkafka opens again
        key = (topic, partition)
        if key not in open_keys:
            continue  # was in flight already
        if error is None:
            kind, stamp = message.timestamp()
            if kind != TIMESTAMP_NOT_AVAILABLE:
                stamps[key] = stamp
        elif error.code() == KafkaError._PARTITION_EOF:
            stamps[key] = math.inf
        open_keys.discard(key)
        consumer.pause([TopicPartition(topic, partition)])
    return stamps
