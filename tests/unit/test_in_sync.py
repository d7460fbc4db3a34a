"""Whether a leader may change its in-sync replicas: each rule by itself."""

from __future__ import annotations

import pytest

from penstock.controller.elections import PartitionChange
from penstock.controller.in_sync import WantedIsr, check_sender, plan_isr
from penstock.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import ClusterImage
from tests.unit.cluster_images import cluster, partition

IMAGE = cluster(partition(isr=(1, 2)))


def plan(wanted: WantedIsr, image: ClusterImage = IMAGE, sender: int = 1) -> PartitionChange | ApiError:
    (found,) = plan_isr(image, sender, image.topics["t"], [wanted])
    return found


def wanted(*isr: int, leader_epoch: int = 5, partition_epoch: int = 9, index: int = 0) -> WantedIsr:
    return WantedIsr(index, leader_epoch, partition_epoch, {one: one * 10 for one in isr})


def test_a_leader_lets_followers_in_and_out() -> None:
    grown = plan(wanted(3, 2, 1))
    assert isinstance(grown, PartitionChange)
    # In the order of the replica list, with another partition epoch and the same leader epoch.
    assert (grown.new.isr, grown.new.partition_epoch, grown.new.leader_epoch) == ((1, 2, 3), 10, 5)
    shrunk = plan(wanted(1))
    assert isinstance(shrunk, PartitionChange)
    assert shrunk.new.isr == (1,)


def test_asking_for_what_is_so_already_is_stored_with_a_new_epoch() -> None:
    same = plan(wanted(1, 2))
    assert isinstance(same, PartitionChange)
    assert (same.new.isr, same.new.partition_epoch) == ((1, 2), 10)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (wanted(1, 2, index=7), UnknownTopicOrPartition),
        (wanted(1, 2, leader_epoch=4), FencedLeaderEpoch),
        (wanted(1, 2, partition_epoch=8), InvalidUpdateVersion),
        (wanted(1, 2, leader_epoch=6), NotController),
        (wanted(1, 2, partition_epoch=10), NotController),
        (wanted(2, 3), InvalidRequest),
        (wanted(1, 4), InvalidRequest),
        (wanted(), InvalidRequest),
    ],
)
def test_what_cannot_be_is_refused(asked: WantedIsr, error: type[ApiError]) -> None:
    assert isinstance(plan(asked), error)


def test_who_does_not_lead_is_fenced() -> None:
    assert isinstance(plan(wanted(1, 2), sender=2), FencedLeaderEpoch)


def test_a_topic_that_is_gone_is_not_known() -> None:
    (found,) = plan_isr(IMAGE, 1, None, [wanted(1)])
    assert isinstance(found, UnknownTopicOrPartition)


@pytest.mark.promise("reassignment", "A restarted follower joins the ISR by the current state of its log")
def test_nobody_joins_who_is_dead_leaves_or_was_started_again_since_it_fetched() -> None:
    dead = cluster(partition(isr=(1, 2)), live=(1, 2))
    leaving = cluster(partition(isr=(1, 2)), leaving=(3,))
    assert isinstance(plan(wanted(1, 2, 3), dead), IneligibleReplica)
    assert isinstance(plan(wanted(1, 2, 3), leaving), IneligibleReplica)
    earlier = WantedIsr(0, 5, 9, {1: 10, 2: 20, 3: 29})
    assert isinstance(plan(earlier), IneligibleReplica)
    unknown = WantedIsr(0, 5, 9, {1: 10, 2: 20, 3: -1})
    assert isinstance(plan(unknown), PartitionChange)


def test_who_is_in_sync_stays_so_when_its_leader_does_not_say_otherwise() -> None:
    """That it is dead is the controller's own business, and comes next."""
    assert isinstance(plan(wanted(1, 2), cluster(partition(isr=(1, 2)), live=(1, 3))), PartitionChange)


def test_a_sender_with_an_older_registration_is_told_so() -> None:
    check_sender(IMAGE, 1, 10)
    for broker, epoch in ((1, 9), (1, 11), (7, 70)):
        with pytest.raises(StaleBrokerEpoch):
            check_sender(IMAGE, broker, epoch)
