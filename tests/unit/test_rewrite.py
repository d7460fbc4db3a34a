"""Strict retention: old records are gone from disk, the rest is as it was."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS
from penstock.log.cleaning.compaction import facts_of
from penstock.log.cleaning.strict_retention import (
    Oldest,
    StrictResult,
    plan_strict_retention,
    rewrite_expired,
)
from penstock.log.cleaning.swap import swap_in
from penstock.log.recovery.loading import open_log
from penstock.log.recovery.scan import CorruptSegment, scan_batches
from penstock.log.tools.verify import verify_partition
from penstock.wire.batches.records import Record, build_batch, control_marker, iter_records

RETENTION_MS = 1000
CONFIG = LogConfig(
    retention_ms=RETENTION_MS, retention_strict=True, index_interval_bytes=64, file_delete_delay_ms=0
)


class Bench:
    def __init__(self, directory: Path, config: LogConfig = CONFIG) -> None:
        self.clock = ManualClock()
        self.directory = str(directory / "t-0")
        self.log = open_log(self.directory, "t", 0, uuid.UUID(int=1), config, self.clock, REAL_FS, clean=True)
        self.known: dict[int, Oldest] = {}
        self.start = self.clock.now_ms()

    def write(self, *ages: int, codec: int = 0, **options: object) -> int:
        """One batch, with records that are so many milliseconds old."""
        now = self.clock.now_ms()
        records = [Record(0, now - age, b"k%d" % i, b"v" * 10) for i, age in enumerate(ages)]
        data = bytearray(build_batch(records, codec=codec, **options))  # type: ignore[arg-type]
        offset = self.log.append_as_leader(data, 0, len(data), 0).base_offset
        self.log.update_high_watermark(self.log.log_end_offset)
        return offset

    def apply(self) -> StrictResult | None:
        """As the broker does: rewrite what is closed, roll the active segment if need be, and again."""
        result = None
        for _ in range(2):
            job = plan_strict_retention(facts_of(self.log), self.clock.now_ms(), self.known)
            if job is None:
                break
            result = rewrite_expired(job)
            assert swap_in(self.log, result)
            self.log.delayed_deletes.purge()
            self.known = dict(result.oldest)
            if not result.active_expired:
                break
            self.log.roll()
        return result

    def records(self) -> list[Record]:
        return [
            record
            for segment in self.log.segments
            for _, header, batch in scan_batches(segment.file.path, end=segment.size)
            if not header.is_control
            for record in iter_records(batch)
        ]

    def assert_sound(self) -> None:
        for segment in self.log.segments:
            segment.seal()
        assert verify_partition(self.directory, wait=lambda: None).problems == []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("codec", range(5))
def test_old_records_go_from_a_batch_that_has_newer_ones(bench, codec):
    bench.write(2000, 500, 1001, 1000, codec=codec)
    bench.write(0)
    bench.apply()
    assert [record.offset for record in bench.records()] == [1, 3, 4]
    bench.assert_sound()


def test_old_records_go_from_the_active_segment_too(bench):
    bench.write(0)
    bench.clock.advance(RETENTION_MS + 1)
    bench.write(0)
    bench.apply()
    assert [record.offset for record in bench.records()] == [1]
    assert bench.log.log_end_offset == 2
    bench.assert_sound()


def test_a_log_without_old_records_is_not_touched_and_read_once(bench):
    bench.write(0)
    bench.log.roll()
    bench.write(0)
    before = {s.base_offset: os.stat(s.file.path).st_ino for s in bench.log.segments}
    result = bench.apply()
    assert result is not None
    assert result.groups == ()
    assert {s.base_offset: os.stat(s.file.path).st_ino for s in bench.log.segments} == before
    assert plan_strict_retention(facts_of(bench.log), bench.clock.now_ms(), bench.known) is None
    bench.write(0)
    bench.apply()
    assert sorted(bench.known) == [0, 1]


def test_a_segment_is_planned_again_when_its_oldest_record_has_become_old(bench):
    bench.write(0)
    bench.apply()
    bench.clock.advance(RETENTION_MS)
    assert plan_strict_retention(facts_of(bench.log), bench.clock.now_ms(), bench.known) is None
    bench.clock.advance(1)
    assert plan_strict_retention(facts_of(bench.log), bench.clock.now_ms(), bench.known) is not None


def test_what_is_appended_to_a_known_segment_is_looked_at(bench):
    bench.write(0)
    bench.apply()
    bench.write(5000)
    bench.apply()
    assert [record.offset for record in bench.records()] == [0]


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(retention_ms=1000),
        LogConfig(retention_ms=-1, retention_strict=True),
        LogConfig(retention_ms=1000, retention_strict=True, cleanup_policy=frozenset({"compact"})),
    ],
    ids=["not strict", "no limit", "compacted only"],
)
def test_strict_retention_is_only_for_logs_that_ask_for_it(tmp_path, config):
    bench = Bench(tmp_path, config)
    bench.write(5000)
    assert plan_strict_retention(facts_of(bench.log), bench.clock.now_ms()) is None


def test_records_above_the_high_watermark_stay_until_it_has_passed_them(bench):
    bench.write(5000)
    bench.log.high_watermark = 0
    bench.log.roll()
    assert plan_strict_retention(facts_of(bench.log), bench.clock.now_ms()) is None
    bench.log.update_high_watermark(1)
    bench.apply()
    assert bench.records() == []


def test_sequences_and_the_end_of_the_log_survive(bench):
    bench.write(5000, 5000, producer_id=7, producer_epoch=0, base_sequence=0)
    bench.write(5000, producer_id=8, producer_epoch=0, base_sequence=0)
    bench.apply()
    assert bench.records() == []
    bench.log.close()
    for name in os.listdir(bench.directory):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(bench.directory, name))
    again = open_log(bench.directory, "t", 0, uuid.UUID(int=1), CONFIG, bench.clock, REAL_FS, clean=False)
    assert again.log_end_offset == 3
    assert {p: e.last_sequence for p, e in again.producers.producers.items()} == {7: 1, 8: 0}


def test_markers_and_aborted_transactions_stay_known(bench):
    ids = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    bench.write(500, 5000, **ids)
    marker = bytearray(control_marker("abort", 0, 7, 0, bench.clock.now_ms()))
    bench.log.append_as_leader(marker, 0, len(marker), 0, origin="coordinator")
    bench.log.update_high_watermark(3)
    bench.apply()
    assert [record.offset for record in bench.records()] == [0]
    assert [txn.first_offset for txn in bench.log.aborted_transactions(0, 3)] == [0]
    bench.assert_sound()


def test_the_new_start_of_the_log_is_told(bench):
    bench.write(5000, 5000)
    bench.log.roll()
    bench.write(5000, 0)
    bench.log.roll()
    result = bench.apply()
    assert result is not None
    assert result.first_offset == 3
    assert result.records_removed == 3


def test_a_corrupt_segment_stops_the_pass_and_changes_nothing(bench):
    bench.write(5000, 0)
    bench.log.roll()
    path = bench.log.segments[0].file.path
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)
    job = plan_strict_retention(facts_of(bench.log), bench.clock.now_ms())
    assert job is not None
    with pytest.raises(CorruptSegment):
        rewrite_expired(job)
    assert not [name for name in os.listdir(bench.directory) if name.endswith(".cleaned")]


@pytest.mark.promise(
    "log",
    "With `penstock.retention.strict`, no record past the limit is readable or on disk after the next pass",
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.lists(st.integers(0, 3000), min_size=1, max_size=4), st.integers(0, 4)), st.none()
        ),
        max_size=25,
    )
)
def test_exactly_the_records_within_the_limit_are_left(tmp_path_factory, steps):
    bench = Bench(tmp_path_factory.mktemp("log"))
    expected = []
    now = bench.clock.now_ms()
    for step in steps:
        if step is None:
            bench.log.roll()
            continue
        ages, codec = step
        base = bench.write(*ages, codec=codec)
        expected += [(base + i, now - age) for i, age in enumerate(ages) if age <= RETENTION_MS]
    end = bench.log.log_end_offset
    bench.apply()
    assert [(record.offset, record.timestamp) for record in bench.records()] == expected
    assert bench.log.log_end_offset == end
    bench.assert_sound()
