"""The ConsumerGroupDescribe response of a group."""

from __future__ import annotations

from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import Member
from penstock.groups.group import TopicsView
from penstock.wire.message import Message

_CLASSIC, _CONSUMER = 0, 1


def described(group: ConsumerGroup, default_assignor: str, view: TopicsView) -> Message:
    return Message(
        error_code=0,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members.values()) or default_assignor,
        members=[
            _member(member, group.target.get(member.member_id, NOTHING), view)
            for member in group.members.values()
        ],
    )


def _member(member: Member, target: Partitions, view: TopicsView) -> Message:
    return Message(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assigned, view),
        target_assignment=_assignment(target, view),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(partitions: Partitions, view: TopicsView) -> Message:
    """An assignment for the response. Deleted topics are left out, because they have no name."""
    topics = view.topics_by_id
    return Message(
        topic_partitions=[
            Message(topic_id=topic, topic_name=topics[topic].name, partitions=sorted(partitions[topic]))
            for topic in sorted(partitions)
            if topic in topics
        ]
    )
