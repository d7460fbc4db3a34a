"""Links that can be cut, stalled and slowed: TCP proxies, all on one event loop in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

_CHUNK = 1 << 16


class Links:
    """The loop of all proxies of a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def to(self, port: int) -> Proxy:
        """A new link to this port."""
        proxy = Proxy(self, port)
        self._proxies.append(proxy)
        return proxy

    def close(self) -> None:
        for proxy in self._proxies:
            self.run(proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Proxy:
    """`port` leads to `target`, until it is cut. A stalled link takes bytes and passes none on."""

    def __init__(self, links: Links, target: int) -> None:
        self._links = links
        self.target = target
        self._cut = False
        self._delay = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server = links.run(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    # from the test's thread

    def cut(self) -> None:
        """Break what is connected, and refuse what comes."""
        self._links.run(self._do_cut())

    def stall(self) -> None:
        self._links.run(self._do_stall())

    def slow(self, seconds: float) -> None:
        """Every piece takes this much longer on its way."""
        self._delay = seconds

    def shake(self) -> None:
        """Break what is connected; it may connect again."""
        self._links.run(self._break())

    def heal(self) -> None:
        self._links.run(self._do_heal())

    # on the loop

    async def _do_cut(self) -> None:
        self._cut = True
        await self._break()

    async def _do_stall(self) -> None:
        self._open.clear()

    async def _do_heal(self) -> None:
        self._cut = False
        self._delay = 0.0
        self._open.set()

    async def _break(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        one = asyncio.ensure_future(self._pump(reader, there_writer))
        other = asyncio.ensure_future(self._pump(there_reader, writer))
        self._tasks |= {one, other}
        try:
            await asyncio.wait({one, other}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (one, other):
                task.cancel()
                self._tasks.discard(task)
            for end in (writer, there_writer):
                self._writers.discard(end)
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            return

    async def close(self) -> None:
        self._server.close()
        await self._break()
        for task in list(self._tasks):
            task.cancel()
