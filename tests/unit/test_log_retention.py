"""What retention, deletion and swaps take away, and what they leave."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from penstock import errors
from penstock.clock import ManualClock
from penstock.fs import FaultyFs
from penstock.log.manager import LogManager
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery.loading import read_partition_metadata
from tests.unit.log_helpers import TOPIC_ID, append, batch, contents, make_log

BATCH = len(batch([b"x" * 100]))


def filled(path: Path, clock: ManualClock, count: int = 10, **settings: object) -> PartitionLog:
    """One batch for each segment, one second apart."""
    log = make_log(path, clock, segment_bytes=BATCH, **settings)
    for _ in range(count):
        append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
        clock.advance(1000)
    return log


@pytest.mark.promise("log", "Retention works by time, by size, by both or not at all")
def test_time_counts_the_newest_record_of_a_segment(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(tmp_path, clock, retention_ms=5_500)
    assert log.apply_retention() == 5
    assert log.log_start_offset == 5
    assert [offset for offset, _ in contents(log)] == [5, 6, 7, 8, 9]


def test_an_old_active_segment_is_rolled_and_then_goes(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(tmp_path, clock, retention_ms=100)
    assert log.apply_retention() == 10
    assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
    assert append(log, batch([b"x"])).base_offset == 10


@pytest.mark.promise("crashes", "Retention makes room on a full disk")
def test_on_a_full_disk_all_old_segments_but_the_active_one_go(tmp_path: Path) -> None:
    """There is no room for the empty segment that follows them."""
    clock, fs = ManualClock(), FaultyFs()
    log = filled(tmp_path, clock, fs=fs, retention_ms=100)
    fs.fail("open", f"{10:020d}.log", errno.ENOSPC, times=2)
    assert log.apply_retention() == 9
    assert (log.log_start_offset, log.log_end_offset) == (9, 10)
    with pytest.raises(OSError, match="space"):
        log.apply_retention()
    assert log.apply_retention() == 1
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)


@pytest.mark.promise("log", "Retention works by time, by size, by both or not at all")
def test_size_keeps_at_least_the_limit(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(), retention_ms=-1, retention_bytes=3 * BATCH + 10)
    assert log.apply_retention() == 6
    assert log.size == 4 * BATCH


@pytest.mark.promise(
    "log",
    "`penstock.retention.records` deletes the oldest segments as long as at least this many records remain",
)
def test_the_number_of_records_keeps_at_least_the_limit(tmp_path: Path) -> None:
    clock = ManualClock()
    log = make_log(tmp_path, clock, retention_ms=-1, retention_records=5, segment_bytes=3 * BATCH)
    for _ in range(10):
        append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    # Without the segment of 3 to 5 there would be four left.
    assert log.apply_retention() == 1
    assert [offset for offset, _ in contents(log)] == [3, 4, 5, 6, 7, 8, 9]
    append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
    assert log.apply_retention() == 1
    assert log.log_start_offset == 6
    assert log.apply_retention() == 0


def test_no_records_are_kept_where_the_limit_is_zero(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(), retention_ms=-1, retention_records=0)
    assert log.apply_retention() == 10
    assert append(log, batch([b"x"])).base_offset == 10


@pytest.mark.promise("log", "Retention works by time, by size, by both or not at all")
def test_both_limits_hold(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(), retention_ms=7_500, retention_bytes=3 * BATCH)
    log.apply_retention()
    assert log.size == 3 * BATCH
    log.clock.advance(6_000)  # type: ignore[attr-defined]
    log.apply_retention()
    assert len(contents(log)) == 1


@pytest.mark.promise("log", "Retention works by time, by size, by both or not at all")
def test_keep_everything(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(), retention_ms=-1, retention_bytes=-1)
    log.clock.advance(10**12)  # type: ignore[attr-defined]
    assert log.apply_retention() == 0


def test_a_compacted_topic_is_not_touched_by_time(tmp_path: Path) -> None:
    clock = ManualClock()
    log = make_log(
        tmp_path, clock, retention_ms=1, cleanup_policy=frozenset({"compact"}), segment_bytes=BATCH + 20
    )
    for _ in range(3):
        append(log, batch([b"x" * 100], key=b"k", timestamp=clock.now_ms()))
    clock.advance(1000)
    assert log.apply_retention() == 0


@pytest.mark.promise("log", "Nothing above the high watermark is deleted")
def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=BATCH, retention_ms=-1, retention_bytes=0)
    for _ in range(4):
        data = batch([b"x" * 100])
        log.append_as_leader(data, 0, len(data), 0)
    log.update_high_watermark(2)
    assert log.apply_retention() == 2


@pytest.mark.promise(
    "log",
    "With `penstock.retention.consumed.groups`, records that all these groups have consumed are deleted",
)
def test_what_all_groups_have_consumed_is_deleted(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(), retention_ms=-1)
    log.apply_retention(consumed_offset=4)
    assert log.log_start_offset == 4
    assert [segment.base_offset for segment in log.segments] == [4, 5, 6, 7, 8, 9]


def test_deleted_records_are_unreadable_and_stay_so(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, batch([b"a", b"b", b"c", b"d"]))
    assert log.delete_records_before(2) == 2
    with pytest.raises(errors.OffsetOutOfRange):
        log.read(1, 100, 4)
    assert contents(log) == [(2, b"c"), (3, b"d")]
    with pytest.raises(errors.OffsetOutOfRange):
        log.delete_records_before(5)
    found = log.offset_for_timestamp(0)
    assert found is not None and found.offset == 2


def test_files_go_after_the_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(tmp_path, clock, retention_ms=5_500, file_delete_delay_ms=1_000)
    log.apply_retention()
    log.delayed_deletes.purge()
    assert sum(".deleted" in name for name in os.listdir(log.directory)) >= 10
    clock.advance(1_001)
    log.delayed_deletes.purge()
    assert sum(".deleted" in name for name in os.listdir(log.directory)) == 0


@pytest.mark.promise("log", "A crash at any step of cleaning loses nothing")
@pytest.mark.parametrize("crash_after", range(14))
def test_a_swap_that_is_interrupted_is_completed_or_undone(tmp_path: Path, crash_after: int) -> None:
    """The cleaned segment holds the same records: whatever the moment of the crash, all are there once."""
    fs = FaultyFs()
    clock = ManualClock()
    log = make_log(tmp_path, clock, fs, segment_bytes=BATCH * 2)
    for _ in range(7):
        append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
    expected = contents(log)
    old = log.segments[:2]
    base = Path(log.directory, f"{0:020d}")
    merged = b"".join(Path(segment.file.path).read_bytes() for segment in old)
    Path(f"{base}.log.cleaned").write_bytes(merged)
    Path(f"{base}.index.cleaned").write_bytes(b"")
    Path(f"{base}.timeindex.cleaned").write_bytes(b"")
    fs.fail("rename", "t-0", errno.EIO, after=crash_after, times=1000)
    try:
        log.begin_swap([0])
        log.finish_swap(old)
        assert contents(log) == expected
    except OSError:
        pass
    again = make_log(tmp_path, clock)
    assert contents(again) == expected
    assert append(again, batch([b"y"])).base_offset == 7


def manager(path: Path, clock: ManualClock) -> LogManager:
    from penstock.config import BrokerConfig

    return LogManager(BrokerConfig.parse({"log.dirs": str(path), "broker.id": "1"}), clock)


def test_the_manager_brings_back_every_log_as_it_was(tmp_path: Path) -> None:
    from penstock.config import LogConfig

    clock = ManualClock()
    first = manager(tmp_path, clock)
    first.load(lambda topic: LogConfig())
    for name in ("a", "b.c-d"):
        for partition in (0, 1):
            log = first.create(name, partition, TOPIC_ID, LogConfig())
            append(log, batch([b"x", b"y", b"z"]))
    first.logs["a", 0].delete_records_before(2)
    first.close()

    second = manager(tmp_path, clock)
    second.load(lambda topic: LogConfig())
    assert second.clean
    assert {key: log.log_end_offset for key, log in second.logs.items()} == dict.fromkeys(first.logs, 3)
    assert second.logs["a", 0].log_start_offset == 2
    assert second.logs["b.c-d", 1].topic_id == TOPIC_ID

    third = manager(tmp_path, clock)  # the second one never closed
    third.load(lambda topic: LogConfig())
    assert not third.clean
    assert len(third.logs) == 4


def test_a_deleted_log_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    from penstock.config import LogConfig

    clock = ManualClock()
    logs = manager(tmp_path, clock)
    logs.load(lambda topic: LogConfig())
    append(logs.create("gone", 0, TOPIC_ID, LogConfig()), batch([b"x"]))
    logs.delete("gone", 0)
    assert logs.get("gone", 0) is None
    assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    fresh = logs.create("gone", 0, TOPIC_ID, LogConfig())
    assert fresh.log_end_offset == 0
    clock.advance(60_001)
    logs.purge()
    assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")] == []


def test_a_log_moves_between_data_directories_of_the_same_layout(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", ManualClock())
    expected = contents(log)
    log.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    moved = make_log(tmp_path / "b")
    assert contents(moved) == expected
    assert read_partition_metadata(moved.directory, moved.fs) == TOPIC_ID


def test_the_first_leader_epoch_starts_where_the_log_does_also_after_a_crash(tmp_path: Path) -> None:
    """To write that down would hold the loop up: whoever opens the log does it again."""
    clock = ManualClock()
    log = make_log(tmp_path, clock, segment_bytes=BATCH, retention_ms=5_500)
    for epoch in (0, 0, 0, 1, 1, 1, 2, 2, 2, 2):
        append(log, batch([b"x" * 100], timestamp=clock.now_ms()), epoch)
        clock.advance(1000)
    before = Path(log.epochs.path).read_bytes()
    assert log.apply_retention() == 5
    assert log.epochs.entries == [(1, 5), (2, 6)]
    assert Path(log.epochs.path).read_bytes() == before
    crashed = make_log(tmp_path, clock, segment_bytes=BATCH)
    assert crashed.epochs.entries == [(1, 5), (2, 6)]
    crashed.close()
    assert Path(log.epochs.path).read_bytes() != before
    assert make_log(tmp_path, clock, segment_bytes=BATCH, clean=True).epochs.entries == [(1, 5), (2, 6)]


def test_rolls_and_retention_do_not_list_the_directory(tmp_path: Path) -> None:
    """It has the files of deleted segments for a minute: to list it would cost more with each of them."""

    class Listing(FaultyFs):
        lists = 0

        def listdir(self, path: str) -> list[str]:
            Listing.lists += 1
            return super().listdir(path)

    clock = ManualClock()
    log = make_log(tmp_path, clock, Listing(), segment_bytes=BATCH, retention_ms=5_500)
    append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
    append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
    before = Listing.lists
    for _ in range(20):
        append(log, batch([b"x" * 100], timestamp=clock.now_ms()))
        clock.advance(1000)
    assert log.apply_retention() == 17
    assert Listing.lists == before
    snapshots = {int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot")}
    assert snapshots == {segment.base_offset for segment in log.segments}
