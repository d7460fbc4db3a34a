"""Reconciles a member's current assignment with its target (KIP-848): first it revokes partitions, then it
gets new ones.

    STABLE -> UNREVOKED_PARTITIONS    it must revoke partitions, and still reports them as owned
           -> UNRELEASED_PARTITIONS   it is in the new epoch, but others have not revoked all its partitions
           -> STABLE                  it has its target assignment

A partition to revoke belongs to the member until the member no longer names it among its owned partitions. So
no other member gets it before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from penstock.errors import FencedMemberEpoch
from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.consumer.member import Member, MemberState

_NONE: frozenset[int] = frozenset()


def reconcile(
    member: Member,
    target_epoch: int,
    target: Partitions,
    owner: Callable[[UUID, int], str | None],
    owned: Partitions | None,
) -> Member:
    """The member after one step, or the same member.

    `owner` returns the current owner of a partition; `owned` are the partitions that the member reports as
    owned, None if it reports none.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.pending_revocation):
                return member
        case MemberState.UNKNOWN:
            # Written by a newer coordinator. Only a member without partitions can be reconciled from here.
            if owned is None or any(owned.values()):
                raise FencedMemberEpoch(
                    "the member is in an unknown state; it must rejoin without partitions"
                )
    return _next(member, target_epoch, target, owner, owned)


def _next(
    member: Member,
    target_epoch: int,
    target: Partitions,
    owner: Callable[[UUID, int], str | None],
    owned: Partitions | None,
) -> Member:
    keeps: dict[UUID, frozenset[int]] = {}
    gives: dict[UUID, frozenset[int]] = {}
    gets: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic in target.keys() | member.assigned.keys():
        wanted = target.get(topic, _NONE)
        had = member.assigned.get(topic, _NONE)
        if kept := had & wanted:
            keeps[topic] = kept
        if given := had - wanted:
            gives[topic] = given
        if new := wanted - had:
            free = frozenset(
                partition for partition in new if owner(topic, partition) in (None, member.member_id)
            )
            unreleased = unreleased or len(free) < len(new)
            if free:
                gets[topic] = free
    if gives and _still_owns(owned, gives):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=keeps,
            pending_revocation=gives,
        )
    for topic, partitions in gets.items():
        keeps[topic] = keeps.get(topic, _NONE) | partitions
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    if member.epoch == target_epoch and member.state is state and member.assigned == keeps:
        return member  # still waiting for others
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=keeps,
        pending_revocation=NOTHING,
    )


def _still_owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """A member that reports nothing still owns its partitions."""
    if owned is None:
        return True
    return any(not owned.get(topic, _NONE).isdisjoint(numbers) for topic, numbers in partitions.items())
