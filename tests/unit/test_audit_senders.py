"""APIs that brokers, members and administrators use: the audit topic has what administrators do with them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.clock import ManualClock
from penstock.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.unit.acl_requests import GROUP, TOPIC
from tests.unit.test_acl_table import As
from tests.unit.test_audit_broker import ON, recorded, scenario

MEMBERS = "g-of-members"
SETTINGS = {**ON, "group_initial_rebalance_delay_ms": "0"}


async def join(client: As, user: str) -> tuple[str, int]:
    """Member id and generation of the only member of a classic group."""
    join = Message(
        group_id=MEMBERS, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        group_instance_id=None, protocol_type="consumer",
        protocols=[Message(name="range", metadata=b"")],
    )  # fmt: skip
    answer = await client.request(user, ApiKey.JOIN_GROUP, 3, join)
    assert answer.error_code == 0
    assignments = [Message(member_id=answer.member_id, assignment=b"")]
    sync = Message(
        group_id=MEMBERS, generation_id=answer.generation_id, member_id=answer.member_id,
        assignments=assignments,
    )  # fmt: skip
    assert (await client.request(user, ApiKey.SYNC_GROUP, 2, sync)).error_code == 0
    return answer.member_id, answer.generation_id


def commit(group: str, member: str = "", generation: int = -1) -> Message:
    partitions = [Message(partition_index=0, committed_offset=1, committed_metadata="")]
    return Message(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member,
        topics=[Message(name=TOPIC, partitions=partitions)],
    )  # fmt: skip


def allow(broker: Broker, *users: str) -> None:
    assert broker.authorizer is not None
    rules = [
        (ResourceType.GROUP, MEMBERS, Operation.READ), (ResourceType.TOPIC, TOPIC, Operation.READ),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.CLUSTER_ACTION),
    ]  # fmt: skip
    acls = [
        Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
        for kind, name, operation in rules
        for user in users
    ]
    broker.authorizer.update({str(number): acl for number, acl in enumerate(acls)})


async def new(broker: Broker, before: int) -> list[dict[str, Any]]:
    return (await recorded(broker))[before:]


@pytest.mark.promise(
    "access",
    "The audit topic records when administrators reset offsets, remove members and end transactions, but "
    "not what members and brokers do",
)
def test_what_a_member_commits_is_not_recorded_and_a_reset_of_offsets_is(tmp_path: Path) -> None:
    async def work(broker: Broker, client: As) -> None:
        allow(broker, "alice")
        member, generation = await join(client, "alice")
        before = len(await recorded(broker))
        answer = await client.request("alice", ApiKey.OFFSET_COMMIT, 8, commit(MEMBERS, member, generation))
        assert answer.topics[0].partitions[0].error_code == 0
        assert await new(broker, before) == []
        for _ in range(20):
            await client.request("admin", ApiKey.OFFSET_COMMIT, 8, commit(GROUP))
        assert isinstance(broker.clock, ManualClock)
        broker.clock.advance(11_000)
        await broker.jobs.run_due()
        found = await new(broker, before)
        assert {(one["api"], one["resource"], one["principal"]) for one in found} == {
            ("OffsetCommit", GROUP, "User:admin")
        }
        assert found[0]["detail"] == {"topics": [TOPIC]}
        # `prepare` has made the first of these commits.
        assert sum(one["count"] for one in found) == 20 and len(found) <= 2, (
            "programs repeat it: it is folded"
        )

    scenario(tmp_path, work, SETTINGS)


@pytest.mark.parametrize("version", [2, 5])
def test_a_member_that_leaves_is_not_recorded_and_one_that_is_removed_is(
    tmp_path: Path, version: int
) -> None:
    async def work(broker: Broker, client: As) -> None:
        def leave(member: str) -> Message:
            members = [Message(member_id=member, group_instance_id=None, reason=None)]
            return Message(group_id=MEMBERS, member_id=member, members=members)

        allow(broker, "alice")
        member, _ = await join(client, "alice")
        before = len(await recorded(broker))
        assert (await client.request("alice", ApiKey.LEAVE_GROUP, version, leave(member))).error_code == 0
        assert await new(broker, before) == []
        member, _ = await join(client, "alice")
        assert (await client.request("admin", ApiKey.LEAVE_GROUP, version, leave(member))).error_code == 0
        (found,) = await new(broker, before)
        assert (found["api"], found["resource"], found["error"]) == ("LeaveGroup", MEMBERS, None)
        assert found["detail"] == {"members": [member]}

    scenario(tmp_path, work, SETTINGS)


def test_markers_of_a_broker_are_not_recorded_and_those_of_a_client_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        marker = Message(
            producer_id=7, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
            topics=[Message(name="missing", partition_indexes=[0])],
        )  # fmt: skip
        request = Message(markers=[marker])
        allow(broker, "broker-2-markers")
        before = len(await recorded(broker))
        with monkeypatch.context() as patched:  # as in a cluster
            patched.setattr(broker, "membership", SimpleNamespace())
            await client.request("broker-2-markers", ApiKey.WRITE_TXN_MARKERS, 1, request)
        assert await new(broker, before) == []
        await client.request("admin", ApiKey.WRITE_TXN_MARKERS, 1, request)
        (found,) = await new(broker, before)
        assert (found["api"], found["principal"]) == ("WriteTxnMarkers", "User:admin")
        assert found["detail"] == {"producer_id": 7, "result": "commit", "topics": ["missing"]}

    scenario(tmp_path, work, SETTINGS)
