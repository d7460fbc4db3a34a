"""Rebalances of a classic group from one generation to the next, and its timeouts.

Empty -> PreparingRebalance (members join) -> CompletingRebalance (the leader assigns) -> Stable. Every change
of the members of a group calls `rebalance`; `complete_if_joined` is called when the last member may have
joined.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.coordinator import Outcome
from penstock.errors import RebalanceInProgress, UnknownMemberId
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.member import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    REACHED_FROM,
    STABLE,
    ClassicMember,
    join_error,
    sync_answer,
)
from penstock.groups.group import Group
from penstock.groups.settings import GroupSettings
from penstock.groups.timers import Timer, Timers

log = logging.getLogger(__name__)


class Rebalances:
    def __init__(self, settings: GroupSettings, groups: Mapping[str, Group], timers: Timers) -> None:
        self.settings = settings
        self._groups = groups
        self.timers = timers

    # sessions

    def beat(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """The member is alive: restart its session timeout."""
        self.beat_for(group, member, now_ms, member.session_timeout_ms)

    def beat_for(self, group: ClassicGroup, member: ClassicMember, now_ms: int, timeout_ms: int) -> None:
        if member.session is None:
            member.session = Timer(self._session_ended, group, member)
        self.timers.set(member.session, now_ms + timeout_ms)

    def _session_ended(self, group: ClassicGroup, member: ClassicMember, out: Outcome, now_ms: int) -> None:
        if not self._is_current(group) or group.members.get(member.member_id) is not member:
            return
        if member.keeps_alive_by_waiting:
            return  # the response to its request restarts the session timeout
        self.remove(group, member, f"the session of {member.member_id} has ended", out, now_ms)

    def hold_member_id(self, group: ClassicGroup, member_id: str, timeout_ms: int, now_ms: int) -> None:
        """KIP-394: keep a returned member id for one session timeout, until its member joins with it."""
        timer = Timer(self._member_id_unused, group, member_id)
        group.pending_joins[member_id] = timer
        self.timers.set(timer, now_ms + timeout_ms)

    def _member_id_unused(self, group: ClassicGroup, member_id: str, out: Outcome, now_ms: int) -> None:
        if self._is_current(group) and member_id in group.pending_joins:
            group.remove(member_id)
            if group.state is PREPARING_REBALANCE and group.all_joined:
                self._complete_join(group, out, now_ms)

    def remove(
        self, group: ClassicGroup, member: ClassicMember, reason: str, out: Outcome, now_ms: int
    ) -> None:
        """Remove a member; the others rebalance, or continue with a rebalance that waited for it."""
        self.drop(group, member, out)
        if group.state in (STABLE, COMPLETING_REBALANCE):
            self.rebalance(group, reason, out, now_ms)
        elif group.state is PREPARING_REBALANCE and group.all_joined:
            self._complete_join(group, out, now_ms)

    @staticmethod
    def drop(group: ClassicGroup, member: ClassicMember, out: Outcome) -> None:
        """Remove a member and fail its waiting requests, so that its client rejoins instead of waiting
        forever."""
        group.answer_join(member, join_error(UnknownMemberId.code, ""), out)
        group.answer_sync(member, sync_answer(UnknownMemberId.code), out)
        group.remove(member.member_id)

    # generations

    def rebalance(self, group: ClassicGroup, reason: str, out: Outcome, now_ms: int) -> None:
        if group.state in REACHED_FROM[PREPARING_REBALANCE]:
            self.prepare(group, reason, out, now_ms)
        else:
            self.complete_if_joined(group, out, now_ms)

    def prepare(self, group: ClassicGroup, reason: str, out: Outcome, now_ms: int) -> None:
        """Start a rebalance: all members must rejoin."""
        if group.state is COMPLETING_REBALANCE:
            group.proposed = None
            for member in group.members.values():
                member.assignment = b""
                if group.answer_sync(member, sync_answer(RebalanceInProgress.code), out):
                    self.beat(group, member, now_ms)
        group.pending_syncs.clear()
        _cancel(group.sync_timer)
        log.info(
            "preparing to rebalance group %r with old generation %d (reason: %.300s)",
            group.group_id,
            group.generation,
            reason,
        )
        initial = group.state is EMPTY
        group.move_to(PREPARING_REBALANCE, now_ms)
        if initial:
            delay = self.settings.group_initial_rebalance_delay_ms
            left = max(group.rebalance_timeout_ms - delay, 0)
            group.join_timer = Timer(self._initial_delay_over, group, delay, left)
            self.timers.set(group.join_timer, now_ms + delay)
        elif group.all_joined:
            self._complete_join(group, out, now_ms)
        else:
            self._await_joins(group, now_ms)

    def _await_joins(self, group: ClassicGroup, now_ms: int) -> None:
        _cancel(group.join_timer)
        group.join_timer = Timer(self._joins_timed_out, group)
        self.timers.set(group.join_timer, now_ms + group.rebalance_timeout_ms)

    def _joins_timed_out(self, group: ClassicGroup, out: Outcome, now_ms: int) -> None:
        if self._is_current(group) and group.state is PREPARING_REBALANCE:
            self._complete_join(group, out, now_ms)

    def _initial_delay_over(
        self, group: ClassicGroup, delay_ms: int, left_ms: int, out: Outcome, now_ms: int
    ) -> None:
        if not self._is_current(group) or group.state is not PREPARING_REBALANCE:
            return
        if group.new_member_added and left_ms:
            # New members have joined: wait for more, but at most for the rebalance timeout in total.
            group.new_member_added = False
            delay = min(self.settings.group_initial_rebalance_delay_ms, left_ms)
            group.join_timer = Timer(self._initial_delay_over, group, delay, max(left_ms - delay_ms, 0))
            self.timers.set(group.join_timer, now_ms + delay)
        else:
            self._complete_join(group, out, now_ms)

    def complete_if_joined(self, group: ClassicGroup, out: Outcome, now_ms: int) -> None:
        """An empty group always waits for its initial delay, even if all known members have joined."""
        if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.all_joined:
            self._complete_join(group, out, now_ms)

    def _complete_join(self, group: ClassicGroup, out: Outcome, now_ms: int) -> None:
        """Start the next generation with the members that have joined. Static members stay until their
        session expires, so that a restart that takes longer than a rebalance does not move their
        partitions."""
        _cancel(group.join_timer)
        group.new_member_added = False
        late = [m for m in group.members.values() if m.join_token is None and m.instance_id is None]
        for member in late:
            group.answer_sync(member, sync_answer(UnknownMemberId.code), out)
            group.remove(member.member_id)
        if not group.elect_joined_leader() and group.members:
            self._await_joins(group, now_ms)  # no member has joined: wait until the sessions expire
            return
        group.next_generation(now_ms)
        if group.state is EMPTY:
            out.records.append(group.record())
            return
        for member in group.members.values():
            group.answer_join(member, group.join_answer(member.member_id), out)
            self.beat(group, member, now_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        group.sync_timer = Timer(self._syncs_timed_out, group, group.generation)
        self.timers.set(group.sync_timer, now_ms + group.rebalance_timeout_ms)

    def _syncs_timed_out(self, group: ClassicGroup, generation: int, out: Outcome, now_ms: int) -> None:
        """Remove members that joined the generation but did not send SyncGroup in time."""
        if not self._is_current(group) or group.generation != generation or not group.pending_syncs:
            return
        if group.state in (COMPLETING_REBALANCE, STABLE):
            for member_id in list(group.pending_syncs):
                group.remove(member_id)
            self.prepare(group, "members did not send SyncGroup in time", out, now_ms)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            _cancel(group.sync_timer)

    def propose(self, group: ClassicGroup, assignments: dict[str, bytes], out: Outcome, now_ms: int) -> None:
        """The leader has sent the assignment. The group is stable when its record is in the log
        (`confirm`)."""
        assignments = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        out.records.append(group.record(assignments))
        group.proposed = assignments
        for member in group.members.values():
            answer = sync_answer(0, group.protocol_type, group.protocol_name, assignments[member.member_id])
            if group.answer_sync(member, answer, out):
                self.beat(group, member, now_ms)

    @staticmethod
    def confirm(group: ClassicGroup, timestamp: int) -> None:
        """The record of the group is in the log."""
        if group.proposed is not None and group.state is COMPLETING_REBALANCE:
            for member_id, assignment in group.proposed.items():
                if member_id in group.members:
                    group.members[member_id].assignment = assignment
            group.move_to(STABLE, timestamp)
        group.proposed = None

    # loaded groups

    def begin(self, group: ClassicGroup, now_ms: int) -> None:
        """Start the session timeouts of a group that was loaded from the log."""
        for member in group.members.values():
            self.beat(group, member, now_ms)
        if len(group.members) > self.settings.group_max_size:
            # No requests wait yet, so there is nothing to reply or to write.
            self.prepare(group, "the group is larger than group.max.size allows", Outcome(), now_ms)
        elif group.is_leaderless:
            self.prepare(group, "the group was downgraded from consumer to classic", Outcome(), now_ms)

    def _is_current(self, group: ClassicGroup) -> bool:
        return group.state is not DEAD and self._groups.get(group.group_id) is group


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()
