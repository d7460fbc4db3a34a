"""Every HTTP server of the package is behind a guard."""

from __future__ import annotations

import ast
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

import penstock
from penstock.web.metrics import serve_metrics

SERVERS = ("uvicorn", "http.server", "wsgiref", "aiohttp.web", "socketserver", "hypercorn")


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
    server = serve_metrics(registry, 0)
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


def test_a_metrics_port_answers_prometheus_and_no_web_page(metrics):
    assert ask(metrics) == (200, "# HELP g A gauge.\n# TYPE g gauge\ng 7.0\n")
    status, text = ask(metrics, Host="evil.example")
    assert status == 403 and "g 7.0" not in text and "evil.example" in text
    status, text = ask(metrics, Origin="http://evil.example")
    assert status == 403 and "g 7.0" not in text
    assert ask(metrics, "POST", b"x", Content_Type="text/plain")[0] == 415
    assert ask(metrics, "POST", b"", Sec_Fetch_Site="cross-site")[0] == 403
