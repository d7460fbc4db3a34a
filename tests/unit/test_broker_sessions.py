"""Fetch sessions: epochs, what is told again and what is not, and who is evicted."""

from __future__ import annotations

import random

import pytest

from penstock.broker.fetch.sessions import FetchSession, FetchSessionCache, SessionKey
from penstock.clock import ManualClock
from penstock.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from penstock.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest

CLOCK_STEP_MS = 121_000


def cache(slots: int = 2, max_partitions: int = 1000) -> tuple[FetchSessionCache, ManualClock]:
    clock = ManualClock()
    return FetchSessionCache(slots, clock, random.Random(1), max_partitions), clock


def partitions(count: int, topic: str = "t") -> list[tuple[SessionKey, FetchPartition]]:
    return [((topic, i), FetchPartition(i, -1, 0, -1, -1, 1000)) for i in range(count)]


def request(session_id: int, epoch: int) -> FetchRequest:
    made = FetchRequest()
    made.session_id, made.session_epoch = session_id, epoch
    return made


def session(count: int = 2) -> FetchSession:
    made, _ = cache()
    created = made.create(partitions(count), False, False)
    assert created is not None
    return created


@pytest.mark.promise("protocol", "A fetch session returns only partitions with new data")
def test_epochs_go_up_by_one_with_each_request_and_others_are_refused() -> None:
    sessions, _ = cache()
    made = sessions.create(partitions(1), False, False)
    assert made is not None
    assert sessions.find(request(made.id, 1), False) is made
    assert sessions.find(request(made.id, 2), False) is made
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.find(request(made.id, 2), False)


def test_the_epoch_after_the_last_is_one() -> None:
    sessions, _ = cache()
    made = sessions.create(partitions(1), False, False)
    assert made is not None
    made.epoch = 2**31 - 1
    sessions.find(request(made.id, 2**31 - 1), False)
    assert made.epoch == 1


def test_an_unknown_session_is_not_found() -> None:
    sessions, _ = cache()
    with pytest.raises(FetchSessionIdNotFound):
        sessions.find(request(77, 1), False)


def test_a_session_by_name_does_not_go_on_by_id() -> None:
    sessions, _ = cache()
    made = sessions.create(partitions(1), False, False)
    assert made is not None
    with pytest.raises(FetchSessionTopicIdError):
        sessions.find(request(made.id, 1), True)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_closes_the_session_that_it_names(epoch: int) -> None:
    sessions, _ = cache()
    made = sessions.create(partitions(1), False, False)
    assert made is not None
    assert sessions.find(request(made.id, epoch), False) is None
    assert not sessions.sessions


def test_unchanged_partitions_are_not_told_again() -> None:
    made = session()
    quiet = {key: FetchPartitionResult(i, 0, 5, 5, 0) for i, key in enumerate(made.partitions)}
    assert made.tell(quiet) == quiet
    assert made.tell(quiet) == {}
    moved = {("t", 0): FetchPartitionResult(0, 0, 6, 6, 0), ("t", 1): quiet["t", 1]}
    assert list(made.tell(moved)) == [("t", 0)]


def test_after_an_error_the_next_success_is_told_in_any_case() -> None:
    made = session(1)
    good = {("t", 0): FetchPartitionResult(0, 0, 5, 5, 0)}
    bad = {("t", 0): FetchPartitionResult(0, 6, -1, -1, -1)}
    made.tell(good)
    assert made.tell(bad) == bad
    assert made.tell(bad) == bad
    assert made.tell(good) == good


def test_a_partition_that_gave_records_is_read_last_next_time() -> None:
    made = session(3)
    with_records = FetchPartitionResult(0, 0, 5, 5, 0, slices=[b"x"])
    made.tell({("t", 0): with_records})
    assert list(made.partitions) == [("t", 1), ("t", 2), ("t", 0)]


def test_requests_add_change_and_forget_partitions() -> None:
    made = session(2)
    changed = FetchPartition(1, -1, 42, -1, -1, 1000)
    made.update([(("t", 1), changed), (("u", 0), FetchPartition(0, -1, 0, -1, -1, 1))], [("t", 0), ("x", 9)])
    assert list(made.partitions) == [("t", 1), ("u", 0)]
    assert made.partitions["t", 1].wanted.fetch_offset == 42


def test_a_full_cache_evicts_what_was_long_unused_first() -> None:
    sessions, clock = cache(2)
    old = sessions.create(partitions(9), False, False)
    clock.advance(CLOCK_STEP_MS)
    young = sessions.create(partitions(1), False, False)
    assert old is not None and young is not None
    third = sessions.create(partitions(1), False, False)
    assert third is not None
    assert set(sessions.sessions) == {young.id, third.id}


def test_a_full_cache_of_busy_sessions_takes_only_a_larger_one() -> None:
    sessions, _ = cache(2)
    small, large = (sessions.create(partitions(n), False, False) for n in (2, 5))
    assert small is not None and large is not None
    assert sessions.create(partitions(2), False, False) is None
    larger = sessions.create(partitions(3), False, False)
    assert larger is not None
    assert set(sessions.sessions) == {large.id, larger.id}


def test_a_consumer_never_evicts_a_follower() -> None:
    sessions, _ = cache(1)
    assert sessions.create(partitions(1), False, True) is not None
    assert sessions.create(partitions(100), False, False) is None
    assert sessions.create(partitions(2), False, True) is not None


def test_no_slots_mean_no_sessions() -> None:
    sessions, _ = cache(0)
    assert sessions.create(partitions(1), False, False) is None


@pytest.mark.promise(
    "hostile input",
    "The memory that one client can make the broker use, for state and for decompression, is limited",
)
def test_the_partitions_of_all_sessions_are_limited_and_a_long_unused_one_makes_room() -> None:
    sessions, clock = cache(10, max_partitions=10)
    assert sessions.create(partitions(11), False, False) is None
    old = sessions.create(partitions(6), False, False)
    assert old is not None
    assert sessions.create(partitions(5), False, False) is None
    clock.advance(CLOCK_STEP_MS)
    assert sessions.create(partitions(5), False, False) is not None
    assert old.id not in sessions.sessions and sessions.partition_count == 5


def test_a_session_that_outgrows_the_limit_is_closed() -> None:
    sessions, _ = cache(10, max_partitions=10)
    made = sessions.create(partitions(6), False, False)
    assert made is not None
    sessions.update(made, dict(partitions(10)), [("t", 0)], lambda key: True)
    assert sessions.partition_count == 9
    with pytest.raises(FetchSessionIdNotFound):
        sessions.update(made, dict(partitions(2, "u")), (), lambda key: True)
    assert sessions.partition_count == 0 and not sessions.sessions
