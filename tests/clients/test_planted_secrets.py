"""Secrets that are given by reference are in no log, answer, topic or file of a run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.certificates import Authority

PASSWORD, KEY_PASSWORD, USERS = "planted-broker-8471", "planted-key-2093", "planted-user-5512"
WEB, DATABASE, WRONG = "planted-web-6630", "planted-database-3317", "planted-wrong-9054"
SECRETS = (PASSWORD, KEY_PASSWORD, USERS, WEB, DATABASE, WRONG)
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


PLUGIN = """
from penstock.connect.api import Field, SourceConnector, SourceRecord, SourceTask


class PlantedTask(SourceTask):
    def start(self, config, offsets):
        self._record = SourceRecord("planted", f"the database has {len(config['dsn'])} letters")

    def poll(self):
        record, self._record = self._record, None
        return [] if record is None else [record]


class Planted(SourceConnector):
    task_class = PlantedTask

    def task_configs(self, max_tasks):
        return [{"dsn": f"db://ann:{self.config['db.password']}@host/shop"}]
"""


class Site:
    """A broker whose settings name its secrets, and commands that use it; `said` is all that came out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {**os.environ, "BROKER_PASSWORD": PASSWORD, "USER_PASSWORD": USERS}
        authority = Authority()
        certificate, key = authority.issue("127.0.0.1", password=KEY_PASSWORD)
        (directory / "ca.pem").write_text(authority.pem)
        secrets = directory / "secrets"
        secrets.mkdir()
        (secrets / "broker.pem").write_text(key + certificate)
        (secrets / "key").write_text(f"{KEY_PASSWORD}\n")
        (secrets / "database").write_text(f"{DATABASE}\n")
        (secrets / "users").write_text(f"ann: {WEB}, admin\n")
        (directory / "plugins").mkdir()
        (directory / "plugins" / "planted.py").write_text(PLUGIN)
        jaas = f'{MODULE} username="admin" password="${{env:BROKER_PASSWORD}}";'
        (directory / "broker.properties").write_text(
            "listeners=SASL_SSL://127.0.0.1:0\n"
            f"log.dirs={directory / 'data'}\n"
            f"ssl.keystore.location={secrets / 'broker.pem'}\n"
            f"ssl.key.password=${{file:{secrets / 'key'}}}\n"
            "sasl.enabled.mechanisms=SCRAM-SHA-512\n"
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={jaas}\n"
        )
        command = [sys.executable, "-m", "penstock", "broker", "--json"]
        with (directory / "broker.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--config", str(directory / "broker.properties")],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environ,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (directory / "broker.log").read_text()
        self.bootstrap: str = json.loads(line)["bootstrap"]
        (directory / "client.properties").write_text(
            f"bootstrap.servers={self.bootstrap}\n"
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "sasl.username=admin\n"
            "sasl.password=${env:BROKER_PASSWORD}\n"
            f"ssl.ca.location={directory / 'ca.pem'}\n"
        )

    def penstock(self, *arguments: str, input: str = "", ok: bool = True) -> str:
        command = [sys.executable, "-m", "penstock", *arguments]
        done = subprocess.run(
            [*command, "--client-config", str(self.directory / "client.properties")],
            input=input, capture_output=True, text=True, timeout=120, env=self.environ,
        )  # fmt: skip
        self.said += [done.stdout, done.stderr]
        assert (done.returncode == 0) is ok, (arguments, done.stdout, done.stderr)
        return done.stdout

    def serve(self, name: str, *words: str, **environ: str) -> None:
        """Start a server that logs in to the broker, and whose users log in to it."""
        options = ["--port", "0", "--ready-file", str(self.directory / f"{name}.json")]
        options += ["--client-config", str(self.directory / "client.properties"), "-b", self.bootstrap]
        options += ["--auth-file", str(self.directory / "secrets" / "users"), *words]
        with (self.directory / f"{name}.log").open("wb") as log:
            self.servers[name] = subprocess.Popen(
                [sys.executable, "-m", "penstock", name, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.environ, **environ},
            )

    def url(self, name: str) -> str:
        ready, server = self.directory / f"{name}.json", self.servers[name]
        until(lambda: ready.exists() or server.poll() is not None)
        assert ready.exists(), (self.directory / f"{name}.log").read_text()
        found: str = json.loads(ready.read_text())[name]
        return found

    def ask(self, url: str, path: str, method: str = "GET", body: object = None) -> httpx.Response:
        """As the administrator; and with another password, as whoever mistypes it."""
        wrong = httpx.request(method, url + path, json=body, auth=("ann", WRONG), trust_env=False, timeout=60)
        answer = httpx.request(method, url + path, json=body, auth=("ann", WEB), trust_env=False, timeout=60)
        for each in (wrong, answer):
            self.said += [each.text, str(each.headers)]
        assert wrong.status_code == 401
        return answer

    def stop(self) -> None:
        for server in self.servers.values():
            server.terminate()
        for server in self.servers.values():
            server.wait(60)
        self.process.terminate()
        assert self.process.wait(60) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def use_servers(site: Site) -> None:
    """A registry, a worker with a connector that makes a URL of its password, and a console."""
    words = ("--session-timeout-ms", "6000")
    site.serve("registry", *words)
    site.serve("connect", *words, "--set", f"plugin.path={site.directory / 'plugins'}")
    registry, connect = site.url("registry"), site.url("connect")
    login = {"PENSTOCK_CONNECT_USER": f"ann:{WEB}", "PENSTOCK_REGISTRY_USER": f"ann:{WEB}"}
    site.serve("console", "--registry", registry, "--connect", connect, **login)
    reference = f"${{file:{site.directory / 'secrets' / 'database'}}}"
    config = {
        "connector.class": "planted.Planted",
        "db.password": reference,
        "value.converter": "StringConverter",
    }
    body = {"name": "planted", "config": config}
    answers: list[httpx.Response] = []

    def answered() -> bool:
        answers.append(site.ask(connect, "/connectors", "POST", body))
        return answers[-1].status_code != 409  # a worker that was just started has no leader yet

    until(answered)
    assert answers[-1].status_code == 201, answers[-1].text

    def runs() -> bool:
        status = site.ask(connect, "/connectors/planted/status").json()
        assert "FAILED" not in str(status), status
        return [each["state"] for each in status.get("tasks", ())] == ["RUNNING"]

    until(runs)
    (task,) = site.ask(connect, "/connectors/planted/tasks").json()
    assert task["config"]["dsn"] == f"db://ann:{reference}@host/shop"
    for path in ("/connectors?expand=info&expand=status", "/connectors/planted/config", "/metrics"):
        assert site.ask(connect, path).status_code == 200
    schema = {"schema": '{"type": "string"}'}
    assert site.ask(registry, "/subjects/s/versions", "POST", schema).status_code == 200
    for path in ("/subjects/s/versions/1", "/config", "/metrics"):
        assert site.ask(registry, path).status_code == 200
    console = site.url("console")
    for path in ("/", "/connector?name=planted", "/connectors", "/metrics"):
        assert site.ask(console, path).status_code == 200
    record = site.penstock("consume", "planted", "--max", "1")
    assert f"{len(f'db://ann:{DATABASE}@host/shop')} letters" in record, "the task has the secret"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    if made.process.poll() is None:
        made.stop()


