"""JoinGroup of classic groups: new members, restarted static members, rejoining members."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from penstock.coordinator import Outcome, Reply
from penstock.errors import (
    ApiError,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    UnknownMemberId,
    UnknownServerError,
)
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.member import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicMember,
    Protocols,
    join_error,
)
from penstock.groups.classic.rebalance import Rebalances
from penstock.groups.group import Caller
from penstock.groups.lengths import check_fits, fits
from penstock.wire.message import Message

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
_SKIP_ASSIGNMENT_SINCE = 9  # KIP-814


class Joins:
    def __init__(self, rebalances: Rebalances, rng: random.Random) -> None:
        self._rebalances = rebalances
        self._settings = rebalances.settings
        self._rng = rng

    def check(self, request: Message) -> None:
        """Validates the request without the group."""
        settings = self._settings
        if not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            raise InvalidSessionTimeout()
        check_fits("a member id", request.member_id)
        check_fits("a group instance id", request.group_instance_id)
        if not fits(request.protocol_type) or not all(fits(item.name) for item in request.protocols):
            raise InconsistentGroupProtocol("a protocol's name is too long")

    def join(
        self, group: ClassicGroup, request: Message, who: Caller, token: Any, out: Outcome, now_ms: int
    ) -> None:
        """Replies immediately only with an error or with the current generation; otherwise the token
        waits."""
        member_id: str = request.member_id
        try:
            if not self._has_room(group, member_id):
                group.remove(member_id)
                member_id = ""
                raise GroupMaxSizeReached()
            protocols = _protocols(request)
            if not group.supports(request.protocol_type, protocols):
                raise InconsistentGroupProtocol()
            join = _Join(request, who, token, protocols, now_ms)
            if member_id == "":
                self._new(group, join, out)
            elif member_id in group.pending_joins:
                if request.group_instance_id is not None:
                    # Only dynamic members get MEMBER_ID_REQUIRED; Kafka fails in the same way here.
                    raise UnknownServerError("a handed-out member id with a group instance id")
                self._add(group, join, member_id, out)
            else:
                self._rejoin(group, join, group.check_member(member_id, request.group_instance_id), out)
        except ApiError as error:
            out.replies.append(Reply(token, join_error(error.code, member_id)))

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._settings.group_max_size
        if group.state is EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is PREPARING_REBALANCE:
            # Count the waiting members, not all: then the last one to rejoin a group that is too large is
            # rejected.
            return group.awaiting_join < limit or (member is not None and member.join_token is not None)
        return member is not None or len(group.members) < limit

    # new members

    def _new(self, group: ClassicGroup, join: _Join, out: Outcome) -> None:
        request, instance_id = join.request, join.request.group_instance_id
        member_id = new_member_id(join.who.client_id if instance_id is None else instance_id, self._rng)
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is None:
                self._add(group, join, member_id, out)
            else:
                self._replace(group, join, known, member_id, out)
        elif join.who.version >= _MEMBER_ID_REQUIRED_SINCE:
            self._rebalances.hold_member_id(group, member_id, request.session_timeout_ms, join.now_ms)
            out.replies.append(Reply(join.token, join_error(MemberIdRequired.code, member_id)))
        else:
            self._add(group, join, member_id, out)

    def _add(self, group: ClassicGroup, join: _Join, member_id: str, out: Outcome) -> None:
        request, who = join.request, join.who
        member = ClassicMember(
            member_id, request.group_instance_id, who.client_id, who.client_host, join.rebalance_timeout_ms,
            request.session_timeout_ms, join.protocols,
        )  # fmt: skip
        member.is_new = True
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.await_join(member, join.token, out)
        self._rebalances.beat_for(group, member, join.now_ms, self._settings.new_member_join_timeout_ms)
        self._rebalances.rebalance(group, f"{member_id} joins: {join.reason}", out, join.now_ms)

    def _replace(self, group: ClassicGroup, join: _Join, old_id: str, new_id: str, out: Outcome) -> None:
        """A new process of a static member. In a stable group it continues with the assignment of the old
        one."""
        request, now_ms = join.request, join.now_ms
        old_leader = group.leader
        member = group.replace_static(request.group_instance_id, old_id, new_id, out)
        group.update(member, join.protocols, join.rebalance_timeout_ms, request.session_timeout_ms)
        self._rebalances.beat(group, member, now_ms)
        if group.state is STABLE and group.protocol_name == group.select_protocol():
            out.records.append(group.record())
            if join.who.version >= _SKIP_ASSIGNMENT_SINCE:
                answer = group.join_answer(new_id, skip_assignment=group.leader == new_id)
            else:
                # As the leader it would assign again. With the former leader id in the response, it is a
                # follower.
                answer = group.join_answer_as_follower(new_id, old_leader)
            out.replies.append(Reply(join.token, answer))
            return
        group.await_join(member, join.token, out)
        if group.state is PREPARING_REBALANCE:
            self._rebalances.complete_if_joined(group, out, now_ms)
        else:
            # Also while the leader computes the assignment: it would assign to the old member id.
            self._rebalances.prepare(
                group, f"{new_id} takes the place of {old_id}: {join.reason}", out, now_ms
            )

    # rejoining members

    def _rejoin(self, group: ClassicGroup, join: _Join, member: ClassicMember, out: Outcome) -> None:
        same = member.protocols == join.protocols
        is_leader = group.leader == member.member_id
        if group.state is EMPTY:
            raise UnknownMemberId()
        if same and (group.state is COMPLETING_REBALANCE or (group.state is STABLE and not is_leader)):
            # It may not have received the response to its JoinGroup, so it gets it again.
            out.replies.append(Reply(join.token, group.join_answer(member.member_id)))
            return
        # A leader that rejoins without a change wants a new assignment: the partitions of a topic may have
        # changed, which only the leader notices.
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        group.await_join(member, join.token, out)
        self._rebalances.rebalance(group, f"{member.member_id} rejoins: {join.reason}", out, join.now_ms)


class _Join:
    """A JoinGroup request that is being handled."""

    __slots__ = ("now_ms", "protocols", "request", "token", "who")

    def __init__(self, request: Message, who: Caller, token: Any, protocols: Protocols, now_ms: int) -> None:
        self.request = request
        self.who = who
        self.token = token
        self.protocols = protocols
        self.now_ms = now_ms

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; in version 0, which has none, the session timeout."""
        version_0 = self.who.version == 0
        timeout: int = self.request.session_timeout_ms if version_0 else self.request.rebalance_timeout_ms
        return max(timeout, 0)

    @property
    def reason(self) -> str:
        """KIP-800."""
        return self.request.reason or "not provided"


def new_member_id(name: str, rng: random.Random) -> str:
    """A new member id; `name` is the client id or, for a static member, the group instance id."""
    member_id = f"{name}-{UUID(int=rng.getrandbits(128), version=4)}"
    check_fits("the client id or group instance id makes a member id", member_id)
    return member_id


def _protocols(request: Message) -> Protocols:
    """The protocols, without duplicates: a name that occurs twice is one vote, as in Kafka."""
    protocols: dict[str, bytes] = {}
    for item in request.protocols:
        protocols.setdefault(item.name, item.metadata)
    return tuple(protocols.items())
