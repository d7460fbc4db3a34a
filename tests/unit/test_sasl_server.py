"""Logins with SASL at a broker in this process: what is served before, after and instead."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import os
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.config.jaas import jaas_options
from penstock.controller.credentials import CredentialChange
from penstock.credentials.scram import ClientScram, salted_password
from penstock.credentials.users_file import UsersFile, hashed
from penstock.errors import ConfigError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.unit.test_broker_connections import Client, metadata

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULE} user_alice="wonder" user_bob="builder";'
    ),
}
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
MECHANISM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


class Seen:
    def __init__(self) -> None:
        self.principals: list[str] = []

    def intercept(self, context: RequestContext) -> None:
        if context.api_key == ApiKey.METADATA:
            self.principals.append(str(context.principal))


@asynccontextmanager
async def running(
    directory: Path, given: dict[str, str], seen: Seen | None = None, clock: ManualClock | None = None
) -> AsyncIterator[Broker]:
    values = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / "data"),
        "connection.failed.authentication.delay.ms": "1",
        **given,
    }
    broker = Broker(BrokerConfig.parse(values), clock or ManualClock(), interceptor=seen)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def connected(broker: Broker) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", broker.port))


async def handshake(client: Client, mechanism: str, version: int = 1) -> Message:
    return await client.request(ApiKey.SASL_HANDSHAKE, version, Message(mechanism=mechanism))


async def authenticate(client: Client, message: bytes, version: int = 2) -> Message:
    return await client.request(ApiKey.SASL_AUTHENTICATE, version, Message(auth_bytes=message))


async def plain(client: Client, user: str, password: str) -> Message:
    assert (await handshake(client, "PLAIN")).error_code == 0
    return await authenticate(client, f"\0{user}\0{password}".encode())


async def scram(client: Client, mechanism: str, user: str, password: str) -> tuple[Message, Message | None]:
    """The server's two answers; the second is None where there is none."""
    assert (await handshake(client, mechanism)).error_code == 0
    side = ClientScram(mechanism, user, password, "abc")
    first = await authenticate(client, side.first())
    if first.error_code:
        return first, None
    final = await authenticate(client, side.proof(bytes(first.auth_bytes)))
    if not final.error_code:
        side.check(bytes(final.auth_bytes))
    return first, final


async def keep(broker: Broker, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    salted = salted_password(mechanism, password, b"salt", 4096)
    change = CredentialChange(user, MECHANISM_NUMBERS[mechanism], 4096, b"salt", salted)
    assert await broker.controller.alter_scram_credentials([change]) == {user: None}


async def served(client: Client) -> bool:
    try:
        client.send(ApiKey.METADATA, 9, metadata())
        await client.receive()
    except (asyncio.IncompleteReadError, OSError):
        return False
    return True


@pytest.mark.promise(
    "protocol", "Before a client has logged in, the broker serves only the requests that the login needs"
)
def test_before_a_login_only_what_a_login_needs_is_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {**PLAIN, "sasl.server.max.receive.size": "200"}) as broker:
            for first in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
                client = await connected(broker)
                client.writer.write(struct.pack(">ihhih", 10, first, 0, 1, -1))
                assert await client.closed()
            client = await connected(broker)
            keys = {one.api_key for one in (await client.request(ApiKey.API_VERSIONS, 2, Message())).api_keys}
            assert {17, 36, 50, 51} <= keys
            client.writer.write(struct.pack(">i", 201))
            assert await client.closed()
            client = await connected(broker)
            assert (await plain(client, "alice", "wonder")).error_code == 0
            client.send(
                ApiKey.METADATA, 9, Message(topics=[Message(name="x" * 200)], allow_auto_topic_creation=False)
            )
            await client.receive()
            client.writer.close()

    asyncio.run(scenario())


def test_plain_lets_in_who_knows_the_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()

    async def scenario() -> list[tuple[int, str | None]]:
        refusals = []
        async with running(tmp_path, PLAIN, seen) as broker:
            client = await connected(broker)
            answer = await plain(client, "alice", "wonder")
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
            assert await served(client)
            client.writer.close()
            for user, password in (("alice", "builder"), ("mallory", "wonder"), ("", ""), ("alice", "")):
                client = await connected(broker)
                answer = await plain(client, user, password)
                refusals.append((answer.error_code, answer.error_message))
                assert await client.closed()
            client = await connected(broker)
            await handshake(client, "PLAIN")
            answer = await authenticate(client, b"bob\0alice\0wonder")  # to act as another
            refusals.append((answer.error_code, answer.error_message))
            client.writer.close()
        return refusals

    with caplog.at_level(logging.DEBUG):
        refusals = asyncio.run(scenario())
    assert len(set(refusals)) == 1 and refusals[0][0] == 58
    assert "invalid credentials with SASL mechanism PLAIN" in (refusals[0][1] or "")
    assert seen.principals == ["User:alice"]
    assert "wonder" not in caplog.text and "builder" not in caplog.text


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_lets_in_who_knows_the_password_also_after_a_restart(tmp_path: Path, mechanism: str) -> None:
    seen = Seen()

    async def scenario() -> None:
        async with running(tmp_path, SCRAM, seen) as broker:
            await keep(broker, "b=o,b ü", "builder", mechanism)
        async with running(tmp_path, SCRAM, seen) as broker:
            client = await connected(broker)
            _, final = await scram(client, mechanism, "b=o,b ü", "builder")
            assert final is not None and final.error_code == 0
            assert await served(client)
            client.writer.close()

    asyncio.run(scenario())
    assert seen.principals == ["User:b=o,b ü"]


