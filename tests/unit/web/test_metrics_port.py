"""The metrics port runs inside of brokers: what a client does to it costs them little, and not for long."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from penstock.web.access import AccessSettings
from penstock.web.metrics import MetricsSettings, _Port, serve_metrics
from tests.certificates import Authority


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Gauge("g", "A gauge.", registry=made).set(7)
    return made


@pytest.fixture
def port(registry: CollectorRegistry) -> Iterator[int]:
    server = serve_metrics(registry, MetricsSettings(0))
    yield server.server_port
    server.shutdown()
    server.server_close()


def client(port: int, **more: object) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60, **more)  # type: ignore[arg-type]


@pytest.mark.promise(
    "http", "Requests to a metrics port use a limited number of threads, sockets and loggers"
)
@pytest.mark.parametrize("body", [b"[" * 4096, b'{"level":' * 400, b"\xff", b"{}", b'"DEBUG"'])
def test_a_body_that_is_no_level_is_a_bad_request(port: int, body: bytes) -> None:
    json = {"content-type": "application/json"}
    with client(port) as http:
        answer = http.put("/admin/loggers/root", content=body, headers=json)
        assert answer.status_code == 400 and answer.json()["message"]
        assert http.get("/metrics").status_code == 200


@pytest.mark.promise(
    "http", "Requests to a metrics port use a limited number of threads, sockets and loggers"
)
def test_names_of_loggers_that_no_code_has_make_none(port: int) -> None:
    before = set(logging.root.manager.loggerDict)
    with client(port) as http:
        for number in range(20):
            answer = http.put(f"/admin/loggers/made.up.{number}", json={"level": "INFO"})
            assert answer.status_code == 404 and "not found" in answer.json()["message"]
    made = {each for each in set(logging.root.manager.loggerDict) - before if each.startswith("made")}
    assert made == set()


@pytest.mark.promise(
    "http", "Requests to a metrics port use a limited number of threads, sockets and loggers"
)
def test_clients_that_say_nothing_hold_few_threads_and_keep_nobody_out(port: int) -> None:
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * _Port.most_connections)]
    try:
        for each in silent[::2]:
            each.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Never:")
        with client(port) as http:
            assert http.get("/metrics").status_code == 200
        for each in silent[: -_Port.most_connections]:  # the oldest have made room
            each.settimeout(60)
            assert each.recv(1024) == b""
        assert threading.active_count() <= before + _Port.most_connections + 2
    finally:
        for each in silent:
            each.close()


@pytest.mark.promise(
    "http", "An HTTP server uses a changed certificate for new connections, without a restart"
)
def test_a_metrics_port_takes_a_changed_certificate(
    registry: CollectorRegistry,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Port, "certificate_seconds", 0.0)
    authority, file = Authority(), tmp_path / "server.pem"

    def issue() -> bytes:
        certificate, key = authority.issue("127.0.0.1")
        file.write_text(key + certificate)
        return ssl.PEM_cert_to_DER_cert(certificate)

    first = issue()
    server = serve_metrics(registry, MetricsSettings(0, certificate=str(file)))

    def shown() -> bytes | None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", server.server_port)) as plain:
            with context.wrap_socket(plain) as connection:
                return connection.getpeercert(binary_form=True)

    try:
        assert shown() == first
        file.write_text("no certificate")
        assert shown() == first and "keeping the current one" in caplog.text
        second = issue()
        assert shown() == second != first
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.promise(
    "access",
    "Failed logins, password hashing and requests are rate-limited; hashing does not run on the event loop",
)
def test_a_metrics_port_limits_the_rate(registry: CollectorRegistry) -> None:
    server = serve_metrics(registry, MetricsSettings(0, AccessSettings(rate=0.001)))
    try:
        with client(server.server_port) as http:
            assert [http.get("/health").status_code for _ in range(2)] == [200, 429]
    finally:
        server.shutdown()
        server.server_close()
