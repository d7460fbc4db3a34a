"""The file system seam: whole writes, atomic files, and the failures that tests plan."""

import errno
import os
from pathlib import Path

import pytest

from penstock.fs import REAL_FS, FaultyFs, Fs

WRITE = os.O_WRONLY | os.O_CREAT


class _ShortWrites(Fs):
    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        return super().write(fd, memoryview(data)[:3])


def test_write_all_goes_on_after_short_writes(tmp_path: Path) -> None:
    fs, path = _ShortWrites(), str(tmp_path / "a")
    fd = fs.open(path, WRITE)
    fs.write_all(fd, b"0123456789")
    fs.close(fd)
    assert fs.read_bytes(path) == b"0123456789"


def test_write_atomic_replaces_the_whole_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    REAL_FS.write_atomic(path, b"a longer old value")
    REAL_FS.write_atomic(path, b"new")
    assert REAL_FS.read_bytes(path) == b"new"
    assert REAL_FS.listdir(str(tmp_path)) == ["checkpoint"]


@pytest.mark.parametrize("op", ["open", "write", "fsync", "rename"])
def test_a_failed_atomic_write_keeps_the_old_value(tmp_path: Path, op: str) -> None:
    fs, path = FaultyFs(), str(tmp_path / "checkpoint")
    fs.write_atomic(path, b"old")
    fs.fail(op, "checkpoint", errno.EIO)
    with pytest.raises(OSError) as caught:
        fs.write_atomic(path, b"new")
    assert caught.value.errno == errno.EIO
    assert fs.read_bytes(path) == b"old"


def test_a_fault_lets_calls_pass_first_and_strikes_as_often_as_planned(tmp_path: Path) -> None:
    fs = FaultyFs()
    fd = fs.open(str(tmp_path / "00.log"), WRITE)
    fs.fail("write", ".log", errno.EIO, after=1, times=2)
    assert fs.write(fd, b"a") == 1
    for _ in range(2):
        with pytest.raises(OSError):
            fs.write(fd, b"b")
    assert fs.write(fd, b"c") == 1
    fs.close(fd)
    assert (tmp_path / "00.log").read_bytes() == b"ac"


def test_a_fault_strikes_only_matching_paths(tmp_path: Path) -> None:
    fs = FaultyFs()
    fs.fail("mkdir", "topic-0", errno.EACCES, times=-1)
    fs.mkdir(str(tmp_path / "topic-1"))
    for _ in range(3):
        with pytest.raises(PermissionError):
            fs.mkdir(str(tmp_path / "topic-0"))


def test_a_torn_write_leaves_its_first_bytes_on_disk(tmp_path: Path) -> None:
    fs, path = FaultyFs(), str(tmp_path / "00.log")
    fd = fs.open(path, WRITE)
    fs.torn(".log", keep_bytes=4)
    with pytest.raises(OSError):
        fs.write_all(fd, b"0123456789")
    fs.close(fd)
    assert fs.read_bytes(path) == b"0123"


def test_a_torn_pwrite_tears_at_its_offset(tmp_path: Path) -> None:
    fs, path = FaultyFs(), str(tmp_path / "00.index")
    fs.write_atomic(path, b"aaaaaaaa")
    fd = fs.open(path, os.O_RDWR)
    fs.torn(".index", keep_bytes=2)
    with pytest.raises(OSError):
        fs.pwrite(fd, b"bbbb", 3)
    fs.close(fd)
    assert fs.read_bytes(path) == b"aaabbaaa"


def test_a_full_disk_takes_what_fits_and_then_says_enospc(tmp_path: Path) -> None:
    fs, path = FaultyFs(), str(tmp_path / "00.log")
    fd = fs.open(path, WRITE)
    fs.disk_limit(6)
    fs.write_all(fd, b"0123")
    with pytest.raises(OSError) as caught:
        fs.write_all(fd, b"4567")
    assert caught.value.errno == errno.ENOSPC
    assert fs.read_bytes(path) == b"012345"
    fs.heal()
    fs.write_all(fd, b"x")
    fs.close(fd)
    assert fs.read_bytes(path) == b"012345x"


def test_an_operation_that_does_not_exist_cannot_be_planned_to_fail() -> None:
    with pytest.raises(ValueError, match="ftruncate"):
        FaultyFs().fail("truncate", "", errno.EIO)
