"""Partitions that move: begin, arrive, change course, be called back. And leaders on request."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.controller.balance import PREFERRED, UNCLEAN, give_back, plan_elections
from penstock.controller.elections import PartitionChange
from penstock.controller.reassignment import Wanted, completions, plan_reassignments, target_of, under_way
from penstock.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from tests.unit.cluster_images import cluster, partition


def plan(
    image: ClusterImage, replicas: Sequence[int] | None, *, unclean: bool = False, other_factor: bool = True
) -> PartitionChange | ApiError | None:
    wanted = [Wanted("t", 0, None if replicas is None else tuple(replicas))]
    found = plan_reassignments(image, wanted, {"t"} if unclean else (), other_factor=other_factor)
    return found["t", 0]


def new(outcome: PartitionChange | ApiError | None) -> PartitionImage:
    assert isinstance(outcome, PartitionChange), outcome
    return outcome.new


def shape(one: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return one.replicas, one.adding, one.removing


def arrived(image: ClusterImage) -> list[PartitionImage]:
    return [change.new for change in completions(image)]


def test_a_move_keeps_the_old_replicas_until_the_new_ones_are_in_sync() -> None:
    begun = new(plan(cluster(partition()), (4, 2)))
    assert shape(begun) == ((4, 2, 1, 3), (4,), (1, 3))
    assert (begun.leader, begun.isr, begun.leader_epoch, begun.partition_epoch) == (1, (1, 2, 3), 5, 10)
    assert target_of(begun) == (4, 2)
    assert arrived(cluster(begun)) == []


@pytest.mark.promise(
    "reassignment", "Old replicas and their logs are removed when all target replicas are in sync"
)
def test_it_arrives_when_the_whole_target_is_in_sync_and_another_leads_if_the_leader_goes() -> None:
    moving = partition((4, 2, 1, 3), (1, 2, 3, 4), 1, adding=(4,), removing=(1, 3))
    (done,) = arrived(cluster(moving))
    assert shape(done) == ((4, 2), (), ())
    assert (done.leader, done.isr, done.leader_epoch, done.partition_epoch) == (4, (4, 2), 6, 10)
    missing = partition((4, 2, 1, 3), (1, 3, 4), 1, adding=(4,), removing=(1, 3))
    assert arrived(cluster(missing)) == []


@pytest.mark.promise(
    "reassignment", "Old replicas and their logs are removed when all target replicas are in sync"
)
def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_are_dropped() -> None:
    moving = partition((1, 2, 3), (1, 2, 3), 1, removing=(3,))
    (done,) = arrived(cluster(moving))
    assert (done.leader, done.leader_epoch, done.isr) == (1, 6, (1, 2))


@pytest.mark.promise(
    "reassignment", "Old replicas and their logs are removed when all target replicas are in sync"
)
def test_the_last_in_sync_copy_is_not_dropped() -> None:
    moving = partition((4, 1), (1,), 1, adding=(4,), removing=(1,))
    assert arrived(cluster(moving)) == []
    away = partition((4, 1), (1, 4), 1, adding=(4,), removing=(1,))
    assert arrived(cluster(away, live=(1, 2, 3))) == []  # 4 is in sync, and dead


def test_another_order_of_the_same_replicas_is_so_at_once() -> None:
    begun = new(plan(cluster(partition()), (3, 1, 2)))
    assert shape(begun) == ((3, 1, 2), (), ())
    assert (begun.leader, begun.leader_epoch) == (1, 5)
    assert plan(cluster(partition()), (1, 2, 3)) is None


@pytest.mark.promise("reassignment", "A reassignment can be listed, throttled, cancelled and redirected")
def test_a_target_can_be_replaced_on_the_way() -> None:
    moving = partition((4, 2, 1), (1, 2), 1, adding=(4,), removing=(1,))
    begun = new(plan(cluster(moving), (3, 2)))
    # 4 was not there before and will not be: it goes whether this arrives or is called back.
    assert shape(begun) == ((3, 2, 4, 1), (3, 4), (4, 1))
    assert new(plan(cluster(begun), None)).replicas == (2, 1)
    assert plan(cluster(begun), (3, 2)) is None


def test_a_move_that_is_called_back_leaves_what_was_there_before() -> None:
    moving = partition((4, 2, 1), (1, 2, 4), 4, adding=(4,), removing=(1,))
    back = new(plan(cluster(moving), None))
    assert shape(back) == ((2, 1), (), ())
    assert (back.leader, back.isr, back.leader_epoch) == (2, (1, 2), 6)


@pytest.mark.promise("reassignment", "A reassignment can be listed, throttled, cancelled and redirected")
def test_nothing_is_called_back_where_only_new_replicas_have_it_all() -> None:
    moving = partition((4, 1), (4,), 4, adding=(4,), removing=(1,))
    assert isinstance(plan(cluster(moving), None), InvalidReplicaAssignment)
    allowed = new(plan(cluster(moving), None, unclean=True))
    assert (allowed.leader, allowed.isr) == (1, (1,))
    # In sync is one that was there before, but it is away: 4 has it all and would go.
    away = partition((4, 1), (1, 4), 4, adding=(4,), removing=(1,))
    assert isinstance(plan(cluster(away, live=(2, 3, 4)), None), InvalidReplicaAssignment)
    # Without 4 nothing is lost that could be had.
    dead = partition((4, 1), (1,), NO_LEADER, adding=(4,), removing=(1,))
    assert new(plan(cluster(dead, live=(2, 3)), None)).isr == (1,)


def test_what_does_not_move_cannot_be_called_back() -> None:
    assert isinstance(plan(cluster(partition()), None), NoReassignmentInProgress)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_a_target_that_cannot_be_is_refused(target: tuple[int, ...]) -> None:
    assert isinstance(plan(cluster(partition()), target), InvalidReplicaAssignment)


def test_a_replica_that_is_away_may_stay_one_and_not_become_one() -> None:
    image = cluster(partition(), live=(1, 2))
    assert new(plan(image, (3, 1))).replicas == (3, 1, 2)
    assert isinstance(plan(image, (1, 4)), InvalidReplicaAssignment)


def test_the_factor_stays_where_it_has_to() -> None:
    assert isinstance(plan(cluster(partition()), (1, 2), other_factor=False), InvalidReplicationFactor)
    assert new(plan(cluster(partition()), (1, 2, 4), other_factor=False)).adding == (4,)


@pytest.mark.promise(
    "reassignment", "An impossible reassignment is rejected with an error that gives the reason"
)
def test_topics_and_partitions_that_are_not_there_are_told_so_and_spoil_no_others() -> None:
    wanted = [Wanted("u", 0, (1,)), Wanted("t", 5, (1,)), Wanted("t", 0, (1, 2))]
    found = plan_reassignments(cluster(partition()), wanted, ())
    assert isinstance(found["u", 0], UnknownTopicOrPartition)
    assert isinstance(found["t", 5], UnknownTopicOrPartition)
    assert isinstance(found["t", 0], PartitionChange)


def test_what_is_under_way_is_listed() -> None:
    moving = partition((4, 1), (1,), 1, adding=(4,), removing=(1,))
    image = cluster(moving, partition(index=1))
    assert under_way(image, None) == {"t": [moving]}
    assert under_way(image, {"t": [1], "u": [0]}) == {}
    assert under_way(image, {"t": [0, 1]}) == {"t": [moving]}


# Leaders


def elected(image: ClusterImage, election: int) -> PartitionChange | ApiError | None:
    return plan_elections(image, [("t", 0)], election)["t", 0]


def test_the_preferred_leader_is_the_first_replica_if_it_is_alive_and_in_sync() -> None:
    led = new(elected(cluster(partition(leader=2)), PREFERRED))
    assert (led.leader, led.leader_epoch, led.isr) == (1, 6, (1, 2, 3))
    assert isinstance(elected(cluster(partition()), PREFERRED), ElectionNotNeeded)
    for image in (
        cluster(partition(leader=2), live=(2, 3)),
        cluster(partition(leader=2, isr=(2, 3))),
        cluster(partition(leader=2), leaving=(1,)),
    ):
        assert isinstance(elected(image, PREFERRED), PreferredLeaderNotAvailable)


def test_an_unclean_election_is_only_for_what_nobody_leads() -> None:
    lost = partition(isr=(1,), leader=NO_LEADER)
    led = new(elected(cluster(lost, live=(2, 3)), UNCLEAN))
    assert (led.leader, led.isr) == (2, (2,))
    assert isinstance(elected(cluster(partition()), UNCLEAN), ElectionNotNeeded)
    assert isinstance(elected(cluster(lost, live=(4,)), UNCLEAN), EligibleLeadersNotAvailable)
    found = plan_elections(cluster(lost), [("u", 0), ("t", 3)], UNCLEAN)
    assert all(isinstance(one, UnknownTopicOrPartition) for one in found.values())


@pytest.mark.promise("reassignment", "The preferred replica becomes leader on request and automatically")
def test_leaders_are_given_back_to_a_broker_that_leads_too_few_of_its_own() -> None:
    ten = [partition(index=index, leader=2 if index < 2 else 1) for index in range(10)]
    assert sorted(give_back(cluster(*ten), 10)) == [("t", 0), ("t", 1)]
    assert give_back(cluster(*ten), 20) == {}
    assert give_back(cluster(*ten, live=(2, 3)), 10) == {}


def test_what_moves_or_is_behind_is_not_given_back() -> None:
    moving = partition((1, 2, 3), (1, 2, 3), 2, removing=(3,))
    behind = partition(isr=(2, 3), leader=2, index=1)
    assert give_back(cluster(moving, behind), 0) == {}
