"""A worker with users: who may see, steer and change connectors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from tests.certificates import Authority
from tests.connect.conftest import Worker

DATAGEN = {"connector.class": "Datagen", "kafka.topic": "made", "quickstart": "users", "iterations": "1"}


@pytest.mark.promise(
    "connect",
    "A Connect worker with users: `read` sees, `write` steers, `admin` changes connectors; its commands "
    "log in over TLS",
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
    "A Connect worker with users: `read` sees, `write` steers, `admin` changes connectors; its commands "
    "log in over TLS",
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
