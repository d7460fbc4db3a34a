"""Each client, with each mechanism, goes on while its login is good, and no longer than its user has one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port
from tests.certificates import Authority
from tests.clients.secure_clients import (
    SECURE_CLIENTS,
    Login,
    LoginRefused,
    aiokafka_config,
    confluent_config,
    kafka_python_config,
)

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SECRET = "a-good-password"
LIFE_S = 3.0
# Longer, so that a token that was just issued is good on a busy machine, too.
TOKEN_S = 10.0
PATIENCE_S = 120.0
# Between two records: as many as the broker can take would keep a core busy.
PACE_S = 0.05


class Producing(Protocol):
    """A producer that stays connected. `send` ends with an acknowledged record, or with LoginRefused."""

    def send(self, topic: str) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, login: Login) -> None:
        from confluent_kafka import Producer

        self._refused: list[str] = []
        config = confluent_config(bootstrap, login)
        if login.token is not None:
            token = login.token
            # librdkafka asks again when 80 % of the life is over.
            config["oauth_cb"] = lambda _: (token(), time.time() + TOKEN_S)
        self._producer = Producer({**config, "error_cb": self._failed, "reconnect.backoff.max.ms": 200})

    def _failed(self, error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            self._refused.append(error.str())

    def send(self, topic: str) -> None:
        delivered: list[Any] = []
        self._producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
        while not delivered:
            if self._refused:
                raise LoginRefused(self._refused[0])
            self._producer.poll(0.1)
        if delivered[0] is not None:
            raise LoginRefused(str(delivered[0]))

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


class KafkaPython:
    def __init__(self, bootstrap: str, login: Login) -> None:
        from kafka import KafkaProducer

        config = kafka_python_config(bootstrap, login)
        self._producer = KafkaProducer(**config, max_block_ms=10_000)

    def send(self, topic: str) -> None:
        from kafka.errors import KafkaError

        try:
            self._producer.send(topic, b"x", partition=0).get(10)
        except KafkaError as error:
            raise LoginRefused(str(error)) from error

    def close(self) -> None:
        from kafka.errors import KafkaTimeoutError

        with suppress(KafkaTimeoutError):  # it cannot flush, as it cannot log in
            self._producer.close(1)


class AioKafka:
    def __init__(self, bootstrap: str, login: Login) -> None:
        from aiokafka import AIOKafkaProducer

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def start() -> Any:
            made = AIOKafkaProducer(**aiokafka_config(bootstrap, login), request_timeout_ms=10_000)
            await made.start()
            return made

        self._producer = self._run(start())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def send(self, topic: str) -> None:
        from aiokafka.errors import KafkaError

        try:
            self._run(self._producer.send_and_wait(topic, b"x", partition=0))
        except KafkaError as error:
            raise LoginRefused(str(error)) from error

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


PRODUCERS: dict[str, type[Confluent] | type[KafkaPython] | type[AioKafka]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


# Each mechanism with confluent-kafka, each client with a mechanism: the other two clients keep a core busy
# for as long as they cannot log in.
_FIRST_PROOFS = {("kafka-python", "PLAIN"), ("aiokafka", "SCRAM-SHA-512")} | {
    ("confluent", mechanism) for mechanism in MECHANISMS
}


class Site:
    """A broker whose logins end after seconds, and users that can be taken away."""

    def __init__(self, directory: Path) -> None:
        authority, self.key = Authority(), ec.generate_private_key(ec.SECP256R1())
        certificate, key = authority.issue("127.0.0.1")
        (directory / "broker.pem").write_text(key + certificate)
        self.ca = directory / "ca.pem"
        self.ca.write_text(authority.pem)
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        keys = directory / "jwks.json"
        keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
        self._users_file = directory / "users"
        self._plain = {"nobody"}
        self._write_users()
        self.revoked: set[str] = set()
        self._tokens: dict[str, str] = {}
        self.plain, self.safe = free_port(), free_port()
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.plain},SAFE://127.0.0.1:{self.safe}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_SSL",
            "ssl.keystore.location": str(directory / "broker.pem"),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "penstock.sasl.plain.users.file": str(self._users_file),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "connections.max.reauth.ms": str(int(LIFE_S * 1000)),
            "connection.failed.authentication.delay.ms": "10",
            "num.partitions": "1",
        }

    def _write_users(self) -> None:
        new = self._users_file.with_suffix(".new")
        new.write_text("".join(f"{name}: {SECRET}\n" for name in sorted(self._plain)))
        new.chmod(0o600)
        new.replace(self._users_file)

    def token(self, user: str, life_s: float = TOKEN_S, audience: str = "kafka") -> str:
        claims = {"sub": user, "aud": audience, "exp": time.time() + life_s}
        return jwt.encode(claims, self.key, "ES256", {"kid": "one"})

    def login(self, user: str, mechanism: str, **token: Any) -> Login:
        def current() -> str:
            # Who is revoked gets no new token, and has its last one.
            if user not in self.revoked:
                self._tokens[user] = self.token(user, **token)
            return self._tokens[user]

        given = current if mechanism == "OAUTHBEARER" else None
        return Login("SASL_SSL", self.ca, mechanism=mechanism, user=user, password=SECRET, token=given)

    def add(self, user: str, mechanism: str) -> None:
        if mechanism == "PLAIN":
            self._plain.add(user)
            self._write_users()
        elif mechanism != "OAUTHBEARER":
            self._alter(user, mechanism, add=True)

    def revoke(self, user: str, mechanism: str) -> None:
        self.revoked.add(user)
        if mechanism == "PLAIN":
            self._plain.discard(user)
            self._write_users()
        elif mechanism != "OAUTHBEARER":
            self._alter(user, mechanism, add=False)

    def _alter(self, user: str, mechanism: str, *, add: bool) -> None:
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialDeletion,
            UserScramCredentialUpsertion,
        )

        kind = ScramMechanism[mechanism.replace("-", "_")]
        upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), SECRET.encode())
        change = upsertion if add else UserScramCredentialDeletion(user, kind)
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain}"})
        admin.alter_user_scram_credentials([change])[user].result(30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("revoked"))
    with PenstockBroker(made.settings, event_loop="uvloop"):
        yield made


def logged_in(site: Site, name: str, user: str, mechanism: str) -> Producing:
    """PLAIN: the broker reads its changed file of users within a second."""
    site.add(user, mechanism)
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            made = PRODUCERS[name](f"127.0.0.1:{site.safe}", site.login(user, mechanism))
            made.send("t")
            return made
        except Exception:
            if mechanism != "PLAIN" or time.monotonic() > end:
                raise


@pytest.mark.promise(
    "protocol",
    "With every mechanism, a client whose user is deleted or whose token expires is disconnected when "
    "its login ends; until then it renews its login without an error",
)
@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        pytest.param(name, mechanism, marks=[] if (name, mechanism) in _FIRST_PROOFS else [pytest.mark.long])
        for name in PRODUCERS
        for mechanism in MECHANISMS
    ],
)
def test_a_client_goes_on_over_ended_logins_and_is_out_when_its_user_is_revoked(
    site: Site, name: str, mechanism: str
) -> None:
    user = f"{name}-{mechanism}"
    producer = logged_in(site, name, user, mechanism)
    try:
        begun = time.monotonic()
        while time.monotonic() - begun < 2.5 * LIFE_S:  # over the end of two logins
            producer.send("t")
            time.sleep(PACE_S)
        site.revoke(user, mechanism)
        end = time.monotonic() + PATIENCE_S
        with pytest.raises(LoginRefused):
            while time.monotonic() < end:
                producer.send("t")
                time.sleep(PACE_S)
    finally:
        producer.close()


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
@pytest.mark.parametrize("token", [{"life_s": -600.0}, {"audience": "another"}], ids=["expired", "foreign"])
@pytest.mark.parametrize("name", list(SECURE_CLIENTS))
def test_an_expired_or_foreign_token_is_refused(site: Site, name: str, token: dict[str, Any]) -> None:
    login = site.login(f"{name}-{'-'.join(token)}", "OAUTHBEARER", **token)
    with pytest.raises(LoginRefused):
        SECURE_CLIENTS[name](f"127.0.0.1:{site.safe}", "t", login)
