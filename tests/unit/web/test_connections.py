"""What somebody can do to an HTTP server without a login: not fill its memory, nor take all its places."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from penstock.web.connections import HttpConnection
from penstock.web.guard import SECURE_HEADERS, Guard
from penstock.web.server import Server
from tests.certificates import Authority

ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the names of the headers as they are when the body is there; /held is never answered."""
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    while (message := await receive()).get("more_body"):
        pass
    if scope["path"] == "/fails":
        raise RuntimeError("this application fails")
    if scope["path"] == "/held" and message["type"] == "http.request":
        await receive()
    body = b" ".join(sorted(name for name, _ in scope["headers"]))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def served(
    test: Callable[[int], Awaitable[None]],
    certificate: Path | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    sockets: bool = False,
) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            file = None if certificate is None else str(certificate)
            server = Server(app, Guard(), certificate=file, key=file, sockets=sockets)
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            await server.listening()
            try:
                async with asyncio.timeout(60):
                    await test(listener.getsockname()[1])
            finally:
                server.should_exit = server.force_exit = True
                await serving

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


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


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    text, key = Authority().issue("127.0.0.1")
    (tmp_path / "server.pem").write_text(key + text)
    return tmp_path / "server.pem"


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def answer_over_tls(port: int, request: bytes = ASKED + b"Connection: close\r\n\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
    writer.write(request)
    found = await rest_of(reader)
    writer.close()
    return found


@pytest.mark.promise(
    "access",
    "A client without a login cannot fill the memory or use up the connections of an HTTP server: "
    "request heads, waiting requests and connections are limited",
)
@pytest.mark.parametrize("loop", list(LOOPS))
def test_handshakes_that_do_not_end_are_among_the_connections(
    loop: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "most", 3)

    async def test(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        silent[0][1].write(b"\x16\x03\x01\x02\x00")  # the beginning of a ClientHello
        # Of those that came in the same iteration of the event loop, none is the oldest.
        ends = [asyncio.ensure_future(rest_of(reader)) for reader, _ in silent]
        while sum(end.done() for end in ends) < 3:
            await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
        assert (await answer_over_tls(port)).startswith(b"HTTP/1.1 200 ")
        for _, writer in silent:
            writer.close()

    served(test, certificate, LOOPS[loop])


@pytest.mark.promise(
    "access",
    "A client without a login cannot fill the memory or use up the connections of an HTTP server: "
    "request heads, waiting requests and connections are limited",
)
@pytest.mark.parametrize("loop", list(LOOPS))
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_handshake_that_does_not_end_is_closed_and_others_are_served(
    sent: bytes, loop: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(port: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(HttpConnection, "wait_seconds", 0.05)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert b"HTTP/" not in await rest_of(reader)
            writer.close()
        _, closed = await asyncio.open_connection("127.0.0.1", port)
        closed.write(sent)
        closed.close()
        for _ in range(5):
            assert (await answer_over_tls(port)).startswith(b"HTTP/1.1 200 ")

    served(test, certificate, LOOPS[loop])


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_server_with_a_handshake_under_way_stops(loop: str, certificate: Path) -> None:
    opened = []

    async def test(port: int) -> None:
        opened.append(await asyncio.open_connection("127.0.0.1", port))

    served(test, certificate, LOOPS[loop])
    assert opened


WEBSOCKET = ASKED + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"


@pytest.mark.promise(
    "http", "Every response has the security headers, also one to a request that cannot be read"
)
@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"NO HTTP\r\n\r\n", b"400"),
        (ASKED + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (CHUNKED + b"zz\r\n", b"400"),
        (ASKED + b"X-Long: " + b"a" * 200_000, b"431"),
        (b"GET /fails HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"500"),
        (WEBSOCKET + b"\r\n", b"400"),
        (
            WEBSOCKET.replace(b"localhost", b"evil.example") + b"Sec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            b"403",
        ),
    ],
)
def test_responses_of_the_server_itself_have_the_security_headers(
    request_: bytes, status: bytes, over_tls: bool, certificate: Path
) -> None:
    async def test(port: int) -> None:
        tls = trusting() if over_tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(request_)
        head = (await reader.readuntil(b"\r\n\r\n")).lower().splitlines()
        assert head[0].split()[1] == status
        for name, value in SECURE_HEADERS:
            assert head.count((name + b": " + value).lower()) == 1
        writer.close()

    served(test, certificate if over_tls else None, sockets=True)
