"""Brokers that are not registered and lead partitions all the same: what Metadata shows of them."""

from __future__ import annotations

import pytest

from penstock.broker.cluster.known_brokers import KnownBrokers
from penstock.broker.topic_messages import topic_message
from penstock.errors import LeaderNotAvailable, ListenerNotFound
from tests.unit.cluster_images import cluster, partition


@pytest.mark.promise(
    "cluster",
    "When all brokers have lost their ZooKeeper sessions, clients still find the brokers that lead their "
    "partitions",
)
def test_a_broker_that_leads_is_shown_until_another_one_does() -> None:
    """librdkafka drops the brokers that a Metadata response lacks, and may not find the cluster again."""
    known = KnownBrokers(broker_id=3)
    known.on_image(cluster(partition(leader=1)))
    assert set(known.shown) == {1, 2, 3, 4}

    known.on_image(cluster(partition(leader=1), live=()))
    assert {one.host for one in known.shown.values()} == {"host-1", "host-3"}, "the leader, and itself"

    known.on_image(cluster(partition(leader=2), live=(2,)))
    assert set(known.shown) == {2, 3}


def test_a_registration_replaces_the_address_of_before() -> None:
    known = KnownBrokers(broker_id=2)
    known.on_image(cluster(partition(leader=1)))
    known.on_image(cluster(partition(leader=1), live=(2, 3)))
    again = cluster(partition(leader=1))
    known.on_image(again)
    assert known.shown is again.brokers


@pytest.mark.parametrize(
    ("reachable", "known", "code", "leader"),
    [
        ({1, 2}, {1, 2}, 0, 1),
        ({2}, {1, 2}, ListenerNotFound.code, -1),
        ({2}, {2}, LeaderNotAvailable.code, -1),
    ],
)
def test_a_leader_whose_address_is_not_in_the_response_is_not_named(
    reachable: set[int], known: set[int], code: int, leader: int
) -> None:
    """As Kafka answers: a client that gets a leader without an address would wait for it."""
    (topic,) = cluster(partition(leader=1)).topics.values()
    (found,) = topic_message(topic, 0, reachable, known).partitions
    assert (found.error_code, found.leader_id) == (code, leader)
