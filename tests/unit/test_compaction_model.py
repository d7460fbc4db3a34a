"""Compaction against a model: random logs of puts, deletes and transactions, cleaned in many ways."""

from __future__ import annotations

import dataclasses
import os
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS, Fs
from penstock.log.cleaning.cleaner import CleanResult, clean
from penstock.log.cleaning.compaction import facts_of, plan_cleaning
from penstock.log.cleaning.swap import swap_in
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery.loading import open_log
from penstock.log.recovery.scan import scan_batches
from penstock.log.tools.verify import verify_partition
from penstock.wire.batches.records import (
    BatchHeader,
    Record,
    build_batch,
    control_marker,
    iter_records,
    parse_control,
)

DELETE_RETENTION_MS = 10_000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=DELETE_RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
    index_interval_bytes=64,
    segment_bytes=1 << 20,
    file_delete_delay_ms=0,
)
KEYS = [b"a", b"b", b"c", b"d", b"e"]

key_values = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 99))), min_size=1, max_size=4
)
# Producer 0 has no id, 1 is idempotent, 2 and 3 are transactional.
writes = st.tuples(st.just("write"), st.integers(0, 3), key_values, st.integers(0, 4))
ends = st.tuples(st.just("end"), st.integers(2, 3), st.booleans())
rolls = st.tuples(st.just("roll"))
histories = st.lists(st.one_of(writes, writes, writes, ends, ends, rolls), min_size=1, max_size=40)


class Bench:
    """A log and all that was ever written to it."""

    def __init__(self, directory: Path, fs: Fs = REAL_FS) -> None:
        self.directory = str(directory / "t-0")
        self.clock = ManualClock()
        self.log = self.open(fs, clean=True)
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.written: list[tuple[int, int, bytes, bytes | None]] = []  # offset, producer, key, value
        self.open_txns: dict[int, list[int]] = {}
        self.aborted: set[int] = set()

    def open(self, fs: Fs, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
        log = open_log(
            self.directory,
            "t",
            0,
            uuid.UUID(int=1),
            CONFIG,
            self.clock,
            fs,
            clean=clean,
            recovery_point=recovery_point,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def play(self, history: list[tuple]) -> None:
        for step, *arguments in history:
            getattr(self, step)(*arguments)
            self.clock.advance(1)
        self.log.roll()
        self.log.update_high_watermark(self.log.log_end_offset)

    def write(self, producer: int, pairs: list[tuple[bytes, int | None]], codec: int) -> None:
        now = self.clock.now_ms()
        values = [None if value is None else b"v%d" % value for _, value in pairs]
        records = [Record(0, now, key, value) for (key, _), value in zip(pairs, values)]
        identity = {}
        if producer:
            identity = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences[producer],
                "transactional": producer >= 2,
            }
            self.sequences[producer] += len(records)
        data = bytearray(build_batch(records, codec=codec, **identity))
        base = self.log.append_as_leader(data, 0, len(data), 1).base_offset
        self.log.update_high_watermark(self.log.log_end_offset)
        for delta, ((key, _), value) in enumerate(zip(pairs, values)):
            self.written.append((base + delta, producer, key, value))
            if producer >= 2:
                self.open_txns.setdefault(producer, []).append(base + delta)

    def end(self, producer: int, commit: bool) -> None:
        marker = bytearray(
            control_marker("commit" if commit else "abort", 0, producer, 0, self.clock.now_ms())
        )
        self.log.append_as_leader(marker, 0, len(marker), 1, origin="coordinator")
        self.log.update_high_watermark(self.log.log_end_offset)
        offsets = self.open_txns.pop(producer, [])
        if not commit:
            self.aborted.update(offsets)

    def roll(self) -> None:
        self.log.roll()

    # what should be readable

    def expected(self) -> dict[bytes, tuple[int, bytes]]:
        """The last committed value of each key below the last stable offset, and where it is."""
        view: dict[bytes, tuple[int, bytes]] = {}
        for offset, _, key, value in self.written:
            if offset >= self.log.last_stable_offset or offset in self.aborted:
                continue
            view.pop(key, None)
            if value is not None:
                view[key] = (offset, value)
        return view

    # what is readable

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        found = []
        for segment in self.log.segments:
            for _, header, batch in scan_batches(segment.file.path, end=segment.size):
                found.append((header, list(iter_records(batch))))
        return found

    def read_committed(self) -> list[Record]:
        """As a consumer filters: by the aborted transactions that a fetch returns."""
        aborted = sorted(
            self.log.aborted_transactions(0, self.log.log_end_offset), key=lambda t: t.first_offset
        )
        ongoing: set[int] = set()
        visible = []
        for header, records in self.batches():
            if header.base_offset >= self.log.last_stable_offset:
                break
            while aborted and aborted[0].first_offset <= header.last_offset:
                ongoing.add(aborted.pop(0).producer_id)
            if header.is_control:
                if records and parse_control(records[0])[0] == "abort":
                    ongoing.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ongoing):
                visible += records
        return visible

    def view(self) -> dict[bytes, tuple[int, bytes]]:
        view: dict[bytes, tuple[int, bytes]] = {}
        for record in self.read_committed():
            assert record.key is not None
            view.pop(record.key, None)
            if record.value is not None:
                view[record.key] = (record.offset, record.value)
        return view

    def tombstones(self) -> set[int]:
        return {record.offset for record in self.read_committed() if record.value is None}

    def contents(self) -> list[tuple[int, bytes]]:
        return [
            (segment.base_offset, Path(segment.file.path).read_bytes()[: segment.size])
            for segment in self.log.segments
        ]

    # cleaning

    def clean(
        self, *, first_dirty: int | None = None, buffer: int = 1 << 20, fs: Fs = REAL_FS
    ) -> CleanResult | None:
        job = plan_cleaning(
            [facts_of(self.log, first_dirty)], self.clock.now_ms(), dedupe_buffer_bytes=buffer
        )
        if job is None:
            return None
        result = clean(job, fs)
        self.swap(result)
        return result

    def swap(self, result: CleanResult) -> None:
        assert swap_in(self.log, result)
        self.log.delayed_deletes.purge()

    def assert_sound(self) -> None:
        for segment in self.log.segments:
            segment.seal()
        problems = verify_partition(self.directory, wait=lambda: None).problems
        # A history may end transactions that wrote nothing, which is a warning.
        assert [problem for problem in problems if problem.severity == "error"] == []


@pytest.fixture
def fresh(tmp_path: Path):
    made = []

    def make(fs: Fs = REAL_FS) -> Bench:
        made.append(tmp_path / str(len(made)))
        os.makedirs(made[-1])
        return Bench(made[-1], fs)

    return make


with_files = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.promise("log", "Compaction never changes an offset and keeps the last record of each key")
@with_files
@given(histories)
def test_cleaning_keeps_offsets_and_the_last_record_of_each_key(fresh, history):
    bench = fresh()
    bench.play(history)
    end, stable, expected = bench.log.log_end_offset, bench.log.last_stable_offset, bench.expected()
    original = {offset: (key, value) for offset, _, key, value in bench.written}
    assert bench.view() == expected
    bench.clean()
    assert bench.view() == expected
    for header, records in bench.batches():
        for record in records:
            if not header.is_control:
                assert original[record.offset] == (record.key, record.value)
                assert header.base_offset <= record.offset <= header.last_offset
    assert (bench.log.log_end_offset, bench.log.last_stable_offset) == (end, stable)
    bench.assert_sound()


@with_files
@given(histories)
def test_only_one_record_of_a_key_is_left_in_the_cleaned_part(fresh, history):
    bench = fresh()
    bench.play(history)
    result = bench.clean()
    if result is None:
        return
    committed = [
        record
        for record in bench.read_committed()
        if record.offset < result.end_offset and record.offset not in bench.aborted
    ]
    assert len({record.key for record in committed}) == len(committed)


@pytest.mark.promise(
    "log", "Compaction handles transactions: it removes aborted records and keeps open transactions"
)
@with_files
@given(histories)
def test_no_aborted_record_is_left_on_disk_in_the_cleaned_part(fresh, history):
    bench = fresh()
    bench.play(history)
    result = bench.clean()
    if result is None:
        return
    left = {
        record.offset for header, records in bench.batches() if not header.is_control for record in records
    }
    assert not {offset for offset in bench.aborted & left if offset < result.end_offset}


@with_files
@given(histories, st.integers(2, 5))
def test_a_small_map_cleans_the_log_in_several_passes_with_the_same_view(fresh, history, slots):
    bench = fresh()
    bench.play(history)
    expected = bench.expected()
    first_dirty: int | None = None
    for _ in range(200):
        result = bench.clean(first_dirty=first_dirty, buffer=24 * slots)
        assert bench.view() == expected
        if result is None:
            break
        assert result.end_offset > (first_dirty if first_dirty is not None else -1)
        first_dirty = result.end_offset
    else:
        pytest.fail("the passes do not come to an end")
    bench.assert_sound()


@pytest.mark.promise("log", "Tombstones are kept for `delete.retention.ms` and then removed")
@with_files
@given(histories)
def test_tombstones_stay_until_their_horizon_and_then_go(fresh, history):
    bench = fresh()
    bench.play(history)
    result = bench.clean()
    if result is None:
        return
    expected = bench.expected()
    end = result.end_offset
    kept = {offset for offset in bench.tombstones() if offset < end}
    newest = {}
    for offset, _, key, value in bench.written:
        if offset < end and offset not in bench.aborted:
            newest[key] = (offset, value)
    assert kept == {offset for offset, value in newest.values() if value is None}
    bench.clock.advance(DELETE_RETENTION_MS - 1)
    bench.clean()
    assert {offset for offset in bench.tombstones() if offset < end} == kept
    bench.clock.advance(1)
    bench.clean()
    assert {offset for offset in bench.tombstones() if offset < end} == set()
    assert bench.view() == expected
    bench.assert_sound()


