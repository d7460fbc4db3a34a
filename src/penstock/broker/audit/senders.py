"""Who sent a request of an API that administrators use, but also brokers or members of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.coordinators.group_calls import caller
from penstock.broker.produce.leader_append import is_of_a_broker
from penstock.errors import ApiError
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import HasGroups
    from penstock.broker.produce.leader_append import LeaderAppendParts

    class SendersParts(HasGroups, LeaderAppendParts, Protocol): ...


def anybody(broker: SendersParts, context: RequestContext, request: Message) -> bool:
    return True


def no_broker(broker: SendersParts, context: RequestContext, request: Message) -> bool:
    return not is_of_a_broker(broker, context)


def no_member(broker: SendersParts, context: RequestContext, request: Message) -> bool:
    """Whether the commit has no member and no generation, as when an administrator resets offsets."""
    return request.generation_id_or_member_epoch < 0 and not request.member_id


def of_other_members(broker: SendersParts, context: RequestContext, request: Message) -> bool:
    """Whether the request removes members of other clients from a group. A member that leaves voluntarily
    names only its own member id, and has the client id and the address with which it joined."""
    members = leaving(request)
    if len(members) != 1 or not members[0].member_id:
        return bool(members)
    try:
        group: Any = broker.groups.shard_for(request.group_id).groups.get(request.group_id)
    except ApiError:
        return False  # the request fails with the same error
    member = None if group is None else group.members.get(members[0].member_id)
    who = caller(context)
    return member is not None and (member.client_id, member.client_host) != (who.client_id, who.client_host)


def leaving(request: Message) -> list[Message]:
    """The members to remove; before version 3 a request has one member."""
    members: list[Message] | None = getattr(request, "members", None)
    if members:
        return members
    member_id: str | None = getattr(request, "member_id", None)
    return [Message(member_id=member_id, group_instance_id=None)] if member_id else []
