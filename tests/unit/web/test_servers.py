"""Every HTTP server of the package is behind a guard."""

from __future__ import annotations

import ast
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

import penstock
from penstock.web.access import AccessSettings
from penstock.web.guard import SECURE_HEADERS
from penstock.web.metrics import MetricsSettings, serve_metrics
from tests.certificates import Authority

SERVERS = ("uvicorn", "http.server", "wsgiref", "aiohttp.web", "socketserver", "hypercorn")


@pytest.mark.promise("http", "All modules serve HTTP through `penstock.web`")
def test_no_module_but_those_of_web_serves_http():
    """A new endpoint goes through `penstock.web`, where its guard is."""
    root = Path(penstock.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.is_relative_to(root / "web"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
            bad = [each for each in names if each.startswith(SERVERS) or each.endswith("start_http_server")]
            found += [f"{path.relative_to(root)}: {each}" for each in bad]
    assert found == []


@pytest.fixture
def metrics():
    registry = CollectorRegistry()
    Gauge("g", "A gauge.", registry=registry).set(7)
    server = serve_metrics(registry, MetricsSettings(0))
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def ask(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, named, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.promise(
    "http",
    "A request body must have a JSON content type, and Origin and Sec-Fetch-Site must be the server's "
    "own or allowed",
)
def test_a_metrics_port_answers_prometheus_and_no_web_page(metrics):
    assert ask(metrics) == (200, "# HELP g A gauge.\n# TYPE g gauge\ng 7.0\n")
    status, text = ask(metrics, Host="evil.example")
    assert status == 403 and "g 7.0" not in text and "evil.example" in text
    status, text = ask(metrics, Origin="http://evil.example")
    assert status == 403 and "g 7.0" not in text
    assert ask(metrics, "POST", b"x", Content_Type="text/plain")[0] == 415
    assert ask(metrics, "POST", b"", Sec_Fetch_Site="cross-site")[0] == 403


@pytest.fixture
def secured_metrics(tmp_path):
    certificate, key = Authority().issue("127.0.0.1")
    (tmp_path / "server.pem").write_text(key + certificate)
    (tmp_path / "users").write_text("prometheus: pear, read\n")
    registry = CollectorRegistry()
    Gauge("g", "A gauge.", registry=registry).set(7)
    access = AccessSettings(users_file=str(tmp_path / "users"))
    server = serve_metrics(registry, MetricsSettings(0, access, str(tmp_path / "server.pem")))
    yield server.server_port, certificate
    server.shutdown()
    server.server_close()


@pytest.mark.promise(
    "access",
    "A request or statement is executed only for users with the role that it needs: registry, SQL, metrics",
)
def test_metrics_with_users_and_tls_are_for_users_over_tls(secured_metrics):
    port, certificate = secured_metrics
    trusted = ssl.create_default_context()
    trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
    with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted, trust_env=False) as http:
        refused = http.get("/metrics")
        assert refused.status_code == 401 and "g 7.0" not in refused.text
        assert refused.headers["www-authenticate"] == 'Basic realm="penstock metrics"'
        assert http.get("/metrics", auth=("prometheus", "apple")).status_code == 401
        answer = http.get("/metrics", auth=("prometheus", "pear"))
        assert answer.status_code == 200 and "g 7.0" in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert http.get("/metrics", headers={"host": "evil.example"}).status_code == 403
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)


def test_a_connection_that_says_nothing_does_not_hold_up_others(secured_metrics):
    port, _ = secured_metrics
    trusted = ssl.create_default_context()
    trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)):
        answer = httpx.get(
            f"https://127.0.0.1:{port}/metrics", verify=trusted, trust_env=False, auth=("prometheus", "pear")
        )
        assert answer.status_code == 200


@pytest.mark.promise(
    "http", "Every response has the security headers, also one to a request that cannot be read"
)
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"NO HTTP AT ALL HERE\r\n\r\n", b"400"),
        (b"GET / HTTP/7.0\r\n\r\n", b"505"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
    ],
)
def test_responses_of_a_metrics_port_have_the_security_headers(metrics, request_, status):
    with socket.create_connection(("127.0.0.1", int(metrics.split(":")[2].split("/")[0]))) as client:
        client.sendall(request_)
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(65536)
            assert part, head
            head += part
    lines = head.partition(b"\r\n\r\n")[0].lower().splitlines()
    assert lines[0].split()[1] == status
    for name, value in SECURE_HEADERS:
        assert lines.count((name + b": " + value).lower()) == 1
    assert b"python" not in head.lower()
