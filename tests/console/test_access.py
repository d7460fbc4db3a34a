"""Who gets to a console: Host and Origin of requests and websockets, logins, roles, read-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.console.viewer import NotAllowed, Viewer
from penstock.testing import PenstockBroker
from penstock.web.access import Principal, Role
from tests.console.conftest import ConsoleProcess

pytestmark = pytest.mark.timeout(300)

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
def console(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    directory: Path = tmp_path_factory.mktemp("console")
    users = directory / "users"
    users.write_text("ann: secret-1, admin\nray: secret-2, read\n")
    users.chmod(0o600)
    started = ConsoleProcess(broker.bootstrap, directory, "--auth-file", str(users))
    yield started
    assert started.stop() == 0


def log_in(console: ConsoleProcess, user: str, password: str) -> str:
    """The cookie of a session."""
    with console.client() as client:
        answer = client.post("/login", data={"user": user, "password": password})
        assert answer.status_code == 303, answer.text
        cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    return cookie.partition(";")[0]


def socket_status(console: ConsoleProcess, **headers: str) -> int:
    """101 where the websocket is accepted."""
    origin = headers.pop("origin", None)
    try:
        with connect(
            f"ws://{console.address}{SOCKET}", additional_headers=headers, origin=origin, open_timeout=60
        ) as socket:
            return socket.response.status_code
    except InvalidStatus as error:
        return error.response.status_code


@pytest.mark.promise("console", "If a login is required, the console shows nothing without it")
def test_pages_and_websockets_need_a_login(console: ConsoleProcess) -> None:
    with console.client() as client:
        for path in ("/", "/topics", "/topics/orders", "/group?id=x"):
            answer = client.get(path, headers={"accept": "text/html"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert client.get("/topics").status_code == 401
        assert client.get("/health").json() == {"status": "healthy"}
        assert client.get("/ready").json() == {"status": "ready"}
        wrong = client.post("/login", data={"user": "ann", "password": "<script>x</script>"})
        assert wrong.status_code == 401 and "Wrong user or password" in wrong.text
        assert "<script>" not in wrong.text
        assert client.post("/login", data={"user": "x" * 10_000}).status_code == 400
    own = f"http://{console.address}"
    assert socket_status(console, origin=own) == 403
    cookie = log_in(console, "ray", "secret-2")
    assert socket_status(console, origin=own, cookie=cookie) == 101
    with console.client() as client:
        page = client.get("/topics", headers={"cookie": cookie})
        assert page.status_code == 200 and "ray (read)" in page.text
        assert "Create topic" not in page.text
        assert client.post("/logout", headers={"cookie": cookie, "origin": own}).status_code == 303
        assert client.get("/topics", headers={"cookie": cookie}).status_code == 401
    assert socket_status(console, origin=own, cookie=cookie) == 403


def test_administrators_change_levels_of_loggers(console: ConsoleProcess) -> None:
    with console.client() as client:
        for user, status in ((("ray", "secret-2"), 403), (("ann", "secret-1"), 200)):
            done = client.put("/admin/loggers/root", json={"level": "DEBUG"}, auth=user)
            assert done.status_code == status, done.text
        assert client.get("/admin/loggers", auth=("ray", "secret-2")).json()["root"]["level"] == "DEBUG"
        assert client.get("/admin/loggers").status_code == 401


@pytest.mark.promise(
    "console", "A page of another site can use neither the console's pages nor its websocket"
)
def test_other_sites_are_refused(console: ConsoleProcess) -> None:
    cookie = log_in(console, "ann", "secret-1")
    assert socket_status(console, origin="http://evil.example", cookie=cookie) == 403
    assert socket_status(console, origin="null", cookie=cookie) == 403
    assert socket_status(console, cookie=cookie, host="evil.example") in (400, 403)
    with console.client() as client:
        assert client.get("/", headers={"cookie": cookie, "host": "evil.example"}).status_code == 403
        posted = client.post(
            "/login", data={"user": "ann", "password": "secret-1"}, headers={"origin": "http://evil.example"}
        )
        assert posted.status_code == 403
        page = client.get("/", headers={"cookie": cookie})
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "http:" not in policy and "https:" not in policy
        assert page.headers["cache-control"].count("no-store")


@pytest.mark.promise("console", "Permissions are checked when an action is carried out")
@pytest.mark.parametrize(
    ("role", "read_only", "allowed"),
    [
        (Role.READ, False, []),
        (Role.WRITE, False, [Role.WRITE]),
        (Role.ADMIN, False, [Role.WRITE, Role.ADMIN]),
        (Role.ADMIN, True, []),
        (None, False, []),
    ],
)
def test_roles(role: Role | None, read_only: bool, allowed: list[Role]) -> None:
    viewer = Viewer(Principal("ann", role), read_only, True)
    for needed in (Role.WRITE, Role.ADMIN):
        assert viewer.may(needed) == (needed in allowed)
        if needed not in allowed:
            reason = "this console is read-only" if read_only else f"needs the role {needed.word}"
            with pytest.raises(NotAllowed, match=f"cannot empty 't': .*{reason}"):
                viewer.require(needed, "empty 't'")
        else:
            viewer.require(needed, "empty 't'")


def test_a_page_that_is_left_open_does_nothing_after_the_logout() -> None:
    ended = Viewer(Principal("ann", Role.ADMIN), False, True, lambda: False)
    with pytest.raises(NotAllowed, match="the session has ended"):
        ended.require(Role.ADMIN, "empty 't'")
