"""A share partition: acquiring, acknowledging, releasing, locks, counts, gaps, the start of the log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.errors import InvalidRecordState, InvalidRequest
from penstock.groups.share.acknowledgements import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    check_acknowledgements,
)
from penstock.groups.share.batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    DYING,
    StateBatch,
    overlay,
)
from penstock.groups.share.partition import Acquired, BatchSpan, DeadLetter, SharePartition

LOCKED_UNTIL = 30_000


def partition(start: int = 0, batches: Iterable[StateBatch] = (), **more: int) -> SharePartition:
    return SharePartition(start, batches, **more)


def acquire(
    share: SharePartition, member: str, *spans: tuple[int, int], records: int = 500, exact: bool = False
) -> list[Acquired]:
    offset = share.wants(1 << 60)
    assert offset is not None
    acquired, _ = share.acquire(
        member, [BatchSpan(*span) for span in spans], offset, records, LOCKED_UNTIL, exact=exact
    )
    share.check()
    return acquired


def ack(share: SharePartition, member: str, first: int, last: int, *types: int) -> list[StateBatch]:
    plan = share.acknowledge(member, [Acknowledgement(first, last, types)], 60_000)
    written = share.written(plan)
    share.commit(plan)
    share.check()
    return written


def test_records_are_delivered_once_and_forgotten_when_they_are_accepted() -> None:
    share = partition()
    assert acquire(share, "m", (0, 9)) == [Acquired(0, 9, 1)]
    assert share.wants(10) is None
    assert share.wants(11) == 10
    assert ack(share, "m", 0, 9, ACCEPT) == []  # the start offset says it all
    assert (share.start_offset, share.end_offset, list(share.runs)) == (10, 10, [])


def test_the_start_offset_waits_for_the_first_record() -> None:
    share = partition()
    acquire(share, "m", (0, 9))
    plan = share.acknowledge("m", [Acknowledgement(3, 9, [ACCEPT])], 0)
    assert plan.start_offset == -1
    assert share.written(plan) == [StateBatch(3, 9, ACKNOWLEDGED, 1)]
    share.commit(plan)
    plan = share.acknowledge("m", [Acknowledgement(0, 2, [ACCEPT])], 0)
    assert plan.start_offset == 10
    share.commit(plan)
    assert share.start_offset == 10


@pytest.mark.promise(
    "share groups", "Released records are delivered again with a higher delivery count, rejected ones are not"
)
def test_a_released_record_is_delivered_again_with_a_higher_count_and_to_anybody() -> None:
    share = partition()
    acquire(share, "m1", (0, 9))
    ack(share, "m1", 2, 3, RELEASE)
    assert share.wants(10) == 2
    assert acquire(share, "m2", (0, 9)) == [Acquired(2, 3, 2)]


def test_each_offset_can_have_its_own_type() -> None:
    share = partition()
    acquire(share, "m", (0, 5))
    written = ack(share, "m", 0, 5, ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)
    assert written == [
        StateBatch(2, 2, AVAILABLE, 1),
        StateBatch(3, 4, ARCHIVED, 1),
        StateBatch(5, 5, ACKNOWLEDGED, 1),
    ]
    assert share.start_offset == 2
    assert acquire(share, "m", (0, 5)) == [Acquired(2, 2, 2)]


def test_only_the_member_that_has_a_record_can_acknowledge_it_and_only_once() -> None:
    share = partition()
    acquire(share, "m1", (0, 4))
    with pytest.raises(InvalidRecordState):
        ack(share, "m2", 0, 4, ACCEPT)
    ack(share, "m1", 1, 1, ACCEPT)
    with pytest.raises(InvalidRecordState):
        ack(share, "m1", 0, 1, ACCEPT)
    with pytest.raises(InvalidRecordState):
        ack(share, "m1", 5, 6, ACCEPT)
    with pytest.raises(InvalidRequest):
        ack(share, "m1", 2, 6, ACCEPT)
    ack(share, "m1", 0, 0, ACCEPT)
    ack(share, "m1", 0, 0, ACCEPT)  # before the start: done with in any case
    share.check()


def test_a_change_that_could_not_be_written_has_not_happened() -> None:
    share = partition()
    acquire(share, "m", (0, 4))
    plan = share.acknowledge("m", [Acknowledgement(0, 4, [ACCEPT])], 0)
    with pytest.raises(InvalidRecordState):
        share.acknowledge("m", [Acknowledgement(0, 0, [ACCEPT])], 0)
    assert not share.on_time(LOCKED_UNTIL)  # what is being written is left alone
    share.cancel(plan)
    share.check()
    ack(share, "m", 0, 4, ACCEPT)
    assert share.start_offset == 5


def test_a_lock_times_out_and_a_renewed_one_later() -> None:
    share = partition()
    acquire(share, "m", (0, 4))
    ack(share, "m", 4, 4, RENEW)
    assert share.next_deadline() == LOCKED_UNTIL
    assert not share.on_time(LOCKED_UNTIL - 1)
    plan = share.on_time(LOCKED_UNTIL)
    assert share.written(plan) == [StateBatch(0, 3, AVAILABLE, 1)]
    share.commit(plan)
    assert share.wants(5) == 0
    assert acquire(share, "n", (0, 4)) == [Acquired(0, 3, 2)]


@pytest.mark.promise(
    "share groups",
    "Records that are rejected, or that reach the limit of deliveries, go to the dead-letter topic of "
    "the group with the reason in headers",
)
def test_a_record_is_archived_when_its_delivery_count_is_spent() -> None:
    share = partition(delivery_count_limit=2)
    acquire(share, "m", (0, 1))
    ack(share, "m", 0, 0, RELEASE)
    assert acquire(share, "m", (0, 1)) == [Acquired(0, 0, 2)]
    ack(share, "m", 0, 0, RELEASE)
    assert share.wants(2) is None
    assert share.start_offset == 1


@pytest.mark.promise(
    "share groups",
    "Records that are rejected, or that reach the limit of deliveries, go to the dead-letter topic of "
    "the group with the reason in headers",
)
def test_what_is_spent_or_rejected_dies_before_it_is_archived_where_there_is_a_place_for_it() -> None:
    share = partition(delivery_count_limit=2)
    share.dead_letters = True
    acquire(share, "m", (0, 3))
    ack(share, "m", 0, 3, RELEASE, RELEASE, REJECT, ACCEPT)
    assert acquire(share, "m", (0, 3)) == [Acquired(0, 1, 2)]
    share.commit(share.on_time(LOCKED_UNTIL))
    assert share.dying() == [DeadLetter(0, 1, 2, "delivery count spent"), DeadLetter(2, 2, 1, "rejected")]
    assert share.wants(4) is None and share.start_offset == 0
    for letter in share.dying():
        share.commit(share.dead_lettered(letter))
    assert (share.start_offset, share.dying()) == (4, [])


@pytest.mark.promise("share groups", "kill -9 of the broker loses no acknowledgement and no delivery count")
def test_what_was_spent_when_the_broker_died_is_not_delivered_again() -> None:
    share = partition(0, [StateBatch(0, 4, AVAILABLE, 5), StateBatch(5, 9, AVAILABLE, 1)])
    assert share.dying() == [DeadLetter(0, 4, 5, "delivery count spent")]
    assert share.wants(10) == 5


def test_what_was_rejected_when_the_broker_died_is_told_so_in_its_letter() -> None:
    share = partition(delivery_count_limit=3)
    share.dead_letters = True
    acquire(share, "m", (0, 3))
    written = ack(share, "m", 0, 3, REJECT, RELEASE, REJECT, ACCEPT)
    loaded = partition(0, written, delivery_count_limit=3)
    assert loaded.dying() == [DeadLetter(0, 0, 1, "rejected"), DeadLetter(2, 2, 1, "rejected")]
    assert loaded.wants(4) == 1
    assert partition(0, written, delivery_count_limit=10).dying() == loaded.dying()


def test_a_closed_session_gives_back_what_it_had() -> None:
    share = partition()
    acquire(share, "m1", (0, 4))
    acquire(share, "m2", (5, 9))
    share.commit(share.release("m1"))
    assert acquire(share, "m2", (0, 4)) == [Acquired(0, 4, 2)]
    share.commit(share.release("m2", undelivered=True))  # the delivery does not count
    assert acquire(share, "m1", (0, 4), (5, 9)) == [Acquired(0, 4, 2), Acquired(5, 9, 1)]


def test_whole_batches_are_acquired_until_there_are_enough_records() -> None:
    share = partition()
    assert acquire(share, "m", (0, 9), (10, 19), (20, 29), records=11) == [Acquired(0, 19, 1)]
    assert acquire(share, "m", (20, 29), records=3, exact=True) == [Acquired(20, 22, 1)]
    assert acquire(share, "m", (20, 29), records=3) == [Acquired(23, 29, 1)]


def test_no_more_records_are_in_flight_than_may_be() -> None:
    share = partition(max_record_locks=100)
    assert acquire(share, "m", (0, 149)) == [Acquired(0, 99, 1)]
    assert share.wants(1000) is None
    ack(share, "m", 0, 9, ACCEPT)
    assert acquire(share, "m", (0, 149)) == [Acquired(100, 109, 1)]


def test_offsets_without_records_are_passed_over() -> None:
    share = partition()
    spans = [BatchSpan(2, 4), BatchSpan(5, 5, False), BatchSpan(8, 9)]
    acquired, written = share.acquire("m", spans, 0, 500, LOCKED_UNTIL)
    assert acquired == [Acquired(2, 4, 1), Acquired(8, 9, 1)]
    assert written == [
        StateBatch(0, 1, ARCHIVED, 0),
        StateBatch(2, 4, AVAILABLE, 1),
        StateBatch(5, 7, ARCHIVED, 0),
        StateBatch(8, 9, AVAILABLE, 1),
    ]
    assert share.start_offset == 2
    share.check()


def test_released_records_that_compaction_took_are_passed_over() -> None:
    share = partition()
    acquire(share, "m", (0, 9))
    ack(share, "m", 0, 9, RELEASE)
    acquired, _ = share.acquire("m", [BatchSpan(5, 9)], 0, 500, LOCKED_UNTIL)
    assert acquired == [Acquired(5, 9, 2)]
    assert share.start_offset == 5
    share.check()


def test_the_start_of_the_log_takes_what_lies_before_it_along() -> None:
    share = partition()
    acquire(share, "m", (0, 9))
    plan = share.acknowledge("m", [Acknowledgement(2, 7, [RELEASE])], 0)
    assert share.log_starts_at(5)
    share.commit(plan)
    share.check()
    assert share.start_offset == 5
    assert acquire(share, "m", (5, 9)) == [Acquired(5, 7, 2)]
    ack(share, "m", 0, 3, ACCEPT)  # late, and harmless
    assert share.log_starts_at(100)
    assert (share.start_offset, share.end_offset) == (100, 100)


def test_lag_counts_what_is_not_done_with() -> None:
    share = partition()
    acquire(share, "m", (0, 9))
    ack(share, "m", 5, 9, ACCEPT)
    assert share.lag(20) == 15


@pytest.mark.promise(
    "share groups", "The records in flight, the sessions and the size of the state topic are limited"
)
def test_memory_is_small_where_neighbours_are_alike() -> None:
    share = partition()
    acquire(share, "m", *((i, i) for i in range(500)))
    assert len(share.runs) == 1
    for offset in range(1, 500):
        ack(share, "m", offset, offset, ACCEPT)
    assert len(share.runs) == 2


def test_states_lie_over_one_another() -> None:
    old = [StateBatch(0, 9, AVAILABLE, 1), StateBatch(20, 29, AVAILABLE, 1)]
    new = [StateBatch(5, 24, ACKNOWLEDGED, 1)]
    assert overlay(old, new, 2) == (
        StateBatch(2, 4, AVAILABLE, 1),
        StateBatch(5, 24, ACKNOWLEDGED, 1),
        StateBatch(25, 29, AVAILABLE, 1),
    )
    assert overlay(old, [], 100) == ()
    assert DYING not in (AVAILABLE, ACKNOWLEDGED, ARCHIVED)


@pytest.mark.parametrize(
    "batches",
    [
        [Acknowledgement(5, 4, [1])],
        [Acknowledgement(0, 4, [1]), Acknowledgement(4, 5, [1])],
        [Acknowledgement(0, 4, [])],
        [Acknowledgement(0, 4, [1, 1])],
        [Acknowledgement(0, 0, [4])],
        [Acknowledgement(0, 0, [-1])],
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(batches: list[Acknowledgement]) -> None:
    assert isinstance(check_acknowledgements(batches, renew=False), InvalidRequest)
    assert check_acknowledgements([Acknowledgement(0, 0, [4])], renew=True) is None
