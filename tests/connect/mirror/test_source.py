"""MirrorSourceConnector between real clusters: records, partitions, settings and ACLs."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions

from penstock.connect.connectors.mirror.formats import OffsetSync
from penstock.testing import PenstockBroker
from tests.connect.conftest import Worker
from tests.connect.mirror.conftest import Pair, connect, contents, partition, until, until_equal

pytestmark = pytest.mark.timeout(400)

SOURCE = "MirrorSourceConnector"
OFTEN: dict[str, object] = {
    "refresh__topics__interval__seconds": 1,
    "sync__topic__configs__interval__seconds": 1,
    "sync__topic__acls__interval__seconds": 1,
}


def write(
    broker: PenstockBroker, topic: str, count: int, *, first_ms: int | None = None, **settings: Any
) -> None:
    """Records of now, or from a time on: retention deletes old ones while the test reads them."""
    if first_ms is None:
        first_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2", **settings})
    for i in range(count):
        producer.produce(topic, f"value {i} " * 5, f"k{i}", headers={"n": str(i)}, timestamp=first_ms + i)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.promise(
    "mirror", "Batches are copied byte for byte: compression, timestamps, keys, values and headers"
)
def test_the_bytes_of_the_records_are_those_of_the_source(clusters: Pair, mirror: Worker) -> None:
    clusters.source.create_topic("bytes", partitions=2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        write(clusters.source, "bytes", 300, **{"compression.type": codec})
    mirror.put("bytes", {"connector.class": SOURCE, **clusters.config("b1", topics="bytes", tasks__max=2)})
    until_equal(clusters, "bytes", "b1.bytes", 2)
    with connect(clusters.source.bootstrap) as source, connect(clusters.target.bootstrap) as target:
        for number in range(2):
            payloads = partition(source, "bytes", number)[1]
            assert len(payloads) >= 5 and partition(target, "b1.bytes", number)[1] == payloads
        # Offset syncs lead from each source offset to the record that it stands for.
        syncs = [
            OffsetSync.of(each.key or b"", each.value or b"")
            for each in partition(source, "mm2-offset-syncs.there.internal", 0)[0]
        ]
        for sync in (each for each in syncs if each.topic == "bytes"):
            there = {each.offset: each for each in partition(target, "b1.bytes", sync.partition)[0]}
            here = {each.offset: each for each in partition(source, "bytes", sync.partition)[0]}
            assert there[sync.downstream_offset].value == here[sync.upstream_offset].value
    offsets = mirror.http.get("/connectors/bytes/offsets").json()["offsets"]
    assert {each["partition"]["partition"] for each in offsets} == {0, 1}
    assert {"cluster", "topic", "partition"} == set(offsets[0]["partition"])


@pytest.mark.promise("mirror", "Aborted transactions and markers of the source are not replicated")
def test_aborted_records_are_not_replicated(clusters: Pair, mirror: Worker) -> None:
    clusters.source.create_topic("transactions", partitions=1)
    producer = Producer({"bootstrap.servers": clusters.source.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    mirror.put("transactions", {"connector.class": SOURCE, **clusters.config("t1", topics="transactions")})
    for round_ in range(6):
        producer.begin_transaction()
        for i in range(50):
            producer.produce("transactions", f"{round_} {i}")
        producer.flush(60)
        if round_ % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    until_equal(clusters, "transactions", "t1.transactions", 1)
    with connect(clusters.target.bootstrap) as target:
        found = [each.value for each in partition(target, "t1.transactions", 0)[0]]
    assert found == [f"{round_} {i}".encode() for round_ in (0, 2, 4) for i in range(50)]


@pytest.mark.promise(
    "mirror", "A compacted topic is replicated: records keep their order, keys and timestamps"
)
def test_batches_with_gaps_arrive(clusters: Pair, mirror: Worker) -> None:
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "1048576",
        "segment.ms": "100",
    }
    clusters.source.create_topic("gaps", partitions=1, config=config)
    # By the times of records, each round begins a segment; all but the last are compacted.
    first = int(time.time() * 1000) - 10_000
    for round_ in range(4):
        write(clusters.source, "gaps", 40, first_ms=first + 1000 * round_)

    def compacted() -> bool:
        with connect(clusters.source.bootstrap) as source:
            offsets = [each.offset for each in partition(source, "gaps", 0)[0]]
        return len(offsets) < 160

    until(compacted, "the source's log is compacted", clusters.source.log_tail)
    mirror.put("gaps", {"connector.class": SOURCE, **clusters.config("g1", topics="gaps")})
    with connect(clusters.source.bootstrap) as source, connect(clusters.target.bootstrap) as target:
        until(lambda: "g1.gaps" in target.partitions(["g1.gaps"]), "the topic is in the target")

        def all_there() -> bool:
            """The source may be compacted further meanwhile: then the target has more than it."""
            wanted = contents(partition(source, "gaps", 0)[0])
            found = iter(contents(partition(target, "g1.gaps", 0)[0]))
            return len({key for _, key, _, _ in wanted}) == 40 and all(each in found for each in wanted)

        until(all_there, "every record is in the target, in order", lambda: str(mirror.status("gaps")))


@pytest.mark.promise(
    "mirror",
    "New topics, partitions, settings and ACLs of the source cluster are copied to the target cluster",
)
def test_partitions_settings_and_acls_follow(clusters: Pair, mirror: Worker) -> None:
    admin, there = (
        AdminClient({"bootstrap.servers": broker.bootstrap}) for broker in (clusters.source, clusters.target)
    )
    clusters.source.create_topic("follow", partitions=1, config={"retention.ms": "777600000"})
    mirror.put("follow", {"connector.class": SOURCE, **clusters.config("f1", topics="follow.*", **OFTEN)})
    write(clusters.source, "follow", 10)
    until_equal(clusters, "follow", "f1.follow", 1)
    assert own_settings(there, "f1.follow") == {"retention.ms": "777600000"}

    admin.create_partitions([NewPartitions("follow", 3)])["follow"].result(30)
    clusters.source.create_topic("follow-2", partitions=2)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "follow", {"segment.bytes": "1048576"})
    admin.alter_configs([resource])[resource].result(30)  # retention.ms is gone with it
    binding = AclBinding(
        ResourceType.TOPIC,
        "follow",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    writer = AclBinding(
        ResourceType.TOPIC,
        "follow",
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for done in admin.create_acls([binding, writer]).values():
        done.result(30)
    write(clusters.source, "follow", 300)
    write(clusters.source, "follow-2", 100)
    until_equal(clusters, "follow", "f1.follow", 3)
    until_equal(clusters, "follow-2", "f1.follow-2", 2)
    until(lambda: own_settings(there, "f1.follow") == {"segment.bytes": "1048576"}, "settings follow")
    any_acl = AclBindingFilter(
        ResourceType.TOPIC,
        "f1.follow",
        ResourcePatternType.LITERAL,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def acls() -> list[tuple[str, AclOperation]]:
        return [(each.principal, each.operation) for each in there.describe_acls(any_acl).result(30)]

    until(acls, "ACLs follow")
    # Who may do all there may read here; only the replication writes.
    assert acls() == [("User:alice", AclOperation.READ)]


def own_settings(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: each.value for name, each in found.items() if each.source == 1}


def test_bad_settings_are_refused_by_name(clusters: Pair, mirror: Worker) -> None:
    config = {"connector.class": SOURCE, **clusters.config("bad.alias", topics="[x")}
    answer = mirror.http.put("/connectors/bad/config", json=config)
    assert answer.status_code == 400
    assert "source.cluster.alias" in answer.text and "[x" in answer.text
