"""Kafka's own tools on `penstock up --secure`, with the file that it writes for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.secure_up import SecureUp
from tests.tools.conftest import KafkaTools


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureUp]:
    running = SecureUp(tmp_path_factory.mktemp("secure"), "--no-registry")
    yield running
    running.stop()


@pytest.mark.promise(
    "access",
    "`penstock up --secure` writes a client file that logs in with librdkafka, kafka-python, aiokafka, "
    "Kafka's tools and every command",
)
def test_kafkas_tools_log_in_as_the_administrator(kafka_tools: KafkaTools, up: SecureUp) -> None:
    where = ("--bootstrap-server", up.ready["bootstrap"])
    config = up.ready["client_config_java"]
    kafka_tools.run("kafka-topics", "--create", "--topic", "java", *where, "--command-config", config)
    kafka_tools.run(
        *("kafka-console-producer", "--topic", "java", *where, "--producer.config", config), input="hello\n"
    )
    read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
    said = kafka_tools.run(
        "kafka-console-consumer", "--topic", "java", *read, *where, "--consumer.config", config
    )
    assert "hello" in said
    user = ("--entity-type", "users", "--entity-name", "bob")
    kafka_tools.run(
        *("kafka-configs", "--alter", "--add-config", "SCRAM-SHA-512=[password=builder]", *user, *where),
        *("--command-config", config),
    )
    acl = ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "java")
    kafka_tools.run("kafka-acls", *acl, *where, "--command-config", config)
    bob = ("-X", "sasl.username=bob", "-X", "sasl.password=builder")
    assert up.penstock("consume", "java", "--client-config", up.ready["client_config"], *bob) == "hello\n"


def test_a_wrong_password_is_refused(kafka_tools: KafkaTools, up: SecureUp, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    right = Path(up.ready["client_config_java"]).read_text()
    wrong.write_text(right.replace(up.client["sasl.password"], "wrong"))
    where = ("--bootstrap-server", up.ready["bootstrap"], "--command-config", str(wrong))
    said = kafka_tools.run("kafka-topics", "--list", *where, ok=False)
    assert "SaslAuthenticationException" in said