@pytest.mark.promise("protocol", "A wrong user and a wrong password get the same error")
def test_a_wrong_user_and_a_wrong_password_cannot_be_told_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        shapes: dict[str, list[Any]] = {}
        async with running(tmp_path, SCRAM) as broker:
            await keep(broker, "alice", "wonder")
            for user in ("alice", "mallory", "mallory"):
                client = await connected(broker)
                first, final = await scram(client, "SCRAM-SHA-256", user, "guess")
                assert final is not None and await client.closed()
                salt = bytes(first.auth_bytes).split(b",s=")[1]
                shapes.setdefault(user, []).append(
                    (salt, final.error_code, final.error_message, bytes(final.auth_bytes))
                )
        async with running(tmp_path, SCRAM) as broker:
            client = await connected(broker)
            first, final = await scram(client, "SCRAM-SHA-256", "mallory", "guess")
            assert bytes(first.auth_bytes).split(b",s=")[1] == shapes["mallory"][0][0]  # after a restart, too
            client.writer.close()
        assert shapes["mallory"][0] == shapes["mallory"][1]
        assert shapes["alice"][0][1:] == shapes["mallory"][0][1:]

    asyncio.run(scenario())


def test_a_deleted_user_cannot_log_in_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, SCRAM) as broker:
            await keep(broker, "alice", "wonder")
            client = await connected(broker)
            await scram(client, "SCRAM-SHA-256", "alice", "wonder")
            await broker.controller.alter_scram_credentials([CredentialChange("alice", 1)])
            assert await served(client)  # until its login expires
            _, final = await scram(client, "SCRAM-SHA-256", "alice", "wonder")
            assert final is not None and final.error_code == 58
            assert await client.closed()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol", "A login ends after `connections.max.reauth.ms` unless it is renewed (KIP-368)"
)
def test_an_expired_login_is_closed_unless_it_was_renewed(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario() -> None:
        async with running(tmp_path, {**PLAIN, "connections.max.reauth.ms": "60000"}, clock=clock) as broker:
            renewed, silent = await connected(broker), await connected(broker)
            for client in (renewed, silent):
                assert (await plain(client, "alice", "wonder")).session_lifetime_ms == 60_000
            clock.advance(50_000)
            assert (await plain(renewed, "alice", "wonder")).error_code == 0
            clock.advance(20_000)
            assert await served(renewed)
            assert not await served(silent)
            # as another user, or by another mechanism, it is not renewed
            assert (await plain(renewed, "bob", "builder")).error_code == 58
            assert await renewed.closed()

    asyncio.run(scenario())


def test_a_mechanism_that_the_listener_does_not_have_is_answered_with_those_it_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, SCRAM) as broker:
            client = await connected(broker)
            answer = await handshake(client, "PLAIN")
            assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
            assert await client.closed()
            client = await connected(broker)
            assert (await authenticate(client, b"\0alice\0wonder")).error_code == 34
            assert await client.closed()

    asyncio.run(scenario())


def test_without_headers_as_old_clients_do_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, PLAIN) as broker:
            for password, expected in ((b"wonder", True), (b"wrong", False)):
                client = await connected(broker)
                assert (await handshake(client, "PLAIN", version=0)).error_code == 0
                message = b"\0alice\0" + password
                client.writer.write(struct.pack(">i", len(message)) + message)
                if not expected:
                    assert await client.closed()
                    continue
                assert await client.receive() == b""
                assert await served(client)
                client.writer.close()

    asyncio.run(scenario())


def test_a_listener_without_sasl_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
            client = await connected(broker)
            assert (await handshake(client, "PLAIN")).error_code == 34
            assert (await authenticate(client, b"x")).error_code == 34
            client.writer.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol", "Before a client has logged in, the broker serves only the requests that the login needs"
)
def test_a_login_that_does_not_come_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {**PLAIN, "penstock.authentication.timeout.ms": "50"}) as broker:
            silent = await connected(broker)
            assert await silent.closed()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
