"""`penstock up` with its registry, used by confluent-kafka's own client and serializers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.registry.conftest import wait_until


class Up:
    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--json", "--no-connect", *options]
        with (directory / "up.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        assert line, (directory / "up.log").read_text()
        self.ready = json.loads(line)

    def registry_pid(self) -> int:
        (pid,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(pid)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            self.process.stdout.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    running = Up(tmp_path_factory.mktemp("up"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(up):
    return SchemaRegistryClient({"url": up.ready["registry"]})


AVRO = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "what", "type": "string"}]})  # fmt: skip
JSON = json.dumps({"title": "Order", "type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer"}, "what": {"type": "string"}}})  # fmt: skip


def order_message():
    """The class that protoc would make of an Order."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    order.field.add(name="what", number=2, type="TYPE_STRING", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def through_the_broker(up, topic: str, data: bytes) -> bytes:
    producer = Producer({"bootstrap.servers": up.ready["bootstrap"]})
    producer.produce(topic, data)
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": up.ready["bootstrap"], "group.id": topic,
                         "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None and message.error() is None
    return message.value()


@pytest.mark.promise(
    "registry", "confluent-kafka's client and its Avro, JSON and Protobuf serializers work unchanged"
)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_confluents_serializers_work_unchanged(up, client, kind):
    topic = f"orders-{kind}"
    context = SerializationContext(topic, MessageField.VALUE)
    order = {"id": 17, "what": "two apples"}
    if kind == "avro":
        serialize, deserialize = AvroSerializer(client, AVRO), AvroDeserializer(client)
    elif kind == "json":
        serialize = JSONSerializer(JSON, client)
        deserialize = JSONDeserializer(JSON, schema_registry_client=client)
    else:
        message = order_message()
        order = message(id=17, what="two apples")
        settings = {"use.deprecated.format": False}
        serialize = ProtobufSerializer(message, client, settings)
        deserialize = ProtobufDeserializer(message, settings, client)
    data = through_the_broker(up, topic, serialize(order, context))
    assert deserialize(data, context) == order
    (version,) = client.get_versions(f"{topic}-value")
    assert client.get_version(f"{topic}-value", version).schema_id == int.from_bytes(data[1:5], "big")


@pytest.mark.promise(
    "registry", "confluent-kafka's client and its Avro, JSON and Protobuf serializers work unchanged"
)
def test_confluents_client_does_all_it_can(client):
    schema = Schema(AVRO, "AVRO")
    schema_id = client.register_schema("c", schema)
    assert client.get_schema(schema_id).schema_type == "AVRO"
    assert json.loads(client.get_schema(schema_id).schema_str) == json.loads(AVRO)
    registered = client.register_schema_full_response("c", schema)
    assert registered.schema_id == schema_id and registered.guid
    assert client.lookup_schema("c", schema).schema_id == schema_id
    assert client.get_latest_version("c").version == 1
    assert "c" in client.get_subjects()
    assert client.test_compatibility("c", schema)
    client.set_compatibility("c", "FULL")
    assert client.get_compatibility("c") == "FULL"
    referring = Schema(
        json.dumps({"type": "array", "items": "Order"}), "AVRO", [SchemaReference("Order", "c", 1)]
    )
    client.register_schema("d", referring)
    assert client.get_latest_version("d").schema.references[0].subject == "c"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("c", Schema('"int"', "AVRO"))
    assert refused.value.http_status_code == 409
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version("none")
    assert missing.value.error_code == 40401
    assert client.delete_subject("d") == [1]
    assert client.delete_subject("d", permanent=True) == [1]


@pytest.mark.promise("registry", "kill -9 and a restart keep every schema and id")
@pytest.mark.timeout(180)
def test_a_registry_that_crashes_is_started_again_with_its_schemas(up, client):
    schema_id = client.register_schema("crash", Schema('"bytes"', "AVRO"))
    before = up.registry_pid()
    os.kill(before, signal.SIGKILL)

    def answers() -> bool:
        try:
            return httpx.get(f"{up.ready['registry']}/subjects", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(lambda: answers() and up.registry_pid() != before)
    url = up.ready["registry"]
    assert httpx.get(f"{url}/schemas/ids/{schema_id}", trust_env=False).json() == {"schema": '"bytes"'}
    body = {"schema": '"double"'}
    answer = httpx.post(f"{url}/subjects/crash2/versions", json=body, trust_env=False, timeout=60)
    assert answer.json()["id"] > schema_id


@pytest.mark.timeout(180)
def test_the_registry_ends_with_up_even_if_that_is_killed(tmp_path):
    running = Up(tmp_path)
    pid = running.registry_pid()
    running.process.kill()
    running.process.wait()
    running.process.stdout.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_port_that_is_taken_is_said_and_no_registry_can_be_asked_for(up, tmp_path):
    port = up.ready["registry"].rpartition(":")[2]
    command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--no-connect"]
    refused = subprocess.run(
        [*command, "--registry-port", port], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 1 and port in refused.stderr and "the port is in use" in refused.stderr
    without = Up(tmp_path, "--no-registry")
    assert "registry" not in without.ready
    assert without.stop() == 0
