"""FileStreamSource and FileStreamSink, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from penstock.testing import PenstockBroker
from tests.connect.conftest import Topics, Worker, until

STRING = "org.apache.kafka.connect.storage.StringConverter"


@pytest.mark.promise(
    "connect", "FileStream and directory sources follow files and directories as they grow, rotate and appear"
)
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
    "connect", "Topics that a source creates have the settings of their `topic.creation` group (KIP-158)"
)
def test_a_new_topic_has_the_settings_of_its_group(
    worker: Worker, broker: PenstockBroker, topics: Topics, tmp_path: Path, name: str
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    config: dict[str, object] = {
        "connector.class": "FileStreamSource",
        "file": str(source),
        "topic": name,
        "topic.creation.default.partitions": 2,
        "topic.creation.default.replication.factor": 1,
        "topic.creation.groups": "others,tests",
        "topic.creation.others.include": "x",
        "topic.creation.tests.include": "test-.*",
        "topic.creation.tests.partitions": 5,
        "topic.creation.tests.retention.ms": 12345,
    }
    bad = worker.http.put(f"/connectors/{name}/config", json={**config, "topic.creation.tests.include": "["})
    assert bad.status_code == 400 and "topic.creation.tests.include" in bad.text
    worker.put(name, {**config, "key.converter": STRING, "value.converter": STRING})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    until(lambda: name in admin.list_topics(timeout=30).topics, "the topic", lambda: str(worker.status(name)))
    assert len(admin.list_topics(name, timeout=30).topics[name].partitions) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["retention.ms"].value == "12345"
    assert [each.value() for each in topics.read(name, 1)] == [b"one"]


@pytest.mark.promise(
    "connect",
    "A poison record goes to the dead-letter topic with its context, and the other records are "
    "processed; without error tolerance the task fails",
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


@pytest.mark.promise("connect", "A sink reads on as soon as there is room in its consumer's queue")
def test_a_sink_does_not_wait_while_the_queue_of_its_consumer_has_room(
    worker: Worker, broker: PenstockBroker, tmp_path: Path, name: str
) -> None:
    """The broker's answers are larger than the queue: a pause of a second after each makes two minutes."""
    path, size, count = tmp_path / "out.txt", 8000, 500
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(name, str(number).ljust(size))
    assert producer.flush(60) == 0
    small = {"max.partition.fetch.bytes": 4 * size, "queued.max.messages.kbytes": 1}
    worker.put(
        name,
        {
            "connector.class": "FileStreamSink",
            "topics": name,
            "file": str(path),
            "value.converter": "string",
            **{f"consumer.override.{setting}": value for setting, value in small.items()},
        },
    )
    whole = count * (size + 1)
    until(lambda: path.exists() and path.stat().st_size == whole, "all records are in the file")
