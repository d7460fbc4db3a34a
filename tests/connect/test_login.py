"""A worker with users: who may see, steer and change connectors."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock.testing import PenstockBroker
from tests.certificates import Authority
from tests.connect.conftest import Worker, Workers, until
from tests.connect.test_workers import group, numbers

DATAGEN = {"connector.class": "Datagen", "kafka.topic": "made", "quickstart": "users", "iterations": "1"}


@pytest.mark.promise(
    "connect",
    "A Connect worker with users: `read` may view, `write` may pause, resume and restart, `admin` may "
    "change connectors; the commands log in to it over TLS",
)
def test_roles_say_who_may_see_steer_and_change_connectors(broker: PenstockBroker, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("eve: see, read\nbob: steer, write\nann: change, admin\n")
    users.chmod(0o600)
    worker = Worker(broker.bootstrap, tmp_path, "--auth-file", str(users)).wait()
    try:
        body = {"name": "gen", "config": DATAGEN}

        def status(method: str, path: str, *login: str, json: object = None) -> int:
            auth = (login[0], login[1]) if login else None
            return worker.http.request(method, path, json=json, auth=auth).status_code

        eve, bob, ann = ("eve", "see"), ("bob", "steer"), ("ann", "change")
        assert status("GET", "/connectors") == 401
        assert status("GET", "/connectors", "eve", "wrong") == 401
        assert status("POST", "/connectors", *eve, json=body) == 403
        assert status("POST", "/connectors", *bob, json=body) == 403
        assert status("POST", "/connectors", *ann, json=body) == 201
        assert status("GET", "/connectors", *eve) == 200
        assert status("PUT", "/connectors/gen/pause", *eve) == 403
        assert status("PUT", "/connectors/gen/pause", *bob) == 202
        assert status("DELETE", "/connectors/gen", *bob) == 403
    finally:
        worker.stop()


@pytest.mark.promise(
    "connect",
    "A Connect worker with users: `read` may view, `write` may pause, resume and restart, `admin` may "
    "change connectors; the commands log in to it over TLS",
)
def test_commands_log_in_over_tls(broker: PenstockBroker, tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("127.0.0.1")
    files = {"ca.pem": authority.pem, "cert.pem": certificate, "key.pem": key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ca = str(tmp_path / "ca.pem")
    users = tmp_path / "users"
    users.write_text("ann: change, admin\n")
    users.chmod(0o600)
    options = ("--auth-file", str(users), "--tls-cert", str(tmp_path / "cert.pem"))
    worker = Worker(broker.bootstrap, tmp_path, *options, "--tls-key", str(tmp_path / "key.pem")).wait()
    try:
        assert worker.url.startswith("https://")

        def listed(**environment: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "penstock", "connect", "list", "--url", worker.url, "--json"],
                env={**os.environ, **environment}, capture_output=True, text=True, check=False,
            )  # fmt: skip

        trusted = {"PENSTOCK_CONNECT_CA": ca}
        assert listed(**trusted, PENSTOCK_CONNECT_USER="ann:change").returncode == 0
        assert listed(**trusted, PENSTOCK_CONNECT_USER="ann:wrong").returncode == 1
        assert listed(PENSTOCK_CONNECT_USER="ann:change").returncode == 1
    finally:
        worker.stop()


def secured(directory: Path, *, trusting: bool = True) -> tuple[list[str], str]:
    """Options of workers with users and certificates of their own authority; the authority's file."""
    authority = Authority()
    certificate, key = authority.issue("127.0.0.1")
    for name, text in {"ca.pem": authority.pem, "cert.pem": certificate, "key.pem": key}.items():
        (directory / name).write_text(text)
    users = directory / "users"
    users.write_text("eve: see, read\nbob: steer, write\nann: change, admin\n")
    users.chmod(0o600)
    words = ["--auth-file", str(users)]
    words += ["--tls-cert", str(directory / "cert.pem"), "--tls-key", str(directory / "key.pem")]
    ca = str(directory / "ca.pem")
    return [*words, *(("--tls-ca", ca) if trusting else ())], ca


def client(worker: Worker, ca: str, *login: str) -> httpx.Client:
    return httpx.Client(
        base_url=worker.url,
        auth=(login[0], login[1]) if login else None,
        verify=ssl.create_default_context(cafile=ca),
        timeout=60.0,
        trust_env=False,
    )


@pytest.mark.promise(
    "connect",
    "Workers with users and TLS share work: a change through any worker is carried out as the user who "
    "sent it, and task configurations are accepted from workers only",
)
def test_workers_with_users_and_tls_share_work(broker: PenstockBroker, workers: Workers, name: str) -> None:
    directory = workers.directory
    options, ca = secured(directory)
    both = [workers.start(broker.bootstrap, *group(name), *options) for _ in range(2)]
    admins = [client(each, ca, "ann", "change") for each in both]

    def running(connector: str, tasks: int) -> bool:
        found = admins[0].get(f"/connectors/{connector}/status").json()
        states = [task["state"] for task in found.get("tasks", ())]
        return states == ["RUNNING"] * tasks

    # Two connectors, one on each worker: one of them is divided by the worker that does not lead.
    for number, admin in enumerate(admins):
        body = {"name": f"{name}-{number}", "config": numbers(name, **{"tasks.max": 2})}
        assert admin.post("/connectors", json=body).status_code == 201
    for number in range(2):
        until(
            lambda n=number: running(f"{name}-{n}", 2),
            f"connector {number} has its tasks",
            lambda: "\n".join(each.log.read_text()[-2000:] for each in both),
        )

    # The rights are those of the user, whichever worker is asked; the leader's log names the user.
    for number, each in enumerate(both):
        path = f"/connectors/{name}-{number}"
        for login, method, where, expected in (
            (("eve", "see"), "PUT", f"{path}/pause", 403),
            (("bob", "steer"), "PUT", f"{path}/pause", 202),
            (("bob", "steer"), "DELETE", path, 403),
            ((), "DELETE", path, 401),
        ):
            assert client(each, ca, *login).request(method, where).status_code == expected, (login, method)
        # Not for users: a task's configuration is what a connector made of its own.
        for login in ((), ("bob", "steer"), ("ann", "change")):
            answer = client(each, ca, *login).post(f"{path}/tasks", json=[{"topic": "forged"}])
            assert answer.status_code == (403 if login else 401), login
        forged = {"authorization": "Penstock-Peer 1700000000:" + "0" * 64}
        assert client(each, ca).post(f"{path}/tasks", json=[{}], headers=forged).status_code == 401
    logs = [each.log.read_text() for each in both]
    for number in range(2):
        assert sum(f"PUT /connectors/{name}-{number}/pause by user 'bob'" in each for each in logs) == 1


@pytest.mark.promise(
    "connect",
    "A worker that does not trust the leader's certificate reports that, and names the option that sets "
    "the certificate authority",
)
def test_a_worker_that_does_not_trust_the_leader_says_so(
    broker: PenstockBroker, workers: Workers, name: str
) -> None:
    options, ca = secured(workers.directory, trusting=False)
    both = [workers.start(broker.bootstrap, *group(name), *options) for _ in range(2)]
    body = {"name": name, "config": numbers(name)}
    answers = [client(each, ca, "ann", "change").post("/connectors", json=body) for each in both]
    refused = [each for each in answers if each.status_code == 500]
    assert len(refused) == 1, [each.text for each in answers]
    assert "--tls-ca" in refused[0].json()["message"]
