"""Signatures with which servers of one group prove that a request comes from a server and not from a client.

A request of a client is forwarded with the client's login. A request that a server sends itself is signed
with a key that only the servers share (as in KIP-507). The signature covers method, path, time and body, so
that it cannot be reused for another request or later. The header contains the digest of the body, so that the
signature is checked before the body is read, and the body while it is read.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from penstock.errors import PenstockError

SCHEME = "Penstock-Peer"
LASTS_SECONDS = 300.0
"""The maximum difference between the clocks of two servers."""

PeerKey = Callable[[], bytes | None]
"""The current key; None while there is none."""


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyForged(PenstockError):
    """The body is not the one that was signed."""


def authorization(key: bytes, method: str, path: str, body: bytes, now: float) -> str:
    """The value of the Authorization header. `path` is as sent, with the query."""
    time, digest = str(int(now)), hashlib.sha256(body).hexdigest()
    return f"{SCHEME} {time}:{digest}:{_signature(key, method, path, time, digest)}"


def signed_digest(key: bytes | None, text: str, method: str, path: str, now: float) -> str | None:
    """The digest that the body must have (see `checked`), from the header's text after the scheme.

    None if that is not a valid, recent signature of this request.
    """
    if key is None or not text.isascii() or text.count(":") != 2:
        return None
    time, digest, signature = text.split(":")
    if not (time.isdecimal() and len(time) < 13) or abs(now - int(time)) > LASTS_SECONDS:
        return None
    expected = _signature(key, method, path, time, digest)
    return digest if hmac.compare_digest(signature, expected) else None


def checked(receive: Receive, digest: str) -> Receive:
    """`receive` for a request whose body must have this digest; raises BodyForged at the end of any other
    body.
    """
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
