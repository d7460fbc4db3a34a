"""Where the keys of JSON web tokens come from, and who waits for them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.credentials import LoginFailed
from penstock.credentials.tokens import JwksTokens
from penstock.errors import ConfigError

SIGNING = ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """An endpoint with keys. `answers` says how each request is answered; the paths that were asked for."""

    def __init__(self) -> None:
        self.key_ids = ["one"]
        self.asked: list[str] = []
        self.came = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()
        self.status, self.headers = 200, {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.came.release()
                issuer.go_on.wait(60)
                body = json.dumps({"keys": [issuer.key(each) for each in issuer.key_ids]}).encode()
                self.send_response(issuer.status if self.path == "/keys" else 200)
                for name, value in {**issuer.headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def key(self, key_id: str) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(SIGNING.public_key()))
        return {**public, "kid": key_id, "alg": "ES256", "use": "sig"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.go_on.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def token(key_id: str = "one") -> str:
    return jwt.encode({"sub": "ann", "exp": 4102444800}, SIGNING, "ES256", {"kid": key_id})


def tokens(url: str, now: Callable[[], float] = lambda: 0.0) -> JwksTokens:
    return JwksTokens(url, issuer=None, audience=(), refresh_s=100.0, now=now)


@pytest.mark.promise(
    "access",
    "The keys that verify tokens are fetched in the background: an endpoint that hangs does not delay "
    "logins with a known key",
)
def test_a_login_with_a_known_key_does_not_wait_for_an_endpoint_that_hangs(issuer):
    now = [0.0]

    async def logins() -> None:
        checked, loop = tokens(issuer.url, lambda: now[0]), asyncio.get_running_loop()
        assert await checked.check(token()) == ("ann", 4102444800000)
        assert issuer.came.acquire(timeout=60)
        issuer.go_on.clear()
        issuer.key_ids = ["two"]
        now[0] = 101.0
        for _ in range(3):
            await checked.check(token())  # while the endpoint does not answer
        assert await loop.run_in_executor(None, lambda: issuer.came.acquire(timeout=60))
        assert len(issuer.asked) == 2, "once for all of them"
        waiting = loop.create_task(checked.check(token("two")))
        await asyncio.sleep(0)
        issuer.go_on.set()
        assert (await waiting)[0] == "ann", "a new key is waited for"
        with pytest.raises(LoginFailed, match="unknown key"):
            await checked.check(token("one"))

    asyncio.run(logins())


@pytest.mark.promise(
    "access",
    "The keys that verify tokens are fetched in the background: an endpoint that hangs does not delay "
    "logins with a known key",
)
def test_an_endpoint_that_fails_is_asked_every_ten_seconds_at_most(issuer):
    now = [0.0]

    async def logins() -> None:
        checked = tokens(issuer.url, lambda: now[0])
        issuer.status = 500
        for _ in range(3):
            with pytest.raises(LoginFailed, match="cannot be read: HTTP Error 500"):
                await checked.check(token())
        assert len(issuer.asked) == 1
        now[0], issuer.status = 11.0, 200
        await checked.check(token())
        for _ in range(3):
            with pytest.raises(LoginFailed, match="unknown key"):
                await checked.check(token("two"))
        assert len(issuer.asked) == 2
        now[0] = 22.0
        with pytest.raises(LoginFailed, match="unknown key"):
            await checked.check(token("two"))
        assert len(issuer.asked) == 3

    asyncio.run(logins())


@pytest.mark.promise(
    "access",
    "The keys that verify tokens come from a file, over HTTPS or from loopback, and from nowhere else",
)
def test_keys_come_from_where_the_setting_says(issuer):
    for url in (
        "http://issuer.example/keys",
        "http://10.0.0.1/keys",
        "http://127.0.0.1.example/keys",
        "ftp://x/y",
    ):
        with pytest.raises(ConfigError, match="https:// or file://"):
            tokens(url)
    issuer.status, issuer.headers = 302, {"location": "/others"}
    with pytest.raises(LoginFailed, match="HTTP Error 302"):
        asyncio.run(tokens(issuer.url).check(token()))
    assert issuer.asked == ["/keys"]
