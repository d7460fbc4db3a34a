"""The members of a shard's share groups: handles heartbeats, assigns partitions, removes members that time
out.

Members of a share group do not have to revoke partitions for each other, so a member gets its target
assignment immediately. `partition.py` has the in-flight records of a member; `MemberGone` reports a removed
member to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from penstock.coordinator import Outcome, Reply, StateRecord
from penstock.errors import (
    ApiError,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidGroupId,
    InvalidRequest,
    UnknownMemberId,
)
from penstock.groups.consumer.assignors import NOTHING, Partitions
from penstock.groups.consumer.group import hash_of
from penstock.groups.group import Caller, Group, TopicsView
from penstock.groups.lengths import check_fits
from penstock.groups.share import assignor, records
from penstock.groups.share.group import LEAVE_EPOCH, ShareGroup, ShareMember, not_described
from penstock.groups.share.records import MemberMetadata
from penstock.groups.share.settings import ShareGroupConfig, ShareSettings
from penstock.groups.timers import Timer, Timers
from penstock.wire.message import Message

JOIN_EPOCH = 0


class MemberGone(NamedTuple):
    """An action for the host: end the share session of this member, and release its records.

    Not for a member that leaves: it closes its session itself, and some clients do so after leaving.
    """

    group_id: str
    member_id: str


class ShardParts(Protocol):
    """What share groups use of their GroupShard."""

    groups: dict[str, Group]
    topics: Callable[[], TopicsView]
    timers: Timers
    replayers: dict[int, Callable[[StateRecord, int], None]]
    on_loaded: list[Callable[[Outcome, int], None]]


class ShareGroups:
    def __init__(
        self,
        shard: ShardParts,
        settings: ShareSettings | None = None,
        config: Callable[[str], ShareGroupConfig] = lambda group_id: ShareGroupConfig(),
    ) -> None:
        """Plugs into the shard: its replayers, and what happens after loading."""
        self._shard = shard
        self.settings = settings or ShareSettings()
        self.config = config
        for version in records.KEY_VERSIONS:
            shard.replayers[version] = self._replay
        shard.on_loaded.append(self._begin_sessions)

    # replaying

    def _replay(self, record: StateRecord, timestamp: int) -> None:
        kind, group_id, member_id = records.decode_key(record.key)
        groups = self._shard.groups
        group = groups.get(group_id)
        if kind == records.GROUP and record.value is None:
            if isinstance(group, ShareGroup):
                for session in group.sessions.values():
                    session.cancel()
                del groups[group_id]
            return
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            group = groups[group_id] = ShareGroup(group_id)
        group.apply(kind, member_id, record.value)

    def _begin_sessions(self, out: Outcome, now_ms: int) -> None:
        for group in self._shard.groups.values():
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self._beat(group, member_id, now_ms)

    # ShareGroupHeartbeat

    def heartbeat(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = Outcome()
        try:
            _check(request)
            if request.member_epoch == LEAVE_EPOCH:
                answer = self._leave(request, out)
            else:
                answer = self._heartbeat(request, who, out, now_ms)
        except ApiError as error:
            out = Outcome()
            answer = Message(
                throttle_time_ms=0,
                error_code=error.code,
                error_message=error.message,
                member_id=None,
                member_epoch=0,
                heartbeat_interval_ms=0,
                assignment=None,
            )
        out.replies.append(Reply(token, answer))
        return out

    def _heartbeat(self, request: Message, who: Caller, out: Outcome, now_ms: int) -> Message:
        group, is_new = self._group(request.group_id, create=request.member_epoch == JOIN_EPOCH)
        member = self._member(group, request)
        said = MemberMetadata(
            member.said.rack_id if request.rack_id is None else request.rack_id,
            who.client_id,
            who.client_host,
            member.said.topics
            if request.subscribed_topic_names is None
            else frozenset(request.subscribed_topic_names),
        )
        joins = member.member_id not in group.members
        if joins or said != member.said:
            out.records.append(records.member_record(group.group_id, member.member_id, said))
        members = {**group.members, member.member_id: replace(member, said=said)}
        epoch = self._epoch(group, members, out, changed=joins or said.topics != member.said.topics)
        self._initialize(group, members, out)
        assignment_epoch = group.assignment_epoch
        target: Mapping[str, Partitions] = group.target
        if epoch > assignment_epoch:
            assignment_epoch, target = epoch, self._assign(group, members, epoch, out)
        updated = self._reconcile(group, member, assignment_epoch, target, out)
        if is_new:
            # In memory only until its records are replayed: the session's timer must find it.
            self._shard.groups[group.group_id] = group
        self._beat(group, member.member_id, now_ms)
        config = self.config(group.group_id)
        tell = request.member_epoch != updated.epoch or updated.assigned != member.assigned
        return Message(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            member_id=member.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            assignment=_assignment(updated.assigned) if tell else None,
        )

    def _group(self, group_id: str, *, create: bool) -> tuple[ShareGroup, bool]:
        group = self._shard.groups.get(group_id)
        if group is None and create:
            return ShareGroup(group_id), True
        if group is None:
            raise GroupIdNotFound(f"Share group {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a share group.")
        return group, False

    def _member(self, group: ShareGroup, request: Message) -> ShareMember:
        """The member of the heartbeat, a new one if it joins; validates its epoch."""
        member = group.members.get(request.member_id)
        received = request.member_epoch
        if member is None:
            if received != JOIN_EPOCH:
                raise UnknownMemberId(
                    f"Member {request.member_id} is not a member of group {group.group_id}."
                )
            if len(group.members) >= self.settings.max_size:
                raise GroupMaxSizeReached(
                    f"The share group has reached its maximum capacity of {self.settings.max_size} members."
                )
            return ShareMember(request.member_id)
        # If a response was lost, the member sends the previous epoch again.
        if received not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
            size = "greater" if received > member.epoch else "smaller"
            raise FencedMemberEpoch(
                f"The share group member has a {size} member epoch ({received}) than the one known by the "
                f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
            )
        return member

    def _epoch(
        self, group: ShareGroup, members: Mapping[str, ShareMember], out: Outcome, *, changed: bool
    ) -> int:
        """The epoch of the group; a new one if a subscription or a topic has changed."""
        view = self._shard.topics()
        metadata_hash = group.metadata_hash
        if changed or view.topics is not group.seen_topics:
            metadata_hash = hash_of(_subscribed(members), view)
        if not changed and metadata_hash == group.metadata_hash:
            group.seen_topics = view.topics
            return group.epoch
        epoch = group.epoch + 1
        out.records.append(records.group_record(group.group_id, epoch, metadata_hash))
        return epoch

    def _initialize(self, group: ShareGroup, members: Mapping[str, ShareMember], out: Outcome) -> None:
        """Records the partitions for which the group will have share state."""
        if not any(record.key[1] == records.GROUP for record in out.records):
            return
        view = self._shard.topics()
        known = dict(group.initialized)
        for name in _subscribed(members):
            topic = view.topics.get(name)
            if topic is not None:
                known[topic.id] = (name, frozenset(range(len(topic.partitions))))
        if known != group.initialized:
            out.records.append(records.state_partitions_record(group.group_id, known))

    def _assign(
        self, group: ShareGroup, members: Mapping[str, ShareMember], epoch: int, out: Outcome
    ) -> Mapping[str, Partitions]:
        view = self._shard.topics()
        subscriptions = {
            member.member_id: frozenset(
                topic.id for topic in map(view.topics.get, member.said.topics) if topic is not None
            )
            for member in members.values()
        }
        counts = {topic.id: len(topic.partitions) for topic in view.topics.values()}
        targets = assignor.assign(subscriptions, group.target, counts)
        for member_id, target in targets.items():
            if group.target.get(member_id) != target:
                out.records.append(records.target_record(group.group_id, member_id, target))
        out.records.append(records.target_epoch_record(group.group_id, epoch))
        return targets

    @staticmethod
    def _reconcile(
        group: ShareGroup,
        member: ShareMember,
        assignment_epoch: int,
        target: Mapping[str, Partitions],
        out: Outcome,
    ) -> ShareMember:
        """The member with its target assignment, which takes effect immediately."""
        if member.epoch == assignment_epoch and member.epoch != JOIN_EPOCH:
            return member
        updated = replace(
            member,
            epoch=assignment_epoch,
            previous_epoch=member.epoch,
            assigned=target.get(member.member_id, NOTHING),
        )
        out.records.append(records.current_record(group.group_id, member.member_id, updated.current))
        return updated

    # leaving

    def _leave(self, request: Message, out: Outcome) -> Message:
        group, _ = self._group(request.group_id, create=False)
        self._remove(group, {group.member(request.member_id).member_id}, out)
        return Message(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            member_id=request.member_id,
            member_epoch=LEAVE_EPOCH,
            heartbeat_interval_ms=0,
            assignment=None,
        )

    def _remove(self, group: ShareGroup, gone: set[str], out: Outcome) -> None:
        for member_id in sorted(gone):
            out.records += group.tombstones_of(member_id)
        left = {name: one for name, one in group.members.items() if name not in gone}
        metadata_hash = hash_of(_subscribed(left), self._shard.topics())
        out.records.append(records.group_record(group.group_id, group.epoch + 1, metadata_hash))

    def _beat(self, group: ShareGroup, member_id: str, now_ms: int) -> None:
        session = group.sessions.get(member_id)
        if session is None:
            session = group.sessions[member_id] = Timer(self._silent, group.group_id, member_id)
        timeout = self.config(group.group_id).session_timeout_ms
        self._shard.timers.set(session, now_ms + timeout)

    def _silent(self, group_id: str, member_id: str, out: Outcome, now_ms: int) -> None:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return
        # Remove all members that have timed out together, with one new epoch.
        over = {
            name
            for name, session in group.sessions.items()
            if name == member_id or (session.at is not None and session.at <= now_ms)
        } & group.members.keys()
        if over:
            for name in over:
                # If the records cannot be written, the members time out again.
                self._beat(group, name, now_ms)
            self._remove(group, over, out)
            out.actions += [MemberGone(group_id, name) for name in sorted(over)]

    # questions

    def find(self, group_id: str) -> ShareGroup:
        """Raises GroupIdNotFound if no share group has this id."""
        return self._group(group_id, create=False)[0]

    def describe(self, group_id: str) -> Message:
        """One group of ShareGroupDescribe."""
        try:
            group = self.find(group_id)
        except ApiError as error:
            return not_described(group_id, error.code, error.message)
        names = {topic.id: topic.name for topic in self._shard.topics().topics.values()}
        return group.described(names)

    def forget_topics(self, group_id: str, topics: frozenset[UUID]) -> list[StateRecord]:
        """The share state of these topics was deleted for the group."""
        group = self.find(group_id)
        left = {topic: found for topic, found in group.initialized.items() if topic not in topics}
        return [] if left == group.initialized else [records.state_partitions_record(group_id, left)]

    # deleted topics

    def _initialized(self) -> Iterator[tuple[ShareGroup, UUID, str]]:
        for group in self._shard.groups.values():
            if isinstance(group, ShareGroup):
                for topic_id, (name, _) in group.initialized.items():
                    yield group, topic_id, name

    def topics(self) -> set[str]:
        """The topics for which groups have share state."""
        return {name for _, _, name in self._initialized()}

    def unknown(self, names: Collection[str], existing: Mapping[str, UUID]) -> set[UUID]:
        """The ids of topics with these names that are neither in `existing` nor in the image."""
        known = self._shard.topics().topics_by_id
        return {
            topic_id
            for _, topic_id, name in self._initialized()
            if name in names and existing.get(name) != topic_id and topic_id not in known
        }

    def without_topics(self, ids: Collection[UUID]) -> list[StateRecord]:
        """The records that remove these topics from every group."""
        groups = {group.group_id for group, topic_id, _ in self._initialized() if topic_id in ids}
        gone = frozenset(ids)
        return [record for group_id in sorted(groups) for record in self.forget_topics(group_id, gone)]

    def add_partitions(
        self, group_id: str, added: Mapping[UUID, tuple[str, frozenset[int]]]
    ) -> list[StateRecord]:
        """These partitions now have share state of the group, which is created with the first of them."""
        group, is_new = self._group(group_id, create=True)
        known = dict(group.initialized)
        for topic, (name, numbers) in added.items():
            known[topic] = (name, numbers | known[topic][1] if topic in known else numbers)
        if known == group.initialized:
            return []
        created = [records.group_record(group_id, group.epoch, group.metadata_hash)] if is_new else []
        return [*created, records.state_partitions_record(group_id, known)]

    def check_alter(self, group_id: str) -> None:
        """Raises NonEmptyGroup if it has members, GroupIdNotFound for another type. Creates the group if
        missing.
        """
        if not group_id:
            raise InvalidGroupId("The group id must not be empty.")
        self._group(group_id, create=True)[0].check_delete()


def _subscribed(members: Mapping[str, ShareMember]) -> set[str]:
    return {topic for member in members.values() for topic in member.said.topics}


def _assignment(partitions: Partitions) -> Message:
    return Message(
        topic_partitions=[
            Message(topic_id=topic, partitions=sorted(numbers))
            for topic, numbers in sorted(partitions.items())
        ]
    )


def _check(request: Message) -> None:
    if not request.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    if not request.group_id.strip():
        raise InvalidRequest("GroupId can't be empty.")
    check_fits("a group id", request.group_id)
    check_fits("a member id", request.member_id)
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequest("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
