"""What a change of a member leads to: its record, a new group epoch, a new target assignment, its next step.

    the member has changed                -> its record
    subscriptions or topics have changed  -> the group's epoch is raised
    the epoch is above the target's       -> a new target, by the assignor that most members ask for
    the member is not where the target is -> one step of reconciliation

These functions only return records, which change the group when they are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.groups.consumer import records
from penstock.groups.consumer.assignors import ASSIGNORS, NOTHING, GroupSpec, MemberSpec, Partitions
from penstock.groups.consumer.group import ConsumerGroup, hash_of
from penstock.groups.consumer.member import Member
from penstock.groups.consumer.reconcile import reconcile
from penstock.groups.consumer.records import ResolvedRegex
from penstock.groups.consumer.regex.patterns import Patterns
from penstock.groups.group import TopicFilter, TopicsView
from penstock.regex.matching import Work


@dataclass(slots=True)
class Surroundings:
    """What a step needs, apart from the group and the member."""

    view: TopicsView
    patterns: Patterns
    default_assignor: str
    now_ms: int
    work: Work = field(default_factory=Work)
    """The work that matching patterns may take in this step."""
    sees: TopicFilter | None = None
    """The topics that the member may describe; None without ACLs."""


def advance(
    group: ConsumerGroup,
    old: Member,
    updated: Member,
    owned: Partitions | None,
    around: Surroundings,
    out: list[StateRecord],
    *,
    replaced: str | None = None,
) -> Member:
    """Returns the member after the step, for the response. `old` is the member before; it may be a new one.

    `replaced` is the former id of a static member; `old` is then that member with its new id.
    """
    group_id = group.group_id
    if updated != old:
        out.append(records.member_record(group_id, updated))
    raised = updated.topics != old.topics or updated.regex != old.regex or group.epoch == 0
    unknown = None if updated.regex in group.regexes else updated.regex
    # A pattern that arrives with this heartbeat is resolved with the next one, so that the named topics do
    # not wait for it. Kafka resolves patterns asynchronously too.
    new = unknown if updated.regex != old.regex else None
    sees_others = group.visibility.hear(updated, around.sees)
    looks = raised or unknown is not None or sees_others or around.view.topics is not group.seen_topics
    epoch, regexes = group.epoch, group.regexes
    members: dict[str, Member] = {}
    if looks or epoch > group.assignment_epoch:
        # Not with every heartbeat: a group may have thousands.
        members = {name: member for name, member in group.members.items() if name != replaced}
        members[updated.member_id] = updated
    if looks:
        resolved = resolve(group, members, around, out, later=new)
        subscribed = _names(group, members, resolved)
        metadata_hash = hash_of(subscribed, around.view)
        if (
            metadata_hash != group.metadata_hash
            or _matches_differ(regexes, resolved)
            or group.visibility.differs(members, resolved, group.assignment_epoch)
        ):
            raised = True
        elif not raised and resolved == regexes and not around.work.is_over:
            # Only if no record had to be written, because the write may fail; and if all names were checked,
            # because otherwise the next step continues with the rest.
            group.seen_topics = around.view.topics
            group.visibility.agree(members, around.sees)
        if raised:
            epoch += 1
            out += raise_epoch(group, epoch, metadata_hash)
        regexes = resolved
    target = group.target.get(replaced or updated.member_id, NOTHING)
    if epoch > group.assignment_epoch:
        targets = _assign(group, members, regexes, around, updated.member_id, replaced)
        for member_id, wanted in targets.items():
            known = target if member_id == updated.member_id else group.target.get(member_id, NOTHING)
            if wanted != known or (member_id not in group.target and replaced is None):
                out.append(records.target_record(group_id, member_id, wanted))
        out.append(records.target_epoch_record(group_id, epoch))
        group.visibility.settle(members, regexes, epoch)
        target = targets[updated.member_id]
        target_epoch = epoch
    else:
        target_epoch = group.assignment_epoch

    def owner(topic: UUID, partition: int) -> str | None:
        found = group.owner(topic, partition)
        return updated.member_id if found is not None and found == replaced else found

    led = reconcile(updated, target_epoch, target, owner, owned)
    if led is not updated:
        out.append(records.current_record(group_id, led))
    return led


def raise_epoch(group: ConsumerGroup, epoch: int, metadata_hash: int) -> list[StateRecord]:
    found = [records.group_record(group.group_id, epoch, metadata_hash)]
    if group.has_partition_metadata:
        found.insert(0, records.tombstone(records.PARTITION_METADATA, group.group_id))
    return found


def resolve(
    group: ConsumerGroup,
    members: Mapping[str, Member],
    around: Surroundings,
    out: list[StateRecord],
    *,
    later: str | None = None,
) -> dict[str, ResolvedRegex]:
    """The patterns in use with their current matches; records for those whose matches have changed, or that
    are no longer used.

    The pattern `later` is left out.
    """
    resolved: dict[str, ResolvedRegex] = {}
    for pattern in sorted({member.regex for member in members.values() if member.regex} - {later}):
        known = group.regexes.get(pattern)
        before = frozenset[str]() if known is None else known.topics
        topics = around.patterns.matching(pattern, around.view, before, around.work)
        if known is None or known.topics != topics:
            known = ResolvedRegex(topics, around.view.version, around.now_ms)
            out.append(records.regex_record(group.group_id, pattern, known))
        resolved[pattern] = known
    for pattern in sorted(group.regexes.keys() - resolved.keys()):
        out.append(records.tombstone(records.REGEX, group.group_id, pattern))
        around.patterns.forget(pattern)
    return resolved


def removed(group: ConsumerGroup, gone: set[str], around: Surroundings) -> list[StateRecord]:
    """Removes the members and raises the group epoch. The next heartbeat computes the new target
    assignment."""
    group_id = group.group_id
    out: list[StateRecord] = []
    for member_id in sorted(gone):
        out += removal(group_id, member_id)
    left = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
    resolved = resolve(group, left, around, out)
    return out + raise_epoch(group, group.epoch + 1, hash_of(_names(group, left, resolved), around.view))


def removal(group_id: str, member_id: str) -> list[StateRecord]:
    """The tombstones of a member, in this order: its assignments before the member itself."""
    return [
        records.tombstone(records.CURRENT, group_id, member_id),
        records.tombstone(records.TARGET_MEMBER, group_id, member_id),
        records.tombstone(records.MEMBER, group_id, member_id),
    ]


def _matches_differ(before: Mapping[str, ResolvedRegex], now: Mapping[str, ResolvedRegex]) -> bool:
    """Whether a pattern matches other topics than before, even if other members subscribe to all of them."""
    return any(
        found.topics != (before[pattern].topics if pattern in before else frozenset())
        for pattern, found in now.items()
    )


def _names(
    group: ConsumerGroup, members: Mapping[str, Member], regexes: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    wanted = {group.topics_of(member, regexes) for member in members.values()}
    return frozenset[str]().union(*wanted)


def _assign(
    group: ConsumerGroup,
    members: Mapping[str, Member],
    regexes: Mapping[str, ResolvedRegex],
    around: Surroundings,
    member_id: str,
    replaced: str | None,
) -> dict[str, Partitions]:
    topics = around.view.topics
    ids: dict[frozenset[str], frozenset[UUID]] = {}
    counts: dict[UUID, int] = {}
    specs: dict[str, MemberSpec] = {}
    for member in members.values():
        names = group.topics_of(member, regexes)
        wanted = ids.get(names)
        if wanted is None:
            found = [topics[name] for name in names if name in topics]
            counts.update((topic.id, len(topic.partitions)) for topic in found)
            wanted = ids[names] = frozenset(topic.id for topic in found)
        before = replaced if replaced is not None and member.member_id == member_id else member.member_id
        held = group.target.get(before, NOTHING)
        if group.visibility.is_unheard(member):
            named = {topics[name].id for name in member.topics if name in topics}
            wanted = frozenset(topic for topic in wanted if topic in held or topic in named)
        specs[member.member_id] = MemberSpec(member.instance_id, wanted, held)
    chosen = group.preferred_assignor(members.values()) or around.default_assignor
    return ASSIGNORS[chosen](GroupSpec(specs, counts))
