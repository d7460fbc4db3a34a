"""Bounds the bodies that the console accepts, also of requests that do not say how long they are."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 256 << 20
"""The largest file that can be imported in the console; `penstock records import` takes any."""
_AROUND = 64 << 10
"""What a form has beside its file."""


class LimitedBodies:
    """ASGI middleware: 413 for a body of more than MOST_BYTES."""

    def __init__(self, app: ASGIApp, most: int = MOST_BYTES + _AROUND) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                # Raised where the body is read, so the application's handler answers.
                raise HTTPException(413, f"The body has more than {self._most:,} bytes.")
            return message

        await self._app(scope, counted, send)
