"""The consumer groups of a shard: ConsumerGroupHeartbeat and its fencing, session timeouts,
ConsumerGroupDescribe.

Plugs into GroupShard: replays the records of consumer groups, and starts the session timeouts of loaded
groups. classic_members.py handles the requests of classic members of these groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from penstock.coordinator import Outcome, StateRecord
from penstock.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer import migration, records
from penstock.groups.consumer.advance import Surroundings, advance, removal, removed
from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.consumer.clocks import MemberClocks
from penstock.groups.consumer.describe import described
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Member, MemberState
from penstock.groups.consumer.regex.patterns import Patterns
from penstock.groups.group import Caller, Group
from penstock.groups.lengths import check_fits
from penstock.groups.timers import Timer
from penstock.wire.message import Message

if TYPE_CHECKING:
    from penstock.groups.shard import GroupShard

log = logging.getLogger(__name__)

_OWN_MEMBER_ID_SINCE = 1  # KIP-1082: the client makes the member id


class GroupTimes(NamedTuple):
    """The timeouts that can be set for each group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


class ConsumerGroups:
    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard
        settings = self.settings = shard.settings
        usual = GroupTimes(
            settings.group_consumer_session_timeout_ms, settings.group_consumer_heartbeat_interval_ms
        )
        self.times: Callable[[str], GroupTimes] = lambda group_id: usual
        """By group id; the host may put in its place what knows the settings of single groups."""
        self.timers = shard.timers
        self.patterns = Patterns()
        self._live = False
        for version in records.KEY_VERSIONS:
            shard.replayers[version] = self._replay
        shard.on_loaded.append(self._loaded)

    def around(self, now_ms: int, who: Caller | None = None) -> Surroundings:
        assignors = self.settings.group_consumer_assignors
        sees = None if who is None else who.sees
        return Surroundings(self.shard.topics(), self.patterns, assignors[0], now_ms, sees=sees)

    # replaying

    def _replay(self, record: StateRecord, timestamp: int) -> None:
        kind, group_id, name = records.decode_key(record.key)
        groups = self.shard.groups
        group = groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return  # the group was deleted, or has another type now
            group = groups[group_id] = ConsumerGroup(group_id)
        if kind == records.GROUP and record.value is None:
            group.stop_clocks()
            del groups[group_id]
            return
        group.apply(kind, name, record.value)
        if self._live and record.value is not None and kind in (records.MEMBER, records.CURRENT):
            member = group.members[name]
            if name not in group.clocks:
                self.hear_of(group, member, timestamp)
            if kind == records.CURRENT:
                self._time_revocation(group, member, timestamp)

    def _loaded(self, out: Outcome, now_ms: int) -> None:
        self._live = True
        for group in self.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self.hear_of(group, member, now_ms)
                    self._time_revocation(group, member, now_ms)

    # clocks

    def _time_revocation(self, group: ConsumerGroup, member: Member, now_ms: int) -> None:
        revoke = self.clocks(group, member.member_id).revoke
        has_to_revoke = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0
        if has_to_revoke and member.classic is None:  # a classic member has a time to rejoin instead
            self.timers.set(revoke, now_ms + member.rebalance_timeout_ms)
        else:
            revoke.cancel()

    def clocks(self, group: ConsumerGroup, member_id: str) -> MemberClocks:
        found = group.clocks.get(member_id)
        if found is None:
            found = group.clocks[member_id] = MemberClocks(
                Timer(self._expire, group, member_id, "its session has ended"),
                Timer(self._expire, group, member_id, "it did not give up its partitions in time"),
                Timer(self._expire, group, member_id, "it did not rejoin in time"),
                Timer(self._expire, group, member_id, "it did not send SyncGroup in time"),
            )
        return found

    def hear_of(self, group: ConsumerGroup, member: Member, now_ms: int) -> None:
        """The member is alive: restart its session timeout."""
        if member.classic is None:
            timeout = self.times(group.group_id).session_timeout_ms
        else:
            timeout = member.classic.session_timeout_ms
        self.timers.set(self.clocks(group, member.member_id).session, now_ms + timeout)

    def _expire(self, group: ConsumerGroup, member_id: str, reason: str, out: Outcome, now_ms: int) -> None:
        if self.shard.groups.get(group.group_id) is not group:
            return
        # Remove all members that have timed out together, with one new epoch.
        over = {name for name, clocks in group.clocks.items() if name == member_id or clocks.is_over(now_ms)}
        for name in over - group.members.keys():
            group.clocks.pop(name).stop()  # a join whose record was never written
        over &= group.members.keys()
        if not over:
            return
        log.info("group %r: fenced member %s, %s", group.group_id, ", ".join(sorted(over)), reason)
        for name in over:
            # If the records cannot be written, the members time out again.
            group.clocks[name].stop_tasks()
            self.hear_of(group, group.members[name], now_ms)
        self.remove(group, over, out, now_ms)

    # leaving members

    def remove(self, group: ConsumerGroup, gone: set[str], out: Outcome, now_ms: int) -> None:
        """Removes members. If only classic members are left, the group becomes a classic group."""
        left = {name: member for name, member in group.members.items() if name not in gone}
        around = self.around(now_ms)
        if (
            any(group.members[name].classic is None for name in gone)
            and self.settings.allows_downgrade
            and len(left) <= self.settings.group_max_size
            and migration.can_downgrade(left)
        ):
            out.records += migration.downgrade(group, left, around.view, now_ms)
            return
        out.records += removed(group, gone, around)

    # ConsumerGroupHeartbeat

    def heartbeat(self, request: Message, who: Caller, out: Outcome, now_ms: int) -> Message:
        """Raises the ApiError of the response; records that are already in `out.records` are then
        discarded."""
        self._check(request, who)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, out, now_ms)
        group = self._group(request, out)
        member_id = request.member_id or str(UUID(int=self.shard.rng.getrandbits(128), version=4))
        self.check_room(group, member_id)
        owned = _partitions(request.topic_partitions)
        old, replaced = self._find(group, request, member_id, owned, out)
        updated = _updated(old, request, who)
        member = advance(group, old, updated, owned, self.around(now_ms, who), out.records, replaced=replaced)
        if member_id in group.members:
            self.hear_of(group, updated, now_ms)  # the session of a new member begins when it is replayed
        is_full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and owned is not None
        )
        # A member with the previous epoch has missed a response and its assignment.
        tell = is_full or member.assigned != old.assigned or request.member_epoch != old.epoch
        return _answer(
            member_id,
            member.epoch,
            self.times(group.group_id).heartbeat_interval_ms,
            member.assigned if tell else None,
        )

    def _check(self, request: Message, who: Caller) -> None:
        _not_blank(request.group_id, "GroupId")
        _not_blank(request.instance_id, "InstanceId")
        _not_blank(request.rack_id, "RackId")
        epoch = request.member_epoch
        if epoch != 0 or who.version >= _OWN_MEMBER_ID_SINCE:
            _not_blank(request.member_id, "MemberId")
        if epoch == 0:
            if request.rebalance_timeout_ms == -1:
                raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise InvalidRequest(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
        elif epoch < LEAVE_STATIC_EPOCH:
            raise InvalidRequest(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
        assignor = request.server_assignor
        assignors = self.settings.group_consumer_assignors
        if assignor is not None and assignor not in assignors:
            raise UnsupportedAssignor(
                f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}."
            )
        check_fits("a group id", request.group_id)
        check_fits("a member id", request.member_id)
        check_fits("an instance id", request.instance_id)
        check_fits("a regular expression", request.subscribed_topic_regex)
        if request.subscribed_topic_regex:
            self.patterns.check(request.subscribed_topic_regex)

    def _group(self, request: Message, out: Outcome) -> ConsumerGroup:
        """The group of a heartbeat. A joining member creates it, or converts a classic group."""
        group_id = request.group_id
        group = self.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch == 0:
            if group is None:
                return ConsumerGroup(group_id)
            if isinstance(group, ClassicGroup):
                if group.is_empty:
                    out.records += group.tombstones()
                    return ConsumerGroup(group_id)
                if (
                    self.settings.allows_upgrade
                    and group.uses_consumer_protocol
                    and len(group.members) <= self.settings.group_consumer_max_size
                ):
                    return migration.upgrade(group, self.shard.topics(), out)
        raise _not_found(group_id, group)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self.settings.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {limit} members."
            )

    def _find(
        self,
        group: ConsumerGroup,
        request: Message,
        member_id: str,
        owned: Partitions | None,
        out: Outcome,
    ) -> tuple[Member, str | None]:
        """The member before the heartbeat, and the former id of a static member with a new id."""
        epoch, instance_id = request.member_epoch, request.instance_id
        if epoch != 0:
            member = group.check_member(member_id, instance_id)
        elif instance_id is None or instance_id not in group.static_members:
            known = group.members.get(member_id)
            if known is None:
                return Member(member_id), None
            member = known
        else:
            return self.take_place(group, instance_id, member_id, out, is_classic=False)
        _check_epoch(member, epoch, owned)
        return member, None

    def take_place(
        self, group: ConsumerGroup, instance_id: str, member_id: str, out: Outcome, *, is_classic: bool
    ) -> tuple[Member, str | None]:
        """A restarted static member: its new process takes the place of the old one, with its partitions."""
        old = group.members[group.static_members[instance_id]]
        if not is_classic and old.classic is None and old.epoch != LEAVE_STATIC_EPOCH:
            if old.member_id == member_id:
                # A retry: the response to its JoinGroup or heartbeat was lost.
                _check_epoch(old, 0, NOTHING)
                return old, None
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by member {old.member_id}."
            )
        new = migration.renamed(old, member_id)
        group_id = group.group_id
        out.records += removal(group_id, old.member_id)
        out.records.append(records.member_record(group_id, new))
        out.records.append(
            records.target_record(group_id, member_id, group.target.get(old.member_id, NOTHING))
        )
        out.records.append(records.current_record(group_id, new))
        return new, old.member_id

    def _leave(self, request: Message, out: Outcome, now_ms: int) -> Message:
        group = self.shard.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_found(request.group_id, group)
        member = group.check_member(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # It stays a member until its session expires, without partitions to revoke.
            leaving = replace(member, epoch=LEAVE_STATIC_EPOCH, pending_revocation=NOTHING)
            out.records.append(records.current_record(group.group_id, leaving))
        else:
            self.remove(group, {member.member_id}, out, now_ms)
        return _answer(member.member_id, request.member_epoch, 0, None)

    # ConsumerGroupDescribe

    def describe(self, group_id: str) -> Message:
        """One group of ConsumerGroupDescribe, without the authorized operations."""
        group = self.shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_found(group_id, group)
        return described(group, self.settings.group_consumer_assignors[0], self.shard.topics())


def _not_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise InvalidRequest(f"{name} can't be empty.")


def _not_found(group_id: str, group: Group | None) -> GroupIdNotFound:
    if group is None:
        return GroupIdNotFound(f"Group {group_id} not found.")
    return GroupIdNotFound(f"Group {group_id} is not a consumer group.")


def _check_epoch(member: Member, received: int, owned: Partitions | None) -> None:
    if received == member.epoch:
        return
    if received == member.previous_epoch and owned is not None and received < member.epoch:
        # The response with the new epoch may have been lost; the member has got no new partitions meanwhile.
        if all(numbers <= member.assigned.get(topic, frozenset()) for topic, numbers in owned.items()):
            return
    than = "greater" if received > member.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {than} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _updated(member: Member, request: Message, who: Caller) -> Member:
    """The member with the changes in the request; null fields are unchanged."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout, assignor = request.rebalance_timeout_ms, request.server_assignor
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=who.client_id,
        client_host=who.client_host,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        server_assignor=member.server_assignor if assignor is None else assignor,
        classic=None,
    )


def _partitions(items: list[Message] | None) -> Partitions | None:
    if items is None:
        return None
    found: dict[UUID, frozenset[int]] = {}
    for item in items:
        found[item.topic_id] = found.get(item.topic_id, frozenset()) | frozenset(item.partitions)
    return found


def _answer(member_id: str, epoch: int, interval_ms: int, assigned: Partitions | None) -> Message:
    assignment = None
    if assigned is not None:
        assignment = Message(
            topic_partitions=[
                Message(topic_id=topic, partitions=sorted(assigned[topic])) for topic in sorted(assigned)
            ]
        )
    return Message(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )
