"""OAUTHBEARER of clients: the library, librdkafka and the commands, with good and bad tokens."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, Producer
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.client import ClientSettings, Cluster
from penstock.client.errors import AuthenticationFailed
from penstock.client.librdkafka import with_login
from penstock.testing import PenstockBroker
from penstock.testing.ports import free_port


class Issuer:
    """Signs tokens, and gives them to the client `robot` at its token endpoint."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self.keys = directory / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
        self.issued = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                issuer.issued += 1
                data = json.dumps({"access_token": issuer.token(), "expires_in": 600}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def token(self, life: float = 600, audience: str = "kafka", user: str = "robot") -> str:
        claims = {"sub": user, "aud": audience, "exp": int(time.time() + life)}
        return jwt.encode(claims, self._key, "ES256", {"kid": "one"})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Site:
    def __init__(self, issuer: Issuer, bootstrap: str) -> None:
        self.issuer = issuer
        self.bootstrap = bootstrap

    def settings(self, token_url: str, *, java: bool = False) -> dict[str, str]:
        base = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": token_url,
        }
        if java:
            package = "org.apache.kafka.common.security.oauthbearer"
            return base | {
                "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required "
                'clientId="robot" clientSecret="secret";',
            }
        return base | {"sasl.oauthbearer.client.id": "robot", "sasl.oauthbearer.client.secret": "secret"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("oauth")
    issuer = Issuer(directory)
    port = free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},LOGIN://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "num.partitions": "1",
    }
    with PenstockBroker(settings):
        yield Site(issuer, f"127.0.0.1:{port}")
    issuer.close()


@pytest.mark.promise(
    "clients",
    "`penstock.client`, Spark and the commands log in with OAUTHBEARER, configured with the settings of "
    "Kafka's Java client and of librdkafka",
)
@pytest.mark.parametrize("java", [False, True])
def test_the_library_logs_in_with_a_token_of_the_endpoint(site: Site, java: bool) -> None:
    with Cluster(ClientSettings.from_kafka(site.settings(site.issuer.url, java=java))) as cluster:
        assert cluster.create_topic(f"library-{java}", partitions=1)


@pytest.mark.promise(
    "clients",
    "`penstock.client`, Spark and the commands log in with OAUTHBEARER, configured with the settings of "
    "Kafka's Java client and of librdkafka",
)
def test_librdkafka_writes_and_reads_with_tokens_of_the_endpoint(site: Site) -> None:
    settings = with_login(site.settings(site.issuer.url))
    producer = Producer(settings)
    failed: list[Any] = []
    producer.produce("tokens", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0 and failed == [None]
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["tokens"])
    try:
        deadline = time.monotonic() + 60
        while (message := consumer.poll(1)) is None or message.error():
            assert time.monotonic() < deadline
        assert message.value() == b"x"
    finally:
        consumer.close()


@pytest.mark.promise(
    "clients",
    "`penstock.client`, Spark and the commands log in with OAUTHBEARER, configured with the settings of "
    "Kafka's Java client and of librdkafka",
)
@pytest.mark.parametrize("java", [False, True])
def test_commands_log_in_with_a_token_of_a_file_or_the_endpoint(
    site: Site, tmp_path: Path, java: bool
) -> None:
    token = tmp_path / "token"
    token.write_text(site.issuer.token())
    for url in (site.issuer.url if java else token.as_uri(),):
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in site.settings(url, java=java).items()))
        topic = f"cli-{java}-{url.partition(':')[0]}"
        for words in (["topics", "create", topic], ["produce", topic], ["transactions", "list"]):
            done = subprocess.run(
                [sys.executable, "-m", "penstock", *words, "--client-config", str(file)],
                input="x\n", capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (words, done.stderr)


@pytest.mark.parametrize(("life", "audience"), [(-600, "kafka"), (600, "another")])
def test_an_expired_or_foreign_token_is_refused(
    site: Site, tmp_path: Path, life: float, audience: str
) -> None:
    token = tmp_path / "token"
    token.write_text(site.issuer.token(life, audience))
    settings = site.settings(token.as_uri())
    with pytest.raises(AuthenticationFailed), Cluster(ClientSettings.from_kafka(settings)) as cluster:
        cluster.topics()
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "topics", "list", "--client-config", str(file), "--timeout", "5"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and token.read_text() not in done.stderr
