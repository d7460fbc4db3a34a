"""An older and the newest version: brokers of both in one cluster, and data of one opened by the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.testing import PenstockBroker
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until
from tests.cluster.history import Writer, check, read_all
from tests.cluster.older_version import FIRST_IN_ONE_CLUSTER, SINGLE_BROKER, source_of

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(FIRST_IN_ONE_CLUSTER, tmp_path_factory.mktemp("older"))


@pytest.fixture
def older_cluster(older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three brokers of the older version."""
    monkeypatch.setenv("PYTHONPATH", str(older))
    with running(tmp_path) as cluster:
        monkeypatch.delenv("PYTHONPATH")
        yield cluster


class Work:
    """What applications do between the steps of an upgrade: transactions with offsets, topics, settings."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self._number = 0
        cluster.create_topic("transfers", 2, 3)

    def step(self) -> None:
        """With one transactional id all the time, whose epochs go on, and with one of its own.

        Clients are new: librdkafka 2.16 may wait forever for a coordinator that was restarted."""
        self._number += 1
        group = Consumer({**self._settings, "group.id": "transfers"})
        for name in ("transfers", f"transfers-{self._number}"):
            one = Producer({**self._settings, "transactional.id": name})
            one.init_transactions(PATIENCE)
            one.begin_transaction()
            for partition in (0, 1):
                one.produce("transfers", str(self._number).encode(), partition=partition)
            offsets = [TopicPartition("transfers", 0, self._number)]
            one.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), PATIENCE)
            one.commit_transaction(PATIENCE)
            one.begin_transaction()
            one.produce("transfers", b"aborted", partition=0)
            one.flush(PATIENCE)
            one.abort_transaction(PATIENCE)
        group.close()
        name = f"made-{self._number}"
        self._cluster.create_topic(name, 3, 3)
        entry = ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        for future in self._cluster.admin.incremental_alter_configs([resource]).values():
            future.result(PATIENCE)
        if self._number > 1:
            gone = f"made-{self._number - 1}"
            for future in self._cluster.admin.delete_topics([gone]).values():
                future.result(PATIENCE)
            wait_until(f"{gone} is deleted", lambda: gone not in self._cluster.metadata().topics)

    def check(self) -> None:
        twice = [str(number).encode() for number in range(1, self._number + 1) for _ in range(2)]
        for records in read_all(self._cluster, "transfers").values():
            assert [value for _, value in records] == twice
        group = Consumer({**self._settings, "group.id": "transfers"})
        committed = group.committed([TopicPartition("transfers", 0)], PATIENCE)
        assert committed[0].offset == self._number
        group.close()


def change(cluster: Cluster, node: Node, older: Path | None) -> None:
    """One step of a rolling upgrade or downgrade: stop in order, start the other version, wait for it."""
    assert node.stop() == 0
    node.start(**({} if older is None else {"PYTHONPATH": str(older)}))
    for topic in ("orders", "transfers"):
        cluster.wait_in_sync(topic)


def roll(cluster: Cluster, steps: list[tuple[int, Path | None]]) -> None:
    cluster.create_topic("orders", 3, 3, min_insync_replicas="2")
    work = Work(cluster)
    with Writer(cluster, "orders") as writer:
        writer.wait_for_progress()
        work.step()
        for broker_id, version in steps:
            change(cluster, cluster.nodes[broker_id], version)
            writer.wait_for_progress()
            work.step()
    work.check()
    check(writer.history, read_all(cluster, "orders"))
    assert not writer.history.failed
    logs = [node.log_file.read_text() for node in cluster.nodes.values()]
    assert not [line for log in logs for line in log.splitlines() if "Traceback" in line]


@pytest.mark.promise(
    "backups",
    "Brokers of an older version and of the newest work in one cluster, in a rolling upgrade and in a "
    "downgrade: no acknowledged record is lost, and transactions and groups continue",
)
def test_brokers_of_two_versions_in_one_cluster(older_cluster: Cluster, older: Path) -> None:
    roll(older_cluster, [(1, None), (2, None), (1, older)])


@pytest.mark.long
@pytest.mark.promise(
    "backups",
    "Brokers of an older version and of the newest work in one cluster, in a rolling upgrade and in a "
    "downgrade: no acknowledged record is lost, and transactions and groups continue",
)
def test_a_whole_cluster_is_upgraded_downgraded_and_upgraded_again(
    older_cluster: Cluster, older: Path
) -> None:
    new = [(number, None) for number in (1, 2, 3)]
    roll(older_cluster, [*new, *((number, older) for number in (3, 2, 1)), *new])


@pytest.mark.promise(
    "backups",
    "The data directory of a single broker can be used by a newer version, and again by the previous one",
)
def test_a_single_broker_is_upgraded_and_downgraded(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = source_of(SINGLE_BROKER, tmp_path / "oldest")
    values: list[bytes] = []
    monkeypatch.setenv("PYTHONPATH", str(oldest))
    with PenstockBroker(data_dir=tmp_path / "data") as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
        for number, version in enumerate((oldest, None, older, None)):
            monkeypatch.setenv("PYTHONPATH", "" if version is None else str(version))
            if number:
                broker.restart()
            group = Consumer(settings)
            if number == 0:
                broker.create_topic("t", 2, {"retention.ms": "1234567"})
            else:
                assert group.committed([TopicPartition("t", 0)], PATIENCE)[0].offset == number
            values.append(f"version {number}".encode())
            broker.produce("t", [values[-1], {"value": values[-1], "partition": 1}])
            for partition in (0, 1):
                found = broker.consume("t", partition=partition)
                assert [record.value for record in found] == values
            group.commit(offsets=[TopicPartition("t", 0, number + 1)], asynchronous=False)
            group.close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values():
            assert future.result(PATIENCE)["retention.ms"].value == "1234567"
