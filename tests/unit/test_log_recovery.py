"""What is left after crashes, damaged files and failing disks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import errors
from penstock.fs import FaultyFs, Fs
from penstock.log import files
from penstock.log.partition_log import PartitionLog
from penstock.wire.batches.records import read_header
from tests.unit.log_helpers import append, batch, contents, make_log


def filled(path: Path, count: int = 30, **more: object) -> PartitionLog:
    log = make_log(path, segment_bytes=700, index_interval_bytes=100, **more)
    for i in range(count):
        append(log, batch([b"%03d" % i * 10], producer=(1, 0, i), codec=i % 5), epoch=i // 10)
    return log


def reopen(path: Path, **more: object) -> PartitionLog:
    return make_log(path, segment_bytes=700, index_interval_bytes=100, **more)


def check_usable(log: PartitionLog, expected: list[tuple[int, bytes | None]]) -> None:
    assert contents(log) == expected
    end = log.log_end_offset
    assert append(log, batch([b"next"], producer=(1, 9, 0)), epoch=9).base_offset == end
    assert contents(log) == [*expected, (end, b"next")]
    for offset, _ in expected:
        data = log.read(offset, 1, log.log_end_offset)[0].read()
        header = read_header(data)
        assert header.base_offset <= offset <= header.last_offset


@pytest.mark.promise("crashes", "An incomplete batch at the end of the log is truncated")
def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", 8)
    expected = contents(source)
    path = Path(source.active.file.path)
    in_active = source.log_end_offset - source.active.base_offset
    data = path.read_bytes()
    ends, position = [], 0
    while position < len(data):
        position += read_header(data, position).size
        ends.append(position)
    for size in range(0, len(data) + 1, 3):
        copy = tmp_path / f"cut{size}"
        shutil.copytree(tmp_path / "source", copy)
        (copy / "t-0" / path.name).write_bytes(data[:size])
        whole = sum(1 for end in ends if end <= size)
        log = reopen(copy)
        assert contents(log) == expected[: len(expected) - in_active + whole]


@pytest.mark.promise("crashes", "An incomplete batch at the end of the log is truncated")
def test_a_segment_that_lost_whole_batches_at_its_end_ends_the_log(tmp_path: Path) -> None:
    """A power loss may take the unsynced end of a file, though the next segment is there: what was cut ends
    with a whole batch, and a replica with such a hole would never fetch it again."""
    log = filled(tmp_path)
    expected = contents(log)
    assert len(log.segments) > 2
    first = log.segments[0]
    data = Path(first.file.path).read_bytes()
    kept = read_header(data).size
    lost = read_header(data, kept).base_offset
    os.truncate(first.file.path, kept)
    shutil.copytree(tmp_path, tmp_path / "compacted")
    check_usable(reopen(tmp_path), expected[:lost])
    rest = log.segments[1].base_offset
    compacted = reopen(tmp_path / "compacted", cleanup_policy=frozenset({"compact"}))
    assert contents(compacted) == [*expected[:lost], *expected[rest:]]  # compaction may have left the hole


@pytest.mark.promise("crashes", "Missing, truncated and corrupt indexes are rebuilt")
@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "garbage", "too long"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_rebuilt(tmp_path: Path, damage: str, kind: str, clean: bool) -> None:
    log = filled(tmp_path)
    expected = contents(log)
    log.close()
    for path in Path(log.directory).glob("*" + kind):
        if damage == "missing":
            path.unlink()
        elif damage == "truncated":
            path.write_bytes(path.read_bytes()[:-3])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "garbage":
            path.write_bytes(os.urandom(len(path.read_bytes())) + b"\xff" * 4)
        else:
            path.write_bytes(path.read_bytes() + b"\x7f" * 24)
    log = reopen(tmp_path, clean=clean)
    check_usable(log, expected)
    assert [segment.offsets.count > 0 for segment in log.segments[:-1]] == [True] * (len(log.segments) - 1)


def test_a_corrupt_batch_past_the_recovery_point_ends_the_log_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    expected = contents(log)
    segment = log.segments[1]
    with open(segment.file.path, "r+b") as file:
        file.seek(segment.size - 5)
        file.write(b"\xff\xff")
    again = reopen(tmp_path)
    assert again.log_end_offset < log.log_end_offset
    check_usable(again, expected[: again.log_end_offset])


@pytest.mark.promise("crashes", "Flushed records are not read again at startup")
def test_what_was_flushed_is_not_read_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.flush()
    assert log.recovery_point == 30
    damaged = log.segments[0]
    with open(damaged.file.path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    again = reopen(tmp_path, recovery_point=log.recovery_point)
    assert again.log_end_offset == 30, "a closed segment that was flushed is trusted"


@pytest.mark.promise("crashes", "Missing, truncated and corrupt indexes are rebuilt")
def test_a_lost_epoch_checkpoint_is_rebuilt_from_the_batches(tmp_path: Path) -> None:
    log = filled(tmp_path)
    entries = log.epochs.entries
    assert [tuple(entry) for entry in entries] == [(0, 0), (1, 10), (2, 20)]
    log.close()
    Path(log.epochs.path).write_text("0\n5\nnonsense")
    assert reopen(tmp_path, clean=True).epochs.entries == entries
    Path(log.epochs.path).unlink()
    assert reopen(tmp_path).epochs.entries == entries


def test_epochs_answer_where_each_ended(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.end_offset_for_epoch(0) == (0, 10)
    assert log.end_offset_for_epoch(1) == (1, 20)
    assert log.end_offset_for_epoch(2) == (2, 30)
    assert log.end_offset_for_epoch(3) == (-1, -1)
    log.truncate_to(15)
    assert log.end_offset_for_epoch(1) == (1, 15)
    log.delete_records_before(12)
    assert log.epochs.entries[0] == (1, 12)


class RenamesLast(Fs):
    """Of each file the name has, after a loss of power, what it had when its directory was synced last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.on_disk = b""

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        file = Path(path, self._name)
        self.on_disk = file.read_bytes() if file.exists() else b""


