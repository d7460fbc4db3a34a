"""Client settings under Kafka's names: what they become, and what is said of those that cannot be used."""

from __future__ import annotations

import pickle

import pytest

from penstock.client import READ_COMMITTED, BadClientSetting, ClientSettings
from penstock.client.settings import parse_bootstrap


def settings(**more: str) -> ClientSettings:
    return ClientSettings.from_kafka({"bootstrap.servers": "one:1", **more})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , b ", (("a", 1), ("b", 9092))),
        ("PLAINTEXT://a:1", (("a", 1),)),
        ("[::1]:7,[fe80::2]", (("::1", 7), ("fe80::2", 9092))),
    ],
)
def test_bootstrap_servers_are_hosts_and_ports(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_bootstrap(text) == expected
    assert parse_bootstrap(ClientSettings(bootstrap=expected).bootstrap_servers) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:0", "a:65536", ":9092", "a:-1", "a:²"])
def test_bootstrap_servers_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadClientSetting, match=r"bootstrap\.servers"):
        parse_bootstrap(text)


def test_settings_have_kafkas_names_and_what_is_others_is_left_alone() -> None:
    found = settings(
        **{
            "client.id": "me",
            "client.rack": "r1",
            "request.timeout.ms": "7",
            "default.api.timeout.ms": "8",
            "isolation.level": "read_committed",
            "max.partition.fetch.bytes": "1000",
            "fetch.max.bytes": "500",
            "check.crcs": "false",
            "group.id": "somebody else's",
            "acks": "all",
        }
    )
    assert (found.client_id, found.rack, found.request_timeout_ms, found.api_timeout_ms) == ("me", "r1", 7, 8)
    assert found.isolation == READ_COMMITTED
    assert found.fetch_bytes == 500
    assert not found.check_crcs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request.timeout.ms", "soon"),
        ("request.timeout.ms", "-1"),
        ("max.partition.fetch.bytes", "0"),
        ("max.partition.fetch.bytes", str(2**31)),
        ("isolation.level", "serializable"),
        ("check.crcs", "perhaps"),
        ("security.protocol", "TLS"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(name: str, value: str) -> None:
    with pytest.raises(BadClientSetting, match=f"{name}={value}"):
        settings(**{name: value})


def test_settings_can_be_sent_to_another_process() -> None:
    before = settings(
        **{
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
        }
    )
    assert pickle.loads(pickle.dumps(before)) == before