def test_users_of_plain_may_be_in_a_file_that_changes(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"# people\nalice: wonder\nbob: {hashed('builder', 10)}\n")
    given = {"sasl.enabled.mechanisms": "PLAIN", "penstock.sasl.plain.users.file": str(file)}

    async def outcome(broker: Broker, user: str, password: str) -> int:
        client = await connected(broker)
        code: int = (await plain(client, user, password)).error_code
        client.writer.close()
        return code

    async def scenario() -> None:
        async with running(tmp_path, given) as broker:
            for _ in range(2):
                assert (
                    await outcome(broker, "alice", "wonder") == await outcome(broker, "bob", "builder") == 0
                )
            for user, password in (("alice", "x"), ("bob", "x"), ("mallory", "x"), ("bob", "bob")):
                assert await outcome(broker, user, password) == 58
            fresh = tmp_path / "fresh"
            fresh.write_text("alice: changed\n")
            os.replace(fresh, file)
            assert await outcome(broker, "bob", "builder") == await outcome(broker, "alice", "wonder") == 58
            assert await outcome(broker, "alice", "changed") == 0

    asyncio.run(scenario())
    for text in ("alice", "alice:", "x: pbkdf2_sha256:9"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="line 1"):
            UsersFile(str(file))


# OAUTHBEARER


def key_set(directory: Path, **keys: ec.EllipticCurvePrivateKey) -> str:
    found = []
    for name, key in keys.items():
        one = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        found.append({**one, "kid": name, "alg": "ES256", "use": "sig"})
    file = directory / "jwks.json"
    file.write_text(json.dumps({"keys": found}))
    return file.as_uri()


def token(key: Any, key_id: str = "one", algorithm: str = "ES256", **claims: Any) -> str:
    body = {"sub": "alice", "iss": "us", "aud": "kafka", "exp": int(time.time()) + 600, **claims}
    body = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(body, key, algorithm=algorithm, headers={"kid": key_id})


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def under_another_name(text: str) -> str:
    """A token with an HMAC whose header names a signature."""
    body = text.split(".")[1]
    head = b64(b'{"alg":"ES256","typ":"JWT","kid":"shared"}')
    return f"{head}.{body}.{b64(hmac.digest(b's' * 32, f'{head}.{body}'.encode(), 'sha256'))}"


async def bearer(broker: Broker, text: str) -> tuple[Message, Message | None, Client]:
    client = await connected(broker)
    await handshake(client, "OAUTHBEARER")
    answer = await authenticate(client, f"n,,\x01auth=Bearer {text}\x01\x01".encode())
    last = await authenticate(client, b"\x01") if bytes(answer.auth_bytes) else None
    return answer, last, client


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
def test_a_token_of_the_issuer_lets_its_user_in_and_others_do_not(tmp_path: Path) -> None:
    one, two, foreign = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    seen = Seen()
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": key_set(tmp_path, one=one, two=two),
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    public = json.loads((tmp_path / "jwks.json").read_text())["keys"][0]["x"]
    wrong = {
        "expired": token(one, exp=int(time.time()) - 100),
        "no end": token(one, exp=None),
        "foreign key": token(foreign),
        "unknown key": token(foreign, "three"),
        "other issuer": token(one, iss="them"),
        "other audience": token(one, aud="files"),
        "nobody": token(one, sub=None),
        "unsigned": jwt.encode({"sub": "alice"}, None, algorithm="none", headers={"kid": "one"}),
        "signed with a part of the public key": token(public, algorithm="HS256"),
        "no token": "nothing",
        "a header nested too deeply": ".".join(map(b64, [b'{"alg":' + b"[" * 40_000, b"{}", b"s"])),
        "an infinite end": token(one, exp=float("inf")),
        "a secret in the key set": token(b"s" * 32, "shared", "HS256"),
        "a secret in the key set, by another name": under_another_name(token(b"s" * 32, "shared", "HS256")),
    }
    keys = json.loads((tmp_path / "jwks.json").read_text())
    keys["keys"].append({"kty": "oct", "kid": "shared", "k": b64(b"s" * 32)})
    (tmp_path / "jwks.json").write_text(json.dumps(keys))

    async def scenario() -> None:
        clock = ManualClock()
        now = int(time.time())
        clock.advance(now * 1000 - clock.now_ms())
        async with running(tmp_path, given, seen, clock) as broker:
            for key, name in ((one, "one"), (two, "two")):
                answer, last, client = await bearer(broker, token(key, name, exp=now + 600))
                assert (answer.error_code, last) == (0, None)
                assert 500_000 < answer.session_lifetime_ms <= 600_000  # the token's own end
                assert await served(client)
                client.writer.close()
            for what, text in wrong.items():
                answer, last, client = await bearer(broker, text)
                assert json.loads(bytes(answer.auth_bytes)) == {"status": "invalid_token"}, what
                assert last is not None and last.error_code == 58, what
                assert await client.closed()

    asyncio.run(scenario())
    assert seen.principals == ["User:alice"] * 2


