"""FileStreamSource and FileStreamSink, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connect.conftest import Topics, Worker, until

STRING = "org.apache.kafka.connect.storage.StringConverter"


@pytest.mark.promise("connect", "Files and directories are followed as they grow, rotate and appear")
def test_lines_of_a_file_are_records_and_records_are_lines(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nthr")
    worker.create(
        f"{name}-in",
        connector__class="org.apache.kafka.connect.file.FileStreamSourceConnector",
        file=str(source),
        topic=name,
        value__converter=STRING,
    )
    assert [each.value() for each in topics.read(name, 2)] == [b"one", b"two"]
    with source.open("a") as file:
        file.write("ee\n")
    assert [each.value() for each in topics.read(name, 3)][2] == b"three"
    worker.create(
        f"{name}-out",
        connector__class="FileStreamSink",
        topics=name,
        file=str(sink),
        value__converter=STRING,
    )
    until(lambda: sink.exists() and sink.read_text() == "one\ntwo\nthree\n", "the lines are in the file")
    source.rename(tmp_path / "in.txt.1")
    source.write_text("four\n")
    until(lambda: sink.read_text() == "one\ntwo\nthree\nfour\n", "a rotated file is followed")
