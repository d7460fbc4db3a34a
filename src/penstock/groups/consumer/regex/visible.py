"""Which topics matched by a pattern a member may describe, if ACLs are on.

The records of a member do not have its principal, which is only known from its heartbeats. A member without a
heartbeat since the coordinator moved here keeps its partitions and gets no new ones. The group gets a new
target when all members have sent a heartbeat, and whenever ACL changes affect what a member may describe.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from penstock.groups.consumer.member import Member
from penstock.groups.consumer.records import ResolvedRegex
from penstock.groups.group import TopicFilter

_MOST_CACHED = 1000
_NOTHING: frozenset[str] = frozenset()


class Visibility:
    """For one group; kept in memory only."""

    __slots__ = ("_cached", "_filters", "_seen_rules", "_settled", "_settled_epoch", "is_limited")

    def __init__(self) -> None:
        self.is_limited = False
        """Whether ACLs are on."""
        self._filters: dict[str, TopicFilter] = {}
        self._seen_rules: object = None
        """The ACLs that the target is known to agree with."""
        self._settled: Mapping[str, frozenset[str]] = {}
        self._settled_epoch = -1
        """What each member saw when the target of this epoch was made; -1 where not all were heard."""
        self._cached: dict[tuple[Hashable, str], tuple[object, frozenset[str], frozenset[str]]] = {}

    def hear(self, member: Member, sees: TopicFilter | None) -> bool:
        """Sets the principal of a member. Returns whether it may describe other topics than before."""
        if sees is None:
            return False
        self.is_limited = True
        if not member.regex:
            self._filters.pop(member.member_id, None)
            return False
        known = self._filters.get(member.member_id)
        self._filters[member.member_id] = sees
        return known is None or known.who != sees.who or sees.rules is not self._seen_rules

    def forget(self, member_id: str) -> None:
        self._filters.pop(member_id, None)

    def is_unheard(self, member: Member) -> bool:
        return self.is_limited and bool(member.regex) and member.member_id not in self._filters

    def of(self, member: Member, matched: frozenset[str]) -> frozenset[str]:
        """The topics that its pattern matches and that it may describe."""
        sees = self._filters.get(member.member_id)
        if sees is None or member.regex is None:
            return matched
        key = (sees.who, member.regex)
        known = self._cached.get(key)
        if known is not None and known[0] is sees.rules and known[1] is matched:
            return known[2]
        allowed = sees.allowed(matched)
        if len(self._cached) >= _MOST_CACHED:
            self._cached.clear()
        self._cached[key] = (sees.rules, matched, allowed)
        return allowed

    def differs(
        self, members: Mapping[str, Member], regexes: Mapping[str, ResolvedRegex], target_epoch: int
    ) -> bool:
        """Whether the target was computed for members that could describe other topics than now. Unknown
        until all of them have sent a heartbeat.
        """
        if not self.is_limited or any(self.is_unheard(member) for member in members.values()):
            return False
        now = self._of_all(members, regexes)
        if self._settled_epoch != target_epoch:
            return bool(now)
        return any(self._settled.get(name, _NOTHING) != topics for name, topics in now.items())

    def settle(
        self, members: Mapping[str, Member], regexes: Mapping[str, ResolvedRegex], target_epoch: int
    ) -> None:
        """A new target is computed from the topics that members may describe now."""
        if self.is_limited:
            unheard = any(self.is_unheard(member) for member in members.values())
            self._settled_epoch = -1 if unheard else target_epoch
            self._settled = self._of_all(members, regexes)

    def agree(self, members: Mapping[str, Member], sees: TopicFilter | None) -> None:
        """Nothing had to be changed: these ACLs need not be checked again."""
        if sees is not None and not any(self.is_unheard(member) for member in members.values()):
            self._seen_rules = sees.rules

    def _of_all(
        self, members: Mapping[str, Member], regexes: Mapping[str, ResolvedRegex]
    ) -> dict[str, frozenset[str]]:
        return {
            name: self.of(member, regexes[member.regex].topics)
            for name, member in members.items()
            if member.regex and member.regex in regexes
        }
