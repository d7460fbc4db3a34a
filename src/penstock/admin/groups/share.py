"""Share groups (KIP-932), which confluent-kafka's admin client does not support: members and start
offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.admin.cluster import Cluster
from penstock.admin.groups.model import Group, Member, TopicPartitionKey
from penstock.admin.wire_client import GROUP, WireCluster, check, failure
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message


def find_share_group(cluster: Cluster, name: str) -> Group:
    """The group, which must exist, without its offsets."""

    def ask() -> Group:
        coordinator = wire.coordinator(name, GROUP)
        request = Message(group_ids=[name], include_authorized_operations=False)
        (found,) = coordinator.request(ApiKey.SHARE_GROUP_DESCRIBE, request).groups
        check(found.error_code, found.error_message)
        members = sorted(map(_member, found.members), key=lambda each: (each.client_id, each.member_id))
        return Group(
            name, "share", found.group_state, found.assignor_name, coordinator.address, tuple(members)
        )

    with WireCluster(cluster) as wire:
        try:
            return wire.retry(ask)
        except ApiError as error:
            raise failure(error, f"cannot describe share group '{name}'") from error


def _member(found: Message) -> Member:
    assigned = tuple(
        sorted(
            (topic.topic_name, index)
            for topic in found.assignment.topic_partitions
            for index in topic.partitions
        )
    )
    return Member(found.member_id, found.client_id, found.client_host, None, assigned)


def share_start_offsets(cluster: Cluster, names: Sequence[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """Each group's start offsets: the first records that are not done. Partitions that were not read yet are
    omitted.

    So are groups that do not exist.
    """
    found: dict[str, dict[TopicPartitionKey, int]] = {}
    with WireCluster(cluster) as wire:
        for name in names:
            try:
                found[name] = wire.retry(partial(_start_offsets, wire, name))
            except ApiError as error:
                if error.kafka_name == "GROUP_ID_NOT_FOUND":
                    continue
                raise failure(error, f"cannot fetch the offsets of share group '{name}'") from error
    return found


def _start_offsets(wire: WireCluster, name: str) -> dict[TopicPartitionKey, int]:
    request = Message(groups=[Message(group_id=name, topics=None)])
    answer = wire.coordinator(name, GROUP).request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request)
    (group,) = answer.groups
    check(group.error_code, group.error_message)
    offsets: dict[TopicPartitionKey, int] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            check(partition.error_code, partition.error_message)
            if partition.start_offset >= 0:
                offsets[topic.topic_name, partition.partition_index] = partition.start_offset
    return offsets
