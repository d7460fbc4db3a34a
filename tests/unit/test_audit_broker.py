"""What a broker records in its audit topic: each kind of denial, each administrative API, and no secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api_table import load_apis
from penstock.broker.audit.administration import ADMINISTRATION
from penstock.broker.broker import Broker
from penstock.broker.share.reading import records_between
from penstock.clock import ManualClock
from penstock.errors import KafkaStorageError, NotLeaderOrFollower
from penstock.metadata.image import AUDIT_TOPIC
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.unit.acl_requests import CASES, DENIED, GROUP, TOPIC, codes_in
from tests.unit.test_acl_table import As, guarded_broker, prepare

SECRET = "planted-secret"
ON = {"penstock_audit_enable": "true"}


async def recorded(broker: Broker) -> list[dict[str, Any]]:
    """All records of the topic, when nothing waits to be written."""
    assert broker.audit is not None
    await broker.audit._writer.idle()
    partition = broker.partitions.get((AUDIT_TOPIC, 0))
    if partition is None or not partition.log.log_end_offset:
        return []
    return [
        json.loads(record.value or b"")
        for record in records_between(partition, 0, partition.log.log_end_offset - 1)
    ]


def scenario(
    directory: Path, work: Callable[[Broker, As], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    async def main() -> None:
        async with guarded_broker(directory, **(settings or ON)) as (broker, client):
            await prepare(broker, client)
            await work(broker, client)

    asyncio.run(main())


@pytest.mark.promise(
    "access",
    "The audit topic records each denial, each administrative request with its outcome and each failed "
    "login, on whichever broker they happen; it contains no secret",
)
def test_each_api_that_denies_records_what_it_has_denied(tmp_path: Path) -> None:
    async def work(broker: Broker, client: As) -> None:
        topic_id = broker.image.topics[TOPIC].id
        expected: set[tuple[str, str]] = set()
        for case in CASES:
            versions = [one for one in load_apis()[case.key].versions if one in case.versions]
            for version in {versions[0], versions[-1]}:
                answer = await client.request("alice", case.key, version, case.build(topic_id, version))
                errors = set(codes_in(answer)) & DENIED
                if errors:
                    expected.add((case.key.name.replace("_", "").lower(), str(sorted(errors))))
        found = [one for one in await recorded(broker) if one["type"] == "denied"]
        assert {api for api, _ in expected} == {one["api"].lower() for one in found}
        assert len(expected) > 40
        rows = {
            (grant.resource.name.replace("_", "").lower(), grant.operation.name.replace("_", "").lower())
            for case in CASES
            for grant in case.grants
        }
        for one in found:
            assert (one["principal"], one["host"], one["listener"]) == (
                "User:alice", "127.0.0.1", "PLAINTEXT"
            )  # fmt: skip
            assert not one["allowed"] and one["error"].endswith("_AUTHORIZATION_FAILED")
            assert (one["resource_type"].lower(), one["operation"].lower()) in rows, one
        produced = next(one for one in found if one["api"] == "Produce" and one["resource_type"] == "Topic")
        assert (produced["resource"], produced["operation"], produced["client_id"]) == (
            TOPIC, "Write", "alice"
        )  # fmt: skip

    scenario(tmp_path, work)


def _requests() -> dict[ApiKey, Message]:
    """For each administrative API a request; the secret is wherever one could be."""
    partitions = [Message(partition_index=0, offset=0, start_offset=0)]
    configs = [Message(name="retention.ms", value="1000", config_operation=0)]
    broker_secret = [Message(name="ssl.key.password", value=SECRET, config_operation=0)]
    acl = Message(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:bob", host="*",
        operation=3, permission_type=3,
    )  # fmt: skip
    every = Message(
        resource_type_filter=2, resource_name_filter="t", pattern_type_filter=3, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    topic = Message(name="made", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    quota = Message(
        entity=[Message(entity_type="user", entity_name=None)],
        ops=[Message(key="producer_byte_rate", value=1e6, remove=False)],
    )
    user = Message(
        name="carol", mechanism=2, iterations=4096, salt=SECRET.encode(), salted_password=SECRET.encode() * 5
    )
    shared = Message(topic_name=TOPIC, partitions=partitions)
    return {
        ApiKey.CREATE_TOPICS: Message(topics=[topic], timeout_ms=1000, validate_only=False),
        ApiKey.CREATE_PARTITIONS: Message(
            topics=[Message(name="made", count=2, assignments=None)], timeout_ms=1000, validate_only=False
        ),
        ApiKey.DELETE_RECORDS: Message(
            topics=[Message(name=TOPIC, partitions=partitions)], timeout_ms=1000
        ),
        ApiKey.ALTER_CONFIGS: Message(
            resources=[Message(resource_type=2, resource_name="made", configs=configs)], validate_only=False
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Message(
            resources=[Message(resource_type=4, resource_name="1", configs=broker_secret)],
            validate_only=False,
        ),
        ApiKey.CREATE_ACLS: Message(creations=[acl]),
        ApiKey.DELETE_ACLS: Message(filters=[every]),
        ApiKey.ALTER_CLIENT_QUOTAS: Message(entries=[quota], validate_only=False),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Message(deletions=[], upsertions=[user]),
        ApiKey.ELECT_LEADERS: Message(election_type=0, topic_partitions=None, timeout_ms=1000),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Message(
            timeout_ms=1000, allow_replication_factor_change=True,
            topics=[Message(name=TOPIC, partitions=[Message(partition_index=0, replicas=[1])])],
        ),
        ApiKey.OFFSET_DELETE: Message(
            group_id=GROUP, topics=[Message(name=TOPIC, partitions=[Message(partition_index=0)])]
        ),
        ApiKey.OFFSET_COMMIT: Message(
            group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[
                Message(name=TOPIC, partitions=[Message(partition_index=0, committed_offset=1)])]
        ),
        ApiKey.LEAVE_GROUP: Message(
            group_id=GROUP, members=[Message(member_id="", group_instance_id="x", reason=None)]
        ),
        ApiKey.WRITE_TXN_MARKERS: Message(markers=[Message(
            producer_id=7, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
            topics=[Message(name="missing", partition_indexes=[0])],
        )]),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: Message(group_id="g-share", topics=[shared]),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: Message(
            group_id="g-share", topics=[Message(topic_name=TOPIC)]
        ),
        ApiKey.CREATE_DELEGATION_TOKEN: Message(
            owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: Message(hmac=SECRET.encode(), renew_period_ms=-1),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Message(hmac=SECRET.encode(), expiry_time_period_ms=-1),
        ApiKey.DELETE_GROUPS: Message(groups_names=["missing", GROUP]),
        ApiKey.DELETE_TOPICS: Message(
            topics=[Message(name="made", topic_id=None), Message(name="missing", topic_id=None)],
            timeout_ms=1000,
        ),
    }  # fmt: skip


@pytest.mark.promise(
    "access",
    "The audit topic records each denial, each administrative request with its outcome and each failed "
    "login, on whichever broker they happen; it contains no secret",
)
def test_each_administrative_api_is_recorded_with_its_outcome_and_without_secrets(tmp_path: Path) -> None:
    async def work(broker: Broker, client: As) -> None:
        before = len(await recorded(broker))
        requests = _requests()
        assert requests.keys() == ADMINISTRATION.keys()
        for key, request in requests.items():
            version = load_apis()[key].versions[-1]
            for ref in getattr(request, "topics", ()):
                if hasattr(ref, "topic_id"):
                    ref.topic_id = broker.image.topics[TOPIC].id.__class__(int=0)
            await client.request("admin", key, version, request)
        found = (await recorded(broker))[before:]
        assert {one["type"] for one in found} == {"admin"}
        assert {one["api"].lower() for one in found} == {
            key.name.replace("_", "").lower() for key in ADMINISTRATION
        }
        assert all(one["allowed"] and one["principal"] == "User:admin" for one in found)
        outcomes = {(one["api"], one["resource"]): one["error"] for one in found}
        assert outcomes["CreateTopics", "made"] is None
        assert outcomes["DeleteTopics", "made"] is None
        assert outcomes["DeleteTopics", "missing"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert outcomes["DeleteGroups", "missing"] == "GROUP_ID_NOT_FOUND"
        details = {one["api"]: one.get("detail") for one in found}
        assert outcomes["OffsetCommit", GROUP] == "UNKNOWN_TOPIC_ID"
        assert outcomes["LeaveGroup", GROUP] == "UNKNOWN_MEMBER_ID"
        assert outcomes["WriteTxnMarkers", "kafka-cluster"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert details["LeaveGroup"] == {"members": ["x"]}
        assert details["WriteTxnMarkers"] == {"producer_id": 7, "result": "abort", "topics": ["missing"]}
        assert details["IncrementalAlterConfigs"] == {"configs": ["ssl.key.password"]}
        assert details["CreateAcls"]["principal"] == "User:bob"
        assert details["AlterUserScramCredentials"] == {"change": "upsert", "mechanism": "SCRAM-SHA-512"}
        assert SECRET not in json.dumps(found) and SECRET.encode().hex() not in json.dumps(found)

    scenario(tmp_path, work)


def create(*names: str) -> Message:
    topics = [
        Message(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return Message(topics=topics, timeout_ms=1000, validate_only=False)


@pytest.mark.promise(
    "access",
    "The audit topic records each denial, each administrative request with its outcome and each failed "
    "login, on whichever broker they happen; it contains no secret",
)
@pytest.mark.parametrize(
    ("events", "types"),
    [("denied", {"denied"}), ("admin", {"admin"}), ("denied,admin", {"denied", "admin"})],
)
def test_only_what_penstock_audit_events_names_is_recorded(
    tmp_path: Path, events: str, types: set[str]
) -> None:
    async def work(broker: Broker, client: As) -> None:
        before = len(await recorded(broker))
        await client.request("admin", ApiKey.CREATE_TOPICS, 7, create("a"))
        await client.request("alice", ApiKey.CREATE_TOPICS, 7, create("b"))
        found = (await recorded(broker))[before:]
        assert {one["type"] for one in found} == types
        refused = [one for one in found if one["principal"] == "User:alice"]
        assert [one["error"] for one in refused] == ["TOPIC_AUTHORIZATION_FAILED"]

    scenario(tmp_path, work, {**ON, "penstock_audit_events": events})


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_a_flood_of_denied_requests_is_a_few_records(tmp_path: Path) -> None:
    async def work(broker: Broker, client: As) -> None:
        describe = Message(topics=[Message(name=f"t{number}") for number in range(1000)])
        await recorded(broker)
        for _ in range(10):
            await client.request("eve", ApiKey.METADATA, 9, describe)
        found = [one for one in await recorded(broker) if one["principal"] == "User:eve"]
        assert len(found) == 21
        assert isinstance(broker.clock, ManualClock)
        broker.clock.advance(11_000)
        await broker.jobs.run_due()
        found = [one for one in await recorded(broker) if one["principal"] == "User:eve"]
        assert len(found) == 42
        assert sum(one["count"] for one in found) == 10_000

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_requests_are_answered_while_the_topic_cannot_be_written_and_it_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        before = len(await recorded(broker))
        partition = broker.partitions[AUDIT_TOPIC, 0]
        append = type(partition).append

        def broken(self: Any, *args: Any, **more: Any) -> Any:
            if self is partition:
                raise KafkaStorageError("the disk is full")
            return append(self, *args, **more)

        monkeypatch.setattr(type(partition), "append", broken)
        answer = await client.request("admin", ApiKey.CREATE_TOPICS, 7, create("a", "b"))
        assert [one.error_code for one in answer.topics] == [0, 0]
        many = create(*(f"many{number}" for number in range(300)))
        await client.request("admin", ApiKey.CREATE_TOPICS, 7, many)
        assert len(await recorded(broker)) == before
        monkeypatch.undo()
        assert isinstance(broker.clock, ManualClock)
        broker.clock.advance(1_000)
        await broker.jobs.run_due()
        found = (await recorded(broker))[before:]
        assert [one["resource"] for one in found[:2]] == ["a", "b"]
        # Of one request 200 are recorded, and the rest is counted.
        assert len(found) == 2 + 200 + 1
        assert (found[-1]["type"], found[-1]["count"]) == ("dropped", 100)

    scenario(tmp_path, work)


@pytest.mark.promise("access", "Only brokers write the audit topic; `penstock audit` reads it")
def test_no_client_writes_the_topic_or_deletes_its_records(tmp_path: Path) -> None:
    async def work(broker: Broker, client: As) -> None:
        end = len(await recorded(broker))
        batch = build_batch([Record(0, 0, None, b'{"type":"admin"}')])
        data = Message(name=AUDIT_TOPIC, partition_data=[Message(index=0, records=batch)])
        request = Message(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[data])
        answer = await client.request("admin", ApiKey.PRODUCE, 9, request)
        assert answer.responses[0].partition_responses[0].error_code == 17
        trim = Message(name=AUDIT_TOPIC, partitions=[Message(partition_index=0, offset=-1)])
        await client.request("admin", ApiKey.DELETE_RECORDS, 2, Message(topics=[trim], timeout_ms=1000))
        assert len(await recorded(broker)) == end + 1  # the attempt is recorded
        assert broker.partitions[AUDIT_TOPIC, 0].log.log_start_offset == 0

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_what_waits_is_written_before_the_broker_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path, **ON) as (broker, client):
            for _ in range(5):
                await client.request("eve", ApiKey.CREATE_TOPICS, 7, create("x"))
            await recorded(broker)
        async with guarded_broker(tmp_path, **ON) as (broker, client):
            counts = [one["count"] for one in await recorded(broker) if one["principal"] == "User:eve"]
            assert counts == [1, 4]

    asyncio.run(main())


@pytest.mark.promise(
    "access",
    "The audit topic records each denial, each administrative request with its outcome and each failed "
    "login, on whichever broker they happen; it contains no secret",
)
def test_without_the_setting_nothing_is_recorded(tmp_path: Path) -> None:
    async def work(broker: Broker, client: As) -> None:
        await client.request("alice", ApiKey.CREATE_TOPICS, 7, create("b"))
        await client.request("admin", ApiKey.CREATE_TOPICS, 7, create("a"))
        assert broker.audit is None and AUDIT_TOPIC not in broker.image.topics

    scenario(tmp_path, work, {"penstock_audit_enable": "false"})


@pytest.mark.promise(
    "access",
    "A request neither waits for its audit record nor fails with it; the queue of audit records is "
    "limited, repetitions are combined, and dropped records are counted",
)
def test_a_missing_leader_is_no_error_for_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, client: As) -> None:
        def nobody(*args: Any) -> tuple[int, int]:
            raise NotLeaderOrFollower("no leader")

        monkeypatch.setattr("penstock.broker.produce.topic_writer.led_partition", nobody)
        before = len(await recorded(broker))
        answer = await client.request("admin", ApiKey.CREATE_TOPICS, 7, create("a"))
        assert answer.topics[0].error_code == 0
        assert len(await recorded(broker)) == before
        monkeypatch.undo()

    scenario(tmp_path, work)