@pytest.mark.promise("crashes", "Leader epochs of flushed records survive a loss of power")
def test_the_epochs_of_flushed_records_survive_a_loss_of_power(tmp_path: Path) -> None:
    """Recovery reads only what was not flushed: what the checkpoint lacks of the rest, nobody would miss."""
    fs = RenamesLast("leader-epoch-checkpoint")
    log = make_log(tmp_path, fs=fs)
    for epoch in range(3):
        append(log, batch([b"v"] * 2), epoch=epoch)
        log.flush()
    before = log.epochs.entries
    Path(log.epochs.path).write_bytes(fs.on_disk)
    log = make_log(tmp_path, recovery_point=log.recovery_point)
    assert log.epochs.entries == before
    assert log.end_offset_for_epoch(0) == (0, 2)


@pytest.mark.promise(
    "crashes",
    "An append to a full disk is rejected and loses nothing; when there is space again, appends succeed",
)
def test_a_full_disk_refuses_the_append_and_loses_nothing(tmp_path: Path) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    append(log, batch([b"a"]))
    fs.torn(".log", keep_bytes=20)
    with pytest.raises(errors.KafkaStorageError):
        append(log, batch([b"b"]))
    assert os.stat(log.active.file.path).st_size == log.size
    fs.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(errors.KafkaStorageError):
        append(log, batch([b"b"]))
    if log.failed is None:
        append(log, batch([b"c"]))
    again = make_log(tmp_path)
    assert [offset for offset, _ in contents(again)] == list(range(again.log_end_offset))


@pytest.mark.promise(
    "crashes",
    "An append to a full disk is rejected and loses nothing; when there is space again, appends succeed",
)
def test_an_epoch_that_a_full_disk_has_refused_begins_with_its_first_record(tmp_path: Path) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    append(log, batch([b"v"]), epoch=0)
    fs.fail("open", "leader-epoch-checkpoint", errno.ENOSPC)
    with pytest.raises(errors.KafkaStorageError):
        append(log, batch([b"v"]), epoch=1)
    append(log, batch([b"v"]), epoch=1)
    log.flush()
    again = make_log(tmp_path, recovery_point=log.recovery_point)
    assert again.epochs.entries == [(0, 0), (1, 1)]


