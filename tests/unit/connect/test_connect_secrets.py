"""Secrets of connectors: what is shown to whom, and what is stored of the settings of tasks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from penstock.connect.concealment import HIDDEN, conceal
from penstock.connect.errors import ConnectError
from penstock.connect.providers import resolve
from penstock.connect.rest.app import ConnectApi, needed_role
from penstock.connect.rest.resources import Resources
from penstock.connect.runtime.clients import WorkerSettings
from penstock.connect.runtime.scout import Scout
from penstock.connect.runtime.validation import validation
from penstock.connect.secrets import hidden, with_references
from penstock.connect.worker.configs import ConfigState, connector_record, task_records
from penstock.connect.worker.statuses import Statuses
from penstock.console.reads import connectors as console
from penstock.web.access import PRINCIPAL, Principal, Role

PLANTED = "pl4nted"
CONFIG = {
    "name": "pg",
    "connector.class": "LakeSink",
    "tasks.max": "1",
    "database.user": "ann",
    "aws.secret.access.key": PLANTED,
    "database.sslpassword": "${file:/run/secrets/pg}",
    "value.converter.basic.auth.user.info": f"ann:{PLANTED}",
    "producer.override.sasl.jaas.config": f'PlainLoginModule required password="{PLANTED}";',
    "schema.registry.url": f"https://ann:{PLANTED}@registry:8081",
    "key.converter": "StringConverter",
}


class Herder:
    """What the routes ask of a worker's herder."""

    def __init__(self, plugin: str) -> None:
        self.configs, self.statuses, self.worker_id = ConfigState(), Statuses(), "w:1"
        config = {**CONFIG, "connector.class": plugin}
        records = [connector_record("pg", config), *task_records("pg", [{**config, "slot": "0"}])]
        for offset, (key, value) in enumerate(records):
            self.configs.apply(key, value, offset, None)
        self.scout = SimpleNamespace(ask=self.ask)
        self.cluster = SimpleNamespace(leads=True, known=self.known)

    async def ask(self, do: str, **given: Any) -> dict[str, Any]:
        if given.get("name") == "Unknown":
            return {"unknown_plugin": "Unknown"}
        return {"result": getattr(Scout(None), do)(**given)}

    async def known(self, deadline: float) -> bool:
        return True


