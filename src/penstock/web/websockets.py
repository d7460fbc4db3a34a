"""Websockets of an HTTP server, for servers that serve some: they need the extra `console`."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Response

from penstock.web.connections import ServerConfig
from penstock.web.guard import SECURE_HEADERS


class WebSocket(WebSocketsSansIOProtocol):
    """With the security headers in the response to a handshake that is rejected."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        send, config = self.conn.send_response, self.config

        def send_response(response: Response) -> None:
            secure = config.secure if isinstance(config, ServerConfig) else SECURE_HEADERS
            for name, value in secure if response.status_code != 101 else ():
                response.headers[name.decode()] = value.decode()
            send(response)

        self.conn.send_response = send_response  # type: ignore[method-assign]
