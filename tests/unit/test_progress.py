"""What a leader knows of its followers: when they are in sync, when they are not, and when nobody is sure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.replication.partition import Partition
from penstock.replication.progress import Progress, has_caught_up, lagging
from tests.unit.cluster_images import partition as image_of
from tests.unit.test_replication_partition import batch, partition, wanted


def test_a_follower_at_the_end_has_caught_up_now() -> None:
    one = Progress()
    one.fetched(10, 10, 100)
    assert one.caught_up_ms == 100
    one.fetched(12, 10, 200)  # the leader's end was read before it grew
    assert one.caught_up_ms == 200


def test_under_load_a_follower_has_caught_up_when_it_reaches_the_end_of_its_fetch_before() -> None:
    one = Progress()
    one.fetched(5, 10, 100)
    assert one.caught_up_ms == 0
    one.fetched(10, 20, 200)
    assert one.caught_up_ms == 100
    one.fetched(15, 30, 300)
    assert one.caught_up_ms == 100


def test_the_time_of_catching_up_never_goes_back() -> None:
    one = Progress(caught_up_ms=500, fetched_ms=300, leader_end=5)
    one.fetched(5, 9, 600)
    assert one.caught_up_ms == 500


def test_who_has_not_caught_up_for_too_long_lags() -> None:
    late = Progress(log_end_offset=5, caught_up_ms=100)
    assert lagging((1, 2), 1, {2: late}, 10, now_ms=1101, max_lag_ms=1000) == [2]
    assert lagging((1, 2), 1, {2: late}, 10, now_ms=1100, max_lag_ms=1000) == []


def test_who_is_at_the_end_does_not_lag_however_long_ago_it_fetched() -> None:
    idle = Progress(log_end_offset=10, caught_up_ms=0)
    assert lagging((1, 2), 1, {2: idle}, 10, now_ms=99_999, max_lag_ms=1000) == []


def test_the_leader_itself_and_those_out_of_sync_do_not_lag() -> None:
    late = Progress(log_end_offset=0, caught_up_ms=0)
    assert lagging((1,), 1, {1: late, 2: late}, 10, now_ms=99_999, max_lag_ms=1000) == []
    assert lagging((1, 3), 1, {2: late}, 10, now_ms=99_999, max_lag_ms=1000) == []


def test_joining_needs_all_that_was_acknowledged_and_something_of_this_leader() -> None:
    assert has_caught_up(Progress(log_end_offset=10), high_watermark=10, epoch_start=10)
    assert not has_caught_up(Progress(log_end_offset=9), high_watermark=10, epoch_start=5)
    assert not has_caught_up(Progress(log_end_offset=9), high_watermark=5, epoch_start=10)
    assert not has_caught_up(Progress(), high_watermark=0, epoch_start=0)  # it has not fetched yet


def leader(tmp_path: Path, isr: tuple[int, ...] = (1,)) -> Partition:
    """Broker 1 leads with three records, of which the high watermark covers what `isr` has."""
    one, _ = partition(tmp_path, image_of(isr=isr))
    data = batch(3)
    one.append(data, 0, len(data), 1)
    return one


def test_who_has_caught_up_is_asked_for_and_who_lags_is_not(tmp_path: Path) -> None:
    one = leader(tmp_path)
    assert one.wanted_isr(1000, {1, 2, 3}) is None
    one.fetch(wanted(3), 1 << 20, True, 0, 2, 20)
    assert one.may_join(2) and not one.may_join(3)
    assert one.wanted_isr(1000, {1, 2, 3}) == (1, 2)
    assert one.wanted_isr(1000, {1, 3}) is None  # it is not registered
    assert one.progress[2].broker_epoch == 20


def test_one_that_is_about_to_be_in_sync_counts_already(tmp_path: Path) -> None:
    one = leader(tmp_path)
    one.fetch(wanted(3), 1 << 20, True, 0, 2)
    one.ask_for_isr((1, 2))
    data = batch()
    one.append(data, 0, len(data), 1)
    assert one.log.high_watermark == 3
    one.isr_refused()
    assert one.log.high_watermark == 4


@pytest.mark.promise(
    "reassignment",
    "A leader whose request to the controller got no response counts the replicas that the controller "
    "may have added to the ISR",
)
def test_what_may_have_been_stored_counts_until_the_partition_has_another_epoch(tmp_path: Path) -> None:
    one = leader(tmp_path)
    one.fetch(wanted(3), 1 << 20, True, 0, 2)
    one.ask_for_isr((1, 2))
    one.isr_unanswered()
    data = batch()
    one.append(data, 0, len(data), 1)
    one.update(replace(one.image, offline=(3,)))  # another image that says nothing of it
    one.isr_refused()  # nor does a refusal of what was asked next
    assert one.log.high_watermark == 3
    # It is asked again, also for nothing new: when that is stored, the earlier one cannot be any more.
    assert one.wanted_isr(1000, {1, 3}) == (1,)
    one.ask_for_isr((1,))
    assert (one.asked_isr, set(one.pending_isr or ())) == ((1,), {1, 2})
    assert one.log.high_watermark == 3
    one.update(replace(one.image, partition_epoch=10))
    assert one.pending_isr is None and one.log.high_watermark == 4


def test_a_new_epoch_of_the_leader_forgets_what_followers_had(tmp_path: Path) -> None:
    """One of them may have been dropped and added again since, with an empty log."""
    one = leader(tmp_path)
    one.fetch(wanted(3), 1 << 20, True, 0, 2)
    one.update(replace(one.image, leader_epoch=6, partition_epoch=10))
    assert one.wanted_isr(1000, {1, 2, 3}) is None


@pytest.mark.promise(
    "reassignment",
    "Records of an epoch that the leader of that epoch never had are truncated, even before that leader "
    "has written anything",
)
def test_an_epoch_that_was_never_written_here_ended_where_our_log_does(tmp_path: Path) -> None:
    """The follower has a record of a leader that nobody followed; this leader has written none of its own."""
    one = leader(tmp_path)
    one.update(replace(one.image, leader_epoch=8, partition_epoch=10))
    result = one.fetch(wanted(2, epoch=8, last_epoch=7), 1 << 20, True, 0, 2)
    assert result.diverging_epoch == (5, 3)
    empty, _ = partition(tmp_path / "empty", image_of(epoch=8))
    assert empty.fetch(wanted(2, epoch=8, last_epoch=7), 1 << 20, True, 0, 2).diverging_epoch == (7, 0)
