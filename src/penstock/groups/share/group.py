"""A share group: its state, built by replaying records, and queries of it.

Only `apply` changes the durable state. The sessions of members are only in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.errors import GroupIdNotFound, NonEmptyGroup, UnknownMemberId
from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.group import Group
from penstock.groups.share import records
from penstock.groups.share.records import CurrentAssignment, MemberMetadata
from penstock.groups.timers import Timer
from penstock.wire.message import Message

LEAVE_EPOCH = -1
ASSIGNOR = "simple"
_UNKNOWN = MemberMetadata(None, "", "", frozenset())
_OPERATIONS_NOT_ASKED_FOR = -(2**31)


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    said: MemberMetadata = _UNKNOWN
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)

    @property
    def current(self) -> CurrentAssignment:
        return CurrentAssignment(self.epoch, self.previous_epoch, self.assigned)


class ShareGroup(Group):
    type = "share"
    expires = False
    __slots__ = (
        "assignment_epoch", "epoch", "initialized", "members", "metadata_hash", "seen_topics", "sessions",
        "target",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Partitions] = {}
        self.initialized: dict[UUID, tuple[str, frozenset[int]]] = {}
        """The partitions that the group has, or may have, share state of: topic name and partitions."""
        self.sessions: dict[str, Timer] = {}
        self.seen_topics: Mapping[str, Any] | None = None
        """The topics, as a whole, that the metadata hash is known to agree with."""

    # replaying

    def apply(self, kind: int, member_id: str, value: bytes | None) -> None:
        """Applies a record of this group, except the tombstone of the group itself."""
        match kind:
            case records.GROUP if value is not None:
                self.epoch, self.metadata_hash = records.read_group(value)
            case records.MEMBER if value is not None:
                self._set(replace(self._member(member_id), said=records.read_member(value)))
            case records.MEMBER:
                self.members.pop(member_id, None)
                session = self.sessions.pop(member_id, None)
                if session is not None:
                    session.cancel()
            case records.CURRENT if value is not None:
                epoch, previous, assigned = records.read_current(value)
                member = self._member(member_id)
                self._set(replace(member, epoch=epoch, previous_epoch=previous, assigned=assigned))
            case records.CURRENT if member_id in self.members:
                member = self.members[member_id]
                self._set(replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING))
            case records.TARGET_EPOCH:
                self.assignment_epoch = -1 if value is None else records.read_target_epoch(value)
            case records.TARGET_MEMBER if value is not None:
                self.target[member_id] = records.read_target(value)
            case records.TARGET_MEMBER:
                self.target.pop(member_id, None)
            case records.STATE_PARTITIONS:
                self.initialized = {} if value is None else dict(records.read_state_partitions(value))

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id)

    def _set(self, member: ShareMember) -> None:
        self.members[member.member_id] = member

    def tombstones(self) -> list[StateRecord]:
        group_id = self.group_id
        found = [records.tombstone(records.CURRENT, group_id, name) for name in self.members]
        found += [records.tombstone(records.TARGET_MEMBER, group_id, name) for name in self.target]
        found.append(records.tombstone(records.TARGET_EPOCH, group_id))
        found += [records.tombstone(records.MEMBER, group_id, name) for name in self.members]
        if self.initialized:
            found.append(records.tombstone(records.STATE_PARTITIONS, group_id))
        found.append(records.tombstone(records.GROUP, group_id))
        return found

    def tombstones_of(self, member_id: str) -> list[StateRecord]:
        kinds = (records.CURRENT, records.TARGET_MEMBER, records.MEMBER)
        return [records.tombstone(kind, self.group_id, member_id) for kind in kinds]

    # questions

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def listed_protocol_type(self) -> str:
        return "share"

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def check_delete(self) -> None:
        if self.members:
            raise NonEmptyGroup(f"Group {self.group_id} is not empty.")

    # Share groups have no committed offsets.

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        raise GroupIdNotFound(f"Group {self.group_id} is a share group.")

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise GroupIdNotFound(f"Group {self.group_id} is a share group.")

    def check_offset_delete(self) -> None:
        raise GroupIdNotFound(f"Group {self.group_id} is a share group.")

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in member.said.topics for member in self.members.values())

    def retention_start(self, commit_timestamp: int) -> int | None:
        return None

    # ShareGroupDescribe

    def described(self, names: Mapping[UUID, str]) -> Message:
        """`names` are the existing topics; partitions of others are left out, as in Kafka."""
        return Message(
            error_code=0,
            error_message=None,
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[_described(member, names) for member in self.members.values()],
            authorized_operations=_OPERATIONS_NOT_ASKED_FOR,
        )


def _described(member: ShareMember, names: Mapping[UUID, str]) -> Message:
    return Message(
        member_id=member.member_id,
        rack_id=member.said.rack_id,
        member_epoch=member.epoch,
        client_id=member.said.client_id,
        client_host=member.said.client_host,
        subscribed_topic_names=sorted(member.said.topics),
        assignment=Message(
            topic_partitions=[
                Message(topic_id=topic, topic_name=names[topic], partitions=sorted(numbers))
                for topic, numbers in member.assigned.items()
                if topic in names
            ]
        ),
    )


def not_described(group_id: str, code: int, message: str | None) -> Message:
    """How ShareGroupDescribe shows a missing group."""
    return Message(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=_OPERATIONS_NOT_ASKED_FOR,
    )
