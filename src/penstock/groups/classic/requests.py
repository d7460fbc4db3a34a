"""SyncGroup, Heartbeat, LeaveGroup and DescribeGroups of classic groups."""

from __future__ import annotations

from typing import Any

from penstock.coordinator import Outcome, Reply
from penstock.errors import (
    ApiError,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.member import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    sync_answer,
)
from penstock.groups.classic.rebalance import Rebalances
from penstock.wire.message import Message


def sync(
    rebalances: Rebalances, group: ClassicGroup, request: Message, token: Any, out: Outcome, now_ms: int
) -> None:
    """The request of the leader has the assignment; the requests of the other members wait for it."""
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise IllegalGeneration()
        if _differ(request.protocol_type, group.protocol_type) or _differ(
            request.protocol_name, group.protocol_name
        ):
            raise InconsistentGroupProtocol()
        if group.state is PREPARING_REBALANCE:
            raise RebalanceInProgress()
        if group.state is EMPTY:
            raise UnknownMemberId()
    except ApiError as error:
        out.replies.append(Reply(token, sync_answer(error.code)))
        return
    rebalances.synced(group, member.member_id)
    if group.state is STABLE:
        answer = sync_answer(0, group.protocol_type, group.protocol_name, member.assignment)
        out.replies.append(Reply(token, answer))
        rebalances.beat(group, member, now_ms)
        return
    group.await_sync(member, token, out)
    if group.leader == member.member_id:
        assignments = {item.member_id: item.assignment for item in request.assignments}
        rebalances.propose(group, assignments, out, now_ms)


def _differ(requested: str | None, known: str | None) -> bool:
    return requested is not None and known is not None and requested != known


def heartbeat(rebalances: Rebalances, group: ClassicGroup, request: Message, now_ms: int) -> None:
    """Raises the error for the member."""
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise IllegalGeneration()
    rebalances.beat(group, member, now_ms)
    if group.state is PREPARING_REBALANCE:
        raise RebalanceInProgress()


def leave(
    rebalances: Rebalances, group: ClassicGroup, members: list[Message], out: Outcome, now_ms: int
) -> list[Message]:
    """One result for each member; the others rebalance once for all that have left."""
    answers = []
    left = []
    for item in members:
        code = 0
        try:
            _leave_one(rebalances, group, item, out)
            left.append(f"{item.member_id or item.group_instance_id} ({item.reason or 'not provided'})")
        except ApiError as error:
            code = error.code
        answers.append(left_answer(item, code))
    if left:
        if group.state in (STABLE, COMPLETING_REBALANCE):
            rebalances.rebalance(group, "left: " + ", ".join(left), out, now_ms)
        elif group.state is PREPARING_REBALANCE:
            rebalances.complete_if_joined(group, out, now_ms)
    return answers


def _leave_one(rebalances: Rebalances, group: ClassicGroup, item: Message, out: Outcome) -> None:
    member_id, instance_id = item.member_id, item.group_instance_id
    if member_id == "":
        # An administrator removes a static member by its name.
        member_id = None if instance_id is None else group.static_members.get(instance_id)
        if member_id is None:
            raise UnknownMemberId()
    elif member_id in group.pending_joins:
        group.remove(member_id)
        return
    rebalances.drop(group, group.check_member(member_id, instance_id), out)


def left_answer(item: Message, code: int) -> Message:
    return Message(member_id=item.member_id, group_instance_id=item.group_instance_id, error_code=code)


def describe(group: ClassicGroup) -> Message:
    """Returns subscriptions and assignments only of a stable group: otherwise they belong to no
    generation."""
    stable = group.state is STABLE
    return Message(
        error_code=0,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            Message(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
