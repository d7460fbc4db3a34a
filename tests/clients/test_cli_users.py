"""`penstock users` and `penstock certs`, and a real broker that lets in who was added and nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.credentials.users_file import UsersFile
from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from tests.clients.secure_clients import SECURE_CLIENTS, Login, LoginRefused

SECRET = "planted-secret-0815"


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site") / "certs"
    result = CliRunner().invoke(cli, ["certs", "create", str(directory), "--client", "alice", "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made == {
        "ca": str(directory / "ca.pem"),
        "crl": str(directory / "crl.pem"),
        "certificates": {"server": str(directory / "server.pem"), "alice": str(directory / "alice.pem")},
    }
    return directory


class Site:
    def __init__(self, certs: Path) -> None:
        self.certs = certs
        self.ports = [free_port() for _ in range(3)]
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:{},SASL_SSL://127.0.0.1:{},MUTUAL://127.0.0.1:{}".format(
                *self.ports
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,MUTUAL:SSL",
            "ssl.keystore.location": str(certs / "server.pem"),
            "ssl.truststore.location": str(certs / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.crl.location": str(certs / "crl.pem"),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "num.partitions": "1",
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def roundtrip(self, client: str, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        login = Login("SASL_SSL", self.certs / "ca.pem", mechanism=mechanism, user=user, password=password)
        SECURE_CLIENTS[client](f"127.0.0.1:{self.ports[1]}", "users", login)


@pytest.fixture(scope="module")
def site(certs):
    made = Site(certs)
    with PenstockBroker(made.settings, event_loop="uvloop"):
        yield made


@pytest.fixture
def run(site):
    def run(*arguments, expect=0, **options):
        environ = {"PENSTOCK_BOOTSTRAP": site.bootstrap, "ALICE": SECRET}
        result = CliRunner().invoke(cli, ["users", *arguments], env=environ, **options)
        assert result.exit_code == expect, (result.output, result.exception)
        assert SECRET not in result.output
        return result

    return run


def rows(result):
    return [(one["user"], one["mechanism"], one["iterations"]) for one in json.loads(result.stdout)]


@pytest.mark.promise(
    "access",
    "`penstock users` adds, lists and deletes users; passwords come from a prompt, a file or the "
    "environment and are not displayed",
)
@pytest.mark.parametrize("client", list(SECURE_CLIENTS))
def test_who_is_added_can_log_in_and_who_is_deleted_cannot(site, run, client, tmp_path):
    user = f"user-{client}"
    with pytest.raises(LoginRefused):
        site.roundtrip(client, user, SECRET)
    run("add", user, "--password-env", "ALICE")
    site.roundtrip(client, user, SECRET)
    with pytest.raises(LoginRefused):
        site.roundtrip(client, user, "wrong")
    file = tmp_path / "password"
    file.write_text("another\n")
    run("add", user, "--password-file", str(file))
    site.roundtrip(client, user, "another")
    with pytest.raises(LoginRefused):
        site.roundtrip(client, user, SECRET)
    run("delete", user)
    with pytest.raises(LoginRefused):
        site.roundtrip(client, user, "another")


@pytest.mark.promise(
    "access",
    "`penstock users` adds, lists and deletes users; passwords come from a prompt, a file or the "
    "environment and are not displayed",
)
def test_users_are_listed_with_their_mechanisms_and_never_with_a_secret(site, run):
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512")
    added = run(
        "add", "list-me", "--password-file", "-", *both, "--iterations", "8192", "--json", input=SECRET
    )
    expected = [("list-me", "SCRAM-SHA-256", 8192), ("list-me", "SCRAM-SHA-512", 8192)]
    assert rows(added) == expected
    assert [row for row in rows(run("list", "--json")) if row[0] == "list-me"] == expected
    assert "list-me" in run("list").stdout
    site.roundtrip("confluent", "list-me", SECRET, "SCRAM-SHA-256")
    run("delete", "list-me", "--mechanism", "SCRAM-SHA-256")
    assert [row for row in rows(run("list", "--json")) if row[0] == "list-me"] == expected[1:]
    assert "has no SCRAM-SHA-256" in run("delete", "list-me", "--mechanism", "SCRAM-SHA-256", expect=1).stderr
    run("delete", "list-me")


@pytest.mark.promise(
    "access",
    "`penstock users` adds, lists and deletes users; passwords come from a prompt, a file or the "
    "environment and are not displayed",
)
def test_a_password_is_typed_twice_at_a_terminal_and_does_not_show(site):
    command = [sys.executable, "-m", "penstock", "users", "add", "typed", "-b", site.bootstrap]
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    ) as process:
        os.close(terminal)
        shown = b""
        for prompt in (b"Password for typed: ", b"Again: "):
            while not shown.endswith(prompt):
                shown += os.read(controller, 1024)
            os.write(controller, SECRET.encode() + b"\n")
        try:
            while part := os.read(controller, 1024):
                shown += part
        except OSError:  # the terminal's other end is closed
            pass
        assert process.wait(30) == 0, shown
    os.close(controller)
    assert SECRET.encode() not in shown
    site.roundtrip("confluent", "typed", SECRET)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "x"), "give --password-file or --password-env"),
        (("add", "x", "--password-env", "NOBODY"), "the variable is not set"),
        (("add", "x", "--password-env", "ALICE", "--password-file", "-"), "not both"),
        (("add", "x", "--password-file", "-"), "on one line"),
        (("add", "x", "--password-env", "ALICE", "--iterations", "1"), "4096<=x<=16384"),
    ],
)
def test_what_is_wrong_with_a_password_is_said(run, arguments, message):
    assert message in run(*arguments, expect=2, input="").stderr


def test_an_unknown_user_cannot_be_deleted_and_gets_a_hint(run):
    run("add", "nearly", "--password-env", "ALICE")
    assert "Did you mean 'nearly'?" in run("delete", "nearlv", expect=1).stderr


@pytest.mark.promise(
    "access",
    "`penstock certs` creates certificates that clients and brokers accept; only their owner can read "
    "the keys",
)
def test_a_client_certificate_logs_in_on_a_mutual_listener_and_a_foreign_one_does_not(site, tmp_path):
    address = f"127.0.0.1:{site.ports[2]}"
    result = CliRunner().invoke(cli, ["certs", "create", str(tmp_path), "--client", "eve"])
    assert result.exit_code == 0 and f"client eve: {tmp_path / 'eve.pem'}" in result.stdout
    for client in SECURE_CLIENTS.values():
        client(address, "users", Login("SSL", site.certs / "ca.pem", own=site.certs / "alice.pem"))
        with pytest.raises(LoginRefused):
            client(address, "users", Login("SSL", site.certs / "ca.pem", own=tmp_path / "eve.pem"))


@pytest.mark.promise(
    "access",
    "`penstock certs` creates certificates that clients and brokers accept; only their owner can read "
    "the keys",
)
def test_keys_are_their_owners_alone_and_the_authority_stays(tmp_path):
    def create(*arguments, expect=0):
        result = CliRunner().invoke(cli, ["certs", "create", str(tmp_path / "c"), *arguments])
        assert result.exit_code == expect, result.output
        return result

    create("--client", "alice")
    for name in ("ca.key", "server.pem", "alice.pem"):
        assert stat.S_IMODE((tmp_path / "c" / name).stat().st_mode) == 0o600
    authority = (tmp_path / "c" / "ca.pem").read_bytes()
    create("--server", "kafka-1", "--host", "kafka-1.example")
    assert (tmp_path / "c" / "ca.pem").read_bytes() == authority
    assert (tmp_path / "c" / "kafka-1.pem").exists()
    for wrong in (("--client", "../x"), ("--client", "ca"), ("--client", "a", "--client", "a")):
        create(*wrong, expect=2)
    assert "neither a host name" in create("--host", "münchen", expect=1).stderr
    (tmp_path / "c" / "ca.key").unlink()
    assert "contains ca.pem but not ca.key" in create(expect=1).stderr


def test_a_line_of_a_users_file_has_a_salted_hash_that_counts(run, tmp_path):
    lines = [run("hash", "alice", "--password-env", "ALICE", "--role", "read").stdout for _ in range(2)]
    assert lines[0] != lines[1] and all(line.startswith("alice: pbkdf2_sha256:") for line in lines)
    (tmp_path / "users").write_text(lines[0])
    file = UsersFile(str(tmp_path / "users"), roles=("read",))
    assert asyncio.run(file.check("alice", SECRET)) == {"read"}
    assert asyncio.run(file.check("alice", "wrong")) is None
    assert json.loads(run("hash", "bob", "--password-env", "ALICE", "--json").stdout)["user"] == "bob"
    run("hash", "a:b", "--password-env", "ALICE", expect=2)


@pytest.mark.promise(
    "protocol",
    "With ssl.crl.location a client whose certificate is revoked fails in its next handshake, without a "
    "restart; the test authority revokes with `penstock certs revoke`",
)
@pytest.mark.parametrize("client", list(SECURE_CLIENTS))
def test_a_client_whose_certificate_is_revoked_is_refused_without_a_restart(site, client):
    def certs_command(*arguments):
        result = CliRunner().invoke(cli, ["certs", *arguments, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def roundtrip(name):
        login = Login("SSL", site.certs / "ca.pem", site.certs / f"{name}.pem")
        SECURE_CLIENTS[client](f"127.0.0.1:{site.ports[2]}", f"revoked-{client}", login)

    lost, kept = f"lost-{client}", f"kept-{client}"
    certs_command("create", str(site.certs), "--server", "unused", "--client", lost, "--client", kept)
    roundtrip(lost)
    before = certs_command("revoke", str(site.certs), lost)["revoked"]
    deadline = time.monotonic() + 120
    while not handshake_fails(site, lost):  # the broker checks the file every two seconds
        assert time.monotonic() < deadline
    with pytest.raises(LoginRefused):
        roundtrip(lost)
    roundtrip(kept)
    assert certs_command("revoke", str(site.certs), lost)["revoked"] == before


def handshake_fails(site, name):
    tls = ssl.create_default_context(cafile=site.certs / "ca.pem")
    tls.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3 only the first read shows it
    tls.load_cert_chain(site.certs / f"{name}.pem")
    with socket.create_connection(("127.0.0.1", site.ports[2])) as raw:
        try:
            tls.wrap_socket(raw, server_hostname="127.0.0.1").close()
        except ssl.SSLError as error:
            assert error.reason == "SSLV3_ALERT_CERTIFICATE_REVOKED"
            return True
    return False


def test_only_certificates_of_the_authority_can_be_revoked(certs, tmp_path):
    def refused(*arguments):
        result = CliRunner().invoke(cli, ["certs", "revoke", *map(str, arguments)])
        assert result.exit_code == 1, result.output
        return result.output

    assert CliRunner().invoke(cli, ["certs", "create", str(tmp_path / "other")]).exit_code == 0
    assert "is not a certificate of" in refused(certs, tmp_path / "other" / "server.pem")
    assert "No such file" in refused(certs, "nobody")
    assert "has no authority" in refused(tmp_path, "alice")
    assert list(tmp_path.iterdir()) == [tmp_path / "other"]
