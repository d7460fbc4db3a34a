"""DirectorySink and the owners of a partition: a task that was thought gone doubles nothing."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.api import ConnectError, DataError, RetriableError, SinkRecord
from penstock.connect.connectors.directories import DirectorySinkTask

PLACE, OTHER = ("t", 0), ("t", 1)


def records(first: int, last: int, partition: int = 0) -> list[SinkRecord]:
    return [
        SinkRecord(
            "t", partition, n, {"n": n}, original_topic="t", original_partition=partition, original_offset=n
        )
        for n in range(first, last)
    ]


def begun(root: Path, **settings: str) -> tuple[DirectorySinkTask, dict[Any, int]]:
    task = DirectorySinkTask()
    task.start({"path": str(root), "format": "json", **settings})
    return task, dict(task.open([PLACE]) or {})


def numbers(root: Path, partition: int = 0) -> list[int]:
    files = sorted(root.glob(f"t+{partition}+*"))
    return [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]


@pytest.mark.promise(
    "connect",
    "DirectorySink: if two tasks both believe that they own a partition, each record is still written once",
)
@pytest.mark.parametrize("flushed", [False, True])
def test_a_task_that_lost_its_partition_without_noticing_writes_nothing(
    tmp_path: Path, flushed: bool
) -> None:
    stale, _ = begun(tmp_path)
    assert (stale.open([OTHER]), stale.put(records(50, 52, 1))) == ({}, None)
    stale.put(records(0, 100))
    owner, offsets = begun(tmp_path)
    assert offsets == {}
    owner.put(records(0, 150))
    if flushed:
        owner.precommit({PLACE: 150})
    for _ in range(2):  # also when it leaves its group
        with pytest.raises(ConnectError, match="Another task writes the files"):
            stale.precommit({PLACE: 100})
    assert stale.precommit({OTHER: 52}) == {OTHER: 52}  # that one is still its own
    owner.put(records(150, 160))
    assert owner.precommit({PLACE: 160}) == {PLACE: 160}
    assert (numbers(tmp_path), numbers(tmp_path, 1)) == (list(range(160)), [50, 51])
    assert begun(tmp_path)[1] == {PLACE: 160}


@pytest.mark.promise(
    "connect",
    "DirectorySink: if two tasks both believe that they own a partition, each record is still written once",
)
def test_a_task_that_hung_in_the_middle_of_a_file_does_not_make_it_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, _ = begun(tmp_path)
    stale.put(records(0, 10))
    opening = Path.open

    def hang(path: Path, *arguments: Any) -> Any:
        file = opening(path, *arguments)
        monkeypatch.undo()
        owner, _ = begun(tmp_path)
        owner.put(records(0, 10))
        owner.precommit({PLACE: 10})
        (seen,) = tmp_path.glob("t+0+*")
        seen.rename(tmp_path / "moved by a reader")
        return file

    monkeypatch.setattr(Path, "open", hang)
    with pytest.raises(ConnectError, match="Another task writes the files"):
        stale.precommit({PLACE: 10})
    assert numbers(tmp_path) == []
    assert (tmp_path / "moved by a reader").read_text().count("\n") == 10


@pytest.mark.promise(
    "connect",
    "DirectorySink: if two tasks both believe that they own a partition, each record is still written once",
)
def test_a_task_waits_while_another_one_makes_a_file_visible(tmp_path: Path) -> None:
    begun(tmp_path)
    (claim,) = tmp_path.glob(".t+0+*")
    with claim.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RetriableError, match="locked by another task"):
            begun(tmp_path)
    begun(tmp_path)


@pytest.mark.promise(
    "connect", "DirectorySink and SqlSink report a rejected record once, even if it is the last one"
)
def test_records_that_are_in_no_file_are_not_read_again(tmp_path: Path) -> None:
    task, _ = begun(tmp_path, format="csv")
    task.put(records(0, 3))
    assert task.precommit({PLACE: 3}) == {PLACE: 3}
    poison = [replace(each, value="no struct") for each in records(3, 5)]
    reported: list[int] = []

    def report(record: SinkRecord, error: Exception) -> None:
        assert isinstance(error, DataError)
        reported.append(record.original_offset)

    task.report = report
    task.put(poison)
    assert task.precommit({PLACE: 5}) == {PLACE: 5}
    assert reported == [3, 4]
    assert begun(tmp_path, format="csv")[1] == {PLACE: 5}
    for path in tmp_path.glob("t+0+*"):
        path.unlink()
    assert (
        begun(tmp_path, format="csv")[1] == {}
    )  # to write all again, delete the files and reset the offsets


def test_what_a_task_that_died_was_writing_is_removed(tmp_path: Path) -> None:
    begun(tmp_path)
    half = tmp_path / ".t+0+00000000000000000000+00000000000000000009.jsonl.1"
    half.write_text("{")
    begun(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".t+0+claim"]
