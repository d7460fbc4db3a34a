"""How servers of one group prove to each other that a request is their own, and no client's.

A request that a client sent is forwarded with the client's login. One that a server sends on its own account
has a signature instead, with a key that only the servers share (as in KIP-507). It covers method, path and
time, so that it is of use for nothing else and not for long. The body is protected by TLS, as passwords are.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

SCHEME = "Penstock-Peer"
LASTS_SECONDS = 300.0
"""How far the clocks of two servers may be apart."""

PeerKey = Callable[[], bytes | None]
"""The key of now; None while there is none."""


def authorization(key: bytes, method: str, path: str, now: float) -> str:
    """The value of the Authorization header. `path` is as it is sent, with the query."""
    time = str(int(now))
    return f"{SCHEME} {time}:{_signature(key, method, path, time)}"


def is_genuine(key: bytes | None, text: str, method: str, path: str, now: float) -> bool:
    """Whether a header's text after the scheme is a signature of this request, and of about now."""
    time, _, signature = text.partition(":")
    if key is None or not (time.isascii() and time.isdecimal() and len(time) < 13 and signature.isascii()):
        return False
    expected = _signature(key, method, path, time)
    return hmac.compare_digest(signature, expected) and abs(now - int(time)) <= LASTS_SECONDS


def _signature(key: bytes, method: str, path: str, time: str) -> str:
    return hmac.new(key, f"{method}\n{path}\n{time}".encode(), hashlib.sha256).hexdigest()
