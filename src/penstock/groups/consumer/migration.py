"""Converts a classic group to a consumer group and back, while its members continue (KIP-848).

A conversion writes the tombstones of one group, then the records of the other. Members keep their ids, their
partitions, and the epoch or generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from penstock.coordinator import Outcome, StateRecord
from penstock.errors import GroupIdNotFound, RebalanceInProgress, WireError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.member import ClassicMember, join_error, sync_answer
from penstock.groups.consumer import records
from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.consumer.embedded import (
    PROTOCOL_TYPE,
    ByName,
    Subscription,
    read_assignment,
    read_subscription,
    subscription_version,
    write_assignment,
)
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ClassicMetadata, Member
from penstock.groups.group import TopicsView


def by_id(partitions: ByName, view: TopicsView) -> Partitions:
    """Deleted topics are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for name, numbers in partitions.items():
        topic = view.topics.get(name)
        if topic is not None and numbers:
            found[topic.id] = numbers
    return found


def by_name(partitions: Partitions, view: TopicsView) -> ByName:
    topics = view.topics_by_id
    return {topics[topic].name: numbers for topic, numbers in partitions.items() if topic in topics}


# from classic to consumer


def upgrade(classic: ClassicGroup, view: TopicsView, out: Outcome) -> ConsumerGroup:
    """The group that the records in `out` create. Waiting members are told to retry."""
    try:
        members = _as_consumers(classic, view)
    except WireError as error:
        raise GroupIdNotFound(f"Cannot upgrade the classic group {classic.group_id}: {error}") from None
    for waiting in classic.members.values():
        classic.answer_join(waiting, join_error(RebalanceInProgress.code, waiting.member_id), out)
        classic.answer_sync(waiting, sync_answer(RebalanceInProgress.code), out)
    group_id, epoch = classic.group_id, classic.generation
    made = [records.member_record(group_id, member) for member in members]
    made.append(records.group_record(group_id, epoch, 0))
    made += [records.target_record(group_id, member.member_id, member.assigned) for member in members]
    made.append(records.target_epoch_record(group_id, epoch))
    made += [records.current_record(group_id, member) for member in members]
    out.records += classic.tombstones()
    out.records += made
    group = ConsumerGroup(group_id)
    for record in made:
        kind, _, name = records.decode_key(record.key)
        group.apply(kind, name, record.value)
    return group


def _as_consumers(classic: ClassicGroup, view: TopicsView) -> list[Member]:
    members = []
    taken: set[tuple[str, int]] = set()
    for member in classic.members.values():
        assigned = _free(read_assignment(member.assignment), taken)
        members.append((member, _subscription(classic, member), assigned))
    # A cooperative member may still have the partitions that it owned when it joined: it keeps them during a
    # rebalance, and then needs time to revoke them. It has already revoked those that are assigned to another
    # member.
    for _, subscription, assigned in members:
        for topic, numbers in _free(subscription.owned, taken).items():
            assigned[topic] = assigned.get(topic, frozenset()) | numbers
    return [_as_consumer(classic, *each, view) for each in members]


def _free(partitions: ByName, taken: set[tuple[str, int]]) -> ByName:
    """The partitions that are still free; marks them as taken."""
    found: ByName = {}
    for topic, numbers in partitions.items():
        free = frozenset(number for number in numbers if (topic, number) not in taken)
        taken.update((topic, number) for number in free)
        if free:
            found[topic] = free
    return found


def _subscription(classic: ClassicGroup, member: ClassicMember) -> Subscription:
    # Before the first generation no protocol is selected; all protocols of a member have the same
    # subscription.
    return read_subscription(member.metadata(classic.protocol_name or member.protocols[0][0]))


def _as_consumer(
    classic: ClassicGroup,
    member: ClassicMember,
    subscription: Subscription,
    assigned: ByName,
    view: TopicsView,
) -> Member:
    return Member(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=by_id(assigned, view),
    )


# from consumer to classic


def can_downgrade(members: Mapping[str, Member]) -> bool:
    """Whether these remaining members have a classic protocol in common."""
    if not members:
        return False
    known = [{name for name, _ in m.classic.protocols} for m in members.values() if m.classic is not None]
    return len(known) == len(members) and bool(set.intersection(*known))


def downgrade(
    group: ConsumerGroup,
    members: Mapping[str, Member],
    view: TopicsView,
    now_ms: int,
    *,
    parts: Mapping[str, Partitions] | None = None,
) -> list[StateRecord]:
    """The tombstones of the group and the record of the classic group of these members.

    With `parts` it continues with these assignments. Without, it starts with a rebalance, because it has no
    leader. Partitions that are being moved then belong to the member that still has them.
    """
    leader = None if parts is None else next(iter(members))
    if parts is None:
        parts = {name: _held(member) for name, member in members.items()}
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation = group.epoch
    for member in members.values():
        assert member.classic is not None
        made = ClassicMember(
            member.member_id, member.instance_id, member.client_id, member.client_host,
            member.rebalance_timeout_ms, member.classic.session_timeout_ms, member.classic.protocols,
        )  # fmt: skip
        classic.add(made, PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    assignments = {
        member_id: write_assignment(
            by_name(parts.get(member_id, NOTHING), view),
            subscription_version(member.metadata(classic.protocol_name)),
        )
        for member_id, member in classic.members.items()
    }
    classic.leader = leader
    return [*group.tombstones(), classic.record(assignments)]


def _held(member: Member) -> Partitions:
    """The partitions of the member, including those that it must revoke."""
    found = dict(member.assigned)
    for topic, numbers in member.pending_revocation.items():
        found[topic] = found.get(topic, frozenset()) | numbers
    return found


def renamed(member: Member, member_id: str) -> Member:
    """Replaces a static member by its new process."""
    return replace(member, member_id=member_id, epoch=0, previous_epoch=0)
