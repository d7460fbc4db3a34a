"""The broker's process of a `PenstockBroker`: a Broker, and its controls on stdin and stdout.

Each line on stdin is a JSON object with `id`, `op` and arguments; each gets one line back with the `id` and
`result` or `error`. When stdin ends, the test process is gone, and this process exits.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.clock import ShiftedClock
from penstock.config import BrokerConfig
from penstock.errors import PenstockError
from penstock.testing.faults import FaultPlan
from penstock.testing.interceptor import Interceptor, fault_from_json
from penstock.testing.loop import ShiftedLoop

_PR_SET_PDEATHSIG = 1


class Server:
    """The broker with the operations that a test may call: each `op_NAME` is one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: ShiftedClock, boot: Mapping[str, Any]) -> None:
        self._loop = loop
        self._clock = clock
        self._interceptor = Interceptor(FaultPlan())
        self._broker = Broker(
            BrokerConfig.parse(boot["settings"]), clock=clock, interceptor=self._interceptor
        )
        self.stopped = asyncio.Event()

    async def start(self) -> dict[str, Any]:
        await self._broker.start()
        return {"port": self._broker.port, "pid": os.getpid()}

    async def op_stop(self) -> None:
        await self._broker.stop()
        self.stopped.set()

    async def op_advance(self, ms: int) -> None:
        if not isinstance(self._loop, ShiftedLoop):
            raise ValueError("the clock cannot be advanced with event_loop='uvloop'")
        await self._loop.advance(ms)

    async def op_now_ms(self) -> int:
        return self._clock.now_ms()

    async def op_add_fault(self, **rule: Any) -> None:
        self._interceptor.plan.add(fault_from_json(rule))

    async def op_clear_faults(self) -> None:
        self._interceptor.plan.clear()

    async def op_fault_hits(self) -> dict[str, int]:
        return self._interceptor.hits()

    async def op_requests(self) -> dict[str, int]:
        return self._interceptor.requests()

    async def op_wait_for_requests(self, api: str, count: int) -> None:
        await self._interceptor.wait_for(api, count)


class Controls:
    """Reads lines in a separate thread, so that a broker whose loop hangs also notices the end."""

    def __init__(self, answers_fd: int) -> None:
        self._answers = os.fdopen(answers_fd, "w", encoding="utf-8")

    def read_boot(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        boot: dict[str, Any] = json.loads(line)
        return boot

    def answer(self, id_: int, **outcome: Any) -> None:
        try:
            self._answers.write(json.dumps({"id": id_, **outcome}) + "\n")
            self._answers.flush()
        except BrokenPipeError:
            # The reader of stdin sees the same end, and leaves.
            return

    def serve(self, server: Server, loop: asyncio.AbstractEventLoop, orphan_dir: str | None) -> None:
        threading.Thread(target=self._read, args=(server, loop, orphan_dir), daemon=True).start()

    def _read(self, server: Server, loop: asyncio.AbstractEventLoop, orphan_dir: str | None) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            id_, operation = request.pop("id"), getattr(server, f"op_{request.pop('op')}")
            future = asyncio.run_coroutine_threadsafe(operation(**request), loop)
            future.add_done_callback(partial(self._answer_outcome, id_))
        if orphan_dir is not None:
            shutil.rmtree(orphan_dir, ignore_errors=True)
        os._exit(0)

    def _answer_outcome(self, id_: int, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.answer(id_, result=future.result())
        else:
            traceback.print_exception(error)
            self.answer(id_, error=f"{type(error).__name__}: {error}")


async def _serve(controls: Controls, boot: Mapping[str, Any], clock: ShiftedClock) -> None:
    loop = asyncio.get_running_loop()
    try:
        server = Server(loop, clock, boot)
        listening = await server.start()
    except (PenstockError, OSError) as error:
        controls.answer(boot["id"], error=str(error))
        return
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(server.op_stop()))
    controls.serve(server, loop, boot["remove_when_orphaned"])
    controls.answer(boot["id"], result=listening)
    await server.stopped.wait()


def main() -> None:
    # Ctrl-C reaches the whole process group; the test decides when its broker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A paused process does not notice that its control pipe was closed, so it is resumed.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    # Output of this process must not get between the responses.
    answers_fd = os.dup(1)
    os.dup2(2, 1)
    controls = Controls(answers_fd)
    boot = controls.read_boot()
    clock = ShiftedClock()
    clock.advance(boot["advanced_ms"])
    if boot["event_loop"] == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    else:
        loop = ShiftedLoop(clock)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(_serve(controls, boot, clock))


if __name__ == "__main__":
    main()