@pytest.mark.promise(
    "access",
    "Secrets are read from files and the environment, and appear in no log, response, topic or file of a run",
)
@pytest.mark.timeout(360)
def test_planted_secrets_are_in_no_log_answer_topic_or_file(site: Site) -> None:
    site.penstock("topics", "create", "t", "--verbose")
    site.penstock("produce", "t", "--verbose", input="one\n")
    assert site.penstock("consume", "t", "--verbose", "-X", "debug=security,conf,broker") == "one\n"
    described = site.penstock("configs", "describe", "broker", "1", "--all", "--json")
    assert "ssl.key.password" in described and "sasl.jaas.config" in described
    wrong = ("-X", f"sasl.password={USERS}")
    site.penstock("topics", "list", "--timeout", "3", "--verbose", *wrong, ok=False)
    site.penstock("topics", "list", "-X", "sasl.password=${env:USER_PASSWORD}", "--timeout", "3", ok=False)
    use_servers(site)
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            commands.append(path.read_bytes().decode(errors="replace"))
    assert sum(str(site.directory) in each for each in commands) >= 4
    site.said += commands
    site.stop()
    texts = [text.encode() for text in site.said]
    kept = [path for path in site.directory.rglob("*") if path.is_file() and path.parent.name != "secrets"]
    topics = {path.parent.name for path in kept if path.name.endswith(".log")}
    assert {"t-0", "planted-0", "_schemas-0", "connect-configs-0"} <= topics
    for secret in SECRETS:
        assert not [text for text in texts if secret.encode() in text]
        assert not [path for path in kept if secret.encode() in path.read_bytes()]