@pytest.mark.promise(
    "crashes",
    "An append to a full disk is rejected and loses nothing; when there is space again, appends succeed",
)
def test_a_new_segment_is_read_while_the_disk_is_full(tmp_path: Path) -> None:
    """Its index is in memory and has no file yet, and none can be made."""
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs, index_interval_bytes=10)
    for number in range(9):
        append(log, batch([b"%d" % number]))
    assert log.active.offsets.count > 0
    fs.fail("open", "index", errno.ENOSPC, times=-1)
    log.check()
    assert contents(log) == [(number, b"%d" % number) for number in range(9)]
    found = log.offset_for_timestamp(0)
    assert found is not None and found.offset == 0
    log.truncate_to(4)
    log.settle()
    assert contents(log) == [(number, b"%d" % number) for number in range(4)]
    log.check()


@pytest.mark.promise(
    "crashes",
    "An append to a full disk is rejected and loses nothing; when there is space again, appends succeed",
)
def test_space_that_comes_back_is_used_again(tmp_path: Path) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    fs.fail("write", ".log", errno.ENOSPC, times=3)
    for _ in range(3):
        with pytest.raises(errors.KafkaStorageError):
            append(log, batch([b"a"], producer=(1, 0, 0)))
    assert append(log, batch([b"a"], producer=(1, 0, 0))).base_offset == 0
    assert contents(log) == [(0, b"a")]


@pytest.mark.promise(
    "crashes",
    "After a batch is rejected because the disk is full, the batches that its producer had already sent "
    "after it get the same retriable error instead of OUT_OF_ORDER_SEQUENCE_NUMBER, and are not appended "
    "before it",
)
@pytest.mark.parametrize("written", [0, 2], ids=["of an unknown producer", "of a known one"])
def test_what_is_sent_behind_a_refused_batch_waits_for_it(tmp_path: Path, written: int) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    for sequence in range(written):
        append(log, batch([b"before"], producer=(1, 0, sequence)))
    fs.fail("write", ".log", errno.ENOSPC, times=1)
    with pytest.raises(errors.KafkaStorageError):
        append(log, batch([b"a"], producer=(1, 0, written)))
    for _ in range(2):  # there is space again
        with pytest.raises(errors.KafkaStorageError):
            append(log, batch([b"b"], producer=(1, 0, written + 1)))
    append(log, batch([b"other"], producer=(2, 0, 5)))
    append(log, batch([b"a"], producer=(1, 0, written)))
    append(log, batch([b"b"], producer=(1, 0, written + 1)))
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        append(log, batch([b"d"], producer=(1, 0, written + 3)))
    assert [value for _, value in contents(log)][written:] == [b"other", b"a", b"b"]


@pytest.mark.promise("crashes", "After an I/O error the partition accepts no more writes")
@pytest.mark.parametrize("op", ["write", "fsync"])
def test_after_an_io_error_the_partition_takes_no_more_writes(tmp_path: Path, op: str) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    append(log, batch([b"a"]))
    fs.fail(op, ".log", errno.EIO)
    with pytest.raises(errors.KafkaStorageError):
        if op == "write":
            append(log, batch([b"b"]))
        else:
            log.flush()
    with pytest.raises(errors.KafkaStorageError):
        append(log, batch([b"c"]))
    assert contents(log) == [(0, b"a")]


@pytest.mark.promise(
    "crashes",
    "An append to a full disk is rejected and loses nothing; when there is space again, appends succeed",
)
def test_a_full_disk_while_rolling_keeps_the_old_segment(tmp_path: Path) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs, segment_bytes=200)
    append(log, batch([b"x" * 100]))
    fs.fail("open", f"{1:020d}.log", errno.ENOSPC)
    with pytest.raises(errors.KafkaStorageError):
        append(log, batch([b"y" * 100]))
    assert append(log, batch([b"y" * 100])).base_offset == 1
    assert len(log.segments) == 2


