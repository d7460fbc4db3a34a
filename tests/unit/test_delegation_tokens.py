"""Delegation tokens: lifetimes and permissions (pure), and the four APIs and logins at a broker."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.security.authentication.principal import Principal
from penstock.clock import ManualClock
from penstock.controller.tokens import expired, expiry, new_token, renewal
from penstock.credentials.scram import ClientScram
from penstock.errors import DelegationTokenExpired, DelegationTokenOwnerMismatch, InvalidPrincipalType
from penstock.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.metadata.tokens import DelegationToken
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.unit.test_broker_connections import Client
from tests.unit.test_sasl_server import (
    SCRAM,
    Seen,
    authenticate,
    connected,
    handshake,
    keep,
    running,
    scram,
    served,
)

DAY = 86_400_000
DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, DENIED, EXPIRED, BAD_TYPE = range(61, 68)
TOKENS = {**SCRAM, "delegation.token.secret.key": "planted-token-secret"}


def made(asked_ms: int = -1, **more: int) -> DelegationToken:
    limits = {"max_lifetime_ms": 7 * DAY, "expiry_ms": DAY} | more
    return new_token(
        "id", "User:alice", "User:carol", [("User", "bob")], 1000, asked_ms=asked_ms, **limits
    )  # fmt: skip


def test_a_token_lives_as_long_as_asked_and_never_longer_than_the_broker_allows() -> None:
    assert (made().expires_ms, made().max_ms) == (1000 + DAY, 1000 + 7 * DAY)
    assert (made(5000).expires_ms, made(5000).max_ms) == (6000, 6000)
    assert made(100 * DAY).max_ms == 1000 + 7 * DAY
    with pytest.raises(InvalidPrincipalType):
        new_token("i", "User:a", "User:a", [("Group", "g")], 0, asked_ms=-1, max_lifetime_ms=1, expiry_ms=1)
    with pytest.raises(InvalidPrincipalType):
        new_token("i", "Group:a", "User:a", [], 0, asked_ms=-1, max_lifetime_ms=1, expiry_ms=1)


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
@pytest.mark.parametrize("principal", ["User:alice", "User:carol", "User:bob"])
def test_owner_requester_and_renewers_renew_and_expire_it(principal: str) -> None:
    token = made()
    renewed = renewal(principal, 3 * DAY // 4, period_ms=-1, expiry_ms=DAY)(token)
    assert renewed is not None and renewed.expires_ms == 3 * DAY // 4 + DAY
    shorter = renewal(principal, 2000, period_ms=500, expiry_ms=DAY)(token)
    assert shorter is not None and shorter.expires_ms == 2500
    last = renewal(principal, 2000, period_ms=-1, expiry_ms=100 * DAY)(token)
    assert last is not None and last.expires_ms == token.max_ms
    ended = expiry(principal, 2000, period_ms=10)(token)
    assert ended is not None and ended.expires_ms == 2010
    assert expiry(principal, 2000, period_ms=-1)(token) is None


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
def test_others_change_nothing_and_an_expired_token_is_only_deleted() -> None:
    token = made()
    for change in (
        renewal("User:eve", 2000, period_ms=-1, expiry_ms=DAY),
        expiry("User:eve", 2000, period_ms=-1),
        expiry("User:eve", 2000, period_ms=10),
    ):
        with pytest.raises(DelegationTokenOwnerMismatch):
            change(token)
    late = token.expires_ms + 1
    with pytest.raises(DelegationTokenExpired):
        renewal("User:alice", late, period_ms=-1, expiry_ms=DAY)(token)
    with pytest.raises(DelegationTokenExpired):
        expiry("User:alice", late, period_ms=10)(token)
    assert expiry("User:alice", late, period_ms=-1)(token) is None
    assert expired({"id": token}, token.expires_ms) == [] and expired({"id": token}, late) == ["id"]


# at a broker


async def logged_in(broker: Broker, user: str) -> Client:
    client = await connected(broker)
    _, final = await scram(client, "SCRAM-SHA-256", user, f"{user}-password")
    assert final is not None and final.error_code == 0
    return client


async def with_token(
    broker: Broker, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-512"
) -> tuple[Client, Message]:
    """The client, and the last answer to its login."""
    client = await connected(broker)
    assert (await handshake(client, mechanism)).error_code == 0
    password = base64.b64encode(hmac).decode()
    side = ClientScram(mechanism, token_id, password, "abc", is_token=True)
    first = await authenticate(client, side.first())
    final = await authenticate(client, side.proof(bytes(first.auth_bytes)))
    if not final.error_code:
        side.check(bytes(final.auth_bytes))
    return client, final


async def create(
    client: Client, *renewers: str, owner: str | None = None, lifetime_ms: int = -1, version: int = 3
) -> Message:
    return await client.request(
        ApiKey.CREATE_DELEGATION_TOKEN,
        version,
        Message(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[Message(principal_type="User", principal_name=name) for name in renewers],
            max_lifetime_ms=lifetime_ms,
        ),
    )


async def describe(client: Client, *owners: str, version: int = 3) -> Message:
    named = [Message(principal_type="User", principal_name=name) for name in owners]
    return await client.request(
        ApiKey.DESCRIBE_DELEGATION_TOKEN, version, Message(owners=named if owners else None)
    )


async def renew(client: Client, hmac: bytes, period_ms: int = -1) -> Message:
    return await client.request(
        ApiKey.RENEW_DELEGATION_TOKEN, 2, Message(hmac=hmac, renew_period_ms=period_ms)
    )


async def expire(client: Client, hmac: bytes, period_ms: int = -1) -> Message:
    return await client.request(
        ApiKey.EXPIRE_DELEGATION_TOKEN, 2, Message(hmac=hmac, expiry_time_period_ms=period_ms)
    )


def scenario(
    directory: Path,
    work: Callable[[Broker, ManualClock], Awaitable[None]],
    settings: dict[str, str] | None = None,
    seen: Seen | None = None,
) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(directory, TOKENS | (settings or {}), seen, clock) as broker:
            for user in ("alice", "bob", "eve"):
                await keep(broker, user, f"{user}-password")
            await work(broker, clock)

    asyncio.run(main())


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_a_token_is_its_owner_and_makes_no_tokens(tmp_path: Path, mechanism: str) -> None:
    seen = Seen()

    async def work(broker: Broker, clock: ManualClock) -> None:
        token = await create(await logged_in(broker, "alice"), "bob")
        assert (token.error_code, token.principal_name) == (0, "alice")
        assert token.max_timestamp_ms == clock.now_ms() + 7 * DAY
        for _ in range(2):
            client, final = await with_token(broker, token.token_id, bytes(token.hmac), mechanism)
            assert final.error_code == 0
            assert final.session_lifetime_ms == DAY  # KIP-368: the login ends with the token
            assert await served(client)
        assert seen.principals[-1] == "User:alice"
        assert (await create(client)).error_code == NOT_ALLOWED
        assert (await renew(client, bytes(token.hmac))).error_code == NOT_ALLOWED
        assert (await expire(client, bytes(token.hmac))).error_code == NOT_ALLOWED
        assert (await describe(client)).error_code == NOT_ALLOWED
        clock.advance(DAY + 1)
        assert not await served(client)

    scenario(tmp_path, work, seen=seen)


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
def test_wrong_unknown_and_expired_tokens_let_nobody_in(tmp_path: Path) -> None:
    async def work(broker: Broker, clock: ManualClock) -> None:
        alice = await logged_in(broker, "alice")
        token, other = await create(alice), await create(alice)
        hmac = bytes(token.hmac)
        refused = [
            (token.token_id, b"wrong"),
            (token.token_id, bytes(other.hmac)),
            ("no-such-token", hmac),
            ("alice", b"alice-password"),  # a user is not a token
        ]
        for name, secret in refused:
            _, final = await with_token(broker, name, secret)
            assert final.error_code == 58, name
        client = await connected(broker)
        _, plain = await scram(client, "SCRAM-SHA-256", token.token_id, base64.b64encode(hmac).decode())
        assert plain is not None and plain.error_code == 58  # nor is a token a user
        clock.advance(DAY + 1)
        _, final = await with_token(broker, token.token_id, hmac)
        assert final.error_code == 58

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
def test_tokens_are_renewed_expired_and_removed(tmp_path: Path) -> None:
    async def work(broker: Broker, clock: ManualClock) -> None:
        alice, bob, eve = [await logged_in(broker, user) for user in ("alice", "bob", "eve")]
        token = await create(alice, "bob")
        hmac = bytes(token.hmac)
        clock.advance(DAY // 2)
        assert (await renew(bob, hmac)).expiry_timestamp_ms == clock.now_ms() + DAY
        assert (await renew(eve, hmac)).error_code == MISMATCH
        assert (await expire(eve, hmac)).error_code == MISMATCH
        assert (await renew(alice, b"unknown")).error_code == NOT_FOUND
        assert (await expire(bob, hmac, 10)).expiry_timestamp_ms == clock.now_ms() + 10
        clock.advance(11)
        assert (await renew(alice, hmac)).error_code == EXPIRED
        assert len((await describe(alice)).tokens) == 1
        second = await create(alice)
        clock.advance(3_600_000)
        assert "expired delegation tokens" in await broker.jobs.run_due()
        alice = await logged_in(broker, "alice")  # the others have been idle for too long
        assert [one.token_id for one in (await describe(alice)).tokens] == [second.token_id]
        assert (await expire(alice, bytes(second.hmac))).error_code == 0
        assert broker.image.tokens == {}
        _, final = await with_token(broker, second.token_id, bytes(second.hmac))
        assert final.error_code == 58

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
def test_tokens_are_there_after_a_restart_and_void_with_another_secret(tmp_path: Path) -> None:
    found: list[Message] = []

    async def make(broker: Broker, clock: ManualClock) -> None:
        found.append(await create(await logged_in(broker, "alice"), "bob"))

    async def use(broker: Broker, clock: ManualClock) -> None:
        (token,) = found
        _, final = await with_token(broker, token.token_id, bytes(token.hmac))
        assert final.error_code == 0
        (described,) = (await describe(await logged_in(broker, "bob"))).tokens
        assert (described.hmac, described.token_id) == (token.hmac, token.token_id)
        assert [one.principal_name for one in described.renewers] == ["bob"]
        assert described.max_timestamp == token.max_timestamp_ms

    async def refused(broker: Broker, clock: ManualClock) -> None:
        _, final = await with_token(broker, found[0].token_id, bytes(found[0].hmac))
        assert final.error_code == 58

    scenario(tmp_path, make)
    scenario(tmp_path, use)
    scenario(tmp_path, refused, {"delegation.token.secret.key": "another"})
    assert b"planted-token-secret" not in (tmp_path / "data" / "metadata.sqlite").read_bytes()
    assert bytes(found[0].hmac) not in (tmp_path / "data" / "metadata.sqlite").read_bytes()


@pytest.mark.promise(
    "access",
    "Creating, describing and changing delegation tokens of other users needs ACLs; without a secret key "
    "or without a login there are no tokens",
)
def test_tokens_for_others_and_of_others_take_acls(tmp_path: Path) -> None:
    async def work(broker: Broker, clock: ManualClock) -> None:
        alice, eve = await logged_in(broker, "alice"), await logged_in(broker, "eve")
        token = await create(alice)
        assert token.error_code == 0  # one's own takes none
        assert (await create(eve, owner="alice")).error_code == DENIED
        assert (await describe(eve)).tokens == []

        async def allow(kind: ResourceType, name: str, operation: Operation) -> None:
            entry = Acl(kind, name, PatternType.LITERAL, "User:eve", "*", operation, Permission.ALLOW)
            assert await broker.controller.create_acls([entry]) == [None]
            await broker.caught_up()

        await allow(ResourceType.DELEGATION_TOKEN, token.token_id, Operation.DESCRIBE)
        assert [one.token_id for one in (await describe(eve)).tokens] == [token.token_id]
        await allow(ResourceType.USER, "User:alice", Operation.CREATE_TOKENS)
        for_alice = await create(eve, owner="alice")
        assert (for_alice.error_code, for_alice.principal_name) == (0, "alice")
        assert for_alice.token_requester_principal_name == "eve"
        another = await create(alice)
        await allow(ResourceType.USER, "User:alice", Operation.DESCRIBE_TOKENS)
        ids = {one.token_id for one in (await describe(eve, "alice")).tokens}
        assert ids == {token.token_id, for_alice.token_id, another.token_id}
        assert (await describe(eve, "bob")).tokens == []
        _, final = await with_token(broker, for_alice.token_id, bytes(for_alice.hmac))
        assert final.error_code == 0

    scenario(
        tmp_path,
        work,
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
    )


@pytest.mark.promise(
    "access",
    "Creating, describing and changing delegation tokens of other users needs ACLs; without a secret key "
    "or without a login there are no tokens",
)
def test_without_a_secret_and_without_a_login_there_are_no_tokens(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, SCRAM) as broker:
            await keep(broker, "alice", "alice-password")
            alice = await logged_in(broker, "alice")
            for version in (1, 2, 3):
                assert (await create(alice, version=version)).error_code == DISABLED
                assert (await describe(alice, version=version)).error_code == DISABLED
            assert (await renew(alice, b"x")).error_code == DISABLED
            assert (await expire(alice, b"x")).error_code == DISABLED
        open_listener = {"listeners": "PLAINTEXT://127.0.0.1:0", "delegation.token.secret.key": "s"}
        async with running(tmp_path / "open", open_listener) as broker:
            client = await connected(broker)
            assert (await create(client)).error_code == NOT_ALLOWED
            assert (await describe(client)).error_code == NOT_ALLOWED

    asyncio.run(main())


def test_a_principal_is_the_same_whether_by_token_or_not() -> None:
    assert Principal("User", "a", by_token=True) == Principal("User", "a")
