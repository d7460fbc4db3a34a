"""Kafka's own tools on three brokers: topics with replicas, and settings that every broker has at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness import Cluster, running, wait_until

if TYPE_CHECKING:
    from tests.tools.conftest import KafkaTools


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kafka_tools: KafkaTools) -> Iterator[Cluster]:
    """After `kafka_tools`: without Maven nothing is started."""
    with running(tmp_path_factory.mktemp("tools")) as started:
        yield started


def server(cluster: Cluster) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


def asked(kafka_tools: KafkaTools, cluster: Cluster, tool: str, *words: str, ok: bool = True) -> str:
    return kafka_tools.run(tool, *server(cluster), *words, ok=ok)


@pytest.mark.promise("reassignment", "Kafka's own tools reassign partitions and elect leaders")
def test_kafka_topics_makes_grows_shows_and_deletes_replicated_topics(
    kafka_tools: KafkaTools, cluster: Cluster
) -> None:
    def topics(*words: str, ok: bool = True) -> str:
        return asked(kafka_tools, cluster, "kafka-topics", *words, ok=ok)

    topics("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "3")
    topics("--create", "--topic", "placed", "--replica-assignment", "1:2,3:1")
    topics("--alter", "--topic", "made", "--partitions", "6")
    wait_until("all are led", lambda: min(cluster.leaders("made").values()) > 0)
    said = topics("--describe")
    rows = re.findall(r"Topic: (\w+)\s+Partition: (\d+)\s+Leader: (\d)\s+Replicas: (\S+)\s+Isr: (\S+)", said)
    made = [(leader, set(replicas.split(","))) for name, _, leader, replicas, _ in rows if name == "made"]
    assert len(made) == 6 and all(replicas == {"1", "2", "3"} for _, replicas in made)
    assert {leader for leader, _ in made} == {"1", "2", "3"}
    assert [(leader, replicas) for name, _, leader, replicas, _ in rows if name == "placed"] == [
        ("1", "1,2"),
        ("3", "3,1"),
    ]
    too_many = topics(
        "--create", "--topic", "four", "--partitions", "1", "--replication-factor", "4", ok=False
    )
    assert "only 3 broker(s) are registered" in too_many

    cluster.nodes[2].kill()
    wait_until("it is known to be away", lambda: 2 not in cluster.leaders("made").values())
    behind = topics("--describe", "--under-replicated-partitions")
    assert behind.count("Topic: made") == 6 and behind.count("Topic: placed") == 1
    # With a broker away, too.
    topics("--delete", "--topic", "placed")
    assert topics("--list").split() == ["made"]
    cluster.nodes[2].start()
    cluster.wait_in_sync("made")
    assert topics("--describe", "--under-replicated-partitions").strip() == ""
    wait_until(
        "the one that was away has deleted it, too",
        lambda: not [path for path in cluster.nodes[2].directory.glob("placed-?") if path.is_dir()],
    )


@pytest.mark.promise(
    "cluster", "Changed settings of brokers and topics apply on every broker without a restart"
)
def test_kafka_configs_alters_brokers_and_topics_without_a_restart(
    kafka_tools: KafkaTools, cluster: Cluster
) -> None:
    def configs(*words: str, ok: bool = True) -> str:
        return asked(kafka_tools, cluster, "kafka-configs", *words, ok=ok)

    cluster.create_topic("altered", 3, 3)
    configs(
        "--alter", "--entity-type", "topics", "--entity-name", "altered", "--add-config", "segment.bytes=1000"
    )
    configs("--alter", "--entity-type", "brokers", "--entity-name", "3", "--add-config", "max.connections=77")
    configs(
        "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=98765"
    )
    for broker in ("1", "2", "3"):
        said = configs("--describe", "--all", "--entity-type", "brokers", "--entity-name", broker)
        assert ("max.connections=77 " in said) == (broker == "3")
        assert "log.retention.ms=98765 " in said
    said = configs("--describe", "--entity-type", "topics", "--entity-name", "altered")
    assert "segment.bytes=1000 " in said
    refused = configs(
        "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "node.id=9", ok=False
    )
    assert "node.id" in refused
    # It is in force on the leaders and on the followers: segments are small from now on.
    kafka_tools.run(
        "kafka-producer-perf-test",
        *("--topic", "altered", "--num-records", "300", "--record-size", "200", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all", "batch.size=300"),
    )
    for node in cluster.nodes.values():
        wait_until(
            f"broker {node.id} has rolled",
            lambda node=node: all(  # type: ignore[misc]
                len(list((node.directory / f"altered-{index}").glob("*.log"))) > 3 for index in range(3)
            ),
        )


@pytest.mark.promise("reassignment", "Kafka's own tools reassign partitions and elect leaders")
def test_a_slow_move_is_listed_verified_and_cancelled_by_kafka_reassign_partitions(
    kafka_tools: KafkaTools, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("slow", 1, 1)
    kafka_tools.run(
        "kafka-producer-perf-test",
        *("--topic", "slow", "--num-records", "100", "--record-size", "50000", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all"),
    )
    (old,) = cluster.metadata("slow").topics["slow"].partitions[0].replicas
    new = next(broker for broker in cluster.nodes if broker != old)
    plan = tmp_path / "plan.json"
    partitions = [{"topic": "slow", "partition": 0, "replicas": [new]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    options = ("--reassignment-json-file", str(plan))

    def reassign(*words: str) -> str:
        return asked(kafka_tools, cluster, "kafka-reassign-partitions", *words)

    reassign(*options, "--execute", "--throttle", "1000")
    assert re.search(rf"slow-0: replicas: [\d,]+\. adding: {new}\. removing: {old}\.", reassign("--list"))
    assert "is still in progress" in reassign(*options, "--verify")
    assert "Successfully cancelled" in reassign(*options, "--cancel")
    assert "No partition reassignments found" in reassign("--list")
    assert cluster.metadata("slow").topics["slow"].partitions[0].replicas == [old]


@pytest.mark.promise("reassignment", "Kafka's own tools reassign partitions and elect leaders")
def test_kafka_leader_election_prefers_the_first_and_takes_another_only_where_it_is_told_to(
    kafka_tools: KafkaTools, cluster: Cluster
) -> None:
    cluster.create_topic("led", 1, 3)
    cluster.create_topic("alone", 1, 1)
    (first, *_), last = (
        cluster.metadata(name).topics[name].partitions[0].replicas for name in ("led", "alone")
    )
    cluster.nodes[first].restart()
    cluster.wait_in_sync("led")
    assert cluster.leaders("led")[0] != first

    def elect(kind: str, topic: str, ok: bool = True) -> str:
        words = ("--election-type", kind, "--topic", topic, "--partition", "0")
        return asked(kafka_tools, cluster, "kafka-leader-election", *words, ok=ok)

    assert "Successfully completed leader election" in elect("preferred", "led")
    wait_until("the first leads", lambda: cluster.leaders("led")[0] == first)
    assert "Valid replica already elected" in elect("preferred", "led")
    (only,) = last
    cluster.nodes[only].kill()
    wait_until("nobody leads it", lambda: cluster.leaders("alone")[0] == -1)
    said = elect("unclean", "alone", ok=False)
    assert "EligibleLeadersNotAvailable" in said
    cluster.nodes[only].start()
    wait_until("it leads again", lambda: cluster.leaders("alone")[0] == only)
