"""What somebody can do to an HTTP server without a login: not fill its memory, nor take all its places."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Receive, Scope, Send

from penstock.web.connections import HttpConnection
from penstock.web.guard import Guard
from penstock.web.server import Server

ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the names of the headers as they are when the body is there; /held is never answered."""
    while (message := await receive()).get("more_body"):
        pass
    if scope["path"] == "/held" and message["type"] == "http.request":
        await receive()
    body = b" ".join(sorted(name for name, _ in scope["headers"]))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def served(test: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = Server(app, Guard())
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            await server.listening()
            try:
                async with asyncio.timeout(60):
                    await test(listener.getsockname()[1])
            finally:
                server.should_exit = server.force_exit = True
                await serving

    asyncio.run(run())


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """All until the connection is closed, in whatever way."""
    found = b""
    try:
        while part := await reader.read(65536):
            found += part
    except OSError:
        pass
    return found


@pytest.mark.promise(
    "access",
    "A client without a login cannot fill the memory or use up the connections of an HTTP server: "
    "request heads, waiting requests and connections are limited",
)
@pytest.mark.parametrize(
    "begin", [b"GET /", ASKED + b"X-Long: ", CHUNKED + b"0\r\nX-Trailer: ", CHUNKED + b"5;extension="]
)
def test_a_head_that_goes_on_and_on_is_cut_off(begin: bytes) -> None:
    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begin)
        closed = asyncio.ensure_future(rest_of(reader))
        while not closed.done():
            writer.write(b"a" * 10_000)
            await asyncio.sleep(0)
            try:
                await writer.drain()
            except OSError:
                break
        assert b" 200 " not in await closed
        writer.close()

    served(test)


@pytest.mark.promise(
    "access",
    "A client without a login cannot fill the memory or use up the connections of an HTTP server: "
    "request heads, waiting requests and connections are limited",
)
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"\r\n", ASKED, CHUNKED + b"5\r\nab", ASKED + b"\r\n", ASKED + b"\r\n\r\n"]
)
def test_a_connection_that_sends_no_whole_request_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "wait_seconds", 0.05)

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await rest_of(reader)
        writer.close()

    served(test)


@pytest.mark.promise(
    "access",
    "A client without a login cannot fill the memory or use up the connections of an HTTP server: "
    "request heads, waiting requests and connections are limited",
)
def test_a_new_connection_gets_the_place_of_one_that_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "most", 3)

    async def test(port: int) -> None:
        held, asking = await asyncio.open_connection("127.0.0.1", port)
        asking.write(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n")
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in silent[:-2]:
            assert await rest_of(reader) == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASKED + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert not held.at_eof()
        for _, each in [*silent, (held, asking), (reader, writer)]:
            each.close()

    served(test)


@pytest.mark.promise(
    "access",
    "A client without a login cannot fill the memory or use up the connections of an HTTP server: "
    "request heads, waiting requests and connections are limited",
)
def test_requests_are_not_collected_without_end() -> None:
    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((ASKED + b"\r\n") * 1000)
        assert (await rest_of(reader)).count(b" 200 ") < 100
        writer.close()

    served(test)


def test_headers_after_a_body_do_not_count() -> None:
    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        writer.write(b"2\r\n{}\r\n0\r\nAuthorization: Basic YTph\r\n\r\n")
        assert (await rest_of(reader)).endswith(b"\r\n\r\nconnection content-type host transfer-encoding")
        writer.close()

    served(test)
