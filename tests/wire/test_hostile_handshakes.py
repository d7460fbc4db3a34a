"""Hostile logins: mutated SCRAM messages and tokens let nobody in, and raise nothing but a failed login.

Against a real broker, garbage on a TLS listener and requests in any order cost the sender its connection, and
others nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.credentials import LoginFailed
from penstock.credentials.scram import (
    ClientScram,
    ScramFailed,
    ServerScram,
    credential,
    salted_password,
)
from penstock.credentials.tokens import JwksTokens
from penstock.testing.ports import free_port
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.certificates import Authority
from tests.wire.test_hostile import mutated
from tests.wire.test_hostile_socket import BrokerProcess

pytestmark = pytest.mark.fuzz

PURE = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "200"))
SOCKETS = max(40, PURE // 40)
SEEDS = st.integers(0, 2**32)
MECHANISM = "SCRAM-SHA-256"
SALT = b"0123456789abcdef"
KNOWN = credential(MECHANISM, salted_password(MECHANISM, "pencil", SALT, 4096), SALT, 4096)


# Without a socket


@pytest.mark.promise(
    "protocol",
    "Handshakes and logins that come in the wrong order or with arbitrary bytes authenticate nobody",
)
@given(SEEDS, st.sampled_from(("first", "final")), st.booleans())
@settings(max_examples=PURE)
def test_a_mutated_scram_message_lets_nobody_in(seed: int, which: str, known: bool) -> None:
    rng = random.Random(seed)
    server = ServerScram(
        MECHANISM, lambda user: KNOWN if user == "u" and known else None, lambda _: (SALT, 4096), "s"
    )
    # Who knows the password is let in by what is not changed; so a change has to keep the meaning to pass.
    client = ClientScram(MECHANISM, "u", "pencil" if rng.random() < 0.5 else "other", f"c{seed}")
    try:
        first = client.first()
        answer = server.first(mutated(first, rng) if which == "first" else first)
        final = client.proof(answer)
        sent = mutated(final, rng) if which == "final" else final
        proof = server.final(sent)
        client.check(proof)
    except ScramFailed:
        return
    assert known and server.user == "u" and client._password == "pencil"


@given(st.binary(max_size=300))
@settings(max_examples=PURE)
def test_any_bytes_are_a_scram_message_or_a_failed_login(data: bytes) -> None:
    for step in ("first", "final", "token_of"):
        server = ServerScram(MECHANISM, lambda _: KNOWN, lambda _: (SALT, 4096), "s")
        try:
            if step == "final":
                server.first(b"n,,n=u,r=c")
                server.final(data)
                raise AssertionError("let in")
            getattr(server, step)(data)
        except ScramFailed:
            pass


SIGNING = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> JwksTokens:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(SIGNING.public_key()))
    keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
    found = JwksTokens(keys.as_uri(), issuer=None, audience=("kafka",))
    asyncio.run(_user(found, _token()))
    return found


def _token(**claims: Any) -> str:
    given = {"sub": "alice", "aud": "kafka", "exp": int(time.time()) + 600, **claims}
    return jwt.encode(given, SIGNING, "ES256", {"kid": "one"})


async def _user(tokens: JwksTokens, token: str) -> str | None:
    try:
        return (await tokens.check(token))[0]
    except LoginFailed:
        return None


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.promise(
    "protocol",
    "Handshakes and logins that come in the wrong order or with arbitrary bytes authenticate nobody",
)
@given(SEEDS)
@settings(max_examples=PURE, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_token_lets_nobody_else_in(tokens: JwksTokens, seed: int) -> None:
    rng = random.Random(seed)
    parts = [bytearray(base64.urlsafe_b64decode(part + "==")) for part in _token().split(".")]
    at = rng.randrange(3)
    parts[at] = bytearray(mutated(bytes(parts[at]), rng))
    token = ".".join(_part(bytes(part)) for part in parts)
    if rng.random() < 0.3:
        token = mutated(token.encode(), rng).decode("latin-1")
    assert asyncio.run(_user(tokens, token)) in (None, "alice")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 20_000,
        b'{"a":' * 8_000,
        b'{"alg":"none","kid":"one"}',
        b'{"alg":"HS256","kid":"one"}',
        b'{"alg":"ES256","kid":["one"]}',
        b'{"alg":["ES256"],"kid":"one"}',
        b'{"alg":"ES256","kid":"one","crit":["x"]}',
        b"null",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_token_with_a_strange_header_is_a_failed_login(tokens: JwksTokens, header: bytes) -> None:
    _, claims, signature = _token().split(".")
    for last in (signature, ""):
        assert asyncio.run(_user(tokens, f"{_part(header)}.{claims}.{last}")) is None


@given(
    st.dictionaries(
        st.sampled_from(("sub", "exp", "nbf", "iat", "aud", "iss", "jti")),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=2),
            max_leaves=3,
        ),
        min_size=1,
    )
)
@example({"exp": float("inf")})
@example({"exp": 10**400})
@settings(max_examples=max(40, PURE // 10), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_issuer_that_signs_nonsense_does_no_harm(tokens: JwksTokens, claims: dict[str, Any]) -> None:
    header, body = {"alg": "ES256", "kid": "one", "typ": "JWT"}, {"sub": "alice", "aud": "kafka", **claims}
    signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(body).encode())}"
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(signed.encode(), SIGNING)
    found = asyncio.run(_user(tokens, f"{signed}.{_part(signature)}"))
    assert found is None or found == body["sub"]


# Against a broker


class Site:
    def __init__(self, directory: Path) -> None:
        authority = Authority()
        certificate, key = authority.issue("127.0.0.1")
        (directory / "broker.pem").write_text(key + certificate)
        self.plain, self.tls, self.login = free_port(), free_port(), free_port()
        keys = directory / "jwks.json"
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(SIGNING.public_key()))
        keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.plain},SSL://127.0.0.1:{self.tls},"
            f"LOGIN://127.0.0.1:{self.login}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGIN:SASL_PLAINTEXT",
            "ssl.keystore.location": str(directory / "broker.pem"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "listener.name.login.plain.sasl.jaas.config": f'{plain} user_alice="pencil";',
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "connection.failed.authentication.delay.ms": "1",
        }
        context = ssl.create_default_context(cadata=authority.pem)
        incoming, self._hello = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            context.wrap_bio(incoming, self._hello, server_hostname="127.0.0.1").do_handshake()
        except ssl.SSLWantReadError:
            pass
        self.client_hello = self._hello.read()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("handshakes")
    made = Site(directory)
    broker = BrokerProcess(directory, *(f"{name}={value}" for name, value in made.settings.items()))
    try:
        yield made
        with WireClient(made.plain, timeout=20) as bystander:
            assert bystander.request(ApiKey.METADATA, 8, Message(topics=[])).brokers
        assert "Traceback" not in broker.log()
    finally:
        assert broker.stop() == 0


def exchanged(port: int, *frames: bytes) -> bytes:
    """All that comes back until the broker hangs up, or has nothing more to say to a client that is done."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            for frame in frames:
                connection.sendall(frame)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                found += part
        except (ConnectionError, OSError):
            pass
    return found


