"""The metrics port of a broker: what Prometheus reads there, health, and log levels."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.doc_blocks import commands
from tests.doc_shell import Shell

PATIENCE = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the ready file has of it."""
    data = tmp_path_factory.mktemp("data")
    words = ("up", "--json", "--port", "0", "--data", str(data), "--no-registry", "--no-connect")
    process = subprocess.Popen([sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def request(
    broker: dict[str, Any], path: str, method: str = "GET", body: object = None, **headers: str
) -> tuple[int, bytes]:
    url = broker["brokers"][0]["metrics"].removesuffix("/metrics") + path
    data = None if body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json"} if data else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, {**sent, **headers}, method=method), timeout=PATIENCE
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def scrape(broker: dict[str, Any]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    status, text = request(broker, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def named(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.mark.promise(
    "operations",
    "A broker serves metrics for Prometheus, with the names that the JMX exporter gives to Kafka's metrics",
)
def test_records_bytes_requests_and_lag_are_counted(broker: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": broker["bootstrap"]})
    for number in range(500):
        producer.produce("counted", f"record {number}")
    assert producer.flush(PATIENCE) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker["bootstrap"], "group.id": "readers", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("counted", 0, 0)])
    read: list[Any] = []
    while len(read) < 500:
        read += consumer.consume(500 - len(read), 1.0)
    consumer.commit(offsets=[TopicPartition("counted", 0, 400)], asynchronous=False)
    consumer.close()

    found = scrape(broker)
    of_topic = "kafka_server_brokertopicmetrics_"
    assert found[named(f"{of_topic}messagesin_total", topic="counted")] == 500
    size = found[named("kafka_log_log_size", topic="counted", partition="0")]
    assert found[named(f"{of_topic}bytesin_total", topic="counted")] == size > 5000
    assert found[named(f"{of_topic}bytesout_total", topic="counted")] >= size
    assert found[named("kafka_log_log_logendoffset", topic="counted", partition="0")] == 500
    member = {"consumergroup": "readers", "topic": "counted", "partition": "0"}
    assert found[named("kafka_consumergroup_current_offset", **member)] == 400
    assert found[named("kafka_consumergroup_lag", **member)] == 100

    requests = found[named("kafka_network_requestmetrics_requests_total", request="Produce")]
    for phase in ("total", "local"):
        name = f"kafka_network_requestmetrics_{phase}timems"
        assert found[named(f"{name}_count", request="Produce")] == requests >= 1
        assert found[named(f"{name}_bucket", request="Produce", le="+Inf")] == requests
        assert found[named(f"{name}_sum", request="Produce")] > 0
    # A fetch that waits for records takes longer than the work for it.
    fetches = [
        found[named(f"kafka_network_requestmetrics_{one}timems_sum", request="Fetch")]
        for one in ("total", "local")
    ]
    assert fetches[0] > fetches[1]
    assert found[named("kafka_controller_kafkacontroller_activecontrollercount")] == 1
    assert found[named("kafka_server_replicamanager_underreplicatedpartitions")] == 0
    assert found[named("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT")] >= 1
    assert found[named("process_resident_memory_bytes")] > 10e6


@pytest.mark.promise("docs", "The commands of metrics.md run as printed")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_run(broker: dict[str, Any]) -> None:
    here = broker["brokers"][0]["metrics"].removesuffix("/metrics")
    shell = Shell(Path.cwd(), instead={"http://127.0.0.1:9404": here})
    printed = "".join(shell.run(line) for line in commands("docs/metrics.md"))
    assert "kafka_server_brokertopicmetrics_messagesin" in printed
    assert '{"status": "healthy"}' in printed


def test_a_batch_that_is_rejected_is_counted_as_such(broker: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": broker["bootstrap"], "message.max.bytes": 3_000_000})
    errors: list[object] = []
    producer.produce("too-large", b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE)
    assert errors[0] is not None
    found = scrape(broker)
    of_topic = "kafka_server_brokertopicmetrics_"
    assert found[named(f"{of_topic}failedproducerequests_total", topic="too-large")] >= 1
    assert named(f"{of_topic}messagesin_total", topic="too-large") not in found


@pytest.mark.promise(
    "operations", "The log levels of a running broker can be changed through `/admin/loggers`, as in Connect"
)
def test_levels_of_loggers_are_shown_and_changed(broker: dict[str, Any]) -> None:
    name = "/admin/loggers/penstock.broker.topics"
    assert request(broker, name, "PUT", {"level": "debug"})[0] == 200
    assert json.loads(request(broker, name)[1])["level"] == "DEBUG"
    assert "penstock.broker.topics" in json.loads(request(broker, "/admin/loggers")[1])
    assert request(broker, name, "PUT", {"level": "loud"}) == (
        404,
        b'{"message": "invalid log level \'loud\'."}\n',
    )
    assert request(broker, name, "PUT", ["debug"])[0] == 400
    assert request(broker, "/admin/loggers/nobody")[0] == 404


def test_health_and_readiness_are_served_and_nothing_else_is(broker: dict[str, Any]) -> None:
    assert request(broker, "/health") == (200, b'{"status": "healthy"}\n')
    assert request(broker, "/ready") == (200, b'{"status": "ready"}\n')
    assert request(broker, "/")[0] == 404
    assert request(broker, "/metrics", "DELETE")[0] == 405


DEPLOYED = ("deploy/prometheus/alerts.yml", "deploy/grafana/penstock-brokers.json")


@pytest.mark.parametrize("file", DEPLOYED)
def test_dashboard_and_alerts_use_metrics_that_a_broker_has(broker: dict[str, Any], file: str) -> None:
    families = text_string_to_metric_families(request(broker, "/metrics")[1].decode())
    known = {name for family in families for name in (family.name, f"{family.name}_total")}
    used = set(re.findall(r"\b(?:kafka|penstock|process)_[a-z0-9_]+", Path(file).read_text()))
    assert {name.removesuffix("_bucket") for name in used} - known == set()


def test_promtool_accepts_the_alert_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    found = subprocess.run(["promtool", "check", "rules", DEPLOYED[0]], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_page_of_another_site_changes_nothing(broker: dict[str, Any]) -> None:
    origin = {"origin": "http://evil.example"}
    assert request(broker, "/admin/loggers/root", "PUT", {"level": "OFF"}, **origin)[0] == 403
    assert request(broker, "/metrics", host="evil.example")[0] == 403


def test_a_metrics_port_that_is_taken_is_named(broker: dict[str, Any], tmp_path: Path) -> None:
    taken = broker["brokers"][0]["metrics"].split("/")[2]
    words = ("broker", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={tmp_path}")
    found = subprocess.run(
        [sys.executable, "-m", "penstock", *words, "--set", f"penstock.metrics.listener={taken}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert found.returncode == 1
    assert f"cannot serve metrics on {taken}: Address already in use" in found.stderr
