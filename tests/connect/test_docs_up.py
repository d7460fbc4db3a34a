"""The commands of the README and of the pages on the registry, Connect and security run as they stand there.

One `penstock up` serves all pages, as a reader would have it. Each page begins without topics and connectors.
What stands for a reader's own machine (host names, paths) is replaced by something that is here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from tests.connect.conftest import until
from tests.doc_blocks import blocks, commands, programs

# Validation connects to the system that a connector reads or writes. The tests of each connector have a real
# one; here there is none, and its address must be all that the worker finds wrong.
ADDRESSES = "mqtt.server.uri|rabbitmq.host|redis.uri|database.hostname|connection.url"
NOT_THERE = re.compile(
    rf"contains the following 1 error\(s\): Invalid value .*for configuration ({ADDRESSES}): "
)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
# The resource that the page imports from the reader's own project.
ISSUES = """
import dlt

@dlt.resource(primary_key="id")
def issues(repository):
    yield {"id": 1, "repository": repository}
"""
NOTE = {"name": "note", "type": "string", "default": ""}


@dataclass
class Page:
    """What is particular about the commands of a page."""

    path: str
    instead: dict[str, str] = field(default_factory=dict)
    """In place of names of the reader's machine; `{home}` is the test's directory."""
    shows: tuple[str, ...] = ()
    systems_missing: bool = False
    """Whether its connectors are for systems that are not here."""


PAGES = [
    Page(
        "README.md",
        instead={"/var/log": "{home}"},
        shows=('{"amount": 12}', "billing", "retention.ms", "Connector lines: created."),
    ),
    Page(
        "docs/registry.md",
        instead={"http://other:8081": "{registry}", "users hash": "users hash --password-env PASSWORD"},
        shows=("orders-value", '"note":', "FULL"),
    ),
    Page(
        "docs/connect.md",
        # S3: tests/connect/lake.
        instead={
            "/var/log": "{home}",
            "s3://bucket": "{home}/bucket",
            "s3.region=eu-central-1": "",
            "/data": "{home}",
        },
        shows=("FileStreamSource", "Connector lines: created.", "table-orders"),
    ),
    Page(
        "docs/connect-messaging.md",
        # By default it waits 30 s for an answer.
        instead={"mqtt.server.uri=": "mqtt.connect.timeout.seconds=1 mqtt.server.uri="},
        systems_missing=True,
        shows=("MqttSource", "Connector hook: created."),
    ),
    Page("docs/connect-mysql.md", systems_missing=True),
    Page("docs/connect-postgres.md", systems_missing=True),
    Page("docs/connect-sql.md", instead={"/var/lib": "{home}"}, systems_missing=True),
]


class Up:
    """A `penstock up` with all that it starts."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--json", "--no-console"]
        self._log = home / "up.log"
        (home / "my_project").mkdir()
        (home / "my_project" / "github.py").write_text(ISSUES)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(home), os.environ.get("PYTHONPATH")]))
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        self.ready: dict[str, Any] = json.loads(line)
        self._worker = httpx.Client(base_url=self.ready["connect"], timeout=60.0, trust_env=False)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PENSTOCK_BOOTSTRAP": self.ready["bootstrap"],
            "PENSTOCK_REGISTRY": self.ready["registry"],
            "PENSTOCK_CONNECT": self.ready["connect"],
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PASSWORD": "alice-secret",
        }

    def empty(self) -> None:
        """Without connectors, topics and schemas of a page."""
        for name in self._worker.get("/connectors").json():
            assert self._worker.delete(f"/connectors/{name}").status_code == 204
        until(lambda: not self._worker.get("/connectors").json(), "all connectors are gone")
        admin = AdminClient({"bootstrap.servers": self.ready["bootstrap"]})
        topics = [
            name for name in admin.list_topics(timeout=10).topics if not name.startswith(("_", "connect-"))
        ]
        for deleted in admin.delete_topics(topics).values() if topics else ():
            deleted.result(30)
        with httpx.Client(base_url=self.ready["registry"], timeout=60.0, trust_env=False) as registry:
            for subject in registry.get("/subjects").json():
                for permanent in ("false", "true"):
                    registry.delete(f"/subjects/{subject}", params={"permanent": permanent})

    def stop(self) -> int:
        self._worker.close()
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(60)
        finally:
            self._process.kill()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"))
    yield running
    assert running.stop() == 0


