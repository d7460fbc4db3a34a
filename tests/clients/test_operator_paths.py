"""/health, /ready and /metrics of all processes of `penstock up`: the same paths, the same answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

PROCESSES = {
    "broker": "kafka_server_brokertopicmetrics_messagesin",
    "registry": "penstock_registry",
    "connect": "kafka_connect_workers",
    "console": "process_resident_memory_bytes",
}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("up")
    command = [sys.executable, "-m", "penstock", "up", "--json", "--port", "0", "--data", str(directory)]
    command += ["--registry-port", "0", "--connect-port", "0", "--console-port", "0"]
    with (directory / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (directory / "up.log").read_text()
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@pytest.mark.promise("http", "Every process serves /health, /ready and /metrics in the same format")
@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_has_health_ready_and_metrics(ready: dict[str, Any], name: str) -> None:
    url = ready["brokers"][0]["metrics"].removesuffix("/metrics") if name == "broker" else ready[name]
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        for path, status in (("/health", "healthy"), ("/ready", "ready")):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["status"]) == (200, status)
            assert answer.headers["content-type"].startswith("application/json")
            assert http.head(path).content == b""
            foreign = {"host": "evil.example"}
            assert http.get(path, headers=foreign).status_code in (400, 403, 421)
        metrics = http.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = [each.name for each in text_string_to_metric_families(metrics.text)]
        assert any(each.startswith(PROCESSES[name]) for each in families), families
        assert "process_resident_memory_bytes" in families
        assert len(families) == len(set(families))
