"""A small HTTP server (uvicorn) in a thread: keeps requests, and answers as the test says."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn


class Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, Any]


class WebServer:
    """`answer` gives the status and the body (JSON) of each request; `hold` makes requests wait."""

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda request: (200, {})
        self.hold = threading.Event()
        self.hold.set()
        self._files = (str(certificate), str(key)) if certificate else (None, None)
        self.port = 0
        self._server: Any = None

    @property
    def url(self) -> str:
        return f"{'https' if self._files[0] else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """On the same port as before."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        listening.listen(100)
        self.port = listening.getsockname()[1]
        settings = uvicorn.Config(
            self._app,
            interface="asgi3",
            log_level="warning",
            lifespan="off",
            ssl_certfile=self._files[0],
            ssl_keyfile=self._files[1],
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # the client was killed before it had sent all
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Request(scope["method"], scope["path"], scope["query_string"].decode(), headers, body)
        self.requests.append(request)
        while not self.hold.is_set():
            await asyncio.sleep(0.01)
        status, found = self.answer(request)
        data = found if isinstance(found, bytes) else json.dumps(found).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": data})

    def stop(self) -> None:
        self.hold.set()
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(30)
