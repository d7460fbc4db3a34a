"""The skeleton that `penstock connect new` writes: a package with a connector, an entry point and a test."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.cli.failure import CommandFailed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")


def write(name: str, directory: str | None, *, sink: bool) -> list[str]:
    """The files that were written; CommandFailed if the directory is there already."""
    if not _NAME.fullmatch(name):
        raise CommandFailed(f"'{name}' cannot name a connector: use letters, digits and dashes")
    module = re.sub("[-_]", "_", name).lower()
    kind = "Sink" if sink else "Source"
    camel = "".join(part[:1].upper() + part[1:] for part in re.split("[-_]", name))
    camel = camel.removesuffix(kind)
    root = Path(directory or name)
    if root.exists() and any(root.iterdir()):
        raise CommandFailed(f"{root} is not empty: choose another directory with --directory")
    words = {"NAME": name, "MODULE": module, "CLASS": camel}
    files = {
        "pyproject.toml": _PROJECT.replace("KIND", kind),
        f"{module}.py": _SINK if sink else _SOURCE,
        f"test_{module}.py": _SINK_TEST if sink else _SOURCE_TEST,
    }
    written = []
    root.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        (root / path).write_text(text, encoding="utf-8")
        written.append(str(root / path))
    return written


_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "@NAME@"
version = "0.1.0"
# No package index has Penstock: first install its wheel with the extra `connect` (its docs/install.md).
dependencies = ["penstock[connect]"]

[project.entry-points."penstock.connect"]
@MODULE@ = "@MODULE@:@CLASS@KIND"

[tool.hatch.build.targets.wheel]
include = ["@MODULE@.py"]
"""

_SOURCE = '''"""A source connector: counts, one number after the other, into a topic."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.connect.api import (
    INT64_SCHEMA,
    ConfigType,
    Field,
    OffsetsReader,
    Range,
    SourceConnector,
    SourceRecord,
    SourceTask,
)


class @CLASS@SourceTask(SourceTask):
    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self._topic = config["topic"]
        self._pause = int(config.get("interval.ms") or 1000) / 1000
        self._partition = {"counter": "only"}
        found = offsets_reader.offset(self._partition)
        self._next = 0 if found is None else found["next"]

    def poll(self) -> list[SourceRecord]:
        time.sleep(self._pause)
        number, self._next = self._next, self._next + 1
        return [
            SourceRecord(
                self._topic,
                number,
                value_schema=INT64_SCHEMA,
                source_partition=self._partition,
                source_offset={"next": self._next},
            )
        ]


class @CLASS@Source(SourceConnector):
    version = "0.1.0"
    task_class = @CLASS@SourceTask
    exactly_once = True  # its offsets say exactly which records it made
    fields = (
        Field("topic", doc="Where the numbers go."),
        Field("interval.ms", ConfigType.INT, 1000, "The pause between two numbers.", Range(0)),
    )
'''

_SOURCE_TEST = """from penstock.connect.api import BadConfig, OffsetsReader

from @MODULE@ import @CLASS@Source, @CLASS@SourceTask


class Committed(OffsetsReader):
    def __init__(self, offset):
        self._offset = offset

    def offsets(self, partitions):
        return [self._offset for _ in partitions]


def test_it_counts_on_from_the_committed_offset():
    task = @CLASS@SourceTask()
    task.start({"topic": "numbers", "interval.ms": "0"}, Committed({"next": 5}))
    records = task.poll() + task.poll()
    task.stop()
    assert [record.value for record in records] == [5, 6]
    assert records[-1].source_offset == {"next": 7}


def test_a_missing_topic_is_named():
    try:
        @CLASS@Source().start({})
    except BadConfig as error:
        assert "topic" in error.problems
    else:
        raise AssertionError("it started without a topic")
"""

_SINK = '''"""A sink connector: appends records to a file, one a line."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connect.api import Field, SinkConnector, SinkRecord, SinkTask, TopicPartition


class @CLASS@SinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._file = open(config["path"], "a", encoding="utf-8")

    def put(self, records: list[SinkRecord]) -> None:
        for record in records:
            self._file.write(f"{record.topic} {record.partition} {record.offset} {record.value}\\n")

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._file.flush()  # after this, offsets are committed

    def stop(self) -> None:
        self._file.close()


class @CLASS@Sink(SinkConnector):
    version = "0.1.0"
    task_class = @CLASS@SinkTask
    fields = (Field("path", doc="The file to append to."),)
'''

_SINK_TEST = """from penstock.connect.api import SinkRecord

from @MODULE@ import @CLASS@SinkTask


def test_records_are_in_the_file_after_a_flush(tmp_path):
    path = tmp_path / "out"
    task = @CLASS@SinkTask()
    task.start({"path": str(path)})
    task.put([SinkRecord("t", 0, 7, "hello")])
    task.flush({("t", 0): 8})
    assert path.read_text() == "t 0 7 hello\\n"
    task.stop()
"""