def test_a_strange_file_is_left_alone_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path)
    expected = contents(log)
    log.close()
    strange = Path(log.directory, "backup.log")
    strange.write_bytes(b"mine")
    check_usable(reopen(tmp_path), expected)
    assert strange.read_bytes() == b"mine"
    assert "backup.log" in caplog.text


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.promise(
    "crashes",
    "Flushed records are never truncated: a damaged record costs only its own batch, and a damaged file "
    "structure is reported as an error instead of leaving a gap",
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_record_in_a_flushed_segment_costs_only_its_batch(tmp_path: Path, clean: bool) -> None:
    """Even where the index has to be rebuilt too: nothing that was flushed is cut off."""
    log = filled(tmp_path)
    log.flush()
    log.close()
    closed = Path(log.segments[0].file.path)
    before = closed.stat().st_size
    damage(closed, 61 + 10)
    closed.with_suffix(".index").unlink()
    active = Path(log.active.file.path)
    damage(active, 61 + 10)
    for _ in range(2):
        again = reopen(tmp_path, clean=clean, recovery_point=30)
        assert again.log_end_offset == 30
        assert closed.stat().st_size == before
        assert [header.base_offset for _, _, header in again.headers(0)] == list(range(30))


@pytest.mark.promise(
    "crashes",
    "Flushed records are never truncated: a damaged record costs only its own batch, and a damaged file "
    "structure is reported as an error instead of leaving a gap",
)
@pytest.mark.unchecked_logs
def test_a_segment_whose_structure_is_broken_is_not_skipped_in_silence(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    closed = log.segments[1]
    position = next(p for p, header in closed.headers() if header.base_offset == closed.base_offset + 2)
    with open(closed.file.path, "r+b") as file:
        file.seek(position + 8)
        file.write(b"\xff\xff\xff\xff")  # the length of a batch
    again = reopen(tmp_path, clean=True)
    assert again.log_end_offset == 30
    first = closed.base_offset
    assert read_header(again.read(first + 1, 1, 30)[0].read()).base_offset == first + 1
    with pytest.raises(errors.CorruptMessage):
        again.read(first + 2, 1, 30)
    assert read_header(again.read(29, 1, 30)[0].read()).base_offset == 29


@pytest.mark.promise("crashes", "A wrong index entry hides no record")
@pytest.mark.unchecked_logs
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_wrong_entry_in_the_middle_of_an_index_skips_no_record(tmp_path: Path, kind: str) -> None:
    log = make_log(tmp_path, segment_bytes=6000, index_interval_bytes=100)
    for i in range(80):
        append(log, batch([b"%03d" % i * 20], timestamp=1000 + i))
    log.close()
    path = Path(log.segments[0].path(kind))
    data = bytearray(path.read_bytes())
    size = 8 if kind == ".index" else 12
    middle = len(data) // size // 2 * size
    late = (1).to_bytes(8, "big") + (60).to_bytes(
        4, "big"
    )  # for the time index: a far offset for an old time
    for garbage in (late, b"\x00\x00\x00\x05\x00\x00\x03\x21\x00\x00\x00\x01", b"\x7f" * 12, b"\x00" * 12):
        data[middle : middle + size] = garbage[:size]
        path.write_bytes(data)
        again = make_log(tmp_path, segment_bytes=6000, index_interval_bytes=100, clean=True)
        for offset in range(80):
            header = read_header(again.read(offset, 1, 80)[0].read())
            assert header.base_offset == offset
            found = again.offset_for_timestamp(1000 + offset)
            assert found is not None and found.offset == offset


@pytest.mark.promise("crashes", "A wrong index entry hides no record")
def test_a_time_index_that_lost_its_end_is_rebuilt(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=6000, index_interval_bytes=100)
    for i in range(80):
        append(log, batch([b"%03d" % i * 20], timestamp=1000 + i))
    log.close()
    for keep in (0, 3):
        path = Path(log.segments[0].path(".timeindex"))
        path.write_bytes(path.read_bytes()[: 12 * keep])
        again = make_log(tmp_path, segment_bytes=6000, index_interval_bytes=100, clean=True)
        for offset in range(80):
            found = again.offset_for_timestamp(1000 + offset)
            assert found is not None and found.offset == offset
        assert again.segments[0].max_timestamp == again.segments[1].first_timestamp - 1  # type: ignore[operator]


@pytest.mark.promise(
    "crashes", "If rolling a segment fails at any step, one active segment remains and nothing is lost"
)
@pytest.mark.parametrize("op", ["write", "rename", "open"])
@pytest.mark.parametrize("after", range(4))
def test_a_roll_that_fails_anywhere_leaves_one_active_segment(tmp_path: Path, op: str, after: int) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs, segment_bytes=400, preallocate=False)
    append(log, batch([b"x" * 200]))
    fs.fail(op, "0000", errno.ENOSPC, after=after, times=1)
    refused = 0
    try:
        append(log, batch([b"y" * 200]))
    except errors.KafkaStorageError:
        refused = 1
    fs.heal()
    append(log, batch([b"z"]))
    expected = contents(log)
    assert [offset for offset, _ in expected] == list(range(3 - refused))
    log.close()
    for clean in (True, False):
        again = make_log(tmp_path, segment_bytes=400, clean=clean)
        assert contents(again) == expected
        assert append(make_log(tmp_path, segment_bytes=400), batch([b"end"])).base_offset == len(expected)
        expected = [*expected, (len(expected), b"end")]


@pytest.mark.promise("crashes", "A broker can have more segments than file descriptors")
def test_closed_segments_keep_one_descriptor_at_most(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
        return [path for path in found if str(tmp_path) in path]

    log = filled(tmp_path, 60)
    assert len(log.segments) > 8
    assert len(open_files()) <= len(log.segments) + 2
    for offset in range(60):
        log.read(offset, 1, 60)
    assert len(open_files()) <= len(log.segments) + 2
    log.close()
    log = reopen(tmp_path, clean=True)
    assert len(open_files()) <= 3


@pytest.mark.promise("crashes", "A broker can have more segments than file descriptors")
def test_more_closed_segments_than_descriptors_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_OPEN_FILES", files.OpenFiles(2))
    log = filled(tmp_path, 60)
    piece = log.read(0, 1 << 20, 60)[0]
    expected = piece.read()
    assert [offset for offset, _ in contents(log)] == list(range(60))
    assert sum(segment.file.is_open for segment in log.segments) <= 3
    assert piece.read() == expected, "a slice whose file was closed meanwhile opens it again"
    log.flush()
    log.close()


@pytest.mark.promise("crashes", "A crash in the middle of any operation loses no acknowledged batch")
@settings(max_examples=60, deadline=None)
@given(
    crash_after=st.integers(0, 40),
    where=st.sampled_from(["rename", "unlink", "fsync_dir", "write", "ftruncate", "open"]),
    seed=st.integers(0, 3),
)
def test_a_crash_in_the_middle_of_anything_loses_no_acknowledged_batch(
    tmp_path_factory: pytest.TempPathFactory, crash_after: int, where: str, seed: int
) -> None:
    path = tmp_path_factory.mktemp("crash")
    fs = FaultyFs()
    fs.fail(where, "t-0", errno.EIO, after=crash_after, times=10_000)
    acknowledged: list[tuple[int, bytes | None]] = []
    attempted = 0
    try:
        log = make_log(path, fs=fs, segment_bytes=500, index_interval_bytes=50 * seed)
        for i in range(25):
            attempted = i + 1
            info = append(log, batch([b"%03d" % i * 10], producer=(1, 0, i)))
            acknowledged.append((info.base_offset, b"%03d" % i * 10))
    except (OSError, errors.KafkaStorageError):
        pass
    again = make_log(path, segment_bytes=500)
    found = contents(again)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= attempted
    assert [offset for offset, _ in found] == list(range(len(found)))
    if found:
        assert append(again, batch([b"again"], producer=(1, 0, len(found)))).base_offset == len(found)


class HookedFs(Fs):
    """Calls `hook` once, after the next fsync: what the loop does while a flush is in its thread."""

    hook: Callable[[], None] | None = None

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()


@pytest.mark.promise(
    "crashes",
    "Truncation lowers the recovery point: in memory also while a flush is running, and on disk before "
    "the next append",
)
@pytest.mark.parametrize("regrown", [0, 20])
def test_a_flush_that_a_truncation_overtakes_vouches_for_no_more_than_was_left(
    tmp_path: Path, regrown: int
) -> None:
    fs = HookedFs()
    log = make_log(tmp_path, fs=fs, flush_messages=1)
    for i in range(10):
        append(log, batch([b"%d" % i]))

    def truncated() -> None:
        log.truncate_to(4)
        log.settle()
        for _ in range(regrown):
            append(log, batch([b"new"]))

    fs.hook = truncated
    log.flush()
    assert log.recovery_point == 4
    assert append(log, batch([b"next"])).flush_required
    log.flush()
    assert log.recovery_point == log.log_end_offset == 5 + regrown
