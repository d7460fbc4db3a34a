"""Log levels of a running broker through the protocol: broker logger resources (KIP-412)."""

from __future__ import annotations

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

BROKER_LOGGER = 8
SET, DELETE = 0, 1
NAME = "penstock.broker.topics"


def levels(broker: PenstockBroker, *names: str) -> dict[str, str]:
    resource = Message(resource_type=BROKER_LOGGER, resource_name="1", configuration_keys=list(names) or None)
    request = Message(resources=[resource], include_synonyms=True, include_documentation=True)
    with WireClient(broker.port) as wire:
        [result] = wire.request(ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == 0
    assert {(one.config_source, one.read_only, one.is_sensitive) for one in result.configs} <= {
        (6, False, False)
    }
    return {one.name: one.value for one in result.configs}


def alter(broker: PenstockBroker, *ops: tuple[str, int, str | None], validate_only: bool = False) -> int:
    configs = [Message(name=name, config_operation=op, value=value) for name, op, value in ops]
    resource = Message(resource_type=BROKER_LOGGER, resource_name="1", configs=configs)
    with WireClient(broker.port) as wire:
        request = Message(resources=[resource], validate_only=validate_only)
        [result] = wire.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return int(result.error_code)


@pytest.mark.promise(
    "protocol",
    "The log levels of a running broker are described and changed with Kafka's requests for broker "
    "loggers (KIP-412)",
)
def test_a_level_is_changed_and_given_up_again(penstock: PenstockBroker) -> None:
    assert levels(penstock, "root", NAME) == {"root": "WARN", NAME: "WARN"}
    assert "penstock" in levels(penstock)
    assert alter(penstock, (NAME, SET, "DEBUG"), validate_only=True) == 0
    assert levels(penstock, NAME) == {NAME: "WARN"}
    assert alter(penstock, (NAME, SET, "DEBUG")) == 0
    penstock.create_topic("seen")
    assert levels(penstock, NAME) == {NAME: "DEBUG"}
    assert alter(penstock, ("root", SET, "ERROR")) == 0
    assert levels(penstock, "root", NAME, "penstock.broker.broker") == {
        "root": "ERROR", NAME: "DEBUG", "penstock.broker.broker": "ERROR",
    }  # fmt: skip
    assert alter(penstock, (NAME, DELETE, None)) == 0
    assert levels(penstock, NAME) == {NAME: "ERROR"}


def test_a_wrong_request_changes_nothing(penstock: PenstockBroker) -> None:
    invalid_config = 40
    assert alter(penstock, (NAME, SET, "DEBUG"), ("no.such.logger", SET, "INFO")) == invalid_config
    assert alter(penstock, ("root", SET, "DEBUG"), (NAME, SET, "LOUD")) == invalid_config
    assert levels(penstock, "root", NAME) == {"root": "WARN", NAME: "WARN"}


def test_the_log_of_the_zookeeper_client_which_has_passwords_is_no_logger(penstock: PenstockBroker) -> None:
    assert not [name for name in levels(penstock) if name.startswith("penstock.zookeeper")]
