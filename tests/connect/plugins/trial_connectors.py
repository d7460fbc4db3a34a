"""Connectors for the tests: they count, crash, block and refuse as they are configured to."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

from penstock.connect.api import (
    ConfigType,
    ConnectError,
    DataError,
    Field,
    RetriableError,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)


class NumbersTask(SourceTask):
    """Numbers from 0 on, for each task in a partition of its own."""

    def start(self, config, offsets_reader):
        self._topic, self._name = config["topic"], config["part"]
        self._most = int(config.get("most") or 1 << 60)
        self._partition = {"part": self._name}
        found = offsets_reader.offset(self._partition)
        self._next = 0 if found is None else found["next"]
        self._log = logging.getLogger(f"trial.{config['name']}")
        self._do = config.get("misbehave") or ""
        self._mark = Path(config["mark"]) if config.get("mark") else None

    def poll(self):
        time.sleep(0.005)
        self._log.debug("task %s polls", self._name)
        if self._do and not (self._mark and self._mark.exists()):
            if self._mark:
                self._mark.write_text("done")
            if self._do == "raise":
                raise ConnectError("this task fails on purpose")
            if self._do == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if self._do == "retry":
                raise RetriableError("the source is away")
            if self._do == "block":
                threading.Event().wait()
        count = min(10, self._most - self._next)
        records = []
        for _ in range(max(0, count)):
            self._next += 1
            records.append(
                SourceRecord(
                    self._topic,
                    f"{self._name} {self._next - 1}",
                    source_partition=self._partition,
                    source_offset={"next": self._next},
                )
            )
        return records


class NumbersSource(SourceConnector):
    version = "7.1"
    task_class = NumbersTask
    exactly_once = True
    fields = (
        Field("topic", doc="Where to."),
        Field("most", ConfigType.LONG, None, "How many."),
        Field("misbehave", ConfigType.STRING, "", "How."),
    )

    @classmethod
    def validate(cls, config):
        if config.get("misbehave") == "end the process":
            os._exit(3)
        return (
            {"topic": ["Invalid value no for configuration topic: on purpose"]}
            if config["topic"] == "no"
            else {}
        )

    def task_configs(self, max_tasks):
        count = int(self.config.get("make.tasks") or max_tasks)
        return [{**self.config, "part": str(number)} for number in range(count)]


class CollectTask(SinkTask):
    """Appends values to a file; refuses some."""

    def start(self, config):
        self._path = Path(config["path"])
        self._away = Path(config["away"]) if config.get("away") else None

    def put(self, records):
        if self._away and self._away.exists():
            raise RetriableError("the store is away")
        with self._path.open("a") as file:
            for record in records:
                if record.value == "poison":
                    self.report(record, DataError("this value is poison"))
                    continue
                file.write(f"{record.value}\n")


class CollectSink(SinkConnector):
    task_class = CollectTask
    fields = (Field("path"), Field("away", ConfigType.STRING, None))


class OwnOffsetsTask(SinkTask):
    """Keeps data and offsets in one file for each partition, replaced in one step: exactly once."""

    def start(self, config):
        self._root = Path(config["path"])
        self._root.mkdir(exist_ok=True)
        self._lines = {}
        self._away = Path(config["away"]) if config.get("away") else None

    def open(self, partitions):
        self._log("open", *(place[1] for place in partitions))
        offsets = {}
        for place in partitions:
            path = self._file(place)
            lines = path.read_text().splitlines() if path.exists() else []
            self._lines[place] = lines
            offsets[place] = len(lines)
        return offsets

    def _file(self, place):
        return self._root / f"{place[0]}-{place[1]}"

    def _log(self, *words):
        with (self._root / "log").open("a") as file:
            print(*words, file=file)

    def put(self, records):
        away = bool(self._away and self._away.exists())
        self._log("away" if away else "put", len(records))
        if away:
            raise RetriableError("the store is away")
        for record in records:
            place = (record.original_topic, record.original_partition)
            self._lines[place].append(str(record.value))
        for place in {(r.original_topic, r.original_partition) for r in records}:
            temporary = self._root / f".{place[0]}-{place[1]}"
            temporary.write_text("".join(f"{line}\n" for line in self._lines[place]))
            os.replace(temporary, self._file(place))

    def precommit(self, offsets):
        return {}  # the file says it


class OwnOffsetsSink(SinkConnector):
    task_class = OwnOffsetsTask
    fields = (Field("path"), Field("away", ConfigType.STRING, None))


def shout(record):
    """A transform that is a function."""
    return record.changed(value=str(record.value).upper())
