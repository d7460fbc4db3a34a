"""`penstock connect table`: a table of a topic with a registered schema, through kill -9 of the worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.testing import PenstockBroker
from tests.connect.conftest import Workers, until
from tests.registry.conftest import Registries, RegistryProcess

WAIT_SECONDS = 200.0  # the libraries of both formats take seconds of processor time to start
ID: dict[str, Any] = {"name": "id", "type": "int"}
NOTE: dict[str, Any] = {"name": "note", "type": ["null", "string"], "default": None}


@pytest.fixture(scope="module")
def registry(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path_factory.mktemp("registry"))
    yield started.start(broker.bootstrap)
    started.close()


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def produce(
    bootstrap: str, registry: str, topic: str, fields: list[dict[str, Any]], values: list[dict[str, Any]]
) -> None:
    client: Any = SchemaRegistryClient({"url": registry})
    serialize = AvroSerializer(client, json.dumps({"type": "record", "name": "Item", "fields": fields}))
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        key = str(value["id"])
        producer.produce(topic, serialize(value, context), key, partition=value["id"] % 2)
    assert producer.flush(60) == 0


def produce_and_abort(bootstrap: str, registry: str, topic: str) -> None:
    client: Any = SchemaRegistryClient({"url": registry})
    serialize = AvroSerializer(client, json.dumps({"type": "record", "name": "Item", "fields": [ID]}))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    value = serialize({"id": 1000}, SerializationContext(topic, MessageField.VALUE))
    producer.produce(topic, value, "aborted", partition=0)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


def rows(kind: str, root: Path, topic: str) -> list[dict[str, Any]]:
    if kind == "delta":
        path = root / topic
        return DeltaTable(str(path)).to_pyarrow_table().to_pylist() if (path / "_delta_log").exists() else []
    if not (root / "catalog.db").exists():
        return []
    catalog = load_catalog("penstock", type="sql", uri=f"sqlite:///{root}/catalog.db")
    name = ("default", topic.replace("-", "_"))
    return catalog.load_table(name).scan().to_arrow().to_pylist() if catalog.table_exists(name) else []


@pytest.mark.timeout(800)
@pytest.mark.promise("connect", "Tables: after crashes and takeovers at any point, each record is there once")
@pytest.mark.promise(
    "connect", "`penstock connect table` writes a topic to a table with the columns of its registered schema"
)
@pytest.mark.promise("connect", "`penstock connect table` leaves out records of aborted transactions")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_follows_its_topic_and_schema_through_kill_9(
    broker: PenstockBroker, registry: RegistryProcess, workers: Workers, tmp_path: Path, name: str, kind: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    worker = workers.start(broker.bootstrap)
    root = tmp_path / "tables"
    command = ["connect", "table", name, "--format", kind, "--to", str(root), "--url", worker.url]
    command += ["--registry", registry.url, "tasks.max=2", "flush.size=40"]
    refused = penstock(*command)
    assert refused.returncode != 0 and f"No schema is registered for topic {name}" in refused.stderr

    produce(broker.bootstrap, registry.url, name, [ID], [{"id": number} for number in range(200)])
    produce_and_abort(broker.bootstrap, registry.url, name)
    made = penstock(*command)
    assert made.returncode == 0, made.stderr
    until(
        lambda: len(rows(kind, root, name)) > 20,
        "the first rows are there",
        lambda: worker.log.read_text(),
        WAIT_SECONDS,
    )
    worker.kill()
    produce(
        broker.bootstrap, registry.url, name, [ID, NOTE],
        [{"id": number, "note": f"n{number}"} for number in range(200, 400)],
    )  # fmt: skip
    again = workers.start(broker.bootstrap)
    until(
        lambda: len(rows(kind, root, name)) >= 400,
        "all rows are there",
        lambda: (
            f"{len(rows(kind, root, name))} {again.status(f'table-{name}')} {again.log.read_text()[-3000:]}"
        ),
        WAIT_SECONDS,
    )
    found = sorted(rows(kind, root, name), key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(400))
    assert [row["note"] for row in found] == [None] * 200 + [f"n{number}" for number in range(200, 400)]
    assert all(row["kafka_key"] == str(row["id"]) for row in found)
    assert all(row["kafka_partition"] == row["id"] % 2 for row in found)
    again.http.delete(f"/connectors/table-{name}")
