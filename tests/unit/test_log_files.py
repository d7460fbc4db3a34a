"""Who reads a file reads that file, also when it was closed and its name is another file's now."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.fs import REAL_FS, FaultyFs, Fs
from penstock.log.cleaning.cleaner import clean
from penstock.log.cleaning.compaction import facts_of, plan_cleaning
from penstock.log.cleaning.swap import swap_in
from penstock.log.files import FileSlice, LogFile
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery.loading import open_log
from tests.unit.log_helpers import append, batch


def filled(path: Path, fs: Fs = REAL_FS) -> PartitionLog:
    """Forty records of three keys in small segments, those of the sealed ones closed, as after a start."""
    config = LogConfig(
        cleanup_policy=("compact",),
        segment_bytes=1_000,
        index_interval_bytes=1,
        min_cleanable_dirty_ratio=0.0,
    )
    log = open_log(str(path / "t-0"), "t", 0, uuid.UUID(int=7), config, ManualClock(), fs, clean=True)
    for i in range(40):
        append(log, batch([b"value %d" % i], key=b"k%d" % (i % 3)))
    for segment in log.segments[:-1]:
        segment.file.close()
    return log


def compact(log: PartitionLog) -> None:
    job = plan_cleaning([facts_of(log)], log.clock.now_ms())
    assert job is not None
    assert swap_in(log, clean(job))


@pytest.mark.promise(
    "crashes",
    "A reader keeps reading the file that it started with, even if compaction or retention replaces it; "
    "it never gets bytes of another file",
)
@pytest.mark.parametrize("purged", [False, True])
def test_a_reader_goes_on_in_the_segments_that_it_holds_when_compaction_replaces_them(
    tmp_path: Path, purged: bool
) -> None:
    log = filled(tmp_path)
    batches = log.headers(0)
    segment, position, header = next(batches)
    seen = [(header.base_offset, segment.batch(position, header))]
    compact(log)
    if purged:
        log.clock.advance(log.config.file_delete_delay_ms)  # type: ignore[attr-defined]
        log.delayed_deletes.purge()
    seen += [(header.base_offset, segment.batch(position, header)) for segment, position, header in batches]
    assert [offset for offset, _ in seen] == list(range(40))
    assert all(b"value %d" % offset in data for offset, data in seen)


@pytest.mark.promise(
    "crashes",
    "A reader keeps reading the file that it started with, even if compaction or retention replaces it; "
    "it never gets bytes of another file",
)
def test_a_slice_of_a_replaced_file_still_has_its_bytes(tmp_path: Path) -> None:
    log = filled(tmp_path)
    (piece,) = log.read(0, 1 << 20, log.high_watermark)
    expected = piece.read()
    log.segments[0].file.close()
    compact(log)
    assert piece.read() == expected


@pytest.mark.promise(
    "crashes",
    "A reader keeps reading the file that it started with, even if compaction or retention replaces it; "
    "it never gets bytes of another file",
)
def test_a_replaced_segment_does_not_look_into_the_indexes_of_the_new_one_nor_change_them(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path)
    old = log.segments[:-1]
    compact(log)
    indexes = {
        path: path.read_bytes() for path in Path(log.directory).iterdir() if path.name.endswith("index")
    }
    for segment in old:
        for offset in range(segment.base_offset, segment.base_offset + 3):
            found = segment.locate(offset)
            assert found is not None
            assert found[1].base_offset == offset
    assert indexes == {path: path.read_bytes() for path in indexes}


@pytest.mark.promise(
    "crashes",
    "A reader keeps reading the file that it started with, even if compaction or retention replaces it; "
    "it never gets bytes of another file",
)
def test_a_file_whose_name_went_to_another_is_an_error_and_never_the_other(tmp_path: Path) -> None:
    """The descriptor could not be opened when it was time to keep it."""
    fs = FaultyFs()
    file = LogFile.create(str(tmp_path / "a.log"), fs)
    file.append(b"mine")
    file.close()
    fs.fail("open", "a.log", errno.EMFILE)
    file.retire()
    os.rename(tmp_path / "a.log", tmp_path / "a.log.deleted")
    (tmp_path / "a.log").write_bytes(b"else")
    with pytest.raises(OSError) as caught:
        file.pread(4, 0)
    assert caught.value.errno == errno.ESTALE
    file.path += ".deleted"
    assert file.pread(4, 0) == b"mine"


@pytest.mark.promise(
    "crashes",
    "A reader keeps reading the file that it started with, even if compaction or retention replaces it; "
    "it never gets bytes of another file",
)
def test_a_descriptor_is_not_closed_under_who_reads_with_it(tmp_path: Path) -> None:
    """Else its number becomes that of the next file that is opened."""
    file = LogFile.create(str(tmp_path / "a.log"), REAL_FS)
    file.append(b"mine")
    handle = file.open()
    file.close()
    (tmp_path / "b").write_bytes(b"else")
    others = [os.open(tmp_path / "b", os.O_RDONLY) for _ in range(8)]
    try:
        assert os.pread(handle.fd, 4, 0) == b"mine"
        assert FileSlice(file, 0, 4).read() == b"mine"
        assert handle.fd not in others
    finally:
        for fd in others:
            os.close(fd)
    number = handle.fd
    del handle
    file.close()
    with pytest.raises(OSError):
        os.fstat(number)


class _Renamed(Fs):
    """Another thread renames the file just before this one opens it by its old name."""

    file: LogFile | None = None

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        file, self.file = self.file, None
        if file is not None:
            file.retire()
            os.rename(path, path + ".deleted")
            file.path += ".deleted"
        return super().open(path, flags, mode)


@pytest.mark.promise(
    "crashes",
    "A reader keeps reading the file that it started with, even if compaction or retention replaces it; "
    "it never gets bytes of another file",
)
def test_a_file_that_is_renamed_while_it_is_opened_is_read(tmp_path: Path) -> None:
    fs = _Renamed()
    file = LogFile.create(str(tmp_path / "a.log"), fs)
    file.append(b"mine")
    file.close()
    fs.file = file
    assert file.pread(4, 0) == b"mine"
