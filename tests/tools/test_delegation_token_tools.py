"""kafka-delegation-tokens and Kafka's Java clients: a token is made, described, used, renewed and expired."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from tests.tools.conftest import KafkaTools

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def properties(path: Path, user: str, password: str, more: str = "") -> str:
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={MODULE} username="{user}" password="{password}"{more};\n'
    )
    return str(path)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    port, plain = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            f'{MODULE} username="alice" password="wonder";'
        ),
        "delegation.token.secret.key": "token-secret",
    }
    with PenstockBroker(settings):
        yield f"127.0.0.1:{port}"


@pytest.mark.promise(
    "access",
    "`kafka-delegation-tokens` and Kafka's Java clients work with delegation tokens (tested where Maven "
    "Central can be reached)",
)
def test_kafkas_tool_and_java_clients_use_delegation_tokens(
    kafka_tools: KafkaTools, bootstrap: str, tmp_path: Path
) -> None:
    alice = properties(tmp_path / "alice.properties", "alice", "wonder")

    def tokens(*arguments: str, ok: bool = True, config: str = alice) -> str:
        return kafka_tools.run(
            "kafka-delegation-tokens", "--bootstrap-server", bootstrap, "--command-config", config,
            *arguments, ok=ok,
        )  # fmt: skip

    created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"([0-9a-f]{8}-[0-9a-f-]{27})\s+(\S+)\s+User:alice", created)
    assert found, created
    token_id, hmac = found.groups()
    assert token_id in tokens("--describe", "--owner-principal", "User:alice")

    by_token = properties(tmp_path / "token.properties", token_id, hmac, ' tokenauth="true"')
    console = ("--bootstrap-server", bootstrap, "--topic", "by-token")
    kafka_tools.run("kafka-console-producer", *console, "--producer.config", by_token, input="with a token\n")
    read = kafka_tools.run(
        "kafka-console-consumer", *console, "--from-beginning", "--max-messages", "1",
        "--timeout-ms", "30000", "--consumer.config", by_token,
    )  # fmt: skip
    assert "with a token" in read
    refused = tokens("--create", "--max-life-time-period", "-1", ok=False, config=by_token)
    assert "DelegationTokenDisabled" in refused or "not allowed" in refused, refused

    tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in tokens("--describe", "--owner-principal", "User:alice")
    out = kafka_tools.run(
        "kafka-console-consumer", *console, "--from-beginning", "--max-messages", "1",
        "--timeout-ms", "10000", "--consumer.config", by_token, ok=False,
    )  # fmt: skip
    assert "Authentication failed" in out, out
