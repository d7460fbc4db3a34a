"""Who leads: each rule by itself."""

from __future__ import annotations

import pytest

from penstock.controller.elections import changed, elect, plan_return, reconcile
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from tests.unit.cluster_images import cluster, partition

ALL = (1, 2, 3)


def reconciled(image: ClusterImage, unclean: bool = False) -> list[PartitionImage]:
    return [change.new for change in reconcile(image, lambda topic: unclean)]


def test_nothing_changes_where_all_is_well() -> None:
    one = partition()
    assert elect(one, ALL, (), unclean=False) is one
    assert reconciled(cluster(one)) == []


def test_the_first_live_replica_in_sync_follows_a_dead_leader_with_a_new_epoch() -> None:
    new = elect(partition((1, 2, 3), isr=(3, 2, 1)), (2, 3), (), unclean=False)
    assert (new.leader, new.leader_epoch, new.isr, new.partition_epoch) == (2, 6, (3, 2), 10)


def test_a_replica_out_of_sync_is_passed_over() -> None:
    new = elect(partition((1, 2, 3), isr=(1, 3)), (2, 3), (), unclean=False)
    assert (new.leader, new.isr) == (3, (3,))


def test_a_dead_follower_leaves_the_in_sync_replicas_and_the_leader_keeps_its_epoch() -> None:
    new = elect(partition(), (1, 2), (), unclean=False)
    assert (new.leader, new.leader_epoch, new.isr, new.partition_epoch) == (1, 5, (1, 2), 10)


def test_the_last_in_sync_replica_stays_one_while_it_is_away() -> None:
    new = elect(partition(isr=(1,)), (2, 3), (), unclean=False)
    assert (new.leader, new.isr) == (NO_LEADER, (1,))
    # An epoch for nobody too: the old leader, should it live, must not go on under its own.
    assert new.leader_epoch == 6
    assert elect(new, (2, 3), (), unclean=False) is new


def test_of_several_dead_in_sync_replicas_all_stay_in_sync() -> None:
    new = elect(partition(isr=(1, 2)), (3,), (), unclean=False)
    assert (new.leader, new.isr) == (NO_LEADER, (1, 2))
    assert elect(new, (2, 3), (), unclean=False).leader == 2


def test_where_it_is_allowed_a_replica_that_is_behind_leads_rather_than_none() -> None:
    new = elect(partition(isr=(1,)), (2, 3), (), unclean=True)
    assert (new.leader, new.isr, new.leader_epoch) == (2, (2,), 6)


def test_an_unclean_election_is_not_held_while_one_in_sync_is_alive() -> None:
    new = elect(partition(isr=(1, 3)), (2, 3), (), unclean=True)
    assert (new.leader, new.isr) == (3, (3,))


def test_who_leaves_hands_over_and_is_out_of_sync() -> None:
    new = elect(partition(), ALL, (1,), unclean=False)
    assert (new.leader, new.isr, new.leader_epoch) == (2, (2, 3), 6)
    follower = elect(partition(), ALL, (3,), unclean=False)
    assert (follower.leader, follower.isr, follower.leader_epoch) == (1, (1, 2), 5)


def test_who_leaves_leads_on_where_no_other_can() -> None:
    one = partition(isr=(1,))
    assert elect(one, ALL, (1,), unclean=False) is one
    everybody = partition()
    assert elect(everybody, ALL, ALL, unclean=False) is everybody


def test_a_leader_that_is_no_replica_any_more_is_replaced() -> None:
    new = elect(partition((2, 3), isr=(2, 3), leader=1), ALL, (), unclean=False)
    assert (new.leader, new.leader_epoch) == (2, 6)


def test_reconcile_mends_every_partition_and_asks_about_unclean_elections_once() -> None:
    asked = []

    def unclean(topic: str) -> bool:
        asked.append(topic)
        return False

    image = cluster(partition(), partition((2, 3), index=1), partition((1, 4), index=2), live=(2, 3, 4))
    changes = list(reconcile(image, unclean))
    assert [(change.new.index, change.new.leader) for change in changes] == [(0, 2), (2, 4)]
    assert asked == ["t"]


@pytest.mark.parametrize("leader", [1, 2])
def test_who_returns_steps_back_where_another_in_sync_replica_is_alive(leader: int) -> None:
    (change,) = plan_return(cluster(partition(leader=leader), live=(1, 2, 3)), 1)
    assert (change.new.leader, change.new.isr) == (2, (2, 3))
    assert change.new.leader_epoch == (6 if leader == 1 else 5)


def test_who_returns_alone_leads_on_under_a_new_epoch() -> None:
    (change,) = plan_return(cluster(partition(isr=(1, 2)), live=(1, 3)), 1)
    assert (change.new.leader, change.new.isr, change.new.leader_epoch) == (1, (1, 2), 6)


def test_who_returns_and_was_out_of_sync_changes_nothing() -> None:
    assert list(plan_return(cluster(partition((2, 1), isr=(2,))), 1)) == []


def test_who_returns_is_not_counted_as_alive_by_its_former_registration() -> None:
    (change,) = plan_return(cluster(partition(isr=(1,)), live=(1,)), 1)
    assert (change.new.leader, change.new.leader_epoch) == (1, 6)


def test_a_change_of_the_in_sync_replicas_alone_keeps_the_leader_epoch() -> None:
    new = changed(partition(), isr=(1,))
    assert (new.leader_epoch, new.partition_epoch) == (5, 10)
    assert changed(partition(), leader=2).leader_epoch == 6
