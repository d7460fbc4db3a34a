"""Encodes topics for Metadata responses."""

from __future__ import annotations

from collections.abc import Collection

from penstock.broker.security.authorization.operations import NOT_ASKED
from penstock.controller.topics import check_topic_name
from penstock.errors import ApiError, LeaderNotAvailable, ListenerNotFound, UnknownTopicOrPartition
from penstock.metadata.image import INTERNAL_TOPICS, TopicImage
from penstock.wire.codec import Message


def why_unknown(name: str) -> int:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return UnknownTopicOrPartition.code


def topic_message(
    topic: TopicImage, operations: int, reachable: Collection[int], known: Collection[int]
) -> Message:
    """`reachable` are the brokers that have the listener of the request, `known` are all brokers that clients
    see. As in Kafka, a leader that does not have the listener is not returned."""
    partitions = [
        Message(
            error_code=_code(partition.leader, reachable, known),
            partition_index=partition.index,
            leader_id=partition.leader if partition.leader in reachable else -1,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=partition.offline,
        )
        for partition in topic.partitions
    ]
    return Message(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _code(leader: int, reachable: Collection[int], known: Collection[int]) -> int:
    if leader in reachable:
        return 0
    return ListenerNotFound.code if leader in known else LeaderNotAvailable.code


def failed_topic(name: str | None, topic_id: object, code: int) -> Message:
    return Message(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=NOT_ASKED,
    )
