"""The groups and offsets of one partition of `__consumer_offsets`.

`GroupShard` finds the group of a request and calls the state machine of the group's type; it replays records
by the version of their key. Types plug in: a type adds a Group subclass, a replayer for its keys, and a
handler for requests of classic members to its groups.
"""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Callable, Collection
from typing import Any, Protocol

from penstock.coordinator import Outcome, Producer, Reply, StateRecord
from penstock.errors import (
    ApiError,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    StaleMemberEpoch,
    UnknownMemberId,
    WireError,
)
from penstock.groups.classic import records as records_classic
from penstock.groups.classic import requests as classic_requests
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.join import Joins
from penstock.groups.classic.member import (
    DEAD,
    PREPARING_REBALANCE,
    STABLE,
    join_error,
    sync_answer,
)
from penstock.groups.classic.rebalance import Rebalances
from penstock.groups.consumer.classic_members import ClassicMembers
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.groups import ConsumerGroups
from penstock.groups.deleted_topics import DeletedTopics
from penstock.groups.group import Caller, Group, TopicsView
from penstock.groups.lengths import fits
from penstock.groups.offsets import records as records_offsets
from penstock.groups.offsets import requests as offsets_requests
from penstock.groups.offsets.committed import OffsetStore
from penstock.groups.offsets.expiry import Expiry
from penstock.groups.settings import GroupSettings
from penstock.groups.share.membership import ShareGroups
from penstock.groups.timers import Timers
from penstock.wire.message import Message

log = logging.getLogger(__name__)


class ClassicRequestsToOtherTypes(Protocol):
    """The requests of classic members to a group of another type (KIP-848's migration)."""

    def join_group(
        self, group: Group, request: Message, who: Caller, token: Any, out: Outcome, now_ms: int
    ) -> bool:
        """False if the group must become a classic one first: `records` then removes it."""

    def sync_group(
        self, group: Group, request: Message, who: Caller, token: Any, out: Outcome, now_ms: int
    ) -> None: ...

    def heartbeat(
        self, group: Group, request: Message, who: Caller, out: Outcome, now_ms: int
    ) -> Message: ...

    def leave_group(
        self, group: Group, members: list[Message], who: Caller, out: Outcome, now_ms: int
    ) -> list[Message]: ...


Replayer = Callable[[StateRecord, int], None]
"""Applies a record and its timestamp."""


