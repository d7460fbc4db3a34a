"""Subscriptions by regular expression where ACLs are on: each member gets what it may describe."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.controller import TopicSpec
from penstock.groups.consumer.member import Member
from penstock.groups.consumer.records import ResolvedRegex
from penstock.groups.consumer.regex.visible import Visibility
from penstock.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.unit.test_acl_table import As, guarded_broker

GROUP = "regex-readers"


class Reader:
    """A member with the pattern `orders.*`, driven by heartbeats."""

    def __init__(self, broker: Broker, client: As, user: str) -> None:
        self._broker, self._client, self.user = broker, client, user
        self._epoch = 0
        self.topics: set[str] = set()
        self._owned: list[Message] = []

    async def beat(self, *, leave: bool = False) -> None:
        joins = self._epoch == 0
        request = Message(
            group_id=GROUP,
            member_id=f"{self.user}-member",
            member_epoch=-1 if leave else self._epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=None,
            subscribed_topic_regex="orders.*" if joins else None,
            server_assignor=None,
            topic_partitions=[] if joins else self._owned,
        )
        for _ in range(100):
            answer = await self._client.request(self.user, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
            if answer.error_code not in (14, 15, 16):
                break
            await asyncio.sleep(0.05)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions
            by_id = {topic.id: name for name, topic in self._broker.image.topics.items()}
            self.topics = {by_id[each.topic_id] for each in self._owned}


def allow(broker: Broker, may: Mapping[str, tuple[str, ...]]) -> None:
    """These users may join the group, and describe these topics; nobody else anything."""
    assert broker.authorizer is not None

    def one(user: str, kind: ResourceType, operation: Operation, name: str) -> Acl:
        return Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)

    acls = [one(user, ResourceType.GROUP, Operation.READ, GROUP) for user in may]
    acls += [
        one(user, ResourceType.TOPIC, Operation.DESCRIBE, name)
        for user, names in may.items()
        for name in names
    ]
    broker.authorizer.update({str(number): acl for number, acl in enumerate(acls)})


async def settle(*readers: Reader) -> None:
    for _ in range(8):
        for reader in readers:
            await reader.beat()


@pytest.mark.promise(
    "access",
    "A member that subscribes by regular expression is assigned only topics that its user may describe, "
    "also after ACLs change",
)
def test_a_regex_matches_only_topics_that_its_member_may_describe(tmp_path: Path) -> None:
    async def run() -> None:
        async with guarded_broker(tmp_path) as (broker, client):
            names = ("orders-a", "orders-b", "orders-secret")
            await broker.controller.create_topics([TopicSpec(name, 2) for name in names])
            # The coordinator's topic first: what changes in the cluster brings the ACLs that are stored.
            find = Message(key_type=0, coordinator_keys=[GROUP])
            for _ in range(100):
                found = await client.request("admin", ApiKey.FIND_COORDINATOR, 4, find)
                if found.coordinators[0].error_code == 0:
                    break
                await asyncio.sleep(0.05)
            await broker.caught_up()
            allow(broker, {"alice": ("orders-a",), "bob": ("orders-a", "orders-secret")})
            alice, bob = Reader(broker, client, "alice"), Reader(broker, client, "bob")
            await settle(alice)
            assert alice.topics == {"orders-a"}
            await settle(alice, bob)
            assert alice.topics == {"orders-a"} and "orders-secret" in bob.topics
            # A right that is given counts for who has it, and is not taken for another's.
            allow(broker, {"alice": ("orders-a", "orders-b"), "bob": ("orders-a", "orders-secret")})
            await settle(alice, bob)
            assert "orders-b" in alice.topics and "orders-secret" not in alice.topics
            assert bob.topics <= {"orders-a", "orders-secret"}
            # What nobody may describe any more is taken from who had it.
            allow(broker, {"alice": ("orders-b",), "bob": ("orders-a",)})
            await settle(alice, bob)
            assert (alice.topics, bob.topics) == ({"orders-b"}, {"orders-a"})
            # Nor does a member inherit what another leaves.
            await bob.beat(leave=True)
            await settle(alice)
            assert alice.topics == {"orders-b"}

    asyncio.run(run())


class Sees:
    """A filter that allows these names."""

    def __init__(self, user: str, *names: str) -> None:
        self.who = user
        self.rules = RULES
        self._names = frozenset(names)

    def allowed(self, topics: frozenset[str]) -> frozenset[str]:
        return topics & self._names


RULES = object()


@pytest.mark.promise(
    "access",
    "A member that subscribes by regular expression is assigned only topics that its user may describe, "
    "also after ACLs change",
)
def test_a_coordinator_that_has_moved_waits_until_it_knows_who_the_members_are() -> None:
    members = {name: Member(name, regex="x.*") for name in ("a", "b")}
    regexes = {"x.*": ResolvedRegex(frozenset(("x1", "x2")), 1, 1)}
    moved = Visibility()
    assert moved.hear(members["a"], Sees("alice", "x1"))
    assert moved.is_unheard(members["b"]) and not moved.differs(members, regexes, 7)
    # One that had to be made before all were heard is made again.
    moved.settle(members, regexes, 8)
    assert not moved.differs(members, regexes, 8)
    assert moved.hear(members["b"], Sees("bob", "x2"))
    assert moved.differs(members, regexes, 8)
    moved.settle(members, regexes, 9)
    assert not moved.differs(members, regexes, 9)
    assert moved.differs(members, regexes, 8), "its records did not arrive in the log"
    moved.agree(members, Sees("bob", "x2"))
    assert not moved.hear(members["b"], Sees("bob", "x2")), "nothing to look at with every heartbeat"
    assert moved.hear(members["b"], Sees("eve")) and moved.differs(members, regexes, 9)
    assert moved.of(members["a"], regexes["x.*"].topics) == {"x1"}
