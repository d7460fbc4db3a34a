"""Shared by ShareFetch and ShareAcknowledge: applies acknowledgements, partition by partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ApiError, InvalidRequest
from penstock.groups.share.acknowledgements import Acknowledgement, check_acknowledgements
from penstock.groups.share.sessions import ShareSession, TopicIdPartition
from penstock.wire.message import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanFindEndpoints, HasImage, HasShare

    class ShareRequestsParts(CanFindEndpoints, HasImage, HasShare, Protocol): ...


Acknowledgements = dict[TopicIdPartition, list[Acknowledgement]]
Errors = dict[TopicIdPartition, ApiError | None]


def check_ids(request: Message) -> None:
    if not request.group_id:
        raise InvalidRequest("GroupId can't be empty.")
    if not request.member_id:
        raise InvalidRequest("MemberId can't be empty.")


def partitions_of(topics: Iterable[Message]) -> list[TopicIdPartition]:
    return [(topic.topic_id, one.partition_index) for topic in topics for one in topic.partitions]


def acknowledgements_of(topics: Iterable[Message]) -> Acknowledgements:
    """The acknowledgements of the partitions that have any."""
    return {
        (topic.topic_id, one.partition_index): [
            Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in one.acknowledgement_batches
        ]
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


async def acknowledge(
    broker: ShareRequestsParts, group_id: str, member_id: str, wanted: Acknowledgements, *, renew: bool
) -> Errors:
    """Starts all changes before it waits for the first. The result of a partition is None if it succeeded."""
    sharing = broker.share
    config = sharing.config(group_id)
    errors: Errors = {}
    pending: list[tuple[TopicIdPartition, asyncio.Future[Message]]] = []
    await sharing.opening.prepare(group_id, wanted)
    for key, batches in wanted.items():
        errors[key] = check_acknowledgements(batches, renew=renew)
        if errors[key] is not None:
            continue
        try:
            opened = sharing.find(group_id, *key)
            written = sharing.acknowledge(opened, member_id, batches, config)
        except ApiError as error:
            errors[key] = error
            continue
        if written is not None:
            pending.append((key, written))
    for key, written in pending:
        try:
            await asyncio.shield(written)
        except ApiError as error:
            errors[key] = error
    return errors


async def close_session(broker: ShareRequestsParts, session: ShareSession) -> None:
    for written in broker.share.end_session(session, in_order=True):
        try:
            await asyncio.shield(written)
        except ApiError:
            continue  # the expiry of the acquisition lock releases it


def by_topic(partitions: Mapping[TopicIdPartition, Message]) -> list[Message]:
    topics: dict[object, list[Message]] = {}
    for (topic_id, _), partition in partitions.items():
        topics.setdefault(topic_id, []).append(partition)
    return [Message(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]


def current_leader(broker: ShareRequestsParts, key: TopicIdPartition) -> Message:
    """The current leader of the partition, as far as this broker knows it."""
    topic = broker.image.topics_by_id.get(key[0])
    known = None if topic is None else broker.image.partition(topic.name, key[1])
    if known is None:
        return Message(leader_id=-1, leader_epoch=-1)
    return Message(leader_id=known.leader, leader_epoch=known.leader_epoch)


def endpoints(broker: ShareRequestsParts, listener: str, partitions: Iterable[Message]) -> list[Message]:
    leaders = {one.current_leader.leader_id for one in partitions if one.current_leader.leader_id >= 0}
    return [
        Message(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in broker.endpoints(leaders, listener)
    ]
