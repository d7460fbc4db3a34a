"""Consumers as small state machines over the simulated network: of the protocol of KIP-848, and classic ones
that speak the embedded consumer protocol and can be members of the same group.

`owned` is what the consumer works on: partitions that it has taken, and not yet given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinator import Outcome
from penstock.errors import (
    ApiError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from penstock.groups import Caller, GroupShard
from penstock.groups.consumer.embedded import read_assignment, read_subscription, write_assignment
from penstock.metadata.image import ClusterImage
from penstock.wire.message import Message
from penstock.wire.primitives import INT16, INT32, encode_string
from tests.sim.commits import Commits, Identity
from tests.sim.group_host import join_request, sync_request
from tests.sim.harness import Simulation

HEARTBEAT_MS = 4_000
RETRY_MS = 100
REBALANCE_MS = 20_000
CLASSIC_SESSION_MS = 10_000
COMMIT_VERSION = 9

TopicPartition = tuple[str, int]


class Consumer:
    """What both kinds have in common: one request at a time, and a life that can end or pause."""

    def __init__(
        self,
        simulation: Simulation[GroupShard],
        name: str,
        image: Callable[[], ClusterImage],
        *,
        topics: list[str],
        instance: str | None = None,
        version: int,
        commits: Commits,
    ) -> None:
        self.simulation = simulation
        self.rng = simulation.rng
        self.name = name
        self.member_id = name
        self.image = image
        self.topics = topics
        self.instance = instance
        self.who = Caller(name, "/sim", version)
        self.alive = True
        self.silent = False
        self.fenced = False
        self.refused = False
        self.commits = commits
        self.past: list[Identity] = []
        self.epoch = 0
        self.owned: frozenset[TopicPartition] = frozenset()
        self._sent = 0
        self._done = 0

    def die(self) -> None:
        self.alive = False
        self.owned = frozenset()

    def commit(self, identity: Identity, part: TopicPartition, offset: int) -> None:
        """Asynchronous: that its epoch is stale a consumer learns from its heartbeats. The identity is its
        own, or one that it had: a commit that was under way for long."""
        self.commits.commit(
            Caller(self.name, "/sim", COMMIT_VERSION), identity, {part: offset}, lambda _: None
        )

    def _is_now(self, epoch: int) -> None:
        if not self.past or self.past[-1][:2] != (self.member_id, epoch):
            self.past.append(Identity(self.member_id, epoch, self.instance))
        self.epoch = epoch

    def _send(self, api: str, request: Any, then: Callable[[Any], None]) -> None:
        """A copy that arrives when the consumer has gone on is not handled: its connection was closed, and a
        broker handles what comes over one connection in order. Where a second copy was handled, the answers
        are lost: a consumer that sends again does so as it got none, and then tells everything."""
        self._sent += 1
        number = self._sent
        who = self.who
        handled = 0

        def step(shard: GroupShard, token: Any, now: int) -> Outcome:
            nonlocal handled
            if number <= self._done or number < self._sent:
                return Outcome()
            handled += 1
            outcome: Outcome = getattr(shard, api)(request, who, token, now)
            return outcome

        def on_reply(response: Any) -> None:
            if number > self._done:
                self._done = number
                if self.alive:
                    then(response if handled <= 1 else None)

        self.simulation.call(step, on_reply)

    def _later(self, action: Callable[[], None], delay: float) -> None:
        """Unless another request is sent meanwhile."""
        number = self._sent

        def run() -> None:
            if self.alive and not self.fenced and self._sent == number:
                if self.silent:
                    self._later(action, HEARTBEAT_MS)
                else:
                    action()

        self.simulation.after(delay, run)


class NewConsumer(Consumer):
    """ConsumerGroupHeartbeat. `regex` in the place of topics, if any."""

    regex: str | None = None

    def start(self) -> None:
        self.epoch = 0
        self.owned = frozenset()
        self._heartbeat(full=True)

    def leave(self, epoch: int = -1) -> None:
        self.owned = frozenset()
        request = self._request(epoch, full=False)
        self._send("consumer_group_heartbeat", request, lambda answer: None)
        self.alive = False

    def subscribe(self, topics: list[str], regex: str | None) -> None:
        """Told with the next full heartbeat."""
        self.topics, self.regex = topics, regex
        if self.epoch > 0 and self._done == self._sent:
            self._heartbeat(full=True)

    def _heartbeat(self, *, full: bool, tell_owned: bool = False) -> None:
        request = self._request(self.epoch, full=full, tell_owned=tell_owned)
        self._send("consumer_group_heartbeat", request, self._answered)

    def _request(self, epoch: int, *, full: bool, tell_owned: bool = False) -> Message:
        return Message(
            group_id="g",
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=self.topics if full else None,
            subscribed_topic_regex=(self.regex or "") if full else None,
            server_assignor=None,
            topic_partitions=self._owned_by_id() if full or tell_owned else None,
        )

    def _owned_by_id(self) -> list[Message]:
        topics = self.image().topics
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        return [
            Message(topic_id=topics[topic].id, partitions=partitions)
            for topic, partitions in by_topic.items()
            if topic in topics
        ]

    def _answered(self, answer: Any) -> None:
        self.refused = isinstance(answer, UnreleasedInstanceId)
        if isinstance(answer, FencedMemberEpoch | UnknownMemberId):
            self.simulation.note(f"{self.name}: {answer.kafka_name}")
            self.owned = frozenset()
            self.epoch = 0
            self._later(lambda: self._heartbeat(full=True), RETRY_MS)
        elif isinstance(answer, FencedInstanceId):
            self.simulation.note(f"{self.name} is fenced")
            self.owned = frozenset()
            self.fenced = True
        elif isinstance(answer, GroupIdNotFound):
            # The group has become a classic one while this member was away.
            self.owned = frozenset()
            self.epoch = 0
            self._later(lambda: self._heartbeat(full=True), RETRY_MS)
        elif answer is None or isinstance(answer, ApiError):
            self._later(lambda: self._heartbeat(full=True), RETRY_MS)
        else:
            assert answer.member_epoch >= self.epoch, "an epoch went back"
            self._is_now(answer.member_epoch)
            if answer.assignment is None:
                self._later(lambda: self._heartbeat(full=False), HEARTBEAT_MS)
                return
            topics = self.image().topics_by_id
            target = frozenset(
                (topics[item.topic_id].name, partition)
                for item in answer.assignment.topic_partitions
                if item.topic_id in topics
                for partition in item.partitions
            )
            busy = self.rng.choice([0, 10, 2_000, 8_000]) if self.owned - target else 0
            self._later(lambda: self._take(target), busy)

    def _take(self, target: frozenset[TopicPartition]) -> None:
        changed = target != self.owned
        self.owned = target
        if changed:
            self._heartbeat(full=False, tell_owned=True)
        else:
            self._later(lambda: self._heartbeat(full=False), HEARTBEAT_MS)


class ClassicConsumer(Consumer):
    """JoinGroup, SyncGroup, Heartbeat. An eager one gives up all that it has before it joins. A cooperative
    one goes on with it, gives up what it no longer has by the next assignment, and joins again."""

    regex = None
    cooperative = False

    def start(self) -> None:
        self.member_id = ""
        self._join()

    def leave(self) -> None:
        self.owned = frozenset()
        self.alive = False
        if self.instance is None:
            items = [Message(member_id=self.member_id, group_instance_id=None, reason=None)]
            self._send("leave_group", Message(group_id="g", members=items), lambda answer: None)

    def subscribe(self, topics: list[str], regex: str | None) -> None:
        self.topics = topics

    def _subscription(self) -> bytes:
        parts = [INT16.pack(1), INT32.pack(len(self.topics)), *map(encode_string, self.topics)]
        owned = [encode_string(topic) + INT32.pack(1) + INT32.pack(p) for topic, p in sorted(self.owned)]
        return b"".join((*parts, INT32.pack(-1), INT32.pack(len(owned)), *owned))

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = frozenset()
        self._joined_with = (self.topics, self.image().topics)
        request = join_request(
            "g",
            self.member_id,
            instance=self.instance,
            protocols={"range": self._subscription()},
            session_ms=CLASSIC_SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._send("join_group", request, self._joined)

    def _joined(self, answer: Any) -> None:
        if answer is None or isinstance(answer, ApiError):
            self._later(self._join, RETRY_MS)
            return
        match answer.error_code:
            case 0:
                self.member_id = answer.member_id
                self._is_now(answer.generation_id)
                self._sync(answer)
            case MemberIdRequired.code:
                self.member_id = answer.member_id
                self._join()
            case _:
                self._failed(answer.error_code)

    def _sync(self, joined: Message) -> None:
        assignments = None
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = self._assign(joined.members)
        request = sync_request(
            "g",
            self.member_id,
            self.epoch,
            assignments,
            instance=self.instance,
            protocol_type="consumer",
            protocol_name="range",
        )
        self._send("sync_group", request, self._synced)

    def _assign(self, members: list[Message]) -> dict[str, bytes]:
        said = {member.member_id: read_subscription(member.metadata) for member in members}
        owners = {
            (topic, p): member for member, one in said.items() for topic, ps in one.owned.items() for p in ps
        }
        parts: dict[str, dict[str, set[int]]] = {member: {} for member in said}
        for name, topic in self.image().topics.items():
            takers = sorted(member for member, one in said.items() if name in one.topics)
            for partition in range(len(topic.partitions) if takers else 0):
                taker = takers[partition % len(takers)]
                if owners.get((name, partition), taker) == taker:
                    parts[taker].setdefault(name, set()).add(partition)
        return {
            member: write_assignment({name: frozenset(p) for name, p in mine.items()}, 1)
            for member, mine in parts.items()
        }

    def _synced(self, answer: Any) -> None:
        if answer is None or isinstance(answer, ApiError):
            self._later(self._join, RETRY_MS)
        elif answer.error_code:
            self._failed(answer.error_code)
        else:
            found = read_assignment(answer.assignment)
            target = frozenset((topic, p) for topic, partitions in found.items() for p in partitions)
            busy = self.rng.choice([0, 10, 2_000]) if self.owned - target else 0
            self._later(lambda: self._take(target), busy)

    def _take(self, target: frozenset[TopicPartition]) -> None:
        gave_up = bool(self.owned - target)
        self.owned = target
        if gave_up:
            self._join()
        else:
            self._later(self._beat, HEARTBEAT_MS)

    def _beat(self) -> None:
        topics, metadata = self._joined_with
        if topics != self.topics or metadata is not self.image().topics:
            self._join()  # as clients do when what they subscribe to has changed
            return
        request = Message(
            group_id="g",
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self._send("heartbeat", request, self._beaten)

    def _beaten(self, answer: Any) -> None:
        if answer is None or isinstance(answer, ApiError) or answer.error_code == 0:
            self._later(self._beat, HEARTBEAT_MS)
        else:
            self._failed(answer.error_code)

    def _failed(self, code: int) -> None:
        self.simulation.note(f"{self.name}: error {code}")
        if code != RebalanceInProgress.code or not self.cooperative:
            self.owned = frozenset()
        if code == FencedInstanceId.code:
            self.fenced = True
            return
        if code in (UnknownMemberId.code, IllegalGeneration.code):
            self.member_id = ""
        self._later(self._join, RETRY_MS if code != RebalanceInProgress.code else 1)