@pytest.mark.promise(
    "protocol",
    "Handshakes and logins that come in the wrong order or with arbitrary bytes authenticate nobody",
)
@given(SEEDS)
@settings(max_examples=SOCKETS, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_on_a_tls_listener_gets_an_alert_or_nothing(site: Site, seed: int) -> None:
    rng = random.Random(seed)
    hello = site.client_hello
    kind = rng.randrange(4)
    if kind == 0:
        data = rng.randbytes(rng.randint(1, 600))
    elif kind == 1:
        data = mutated(hello, rng)
    elif kind == 2:
        data = struct.pack(
            ">BHH", rng.choice((20, 21, 22, 23, 24)), 0x0303, rng.randint(0, 65535)
        ) + rng.randbytes(99)
    else:
        data = hello + rng.randbytes(rng.randint(1, 300))
    answer = exchanged(site.tls, data)
    # A server's hello, an alert or a change of cipher: records of TLS, and no answer to a request.
    assert answer == b"" or answer[0] in (20, 21, 22, 23)


def framed(api: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", api, version, 7, -1) + body
    return struct.pack(">i", len(data)) + data


def texts(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


FRAMES = {
    "versions": framed(18, 0, b""),
    "metadata": framed(3, 1, struct.pack(">i", -1)),
    "plain": framed(17, 1, texts(b"PLAIN")),
    "scram": framed(17, 1, texts(b"SCRAM-SHA-256")),
    "oauth": framed(17, 1, texts(b"OAUTHBEARER")),
    "unknown": framed(17, 1, texts(b"GSSAPI")),
    "wrong": framed(36, 0, struct.pack(">i", 12) + b"\0alice\0wrong"),
    "first": framed(36, 0, struct.pack(">i", 14) + b"n,,n=alice,r=x"),
    "final": framed(36, 0, struct.pack(">i", 22) + b"c=biws,r=x,p=AAAAAAAAA"),
    "bearer": framed(36, 0, struct.pack(">i", 28) + b"n,,\x01auth=Bearer a.b.c.d.e\x01\x01"),
    "empty": framed(36, 0, struct.pack(">i", 0)),
    "null": framed(36, 0, struct.pack(">i", -1)),
    "produce": framed(0, 3, b"\xff\xff\0\1\0\0\0\x01\0\0\0\0"),
    "large": struct.pack(">i", 1 << 30) + b"x",
    "negative": struct.pack(">i", -1),
}


@pytest.mark.promise(
    "protocol",
    "Handshakes and logins that come in the wrong order or with arbitrary bytes authenticate nobody",
)
@given(st.lists(st.sampled_from(sorted(FRAMES)), min_size=1, max_size=7), SEEDS)
@settings(max_examples=SOCKETS, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_in_any_order_serve_nobody_who_has_not_logged_in(
    site: Site, names: list[str], seed: int
) -> None:
    rng = random.Random(seed)
    frames = [FRAMES[name] for name in names]
    if rng.random() < 0.3:
        at = rng.randrange(len(frames))
        frames[at] = frames[at][:4] + mutated(frames[at][4:], rng)[: len(frames[at]) - 4].ljust(
            len(frames[at]) - 4
        )
    answer = exchanged(site.login, *frames)
    # The name of the broker's host is in every Metadata answer, and nowhere else.
    assert b"127.0.0.1" not in answer
