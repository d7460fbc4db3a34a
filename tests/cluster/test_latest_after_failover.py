"""The latest offset does not go back when another broker leads (KIP-207)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.errors import LeaderNotAvailable, NotLeaderOrFollower, OffsetNotAvailable
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until
from tests.cluster.test_follower_fetch import produce

pytestmark = pytest.mark.timeout(300)

LATEST = -1


def latest(node: Node, topic: str, version: int = 7, isolation: int = 0) -> tuple[int, int]:
    """The error code and the offset, past the link that clients use."""
    asked = Message(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    request = Message(
        replica_id=-1, isolation_level=isolation, topics=[Message(name=topic, partitions=[asked])]
    )
    with WireClient(node.clients.target, timeout=PATIENCE) as client:
        found = client.request(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]
    return found.error_code, found.offset


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A follower hears of the high watermark with the next records, or after this long.
    settings = {"replica.fetch.wait.max.ms": "60000", "replica.lag.time.max.ms": "120000"}
    with running(tmp_path_factory.mktemp("latest"), settings=settings) as cluster:
        yield cluster


@pytest.mark.promise(
    "reassignment",
    "A new leader returns OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) for the latest "
    "offset until its followers have all records from before its epoch, so that the latest offset never "
    "decreases (KIP-207)",
)
def test_a_new_leader_says_what_is_latest_only_when_its_followers_have_what_it_began_with(
    cluster: Cluster,
) -> None:
    """It has all records and has not heard yet that consumers may read them; the other follower, which stays
    in sync, cannot reach it at first. A consumer that begins at the latest offset would read them again."""
    cluster.create_topic("latest", partitions=1)
    cluster.wait_in_sync("latest")
    replicas = cluster.metadata("latest").topics["latest"].partitions[0].replicas
    leader, next_leader, _ = (cluster.nodes[one] for one in replicas)
    assert cluster.leader("latest") is leader
    assert produce(leader, "latest", b"a", b"b", acks=-1) == 0
    assert latest(leader, "latest") == (0, 2)
    next_leader.peers.cut()
    leader.kill()
    answers = []

    def leads() -> bool:
        answers[:] = [latest(next_leader, "latest")]
        return answers[0][0] != NotLeaderOrFollower.code

    wait_until("the next one leads", leads)
    assert answers == [(OffsetNotAvailable.code, -1)]
    assert latest(next_leader, "latest", isolation=1) == (OffsetNotAvailable.code, -1)
    assert latest(next_leader, "latest", version=4) == (LeaderNotAvailable.code, -1)
    next_leader.peers.heal()
    wait_until("the end is known", lambda: latest(next_leader, "latest") == (0, 2))
    assert latest(next_leader, "latest", isolation=1) == latest(next_leader, "latest", version=4) == (0, 2)
