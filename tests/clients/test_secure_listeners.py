"""Real clients on listeners with TLS and SASL: right, wrong and foreign."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from tests.certificates import Authority
from tests.clients.secure_clients import SECURE_CLIENTS, Login, LoginRefused

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "SAFE": "SASL_SSL",
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SECRET = "planted-secret-4711"
KEY_PASSWORD = "planted-key-password"


class Site:
    """A broker with listeners of several protocols, and all that its clients need."""

    def __init__(self, directory: Path) -> None:
        self.authority, self.people = Authority(), Authority("people")
        self.ports = {name: free_port() for name in LISTENERS}
        certificate, key = self.authority.issue("127.0.0.1", "localhost", password=KEY_PASSWORD)
        self.keystore = directory / "broker.pem"
        self.keystore.write_text(key + certificate)
        self.ca = directory / "ca.pem"
        self.ca.write_text(self.authority.pem)
        self.alice = directory / "alice.pem"
        self.alice.write_text("".join(reversed(self.people.issue("alice"))))
        self.foreign = directory / "foreign.pem"
        self.foreign.write_text("".join(reversed(Authority("foreign").issue("alice"))))
        self.signing, self.forging = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self.keys = directory / "jwks.json"
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.signing.public_key()))
        self.keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
        users = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
        self.settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in LISTENERS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.key.password": KEY_PASSWORD,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.certificates": self.people.pem,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.login.plain.sasl.jaas.config": users,
            "listener.name.safe.plain.sasl.jaas.config": users,
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "num.partitions": "1",
            "penstock.audit.enable": "true",
        }

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def login(self, listener: str, mechanism: str, *, right: bool = True, user: str = "alice") -> Login:
        key = self.signing if right else self.forging
        claims = {"sub": user, "aud": "kafka"}

        def token() -> str:
            return jwt.encode({**claims, "exp": int(time.time()) + 600}, key, "ES256", {"kid": "one"})

        return Login(
            LISTENERS[listener],
            self.ca if LISTENERS[listener].endswith("SSL") else None,
            mechanism=mechanism,
            user=user,
            password=SECRET if right else "wrong",
            token=token if mechanism == "OAUTHBEARER" else None,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    made = Site(tmp_path_factory.mktemp("secure"))
    with PenstockBroker(made.settings, event_loop="uvloop") as broker:
        admin = AdminClient({"bootstrap.servers": made.bootstrap("PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("alice", info, SECRET.encode())
            admin.alter_user_scram_credentials([change])["alice"].result(30)
        made.broker = broker  # type: ignore[attr-defined]
        yield made


@pytest.mark.promise(
    "protocol",
    "A broker can have several listeners, in plaintext and with TLS; each client gets the addresses of "
    "the listener that it connected to",
)
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_each_client_writes_and_reads_over_each_listener(site: Site, name: str) -> None:
    roundtrip = SECURE_CLIENTS[name]
    logins = {
        "PLAINTEXT": Login("PLAINTEXT"),
        "SSL": Login("SSL", site.ca),
        "MUTUAL": Login("SSL", site.ca, site.alice),
    }
    for count, (listener, login) in enumerate(logins.items(), 1):
        assert roundtrip(site.bootstrap(listener), f"each-{name}", login) == [name.encode()] * count


@pytest.mark.promise(
    "protocol",
    "A TLS listener rejects clients without TLS and, if it requires certificates, clients without a "
    "trusted one",
)
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_a_client_without_the_right_certificate_is_refused(site: Site, name: str, tmp_path: Path) -> None:
    roundtrip = SECURE_CLIENTS[name]
    other = tmp_path / "other.pem"
    other.write_text(Authority("other").pem)
    for listener, login in (
        ("SSL", Login("SSL", other)),  # it does not trust the broker
        ("SSL", Login("PLAINTEXT")),
        ("MUTUAL", Login("SSL", site.ca)),
        ("MUTUAL", Login("SSL", site.ca, site.foreign)),
    ):
        with pytest.raises(LoginRefused):
            roundtrip(site.bootstrap(listener), f"refused-{name}", login)


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_each_client_logs_in_with_each_mechanism(site: Site, name: str, mechanism: str) -> None:
    roundtrip = SECURE_CLIENTS[name]
    topic = f"login-{name}-{mechanism}"
    for count, listener in enumerate(("LOGIN", "SAFE"), 1):
        login = site.login(listener, mechanism)
        assert roundtrip(site.bootstrap(listener), topic, login) == [name.encode()] * count


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_a_client_that_does_not_know_the_secret_is_refused(site: Site, name: str, mechanism: str) -> None:
    with pytest.raises(LoginRefused):
        SECURE_CLIENTS[name](
            site.bootstrap("SAFE"), f"wrong-{name}", site.login("SAFE", mechanism, right=False)
        )


@pytest.mark.promise("protocol", "Secrets appear neither in described settings nor in the log")
@pytest.mark.promise(
    "access",
    "The audit topic records each denial, each administrative request with its outcome and each failed "
    "login, on whichever broker they happen; it contains no secret",
)
def test_secrets_are_neither_described_nor_logged_nor_audited(site: Site) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource

    for mechanism in MECHANISMS:
        with pytest.raises(LoginRefused):
            SECURE_CLIENTS["confluent"](
                site.bootstrap("LOGIN"), "x", site.login("LOGIN", mechanism, right=False)
            )
    admin = AdminClient({"bootstrap.servers": site.bootstrap("PLAINTEXT")})
    (entries,) = [
        one.result(30)
        for one in admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    ]
    shown = "".join(f"{entry.name}={entry.value} {entry.synonyms}\n" for entry in entries.values())
    assert "ssl.key.password=None" in shown and entries["ssl.key.password"].is_sensitive
    audited = _audited(site, {*MECHANISMS, "Handshake"})
    told = shown + audited + site.broker.log_tail(100_000)  # type: ignore[attr-defined]
    assert "login failed" in told and '"api":"AlterUserScramCredentials"' in audited
    for secret in (SECRET, KEY_PASSWORD, "PRIVATE KEY"):
        assert secret not in told


def _audited(site: Site, mechanisms: set[str]) -> str:
    """All of the audit topic, as soon as it has failed logins of these mechanisms."""
    from confluent_kafka import Consumer, TopicPartition

    with pytest.raises(LoginRefused):
        SECURE_CLIENTS["confluent"](site.bootstrap("MUTUAL"), "x", Login("SSL", site.ca, site.foreign))
    consumer = Consumer({"bootstrap.servers": site.bootstrap("PLAINTEXT"), "group.id": "auditors"})
    found: list[str] = []
    failed: set[str] = set()
    try:
        consumer.assign([TopicPartition("__penstock_audit", 0, 0)])
        end = time.monotonic() + 60
        while not mechanisms <= failed and time.monotonic() < end:
            for message in consumer.consume(100, 1):
                found.append(message.value().decode())
                record = json.loads(found[-1])
                if record["type"] == "authentication":
                    assert (record["host"], record["allowed"]) == ("127.0.0.1", False)
                    failed.add(record["operation"])
    finally:
        consumer.close()
    assert mechanisms <= failed
    return "\n".join(found)
