"""A process that `penstock up` starts when somebody first connects to its port, and not before.

`up` keeps the socket that listens, so the address is known at once and costs nothing; a connection waits in
the kernel's queue until the process accepts it. A process that ends is started again by the next connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from penstock.elected.process import listen

log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0
_PAUSE_SECONDS = 1.0


class OnDemand:
    """The console. `command` makes its command line for the file descriptor of the socket.

    CannotStart where the port is taken.
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        command: Callable[[int], list[str]],
        *,
        scheme: str = "http",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.key = key
        self._command = command
        self._environment = dict(environment or {})
        self._port = listen(host, port)
        self._listener = self._port.__enter__()
        self._listener.listen(128)
        self._listener.setblocking(False)
        shown = (
            socket.gethostname() if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
        )
        self.url = f"{scheme}://{shown}:{self._listener.getsockname()[1]}"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Nothing: it begins with the first connection."""

    @asynccontextmanager
    async def beside(self, state: dict[str, Any], stopping: asyncio.Event) -> AsyncIterator[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        keeper = loop.create_task(self._keep(state))
        try:
            yield {self.key: self.url}
        finally:
            keeper.cancel()
            await loop.run_in_executor(None, self._stop)
            self._port.__exit__(None, None, None)

    async def _keep(self, state: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked = asyncio.Event()
            loop.add_reader(self._listener.fileno(), asked.set)
            try:
                await asked.wait()
            finally:
                loop.remove_reader(self._listener.fileno())
            log.info("starting the %s for its first connection", self.key)
            self._process = process = self._spawn(state)
            code = await loop.run_in_executor(None, process.wait)
            log.warning("the %s ended with exit code %d; the next connection starts it again", self.key, code)
            await asyncio.sleep(_PAUSE_SECONDS)  # one that cannot start does not take a core

    def _spawn(self, state: dict[str, Any]) -> subprocess.Popen[bytes]:
        descriptor = self._listener.fileno()
        # In a session of its own a Ctrl-C does not reach it: it is stopped by the pipe.
        process = subprocess.Popen(
            self._command(descriptor),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,
            env={**os.environ, **self._environment},
        )
        assert process.stdin is not None
        where = {name: state[name] for name in ("bootstrap", "registry", "connect") if name in state}
        try:
            process.stdin.write(f"{json.dumps(where)}\n".encode())
            process.stdin.flush()
        except OSError:
            pass  # it is gone, and has said why
        return process

    def _stop(self) -> None:
        """End it cleanly, or, when that takes too long, at once."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                pass
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def abandon(self) -> None:
        """For a broker that did not start: nothing is left behind."""
        self._stop()
        self._listener.close()
