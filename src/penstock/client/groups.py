"""Requests about groups beyond offsets: their list, and the metadata of commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.client.brokers import check
from penstock.client.cluster import Cluster, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

_BY_NAME = 9  # the newest version of OffsetFetch that identifies topics by name


class GroupListing(NamedTuple):
    """`state` is empty if the broker is older than Kafka 2.6 and does not report it."""

    protocol_type: str
    state: str


class Committed(NamedTuple):
    offset: int
    metadata: str


def list_groups(cluster: Cluster) -> frozenset[str]:
    """The ids of all groups that this client may see."""
    return frozenset(describe_groups(cluster))


def describe_groups(cluster: Cluster) -> dict[str, GroupListing]:
    """All groups that this client may see: each broker returns those that it coordinates."""
    brokers = cluster._brokers

    def ask() -> dict[str, GroupListing]:
        found: dict[str, GroupListing] = {}
        brokers.metadata([])
        for node_id in brokers.node_ids():
            answer = brokers.broker(node_id).request(
                ApiKey.LIST_GROUPS, Message(states_filter=[], types_filter=[])
            )
            check(answer.error_code, f"the groups of broker {node_id}")
            for each in answer.groups:
                found[each.group_id] = GroupListing(each.protocol_type, each.group_state or "")
        return found

    return brokers.retry("listing the groups", ask)


def committed_metadata(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """The metadata committed with each partition's offset, for partitions that have an offset."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    asked = [Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    return {place: each.metadata for place, each in _fetch_offsets(cluster, group, asked).items()}


def all_committed(cluster: Cluster, group: str) -> dict[TopicPartition, Committed]:
    """Every offset that the group has committed."""
    return _fetch_offsets(cluster, group, None)


def _fetch_offsets(
    cluster: Cluster, group: str, asked: list[Message] | None
) -> dict[TopicPartition, Committed]:
    """For the given partitions, or all of them if None."""
    brokers = cluster._brokers

    def ask() -> dict[TopicPartition, Committed]:
        coordinator = brokers.coordinator(group)
        one_group = Message(group_id=group, member_id=None, member_epoch=-1, topics=asked)
        request = Message(group_id=group, topics=asked, groups=[one_group], require_stable=False)
        answer = coordinator.request(ApiKey.OFFSET_FETCH, request, at_most=_BY_NAME)
        if coordinator.version(ApiKey.OFFSET_FETCH, _BY_NAME) >= 8:
            answer = answer.groups[0]
        check(answer.error_code, f"group {group}")
        return {
            (each.name, one.partition_index): Committed(one.committed_offset, one.metadata or "")
            for each in answer.topics
            for one in each.partitions
            if not one.error_code and one.committed_offset >= 0
        }

    return brokers.retry(f"reading the offsets of group {group}", ask)