def run(line: str, home: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", line]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=100)


def consumed(line: str, home: Path, up: Up) -> bool:
    return "one line" in run(line, home, up.environment).stdout


def prepare(page: Page, home: Path, up: Up) -> None:
    """What the reader has before the first line of a page."""
    (home / "app.log").write_text("one line\n")
    (home / "bucket" / "events" / "topics" / "orders").mkdir(parents=True)
    (home / "order.avsc").write_text(json.dumps(ORDER))
    if page.path in ("docs/registry.md", "docs/connect.md"):
        done = run("penstock schemas register orders-value order.avsc", home, up.environment)
        assert done.returncode == 0, done.stderr
    # For `diff`: the reader's schema has changed.
    (home / "order.avsc").write_text(json.dumps(ORDER | {"fields": [*ORDER["fields"], NOTE]}))
    if page.path == "docs/connect.md":
        done = run("penstock topics create orders", home, up.environment)
        assert done.returncode == 0, done.stderr


@pytest.mark.promise(
    "docs",
    "The commands of the README and of the pages on the registry and on Connect run as printed; commands "
    "for systems that the test does not have fail only because of the address",
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page.path).stem)
def test_the_commands_of_a_page_run(page: Page, up: Up, tmp_path: Path) -> None:
    up.empty()
    prepare(page, tmp_path, up)
    lines = commands(page.path)
    assert lines
    printed = ""
    for line in lines:
        for theirs, ours in page.instead.items():
            line = line.replace(theirs, ours.format(home=tmp_path, registry=up.ready["registry"]))
        if line.startswith("penstock consume lines"):
            # The connector that was created a line ago writes when its task has started.
            until(partial(consumed, line, tmp_path, up), line)
            continue
        done = run(line, tmp_path, up.environment)
        missing = page.systems_missing and NOT_THERE.search(done.stderr)
        assert done.returncode == 0 or missing, (line, done.stdout, done.stderr)
        printed += done.stdout + done.stderr
    assert [text for text in page.shows if text not in printed] == []


@pytest.mark.promise("docs", "The Python program of registry.md runs as printed")
def test_the_program_of_the_page_on_the_registry_runs(up: Up) -> None:
    (text,) = programs("docs/registry.md")
    names: dict[str, Any] = {}
    exec(text.replace("http://127.0.0.1:8081", up.ready["registry"]), names)
    from confluent_kafka.serialization import MessageField, SerializationContext

    framed = names["serialize"]({"id": 1}, SerializationContext("payments", MessageField.VALUE))
    assert framed[:1] == b"\0"
    assert "payments-value" in names["client"].get_subjects()


@pytest.mark.promise("docs", "The broker of security.md that uses custom settings runs as printed")
def test_the_broker_in_five_minutes_of_the_page_on_security_runs(tmp_path: Path) -> None:
    section = "In five minutes, with settings of your own"
    make_certificates, start_broker, *others = commands(
        "docs/security.md", "In five minutes, with settings of your own"
    )
    assert start_broker.startswith("penstock broker ") and len(others) == 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"localhost:{free.getsockname()[1]}"
    broker_file, client_file = (
        block.text.replace("localhost:9093", address)
        for block in blocks("docs/security.md", "properties")
        if block.section == section
    )
    others = [line.replace("localhost:9093", address) for line in others]
    (tmp_path / "broker.properties").write_text(broker_file)
    (tmp_path / "client.properties").write_text(client_file)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PASSWORD": "alice-secret",
    }
    done = run(make_certificates, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "broker.log").open("wb") as log:
        broker = subprocess.Popen(
            ["bash", "-c", f"exec {start_broker} --ready-file ready.json"],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: (tmp_path / "ready.json").exists() or broker.poll() is not None, "the broker is up")
        for line in others:
            # Asked for on a terminal; here it is in the environment.
            line = line.replace("users add alice", "users add alice --password-env PASSWORD")
            done = run(line, tmp_path, environment)
            assert done.returncode == 0, (line, done.stderr, (tmp_path / "broker.log").read_text())
    finally:
        broker.send_signal(signal.SIGINT)
        try:
            assert broker.wait(60) == 0
        finally:
            broker.kill()
