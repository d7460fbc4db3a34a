"""Which log is compacted, how far, and which segments become one: pure planning."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from penstock.config import LogConfig
from penstock.log.cleaning.compaction import (
    CompactedSegment,
    LastBatch,
    LogFacts,
    assess,
    group_segments,
    plan_cleaning,
)
from penstock.log.cleaning.offset_map import OffsetMap

NOW = 1_000_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.5)


def segment(base: int, size: int = 100, newest: int = 1, first: int = 1) -> CompactedSegment:
    return CompactedSegment(base, size, newest, first, 8, 12)


def log(first_dirty: int | None = None, *, config: LogConfig = COMPACT, **changes: object) -> LogFacts:
    facts = LogFacts(
        topic="t",
        partition=0,
        directory="/d/t-0",
        segments=[segment(0), segment(10), segment(20), segment(30)],
        log_start_offset=0,
        log_end_offset=35,
        last_stable_offset=35,
        high_watermark=35,
        first_dirty_offset=first_dirty,
        config=config,
        last_batches=lambda: {7: LastBatch(12, 1)},
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def test_the_active_segment_is_never_cleaned():
    job = plan_cleaning([log()], NOW)
    assert job is not None
    assert [s.base_offset for s in job.segments] == [0, 10, 20]
    assert job.first_uncleanable_offset == 30
    assert job.txn_index_base_offsets == (0, 10, 20, 30)


def test_a_job_can_be_pickled_and_carries_the_active_producers():
    job = plan_cleaning([log()], NOW)
    assert job is not None
    assert pickle.loads(pickle.dumps(job)) == job
    assert job.last_batches == {7: LastBatch(12, 1)}


def test_a_log_that_is_not_compacted_is_left_alone():
    assert plan_cleaning([log(config=LogConfig())], NOW) is None


def test_compact_and_delete_together_are_compacted():
    config = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}))
    assert plan_cleaning([log(config=config)], NOW) is not None


@pytest.mark.parametrize(("bound", "end"), [(25, 20), (20, 20), (30, 30), (5, 0)])
def test_nothing_past_the_last_stable_offset_or_the_high_watermark_is_cleaned(bound, end):
    assert assess(log(last_stable_offset=bound), NOW).first_uncleanable_offset == end
    assert assess(log(high_watermark=bound), NOW).first_uncleanable_offset == end


@pytest.mark.promise(
    "log", "The dirty ratio and the minimum and maximum compaction lag decide when a log is compacted"
)
def test_min_compaction_lag_holds_back_the_first_young_segment_and_all_behind_it():
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    segments = [segment(0), segment(10, newest=NOW - 999), segment(20), segment(30)]
    assert assess(log(config=config, segments=segments), NOW).first_uncleanable_offset == 10
    old_enough = [segment(0), segment(10, newest=NOW - 1000), segment(20), segment(30)]
    assert assess(log(config=config, segments=old_enough), NOW).first_uncleanable_offset == 30


@pytest.mark.promise(
    "log", "The dirty ratio and the minimum and maximum compaction lag decide when a log is compacted"
)
def test_a_log_is_due_only_above_the_dirty_ratio():
    half = log(20, segments=[segment(0), segment(10), segment(20, size=200), segment(30)])
    assert assess(half, NOW).dirty_ratio == 0.5
    assert plan_cleaning([half], NOW) is None
    more = log(20, segments=[segment(0), segment(10), segment(20, size=201), segment(30)])
    assert plan_cleaning([more], NOW) is not None


@pytest.mark.promise(
    "log", "The dirty ratio and the minimum and maximum compaction lag decide when a log is compacted"
)
def test_max_compaction_lag_makes_a_log_due_below_the_dirty_ratio():
    config = replace(COMPACT, max_compaction_lag_ms=500)
    segments = [segment(0), segment(10), segment(20, first=NOW - 501), segment(30)]
    assert plan_cleaning([log(20, config=config, segments=segments)], NOW) is not None
    younger = [segment(0), segment(10), segment(20, first=NOW - 500), segment(30)]
    assert plan_cleaning([log(20, config=config, segments=younger)], NOW) is None


def test_the_dirtiest_log_comes_first():
    jobs = plan_cleaning([log(10), log(0, topic="dirtiest"), log(20)], NOW)
    assert jobs is not None
    assert jobs.topic == "dirtiest"


def test_a_log_without_closed_dirty_segments_is_not_due():
    assert plan_cleaning([log(30)], NOW) is None
    assert plan_cleaning([log(segments=[segment(0)])], NOW) is None


@pytest.mark.parametrize("checkpoint", [5, 99])
def test_a_checkpoint_outside_the_log_starts_again_at_the_log_start(checkpoint):
    facts = log(checkpoint, log_start_offset=10, segments=[segment(10), segment(20), segment(30)])
    assert assess(facts, NOW).first_dirty_offset == 10


def test_segments_are_merged_up_to_the_size_limit():
    segments = [segment(0, 60), segment(10, 30), segment(20, 20), segment(30, 90)]
    groups = group_segments(segments, segment_bytes=100, segment_index_bytes=1000, end_offset=40)
    assert [[s.base_offset for s in group] for group in groups] == [[0, 10], [20], [30]]


def test_segments_are_merged_up_to_the_index_limits():
    segments = [segment(0, 1), segment(10, 1), segment(20, 1)]
    groups = group_segments(segments, segment_bytes=100, segment_index_bytes=24, end_offset=30)
    assert [[s.base_offset for s in group] for group in groups] == [[0, 10], [20]]


def test_a_few_segments_are_merged_at_a_time():
    """The files of all that become one are renamed in one turn of the loop."""
    groups = group_segments(
        [segment(10 * number, 1) for number in range(20)],
        segment_bytes=1000,
        segment_index_bytes=1000,
        end_offset=200,
    )
    assert [len(group) for group in groups] == [8, 8, 4]


def test_planning_takes_time_in_proportion_to_the_segments():
    """It is done on the loop: comparing each segment with each other one held it up for 190 ms."""
    compared = 0

    class Compared(CompactedSegment):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = None  # type: ignore[assignment]

    segments = [Compared(10 * number, 100, 1, 1, 8, 12) for number in range(300)]
    facts = log(1500, segments=segments, log_end_offset=3000, last_stable_offset=3000, high_watermark=3000)
    found = assess(facts, NOW)
    assert (found.clean_bytes, found.dirty_bytes) == (15_000, 14_900)
    assert compared == 0


def test_a_merged_segment_spans_no_more_offsets_than_an_index_can_express():
    span = 2**31
    segments = [segment(0, 1), segment(100, 1), segment(span, 1), segment(span + 5, 0)]
    groups = group_segments(segments, segment_bytes=100, segment_index_bytes=1000, end_offset=span + 9)
    assert [[s.base_offset for s in group] for group in groups] == [[0, 100], [span, span + 5]]
    last = group_segments(segments[:2], segment_bytes=100, segment_index_bytes=1000, end_offset=span + 1)
    assert [len(group) for group in last] == [1, 1]


def test_the_offset_map_keeps_the_newest_offset_and_refuses_new_keys_when_full():
    offsets = OffsetMap(24 * 8, 0.5)
    assert offsets.capacity == 4
    for number in range(4):
        assert offsets.put(b"k%d" % number, number)
    assert offsets.put(b"k0", 9)
    assert not offsets.put(b"new", 10)
    assert offsets.get(b"k0") == 9
    assert offsets.get(b"k3") == 3
    assert offsets.get(b"new") == -1
    assert offsets.utilization == 1.0


def test_the_offset_map_takes_no_more_memory_than_the_keys_need():
    assert OffsetMap(1 << 30, 0.9, expected=10).capacity < 64
    assert OffsetMap(0).capacity == 1
