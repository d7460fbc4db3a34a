"""Child processes of connectors and tasks: starting, watching, restarting and stopping them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.connect.worker.configs import Unit
from penstock.processes import with_parent
from penstock.restarts import Backoff, Restarts

log = logging.getLogger(__name__)

_LINE_LIMIT = 64 << 20
_STEADY_SECONDS = 60.0
_LONGEST_PAUSE = 60.0
_CLEAN = 0


class ChildProcess:
    """One process: messages to it, events from it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, message: dict[str, Any]) -> ChildProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock.connect.runtime.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            preexec_fn=with_parent(),
        )
        child = cls(process)
        child.send(message)
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):  # it is gone: the reader of events notices its end
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def event(self) -> dict[str, Any] | None:
        """The next event; None at the end."""
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            return {"event": "failed", "trace": "the process sent a line of more than 64 MiB"}
        if not line:
            return None
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            return None  # cut off when the process ended
        return event

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class UnitRunner:
    """Keeps one unit running until it is stopped, and restarts it after failures, with backoff up to a
    limit.
    """

    def __init__(
        self,
        unit: Unit,
        message: dict[str, Any],
        *,
        generation: int,
        attempts: int,
        backoff: float,
        grace: float,
        ready: Callable[[], Awaitable[None]],
        on_state: Callable[[Unit, str, str | None], None],
        on_event: Callable[[Unit, dict[str, Any]], None],
    ) -> None:
        self.unit = unit
        self.generation = generation
        self.paused = bool(message.get("paused"))
        self.state = ""
        self._message = message
        # Where each unit has a process of its own, many at once are no trouble: `luck` is 1.
        self._life = Restarts(Backoff(backoff, _LONGEST_PAUSE, _STEADY_SECONDS, attempts=attempts))
        self._grace = grace
        self._ready = ready
        self._on_state = on_state
        self._on_event = on_event
        self._stopping = asyncio.Event()
        self._again = asyncio.Event()
        self._child: ChildProcess | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"runner {unit}")

    def pause(self, paused: bool) -> None:
        if paused == self.paused:
            return
        self.paused = self._message["paused"] = paused
        if self._child is not None:
            self._child.send({"do": "pause" if paused else "resume"})
        if not self.unit.is_task and self.state in ("RUNNING", "PAUSED"):
            self._report("PAUSED" if paused else "RUNNING")

    def set_log_levels(self, levels: dict[str, str]) -> None:
        self._message["log_levels"] = levels
        if self._child is not None:
            self._child.send({"do": "log_levels", "levels": levels})

    def restart(self) -> None:
        """Also restarts a unit that has failed permanently."""
        self._again.set()
        if self._child is not None:
            self._child.send({"do": "stop"})

    async def stop(self, state: str | None) -> None:
        """Stop it; `state` is reported when it has ended."""
        self._stopping.set()
        self._again.set()
        if self._child is not None:
            self._child.send({"do": "stop"})
        try:
            async with asyncio.timeout(self._grace):
                await asyncio.shield(self._task)
        except TimeoutError:
            log.warning("%s did not stop within %g s; killing its process", self.unit, self._grace)
            if self._child is not None:
                self._child.kill()
            await asyncio.wait([self._task], timeout=5)
        if state is not None:
            self._on_state(self.unit, state, None)

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def _run(self) -> None:
        await self._ready()
        while not self._stopping.is_set():
            self._again.clear()
            self._life.started(time.monotonic())
            trace = await self._once()
            if self._stopping.is_set():
                return
            if self._again.is_set():
                self._life.forget()
                continue
            if trace is None:
                await self._again.wait()  # a connector that has divided its work has nothing more to do
                self._life.forget()
                continue
            pause = self._life.failed(trace, time.monotonic(), 1.0)
            if pause is None:
                log.error("%s failed and will not be restarted: %s", self.unit, _last_line(trace))
                self._report("FAILED", trace)
                await self._again.wait()
                self._life.forget()
                continue
            log.warning("%s failed, restarting in %g s: %s", self.unit, pause, _last_line(trace))
            self._report("RESTARTING", trace)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()

    async def _once(self) -> str | None:
        """Run the process once. Returns the trace of its error, None for a normal end."""
        try:
            child = self._child = await ChildProcess.start(self._message)
        except OSError as error:
            return f"the process cannot be started: {error}"
        if self._stopping.is_set():
            child.send({"do": "stop"})
        trace: str | None = None
        clean = False
        try:
            while (event := await child.event()) is not None:
                match event["event"]:
                    case "running":
                        self._report("PAUSED" if self.paused and not self.unit.is_task else "RUNNING")
                    case "paused":
                        self._report("PAUSED")
                    case "retrying":
                        self._report("RUNNING", event["trace"])
                    case "failed":
                        trace = event["trace"]
                    case "stopped":
                        clean = True
                    case _:
                        self._on_event(self.unit, event)
        finally:
            code = await child.wait()
            self._child = None
        if trace is not None:
            return trace
        if clean and code == _CLEAN:
            return None if not self.unit.is_task else "the task ended without being stopped"
        return f"the process of {self.unit} ended with {_exit(code)}"

    def _report(self, state: str, trace: str | None = None) -> None:
        self.state = state
        if not self._stopping.is_set():
            self._on_state(self.unit, state, trace)


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _last_line(trace: str) -> str:
    return trace.strip().rpartition("\n")[2]


class ScoutFailed(Exception):
    """The scout did not respond, or plugin code failed in it."""


class ScoutProcess:
    """The process that loads plugins; started at the first request, and restarted when it does not
    respond.
    """

    def __init__(self, message: dict[str, Any], timeout: float) -> None:
        self._message = message
        self._timeout = timeout
        self._child: ChildProcess | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next = 0
        self._starting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    async def ask(self, what: str, **details: Any) -> dict[str, Any]:
        """Returns the response's `result`, `unknown_plugin`, `refused` or `failed`."""
        async with self._starting:
            if self._child is None:
                self._child = await ChildProcess.start(self._message)
                self._reader = asyncio.get_running_loop().create_task(self._read(self._child))
            child = self._child
        number, self._next = self._next, self._next + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        child.send({"id": number, "do": what, "with": details})
        try:
            return await asyncio.wait_for(answer, self._timeout)
        except TimeoutError:
            child.kill()  # other pending requests fail, and may be repeated
            raise ScoutFailed(f"plugin code did not answer {what} in {self._timeout:g} s") from None
        finally:
            self._asked.pop(number, None)

    async def _read(self, child: ChildProcess) -> None:
        while (event := await child.event()) is not None:
            asked = self._asked.get(event.get("id", -1))
            if asked is not None and not asked.done():
                asked.set_result(event)
        code = await child.wait()
        if self._child is child:
            self._child = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ScoutFailed(f"plugin code ended its process with {_exit(code)}"))

    async def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            await self._child.wait()
