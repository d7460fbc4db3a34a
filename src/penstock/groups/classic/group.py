"""A classic group and its members: the state, and queries of it.

State transitions are in rebalance.py, the requests that cause them in join.py and requests.py. Members are
removed and assigned only here, so the counters are kept here.
"""

from __future__ import annotations

from typing import Any

from penstock.coordinator import Outcome, Reply, StateRecord
from penstock.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from penstock.groups.classic import records as records_classic
from penstock.groups.classic.member import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    REACHED_FROM,
    STABLE,
    ClassicMember,
    ClassicState,
    Protocols,
    join_error,
    sync_answer,
)
from penstock.groups.classic.records import GroupMetadata, MemberMetadata
from penstock.groups.group import Group
from penstock.groups.timers import Timer
from penstock.wire.message import Message

CONSUMER_PROTOCOL = "consumer"


class ClassicGroup(Group):
    type = "classic"
    __slots__ = (
        "state", "previous_state", "state_timestamp", "generation", "protocol_type", "protocol_name",
        "leader", "members", "static_members", "pending_joins", "pending_syncs", "awaiting_join",
        "new_member_added", "subscribed_topics", "join_timer", "sync_timer", "own_record",
        "proposed", "is_leaderless", "_supporters",
    )  # fmt: skip

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        super().__init__(group_id)
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp = now_ms  # None if the record is older than the field
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, Timer] = {}
        """Member ids that were returned with MEMBER_ID_REQUIRED (KIP-394) and not used yet, with their
        timeouts."""
        self.pending_syncs: set[str] = set()
        self.awaiting_join = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self.own_record: bytes | None = None
        """The last GroupMetadata that this group wrote: replaying it does not load the group again."""
        self.proposed: dict[str, bytes] | None = None
        """The leader's assignment while its record is being written."""
        self.is_leaderless = False
        """Its record has no leader: it was a consumer group (KIP-848), and no leader has assigned partitions
        yet."""
        self._supporters: dict[str, int] = {}

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_joins

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        if self.state not in REACHED_FROM[state]:
            raise AssertionError(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp = now_ms

    # members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member.protocols, 1)
        self._drop_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or an unused member id. Its waiting requests must have got their responses
        before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.join_token is not None:
                member.join_token = None
                self.awaiting_join -= 1
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]
            if member.session is not None:
                member.session.cancel()
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._drop_pending(member_id)
        self.pending_syncs.discard(member_id)

    def _drop_pending(self, member_id: str) -> None:
        timer = self.pending_joins.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def update(self, member: ClassicMember, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def replace_static(self, instance_id: str, old_id: str, new_id: str, out: Outcome) -> ClassicMember:
        """A new process of a static member takes its place with its assignment; the old process is fenced."""
        old = self.members.pop(old_id)
        self.answer_join(old, join_error(FencedInstanceId.code, old_id), out)
        self.answer_sync(old, sync_answer(FencedInstanceId.code), out)
        if old.session is not None:
            old.session.cancel()
        new = ClassicMember(
            new_id, instance_id, old.client_id, old.client_host, old.rebalance_timeout_ms,
            old.session_timeout_ms, old.protocols, old.assignment,
        )  # fmt: skip
        self.members[new_id] = new
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        return new

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise UnknownMemberId()
            if known != member_id:
                raise FencedInstanceId()
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId()
        return member

    def elect_joined_leader(self) -> bool:
        """Whether the leader has joined; elects another one if necessary. False if no member has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    # waiting requests

    def await_join(self, member: ClassicMember, token: Any, out: Outcome) -> None:
        """Only the latest JoinGroup of a member waits. An older one, which the client has given up, gets a
        response."""
        if member.join_token is None:
            self.awaiting_join += 1
        elif member.join_token is not token:
            out.replies.append(
                Reply(member.join_token, join_error(RebalanceInProgress.code, member.member_id))
            )
        member.join_token = token

    def await_sync(self, member: ClassicMember, token: Any, out: Outcome) -> None:
        if member.sync_token is not None:
            out.replies.append(Reply(member.sync_token, sync_answer(RebalanceInProgress.code)))
        member.sync_token = token

    def answer_join(self, member: ClassicMember, response: Message, out: Outcome) -> None:
        if member.join_token is not None:
            out.replies.append(Reply(member.join_token, response))
            member.join_token = None
            self.awaiting_join -= 1

    def answer_sync(self, member: ClassicMember, response: Message, out: Outcome) -> bool:
        if member.sync_token is None:
            return False
        out.replies.append(Reply(member.sync_token, response))
        member.sync_token = None
        return True

    def join_answer(self, member_id: str, *, skip_assignment: bool = False) -> Message:
        """The JoinGroup response for the current generation; the leader also gets the members."""
        return self._join_answer(member_id, self.leader, self.leader == member_id, skip_assignment)

    def join_answer_as_follower(self, member_id: str, leader: str | None) -> Message:
        return self._join_answer(member_id, leader, False, False)

    def _join_answer(self, member_id: str, leader: str | None, is_leader: bool, skip: bool) -> Message:
        return Message(
            error_code=0,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or "",
            skip_assignment=skip,
            member_id=member_id,
            members=self._joined_members() if is_leader else [],
        )

    def _joined_members(self) -> list[Message]:
        return [
            Message(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # protocols

    def _count(self, protocols: Protocols, step: int) -> None:
        supporters = self._supporters
        for name, _ in protocols:
            count = supporters.get(name, 0) + step
            if count:
                supporters[name] = count
            else:
                del supporters[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with all current members."""
        if self.state is EMPTY:
            return protocol_type != "" and len(protocols) > 0
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == everybody for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol with the most votes: each member votes for its first protocol that all members
        support."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.find_subscribed_topics()
        self.pending_syncs.clear()
        self.move_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)

    def find_subscribed_topics(self) -> None:
        """Sets the subscribed topics; None if they are unknown: another protocol type, or malformed
        subscriptions."""
        self.subscribed_topics = None
        if self.uses_consumer_protocol:
            name = self.protocol_name
            self.subscribed_topics = records_classic.subscribed_topics(
                member.metadata(name) for member in self.members.values()
            )

    # offsets

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if generation < 0 and self.state is EMPTY:
            return  # an admin client, or a consumer that assigns its partitions itself
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise IllegalGeneration()
        elif not transactional and self.state is not EMPTY:
            raise UnknownMemberId()
        if not transactional and self.state is COMPLETING_REBALANCE:
            # The member has the new generation but no assignment yet: it must continue with the rebalance.
            raise RebalanceInProgress()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.state is DEAD:
            raise GroupIdNotFound()

    def check_offset_delete(self) -> None:
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            raise NonEmptyGroup()

    def check_delete(self) -> None:
        if self.state is not EMPTY:
            raise NonEmptyGroup()

    def subscribes_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def retention_start(self, commit_timestamp: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp
        if self.state is EMPTY:
            return commit_timestamp if self.state_timestamp is None else self.state_timestamp
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is STABLE:
            return commit_timestamp
        return None

    # records

    def record(self, assignments: dict[str, bytes] | None = None) -> StateRecord:
        """The record of the group; `assignments` replace those of the members."""
        value = records_classic.encode_value(
            GroupMetadata(
                self.protocol_type or "",
                self.generation,
                self.protocol_name,
                self.leader,
                -1 if self.state_timestamp is None else self.state_timestamp,
                tuple(
                    MemberMetadata(
                        member.member_id,
                        member.instance_id,
                        member.client_id,
                        member.client_host,
                        member.rebalance_timeout_ms,
                        member.session_timeout_ms,
                        member.metadata(self.protocol_name),
                        member.assignment if assignments is None else assignments.get(member.member_id, b""),
                    )
                    for member in self.members.values()
                ),
            )
        )
        self.own_record = value
        return StateRecord(records_classic.encode_key(self.group_id), value)

    def tombstones(self) -> list[StateRecord]:
        return [StateRecord(records_classic.encode_key(self.group_id), None)]

    @classmethod
    def loaded(cls, group_id: str, value: bytes) -> ClassicGroup:
        """The group of a GroupMetadata record: stable if it has members. Session timeouts are not started
        yet."""
        stored = records_classic.decode_value(value)
        group = cls(group_id, None if stored.state_timestamp == -1 else stored.state_timestamp)
        group.generation = stored.generation
        for item in stored.members:
            session_ms = item.session_timeout_ms
            rebalance_ms = session_ms if item.rebalance_timeout_ms == -1 else item.rebalance_timeout_ms
            protocols = ((stored.protocol or "", item.subscription),)
            member = ClassicMember(
                item.member_id, item.instance_id, item.client_id, item.client_host, rebalance_ms, session_ms,
                protocols, item.assignment,
            )  # fmt: skip
            group.add(member, stored.protocol_type)
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol
        group.leader = stored.leader
        if group.members:
            group.state = STABLE
            group.is_leaderless = stored.leader is None
            if stored.leader not in group.members:
                group.leader = next(iter(group.members))
        group.find_subscribed_topics()
        return group
