"""What every HTTP server has for operators beside its own paths."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from penstock.web.access import PRINCIPAL, Principal, Role
from penstock.web.operator import LOGGERS, Operated, Operator


async def own(scope: Scope, receive: Receive, send: Send) -> None:
    """The server's own answer."""
    await PlainTextResponse("own")(scope, receive, send)


async def ready() -> bool:
    return True


def client(role: Role | None, left: frozenset[str] = frozenset()) -> TestClient:
    operated = Operated(own, Operator(ready, left=left))

    async def logged_in(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PRINCIPAL] = Principal("ray", role)
        await operated(scope, receive, send)

    return TestClient(logged_in)


@pytest.fixture
def name() -> Iterator[str]:
    name = f"made.up.{uuid.uuid4().hex}"
    logging.getLogger(name)
    yield name
    logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.promise(
    "operations", "Administrators can change log levels while a server runs (`/admin/loggers`)"
)
def test_an_administrator_changes_levels(name: str) -> None:
    admin = client(Role.ADMIN)
    assert admin.get(f"/admin/loggers/{name}").json()["level"] != "DEBUG"
    changed = admin.put(f"/admin/loggers/{name}", json={"level": "debug"})
    assert (changed.status_code, changed.json()) == (200, [name])
    assert logging.getLogger(name).level == logging.DEBUG
    assert admin.get("/admin/loggers").json()[name]["level"] == "DEBUG"
    assert admin.put(f"/admin/loggers/{name}", json={"level": "LOUD"}).status_code == 404
    assert admin.put("/admin/loggers/nobody.logs.here", json={"level": "INFO"}).status_code == 404
    for body in (b"", b"[]", b"{", b"[" * 4000, b'{"level": 1}', b" " * 5000):
        assert admin.put(f"/admin/loggers/{name}", content=body).status_code == 400
    assert admin.put("/admin/loggers", json={"level": "INFO"}).status_code == 405
    assert admin.delete(f"/admin/loggers/{name}").status_code == 405
    assert logging.getLogger(name).level == logging.DEBUG


@pytest.mark.parametrize("role", [Role.READ, Role.WRITE, None])
def test_nobody_else_changes_levels(name: str, role: Role | None) -> None:
    refused = client(role).put(f"/admin/loggers/{name}", json={"level": "DEBUG"})
    assert refused.status_code == 403 and "'ray' needs the role admin" in refused.json()["message"]
    assert logging.getLogger(name).level == logging.NOTSET


def test_a_server_may_have_paths_of_its_own() -> None:
    left = client(Role.ADMIN, frozenset(("/health", LOGGERS)))
    for path in ("/health", "/admin/loggers", "/admin/loggers/root"):
        assert left.get(path).text == "own"
    assert left.get("/ready").json() == {"status": "ready"}
