"""Partitions move between brokers, and brokers come and go for good, while records are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from penstock.cli.main import cli
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("four"), brokers=4) as cluster:
        yield cluster


def penstock(cluster: Cluster, *arguments: str, expect: int = 0) -> str:
    """`penstock cluster ...`; its stdout."""
    options = ["--bootstrap", cluster.bootstrap, "--timeout", str(PATIENCE)]
    result = CliRunner().invoke(cli, ["cluster", *arguments, *options])
    assert result.exit_code == expect, (arguments, result.output, result.exception)
    return result.stdout if expect == 0 else result.output


def moving(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(penstock(cluster, "reassign", "--status", "--json"))
    return found


def replicas(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    found = cluster.metadata(topic).topics[topic]
    return {number: list(partition.replicas) for number, partition in found.partitions.items()}


def alive(cluster: Cluster) -> list[Node]:
    return [node for node in cluster.nodes.values() if node.is_running]


def known(node: Node, topic: str) -> list[Message]:
    """The partitions of a topic as this broker knows them; none while it has not heard of it."""
    with WireClient(node.clients.target, timeout=PATIENCE) as client:
        answer = client.request(ApiKey.METADATA, 12, Message(topics=None))
    return [one for found in answer.topics if found.name == topic for one in found.partitions]


def place(cluster: Cluster, topic: str, *brokers: int, partitions: int = 3) -> None:
    """A topic whose partitions are all on these brokers, the first of them leading."""
    cluster.create_topic(topic, partitions, len(brokers), min_insync_replicas=str(max(len(brokers) - 1, 1)))
    targets = [f"--move={topic}:{index}={','.join(map(str, brokers))}" for index in range(partitions)]
    # Who answers may not have heard of the topic yet.
    wait_until(f"all know {topic}", lambda: all(known(node, topic) for node in alive(cluster)))
    penstock(cluster, "reassign", *targets)
    wanted = list(brokers)
    wait_until(
        f"{topic} is on {brokers}", lambda: all(r == wanted for r in replicas(cluster, topic).values())
    )
    cluster.wait_in_sync(topic, len(brokers))


def carried(cluster: Cluster) -> dict[int, int]:
    """How many replicas each broker has, as some broker knows it by now."""
    described = json.loads(penstock(cluster, "describe", "--json"))
    return {one["id"]: one["replicas"] for one in described["brokers"]}


def spread(cluster: Cluster) -> int:
    counts = carried(cluster).values()
    return max(counts) - min(counts)


def logs_of(cluster: Cluster, broker: int, topic: str) -> list[Path]:
    """Without those that are renamed and wait for their deletion."""
    found = cluster.nodes[broker].directory.glob(f"{topic}-*")
    return [path for path in found if not path.name.endswith("-delete")]


@pytest.mark.promise("reassignment", "Reassignments during broker restarts lose no acknowledged record")
def test_partitions_move_while_brokers_bounce_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    place(cluster, "moved", 1, 2, 3)
    with Writer(cluster, "moved") as writer:
        for target, victim in (("2,3,4", "leader"), ("4,1,2", "new"), ("3,1,4", "controller")):
            writer.wait_for_progress()
            moves = [f"--move=moved:{index}={target}" for index in range(3)]
            node = {
                "leader": cluster.leader("moved"),
                "new": cluster.nodes[int(target[0])],
                "controller": cluster.controller(),
            }[victim]
            penstock(cluster, "reassign", *moves, "--no-wait")
            node.kill()
            writer.wait_for_progress()
            node.start()
            penstock(cluster, "reassign", "--wait")
            wanted = [int(broker) for broker in target.split(",")]
            assert set(map(tuple, replicas(cluster, "moved").values())) == {tuple(wanted)}
        history = writer.stop()
    assert not history.failed
    cluster.wait_in_sync("moved")
    check(history, read_all(cluster, "moved"))
    # 2 has nothing of it any more.
    wait_until("the old replicas are gone", lambda: not logs_of(cluster, 2, "moved"))


@pytest.mark.promise("reassignment", "A reassignment can be listed, throttled, cancelled and redirected")
def test_a_throttled_move_is_shown_on_its_way_and_can_be_called_back(cluster: Cluster) -> None:
    place(cluster, "throttled", 1, 2, partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for _ in range(40):
        producer.produce("throttled", b"x" * 100_000)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    penstock(cluster, "reassign", "--move", "throttled:0=4,3", "--throttle", "1000", "--no-wait")
    (one,) = moving(cluster)
    assert (one["adding"], one["removing"]) == ([4, 3], [1, 2])
    assert one["bytes"] > 2 * 4_000_000 > one["copied_bytes"]
    # It would take hours: there is time enough to see that it does not go on faster.
    assert moving(cluster)[0]["copied_bytes"] < 4_000_000
    assert "throttled-0" in json.loads(penstock(cluster, "describe", "--json"))["moving"]
    penstock(cluster, "reassign", "--cancel", "--topic", "throttled")
    assert moving(cluster) == []
    wait_until("it is as before", lambda: sorted(replicas(cluster, "throttled")[0]) == [1, 2])
    for broker in (3, 4):
        wait_until("what was copied is gone", lambda b=broker: not logs_of(cluster, b, "throttled"))
    # The throttle is gone with it: the same move is done in no time.
    penstock(cluster, "reassign", "--move", "throttled:0=4,3")
    assert replicas(cluster, "throttled")[0] == [4, 3]
    assert len(read_all(cluster, "throttled")[0]) == 40


@pytest.mark.promise("reassignment", "A reassignment can be listed, throttled, cancelled and redirected")
def test_a_move_with_a_throttle_is_done_and_takes_the_throttle_away(cluster: Cluster) -> None:
    place(cluster, "slow", 1, 2, partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for _ in range(20):
        producer.produce("slow", b"x" * 50_000)
        producer.flush(PATIENCE)
    penstock(cluster, "reassign", "--move", "slow:0=3,4", "--throttle", "1000000")
    assert replicas(cluster, "slow")[0] == [3, 4]
    assert len(read_all(cluster, "slow")[0]) == 20
    result = CliRunner().invoke(
        cli, ["configs", "describe", "topic", "slow", "--json", "--bootstrap", cluster.bootstrap]
    )
    overridden = {one["name"] for one in json.loads(result.stdout) if one["source"] == "topic"}
    assert overridden == {"min.insync.replicas"}


@pytest.mark.promise(
    "reassignment", "An impossible reassignment is rejected with an error that gives the reason"
)
def test_what_cannot_be_moved_is_refused_with_the_reason(cluster: Cluster) -> None:
    place(cluster, "refused", 1, 2, partitions=1)
    for target, reason in (("refused:0=1,9", "broker 9"), ("refused:0=1,1", "more than once")):
        assert reason in penstock(cluster, "reassign", "--move", target, expect=1)
    assert "no partition 7" in penstock(cluster, "reassign", "--move", "refused:7=1,2", expect=1)
    assert "no topic 'nowhere'" in penstock(cluster, "reassign", "--move", "nowhere:0=1", expect=1)
    assert "broker 9 does not exist" in penstock(cluster, "decommission", "9", "--yes", expect=1)
    assert (
        "No reassignment is in progress"
        in CliRunner()
        .invoke(cli, ["cluster", "reassign", "--cancel", "--bootstrap", cluster.bootstrap])
        .output
    )


@pytest.mark.promise("reassignment", "The preferred replica becomes leader on request and automatically")
def test_the_preferred_replica_leads_again_when_it_is_asked_for(cluster: Cluster) -> None:
    place(cluster, "preferred", 2, 3, 1)
    cluster.nodes[2].restart()
    cluster.wait_in_sync("preferred")
    assert 2 not in cluster.leaders("preferred").values()
    found = json.loads(penstock(cluster, "elect", "--topic", "preferred", "--json"))
    assert [one["partition"] for one in found["elected"]] == [0, 1, 2]
    wait_until("2 leads", lambda: set(cluster.leaders("preferred").values()) == {2})
    assert "No election is needed" in penstock(cluster, "elect", "--topic", "preferred")


@pytest.mark.promise(
    "reassignment",
    "A topic that was deleted while a broker was down is removed when the broker returns; added "
    "partitions get a leader",
)
def test_a_topic_that_was_deleted_while_a_broker_was_away_is_gone_when_it_returns(cluster: Cluster) -> None:
    place(cluster, "deleted", 1, 2, 3)
    node = cluster.nodes[3]
    assert logs_of(cluster, 3, "deleted")
    node.kill()

    def delete() -> bool:
        """Whoever is asked may be the one that was just killed."""
        try:
            for future in cluster.admin.delete_topics(["deleted"], request_timeout=10).values():
                future.result()
        except KafkaException:
            return "deleted" not in cluster.metadata().topics
        return True

    def make_again() -> bool:
        """Whoever is asked may not have heard yet that it is gone; or it is made, and the answer was late."""
        try:
            cluster.create_topic("deleted", 1, 2)
        except KafkaException as error:
            print(f"not made again: {error}")
            made = cluster.metadata().topics.get("deleted")
            if made is not None and [len(one.replicas) for one in made.partitions.values()] == [2]:
                return True
            if made is not None:
                delete()  # the client has asked for the topics that it knows, which creates one that is gone
            return False
        return True

    wait_until("it is deleted", delete)
    # Made again with the same name while it is away: what it has is of another topic.
    wait_until("it is made again", make_again)
    node.start()
    wait_until("its logs are gone", lambda: len(logs_of(cluster, 3, "deleted")) <= 1)
    cluster.wait_in_sync("deleted", 2)
    assert read_all(cluster, "deleted") == {0: []}


@pytest.mark.promise(
    "reassignment",
    "A topic that was deleted while a broker was down is removed when the broker returns; added "
    "partitions get a leader",
)
def test_partitions_that_are_added_are_led_and_written(cluster: Cluster) -> None:
    cluster.create_topic("grown", 1, 3, min_insync_replicas="2")
    for future in cluster.admin.create_partitions([NewPartitions("grown", 6)], request_timeout=30).values():
        future.result()
    wait_until("all know six", lambda: all(len(known(node, "grown")) == 6 for node in alive(cluster)))
    wait_until("all are led", lambda: min(cluster.leaders("grown").values()) > 0)
    with Writer(cluster, "grown", partitions=6) as writer:
        writer.wait_for_progress(100)
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "grown"))


@pytest.mark.promise(
    "reassignment",
    "A broker can be added, used for new partitions and, on request, for existing ones, and decommissioned",
)
def test_a_broker_is_added_takes_its_share_and_is_taken_out_again(cluster: Cluster) -> None:
    place(cluster, "shared", 1, 2, 3)
    with Writer(cluster, "shared") as writer:
        writer.wait_for_progress()
        node = cluster.add(5)
        wait_until("it is known", lambda: 5 in cluster.metadata().brokers)
        cluster.create_topic("shared-new", 4, 2)
        assert any(5 in brokers for brokers in replicas(cluster, "shared-new").values())
        preview = json.loads(penstock(cluster, "rebalance", "--preview", "--json"))
        assert preview["copies"] > 0
        assert not moving(cluster)
        penstock(cluster, "rebalance", "--yes")
        writer.wait_for_progress()
        wait_until("five carry alike", lambda: len(carried(cluster)) == 5 and spread(cluster) <= 1)
        assert "It can be stopped" in penstock(cluster, "decommission", "5", "--yes")
        wait_until("all know that it has nothing", lambda: carried(cluster)[5] == 0)
        writer.wait_for_progress()
        assert node.stop() == 0
        del cluster.nodes[5]
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    cluster.wait_in_sync("shared")
    check(history, read_all(cluster, "shared"))


@pytest.mark.promise("reassignment", "The preferred replica becomes leader on request and automatically")
def test_leaders_are_given_back_by_themselves(tmp_path: Path) -> None:
    often = {"leader.imbalance.check.interval.seconds": "1"}
    with running(tmp_path, brokers=2, settings=often) as cluster:
        cluster.create_topic("balanced", 4, 2)
        preferred = {index: brokers[0] for index, brokers in replicas(cluster, "balanced").items()}
        assert set(preferred.values()) == {1, 2}
        cluster.nodes[1].restart()
        wait_until("all lead what they should", lambda: cluster.leaders("balanced") == preferred)
