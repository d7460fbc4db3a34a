"""What a batch reads: limits, ranges and tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.source.plan import Range, is_too_little, limit_rate, ranges, restarts, split

A0, A1, A2 = ("a", 0), ("a", 1), ("a", 2)

partition_sizes = st.lists(st.integers(0, 2**40), min_size=1, max_size=8)


def test_a_limit_is_shared_out_by_what_each_partition_has() -> None:
    start = {A0: 0, A1: 100, A2: 7}
    assert limit_rate(100, start, {A0: 300, A1: 200, A2: 7}) == {A0: 75, A1: 125, A2: 7}


def test_a_small_partition_does_not_starve() -> None:
    assert limit_rate(10, {A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}) == {A0: 9, A1: 1}


def test_a_limit_above_what_is_there_takes_all_of_it() -> None:
    end = {A0: 3, A1: 4}
    assert limit_rate(1000, {A0: 0, A1: 0}, end) == end
    assert limit_rate(1000, end, end) == end


@given(partition_sizes, st.integers(1, 2**40))
def test_a_limit_always_moves_on_and_never_past_the_end(sizes: list[int], limit: int) -> None:
    start = {("a", index): index for index in range(len(sizes))}
    end = {("a", index): index + size for index, size in enumerate(sizes)}
    found = limit_rate(limit, start, end)
    assert all(start[place] <= found[place] <= end[place] for place in end)
    assert all(found[place] > start[place] for place in end if end[place] > start[place])
    assert sum(found[place] - start[place] for place in end) <= limit + len(sizes)


def test_too_little_counts_all_partitions() -> None:
    assert is_too_little(5, {A0: 0, A1: 0}, {A0: 2, A1: 2})
    assert not is_too_little(4, {A0: 0, A1: 0}, {A0: 2, A1: 2})


def test_each_partition_is_one_range_and_empty_ones_are_none() -> None:
    found, losses = ranges({A0: 5, A1: 5}, {A0: 5, A1: 9}, {})
    assert (found, losses) == ([Range("a", 1, 5, 9)], [])


def test_a_new_partition_is_read_from_its_start() -> None:
    found, losses = ranges({A0: 5}, {A0: 6, A1: 3}, {A1: 0})
    assert (found, losses) == ([Range("a", 0, 5, 6), Range("a", 1, 0, 3)], [])


@pytest.mark.parametrize(
    ("start", "end", "earliest", "told"),
    [
        ({A0: 5, A1: 5}, {A0: 6}, {}, "a-1 no longer exist"),
        ({A0: 5}, {A0: 6, A1: 9}, {A1: 4}, "the new partition a-1 starts at offset 4 instead of 0"),
        ({A0: 5}, {A0: 6, A1: 9}, {}, "a-1 were deleted before they could be read"),
        ({A0: 5, A1: 8}, {A0: 6, A1: 2}, {}, "a-1 went back from offset 8 to 2"),
    ],
)
def test_what_is_missing_between_two_offsets_is_told(
    start: dict[tuple[str, int], int],
    end: dict[tuple[str, int], int],
    earliest: dict[tuple[str, int], int],
    told: str,
) -> None:
    found, losses = ranges(start, end, earliest)
    assert losses == [told]
    assert Range("a", 0, 5, 6) in found
    assert all(one.size > 0 for one in found)


def test_a_topic_made_again_is_read_from_its_start() -> None:
    found = restarts({A0: 5, A1: 7}, {A0: 20, A1: 30}, {A0: 0, A1: 2}, {"a"}, set())
    assert {place: restart.offset for place, restart in found.items()} == {A0: 0, A1: 2}
    assert "deleted and created again" in found[A0].reason


@pytest.mark.promise(
    "spark source",
    "With `failOnDataLoss=false` a query continues after an unclean election lost the end of a partition",
)
def test_an_end_before_the_query_is_a_topic_made_again_unless_its_id_says_otherwise() -> None:
    found = restarts({A0: 5}, {A0: 3}, {A0: 1}, set(), set())
    assert found[A0].offset == 1
    found = restarts({A0: 5}, {A0: 3}, {A0: 1}, set(), {"a"})
    assert found[A0].offset == 3
    assert "brokers have lost records" in found[A0].reason
    assert restarts({A0: 5}, {A0: 5}, {}, set(), {"a"}) == {}


def test_without_options_each_range_is_one_task() -> None:
    whole = [Range("a", 0, 0, 10), Range("a", 1, 5, 5), Range("a", 2, 0, 1)]
    assert split(whole, None, None) == [whole[0], whole[2]]
    assert split(whole, 2, None) == [whole[0], whole[2]]


def test_min_partitions_splits_the_large_ranges() -> None:
    assert split([Range("a", 0, 0, 10)], 3, None) == [
        Range("a", 0, 0, 3),
        Range("a", 0, 3, 6),
        Range("a", 0, 6, 10),
    ]
    found = split([Range("a", 0, 0, 1000), Range("a", 1, 0, 1)], 5, None)
    assert found[-1] == Range("a", 1, 0, 1)
    assert len(found) == 5


def test_max_records_per_partition_bounds_every_task() -> None:
    found = split([Range("a", 0, 0, 10), Range("a", 1, 0, 4)], None, 4)
    assert [one.size for one in found] == [3, 3, 4, 4]


@pytest.mark.promise(
    "spark source", "The tasks of a micro-batch read every offset exactly once, however the offsets are split"
)
@given(partition_sizes, st.none() | st.integers(1, 50), st.none() | st.integers(2**34, 2**41))
def test_tasks_cover_every_offset_once(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = [Range("a", index, 7, 7 + size) for index, size in enumerate(sizes)]
    found = split(whole, least, most)
    for one in whole:
        parts = [part for part in found if part.partition == one.partition]
        ends = [one.start, *(part.end for part in parts)]
        assert [part.start for part in parts] == ends[:-1]
        assert ends[-1] == one.end
    assert all(part.size > 0 for part in found)
    assert most is None or all(part.size <= most for part in found)
