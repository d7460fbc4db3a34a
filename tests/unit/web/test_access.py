"""Who may use an HTTP server: users, tokens, roles, rates, and what a wrong login gives away (nothing)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import socket
import threading
import time

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.credentials import users_file
from penstock.credentials.users_file import TooManyLogins, UsersFile, hashed
from penstock.errors import ConfigError
from penstock.web.access import AccessSettings, Principal, Role, ServerAccess, by_method
from penstock.web.guard import Guard, Refusal
from penstock.web.rates import RateLimit
from penstock.web.server import Server
from penstock.web.sessions import Sessions

ROLES = ("read", "write", "admin")


def basic(user, password):
    return [(b"authorization", b"Basic " + base64.b64encode(f"{user}:{password}".encode()))]


def bearer(token):
    return [(b"authorization", f"Bearer {token}".encode())]


@pytest.fixture
def users(tmp_path):
    file = tmp_path / "users"
    file.write_text(
        "# people\n"
        "ann: pear\n"
        f"bob: {hashed('se:cret', 1000)}, read\n"
        f"cid: sha256:{hashlib.sha256(b'plum').hexdigest()}, write\n"
        "dan: fig, read, admin\n"
    )
    return file


@pytest.fixture
def access(users):
    made = ServerAccess(AccessSettings(users_file=str(users)))
    yield made
    made.close()


def admit(access, headers, needed=Role.READ, address="10.0.0.1"):
    return asyncio.run(access.admit(headers, address, needed))


@pytest.mark.promise(
    "access",
    "HTTP servers have users with salted hashes and roles, and bearer tokens; every failed login gets "
    "the same response after the same amount of work, whatever was wrong",
)
def test_users_have_the_roles_of_their_line_and_without_one_all(access):
    assert admit(access, basic("ann", "pear"), Role.ADMIN) == Principal("ann", Role.ADMIN)
    assert admit(access, basic("bob", "se:cret")) == Principal("bob", Role.READ)
    assert admit(access, basic("cid", "plum"), Role.WRITE) == Principal("cid", Role.WRITE)
    assert admit(access, basic("dan", "fig"), Role.ADMIN) == Principal("dan", Role.ADMIN)
    assert admit(access, basic("bob", "se:cret")) == Principal("bob", Role.READ), "and again"


def test_a_role_that_does_not_do_is_403_with_what_is_needed(access):
    for user, password, needed in (("bob", "se:cret", Role.WRITE), ("cid", "plum", Role.ADMIN)):
        refused = admit(access, basic(user, password), needed)
        assert isinstance(refused, Refusal) and refused.status == 403
        assert user in refused.message and needed.name.lower() in refused.message


@pytest.mark.promise(
    "access",
    "HTTP servers have users with salted hashes and roles, and bearer tokens; every failed login gets "
    "the same response after the same amount of work, whatever was wrong",
)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        basic("ann", "apple"),
        basic("eve", "pear"),
        basic("", ""),
        basic("bob", "bob"),
        [(b"authorization", b"Basic")],
        [(b"authorization", b"Basic ???")],
        [(b"authorization", b"Basic /w==")],
        [(b"authorization", b"Bearer x")],
        [(b"authorization", b"Digest x")],
        [(b"authorization", b"\xff\xff")],
    ],
)
def test_whatever_is_wrong_gets_the_same_answer(access, headers):
    expected = Refusal(
        401, "Unauthorized", "Unauthorized", ((b"www-authenticate", b'Basic realm="penstock"'),)
    )
    assert admit(access, headers) == expected


def test_users_without_a_salted_hash_are_named_at_the_start(users, caplog):
    ServerAccess(AccessSettings(users_file=str(users))).close()
    found = [each.getMessage() for each in caplog.records]
    assert [each.partition("user '")[2].partition("'")[0] for each in found] == ["ann", "cid", "dan"]
    assert "penstock users hash ann" in found[0]
    assert not any(secret in text for text in found for secret in ("pear", "plum", "sha256", "fig"))


def test_a_second_authorization_header_is_refused(access):
    assert admit(access, [*basic("eve", "x"), *basic("ann", "pear")]).status == 400


@pytest.mark.promise(
    "access",
    "HTTP servers have users with salted hashes and roles, and bearer tokens; every failed login gets "
    "the same response after the same amount of work, whatever was wrong",
)
def test_each_wrong_login_takes_the_same_work(users, monkeypatch):
    file = UsersFile(str(users), roles=ROLES)
    work = []
    real = hashlib.pbkdf2_hmac

    def counted(name, password, salt, iterations):
        work.append(iterations)
        return real(name, password, salt, iterations)

    monkeypatch.setattr(users_file.hashlib, "pbkdf2_hmac", counted)
    for user in ("ann", "bob", "cid", "nobody"):
        work.clear()
        assert asyncio.run(file.check(user, "wrong")) is None
        assert sum(work) == 1000, user


def test_the_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing(users, access):
    def replaced(text):
        fresh = users.with_name("fresh")
        fresh.write_text(text)
        os.replace(fresh, users)

    def soon(user, password, status):
        deadline = time.monotonic() + 30
        while True:
            found = admit(access, basic(user, password), address=str(time.monotonic_ns()))
            if getattr(found, "status", 200) == status:
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    assert admit(access, basic("ann", "pear")) == Principal("ann", Role.ADMIN)
    replaced("ann: changed, read\n")
    soon("ann", "changed", 200)
    soon("ann", "pear", 401)
    replaced("broken\n")
    soon("ann", "changed", 200)


def test_a_file_that_cannot_be_meant_is_refused_at_the_start(tmp_path):
    file = tmp_path / "users"
    for text, message in (
        ("", "has no users"),
        ("nobody", "line 1"),
        (": x", "line 1"),
        ("a: x\nb: y, owner", "line 2: no role 'owner': use one of read, write, admin"),
        ("a: pbkdf2_sha256:9", "line 1"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            ServerAccess(AccessSettings(users_file=str(file)))
    with pytest.raises(ConfigError, match="cannot be read"):
        ServerAccess(AccessSettings(users_file=str(tmp_path / "none")))


@pytest.mark.promise(
    "access",
    "Failed logins, password hashing and requests are rate-limited; hashing does not run on the event loop",
)
def test_failed_logins_of_an_address_are_limited_and_known_users_go_on(users):
    now = [0.0]
    access = ServerAccess(AccessSettings(users_file=str(users)), now=lambda: now[0])
    assert admit(access, basic("ann", "pear")) == Principal("ann", Role.ADMIN)
    statuses = [admit(access, basic("ann", f"guess {n}")).status for n in range(60)]
    assert statuses[:50] == [401] * 50 and set(statuses[50:]) == {429}
    limited = admit(access, basic("bob", "se:cret"))
    assert limited.status == 429 and limited.headers == ((b"retry-after", b"1"),)
    assert admit(access, basic("ann", "pear")) == Principal("ann", Role.ADMIN), "remembered"
    assert admit(access, basic("bob", "se:cret"), address="10.0.0.2") == Principal("bob", Role.READ)
    now[0] += 1.0
    assert admit(access, basic("cid", "plum")) == Principal("cid", Role.WRITE)


@pytest.mark.promise("access", "Rate limits use the address of the connection and ignore X-Forwarded-For")
def test_forwarded_headers_do_not_change_the_address_that_is_limited(users, monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    async def statuses():
        access = ServerAccess(AccessSettings(users_file=str(users)), now=lambda: 0.0)
        server = Server(_nothing_there, Guard(hosts=("127.0.0.1",), bound="127.0.0.1"), access=access)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.ensure_future(server.serve([listener]))
            await server.listening()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            async with httpx.AsyncClient(trust_env=False) as http:
                found = []
                for n in range(60):
                    headers = {"x-forwarded-for": f"203.0.113.{n}", "forwarded": f"for=203.0.113.{n}"}
                    answer = await http.get(url, headers=headers, auth=("ann", f"guess {n}"))
                    found.append(answer.status_code)
            server.should_exit = True
            await serving
        access.close()
        return found

    found = asyncio.run(statuses())
    assert found == [401] * 50 + [429] * 10


async def _nothing_there(scope, receive, send):
    raise AssertionError("nobody has logged in")


@pytest.mark.promise(
    "access",
    "Failed logins, password hashing and requests are rate-limited; hashing does not run on the event loop",
)
def test_hashing_is_not_on_the_loop_and_a_flood_of_logins_is_turned_away(users, monkeypatch):
    started, release = threading.Event(), threading.Event()
    threads = set()
    real = hashlib.pbkdf2_hmac

    def slow(*arguments):
        threads.add(threading.current_thread())
        started.set()
        release.wait(60)
        return real(*arguments)

    monkeypatch.setattr(users_file.hashlib, "pbkdf2_hmac", slow)
    file = UsersFile(str(users), roles=ROLES)

    async def flood():
        waiting = [asyncio.ensure_future(file.check("bob", "x")) for _ in range(256)]
        while not started.is_set():
            await asyncio.sleep(0.001)
        with pytest.raises(TooManyLogins):
            await file.check("bob", "x")
        release.set()
        assert await asyncio.gather(*waiting) == [None] * 256

    asyncio.run(flood())
    assert len(threads) == 1 and threading.current_thread() not in threads


@pytest.mark.promise(
    "access",
    "Failed logins, password hashing and requests are rate-limited; hashing does not run on the event loop",
)
def test_requests_of_a_user_are_limited_by_the_rate(users):
    now = [0.0]
    access = ServerAccess(AccessSettings(users_file=str(users), rate=2), now=lambda: now[0])
    found = [admit(access, basic("ann", "pear")) for _ in range(6)]
    assert [getattr(one, "status", 200) for one in found] == [200] * 4 + [429] * 2
    assert isinstance(admit(access, basic("bob", "se:cret")), Principal)
    now[0] += 0.5
    assert isinstance(admit(access, basic("ann", "pear")), Principal)
    open_to_all = ServerAccess(AccessSettings(rate=1), now=lambda: now[0])
    for address in ("a", "b"):
        found = [admit(open_to_all, [], Role.ADMIN, address) for _ in range(3)]
        assert [getattr(one, "status", 200) for one in found] == [200, 200, 429]


@pytest.mark.promise(
    "access",
    "Failed logins, password hashing and requests are rate-limited; hashing does not run on the event loop",
)
def test_the_rate_counts_for_sessions_and_for_what_needs_no_login(users):
    now = [0.0]
    access = ServerAccess(AccessSettings(users_file=str(users), rate=2), now=lambda: now[0])
    sessions = Sessions(access, cookie="c", public=frozenset(("/health",)), now=lambda: now[0])
    token = asyncio.run(sessions.log_in("ann", "pear", "a"))
    cookie = [(b"cookie", f"c={token}".encode())]

    def asked(headers, address, path="/"):
        found = asyncio.run(sessions.admit(headers, address, Role.READ, "GET", path))
        return getattr(found, "status", 200)

    assert [asked(cookie, "a") for _ in range(4)] == [200] * 3 + [429]  # the login was the first
    assert asked(cookie, "b", "/health") == 429 and asked(basic("ann", "pear"), "b") == 429
    assert [asked([], "c", path) for path in ("/health", "/login") * 3] == [200] * 4 + [429] * 2
    now[0] += 0.5
    assert asked(cookie, "a") == 200


@pytest.mark.promise("access", "A session ends when its user is deleted or gets a new password or role")
def test_a_session_ends_with_its_user(users, monkeypatch):
    access = ServerAccess(AccessSettings(users_file=str(users)))
    sessions = Sessions(access, cookie="c")
    monkeypatch.setattr(users_file, "_TRUSTED_SECONDS", -1.0)  # the file is looked at each time

    def session(user, password):
        token = asyncio.run(sessions.log_in(user, password, "a"))
        return [(b"cookie", f"c={token}".encode())]

    ann, bob, dan = session("ann", "pear"), session("bob", "se:cret"), session("dan", "fig")
    text = users.read_text()
    users.write_text(text + "eve: new\n")
    assert [sessions.principal(each).name for each in (ann, bob, dan)] == ["ann", "bob", "dan"]
    users.write_text(
        text.replace("ann: pear", "ann: plum").replace("dan: fig, read, admin", "dan: fig, read")
    )
    assert sessions.principal(ann) is None and sessions.principal(dan) is None
    assert sessions.principal(bob).name == "bob"
    users.write_text(text.replace("bob:", "bobby:"))
    refused = asyncio.run(sessions.admit(bob, "a", Role.READ))
    assert refused.status == 401 and sessions.principal(ann) is None, "nor does it come back"
    access.close()


@pytest.mark.promise(
    "access",
    "Failed logins, password hashing and requests are rate-limited; hashing does not run on the event loop",
)
def test_the_addresses_of_an_ipv6_network_share_a_limit(users):
    access = ServerAccess(AccessSettings(users_file=str(users), rate=1), now=lambda: 0.0)

    def statuses(addresses):
        return [getattr(admit(access, basic("ann", "no"), address=each), "status", 200) for each in addresses]

    assert statuses(f"2001:db8::{n:x}:1" for n in range(51)) == [401] * 50 + [429]
    assert statuses(["2001:db8:0:1::1", "10.0.0.1", "::ffff:10.0.0.2"]) == [401] * 3
    assert statuses([*(f"fe80::{n:x}%eth0" for n in range(1, 51)), "fe80::99%eth0"]) == [401] * 50 + [429]
    assert statuses([*["10.0.0.2"] * 49, "::ffff:10.0.0.2"]) == [401] * 49 + [429]
    open_to_all = ServerAccess(AccessSettings(rate=1), now=lambda: 0.0)
    found = [admit(open_to_all, [], Role.ADMIN, f"2001:db8::{n}") for n in range(3)]
    assert [getattr(one, "status", 200) for one in found] == [200, 200, 429]


def test_a_rate_forgets_who_has_not_come_for_longest():
    limit = RateLimit(1, 1)
    for number in range(10_001):
        limit.take(str(number), 0.0)
    assert limit.wait("0", 0.0) == 0.0 and limit.wait("1", 0.0) == 1.0


@pytest.fixture
def keys(tmp_path):
    signing = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signing.public_key()))
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))

    def token(key=signing, **claims):
        given = {"sub": "ann", "iss": "me", "aud": "penstock", "exp": int(time.time()) + 600, **claims}
        return jwt.encode(given, key, "ES256", {"kid": "one"})

    return file, token


@pytest.mark.promise(
    "access",
    "HTTP servers have users with salted hashes and roles, and bearer tokens; every failed login gets "
    "the same response after the same amount of work, whatever was wrong",
)
def test_tokens_are_let_in_with_the_role_that_they_name(keys):
    file, token = keys
    access = ServerAccess(AccessSettings(jwks=str(file), issuer="me", audience=("penstock",)))
    for roles, role in (
        (["read"], Role.READ),
        (["x", "penstock:write"], Role.WRITE),
        ("openid admin", Role.ADMIN),
    ):
        for _ in range(2):
            assert admit(access, bearer(token(roles=roles)), role) == Principal("ann", role)
    for roles in (None, 7, [], ["owner"]):
        assert admit(access, bearer(token(roles=roles))).status == 403
    scoped = ServerAccess(AccessSettings(jwks=file.as_uri(), roles_claim="scope"))
    assert admit(scoped, bearer(token(scope="write"))) == Principal("ann", Role.WRITE)


@pytest.mark.promise(
    "access",
    "HTTP servers have users with salted hashes and roles, and bearer tokens; every failed login gets "
    "the same response after the same amount of work, whatever was wrong",
)
def test_tokens_of_others_and_of_yesterday_are_refused(keys):
    file, token = keys
    access = ServerAccess(AccessSettings(jwks=str(file), issuer="me", audience=("penstock",)))
    forged = ec.generate_private_key(ec.SECP256R1())
    for wrong in (
        token(forged, roles=["admin"]),
        token(roles=["admin"], exp=int(time.time()) - 60),
        token(roles=["admin"], iss="you"),
        token(roles=["admin"], aud="kafka"),
        jwt.encode({"sub": "ann", "roles": ["admin"], "exp": 4102444800}, None, "none", {"kid": "one"}),
        "x",
        "",
    ):
        refused = admit(access, bearer(wrong))
        assert refused.status == 401
        assert refused.headers == ((b"www-authenticate", b'Bearer realm="penstock"'),)


def test_a_request_needs_a_role_by_its_method_where_nothing_else_is_said():
    assert [by_method(method, b"/") for method in ("GET", "HEAD", "OPTIONS")] == [Role.READ] * 3
    assert [by_method(method, b"/") for method in ("POST", "PUT", "DELETE", "PATCH")] == [Role.WRITE] * 4


def test_nothing_asked_is_no_access_check():
    assert ServerAccess.of(AccessSettings(), "x") is None
    assert ServerAccess.of(AccessSettings(rate=1), "x") is not None
