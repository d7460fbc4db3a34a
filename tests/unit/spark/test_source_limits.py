"""Limits of Penstock's own: batches that follow the processing rate, and topics that are served first."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock.spark.errors import BadOption
from penstock.spark.source.backpressure import LEAST, BatchSizer
from penstock.spark.source.options import parse_source_options
from penstock.spark.source.plan import limit_rate_by_priority, rank_of

Cost = Callable[[int, int], float]


def run(sizer: BatchSizer, cost: Cost, batches: int = 60, noise: float = 0.1) -> list[float]:
    """How long each of so many full batches takes, if cost(number, size) tells about how long one takes."""
    chance = random.Random(17)
    taken = []
    for number in range(batches):
        size = sizer.limit
        taken.append(cost(number, size) * (1 + chance.uniform(-noise, noise)))
        sizer.observe(size, taken[-1])
    return taken


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.promise("streams", "Example: back-pressure")
@pytest.mark.promise("spark source", "The option `targetBatchDuration` works as documented")
@pytest.mark.promise(
    "streams", "`targetBatchDuration` adapts the size of batches when processing becomes slower or faster"
)
@pytest.mark.parametrize("each", [1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("fixed", [0.02, 0.25, 1.0])
def test_batches_come_to_take_as_long_as_they_should(fixed: float, each: float) -> None:
    taken = run(BatchSizer(2.0), lambda _, size: fixed + each * size)
    assert mean(taken[20:]) == pytest.approx(2.0, rel=0.25)


@pytest.mark.promise(
    "streams", "`targetBatchDuration` adapts the size of batches when processing becomes slower or faster"
)
@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_the_limit_follows_when_processing_becomes_slower_or_faster(factor: float) -> None:
    sizer = BatchSizer(2.0)
    run(sizer, lambda _, size: 0.25 + 1e-5 * size)
    taken = run(sizer, lambda _, size: 0.25 + factor * 1e-5 * size)
    assert mean(taken[20:]) == pytest.approx(2.0, rel=0.25)


def test_one_slow_batch_halves_the_limit_at_most() -> None:
    sizer = BatchSizer(2.0)
    run(sizer, lambda _, size: 0.25 + 1e-5 * size)
    before = sizer.limit
    sizer.observe(before, 300.0)
    assert sizer.limit >= before // 2


@pytest.mark.promise("spark source", "The option `targetBatchDuration` works as documented")
def test_where_waiting_for_the_trigger_takes_the_time_the_limit_does_not_sink() -> None:
    sizer = BatchSizer(2.0)
    taken = run(sizer, lambda _, size: max(10.0, 0.25 + 1e-5 * size), noise=0.0)
    assert sizer.limit > 100_000
    assert mean(taken[20:]) == pytest.approx(10.0, rel=0.3)


def test_a_trigger_as_long_as_the_target_is_filled() -> None:
    sizer = BatchSizer(2.0)
    run(sizer, lambda _, size: max(2.0, 0.25 + 1e-5 * size), noise=0.0)
    assert sizer.limit > 100_000


def test_the_ceiling_and_the_least_are_kept() -> None:
    sizer = BatchSizer(2.0, ceiling=5_000)
    run(sizer, lambda _, size: 0.01 + 1e-6 * size)
    assert sizer.limit == 5_000
    slow = BatchSizer(2.0)
    run(slow, lambda _, size: 1.0 * size)
    assert slow.limit == LEAST


def test_small_batches_for_want_of_records_do_not_change_the_limit() -> None:
    sizer = BatchSizer(2.0)
    run(sizer, lambda _, size: 0.25 + 1e-5 * size)
    before = sizer.limit
    for _ in range(20):
        sizer.observe(10, 0.2)
    assert sizer.limit == before


@pytest.mark.promise("spark source", "The option `priorityTopics` works as documented")
def test_what_the_urgent_topic_leaves_the_others_share() -> None:
    start = {("slow", 0): 0, ("urgent", 0): 0, ("urgent", 1): 5, ("other", 0): 0}
    end = {("slow", 0): 30, ("urgent", 0): 4, ("urgent", 1): 8, ("other", 0): 10}
    limited = limit_rate_by_priority(11, start, end, ("urgent",))
    assert limited == {("urgent", 0): 4, ("urgent", 1): 8, ("slow", 0): 3, ("other", 0): 1}


@pytest.mark.promise("streams", "Urgent topics are served first, and the others are not starved")
def test_more_urgent_records_than_a_batch_takes_leave_the_others_one_for_each_partition() -> None:
    start = {("slow", 0): 0, ("slow", 1): 7, ("urgent", 0): 0}
    end = {("slow", 0): 30, ("slow", 1): 7, ("urgent", 0): 400}
    assert limit_rate_by_priority(10, start, end, ("urgent", "slow")) == {
        ("urgent", 0): 10,
        ("slow", 0): 1,
        ("slow", 1): 7,
    }


def test_topics_without_a_rank_come_last() -> None:
    assert [rank_of(topic, ("a", "b")) for topic in ("b", "c", "a")] == [1, 2, 0]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("priorityTopics", " , ", "priorityTopics"),
        ("priorityTopics", "a,a", "each once"),
        ("priorityTopics", "c", "c is not read by this query"),
        ("targetBatchDuration", "soon", "must be a time such as"),
        ("targetBatchDuration", "0s", "must be 1 ms or more"),
    ],
)
def test_a_wrong_limit_is_refused(option: str, value: str, message: str) -> None:
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "a,b", option: value}
    with pytest.raises(BadOption, match=message):
        parse_source_options(options, streaming=True)


def test_a_pattern_may_rank_topics_that_are_not_there_yet() -> None:
    options = {"kafka.bootstrap.servers": "b:1", "subscribePattern": "a.*", "priorityTopics": "a1, a2"}
    assert parse_source_options(options, streaming=True).priority == ("a1", "a2")
