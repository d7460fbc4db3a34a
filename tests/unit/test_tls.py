"""TLS listeners of a broker in this process: handshakes, certificates, principals, reloading."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.broker.security.authentication.subjects import SubjectRules, subject_of
from penstock.broker.security.authentication.tls import TlsSettings
from penstock.cli.access.authority import Authority as CertsAuthority
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicSpec
from penstock.errors import ConfigError
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.certificates import Authority
from tests.unit.test_broker_connections import Client, metadata

AUTHORITY = Authority()
PEOPLE = Authority("people")


class Seen:
    """Remembers the contexts of requests."""

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []

    def intercept(self, context: RequestContext) -> None:
        self.contexts.append(context)


def keystore(directory: Path, authority: Authority = AUTHORITY, host: str = "127.0.0.1") -> Path:
    certificate, key = authority.issue(host)
    file = directory / "keystore.pem"
    fresh = directory / "keystore.new"
    fresh.write_text(key + certificate)
    os.replace(fresh, file)
    return file


def context(authority: Authority = AUTHORITY) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def with_certificate(directory: Path, certificate: str, key: str) -> ssl.SSLContext:
    made = context()
    file = directory / "client.pem"
    file.write_text(key + certificate)
    made.load_cert_chain(file)
    return made


@asynccontextmanager
async def running(
    directory: Path, settings: dict[str, str], seen: Seen | None = None
) -> AsyncIterator[tuple[Broker, int]]:
    values = {
        "listeners": "SSL://127.0.0.1:0",
        "log.dirs": str(directory / "data"),
        "ssl.keystore.location": str(directory / "keystore.pem"),
        **settings,
    }
    broker = Broker(BrokerConfig.parse(values), ManualClock(), interceptor=seen)
    await broker.start()
    try:
        yield broker, broker.port
    finally:
        await broker.stop()


async def connected(port: int, tls: ssl.SSLContext) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))


async def refused(port: int, tls: ssl.SSLContext) -> bool:
    """Whether no request is answered; TLS 1.3 shows a client only then that its certificate is not liked."""
    try:
        client = await connected(port, tls)
        client.send(ApiKey.METADATA, 9, metadata())
        await client.receive()
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
        return True
    client.writer.close()
    return False


@pytest.mark.promise(
    "protocol",
    "A broker can have several listeners, in plaintext and with TLS; each client gets the addresses of "
    "the listener that it connected to",
)
def test_requests_and_records_go_over_tls_in_pieces_of_any_size(tmp_path: Path) -> None:
    keystore(tmp_path)
    batch = build_batch([Record(0, 1_000, None, os.urandom(700_000))])

    async def scenario() -> None:
        async with running(tmp_path, {}) as (broker, port):
            await broker.controller.create_topics([TopicSpec("t", 1, 1)])
            await broker.caught_up()
            client = await connected(port, context())
            for _ in range(3):
                body = struct.pack(">hhih", ApiKey.PRODUCE, 7, 1, -1) + struct.pack(">hhii", -1, 1, 9000, 1)
                body += struct.pack(">h", 1) + b"t" + struct.pack(">iii", 1, 0, len(batch)) + batch
                frame = struct.pack(">i", len(body)) + body
                for start in range(0, len(frame), 100_000):
                    client.writer.write(frame[start : start + 100_000])
                    await client.writer.drain()
                    await asyncio.sleep(0)
                (code,) = struct.unpack_from(">h", await client.receive(), 4 + 4 + 2 + 1 + 4 + 4)
                assert code == 0
            fetch = Message(
                replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, isolation_level=0, session_id=0,
                session_epoch=-1, forgotten_topics_data=[], rack_id="",
                topics=[Message(topic="t", partitions=[Message(
                    partition=0, fetch_offset=0, partition_max_bytes=1 << 30, current_leader_epoch=-1,
                    last_fetched_epoch=-1, log_start_offset=-1)])],
            )  # fmt: skip
            answer = await client.request(ApiKey.FETCH, 11, fetch)
            records = bytes(answer.responses[0].partitions[0].records)
            assert len(records) == 3 * len(batch)
            assert records[61 : len(batch)] == bytes(batch)[61:]
            client.writer.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol",
    "A broker can have several listeners, in plaintext and with TLS; each client gets the addresses of "
    "the listener that it connected to",
)
def test_answers_wait_until_the_client_reads_them(tmp_path: Path) -> None:
    keystore(tmp_path)

    async def scenario() -> None:
        async with running(tmp_path, {}) as (broker, port):
            await broker.controller.create_topics([TopicSpec(f"t{i}", 100, 1) for i in range(5)])
            await broker.caught_up()
            client = await connected(port, context())
            every = Message(topics=None, allow_auto_topic_creation=False)
            # About 15 kB each: more than sockets and the broker's buffers hold.
            for number in range(300):
                client.send(ApiKey.METADATA, 9, every, number)
            for number in range(300):
                assert struct.unpack_from(">i", await client.receive())[0] == number
            client.writer.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol",
    "A TLS listener rejects clients without TLS and, if it requires certificates, clients without a "
    "trusted one",
)
def test_a_client_of_plain_text_or_of_another_authority_is_not_served(tmp_path: Path) -> None:
    keystore(tmp_path)

    async def scenario() -> None:
        async with running(tmp_path, {}) as (broker, port):
            with pytest.raises(ssl.SSLCertVerificationError):
                await connected(port, context(Authority("another")))
            plain = Client(*await asyncio.open_connection("127.0.0.1", port))
            plain.send(ApiKey.METADATA, 9, metadata())
            assert (await plain.reader.read())[:1] in (b"", b"\x15")  # nothing, or an alert
            old = context()
            old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            old.set_ciphers("ALL:@SECLEVEL=0")
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connected(port, old)
            client = await connected(port, context())
            assert (await client.request(ApiKey.METADATA, 9, metadata())).brokers[0].port == port
            client.writer.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol",
    "A TLS listener rejects clients without TLS and, if it requires certificates, clients without a "
    "trusted one",
)
def test_a_handshake_that_does_not_end_is_closed(tmp_path: Path) -> None:
    keystore(tmp_path)

    async def scenario() -> None:
        # Long enough for the handshake of a client that does its part, on a busy machine as well.
        async with running(tmp_path, {"penstock.authentication.timeout.ms": "2000"}) as (broker, port):
            client = await connected(port, context())
            silent = []
            for begun in (b"", b"\x16\x03\x01\x02\x00\x01"):
                silent.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
                silent[-1].writer.write(begun)
            for each in silent:
                assert await each.closed()
            # It came before them, so it is past the limit, too, which is only for handshakes.
            await client.request(ApiKey.METADATA, 9, metadata())
            client.writer.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "protocol",
    "The subject of a client's certificate is its principal, written as Java does and mapped by Kafka's "
    "rules",
)
def test_the_subject_of_a_client_certificate_is_its_principal(tmp_path: Path) -> None:
    keystore(tmp_path)
    rules = r"RULE:^CN=([a-z]+),OU=ops.*$/$1/U,DEFAULT"
    seen = Seen()
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.truststore.certificates": PEOPLE.pem,
        "ssl.principal.mapping.rules": rules,
    }
    names = [
        x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "ops"),
                   x509.NameAttribute(NameOID.COMMON_NAME, "alice")]),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob, the builder")]),
    ]  # fmt: skip

    async def scenario() -> None:
        async with running(tmp_path, settings, seen) as (_, port):
            for name in names:
                client = await connected(port, with_certificate(tmp_path, *PEOPLE.issue("x", subject=name)))
                await client.request(ApiKey.METADATA, 9, metadata())
                client.writer.close()
            assert await refused(port, context())
            assert await refused(port, with_certificate(tmp_path, *AUTHORITY.issue("mallory")))

    asyncio.run(scenario())
    assert [str(one.principal) for one in seen.contexts] == ["User:ALICE", r"User:CN=bob\, the builder"]
    assert {one.listener for one in seen.contexts} == {"SSL"}


def test_a_certificate_may_be_requested_without_being_required(tmp_path: Path) -> None:
    keystore(tmp_path)
    seen = Seen()
    settings = {"ssl.client.auth": "requested", "ssl.truststore.certificates": PEOPLE.pem}

    async def scenario() -> None:
        async with running(tmp_path, settings, seen) as (_, port):
            for tls in (context(), with_certificate(tmp_path, *PEOPLE.issue("alice"))):
                client = await connected(port, tls)
                await client.request(ApiKey.METADATA, 9, metadata())
                client.writer.close()

    asyncio.run(scenario())
    assert [str(one.principal) for one in seen.contexts] == ["User:ANONYMOUS", "User:CN=alice"]


@pytest.mark.promise(
    "protocol",
    "Changed certificates apply without a restart; invalid ones are ignored; private keys are never shown",
)
def test_changed_files_are_read_without_a_restart_and_broken_ones_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = keystore(tmp_path)
    other = Authority("other")

    async def scenario() -> None:
        async with running(tmp_path, {}) as (broker, port):
            standing = await connected(port, context())
            keystore(tmp_path, other)
            await broker._refresh_certificates()
            with pytest.raises(ssl.SSLCertVerificationError):
                await connected(port, context())
            (await connected(port, context(other))).writer.close()
            await standing.request(ApiKey.METADATA, 9, metadata())
            file.write_text("no certificate")
            await broker._refresh_certificates()
            (await connected(port, context(other))).writer.close()
            standing.writer.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert "listener SSL: reloaded TLS certificates" in caplog.text
    assert "listener SSL: could not reload TLS certificates" in caplog.text


@pytest.mark.promise(
    "protocol",
    "With ssl.crl.location a client whose certificate is revoked fails in its next handshake, without a "
    "restart; the test authority revokes with `penstock certs revoke`",
)
def test_a_revoked_certificate_is_refused_from_the_next_handshake_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keystore(tmp_path)
    people = CertsAuthority.open(tmp_path / "people", "people", 30)
    files = {name: people.issue(tmp_path / f"{name}.pem", name) for name in ("alice", "bob")}
    lists, _ = people.revoke([], 30)
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(people.certificate_file),
        "ssl.crl.location": str(lists),
    }

    def of(name: str) -> ssl.SSLContext:
        made = context()
        made.load_cert_chain(files[name])
        return made

    async def scenario() -> None:
        async with running(tmp_path, settings) as (broker, port):
            standing = await connected(port, of("alice"))
            await standing.request(ApiKey.METADATA, 9, metadata())
            people.revoke([files["alice"]], 30)
            await broker._refresh_certificates()
            assert await refused(port, of("alice"))
            assert not await refused(port, of("bob"))
            await standing.request(ApiKey.METADATA, 9, metadata())
            standing.writer.close()
            # A list that cannot be used does not replace the one in force.
            lists.write_text(people.certificate_file.read_text())
            await broker._refresh_certificates()
            assert await refused(port, of("alice"))
            assert not await refused(port, of("bob"))
            # Earlier entries stay in a new list.
            lists.unlink()
            people.revoke([files["alice"]], 30)
            people.revoke([files["bob"]], 30)
            await broker._refresh_certificates()
            assert await refused(port, of("alice")) and await refused(port, of("bob"))

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert "certificate revoked" in caplog.text
    assert "it must have X509 CRL blocks and nothing else" in caplog.text


def test_an_expired_revocation_list_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    keystore(tmp_path)
    people = CertsAuthority.open(tmp_path / "people", "people", 30)
    alice = people.issue(tmp_path / "alice.pem", "alice")
    lists, _ = people.revoke([], -1)
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(people.certificate_file),
        "ssl.crl.location": str(lists),
    }

    async def scenario() -> None:
        async with running(tmp_path, settings) as (broker, port):
            tls = context()
            tls.load_cert_chain(alice)
            assert await refused(port, tls)
            people.revoke([], 30)
            await broker._refresh_certificates()
            assert not await refused(port, tls)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "has no certificate: set ssl.keystore.location"),
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location=/nowhere: No such file"),
        ({"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.key is not set"),
        ({"ssl.cipher.suites": "NONE-OF-THESE"}, "none of NONE-OF-THESE is supported"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, str], message: str) -> None:
    config = BrokerConfig.parse({"listeners": "SSL://127.0.0.1:0", **settings})
    with pytest.raises(ConfigError, match=message):
        TlsSettings.of(config, "SSL").server_context()


@pytest.mark.promise(
    "protocol",
    "Changed certificates apply without a restart; invalid ones are ignored; private keys are never shown",
)
def test_keys_are_read_from_text_and_with_a_password_and_do_not_show(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.issue("127.0.0.1", password="open sesame")
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.certificate.chain": certificate,
        "ssl.keystore.key": key,
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
        "ssl.enabled.protocols": "TLSv1.2",
    }
    made = TlsSettings.of(BrokerConfig.parse({**settings, "ssl.key.password": "open sesame"}), "SSL")
    assert made.server_context().maximum_version is ssl.TLSVersion.TLSv1_2
    config = BrokerConfig.parse({**settings, "ssl.key.password": "wrong"})
    with pytest.raises(ConfigError) as failed:
        TlsSettings.of(config, "SSL").server_context()
    for text in (repr(made), repr(config), str(failed.value)):
        assert "sesame" not in text and key not in text and "wrong'" not in text


@pytest.mark.promise(
    "protocol",
    "The subject of a client's certificate is its principal, written as Java does and mapped by Kafka's "
    "rules",
)
def test_subjects_are_written_as_java_writes_them() -> None:
    parts = [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
        x509.NameAttribute(NameOID.COMMON_NAME, ' a,b+"ü" '),
    ]
    pem, _ = AUTHORITY.issue("x", subject=x509.Name(parts))
    der = x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)
    assert subject_of(der) == (r"CN=\ a\,b\+\"ü\"\ ,DC=example,1.2.840.113549.1.9.1=#1603614062,C=DE")


@pytest.mark.promise(
    "protocol",
    "The subject of a client's certificate is its principal, written as Java does and mapped by Kafka's "
    "rules",
)
def test_the_first_rule_that_matches_the_whole_subject_names_the_principal() -> None:
    rules = SubjectRules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT")
    assert rules.name("CN=kafka-client,OU=ServiceUsers,O=x") == "kafka-client"
    assert rules.name("CN=Adam,OU=Admin") == "adam@admin"
    assert rules.name("O=x") == "O=x"
    assert SubjectRules("RULE:^CN=a$/b/").name("CN=c") is None
    with pytest.raises(ConfigError, match="is not a rule"):
        SubjectRules("RULE:x")
