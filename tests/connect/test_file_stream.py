"""FileStreamSource and FileStreamSink, end to end."""

from __future__ import annotations

import json
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


@pytest.mark.promise(
    "connect",
    "A poison record goes to the dead letter topic with its context and the rest flows; without tolerance "
    "the task fails",
)
def test_a_poison_record_in_a_batch_of_columns_goes_to_the_dead_letter_topic(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "out.txt"
    topics.write(name, *(b"\xff" if n in (3, 50) else b"%d" % n for n in range(100)))
    worker.create(
        name,
        connector__class="FileStreamSink",
        topics=name,
        file=str(path),
        value__converter=STRING,
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=f"{name}-dead",
        errors__deadletterqueue__context__headers__enable="true",
    )
    dead = topics.read(f"{name}-dead", 2)
    assert [dict(each.headers())["__connect.errors.offset"] for each in dead] == [b"3", b"50"]
    wanted = [str(n) for n in range(100) if n not in (3, 50)]
    until(lambda: path.exists() and path.read_text().split() == wanted, "the others are there in order")


def test_a_batch_of_lines_goes_through_transforms_and_keeps_its_order(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.txt").write_bytes(b"".join(b"%d\r\n" % n for n in range(5000)) + b"caf\xe9\n")
    worker.create(
        name,
        connector__class="FileStreamSource",
        file=str(tmp_path / "in.txt"),
        topic=name,
        transforms="hoist",
        transforms__hoist__type="org.apache.kafka.connect.transforms.HoistField$Value",
        transforms__hoist__field="line",
        value__converter="json",
        value__converter__schemas__enable="false",
    )
    found = [json.loads(each.value())["line"] for each in topics.read(name, 5001)]
    assert found == [*(str(n) for n in range(5000)), "caf\ufffd"]