@with_files
@given(histories)
def test_cleaning_again_and_again_comes_to_rest(fresh, history):
    bench = fresh()
    bench.play(history)
    expected = bench.expected()
    for _ in range(4):
        bench.clean()
        bench.clock.advance(DELETE_RETENTION_MS)
        assert bench.view() == expected
    before = bench.contents()
    bench.clean()
    assert bench.contents() == before


@with_files
@given(histories)
def test_sequences_survive_cleaning_and_a_recovery_without_snapshots(fresh, history):
    bench = fresh()
    bench.play(history)
    before = {
        producer: (entry.epoch, entry.last_sequence)
        for producer, entry in bench.log.producers.producers.items()
    }
    for _ in range(3):
        bench.clean()
        bench.clock.advance(DELETE_RETENTION_MS)
    bench.log.close()
    for name in os.listdir(bench.directory):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(bench.directory, name))
    bench.log = bench.open(REAL_FS, clean=False)
    after = {
        producer: (entry.epoch, entry.last_sequence)
        for producer, entry in bench.log.producers.producers.items()
    }
    assert after == before


@pytest.mark.promise(
    "log", "Compaction handles transactions: it removes aborted records and keeps open transactions"
)
def test_a_producer_that_aborted_deletes_a_key_for_good_in_a_later_transaction(fresh):
    """Its abort lies in the part that was cleaned before."""
    bench = fresh()
    first_dirty: int | None = None
    for part in (
        [
            ("write", 2, [(b"a", 1)], 0),
            ("end", 2, True),
            ("write", 2, [(b"b", 1)], 0),
            ("end", 2, False),
        ],
        [("write", 2, [(b"a", None)], 0), ("end", 2, True)],
        [("write", 0, [(b"c", 1)], 0)],
    ):
        bench.play(part)
        result = bench.clean(first_dirty=first_dirty)
        assert result is not None
        first_dirty = result.end_offset
        assert bench.view() == bench.expected()
        bench.clock.advance(DELETE_RETENTION_MS)
    bench.assert_sound()


@pytest.mark.parametrize("change", ["delete_records_before", "truncate_to"])
def test_a_log_that_was_cut_while_it_was_cleaned_is_not_swapped(fresh, change):
    bench = fresh()
    bench.play(HISTORY)
    job = plan_cleaning([facts_of(bench.log)], bench.clock.now_ms())
    assert job is not None
    result = clean(job)
    getattr(bench.log, change)(4)
    before = bench.contents()
    assert not swap_in(bench.log, result)
    assert bench.contents() == before
    assert not [name for name in os.listdir(bench.directory) if name.endswith(".cleaned")]


class Crash(Exception):
    """The machine stops here."""


class CrashingFs(Fs):
    """Stops before the n-th step that changes the disk, and at every later one."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def _step(self) -> None:
        if self.left <= 0:
            raise Crash
        self.left -= 1

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT:
            self._step()
        return super().open(path, flags, mode)

    def write(self, fd, data):  # type: ignore[no-untyped-def]
        self._step()
        return super().write(fd, data)

    def pwrite(self, fd, data, offset):  # type: ignore[no-untyped-def]
        self._step()
        return super().pwrite(fd, data, offset)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)


HISTORY = [
    ("write", 1, [(b"a", 1), (b"b", 1)], 0),
    ("write", 2, [(b"a", 2), (b"c", 2)], 4),
    ("roll",),
    ("end", 2, False),
    ("write", 3, [(b"d", 1), (b"a", None)], 1),
    ("end", 3, True),
    ("roll",),
    ("write", 0, [(b"b", 5), (b"e", 6)], 2),
    ("write", 1, [(b"c", 3)], 3),
]


@pytest.mark.promise("log", "A crash at any step of cleaning loses nothing")
@pytest.mark.parametrize("segment_bytes", [1, 1 << 20], ids=["one swap for each segment", "one swap for all"])
def test_a_crash_at_any_step_of_cleaning_and_swapping_loses_nothing(fresh, segment_bytes):
    steps = 0
    while True:
        bench = fresh()
        bench.play(HISTORY)
        expected, end = bench.expected(), bench.log.log_end_offset
        bench.log.flush()
        fs = CrashingFs(steps)
        bench.log.fs = fs
        for segment in bench.log.segments:
            segment._fs = fs
        facts = facts_of(bench.log)
        job = plan_cleaning([facts], bench.clock.now_ms())
        assert job is not None
        crashed = False
        try:
            bench.swap(clean(dataclasses.replace(job, segment_bytes=segment_bytes), fs))
        except Crash:
            crashed = True
        bench.log = bench.open(REAL_FS, clean=False, recovery_point=end)
        assert bench.view() == expected, f"after {steps} steps"
        assert bench.log.log_end_offset == end
        assert not [n for n in os.listdir(bench.directory) if n.endswith((".cleaned", ".swap"))]
        bench.assert_sound()
        if not crashed:
            assert steps > 10
            return
        steps += 1