def ask(
    method: str, path: str, role: Role | None, body: Any = None, plugin: str = "LakeSink"
) -> tuple[int, str]:
    """Of a worker with a login; of one without, where the role is None."""
    herder: Any = Herder(plugin)
    api = ConnectApi(herder, None, Resources(herder).routes(), max_body_bytes=1 << 20, leader_wait=1)
    raw, _, query = path.partition("?")
    scope = {
        "method": method,
        "path": raw,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [],
    }
    if role is not None:
        scope[PRINCIPAL] = Principal("someone", role)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(api(scope, receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


@pytest.mark.promise(
    "connect",
    "Passwords of connectors are shown only to users who may change them, and references to secrets are "
    "stored unresolved",
)
@pytest.mark.parametrize(
    "path",
    ["/connectors/pg", "/connectors/pg/config", "/connectors/pg/tasks", "/connectors?expand=info"],
)
def test_passwords_are_shown_to_administrators_only(path: str) -> None:
    for role in (Role.READ, Role.WRITE):
        status, text = ask("GET", path, role)
        assert status == 200 and PLANTED not in text
        assert HIDDEN in text and "StringConverter" in text and "${file:/run/secrets/pg}" in text
    for role in (Role.ADMIN, None):
        assert PLANTED in ask("GET", path, role)[1]


@pytest.mark.promise(
    "connect",
    "Passwords of connectors are shown only to users who may change them, and references to secrets are "
    "stored unresolved",
)
def test_settings_with_hidden_values_are_not_taken() -> None:
    assert needed_role("PUT", b"/connectors/pg/config") is Role.ADMIN, "others are refused before"
    shown = json.loads(ask("GET", "/connectors/pg/config", Role.READ)[1])
    status, text = ask("PUT", "/connectors/pg/config", Role.ADMIN, shown)
    assert status == 400 and "configuration aws.secret.access.key" in text and "schema.registry.url" in text


def test_of_a_plugin_that_is_not_there_nothing_is_known_to_be_no_secret() -> None:
    shown = json.loads(ask("GET", "/connectors/pg/config", Role.READ, plugin="Unknown")[1])
    assert {name for name, value in shown.items() if value != HIDDEN} == {
        "name", "connector.class", "tasks.max", "database.sslpassword",
    }  # fmt: skip
    assert shown["database.sslpassword"].startswith("${file:")


def test_settings_that_a_plugin_declares_are_secret_by_their_type() -> None:
    config = {"api.token.count": "3", "pin": "1234", "other.token": "abc", "empty.password": ""}
    found = hidden(config, declared=("api.token.count", "pin"), passwords=("pin",))
    assert found == {"api.token.count": "3", "pin": HIDDEN, "other.token": HIDDEN, "empty.password": ""}
    assert hidden({"url": "amqp://u:${env:PW}@h/x:y@z"}) == {"url": "amqp://u:${env:PW}@h/x:y@z"}


@pytest.mark.promise(
    "connect",
    "Passwords of connectors are shown only to users who may change them, and references to secrets are "
    "stored unresolved",
)
def test_what_a_connector_makes_of_a_secret_is_stored_with_its_reference(tmp_path, monkeypatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    monkeypatch.setenv("SHORT", "1")
    reference = f"${{file:{secret}}}"
    given = {"password": reference, "url": f"db://u:{reference}@h", "n": "${env:SHORT}", "plain": "s3"}

    def stored(**task: object) -> dict[str, str]:
        return with_references(given, resolve(given), task)

    task = {"url": "db://u:s3cret@h", "dsn": "user=u password=s3cret port=1", "n": "1", "m": "11", "k": 7}
    found = stored(**task, gone=None)
    assert found == {
        "url": given["url"], "dsn": f"user=u password={reference} port=1", "n": "${env:SHORT}", "m": "11",
        "k": "7",
    }  # fmt: skip
    assert resolve(found) == {name: str(value) for name, value in task.items()}, "a task gets the same"
    secret.write_text("p@ss/word")
    assert stored(url="db://u:p@ss/word@h") == {"url": given["url"]}
    for encoded in ("db://u:p%40ss/word@h", "db://u:p%40ss%2Fword@h", "Basic cEBzcy93b3Jk"):
        with pytest.raises(ConnectError, match="The setting dsn of a task") as raised:
            stored(dsn=encoded)
        assert "p@ss" not in str(raised.value) and reference in str(raised.value)


@pytest.mark.promise("console", "The console shows the passwords of connectors to no user")
def test_the_console_shows_no_passwords() -> None:
    asked: list[str] = []

    class Worker:
        def ask(self, method: str, path: str, body: Any = None) -> Any:
            asked.append(path)
            if path.endswith("/status"):
                return {"connector": {"state": "RUNNING"}, "tasks": []}
            if path == "/connector-plugins/LakeSink/config":
                return [
                    {"name": "database.user", "type": "PASSWORD"},
                    {"name": "key.converter", "type": "CLASS"},
                ]
            return {"type": "source", "config": CONFIG}

    worker: Any = Worker()
    found = console.find_connector(worker, "pg")
    assert PLANTED not in str(found) and found.config["database.user"] == HIDDEN
    assert found.config["key.converter"] == "StringConverter"
    assert found.config["database.sslpassword"] == "${file:/run/secrets/pg}"
    assert PLANTED not in str(
        console.list_connectors(SimpleNamespace(ask=lambda *_: {"pg": {"info": {"config": CONFIG}}}))
    )


@pytest.fixture
def planted(tmp_path: Path) -> str:
    # Another one for each test: a process remembers the first reference to a secret.
    (tmp_path / "secret").write_text(f"pl4nted of/a file {uuid4()}\n")
    return f"${{file:{tmp_path / 'secret'}}}"


KNOWN_BY_REFERENCE = (
    "What a reference to a secret stands for is in no error, trace, dead letter or log of Connect"
)


@pytest.mark.promise(
    "connect", "The secret of a reference is in no error, trace, dead letter or log of Connect"
)
@pytest.mark.parametrize("name", ["tasks.max", "key.converter", "errors.tolerance", "transforms", "file"])
def test_a_validation_does_not_show_what_a_reference_stands_for(name: str, planted: str) -> None:
    config = {"name": "x", "topic": "t", "file": "f", name: planted}
    answer = json.dumps(validation("FileStreamSource", config, WorkerSettings({}, {}, "group")))
    assert "pl4nted" not in answer
    assert planted in answer


@pytest.mark.promise(
    "connect", "The secret of a reference is in no error, trace, dead letter or log of Connect"
)
@pytest.mark.parametrize(("kind", "name"), [("connector", "tasks.max"), ("task", "key.converter")])
def test_an_error_of_a_process_does_not_show_what_a_reference_stands_for(
    kind: str, name: str, planted: str
) -> None:
    config = {
        "name": "x", "connector.class": "FileStreamSource", "tasks.max": "1", "topic": "t",
        "file": "/dev/null", name: planted,
    }  # fmt: skip
    worker = asdict(WorkerSettings({"bootstrap.servers": "127.0.0.1:1"}, {}, "group"))
    message = {"kind": kind, "connector": "x", "task": 0, "connector_config": config, "config": config}
    command = [sys.executable, "-m", "penstock.connect.runtime.process"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdin.write(json.dumps({**message, "worker": worker}) + "\n")
        process.stdin.flush()  # it stays open: at its end the worker is gone
        said = process.stdout.read()
        said += process.stderr.read()
    failed = [line for line in said.splitlines() if '"failed"' in line]
    assert failed and planted in failed[0]
    assert "pl4nted" not in said


def test_secrets_are_concealed_in_every_form_in_which_they_are_written() -> None:
    resolve({"connection.password": 'sw"0rd/fish'})
    for text in ("dsn=sw%220rd%2Ffish", '{"p": "sw\\"0rd/fish"}', "Basic c3ciMHJkL2Zpc2g=", 'sw"0rd/fish!'):
        assert "rd/fish" not in conceal(text) and HIDDEN in conceal(text)
    assert conceal("nothing in particular") == "nothing in particular"
