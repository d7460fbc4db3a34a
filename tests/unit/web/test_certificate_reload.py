"""A server over TLS whose certificate is replaced while it runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from penstock.web.guard import Guard
from penstock.web.server import Server
from tests.certificates import Authority


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def shown(port: int) -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def replaced(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, file = Authority(), directory / "server.pem"

    def issue() -> bytes:
        certificate, key = authority.issue("127.0.0.1")
        file.write_text(key + certificate)
        return ssl.PEM_cert_to_DER_cert(certificate)

    first = issue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = Server(app, Guard(), certificate=str(file), key=str(file))
        server.certificate_seconds = 0.01
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        await server.listening()
        assert await shown(port) == first
        file.write_text("no certificate")
        async with asyncio.timeout(60):
            while "keeping the current one" not in caplog.text:
                await asyncio.sleep(0.01)
        assert await shown(port) == first
        second = issue()
        async with asyncio.timeout(60):
            while await shown(port) != second:
                await asyncio.sleep(0.01)
        server.should_exit = True
        await serving


@pytest.mark.promise(
    "http", "An HTTP server uses a changed certificate for new connections, without a restart"
)
def test_a_changed_certificate_counts_for_new_connections_and_a_bad_one_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(replaced(tmp_path, caplog))
