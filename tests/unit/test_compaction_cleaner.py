"""What the cleaner writes, batch by batch."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.fs import FaultyFs
from penstock.log.cleaning.cleaner import clean
from penstock.log.cleaning.compaction import CleanJob, CompactedSegment, LastBatch
from penstock.log.index import AbortedTxn, TransactionIndex
from penstock.log.recovery.scan import CorruptSegment, scan_batches, segment_path
from penstock.log.tools.verify import verify_partition
from penstock.wire.batches.records import Record, build_batch, control_marker, iter_records

NOW = 1_000_000


def batch(
    offset: int, *pairs: tuple[bytes | None, bytes | None], time: int = 500, **options: object
) -> bytes:
    records = [Record(0, time + i, key, value, (("h", b"x"),)) for i, (key, value) in enumerate(pairs)]
    return build_batch(records, base_offset=offset, **options)  # type: ignore[arg-type]


class Directory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments: list[CompactedSegment] = []

    def segment(self, base: int, *batches: bytes, aborted: tuple[AbortedTxn, ...] = ()) -> None:
        data = b"".join(batches)
        Path(segment_path(str(self.path), base)).write_bytes(data)
        if aborted:
            entries = b"".join(TransactionIndex.ENTRY.pack(0, *txn) for txn in aborted)
            Path(segment_path(str(self.path), base, ".txnindex")).write_bytes(entries)
        self.segments.append(CompactedSegment(base, len(data), 1))

    def job(self, end: int, **changes: object) -> CleanJob:
        job = CleanJob(
            topic="t",
            partition=0,
            directory=str(self.path),
            segments=tuple(self.segments),
            txn_index_base_offsets=tuple(s.base_offset for s in self.segments),
            first_dirty_offset=0,
            first_uncleanable_offset=end,
            now_ms=NOW,
            delete_retention_ms=1000,
            segment_bytes=1 << 20,
            segment_index_bytes=1 << 20,
            index_interval_bytes=4096,
        )
        return replace(job, **changes)  # type: ignore[arg-type]

    def cleaned(self, base: int = 0) -> list[tuple[object, list[Record], bytes]]:
        path = segment_path(str(self.path), base, ".log.cleaned")
        return [(header, list(iter_records(data)), bytes(data)) for _, header, data in scan_batches(path)]

    def adopt(self, base: int = 0) -> None:
        """What a swap leaves, without the log."""
        self.segments = []
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            path = segment_path(str(self.path), base, kind)
            os.replace(path + ".cleaned", path)
        for other in self.path.glob("*.log"):
            if int(other.name[:20]) != base:
                other.unlink()
        size = os.path.getsize(segment_path(str(self.path), base))
        self.segments.append(CompactedSegment(base, size, 1))


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_a_batch_that_stays_whole_is_copied_byte_for_byte(directory):
    kept = batch(0, (b"a", b"1"), (b"b", b"2"), codec=4, producer_id=3, producer_epoch=1, base_sequence=7)
    directory.segment(0, kept, batch(2, (b"c", b"3")))
    clean(directory.job(3))
    assert directory.cleaned()[0][2] == kept


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_records_keeps_its_header(directory, codec):
    options = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 40, "leader_epoch": 6, "codec": codec}
    first = batch(10, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"a", b"4"), **options)
    directory.segment(10, first, batch(14, (b"c", b"5"), (b"d", None)))
    clean(directory.job(16, first_dirty_offset=10))
    header, records, _ = directory.cleaned(10)[0]
    assert [(r.offset, r.key, r.value, r.timestamp) for r in records] == [
        (11, b"b", b"2", 501),
        (13, b"a", b"4", 503),
    ]
    assert records[0].headers == (("h", b"x"),)
    assert (header.base_offset, header.last_offset, header.count, header.codec) == (10, 13, 2, codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    assert (header.last_sequence, header.leader_epoch, header.max_timestamp) == (43, 6, 503)


def test_log_append_time_stays(directory):
    directory.segment(0, batch(0, (b"a", b"1"), (b"b", None), log_append_time=777), batch(2, (b"a", b"2")))
    clean(directory.job(3))
    header, records, _ = directory.cleaned()[0]
    assert header.is_log_append_time
    assert header.has_delete_horizon
    assert [(r.offset, r.timestamp) for r in records] == [(1, 777)]


def test_a_tombstone_gets_a_delete_horizon_once_and_keeps_its_timestamp(directory):
    directory.segment(0, batch(0, (b"a", b"1"), (b"b", None), time=500, codec=1), batch(2, (b"z", b"1")))
    clean(directory.job(3))
    header, records, first = directory.cleaned()[0]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 1000
    assert [(r.offset, r.timestamp) for r in records] == [(0, 500), (1, 501)]
    directory.adopt()
    clean(directory.job(3, now_ms=NOW + 999))
    assert directory.cleaned()[0][2] == first
    directory.adopt()
    clean(directory.job(3, now_ms=NOW + 1000))
    assert [r.offset for r in directory.cleaned()[0][1]] == [0]


def test_records_without_a_key_are_dropped_and_counted(directory):
    directory.segment(0, batch(0, (None, b"1"), (b"a", b"2")), batch(2, (b"b", b"3")))
    result = clean(directory.job(3))
    assert [r.offset for r in directory.cleaned()[0][1]] == [1]
    assert result.stats.invalid_records == 1
    assert (result.stats.records_read, result.stats.records_written) == (3, 2)


def test_the_last_batch_of_an_active_producer_stays_as_a_bare_header(directory):
    ids = {"producer_id": 5, "producer_epoch": 1}
    directory.segment(
        0,
        batch(0, (b"a", b"1"), base_sequence=0, **ids),
        batch(1, (b"a", b"2"), (b"a", b"3"), base_sequence=1, **ids),
        batch(3, (b"a", b"4")),
    )
    clean(directory.job(4, last_batches={5: LastBatch(2, 1)}))
    (empty, records, _), _ = directory.cleaned()
    assert (empty.base_offset, empty.last_offset, empty.count, empty.last_sequence) == (1, 2, 0, 2)
    assert records == []


def test_the_last_batch_of_a_pass_stays_so_that_the_end_is_known(directory):
    directory.segment(0, batch(0, (b"a", b"1")), batch(1, (None, b"x")))
    clean(directory.job(2))
    assert [header.last_offset for header, _, _ in directory.cleaned()] == [0, 1]


def transaction(directory: Directory, kind: str) -> None:
    ids = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 0, "transactional": True}
    marker = control_marker("commit" if kind == "commit" else "abort", 0, 5, 1, 500, base_offset=2)
    aborted = (AbortedTxn(5, 1, 2, 3),) if kind == "abort" else ()
    directory.segment(0, batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), **ids))
    directory.segment(2, marker, batch(3, (b"b", b"1")), aborted=aborted)
    directory.segment(4, batch(4, (b"a" if kind == "commit" else b"c", b"9")))


@pytest.mark.promise(
    "log", "Compaction handles transactions: it removes aborted records and keeps open transactions"
)
@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_a_marker_goes_when_its_data_is_gone_and_its_horizon_has_passed(directory, kind):
    transaction(directory, kind)
    clean(directory.job(5))
    assert [h.base_offset for h, _, _ in directory.cleaned()] == (
        [2, 3, 4] if kind == "commit" else [0, 2, 3, 4]
    )
    index = Path(segment_path(str(directory.path), 0, ".txnindex.cleaned")).read_bytes()
    assert len(index) == (0 if kind == "commit" else TransactionIndex.ENTRY.size)
    directory.adopt()
    clean(directory.job(5))  # no data is met: the clock of the marker starts
    marker = next(h for h, _, _ in directory.cleaned() if h.is_control)
    assert marker.has_delete_horizon
    assert marker.base_timestamp == NOW + 1000
    directory.adopt()
    clean(directory.job(5, now_ms=NOW + 999))
    assert any(h.is_control for h, _, _ in directory.cleaned())
    directory.adopt()
    clean(directory.job(5, now_ms=NOW + 1000))
    assert not any(h.is_control for h, _, _ in directory.cleaned())


def test_an_abort_whose_marker_lies_behind_the_cleaned_part_is_known(directory):
    transaction(directory, "abort")
    job = directory.job(2)
    clean(replace(job, segments=job.segments[:1]))
    assert [r.value for _, records, _ in directory.cleaned() for r in records] == [b"1"]


@pytest.mark.promise(
    "log", "Compaction handles transactions: it removes aborted records and keeps open transactions"
)
def test_data_of_a_transaction_that_is_still_open_stays(directory):
    ids = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 0, "transactional": True}
    directory.segment(0, batch(0, (b"a", b"1")), batch(1, (b"b", b"2"), **ids))
    clean(directory.job(1))
    assert [h.base_offset for h, _, _ in directory.cleaned()] == [0, 1]


def test_a_full_map_ends_the_pass_and_what_follows_is_copied(directory):
    directory.segment(
        0, batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")), batch(3, (b"c", b"1"), (b"a", b"3"))
    )
    result = clean(directory.job(5, dedupe_buffer_bytes=4 * 24, dedupe_load_factor=0.5))
    assert result.end_offset == 3
    assert [r.offset for _, records, _ in directory.cleaned() for r in records] == [1, 2, 3, 4]
    assert result.stats.map_utilization == 1.0


def test_the_indexes_of_a_cleaned_segment_point_at_its_batches(directory):
    directory.segment(0, *[batch(i, (b"k%d" % (i % 30), b"v"), time=500 + i) for i in range(100)])
    clean(directory.job(100, index_interval_bytes=200))
    starts = {header.last_offset: None for header, _, _ in directory.cleaned()}
    assert starts
    directory.adopt()
    assert verify_partition(str(directory.path)).problems == []
    assert os.path.getsize(segment_path(str(directory.path), 0, ".index")) > 0


def test_the_time_of_the_last_write_stays(directory):
    directory.segment(0, batch(0, (b"a", b"1")))
    os.utime(segment_path(str(directory.path), 0), ns=(10**18, 10**18))
    clean(directory.job(1))
    assert os.stat(segment_path(str(directory.path), 0, ".log.cleaned")).st_mtime_ns == 10**18


def test_a_job_is_done_in_a_process_of_its_own(directory):
    directory.segment(0, batch(0, (b"a", b"1"), (b"a", b"2")), batch(2, (b"b", b"3")))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(clean, directory.job(3)).result()
    assert [(group.old_base_offsets, group.new_base_offset) for group in result.groups] == [((0,), 0)]
    assert result.end_offset == 3
    assert [r.offset for _, records, _ in directory.cleaned() for r in records] == [1, 2]


def leftovers(directory: Directory) -> list[str]:
    return [name for name in os.listdir(directory.path) if name.endswith(".cleaned")]


@pytest.mark.parametrize("position", [17, 30, 65])
def test_a_corrupt_batch_stops_the_cleaning_names_the_place_and_leaves_nothing(directory, position):
    good = batch(0, (b"a", b"1"))
    bad = bytearray(batch(1, (b"b", b"2")))
    bad[position] ^= 0xFF
    directory.segment(0, good)
    directory.segment(1, good[:0] + bytes(bad))
    with pytest.raises(CorruptSegment) as caught:
        clean(directory.job(2, segment_bytes=1))
    assert caught.value.path.endswith("00000000000000000001.log")
    assert caught.value.position == 0
    assert leftovers(directory) == []
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.torn) == (str(caught.value), caught.value.torn)


@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("operation", ["open", "write", "fsync"])
def test_a_disk_error_leaves_nothing_behind(directory, kind, operation):
    ids = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 0, "transactional": True}
    marker = control_marker("abort", 0, 5, 1, 500, base_offset=41)
    batches = [batch(i, (b"k%d" % i, b"v")) for i in range(40)]
    directory.segment(
        0, *batches, batch(40, (b"a", b"2"), **ids), marker, aborted=(AbortedTxn(5, 40, 41, 42),)
    )
    fs = FaultyFs()
    fs.fail(operation, kind + ".cleaned", errno.EIO)
    with pytest.raises(OSError):
        clean(directory.job(42, index_interval_bytes=100), fs)
    assert leftovers(directory) == []
