"""A consumer group: its state, built by replaying records, and queries of it.

Only `apply` changes the durable state. The timers of members, and which topics the group has seen, are only
in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.errors import (
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from penstock.groups.consumer import records
from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.consumer.clocks import MemberClocks
from penstock.groups.consumer.embedded import PROTOCOL_TYPE
from penstock.groups.consumer.member import LEAVE_EPOCH, Member, MemberState
from penstock.groups.consumer.records import ResolvedRegex
from penstock.groups.consumer.regex.visible import Visibility
from penstock.groups.group import Group, TopicsView

_COMMIT_SINCE = 9  # the first version of OffsetCommit that has member epochs


class ConsumerGroup(Group):
    type = "consumer"
    __slots__ = (
        "assignment_epoch", "clocks", "epoch", "has_partition_metadata", "members", "metadata_hash", "owners",
        "regexes", "seen_topics", "static_members", "target", "visibility",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[UUID, dict[int, str]] = {}
        """The owner of each partition: a member that has it, or has not confirmed its revocation yet."""
        self.has_partition_metadata = False
        self.clocks: dict[str, MemberClocks] = {}
        self.seen_topics: Mapping[str, Any] | None = None
        """The topics, as a whole, that the metadata hash and the regexes are known to agree with."""
        self.visibility = Visibility()

    # replaying

    def apply(self, kind: int, name: str, value: bytes | None) -> None:
        """Apply a record of this group, except the tombstone of the group itself. Records of unknown members
        are accepted, because compaction may have removed the earlier ones."""
        match kind:
            case records.GROUP if value is not None:
                self.epoch, self.metadata_hash = records.read_group(value)
            case records.PARTITION_METADATA:
                self.has_partition_metadata = value is not None
            case records.MEMBER if value is not None:
                self._set(records.read_member(self.members.get(name) or Member(name), value))
            case records.MEMBER:
                self._remove(name)
            case records.CURRENT if value is not None:
                self._set(records.read_current(self.members.get(name) or Member(name), value))
            case records.CURRENT if (member := self.members.get(name)) is not None:
                self._set(
                    replace(
                        member,
                        epoch=LEAVE_EPOCH,
                        previous_epoch=LEAVE_EPOCH,
                        assigned=NOTHING,
                        pending_revocation=NOTHING,
                    )
                )
            case records.TARGET_EPOCH:
                self.assignment_epoch = -1 if value is None else records.read_target_epoch(value)
            case records.TARGET_MEMBER if value is not None:
                self.target[name] = records.read_target(value)
            case records.TARGET_MEMBER:
                self.target.pop(name, None)
            case records.REGEX if value is not None:
                self.regexes[name] = records.read_regex(value)
            case records.REGEX:
                self.regexes.pop(name, None)

    def _set(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._forget(old)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for held in (member.assigned, member.pending_revocation):
            for topic, partitions in held.items():
                self.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.member_id))

    def _remove(self, member_id: str) -> None:
        self.visibility.forget(member_id)
        old = self.members.pop(member_id, None)
        if old is not None:
            self._forget(old)
        clocks = self.clocks.pop(member_id, None)
        if clocks is not None:
            clocks.stop()

    def _forget(self, member: Member) -> None:
        """Frees its instance id and its partitions, unless another member has them by now."""
        if member.instance_id is not None:
            if self.static_members.get(member.instance_id) == member.member_id:
                del self.static_members[member.instance_id]
        for held in (member.assigned, member.pending_revocation):
            for topic, partitions in held.items():
                owners = self.owners.get(topic, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic, None)

    def tombstones(self) -> list[StateRecord]:
        group_id = self.group_id
        found = [records.tombstone(records.CURRENT, group_id, name) for name in self.members]
        found += [records.tombstone(records.TARGET_MEMBER, group_id, name) for name in self.target]
        found.append(records.tombstone(records.TARGET_EPOCH, group_id))
        found += [records.tombstone(records.MEMBER, group_id, name) for name in self.members]
        found += [records.tombstone(records.REGEX, group_id, regex) for regex in self.regexes]
        if self.has_partition_metadata:
            found.append(records.tombstone(records.PARTITION_METADATA, group_id))
        found.append(records.tombstone(records.GROUP, group_id))
        return found

    def stop_clocks(self) -> None:
        for clocks in self.clocks.values():
            clocks.stop()

    # queries

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def listed_protocol_type(self) -> str:
        return PROTOCOL_TYPE

    def owner(self, topic: UUID, partition: int) -> str | None:
        owners = self.owners.get(topic)
        return None if owners is None else owners.get(partition)

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of a request. If the request names an instance, it must be that member's."""
        if instance_id is None:
            return self.member(member_id)
        known = self.static_members.get(instance_id)
        if known is None:
            raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known}."
            )
        return self.members[known]

    def topics_of(self, member: Member, regexes: Mapping[str, ResolvedRegex] | None = None) -> frozenset[str]:
        """The topics to which a member subscribes, by name or by its regular expression."""
        if not member.regex:
            return member.topics
        resolved = (self.regexes if regexes is None else regexes).get(member.regex)
        if resolved is None:
            return member.topics
        visible = self.visibility.of(member, resolved.topics)
        return member.topics | visible if member.topics else visible

    def preferred_assignor(self, members: Iterable[Member]) -> str | None:
        """The assignor that most members request; the first in alphabetical order if several are equal."""
        votes = Counter(m.server_assignor for m in members if m.server_assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else None

    def is_waiting_for_others(self, member: Member) -> bool:
        """Whether other members have not yet revoked partitions of the member's target."""
        target = self.target.get(member.member_id, NOTHING)
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            self.owner(topic, partition) not in (None, member.member_id)
            for topic, partitions in target.items()
            for partition in partitions
        )

    # classic members

    @property
    def classic_members(self) -> list[Member]:
        return [member for member in self.members.values() if member.classic is not None]

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether these protocols of a classic member and those of the current members have one in common."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        known = [{name for name, _ in m.classic.protocols} for m in self.classic_members if m.classic]
        return any(all(name in theirs for theirs in known) for name in protocols)

    # offsets

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if generation < 0 and not self.members:
            return  # an admin client, or a consumer that assigns its partitions itself
        member = self.member(member_id)
        if not transactional and member.classic is None and version < _COMMIT_SINCE:
            raise UnsupportedVersion(f"member epochs need OffsetCommit of version {_COMMIT_SINCE}")
        self._check_epoch(member, generation)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        self._check_epoch(self.member(member_id or ""), member_epoch)

    @staticmethod
    def _check_epoch(member: Member, received: int) -> None:
        if received != member.epoch:
            error = StaleMemberEpoch if member.classic is None else IllegalGeneration
            raise error(f"The epoch {received} is not that of the member, {member.epoch}.")

    def check_offset_delete(self) -> None:
        """Topics in use are rejected one by one (`subscribes_to`)."""

    def check_delete(self) -> None:
        if self.members:
            raise NonEmptyGroup()

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def retention_start(self, commit_timestamp: int) -> int | None:
        return commit_timestamp


def hash_of(names: Iterable[str], view: TopicsView) -> int:
    """Changes when one of these topics is created, deleted, or gets partitions. 0 if none exists."""
    digest = None
    topics = view.topics
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            if digest is None:
                digest = blake2b(digest_size=8)
            digest.update(name.encode() + b"\0" + topic.id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return 0 if digest is None else int.from_bytes(digest.digest(), "big", signed=True)
