"""Reads the body of a request, up to a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from penstock.errors import PenstockError

_DRAINED = 64 << 20
"""How much of a too large body is read and discarded, so that the client receives the response."""


class BodyTooLarge(PenstockError):
    def __init__(self, most: int) -> None:
        super().__init__(f"The request body has more than the {most} bytes that are allowed")


class BodyCutOff(PenstockError):
    """The client disconnected before the end of the body."""


async def read_body(
    headers: Mapping[bytes, bytes], receive: Callable[[], Awaitable[Mapping[str, Any]]], most: int
) -> bytes:
    """Raises BodyTooLarge after at most 64 MiB, or BodyCutOff."""
    length = headers.get(b"content-length", b"")
    declared = int(length) if length.isdigit() and len(length) < 20 else 0
    parts: list[bytes] = []
    size = 0
    while size <= _DRAINED:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyCutOff("the request ended early")
        part = message.get("body", b"")
        size += len(part)
        if size <= most and declared <= most:
            parts.append(part)
        if not message.get("more_body", False):
            break
    if size > most or declared > most:
        raise BodyTooLarge(most)
    return b"".join(parts)
