"""What commits of offsets promise, as seen at the coordinator: who is refused, and what is committed then.

Only the commits that were answered without an error count, those of a transaction when it has committed; and
a member that is not of the present generation (or member epoch) is refused. `Commits` sends the requests and
holds the coordinator to that after every step, so also when it has crashed and read its log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.coordinator import Outcome, Producer, Reply
from penstock.errors import ApiError, InvalidProducerEpoch, UnstableOffsetCommit
from penstock.groups import Caller, GroupShard
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.member import COMPLETING_REBALANCE
from penstock.groups.consumer.group import ConsumerGroup
from penstock.wire.message import Message
from tests.sim.group_host import commit_request
from tests.sim.harness import Simulation

Offsets = Mapping[tuple[str, int], int]
OnReply = Callable[[Any], None]


class Identity(NamedTuple):
    """Who a member says that it is. Nobody in particular: a producer that does not know its group."""

    member_id: str = ""
    generation: int = -1
    instance: str | None = None


class _Asked(NamedTuple):
    identity: Identity
    offsets: Offsets
    producer: Producer | None
    must_succeed: bool | None
    """None where both answers are right."""


class Commits:
    """Of one group."""

    def __init__(self, simulation: Simulation[GroupShard], group: str = "g") -> None:
        self.simulation = simulation
        self.group = group
        self.committed: dict[tuple[str, int], int] = {}
        self.pending: dict[Producer, dict[tuple[str, int], int | None]] = {}
        """Of transactions that have not ended. None for one that a plain commit came after."""
        self._asked: dict[Any, _Asked] = {}
        simulation.on_applied.append(self._answered)
        simulation.invariants.append(self.check)

    # what happens

    def commit(self, who: Caller, identity: Identity, offsets: Offsets, on_reply: OnReply) -> None:
        request = commit_request(self.group, offsets, *identity)

        def step(shard: GroupShard, token: Any, now: int) -> Outcome:
            must_succeed = self._must_succeed(shard, identity, transactional=False)
            self._asked[token] = _Asked(identity, offsets, None, must_succeed)
            return shard.offset_commit(request, who, token, now)

        self.simulation.call(step, on_reply)

    def begin(self, producer: Producer) -> None:
        self.pending[producer] = {}

    def send_offsets(self, who: Caller, producer: Producer, identity: Identity, offsets: Offsets) -> None:
        request = commit_request(
            self.group,
            offsets,
            *identity,
            generation_id=identity.generation,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )

        def step(shard: GroupShard, token: Any, now: int) -> Outcome:
            if producer not in self.pending:
                # Too late, which the log knows from the marker before the coordinator is asked (KIP-890).
                return Outcome(replies=[Reply(token, InvalidProducerEpoch())])
            must_succeed = self._must_succeed(shard, identity, transactional=True)
            self._asked[token] = _Asked(identity, offsets, producer, must_succeed)
            return shard.txn_offset_commit(request, who, token, now)

        self.simulation.call(step, lambda answer: None)

    def end(self, producer: Producer, committed: bool) -> None:
        """The marker is in the log."""
        for part, offset in self.pending.pop(producer).items():
            if committed and offset is not None:
                self.committed[part] = offset
        self.simulation.note(f"{producer} {'commits' if committed else 'aborts'}")
        self.simulation.end_transaction(producer, committed)

    # what was promised

    def _must_succeed(self, shard: GroupShard, identity: Identity, *, transactional: bool) -> bool | None:
        group = shard.groups.get(self.group)
        if identity.generation < 0:
            return None  # the matter of those who are not members
        if isinstance(group, ClassicGroup):
            if not _is_member(group, identity) or identity.generation != group.generation:
                return False
            return transactional or group.state is not COMPLETING_REBALANCE
        if isinstance(group, ConsumerGroup):
            member = group.members.get(identity.member_id)
            return member is not None and member.epoch == identity.generation
        return False

    def _answered(self, token: Any, response: Any) -> None:
        asked = self._asked.pop(token, None)
        if asked is None or isinstance(response, ApiError):
            return
        codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
        succeeded = codes == {0}
        assert succeeded or 0 not in codes
        assert asked.must_succeed in (None, succeeded), f"a commit of {asked.identity} is answered {codes}"
        if not succeeded:
            return
        if asked.producer is not None:
            self.pending[asked.producer].update(asked.offsets)
        else:
            self.committed.update(asked.offsets)
            for offsets in self.pending.values():
                offsets.update(dict.fromkeys(offsets.keys() & asked.offsets.keys()))

    def check(self) -> None:
        shard = self.simulation.shard
        if shard is None:
            return
        for (topic, partition), offset in self.committed.items():
            found = shard.committed_offset(self.group, topic, partition)
            assert found == offset, f"{topic}-{partition} is committed up to {found}, not {offset}"
        count = len(shard.offsets.by_group.get(self.group, ()))
        assert count == len(self.committed), "something is committed that nobody was told of"

    def check_fetch(self, shard: GroupShard, parts: list[tuple[str, int]]) -> None:
        """What a consumer is told that waits for transactions to end (KIP-447)."""
        request = Message(
            group_id=self.group,
            member_id=None,
            member_epoch=-1,
            topics=[Message(name=topic, partition_indexes=[partition]) for topic, partition in parts],
        )
        who = Caller("fetches", "/sim", 9)
        outcome = shard.offset_fetch(request, who, "fetch", self.simulation.now, require_stable=True)
        [answer] = [reply.response for reply in outcome.replies if reply.token == "fetch"]
        assert answer.error_code == 0
        unstable = {part for offsets in self.pending.values() for part in offsets}
        for part, item in zip(parts, answer.topics, strict=True):
            found = item.partitions[0]
            if part in unstable:
                assert found.error_code == UnstableOffsetCommit.code, f"{part} is not decided"
            else:
                told = (found.error_code, found.committed_offset)
                assert told == (0, self.committed.get(part, -1)), f"{part} is told as {told}"


def _is_member(group: ClassicGroup, identity: Identity) -> bool:
    if identity.instance is not None and group.static_members.get(identity.instance) != identity.member_id:
        return False
    return identity.member_id in group.members
