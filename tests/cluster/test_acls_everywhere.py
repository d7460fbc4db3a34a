"""ACLs, quotas and the audit of a cluster: what one broker is asked to change is in force on all of them, and
what each of them records is in one topic."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until

pytestmark = pytest.mark.timeout(300)

# Clients and brokers are User:ANONYMOUS alike: what has no ACL is allowed, so that brokers reach each other.
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "penstock.audit.enable": "true",
}
DENIED = 29


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("acls"), settings=SETTINGS) as cluster:
        yield cluster


def code_of(node: Node, topic: str) -> int:
    with WireClient(node.clients.target, timeout=PATIENCE) as wire:
        answer = wire.request(ApiKey.METADATA, 9, Message(topics=[Message(name=topic)]))
    code: int = answer.topics[0].error_code
    return code


def admin_of(node: Node) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{node.clients.port}"})


@pytest.mark.promise(
    "access",
    "An ACL or quota that was changed through one broker takes effect on all brokers; replication continues",
)
def test_an_acl_made_at_one_broker_denies_at_all_and_deleted_at_another_allows_again(
    cluster: Cluster,
) -> None:
    cluster.create_topic("secret")
    nodes = list(cluster.nodes.values())
    wait_until("all know the topic", lambda: [code_of(node, "secret") for node in nodes] == [0, 0, 0])
    deny = AclBinding(
        ResourceType.TOPIC, "sec", ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*",
        AclOperation.ALL, AclPermissionType.DENY,
    )  # fmt: skip
    first = admin_of(nodes[0])
    for made in first.create_acls([deny]).values():
        made.result(PATIENCE)
    wait_until("all deny", lambda: [code_of(node, "secret") for node in nodes] == [DENIED] * 3)
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = admin_of(nodes[1])
    assert list(admin.describe_acls(anything).result(PATIENCE)) == [deny]
    for deleted in admin.delete_acls([anything]).values():
        assert list(deleted.result(PATIENCE)) == [deny]
    wait_until("all allow", lambda: [code_of(node, "secret") for node in nodes] == [0, 0, 0])


@pytest.mark.promise(
    "access",
    "An ACL or quota that was changed through one broker takes effect on all brokers; replication continues",
)
def test_replication_and_groups_go_on_where_acls_are_on(cluster: Cluster) -> None:
    cluster.create_topic("open")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce("open", b"v", partition=0)
    assert producer.flush(PATIENCE) == 0
    cluster.wait_in_sync("open")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition("open", 0, 0)])
    (record,) = consumer.consume(1, PATIENCE)
    assert record.value() == b"v"
    consumer.commit(message=record, asynchronous=False)
    consumer.close()


@pytest.mark.promise(
    "access",
    "An ACL or quota that was changed through one broker takes effect on all brokers; replication continues",
)
def test_a_quota_set_at_one_broker_is_described_by_all(cluster: Cluster) -> None:
    first, *others = cluster.nodes.values()
    entity = [Message(entity_type="user", entity_name="alice")]
    ops = [Message(key="producer_byte_rate", value=1e6, remove=False)]
    with WireClient(first.clients.target, timeout=PATIENCE) as wire:
        request = Message(entries=[Message(entity=entity, ops=ops)], validate_only=False)
        assert wire.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries[0].error_code == 0

    def quotas(node: Node) -> list[float]:
        with WireClient(node.clients.target, timeout=PATIENCE) as wire:
            answer = wire.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, Message(components=[], strict=False))
        return [one.value for entry in answer.entries for one in entry.values]

    wait_until("all have it", lambda: all(quotas(node) == [1e6] for node in (first, *others)))


def audited(cluster: Cluster) -> list[dict[str, object]]:
    """All records of the audit topic, by an ordinary client; none while it finds no leader."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "auditors"})
    try:
        partition = TopicPartition("__penstock_audit", 0, 0)
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=5)
        except KafkaException:
            return []
        consumer.assign([partition])
        found: list[dict[str, object]] = []
        while len(found) < end:
            found += [json.loads(one.value()) for one in consumer.consume(100, 1) if one.error() is None]
        return found
    finally:
        consumer.close()


def quota_of(node: Node, user: str) -> None:
    entity = [Message(entity_type="user", entity_name=user)]
    ops = [Message(key="producer_byte_rate", value=1e6, remove=False)]
    with WireClient(node.clients.target, timeout=PATIENCE) as wire:
        request = Message(entries=[Message(entity=entity, ops=ops)], validate_only=False)
        assert wire.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries[0].error_code == 0


def recorded(cluster: Cluster, user: str) -> set[object]:
    """The brokers that have recorded a change of this user's quota."""
    return {
        one["broker"] for one in audited(cluster)
        if one["api"] == "AlterClientQuotas" and one["detail"]["entity"] == {"user": user}  # type: ignore[index]
    }  # fmt: skip


@pytest.mark.promise(
    "access",
    "The audit topic records each denial, each administrative request with its outcome and each failed "
    "login, on whichever broker they happen; it contains no secret",
)
def test_what_each_broker_is_asked_is_in_one_audit_topic_also_after_its_leader_is_killed(
    cluster: Cluster,
) -> None:
    nodes = list(cluster.nodes.values())
    for node in nodes:
        quota_of(node, "before")
    wait_until("all have recorded it", lambda: recorded(cluster, "before") == {1, 2, 3})
    cluster.wait_in_sync("__penstock_audit")
    killed = cluster.leader("__penstock_audit")
    killed.kill()
    for node in nodes:
        if node is not killed:
            quota_of(node, "after")
    others = {node.id for node in nodes} - {killed.id}
    wait_until("the others have recorded it", lambda: recorded(cluster, "after") == others)
    wait_until("the old records are there", lambda: recorded(cluster, "before") == {1, 2, 3})
