"""TLS and SASL settings: Kafka's ways to give them, and secrets that stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client import BadClientSetting
from penstock.client.security import Security, jaas_options

PEM = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def security(**settings: str) -> Security:
    return Security.from_kafka(settings)


def sasl(**settings: str) -> Security:
    return security(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", **settings})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{MODULE} username="alice" password="s3cret";', {"username": "alice", "password": "s3cret"}),
        (f"{MODULE} username='a b'\n  password=bare ;", {"username": "a b", "password": "bare"}),
        (f'{MODULE} username="a\\"b" password="c\\\\d;e=f";', {"username": 'a"b', "password": "c\\d;e=f"}),
        (f'{MODULE} username="a" password="";', {"username": "a", "password": ""}),
    ],
)
def test_jaas_options_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert jaas_options(text) == expected


@pytest.mark.parametrize("text", ["", "alice:secret", f'{MODULE} username="a"', 'Foo required username="a";'])
def test_a_jaas_text_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadClientSetting, match="PlainLoginModule required"):
        jaas_options(text)


def test_credentials_come_from_jaas_or_from_names_of_their_own() -> None:
    by_jaas = sasl(**{"sasl.jaas.config": f'{MODULE} username="alice" password="p";'})
    by_name = sasl(**{"sasl.username": "alice", "sasl.password": "p"})
    assert by_jaas == by_name
    assert (by_name.mechanism, by_name.username, by_name.password) == ("SCRAM-SHA-256", "alice", "p")


@pytest.mark.promise("client library", "Secrets do not appear in errors and logs")
def test_secrets_are_not_in_what_is_printed() -> None:
    shown = repr(
        sasl(
            **{
                "sasl.username": "alice",
                "sasl.password": "hidden-1",
                "ssl.keystore.key": f"hidden-2 {PEM}",
                "ssl.keystore.certificate.chain": PEM,
                "ssl.key.password": "hidden-3",
            }
        )
    )
    assert "alice" in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sasl.mechanism": "GSSAPI"}, r"sasl\.mechanism=GSSAPI"),
        ({"sasl.username": "alice"}, r"sasl\.jaas\.config"),
        ({}, r"sasl\.jaas\.config"),
    ],
)
def test_what_sasl_lacks_is_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(BadClientSetting, match=named):
        sasl(**settings)


def test_a_java_store_is_refused_with_the_way_to_make_pem_of_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(BadClientSetting, match=r"a JKS store; give PEM: .*keytool"):
        security(
            **{
                "security.protocol": "SSL",
                "ssl.truststore.location": str(store),
                "ssl.truststore.type": "JKS",
            }
        )


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.ca.location", "ssl.keystore.location"])
def test_a_file_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadClientSetting, match=f"{name}=.*nothing.pem"):
        security(**{"security.protocol": "SSL", name: str(tmp_path / "nothing.pem")})


def test_files_are_read_at_once_so_that_settings_can_travel(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(PEM)
    found = security(**{"security.protocol": "SSL", "ssl.truststore.location": str(file)})
    file.unlink()
    assert found.ca == PEM


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(BadClientSetting, match=r"ssl\.keystore\.key is missing"):
        security(**{"security.protocol": "SSL", "ssl.keystore.certificate.chain": PEM})


def test_pem_that_holds_no_certificate_is_refused() -> None:
    found = security(**{"security.protocol": "SSL", "ssl.truststore.certificates": PEM})
    with pytest.raises(BadClientSetting, match=r"ssl\.truststore"):
        found.context()


def test_hostnames_are_checked_unless_the_algorithm_is_empty() -> None:
    assert security(**{"security.protocol": "SSL"}).context().check_hostname
    lax = security(**{"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""})
    assert not lax.context().check_hostname


def test_tls_settings_are_not_looked_at_without_tls() -> None:
    assert security(**{"ssl.truststore.location": "/no/such/file"}) == Security()
