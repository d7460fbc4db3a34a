"""Records that a client was told are deleted stay deleted, whoever leads next and however brokers die."""

from __future__ import annotations

import pytest

from penstock.errors import NotLeaderOrFollower, RequestTimedOut
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, Node, wait_until
from tests.cluster.test_follower_fetch import fetch, produce

pytestmark = pytest.mark.timeout(300)

EARLIEST = -2


def delete(node: Node, topic: str, offset: int, timeout_ms: int = int(PATIENCE * 1000)) -> tuple[int, int]:
    """The error code and the low watermark."""
    item = Message(partition_index=0, offset=offset)
    request = Message(topics=[Message(name=topic, partitions=[item])], timeout_ms=timeout_ms)
    with WireClient(node.clients.target, timeout=2 * PATIENCE) as client:
        found = client.request(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
    return found.error_code, found.low_watermark


def earliest(node: Node, topic: str) -> tuple[int, int]:
    asked = Message(partition_index=0, current_leader_epoch=-1, timestamp=EARLIEST)
    request = Message(replica_id=-1, isolation_level=0, topics=[Message(name=topic, partitions=[asked])])
    with WireClient(node.clients.target, timeout=PATIENCE) as client:
        found = client.request(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0]
    return found.error_code, found.offset


def start_of(cluster: Cluster, topic: str) -> int:
    """The first offset by its leader, which may not know yet that it leads, or be dead."""
    answers: list[tuple[int, int]] = []

    def answered() -> bool:
        try:
            answers[:] = [earliest(cluster.leader(topic), topic)]
        except ConnectionError:
            return False
        return answers[0][0] == 0

    wait_until("its leader answers", answered)
    return answers[0][1]


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_deleted_records_do_not_come_back_when_the_leader_dies(cluster: Cluster) -> None:
    cluster.create_topic("deleted", partitions=1)
    cluster.wait_in_sync("deleted")
    leader = cluster.leader("deleted")
    assert produce(leader, "deleted", *[b"%d" % n for n in range(10)]) == 0
    assert delete(leader, "deleted", 4) == (0, 4)
    leader.kill()
    wait_until("another leads", lambda: cluster.leader("deleted") is not leader)
    assert start_of(cluster, "deleted") == 4


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_deleted_records_do_not_come_back_when_all_brokers_die(cluster: Cluster) -> None:
    cluster.create_topic("deleted-at-all", partitions=1)
    cluster.wait_in_sync("deleted-at-all")
    leader = cluster.leader("deleted-at-all")
    assert produce(leader, "deleted-at-all", *[b"%d" % n for n in range(10)]) == 0
    assert delete(leader, "deleted-at-all", 7) == (0, 7)
    for node in cluster.nodes.values():
        node.kill()
    for node in cluster.nodes.values():
        node.start(wait=False)
    for node in cluster.nodes.values():
        node.wait_until_ready()
    assert start_of(cluster, "deleted-at-all") == 7
    # A broker that returns from a kill -9 is in sync again only when it has all that the leader has.
    cluster.wait_in_sync("deleted-at-all")
    leader = cluster.leader("deleted-at-all")
    leader.kill()
    wait_until("another leads", lambda: cluster.leader("deleted-at-all") is not leader)
    assert start_of(cluster, "deleted-at-all") == 7


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_a_follower_that_stands_still_is_waited_for_up_to_the_timeout(cluster: Cluster) -> None:
    cluster.create_topic("waited", partitions=1)
    cluster.wait_in_sync("waited")
    leader = cluster.leader("waited")
    assert produce(leader, "waited", *[b"%d" % n for n in range(10)]) == 0
    replicas = cluster.metadata("waited").topics["waited"].partitions[0].replicas
    still = next(cluster.nodes[one] for one in replicas if one != leader.id)
    still.pause()
    assert delete(leader, "waited", 4, timeout_ms=500) == (RequestTimedOut.code, 0)
    still.resume()
    assert delete(leader, "waited", 4) == (0, 4)


@pytest.mark.promise(
    "topics",
    "In every API, a broker returns NOT_LEADER_OR_FOLLOWER for a partition whose replicas are on other "
    "brokers",
)
def test_a_broker_without_the_partition_sends_clients_to_those_that_have_it(cluster: Cluster) -> None:
    cluster.create_topic("elsewhere", partitions=1, replicas=2)
    replicas = cluster.metadata("elsewhere").topics["elsewhere"].partitions[0].replicas
    other = next(node for node in cluster.nodes.values() if node.id not in replicas)
    expected = NotLeaderOrFollower.code
    wait_until("it knows the topic", lambda: fetch(other, "elsewhere").error_code == expected)
    assert earliest(other, "elsewhere")[0] == expected
    assert delete(other, "elsewhere", 0)[0] == expected
