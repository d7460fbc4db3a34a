"""kafka-acls and kafka-configs against Penstock: ACLs and quotas as an administrator of Kafka sets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import PenstockBroker
from tests.tools.conftest import KafkaTools

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(SETTINGS) as process:
        yield process


@pytest.mark.promise(
    "access",
    "`penstock acls`, `penstock quotas`, `kafka-acls` and `kafka-configs` set, list and remove ACLs and "
    "quotas",
)
def test_kafka_acls_adds_lists_and_removes(kafka_tools: KafkaTools, broker: PenstockBroker) -> None:
    def acls(*arguments: str) -> str:
        return kafka_tools.run("kafka-acls", "--bootstrap-server", broker.bootstrap, *arguments)

    acls("--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "g")
    acls("--add", "--deny-principal", "User:bob", "--operation", "All", "--topic", "ord",
         "--resource-pattern-type", "prefixed")  # fmt: skip
    listed = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "principal=User:bob, host=*, operation=ALL, permissionType=DENY" in listed
    assert "resourceType=GROUP, name=g" in acls("--list", "--principal", "User:alice")
    acls("--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed")
    assert "User:bob" not in acls("--list")


@pytest.mark.promise(
    "access",
    "`penstock acls`, `penstock quotas`, `kafka-acls` and `kafka-configs` set, list and remove ACLs and "
    "quotas",
)
def test_kafka_configs_sets_describes_and_removes_quotas(
    kafka_tools: KafkaTools, broker: PenstockBroker
) -> None:
    def configs(*arguments: str) -> str:
        return kafka_tools.run("kafka-configs", "--bootstrap-server", broker.bootstrap, *arguments)

    who = ("--entity-type", "clients", "--entity-name", "reports")
    configs("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *who)
    configs("--alter", "--add-config", "consumer_byte_rate=2048", "--entity-type", "clients",
            "--entity-default")  # fmt: skip
    described = configs("--describe", *who)
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=50.0" in described
    assert "consumer_byte_rate=2048.0" in configs(
        "--describe", "--entity-type", "clients", "--entity-default"
    )
    configs("--alter", "--delete-config", "producer_byte_rate,request_percentage", *who)
    assert "producer_byte_rate" not in configs("--describe", *who)
