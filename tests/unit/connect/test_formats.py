"""Formats of files: what was written is read again, and from where the last reader ended."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.api import ConnectError, DataError, RetriableError, SinkRecord
from penstock.connect.connectors.directories import DirectorySinkTask
from penstock.connect.connectors.formats import read, write
from penstock.connect.connectors.lake.encoding import encode

PLACE = ("t", 0)
ROWS: list[Any] = [
    {"id": "1", "text": "two\nlines"},
    {"id": "2", "text": 'with "quotes", and a comma'},
    {"id": "3", "text": "\r\n\n\n"},
    {"id": "4", "text": "a\rb"},
    {"id": "5", "text": ' 5" disk'},
]


def rows(data: bytes, position: int = 0) -> list[Any]:
    return list(read(io.BytesIO(data), "f.csv", "csv", position))


@pytest.mark.promise(
    "connect", "A CSV file that a sink wrote is read back unchanged: cells may have several lines"
)
def test_cells_of_several_lines_are_read_from_every_position() -> None:
    data = write(ROWS, "csv")
    found = rows(data)
    assert [row.value for row in found] == ROWS
    for number, row in enumerate(found):
        assert [each.value for each in rows(data, row.position)] == ROWS[number + 1 :]


def test_a_row_that_is_still_being_written_is_read_when_it_is_whole() -> None:
    data = write(ROWS, "csv")
    ends = [0, *(row.position for row in rows(data))]
    for size in range(len(data) + 1):
        whole = sum(end <= size for end in ends[1:])
        assert [row.value for row in rows(data[:size])] == ROWS[:whole]


def test_names_of_columns_may_have_several_lines_and_empty_lines_are_no_rows() -> None:
    found = rows(b'"a\nb",c\r\n\r\n1,2\r\n')
    assert [row.value for row in found] == [{"a\nb": "1", "c": "2"}]


def test_a_row_with_other_cells_than_the_header_is_named_by_its_place() -> None:
    with pytest.raises(ConnectError, match=r"f.csv at byte 4: 3 cells, the header has 2"):
        rows(b"a,b\n1,2,3\n")
    with pytest.raises(ConnectError, match=r"f.csv at byte 8: field larger"):
        rows(b'a,b\n1,2\n"' + b"x" * 200_000 + b'",2\n')


@pytest.mark.promise("connect", "JSON without a schema gets a column for each field of any record")
def test_a_field_that_the_first_record_does_not_have_is_a_column() -> None:
    values: list[Any] = [{"a": 1}, {"b": "x", "a": 2}, {"c": {"d": 1}}]
    wanted = [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": "x", "c": None},
        {"a": None, "b": None, "c": {"d": 1}},
    ]
    for data in (write(values, "parquet"), encode(values, None, "parquet", "snappy").to_pybytes()):
        assert [row.value for row in read(io.BytesIO(data), "f", "parquet", 0)] == wanted


def record(offset: int, value: Any) -> SinkRecord:
    return SinkRecord("t", 0, offset, value, original_topic="t", original_partition=0, original_offset=offset)


@pytest.mark.promise(
    "connect",
    "A poison record goes to the dead-letter topic with its context, and the other records are "
    "processed; without error tolerance the task fails",
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_record_that_has_no_place_in_the_file_is_reported_and_the_rest_is_written(
    tmp_path: Path, kind: str
) -> None:
    values: list[Any] = [{"n": number} for number in range(50)]
    values[7] = "no struct"
    bad = [7]
    if kind == "parquet":
        values[0] = ["neither"]
        values[30] = {"n": "no number"}
        bad = [0, 7, 30]
    task = DirectorySinkTask()
    task.start({"path": str(tmp_path), "format": kind})
    task.open([PLACE])
    task.put([record(offset, value) for offset, value in enumerate(values)])
    with pytest.raises(DataError):
        task.precommit({PLACE: 50})  # without tolerance
    reported: list[int] = []
    task.report = lambda each, error: reported.append(each.original_offset)
    assert task.precommit({PLACE: 50}) == {PLACE: 50}
    assert reported == bad
    (path,) = tmp_path.glob("t+0+*")
    with path.open("rb") as file:
        found = [int(row.value["n"]) for row in read(file, str(path), kind, 0)]
    assert found == [number for number in range(50) if number not in bad]
    assert (task.open([PLACE]) or {})[PLACE] == 50


@pytest.mark.promise(
    "connect",
    "An unavailable source or sink is retried and shown in the status; a sink gets each record when it "
    "is available again",
)
def test_a_directory_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    task = DirectorySinkTask()
    root = tmp_path / "out"
    task.start({"path": str(root), "format": "json", "flush.records": "2"})
    task.open([PLACE])
    root.rename(tmp_path / "away")
    records = [record(0, 0), record(1, 1), record(2, 2)]
    for _ in range(2):
        with pytest.raises(RetriableError, match=r"out/t\+0\+.* cannot be written: No such file"):
            task.put(records)
        assert task.precommit({}) == {}
    (tmp_path / "away").rename(root)
    task.put(records)
    assert task.precommit({PLACE: 3}) == {PLACE: 3}
    assert [path.read_text() for path in sorted(root.glob("t+0+*"))] == ["0\n1\n", "2\n"]
