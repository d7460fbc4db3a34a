"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members of a consumer group (migration, KIP-848).

For such a member the epoch is the generation. Its requests never wait: JoinGroup moves it one step, SyncGroup
returns its assignment, and a heartbeat tells it to rejoin when there is a next step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.coordinator import Outcome, Reply
from penstock.errors import (
    ApiError,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
    WireError,
)
from penstock.groups.classic.join import new_member_id
from penstock.groups.classic.member import join_error, sync_answer
from penstock.groups.consumer import migration
from penstock.groups.consumer.advance import advance
from penstock.groups.consumer.assignors import NOTHING
from penstock.groups.consumer.embedded import (
    PROTOCOL_TYPE,
    read_subscription,
    subscription_version,
    write_assignment,
)
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.groups import ConsumerGroups
from penstock.groups.consumer.member import ClassicMetadata, Member, MemberState
from penstock.groups.group import Caller, Group
from penstock.wire.message import Message

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394


class ClassicMembers:
    """Handles the requests of classic members if their group is a consumer group."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self._timers = groups.timers

    # JoinGroup

    def join_group(
        self, group: Group, request: Message, who: Caller, token: Any, out: Outcome, now_ms: int
    ) -> bool:
        assert isinstance(group, ConsumerGroup)
        if group.is_empty:
            if request.member_id:
                # Unknown member id; an empty group becomes a classic one only for a new member.
                out.replies.append(Reply(token, join_error(UnknownMemberId.code, request.member_id)))
                return True
            out.records += group.tombstones()
            group.stop_clocks()
            return False
        before = len(out.records)
        try:
            answer = self._join(group, request, who, out, now_ms)
        except ApiError as error:
            del out.records[before:]
            answer = join_error(error.code, request.member_id)
        out.replies.append(Reply(token, answer))
        return True

    def _join(
        self, group: ConsumerGroup, request: Message, who: Caller, out: Outcome, now_ms: int
    ) -> Message:
        member_id, instance_id = request.member_id, request.group_instance_id
        is_unknown = member_id == ""
        if is_unknown:
            name = who.client_id if instance_id is None else instance_id
            member_id = new_member_id(name, self._groups.shard.rng)
        self._groups.check_room(group, member_id)
        protocols = {item.name: item.metadata for item in reversed(request.protocols)}
        if not group.supports(request.protocol_type, protocols):
            raise InconsistentGroupProtocol(f"Member {member_id}'s protocols are not supported.")
        if is_unknown and instance_id is None and who.version >= _MEMBER_ID_REQUIRED_SINCE:
            return join_error(MemberIdRequired.code, member_id)
        old, replaced = self._find(group, member_id, instance_id, is_unknown, out)
        ordered = tuple((item.name, item.metadata) for item in request.protocols)
        try:
            subscription = read_subscription(ordered[0][1])
        except WireError as error:
            raise UnknownServerError(f"the embedded consumer protocol is malformed: {error}") from None
        if replaced is None and member_id not in group.members and subscription.owned:
            # A former member may still process partitions that others have now: it must start over.
            raise UnknownMemberId()
        session_ms = request.session_timeout_ms
        rebalance_ms = max(session_ms if who.version == 0 else request.rebalance_timeout_ms, 0)
        updated = replace(
            old,
            instance_id=old.instance_id if instance_id is None else instance_id,
            rack_id=subscription.rack_id or old.rack_id,
            client_id=who.client_id,
            client_host=who.client_host,
            topics=subscription.topics,
            regex=None,
            rebalance_timeout_ms=rebalance_ms,
            server_assignor=None,
            classic=ClassicMetadata(session_ms, ordered),
        )
        if replaced is not None and self._is_last_of_its_kind(group, replaced):
            return self._downgrade(group, replaced, updated, out, now_ms)
        around = self._groups.around(now_ms, who)
        owned = migration.by_id(subscription.owned, around.view)
        member = advance(group, old, updated, owned, around, out.records, replaced=replaced)
        clocks = self._groups.clocks(group, member_id)
        clocks.join.cancel()
        self._timers.set(clocks.sync, now_ms + rebalance_ms)
        self._groups.hear_of(group, updated, now_ms)
        return _joined(member_id, member.epoch, ordered[0][0])

    def _find(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, is_unknown: bool, out: Outcome
    ) -> tuple[Member, str | None]:
        if instance_id is None:
            # Returned member ids are not stored, so a member that joins with an id is accepted.
            return group.members.get(member_id) or Member(member_id), None
        if not is_unknown:
            return group.check_member(member_id, instance_id), None
        if instance_id not in group.static_members:
            return Member(member_id), None
        return self._groups.take_place(group, instance_id, member_id, out, is_classic=True)

    def _is_last_of_its_kind(self, group: ConsumerGroup, replaced: str) -> bool:
        """Whether the replaced static member is the last one that uses the consumer protocol."""
        if group.members[replaced].classic is not None or not self._groups.settings.allows_downgrade:
            return False
        left = [member for name, member in group.members.items() if name != replaced]
        fits = len(group.members) <= self._groups.settings.group_max_size
        return fits and all(member.classic is not None for member in left)

    def _downgrade(
        self, group: ConsumerGroup, replaced: str, joining: Member, out: Outcome, now_ms: int
    ) -> Message:
        """If all members have their assignments, the classic group continues with them, and the joining
        member gets that of the one it replaces. Otherwise the group starts with a rebalance."""
        others = {name: member for name, member in group.members.items() if name != replaced}
        parts = None
        if all(member.is_reconciled_to(group.epoch) for member in others.values()):
            parts = {**group.target, joining.member_id: group.target.get(replaced, NOTHING)}
        members = {**others, joining.member_id: joining}
        view = self._groups.shard.topics()
        out.records[:] = migration.downgrade(group, members, view, now_ms, parts=parts)
        assert joining.classic is not None
        return _joined(joining.member_id, group.epoch, joining.classic.protocols[0][0])

    # SyncGroup

    def sync_group(
        self, group: Group, request: Message, who: Caller, token: Any, out: Outcome, now_ms: int
    ) -> None:
        assert isinstance(group, ConsumerGroup)
        try:
            answer = self._sync(group, request, now_ms)
        except ApiError as error:
            answer = sync_answer(error.code)
        out.replies.append(Reply(token, answer))

    def _sync(self, group: ConsumerGroup, request: Message, now_ms: int) -> Message:
        member = _checked(group, request)
        assert member.classic is not None
        protocol, metadata = member.classic.protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol,
        ):
            raise InconsistentGroupProtocol()
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(group, member, now_ms)
            raise RebalanceInProgress()
        self._groups.clocks(group, member.member_id).sync.cancel()
        self._groups.hear_of(group, member, now_ms)
        assigned = migration.by_name(member.assigned, self._groups.shard.topics())
        assignment = write_assignment(assigned, subscription_version(metadata))
        return sync_answer(0, request.protocol_type, request.protocol_name, assignment)

    # Heartbeat

    def heartbeat(self, group: Group, request: Message, who: Caller, out: Outcome, now_ms: int) -> Message:
        assert isinstance(group, ConsumerGroup)
        member = _checked(group, request)
        self._groups.hear_of(group, member, now_ms)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member))
        ):
            self._await_join(group, member, now_ms)
            raise RebalanceInProgress()
        return Message(throttle_time_ms=0, error_code=0)

    def _await_join(self, group: ConsumerGroup, member: Member, now_ms: int) -> None:
        join = self._groups.clocks(group, member.member_id).join
        if join.at is None:
            self._timers.set(join, now_ms + member.rebalance_timeout_ms)

    # LeaveGroup

    def leave_group(
        self, group: Group, members: list[Message], who: Caller, out: Outcome, now_ms: int
    ) -> list[Message]:
        assert isinstance(group, ConsumerGroup)
        answers = []
        gone: set[str] = set()
        for item in members:
            code, member_id = 0, item.member_id
            try:
                member_id = self._leaving(group, item)
                if member_id in gone:
                    raise UnknownMemberId()
                gone.add(member_id)
            except ApiError as error:
                code = error.code
            answers.append(
                Message(member_id=member_id, group_instance_id=item.group_instance_id, error_code=code)
            )
        if gone:
            self._groups.remove(group, gone, out, now_ms)
        return answers

    @staticmethod
    def _leaving(group: ConsumerGroup, item: Message) -> str:
        member_id: str = item.member_id
        if item.group_instance_id is not None:
            known = group.static_members.get(item.group_instance_id)
            if known is None:
                raise UnknownMemberId()
            # An administrator removes a static member by its name alone.
            if member_id not in ("", known):
                raise FencedInstanceId()
            member_id = known
        return _classic(group.member(member_id)).member_id


def _classic(member: Member) -> Member:
    if member.classic is None:
        raise UnknownMemberId(f"Member {member.member_id} does not use the classic protocol.")
    return member


def _checked(group: ConsumerGroup, request: Message) -> Member:
    """The member of a SyncGroup or Heartbeat."""
    member = _classic(group.check_member(request.member_id, request.group_instance_id))
    if request.generation_id != member.epoch:
        raise IllegalGeneration()
    return member


def _joined(member_id: str, epoch: int, protocol: str) -> Message:
    """The JoinGroup response. There is no leader, because the coordinator assigns."""
    return Message(
        error_code=0,
        generation_id=epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )
