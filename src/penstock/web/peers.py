"""How servers of one group prove to each other that a request is their own, and no client's.

A request that a client sent is forwarded with the client's login. One that a server sends on its own account
has a signature instead, with a key that only the servers share (as in KIP-507). It covers method, path, time
and body, so that it is of use for nothing else and not for long. The header has the digest of the body, so
that the signature is checked before the body is read, and the body while it is.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from penstock.errors import PenstockError

SCHEME = "Penstock-Peer"
LASTS_SECONDS = 300.0
"""How far the clocks of two servers may be apart."""

PeerKey = Callable[[], bytes | None]
"""The key of now; None while there is none."""


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyForged(PenstockError):
    """The body is not the one that was signed."""


def authorization(key: bytes, method: str, path: str, body: bytes, now: float) -> str:
    """The value of the Authorization header. `path` is as it is sent, with the query."""
    time, digest = str(int(now)), hashlib.sha256(body).hexdigest()
    return f"{SCHEME} {time}:{digest}:{_signature(key, method, path, time, digest)}"


def signed_digest(key: bytes | None, text: str, method: str, path: str, now: float) -> str | None:
    """The digest that the body must have (see `checked`), by a header's text after the scheme.

    None where that is no signature of this request, or not of about now.
    """
    if key is None or not text.isascii() or text.count(":") != 2:
        return None
    time, digest, signature = text.split(":")
    if not (time.isdecimal() and len(time) < 13) or abs(now - int(time)) > LASTS_SECONDS:
        return None
    expected = _signature(key, method, path, time, digest)
    return digest if hmac.compare_digest(signature, expected) else None


def checked(receive: Receive, digest: str) -> Receive:
    """`receive` of a request whose body has this digest; BodyForged at the end of another one."""
    found = hashlib.sha256()

    async def receive_checked() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.request":
            found.update(message.get("body", b""))
            if not message.get("more_body", False) and found.hexdigest() != digest:
                raise BodyForged("the body is not the one that was signed")
        return message

    return receive_checked


def _signature(key: bytes, method: str, path: str, time: str, digest: str) -> str:
    return hmac.new(key, f"{method}\n{path}\n{time}\n{digest}".encode(), hashlib.sha256).hexdigest()
