"""Secrets that are given by reference are in no log, answer, topic or file of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority

PASSWORD, KEY_PASSWORD, USERS = "planted-broker-8471", "planted-key-2093", "planted-user-5512"
SECRETS = (PASSWORD, KEY_PASSWORD, USERS)
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class Site:
    """A broker whose settings name its secrets, and commands that use it; `said` is all that came out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self.environ = {**os.environ, "BROKER_PASSWORD": PASSWORD, "USER_PASSWORD": USERS}
        certificate, key = Authority().issue("127.0.0.1", password=KEY_PASSWORD)
        secrets = directory / "secrets"
        secrets.mkdir()
        (secrets / "broker.pem").write_text(key + certificate)
        (secrets / "key").write_text(f"{KEY_PASSWORD}\n")
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
            "enable.ssl.certificate.verification=false\n"
            "ssl.endpoint.identification.algorithm=none\n"
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

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    if made.process.poll() is None:
        made.stop()


@pytest.mark.promise(
    "access", "Secrets come from files and the environment, and are in no log, answer, topic or file of a run"
)
def test_planted_secrets_are_in_no_log_answer_topic_or_file(site: Site) -> None:
    site.penstock("topics", "create", "t", "--verbose")
    site.penstock("produce", "t", "--verbose", input="one\n")
    assert site.penstock("consume", "t", "--verbose", "-X", "debug=security,conf,broker") == "one\n"
    described = site.penstock("configs", "describe", "broker", "1", "--all", "--json")
    assert "ssl.key.password" in described and "sasl.jaas.config" in described
    wrong = ("-X", f"sasl.password={USERS}")
    site.penstock("topics", "list", "--timeout", "3", "--verbose", *wrong, ok=False)
    site.penstock("topics", "list", "-X", "sasl.password=${env:USER_PASSWORD}", "--timeout", "3", ok=False)
    for pid in (site.process.pid,):
        site.said.append(Path(f"/proc/{pid}/cmdline").read_text())
    site.stop()
    texts = [text.encode() for text in site.said]
    kept = [path for path in site.directory.rglob("*") if path.is_file() and path.parent.name != "secrets"]
    assert any(path.name.endswith(".log") and path.parent.name == "t-0" for path in kept)
    for secret in SECRETS:
        assert not [text for text in texts if secret.encode() in text]
        assert not [path for path in kept if secret.encode() in path.read_bytes()]
