"""Apache Kafka's own Connect worker, on the broker of the tests, and its answers for comparison."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.testing.ports import free_port
from tests.tools import kafka_jars

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
START_SECONDS = 180.0


@contextmanager
def apache_connect(bootstrap: str, directory: Path) -> Iterator[httpx.Client]:
    try:
        jars = kafka_jars.fetch_connect()
        # Its worker sets the levels of Log4j's loggers, and Log4j is among the jars of the tools.
        logging = sorted(str(each) for each in kafka_jars.fetch().glob("log4j-*.jar"))
    except kafka_jars.NotFetched as error:
        pytest.skip(str(error))
    port = free_port()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "apache",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.flush.interval.ms": "200",
        "plugin.discovery": "service_load",
    }
    for kind in ("offset", "config", "status"):
        settings[f"{kind}.storage.topic"] = f"apache-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    path = directory / "worker.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["java", *kafka_jars.JVM_FLAGS, "-cp", ":".join([f"{jars}/*", *logging])]
            + ["org.apache.kafka.connect.cli.ConnectDistributed", str(path)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90.0, trust_env=False)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if client.get("/connectors").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            assert process.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()[
                -3000:
            ]
            time.sleep(0.2)
        yield client
    finally:
        client.close()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answer(client: httpx.Client, method: str, path: str, body: Any) -> tuple[int, Any]:
    """Status and body, without what must differ: versions, addresses, and where Java has its classes."""
    found = client.request(method, path, json=body) if body is not None else client.request(method, path)
    text = re.sub(r"127\.0\.0\.1:\d+", "WORKER", found.text)
    text = re.sub(r'"(version|commit)":"[^"]+"', r'"\1":"V"', text)
    text = re.sub(r'"last_modified":\d+', '"last_modified":"SOME TIME"', text)
    text = re.sub(r'"task.class":"[^"]+"', '"task.class":"T"', text)
    text = re.sub(r"available connectors are: .*?\"", 'available connectors are: "', text)
    return found.status_code, json.loads(text) if text else None