class GroupShard:
    def __init__(self, settings: GroupSettings, topics: Callable[[], TopicsView], rng: random.Random) -> None:
        self.settings = settings
        self.topics = topics
        self.rng = rng
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.timers = Timers()
        self.rebalances = Rebalances(settings, self.groups, self.timers)
        self.joins = Joins(self.rebalances, rng)
        self.expiry = Expiry(settings, self.groups, self.offsets, self.timers)
        self.replayers: dict[int, Replayer] = {records_classic.KEY_VERSION: self._replay_classic}
        """By version of the key; the other types add theirs. Offsets (0, 1) are replayed here."""
        self.other_types: dict[str, ClassicRequestsToOtherTypes] = {}
        """By type of the group."""
        self.on_loaded: list[Callable[[Outcome, int], None]] = [self._begin_classic]
        """Called once, when the partition has been read: sessions of what was loaded begin."""
        self.consumer = ConsumerGroups(self)
        self.other_types[ConsumerGroup.type] = ClassicMembers(self.consumer)
        self.share = ShareGroups(self)
        self.deleted_topics = DeletedTopics(self.offsets, self.share, topics)
        self._loading = True
        self._unread: dict[str, bytes] = {}  # while loading: the last record of each classic group

    # replaying

    def replay(self, record: StateRecord, *, timestamp: int, producer: Producer | None) -> None:
        key, value = record
        version = key[0] << 8 | key[1]
        if version <= records_offsets.KEY_VERSION:
            group_id, tail = records_offsets.split_key(key)
            if value is not None:
                records_offsets.check(tail, value)
            self.offsets.replay(group_id, tail, value, None if producer is None else producer.producer_id)
            if value is not None and group_id not in self.groups:
                # A simple group: offsets without members.
                self.groups[group_id] = ClassicGroup(group_id, timestamp)
            return
        replayer = self.replayers.get(version)
        if replayer is None:
            log.warning("skipped a record with unknown key version %d", version)
            return
        replayer(record, timestamp)

    def _replay_classic(self, record: StateRecord, timestamp: int) -> None:
        group_id = records_classic.decode_key(record.key)
        known = self.groups.get(group_id)
        if record.value is None:
            self._unread.pop(group_id, None)
            if isinstance(known, ClassicGroup):
                known.state = DEAD
                del self.groups[group_id]
            return
        if isinstance(known, ClassicGroup) and known.own_record == record.value:
            self.rebalances.confirm(known, timestamp)
            return
        if self._loading:
            # Only the last record of a group counts: the others are never read.
            self._unread[group_id] = record.value
            self.groups[group_id] = ClassicGroup(group_id, timestamp)
        else:
            group = self.groups[group_id] = ClassicGroup.loaded(group_id, record.value)
            self.rebalances.begin(group, timestamp)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        self.offsets.replay_marker(producer.producer_id, committed)

    def _loaded(self, out: Outcome, now_ms: int) -> None:
        self._loading = False
        for begin in self.on_loaded:
            begin(out, now_ms)
        for group_id in self.offsets.group_ids() - self.groups.keys():
            # It was being converted from a consumer group to a classic one: its commits are still returned.
            self.groups[group_id] = ClassicGroup(group_id, now_ms)

    def _begin_classic(self, out: Outcome, now_ms: int) -> None:
        unread, self._unread = self._unread, {}
        for group_id, value in unread.items():
            try:
                group = ClassicGroup.loaded(group_id, value)
            except (WireError, struct.error, IndexError) as error:
                log.error("could not load group %.300r; it starts empty: %s", group_id, error)
                continue
            self.groups[group_id] = group
            self.rebalances.begin(group, now_ms)

    # time

    def next_deadline(self) -> int | None:
        return self.timers.next_deadline()

    def on_time(self, now_ms: int) -> Outcome:
        """The first call means that the partition has been loaded."""
        out = self._begin(now_ms)
        self.timers.fire(now_ms, out)
        return out

    def resign(self, error: ApiError) -> list[Reply]:
        replies = []
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    if member.join_token is not None:
                        replies.append(Reply(member.join_token, join_error(error.code, member.member_id)))
                    if member.sync_token is not None:
                        replies.append(Reply(member.sync_token, sync_answer(error.code)))
        self.groups.clear()
        return replies

    # finding groups

    def _begin(self, now_ms: int) -> Outcome:
        out = Outcome()
        if self._loading:
            self._loaded(out, now_ms)
        self.expiry.schedule(now_ms)
        return out

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    # classic members

    def join_group(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = self._begin(now_ms)
        try:
            check_group_id(request.group_id)
            self.joins.check(request)
        except ApiError as error:
            out.replies.append(Reply(token, join_error(error.code, request.member_id)))
            return out
        group = self.groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            other = self.other_types.get(group.type)
            if other is None:
                out.replies.append(Reply(token, join_error(InconsistentGroupProtocol.code, "")))
                return out
            if other.join_group(group, request, who, token, out, now_ms):
                return out
            group = self.groups.get(request.group_id)
            if group is not None and not isinstance(group, ClassicGroup):
                del self.groups[request.group_id]
                group = None
        if group is None:
            if request.member_id:
                out.replies.append(Reply(token, join_error(UnknownMemberId.code, request.member_id)))
                return out
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, now_ms)
            # First, so that a member that gets an id, or waits, finds its group again.
            out.records.append(group.record())
        self.joins.join(group, request, who, token, out, now_ms)
        return out

    def sync_group(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = self._begin(now_ms)
        group = self.groups.get(request.group_id)
        if not request.group_id:
            out.replies.append(Reply(token, sync_answer(InvalidGroupId.code)))
        elif group is None or group.is_empty:
            out.replies.append(Reply(token, sync_answer(UnknownMemberId.code)))
        elif isinstance(group, ClassicGroup):
            classic_requests.sync(self.rebalances, group, request, token, out, now_ms)
        elif group.type in self.other_types:
            self.other_types[group.type].sync_group(group, request, who, token, out, now_ms)
        else:
            out.replies.append(Reply(token, sync_answer(UnknownMemberId.code)))
        return out

    def heartbeat(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = self._begin(now_ms)
        try:
            answer = self._heartbeat(request, who, out, now_ms)
        except ApiError as error:
            answer = Message(throttle_time_ms=0, error_code=error.code)
        out.replies.append(Reply(token, answer))
        return out

    def _heartbeat(self, request: Message, who: Caller, out: Outcome, now_ms: int) -> Message:
        if not request.group_id:
            raise InvalidGroupId()
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            classic_requests.heartbeat(self.rebalances, group, request, now_ms)
            return Message(throttle_time_ms=0, error_code=0)
        if group is None or group.type not in self.other_types:
            raise UnknownMemberId()
        return self.other_types[group.type].heartbeat(group, request, who, out, now_ms)

    def leave_group(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        """Expects the form of version 3, a list of members; the API handler converts older requests."""
        out = self._begin(now_ms)
        code = 0
        members: list[Message] = []
        group = self.groups.get(request.group_id)
        if not request.group_id:
            code = InvalidGroupId.code
        elif isinstance(group, ClassicGroup):
            members = classic_requests.leave(self.rebalances, group, request.members, out, now_ms)
        elif group is not None and group.type in self.other_types:
            members = self.other_types[group.type].leave_group(group, request.members, who, out, now_ms)
        else:
            members = [classic_requests.left_answer(item, UnknownMemberId.code) for item in request.members]
        out.replies.append(Reply(token, Message(throttle_time_ms=0, error_code=code, members=members)))
        return out

    # consumer groups (KIP-848)

    def consumer_group_heartbeat(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = self._begin(now_ms)
        before = len(out.records)
        try:
            answer: Message | ApiError = self.consumer.heartbeat(request, who, out, now_ms)
        except ApiError as error:
            del out.records[before:]
            answer = error
        out.replies.append(Reply(token, answer))
        return out

    def consumer_group_describe(self, group_id: str, who: Caller, token: Any, now_ms: int) -> Outcome:
        """One group of ConsumerGroupDescribe."""
        out = self._begin(now_ms)
        try:
            answer: Message | ApiError = self.consumer.describe(group_id)
        except ApiError as error:
            answer = error
        out.replies.append(Reply(token, answer))
        return out

    # offsets

    def offset_commit(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = self._begin(now_ms)
        by_id = who.version >= offsets_requests.COMMIT_TOPIC_IDS_SINCE
        generation = request.generation_id_or_member_epoch
        try:
            group = self._committing(request, generation, not_found_since=9, who=who, transactional=False)
        except ApiError as error:
            out.replies.append(Reply(token, offsets_requests.commit_error(request, error.code)))
            return out
        if isinstance(group, ClassicGroup):
            member = group.members.get(request.member_id)
            if member is not None and group.state in (STABLE, PREPARING_REBALANCE):
                self.rebalances.beat(group, member, now_ms)
        retention = getattr(request, "retention_time_ms", -1)
        out.records, answer = offsets_requests.commit(
            request,
            self.topics(),
            self.settings,
            now_ms,
            self.deleted_topics.ids,
            by_id=by_id,
            expire_timestamp=-1 if retention == -1 else now_ms + retention,
        )
        out.replies.append(Reply(token, answer))
        return out

    def txn_offset_commit(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        """The records take effect when the producer's transaction commits (`replay_marker`)."""
        out = self._begin(now_ms)
        try:
            check_group_id(request.group_id)
            self._committing(request, request.generation_id, None, who, transactional=True)
        except ApiError as error:
            out.replies.append(Reply(token, offsets_requests.commit_error(request, error.code)))
            return out
        out.records, answer = offsets_requests.commit(
            request, self.topics(), self.settings, now_ms, self.deleted_topics.ids
        )
        out.producer = Producer(request.producer_id, request.producer_epoch)
        out.replies.append(Reply(token, answer))
        return out

    def _committing(
        self, request: Message, generation: int, not_found_since: int | None, who: Caller, transactional: bool
    ) -> Group | None:
        """The group that commits; None for one that will only consist of its offsets."""
        _check_length(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return None
            if not_found_since is not None and who.version >= not_found_since:
                raise GroupIdNotFound()
            raise IllegalGeneration()
        try:
            group.check_offset_commit(
                request.member_id,
                request.group_instance_id,
                generation,
                transactional=transactional,
                version=who.version,
            )
        except StaleMemberEpoch:
            if transactional:
                raise IllegalGeneration() from None
            raise
        return group

    def offset_fetch(
        self, group_request: Message, who: Caller, token: Any, now_ms: int, *, require_stable: bool = False
    ) -> Outcome:
        """One item of OffsetFetch's `groups`: group_id, member_id, member_epoch, topics (None for all)."""
        out = self._begin(now_ms)
        group_id = group_request.group_id
        try:
            group = self.groups.get(group_id)
            if group is not None:
                group.check_offset_fetch(group_request.member_id, group_request.member_epoch)
            answer = offsets_requests.fetch(
                group_request,
                group is not None,
                self.offsets,
                self.topics(),
                by_id=who.version >= offsets_requests.FETCH_TOPIC_IDS_SINCE,
                require_stable=require_stable,
            )
        except ApiError as error:
            answer = offsets_requests.fetch_error(group_id, error.code)
        out.replies.append(Reply(token, answer))
        return out

    def offset_delete(self, request: Message, who: Caller, token: Any, now_ms: int) -> Outcome:
        out = self._begin(now_ms)
        try:
            check_group_id(request.group_id)
            group = self.group(request.group_id)
            group.check_offset_delete()
            out.records, answer = offsets_requests.delete(request, group, self.offsets, self.topics())
        except ApiError as error:
            answer = Message(throttle_time_ms=0, error_code=error.code, topics=[])
        out.replies.append(Reply(token, answer))
        return out

    def committed_offset(self, group_id: str, topic: str, partition: int) -> int | None:
        return self.offsets.committed(group_id, topic, partition)

    # administration

    def describe_groups(self, group_id: str, who: Caller, token: Any, now_ms: int) -> Outcome:
        """One group of DescribeGroups. A group of another type counts as missing, or "Dead"."""
        out = self._begin(now_ms)
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            answer = classic_requests.describe(group)
        else:
            why = "not found" if group is None else "is not a classic group"
            message = f"Group {group_id} {why}."
            # KIP-1043: since version 6 with an error, before that only with the state.
            answer = (
                dead_group(group_id, GroupIdNotFound.code, message)
                if who.version >= 6
                else dead_group(group_id)
            )
        out.replies.append(Reply(token, answer))
        return out

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[Message]:
        """The rows of ListGroups. Filters are empty, or have names in any case."""
        wanted = {state.strip().lower() for state in states}
        wanted_types = {name.strip().lower() for name in types}
        return [
            group.listed()
            for group in self.groups.values()
            if (not wanted or group.is_in(wanted)) and (not wanted_types or group.type in wanted_types)
        ]

    def delete_groups(self, group_id: str, who: Caller, token: Any, now_ms: int) -> Outcome:
        """One group of DeleteGroups, with its offsets."""
        out = self._begin(now_ms)
        code = 0
        try:
            group = self.group(group_id)
            group.check_delete()
            out.records = self.offsets.tombstones(group_id) + group.tombstones()
            out.divide()  # the group's tombstone is last: an interrupted deletion can be repeated
        except ApiError as error:
            code = error.code
        out.replies.append(Reply(token, Message(group_id=group_id, error_code=code)))
        return out


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId()
    _check_length(group_id)


def _check_length(group_id: str) -> None:
    if not fits(group_id):
        raise InvalidGroupId()


def dead_group(group_id: str, code: int = 0, message: str | None = None) -> Message:
    """How DescribeGroups shows a missing group."""
    return Message(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=DEAD.value,
        protocol_type="",
        protocol_data="",
        members=[],
    )
