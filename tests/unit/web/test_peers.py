"""Servers that prove to each other that a request is theirs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from penstock.connect.rest.app import needed_role
from penstock.web.access import ROLES, Access, AccessSettings, Principal, Role
from penstock.web.guard import Refusal
from penstock.web.peers import LASTS_SECONDS, SCHEME, authorization, is_genuine

KEY, PATH = b"k" * 32, "/connectors/a/tasks"


@pytest.mark.promise(
    "connect",
    "Workers with users and TLS share work: a change through any worker is carried out as the user that "
    "sent it, and task configurations come from workers only",
)
def test_a_signature_is_of_one_request_and_of_now() -> None:
    text = authorization(KEY, "POST", PATH, 1000.0).removeprefix(f"{SCHEME} ")
    assert is_genuine(KEY, text, "POST", PATH, 1000.0 + LASTS_SECONDS)
    assert not is_genuine(KEY, text, "POST", PATH, 1001.0 + LASTS_SECONDS)
    assert not is_genuine(KEY, text, "POST", PATH, 999.0 - LASTS_SECONDS)
    assert not is_genuine(KEY, text, "POST", PATH + "?a=b", 1000.0)
    assert not is_genuine(KEY, text, "PUT", PATH, 1000.0)
    assert not is_genuine(b"x" * 32, text, "POST", PATH, 1000.0)
    assert not is_genuine(None, text, "POST", PATH, 1000.0)
    for bad in (
        "",
        ":",
        "1000",
        "1000:",
        "-1:" + text[5:],
        "\u0661000:" + text[5:],
        "1000:\xff",
        "9" * 99 + ":",
    ):
        assert not is_genuine(KEY, bad, "POST", PATH, 1000.0), bad


@pytest.mark.promise(
    "connect",
    "Workers with users and TLS share work: a change through any worker is carried out as the user that "
    "sent it, and task configurations come from workers only",
)
def test_a_server_may_do_only_what_servers_do(tmp_path: Path) -> None:
    asyncio.run(_only_what_servers_do(tmp_path))


async def _only_what_servers_do(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann: change, admin\n")
    users.chmod(0o600)
    access = Access(AccessSettings(str(users)), peer_key=lambda: KEY)
    try:
        header = authorization(KEY, "POST", PATH, time.time()).encode()

        async def ask(needed: Role, value: bytes = header) -> Principal | Refusal:
            return await access.admit([(b"authorization", value)], "10.0.0.1", needed, "POST", PATH)

        admitted = await ask(Role.PEER)
        assert isinstance(admitted, Principal) and admitted.role is Role.PEER
        for role in (Role.READ, Role.WRITE, Role.ADMIN):
            refused = await ask(role)
            assert isinstance(refused, Refusal) and refused.status == 403
        admin = await ask(Role.PEER, b"Basic YW5uOmNoYW5nZQ==")
        assert isinstance(admin, Refusal) and admin.status == 403
        assert "peer" not in ROLES, "a users file or a token must not give it"
    finally:
        access.close()


@pytest.mark.promise(
    "connect",
    "A Connect worker with users: `read` sees, `write` steers, `admin` changes connectors; its commands "
    "log in over TLS",
)
@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", b"/connectors/a/tasks", Role.READ),
        ("POST", b"/connectors/a/tasks", Role.PEER),
        ("POST", b"/connectors/a/t%61sks/", Role.PEER),
        ("POST", b"/connectors/a/tasks/0/restart", Role.WRITE),
        ("PUT", b"/connectors/a/pause", Role.WRITE),
        ("PUT", b"/connectors/a/config", Role.ADMIN),
        # A connector may have the name of an action.
        ("DELETE", b"/connectors/stop", Role.ADMIN),
        ("DELETE", b"/connectors/restart/", Role.ADMIN),
    ],
)
def test_a_request_needs_the_role_of_what_it_does(method: str, path: bytes, role: Role) -> None:
    assert needed_role(method, path) is role
