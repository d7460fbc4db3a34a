"""A login that the broker refuses: each command names it, instead of a cluster that does not answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port

COMMANDS = [
    ("topics", "list"),
    ("topics", "create", "t", "--timeout", "2"),
    ("produce", "t"),
    ("consume", "t"),
    ("consume", "t", "--group", "g"),
    ("offsets", "t"),
    ("groups", "list"),
    ("groups", "lag", "g", "--timeout", "2"),
    ("cluster", "describe"),
    ("transactions", "list"),
    ("users", "list"),
    ("acls", "list"),
    ("quotas", "list"),
    ("registry", "--port", "0"),
]
LOGIN = "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=alice"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    port, plain = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="wonder" user_alice="wonder";'
        ),
        "connection.failed.authentication.delay.ms": "10",
    }
    with PenstockBroker(settings):
        yield f"127.0.0.1:{port}"


@pytest.mark.promise(
    "commands",
    "With a wrong password, a command reports that the login failed, not that the broker does not respond",
)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_refused_login_is_named(bootstrap: str, command: tuple[str, ...]) -> None:
    options = [part for each in (*LOGIN, "sasl.password=wrong") for part in ("-X", each)]
    done = CliRunner().invoke(cli, [*command, "-b", bootstrap, *options], input="")
    assert done.exit_code == 1
    (message,) = done.stderr.splitlines()
    assert "login failed at" in message or "refused PLAIN as alice" in message
    assert "invalid credentials" in message
    assert "no answer" not in message and "Is it a Kafka broker" not in message
