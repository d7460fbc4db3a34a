"""Files that grow, and are rotated, truncated and replaced, as the tasks of both file sources read them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.api import OffsetsReader, SourceBatch, SourceTask
from penstock.connect.connectors.directories import DirectorySourceTask
from penstock.connect.connectors.file_stream import FileStreamSourceTask


class Kept(OffsetsReader):
    """What was committed, in memory."""

    def __init__(self) -> None:
        self.offsets_of: dict[str, dict[str, Any]] = {}

    def offsets(self, partitions: Iterable[Any]) -> list[dict[str, Any] | None]:
        return [self.offsets_of.get(str(sorted(each.items()))) for each in partitions]

    def commit(self, batch: SourceBatch) -> None:
        self.offsets_of[str(sorted(batch.source_partition.items()))] = dict(batch.source_offset)


class Source:
    """One task, which can be started again from its offsets."""

    def __init__(self, kind: str, directory: Path, pattern: str = "*.log") -> None:
        self.kept = Kept()
        self._kind = kind
        self._config = {"topic": "t"}
        if kind == "file":
            self._config |= {"file": str(directory / "app.log")}
        else:
            self._config |= {
                "path": str(directory),
                "pattern": pattern,
                "task.number": "0",
                "task.count": "1",
            }
        self.start()

    def start(self) -> None:
        self.task: SourceTask = FileStreamSourceTask() if self._kind == "file" else DirectorySourceTask()
        self.task.start(self._config, self.kept)

    def restart(self) -> None:
        self.task.stop()
        self.start()

    def read(self) -> list[str]:
        """Until there is nothing more."""
        lines: list[str] = []
        empty = 0
        while empty < 3:
            batch = self.task.poll()
            empty = 0 if batch else empty + 1
            if isinstance(batch, SourceBatch):
                self.kept.commit(batch)
                lines += batch.values
        return lines


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connect.connectors.directories._SCAN_SECONDS", 0.001)
    monkeypatch.setattr("penstock.connect.connectors.file_stream._WAIT_SECONDS", 0.001)


KINDS = pytest.mark.parametrize("kind", ["file", "directory"])
RESTARTS = pytest.mark.parametrize("restarted", [False, True])


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.mark.promise(
    "connect", "FileStream and directory sources follow files and directories as they grow, rotate and appear"
)
@KINDS
@RESTARTS
@pytest.mark.parametrize("pattern", ["*.log", "*"])
def test_the_rest_of_a_rotated_file_is_read_before_the_new_one(
    tmp_path: Path, kind: str, restarted: bool, pattern: str
) -> None:
    path = tmp_path / "app.log"
    append(path, "one", "two")
    source = Source(kind, tmp_path, pattern)
    assert source.read() == ["one", "two"]
    for round in range(3):
        append(path, f"last of {round}")
        for number in range(round, 0, -1):
            (tmp_path / f"app.log.{number}").rename(tmp_path / f"app.log.{number + 1}")
        path.rename(tmp_path / "app.log.1")
        append(path, f"a long first line of {round}", "and a second one")
        if restarted:
            source.restart()
        assert source.read() == [f"last of {round}", f"a long first line of {round}", "and a second one"]
    source.restart()
    assert source.read() == []


@pytest.mark.promise(
    "connect", "FileStream and directory sources follow files and directories as they grow, rotate and appear"
)
@KINDS
def test_a_program_that_writes_to_the_rotated_file_until_it_opens_the_new_one_loses_nothing(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "app.log"
    append(path, "one")
    source = Source(kind, tmp_path)
    assert source.read() == ["one"]
    path.rename(tmp_path / "app.log.1")
    path.touch()
    assert source.read() == []
    append(tmp_path / "app.log.1", "two")
    assert source.read() == ["two"]
    append(tmp_path / "app.log.1", "three")
    append(path, "four")
    assert source.read() == ["three", "four"]


@pytest.mark.promise(
    "connect", "FileStream and directory sources follow files and directories as they grow, rotate and appear"
)
@KINDS
@RESTARTS
@pytest.mark.parametrize("copied", [False, True])
def test_a_truncated_file_is_read_from_its_start_also_when_it_has_grown_past_the_position(
    tmp_path: Path, kind: str, restarted: bool, copied: bool
) -> None:
    path = tmp_path / "app.log"
    append(path, "one", "two")
    source = Source(kind, tmp_path)
    assert source.read() == ["one", "two"]
    append(path, "three")
    if copied:  # logrotate's copytruncate
        shutil.copy(path, tmp_path / "app.log-20260101")
    os.truncate(path, 0)
    append(path, "a line that is longer than all of them were", "another")
    if restarted:
        source.restart()
    rest = ["three"] if copied else []
    assert source.read() == [*rest, "a line that is longer than all of them were", "another"]
    append(path, "more")
    assert source.read() == ["more"]


@KINDS
@RESTARTS
def test_a_file_that_is_replaced_by_a_longer_one_is_read_on(
    tmp_path: Path, kind: str, restarted: bool
) -> None:
    path = tmp_path / "app.log"
    append(path, "one", "two")
    source = Source(kind, tmp_path)
    assert source.read() == ["one", "two"]
    append(tmp_path / "other", "one", "two", "three")
    (tmp_path / "other").rename(path)
    if restarted:
        source.restart()
    assert source.read() == ["three"]


@KINDS
def test_an_offset_without_identity_is_a_position(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "app.log"
    append(path, "one", "two")
    source = Source(kind, tmp_path)
    assert source.read() == ["one", "two"]
    for partition in source.kept.offsets_of:
        source.kept.offsets_of[partition] = {"position": 4}
    source.restart()
    assert source.read() == ["two"]
