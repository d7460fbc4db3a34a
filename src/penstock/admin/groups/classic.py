"""Describes classic groups that confluent-kafka's admin client cannot describe.

It only supports consumers, and fails for a group whose assignment it cannot decode; such a group has offsets
and members all the same.
"""

from __future__ import annotations

from penstock.admin.cluster import Cluster
from penstock.admin.groups.model import Group, Member, TopicPartitionKey
from penstock.admin.wire_client import GROUP, WireCluster, check, failure
from penstock.errors import ApiError, WireError
from penstock.groups.consumer.embedded import PROTOCOL_TYPE, read_assignment
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message


def find_classic_group(cluster: Cluster, name: str) -> Group:
    """The group, which must exist, without its offsets."""

    def ask() -> Group:
        coordinator = wire.coordinator(name, GROUP)
        request = Message(groups=[name], include_authorized_operations=False)
        (found,) = coordinator.request(ApiKey.DESCRIBE_GROUPS, request).groups
        check(found.error_code, getattr(found, "error_message", None))
        members = [_member(each, found.protocol_type) for each in found.members]
        members.sort(key=lambda each: (each.client_id, each.member_id))
        return Group(
            name, "classic", found.group_state, found.protocol_data, coordinator.address, tuple(members)
        )

    with WireCluster(cluster) as wire:
        try:
            return wire.retry(ask)
        except ApiError as error:
            raise failure(error, f"cannot describe group '{name}'") from error


def _member(found: Message, protocol_type: str) -> Member:
    assigned = _assigned(found.member_assignment) if protocol_type == PROTOCOL_TYPE else None
    return Member(
        found.member_id,
        found.client_id,
        found.client_host,
        found.group_instance_id or None,
        assigned or (),
        is_readable=assigned is not None,
    )


def _assigned(raw: bytes) -> tuple[TopicPartitionKey, ...] | None:
    try:
        by_topic = read_assignment(raw)
    except WireError:
        return None
    return tuple(sorted((topic, index) for topic, indexes in by_topic.items() for index in indexes))
