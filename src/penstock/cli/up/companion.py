"""A process that `penstock up` runs beside its broker: started early, watched, started again, stopped first.

The registry is started before the broker, so that both load at the same time, and waits on its stdin for the
broker's address. Connect is started when the broker listens: its first record must not wait for it. The pipe
stays open as a sign of life: when it closes, also because `up` was killed, the process ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from penstock.errors import PenstockError

log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0


class CompanionFailed(PenstockError):
    """The process did not get ready."""


@asynccontextmanager
async def all_beside(
    companions: Sequence[Beside], state: dict[str, Any], stopping: asyncio.Event
) -> AsyncIterator[None]:
    """Every companion of a broker that listens; `state` gets their addresses."""
    async with AsyncExitStack() as stack:
        for companion in companions:
            companion.begin()  # all load at the same time
        for companion in companions:
            ready = await stack.enter_async_context(companion.beside(state, stopping))
            if companion.key in ready:
                state[companion.key] = ready[companion.key]
        yield


class Beside(Protocol):
    """A process beside the broker, or one that can start there."""

    key: str

    def begin(self) -> None: ...

    def beside(
        self, state: dict[str, Any], stopping: asyncio.Event
    ) -> AbstractAsyncContextManager[dict[str, Any]]: ...

    def abandon(self) -> None: ...


class Companion:
    """One such process. `command` makes its command line from what it said when it was first ready.

    `key` is where the ready file has its address.
    """

    def __init__(
        self,
        name: str,
        key: str,
        command: Callable[[dict[str, Any] | None], list[str]],
        *,
        early: bool = True,
    ) -> None:
        self.key = key
        self._name = name
        self._command = command
        self._ready: dict[str, Any] | None = None
        self._started: subprocess.Popen[bytes] | None = None
        if early:
            self.begin()

    def begin(self) -> None:
        """Start it, unless it runs."""
        if self._started is None:
            self._started = self._spawn()

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self._started is not None
        return self._started

    def _spawn(self) -> subprocess.Popen[bytes]:
        # In a session of its own a Ctrl-C does not reach it: it is stopped by the pipe, before the broker.
        return subprocess.Popen(
            self._command(self._ready),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @asynccontextmanager
    async def beside(self, state: dict[str, Any], stopping: asyncio.Event) -> AsyncIterator[dict[str, Any]]:
        """Tell it the address, wait until it is ready, and keep it running; what it said is given."""
        self.begin()
        bootstrap = state["bootstrap"]
        ready = await self._get_ready(bootstrap, stopping)
        keeper = asyncio.get_running_loop().create_task(self._keep(bootstrap, stopping))
        try:
            yield ready
        finally:
            keeper.cancel()
            await self.stop()

    async def _get_ready(self, bootstrap: str, stopping: asyncio.Event) -> dict[str, Any]:
        loop, process = asyncio.get_running_loop(), self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{bootstrap}\n".encode())
            process.stdin.flush()
        except OSError:
            pass  # it is gone, and has said why
        line = asyncio.ensure_future(loop.run_in_executor(None, process.stdout.readline))
        stopped = loop.create_task(stopping.wait())
        either: list[asyncio.Future[Any]] = [line, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            self._close_pipe()
            await line
            return {}
        stopped.cancel()
        if not line.result():
            await self.stop()
            raise CompanionFailed(f"the {self._name} did not start: its reason is above")
        ready: dict[str, Any] = json.loads(line.result())
        self._ready = self._ready or ready
        return ready

    async def _keep(self, bootstrap: str, stopping: asyncio.Event) -> None:
        pause = _FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            code = await loop.run_in_executor(None, self._process.wait)
            if stopping.is_set():
                return
            log.warning("the %s ended with exit code %d, restarting in %g s", self._name, code, pause)
            self._close_pipe()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self._started = self._spawn()
            try:
                await self._get_ready(bootstrap, stopping)
                pause = _FIRST_PAUSE
            except CompanionFailed as error:
                log.warning("%s", error)

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass

    async def stop(self) -> None:
        """End it cleanly, or, when that takes too long, at once."""
        self._close_pipe()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.abandon()

    def abandon(self) -> None:
        """For a broker that did not start: nothing is left behind."""
        if self._started is None:
            return
        self._close_pipe()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
