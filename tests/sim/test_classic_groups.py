"""Classic groups under a seeded simulator: whatever the network, clocks and crashes do, the promises hold."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.coordinator import StateRecord
from penstock.groups import GroupSettings, GroupShard
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.member import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from penstock.wire.message import Message
from tests.sim.classic_member import SimulatedMember
from tests.sim.commits import Commits, Identity
from tests.sim.group_host import image
from tests.sim.harness import Faults, Simulation, replay, run_seeds
from tests.sim.offsets_producer import OffsetsProducer

PARTITIONS = 6
PRODUCERS = 2
STORM_MS = 90_000
CALM_MS = 150_000
IMAGE = image({"t": PARTITIONS})


class World:
    """Members of one group, and what was promised to them."""

    def __init__(self, seed: int, keep: list[Any]) -> None:
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=random.Random(seed).choice([0, 0, 3000]),
            # A group that was deleted begins again with generation 1, and with new promises.
            offsets_retention_check_interval_ms=STORM_MS + 2 * CALM_MS,
        )
        self.simulation = Simulation(seed, self._make_shard)
        keep.append(self.simulation)
        self.rng = self.simulation.rng
        self.commits = Commits(self.simulation)
        self.members: list[SimulatedMember] = []
        self.owners: dict[int, dict[int, str]] = {}
        self.parts: dict[tuple[int, str], frozenset[int]] = {}
        self.numbers = 0
        self.storm = True
        self.simulation.invariants.append(self.check)

    def _make_shard(self, rng: random.Random) -> GroupShard:
        return GroupShard(self.settings, lambda: IMAGE, rng)

    # what happens

    def add(self, instance: str | None = None) -> None:
        self.numbers += 1
        member = SimulatedMember(
            self.simulation,
            f"m{self.numbers}" if instance is None else f"{instance}.{self.numbers}",
            PARTITIONS,
            instance=instance,
            version=self.rng.choice([3, 5, 8, 9]) if instance is None else self.rng.choice([8, 9]),
            commits=self.commits,
            on_assigned=self.assigned,
            on_joined=self.joined,
        )
        self.members.append(member)
        member.join()

    def start_producers(self) -> None:
        """Each with partitions of its own: consumers wait for the offsets of the one before (KIP-447)."""
        for number in range(PRODUCERS):
            producer = OffsetsProducer(
                self.commits,
                number,
                [("t", partition) for partition in range(number, PARTITIONS, PRODUCERS)],
                identity=self.some_identity,
                goes_on=lambda: self.storm,
            )
            self.simulation.after(self.rng.randrange(10_000), producer.begin)

    def some_identity(self) -> Identity:
        """One that a member has or had; more often a late one, which may still be that of a member."""
        known = [identity for member in self.members for identity in member.past[-3:]]
        return self.rng.choice(known[-8:]) if known else Identity()

    def something_happens(self) -> None:
        if not self.storm:
            return
        living = [member for member in self.members if member.alive and not member.fenced]
        what = self.rng.random()
        if what < 0.2 and len(living) < 6:
            self.add()
        elif what < 0.3:
            self.restart_static(f"i{self.rng.randrange(2)}")
        elif what < 0.38:
            self.simulation.crash(self.rng.choice([1, 500, 20_000]))
        elif living:
            member = self.rng.choice(living)
            if what < 0.46:
                member.leave()
            elif what < 0.54:
                member.crash()
            elif what < 0.62:
                member.silent = True
                self.simulation.after(self.rng.randrange(30_000), lambda: setattr(member, "silent", False))
            elif what < 0.7:
                member.change_subscription()
            elif what < 0.85 or not member.past:
                member.commit(self.rng.randrange(1_000_000))
            else:
                zombie = self.rng.choice(member.past[-3:])
                member.commit_as_zombie(zombie, self.rng.randrange(1_000_000))
        self.simulation.after(self.rng.randrange(6_000), self.something_happens)

    def restart_static(self, instance: str) -> None:
        """The old process may be dead, or live on and be fenced."""
        for member in self.members:
            if member.instance == instance and member.alive and self.rng.random() < 0.5:
                member.crash()
        self.add(instance)

    # what was promised

    def joined(self, member: SimulatedMember, answer: Message) -> None:
        assert answer.member_id
        assert answer.protocol_name in ("range", "other")

    def assigned(self, member: SimulatedMember, generation: int, parts: frozenset[int]) -> None:
        identity = member.instance or member.member_id
        known = self.parts.setdefault((generation, identity), parts)
        assert known == parts, f"{identity} had {known} and now {parts} in generation {generation}"
        owners = self.owners.setdefault(generation, {})
        for part in parts:
            owner = owners.setdefault(part, identity)
            assert owner == identity, f"partition {part} is {owner}'s and {identity}'s in {generation}"

    def check(self) -> None:
        shard = self.simulation.shard
        if shard is None:
            return
        for group in shard.groups.values():
            assert isinstance(group, ClassicGroup)
            check_group(group)
        waiting = {
            token
            for group in shard.groups.values()
            if isinstance(group, ClassicGroup)
            for member in group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        }
        assert waiting == set(self.simulation.waiting), "a request waits that nobody will answer"

    def check_log(self) -> None:
        """A coordinator that reads the log has what was promised: offsets, and the stable generation."""
        fresh = self._make_shard(random.Random(0))
        replay(fresh, self.simulation.log)
        fresh.on_time(self.simulation.now)
        last: dict[bytes, bytes | None] = {}
        for entry in self.simulation.log:
            if entry.record is not None:
                last[entry.record.key] = entry.record.value
        self.commits.check_fetch(fresh, [("t", partition) for partition in range(PARTITIONS)])
        live = self.simulation.shard
        if live is None:
            return
        assert fresh.offsets.by_group == live.offsets.by_group
        assert fresh.offsets.pending == live.offsets.pending
        for group_id, group in live.groups.items():
            assert isinstance(group, ClassicGroup)
            if group.state is STABLE and group.own_record in (None, last[group.tombstones()[0].key]):
                # (Where the last write of the group failed, nobody was told what it said.)
                read = fresh.groups[group_id]
                assert isinstance(read, ClassicGroup)
                assert read.state is STABLE
                assert read.generation == group.generation
                assert {m.member_id: m.assignment for m in read.members.values()} == {
                    m.member_id: m.assignment for m in group.members.values()
                }

    def check_calm(self) -> None:
        """Nothing has gone wrong for a while: the group is stable and every partition has one owner."""
        shard = self.simulation.shard
        assert shard is not None
        living = [member for member in self.members if member.alive and not member.fenced]
        group = shard.groups.get("g")
        if not living:
            assert group is None or group.is_empty
            return
        assert isinstance(group, ClassicGroup)
        assert group.state is STABLE, f"{group.state} with {len(living)} members alive"
        assert {member.member_id for member in living} == set(group.members)
        assert {member.generation for member in living} == {group.generation}
        owned = [part for member in living for part in member.owned or ()]
        assert sorted(owned) == list(range(PARTITIONS))
        assert not self.simulation.waiting


def check_group(group: ClassicGroup) -> None:
    """What is true of a classic group at any moment."""
    members = group.members
    assert group.awaiting_join == sum(member.join_token is not None for member in members.values())
    assert not set(group.pending_joins) & set(members)
    assert group.pending_syncs <= set(members)
    assert group.static_members == {
        member.instance_id: member_id
        for member_id, member in members.items()
        if member.instance_id is not None
    }
    assert (group.leader in members) if members else group.leader is None
    if group.state is EMPTY:
        assert not members
    if group.state in (STABLE, COMPLETING_REBALANCE):
        assert members
        assert all(member.join_token is None for member in members.values())
        assert group.protocol_name is not None
    if group.state in (STABLE, PREPARING_REBALANCE):
        assert all(member.sync_token is None for member in members.values())
    for member in members.values():
        if not member.keeps_alive_by_waiting:
            assert member.session is not None
            assert member.session.at is not None, f"{member.member_id} would live forever"


def schedule(seed: int, keep: list[Any]) -> Simulation[GroupShard]:
    world = World(seed, keep)
    for _ in range(world.rng.randint(1, 4)):
        world.simulation.after(world.rng.randrange(5_000), world.add)
    world.simulation.after(1_000, world.something_happens)
    world.start_producers()
    world.simulation.run(STORM_MS)
    world.check_log()
    world.storm = False
    world.simulation.faults = Faults.calm()
    for member in world.members:
        member.silent = False
    world.simulation.run(CALM_MS)
    world.check_calm()
    world.check_log()
    return world.simulation


@pytest.mark.promise(
    "groups",
    "On every schedule: a group has one generation, no partition has two owners in it, no committed "
    "offset is lost, and no request waits forever; the group becomes stable when the faults end",
)
def test_the_promises_of_classic_groups_hold_on_every_schedule(seeds: range) -> None:
    keep: list[Any] = []
    run_seeds(seeds, lambda seed: schedule(seed, keep), keep)


@pytest.mark.promise(
    "groups",
    "On every schedule: a group has one generation, no partition has two owners in it, no committed "
    "offset is lost, and no request waits forever; the group becomes stable when the faults end",
)
def test_a_schedule_is_the_same_every_time() -> None:
    def records(seed: int) -> list[StateRecord | None]:
        return [entry.record for entry in schedule(seed, []).log]

    assert records(3) == records(3)
