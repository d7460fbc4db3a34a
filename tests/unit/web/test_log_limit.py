"""What a client without a login can make a server write into its log."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter

import pytest
from starlette.types import Receive, Scope, Send

from penstock.web.guard import Guard
from penstock.web.log_limit import RepeatedWarnings
from penstock.web.server import Server

BAD = [
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"CONNECT /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"no HTTP\r\n\r\n",
]
TIMES = 30


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b""})


async def flooded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(app, Guard())
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        await server.listening()
        for request in BAD * TIMES:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(request)
            assert await asyncio.wait_for(reader.read(9), 60) == b"HTTP/1.1 "
            writer.close()
        server.should_exit = True
        await serving


@pytest.mark.promise("http", "Requests that a server cannot read do not fill its log")
def test_bad_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("uvicorn.error")
    before = list(logger.filters)
    logger.filters.clear()  # the texts that another test's server has logged would count
    try:
        with caplog.at_level(logging.INFO):
            asyncio.run(flooded())
    finally:
        logger.filters[:] = before
    written = Counter(each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert written, "uvicorn warns of none of these any more: the limit is not needed"
    assert set(written.values()) == {1}


def test_a_warning_comes_again_after_its_time_with_the_number_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [0.0]
    logger = logging.getLogger("penstock.test_log_limit")
    limit = RepeatedWarnings(seconds=10, now=lambda: clock[0])
    logger.addFilter(limit)
    try:
        for second in range(21):
            clock[0] = float(second)
            logger.warning("odd %d", second)
            logger.error("an error is always logged")
    finally:
        logger.removeFilter(limit)
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    again = "(9 more since the last such line)"
    assert said == ["odd 0", f"odd 10 {again}", f"odd 20 {again}"]
    assert len(caplog.records) == len(said) + 21
