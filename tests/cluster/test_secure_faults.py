"""Three brokers, all SASL_SSL, through the faults that other tests here try in plain text."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.certificates import Authority
from tests.cluster.harness import Cluster, running, wait_until
from tests.cluster.history import Writer, check, read_all
from tests.cluster.test_secure_cluster import BROKER_PASSWORD, config, settings

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secure")
    # Brokers log in again all the while, and not so often that a busy machine is late for it.
    given = settings(directory, Authority()) | {"listener.name.internal.connections.max.reauth.ms": "20000"}
    admin = config(directory, "broker", BROKER_PASSWORD)
    with running(directory, settings=given, client_listener="CLIENTS", client_config=admin) as cluster:
        yield cluster


@pytest.fixture
def cluster(secure: Cluster) -> Cluster:
    secure.mend()
    return secure


def kill_the_leader(cluster: Cluster, topic: str) -> None:
    node = cluster.leader(topic)
    node.kill()
    _another_leads(cluster, topic, node.id)
    node.start(wait=False)


def kill_the_controller(cluster: Cluster, topic: str) -> None:
    node = cluster.controller()
    node.kill()
    wait_until("another is controller", lambda: cluster.controller() is not node)
    node.start(wait=False)


def kill_all(cluster: Cluster, topic: str) -> None:
    for node in cluster.nodes.values():
        node.kill()
    for node in cluster.nodes.values():
        node.start(wait=False)


def stop_a_leader_past_its_session(cluster: Cluster, topic: str) -> None:
    node = cluster.leader(topic)
    node.pause()
    _another_leads(cluster, topic, node.id)
    node.resume()


def cut_a_leader_from_zookeeper(cluster: Cluster, topic: str) -> None:
    node = cluster.leader(topic)
    node.zookeeper.cut()
    _another_leads(cluster, topic, node.id)
    node.zookeeper.heal()


def cut_a_leader_from_its_followers(cluster: Cluster, topic: str) -> None:
    """The followers fall out of sync; the leader acknowledges nothing until they are back."""
    node = cluster.leader(topic)
    node.peers.cut()
    wait_until("the leader has no followers", lambda: any(len(isr) < 3 for isr in _seen(cluster, topic)))
    node.peers.heal()


def restart_zookeeper(cluster: Cluster, topic: str) -> None:
    server = cluster.zookeepers[0]
    server.kill()
    server.start()


def lose_a_disk(cluster: Cluster, topic: str) -> None:
    cluster.wait_in_sync(topic)
    node = cluster.leader(topic)
    node.kill()
    _another_leads(cluster, topic, node.id)
    shutil.rmtree(node.directory)
    node.start(wait=False)


def _another_leads(cluster: Cluster, topic: str, former: int) -> None:
    def led() -> bool:
        leaders = cluster.leaders(topic).values()
        return all(leader > 0 and leader != former for leader in leaders)

    wait_until(f"broker {former} leads nothing of {topic}", led)


def _seen(cluster: Cluster, topic: str) -> list[set[int]]:
    return list(cluster.in_sync(topic).values())


FAULTS: list[Callable[[Cluster, str], None]] = [
    kill_the_leader,
    kill_all,
    stop_a_leader_past_its_session,
    cut_a_leader_from_its_followers,
    lose_a_disk,
]
# Of ZooKeeper, whose connections are not those between brokers.
MORE_FAULTS = [kill_the_controller, cut_a_leader_from_zookeeper, restart_zookeeper]


@pytest.mark.promise(
    "protocol",
    "A cluster with SASL_SSL on every listener loses no acknowledged record when brokers are killed, "
    "stopped, disconnected or lose their disk",
)
@pytest.mark.parametrize(
    "fault",
    [*FAULTS, *(pytest.param(fault, marks=pytest.mark.long) for fault in MORE_FAULTS)],
    ids=lambda fault: fault.__name__.replace("_", "-"),
)
def test_a_secured_cluster_loses_nothing(cluster: Cluster, fault: Callable[[Cluster, str], None]) -> None:
    topic = fault.__name__.replace("_", "-")
    cluster.create_topic(topic, 3, 3, min_insync_replicas="2")
    cluster.wait_in_sync(topic)
    with Writer(cluster, topic) as writer:
        writer.wait_for_progress()
        fault(cluster, topic)
        writer.wait_for_progress()
        cluster.mend()
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed, history.failed[:3]
    check(history, read_all(cluster, topic))
