"""A cluster that is lost with its ZooKeeper comes back from its backups, under another chroot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from penstock.cli.main import cli
from tests.cluster.harness import PATIENCE, Cluster, running
from tests.cluster.history import History, Writer, check, read_all

pytestmark = pytest.mark.timeout(300)

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.segment.bytes": "65536",
}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("backup"), settings=SETTINGS) as cluster:
        yield cluster


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*words: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(*words, "--json"))
    return answer


def described(cluster: Cluster) -> list[str]:
    """All that the metadata backup is to keep, as the commands show it."""
    address = ("-b", cluster.bootstrap)
    return [
        run("acls", "list", "--json", *address),
        run("users", "list", "--json", *address),
        run("quotas", "list", "--json", *address),
        run("configs", "describe", "topic", "orders", "--json", *address),
    ]


@pytest.mark.promise(
    "backups",
    "A cluster that is lost together with its ZooKeeper is restored from backups of its metadata and its "
    "brokers that were made during writes: records acknowledged before the first backup are there, and "
    "groups continue",
)
def test_a_cluster_comes_back_from_its_backups_with_an_empty_zookeeper(
    cluster: Cluster, tmp_path: Path
) -> None:
    address = ("-b", cluster.bootstrap)
    cluster.create_topic("orders", 3, 3, min_insync_replicas="2", retention_ms="86400000")
    run("acls", "allow", "User:alice", "read", "--topic", "orders", *address)
    password = tmp_path / "password"
    password.write_text("wonderland\n")
    run("users", "add", "alice", "--password-file", password, *address)
    run("quotas", "set", "--user", "alice", "producer_byte_rate=1000000", *address)
    before = described(cluster)
    zookeeper = f"zookeeper.connect=127.0.0.1:{cluster.zookeeper_port}"
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    with Writer(cluster, "orders") as writer:
        writer.wait_for_progress(300)
        group.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        history = History(dict(writer.history.acknowledged))
        saved = run_json("backup", "metadata", tmp_path / "metadata.json", "--set", f"{zookeeper}/test")
        assert (saved["acls"], saved["users"], saved["quotas"]) == (1, 1, 1)
        for node in cluster.nodes.values():
            made = run_json("backup", "data", node.directory, tmp_path / f"broker-{node.id}")
            assert made["running"] and made["problems"] == []
            writer.wait_for_progress(50)
    group.close()
    refused = CliRunner().invoke(
        cli,
        ["restore", "metadata", str(tmp_path / "metadata.json"), "--set", f"{zookeeper}/test", "--replace"],
    )
    assert refused.exit_code == 1 and "is in use by brokers (1, 2, 3)" in refused.output

    for node in cluster.nodes.values():
        node.kill()
    run("restore", "metadata", tmp_path / "metadata.json", "--set", f"{zookeeper}/restored")
    for node in cluster.nodes.values():
        run("restore", "data", tmp_path / f"broker-{node.id}", node.directory, "--replace")
        node.change({"zookeeper.connect": f"127.0.0.1:{node.zookeeper.port}/restored"})
        node.start(wait=False)
    cluster.mend()

    assert described(cluster) == before
    check(history, read_all(cluster, "orders"))
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    assert group.committed([TopicPartition("orders", 0)], PATIENCE)[0].offset == 7
    group.close()
    with Writer(cluster, "orders", name="later") as later:
        later.wait_for_progress(100)
    check(later.history, read_all(cluster, "orders"))
    for node in cluster.nodes.values():
        assert node.stop() == 0
        assert run_json("log", "verify", node.directory)["clean"] is True
