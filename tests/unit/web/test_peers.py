"""Servers that prove to each other that a request is theirs."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.rest.app import ConnectApi, RestAnswer, RestCall, RestRoute, needed_role
from penstock.web.access import ROLES, AccessSettings, Principal, Role, ServerAccess
from penstock.web.guard import Guard, Refusal
from penstock.web.peers import LASTS_SECONDS, SCHEME, authorization, signed_digest
from penstock.web.server import Guarded

KEY, PATH, BODY = b"k" * 32, "/connectors/a/tasks", b'[{"file":"a"}]'


@pytest.mark.promise(
    "connect",
    "Workers with users and TLS share work: a change through any worker is carried out as the user who "
    "sent it, and task configurations are accepted from workers only",
)
def test_a_signature_is_of_one_request_and_of_now() -> None:
    text = authorization(KEY, "POST", PATH, BODY, 1000.0).removeprefix(f"{SCHEME} ")

    def digest(
        key: bytes | None = KEY, text: str = text, method: str = "POST", path: str = PATH, now: float = 1000.0
    ):
        return signed_digest(key, text, method, path, now)

    assert digest(now=1000.0 + LASTS_SECONDS) == hashlib.sha256(BODY).hexdigest()
    assert digest(now=1001.0 + LASTS_SECONDS) is None
    assert digest(now=999.0 - LASTS_SECONDS) is None
    assert digest(path=PATH + "?a=b") is None
    assert digest(method="PUT") is None
    assert digest(key=b"x" * 32) is None
    assert digest(key=None) is None
    time, _, signature = text.split(":")
    other = hashlib.sha256(b"other").hexdigest()
    for bad in (
        "",
        ":",
        "::",
        "1000",
        "1000:",
        "1000::",
        f"{time}:{signature}",
        f"{time}:{other}:{signature}",
        "-1" + text[4:],
        "\u0661000" + text[4:],
        "1000:\xff:\xff",
        "9" * 99 + "::",
    ):
        assert digest(text=bad) is None, bad


@pytest.mark.promise(
    "connect",
    "Workers with users and TLS share work: a change through any worker is carried out as the user who "
    "sent it, and task configurations are accepted from workers only",
)
@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([BODY], 200),
        ([BODY[:3], BODY[3:]], 200),
        ([BODY + b" "], 401),
        ([BODY[:3]], 401),
        ([b""], 401),
        ([BODY[:3], BODY[3:] + b" "], 401),
    ],
)
def test_a_body_that_was_not_signed_is_refused(parts: list[bytes], status: int) -> None:
    access = ServerAccess(AccessSettings(jwks="none"), peer_key=lambda: KEY)
    header = authorization(KEY, "POST", PATH, BODY, time.time()).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "client": ("10.0.0.1", 1),
        "headers": [
            (b"authorization", header),
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
        ],
    }
    sent: list[MutableMapping[str, Any]] = []
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False
    coming = iter(messages)
    carried_out: list[bytes] = []

    async def receive() -> MutableMapping[str, Any]:
        return next(coming)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def put_tasks(call: RestCall) -> RestAnswer:
        carried_out.append(call.body)
        return RestAnswer({})

    routes = [RestRoute("POST", "/connectors/{name}/tasks", put_tasks)]
    app: Any = ConnectApi(None, None, routes, max_body_bytes=1000, leader_wait=1)  # type: ignore[arg-type]
    asyncio.run(Guarded(app, Guard(), access=access, needs=needed_role)(scope, receive, send))
    assert sent[0]["status"] == status
    assert carried_out == ([BODY] if status == 200 else [])


@pytest.mark.promise(
    "connect",
    "Workers with users and TLS share work: a change through any worker is carried out as the user who "
    "sent it, and task configurations are accepted from workers only",
)
def test_a_server_may_do_only_what_servers_do(tmp_path: Path) -> None:
    asyncio.run(_only_what_servers_do(tmp_path))


async def _only_what_servers_do(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann: change, admin\n")
    users.chmod(0o600)
    access = ServerAccess(AccessSettings(str(users)), peer_key=lambda: KEY)
    try:
        header = authorization(KEY, "POST", PATH, BODY, time.time()).encode()

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
    "A Connect worker with users: `read` may view, `write` may pause, resume and restart, `admin` may "
    "change connectors; the commands log in to it over TLS",
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
