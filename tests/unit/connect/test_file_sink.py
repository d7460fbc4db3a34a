"""FileStreamSink on a disk that is full, and after a task that was killed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.api import RetriableError, SinkBatch, SinkRecord
from penstock.connect.connectors.file_stream import FileStreamSinkTask


def begun(path: Path) -> FileStreamSinkTask:
    task = FileStreamSinkTask()
    task.start({"file": str(path)})
    return task


def batch(*values: str) -> SinkBatch:
    count = len(values)
    return SinkBatch("t", 0, list(range(count)), list(values), [None] * count, [None] * count)


@pytest.mark.promise(
    "connect",
    "A source or sink that cannot be reached is retried and shown in the status; a sink gets each record "
    "when it can be reached again",
)
@pytest.mark.parametrize("cuts", [True, False], ids=["cut at once", "cut later"])
def test_lines_that_do_not_fit_on_the_disk_are_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: bool
) -> None:
    path = tmp_path / "out.txt"
    task = begun(path)
    task.put_batch(batch("one", "two"))
    writing = os.write
    calls: list[int] = []

    def full(file: int, data: Any) -> int:
        calls.append(len(data))
        if len(calls) % 2:
            return writing(file, data[:5])  # the disk has room for a part
        raise OSError(errno.ENOSPC, "No space left on device")

    def refused(file: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        if not cuts:
            patch.setattr(os, "ftruncate", refused)
        for values in (
            batch("three", "four"),
            [SinkRecord("t", 0, 2, "three"), SinkRecord("t", 0, 3, "four")],
        ):
            with pytest.raises(RetriableError, match=r"out.txt cannot be written: (No space|Input/output)"):
                task.put(values) if isinstance(values, list) else task.put_batch(values)
        assert path.read_text() == ("one\ntwo\n" if cuts else "one\ntwo\nthree")
    task.put_batch(batch("three", "four"))
    task.flush({})
    task.stop()
    assert path.read_text() == "one\ntwo\nthree\nfour\n"


@pytest.mark.promise(
    "connect", "FileStreamSink does not append to an unfinished line that a killed task left"
)
def test_an_unfinished_last_line_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("one\ntw")
    task = begun(path)
    task.put_batch(batch("two"))
    task.stop()
    assert path.read_text() == "one\ntw\ntwo\n"
    begun(path).stop()
    assert path.read_text() == "one\ntw\ntwo\n"


def test_a_pipe_and_a_file_that_cannot_be_read_are_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    task = begun(pipe)
    task.put_batch(batch("one"))
    assert os.read(reader, 100) == b"one\n"
    task.stop()
    os.close(reader)
    task = FileStreamSinkTask()
    task.start({})
    task.put_batch(batch("to the log of the worker"))
    task.stop()
