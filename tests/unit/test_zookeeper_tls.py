"""TLS to ZooKeeper: who is trusted, and when a broker warns that its password is not protected."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.metadata.zookeeper import ZooKeeperStore
from tests.certificates import Authority


@contextlib.contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """Shakes hands with each that connects, and closes the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return
            with plain, contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as shaken:
                shaken.send(b"x")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def connect(port: int, **stores: str | None) -> bytes:
    """As kazoo connects for this store."""
    client = ZooKeeperStore(f"127.0.0.1:{port}", tls=True, **stores)._client
    made = client.handler.create_connection(
        address=("127.0.0.1", port), hostname="127.0.0.1", timeout=30, use_ssl=client.use_ssl,
        keyfile=client.keyfile, certfile=client.certfile, ca=client.ca,
        keyfile_password=client.keyfile_password, verify_certs=client.verify_certs,
        check_hostname=client.check_hostname,
    )  # fmt: skip
    with made:
        received: bytes = made.recv(1)
        return received


@pytest.mark.promise("access", "Only the truststore decides which ZooKeeper servers are trusted")
def test_with_a_truststore_the_authorities_of_the_machine_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, ours = Authority("machine"), Authority("ours")
    for name, authority in (("machine.pem", machine), ("ours.pem", ours)):
        (tmp_path / name).write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "machine.pem"))
    truststore = str(tmp_path / "ours.pem")
    with tls_server(machine.server(tmp_path, "127.0.0.1")) as port:
        assert connect(port) == b"x"
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(port, truststore=truststore)
    with tls_server(ours.server(tmp_path, "127.0.0.1")) as port:
        assert connect(port, truststore=truststore) == b"x"
    with tls_server(ours.server(tmp_path, "zookeeper.example")) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(port, truststore=truststore)


@pytest.mark.promise("access", "Only the truststore decides which ZooKeeper servers are trusted")
def test_a_broker_shows_its_certificate_to_zookeeper(tmp_path: Path) -> None:
    ours = Authority("ours")
    certificate, key = ours.issue("broker")
    keystore, truststore = tmp_path / "broker.pem", tmp_path / "ours.pem"
    keystore.write_text(key + certificate)
    truststore.write_text(ours.pem)
    with tls_server(ours.server(tmp_path, "127.0.0.1", clients=ours)) as port:
        assert connect(port, keystore=str(keystore), truststore=str(truststore)) == b"x"
        with pytest.raises(OSError):
            connect(port, truststore=str(truststore))


@pytest.mark.parametrize(
    ("hosts", "tls", "warns"),
    [
        ("10.0.0.1:2181", False, True),
        ("127.0.0.1:2181,zookeeper.example:2181/penstock", False, True),
        ("127.0.0.1:2181,[::1]:2181,localhost:2181/penstock", False, False),
        ("10.0.0.1:2181", True, False),
    ],
)
def test_a_password_that_crosses_the_network_in_plain_text_is_warned_of(
    hosts: str, tls: bool, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        ZooKeeperStore(hosts, auth="penstock:planted-secret", tls=tls)
    assert ("zookeeper.ssl.client.enable" in caplog.text) is warns
    assert "planted-secret" not in caplog.text