# requests about credentials


@pytest.mark.promise("protocol", "SCRAM credentials are altered and described as in Kafka")
def test_credentials_are_altered_and_described_as_kafka_does(tmp_path: Path) -> None:
    def upsert(name: str, mechanism: int = 1, iterations: int = 4096) -> Message:
        return Message(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p" * 32
        )

    async def scenario() -> None:
        async with running(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
            client = await connected(broker)

            async def alter(deletions: list[Message], upsertions: list[Message]) -> dict[str, int]:
                answer = await client.request(
                    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                    0,
                    Message(deletions=deletions, upsertions=upsertions),
                )
                return {one.user: one.error_code for one in answer.results}

            async def describe(*users: str) -> dict[str, Any]:
                wanted = [Message(name=user) for user in users] or None
                answer = await client.request(
                    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, Message(users=wanted)
                )
                return {
                    one.user: one.error_code
                    or [(info.mechanism, info.iterations) for info in one.credential_infos]
                    for one in answer.results
                }

            good = [upsert("alice"), upsert("alice", 2, 16384), upsert("böb/:.")]
            assert await alter([], good) == {"alice": 0, "böb/:.": 0}
            assert await describe() == {"alice": [(1, 4096), (2, 16384)], "böb/:.": [(1, 4096)]}
            bad = [
                upsert(""),
                upsert("few", 1, 4095),
                upsert("many", 1, 16385),
                upsert("odd", 3),
                upsert("twice"),
            ]
            bad += [upsert("twice"), upsert("carol")]
            assert await alter([Message(name="nobody", mechanism=1)], bad) == {
                "nobody": 91, "": 93, "few": 93, "many": 93, "odd": 33, "twice": 92, "carol": 0,
            }  # fmt: skip
            assert await alter([Message(name="alice", mechanism=1)], []) == {"alice": 0}
            assert await describe("alice", "nobody") == {"alice": [(2, 16384)], "nobody": 91}
            assert await describe("alice", "alice") == {"alice": 92}
            client.writer.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol", "Before a client has logged in, the broker serves only the requests that the login needs"
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=st.lists(
        st.tuples(
            st.sampled_from([17, 36, 18, 3, -1]), st.integers(-1, 3), st.binary(max_size=60), st.booleans()
        ),
        max_size=4,
    )
)
def test_whatever_is_sent_instead_of_a_login_lets_nobody_in(
    tmp_path: Path, frames: list[tuple[int, int, bytes, bool]]
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {**PLAIN, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}) as broker:
            client = await connected(broker)
            for key, version, body, begin in frames:
                if begin:
                    client.send(ApiKey.SASL_HANDSHAKE, 1, Message(mechanism="SCRAM-SHA-256"))
                frame = struct.pack(">hhih", key, version, 1, -1) + body
                client.writer.write(struct.pack(">i", len(frame)) + frame)
            client.send(ApiKey.METADATA, 9, metadata(), 77)
            client.writer.write_eof()
            answers = await client.reader.read()
            assert struct.pack(">i", 77) not in answers
            client.writer.close()
            other = await connected(broker)
            assert (await plain(other, "alice", "wonder")).error_code == 0
            other.writer.close()

    asyncio.run(scenario())


def test_jaas_configs_are_read_as_java_reads_them() -> None:
    text = r"""o.a.k.PlainLoginModule required
        username="broker"  password='it"s'
        user_alice="se\"cret;1" user_b-o.b=bare ;"""
    assert jaas_options("x", text) == {
        "username": "broker", "password": 'it"s', "user_alice": 'se"cret;1', "user_b-o.b": "bare",
    }  # fmt: skip
    for wrong in ("", "PlainLoginModule required", 'PlainLoginModule required a="b"', 'required a="sesame";'):
        with pytest.raises(ConfigError) as failed:
            jaas_options("listener.name.x.plain.sasl.jaas.config", wrong)
        assert "sesame" not in str(failed.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "has no users of PLAIN"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({**PLAIN, "penstock.sasl.plain.users.file": "/nowhere"}, "cannot be read"),
    ],
)
def test_settings_of_sasl_that_cannot_be_used_are_named(
    tmp_path: Path, given: dict[str, str], message: str
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, given):
            pass

    with pytest.raises(ConfigError, match=message):
        asyncio.run(scenario())
