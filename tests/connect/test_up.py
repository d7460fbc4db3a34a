"""`penstock up` has a Connect worker beside its broker; the `penstock connect` commands talk to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.connect.conftest import Topics, until


class Up:
    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--json", "--no-registry", *options]
        self.log = directory / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready: dict[str, Any] = json.loads(line)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"))
    yield running
    assert running.stop() == 0


def connect(up: Up, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "connect", *words, "--url", up.ready["connect"]],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.promise(
    "connect",
    "`penstock up` starts a Connect worker, the commands manage its connectors, a standalone worker "
    "keeps offsets in files, and the test of a newly created connector project passes",
)
def test_the_commands_create_show_change_and_delete_connectors(up: Up, tmp_path: Path) -> None:
    assert "FileStreamSource" in connect(up, "plugins")
    lines = tmp_path / "lines"
    lines.write_text("x\ny\n")
    words = ("connector.class=FileStreamSource", f"file={lines}", "topic=cli", "value.converter=string")
    connect(up, "create", "cli", *words)
    topics = Topics(up.ready["bootstrap"])
    assert [each.value() for each in topics.read("cli", 2)] == [b"x", b"y"]
    states = until(
        lambda: (s := json.loads(connect(up, "status", "cli", "--json")))["tasks"] and s, "it has a task"
    )
    assert states["type"] == "source"
    assert "cli" in json.loads(connect(up, "list", "--json"))
    connect(up, "stop", "cli")
    until(
        lambda: json.loads(connect(up, "status", "cli", "--json"))["connector"]["state"] == "STOPPED",
        "it is stopped",
    )
    assert json.loads(connect(up, "offsets", "cli", "--json"))["offsets"][0]["offset"]["position"] == 4
    connect(up, "delete", "cli")
    assert "Unknown connector cli" in connect(up, "pause", "cli", code=1)
    assert 'Missing required configuration "file"' in connect(
        up, "create", "bad", "connector.class=FileStreamSource", "topic=t", code=1
    )


def test_a_worker_that_is_away_is_named(up: Up) -> None:
    words = [sys.executable, "-m", "penstock", "connect", "list", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "no Connect worker answers at http://127.0.0.1:1" in done.stderr


def test_up_without_connect_says_nothing_of_it(tmp_path: Path) -> None:
    running = Up(tmp_path, "--no-connect")
    assert "connect" not in running.ready
    producer = Producer({"bootstrap.servers": running.ready["bootstrap"]})
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    assert running.stop() == 0


@pytest.mark.promise(
    "connect",
    "`penstock up` starts a Connect worker, the commands manage its connectors, a standalone worker "
    "keeps offsets in files, and the test of a newly created connector project passes",
)
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_the_skeleton_of_a_connector_has_a_test_that_passes(tmp_path: Path, kind: str) -> None:
    words = ["connect", "new", "my-counter", "--directory", str(tmp_path / "made")]
    words += ["--sink"] if kind == "sink" else []
    made = subprocess.run([sys.executable, "-m", "penstock", *words], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:penstock"],
        cwd=tmp_path / "made",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout
    again = subprocess.run([sys.executable, "-m", "penstock", *words], capture_output=True, text=True)
    assert again.returncode == 1 and "is not empty" in again.stderr


@pytest.mark.promise(
    "connect",
    "`penstock up` starts a Connect worker, the commands manage its connectors, a standalone worker "
    "keeps offsets in files, and the test of a newly created connector project passes",
)
def test_a_standalone_worker_runs_a_file_and_keeps_offsets(up: Up, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("1\n2\n")
    config = tmp_path / "alone.properties"
    config.write_text(
        f"name=alone\nconnector.class=FileStreamSource\nfile={lines}\ntopic=alone\n"
        "value.converter=string\nvalue.converter.note=${env:HOME}\n"
    )
    topics = Topics(up.ready["bootstrap"])
    for wanted in ([b"1", b"2"], [b"1", b"2", b"3"]):
        words = ["connect", "-b", up.ready["bootstrap"], "--port", "0", "--standalone"]
        words += ["--connector", str(config), "--offsets", str(tmp_path / "offsets")]
        process = subprocess.Popen([sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE)
        try:
            assert [each.value() for each in topics.read("alone", len(wanted))] == wanted
        finally:
            process.terminate()
            assert process.wait(60) == 0
        lines.write_text("1\n2\n3\n")
