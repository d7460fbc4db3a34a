"""An event loop in which time, the order of processes and the end of thread work come from a seed.

A process is what a broker or a client runs in. Every callback belongs to the process in whose context it
was made; callbacks of one process run in the order of asyncio, those of different processes in any order.
Time stands still while anything can run and then jumps to the next timer. A process that was killed runs
no more callbacks: its tasks stop where they are, as with SIGKILL.

Work for threads really is in threads, of which one runs at a time: it stops at what `Job.pause` marks
(calls of the file system) and goes on when the seed says, while the loop goes on.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import heapq
import itertools
import random
import threading
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.brokers.network import Network

_CALLBACK_SECONDS = 0.00002
_MOST_STEPS = 2_000_000
CHECK_EVERY = 100


class Killed(BaseException):
    """In a thread of a process that is no more."""


class Stuck(AssertionError):
    """Nothing can ever happen again, or far too much happens."""


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.ready: deque[asyncio.Handle] = deque()
        self.stopped_until = 0.0  # as with SIGSTOP
        self.jobs: dict[Job, None] = {}
        self.remains: list[object] = []  # so that nothing of it is finalized while the others run

    def __repr__(self) -> str:
        return self.name


WORLD = Process("world")
"""What happens outside of all processes: the network, ZooKeeper, faults."""

PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process", default=WORLD)
_JOB: contextvars.ContextVar[Job | None] = contextvars.ContextVar("job", default=None)


def in_process(process: Process) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    return context


class _Worker:
    """A thread that runs one job after the other: a new one for each would take longer than most jobs."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.turn = _thread.allocate_lock()  # held while the thread is to wait
        self.turn.acquire()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            job = self.job
            if job is None:
                return
            job.run()

    def end(self) -> None:
        self.job = None
        self.turn.release()


class Job:
    """Work in a thread of a process."""

    def __init__(self, loop: SimLoop, work: Callable[[], Any], lane: object) -> None:
        self.process = PROCESS.get()
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._work = work
        self._lane = lane
        self._context = contextvars.copy_context()
        self._context.run(_JOB.set, self)
        self._worker: _Worker | None = None
        self._back = _thread.allocate_lock()  # held while the loop is to wait
        self._back.acquire()
        self._done = False
        self._outcome: tuple[Any, BaseException | None] = (None, None)

    def begin(self) -> None:
        self._worker = self._loop.take_worker()
        self._worker.job = self
        self._resume()

    def run(self) -> None:
        """In the thread."""
        try:
            self._outcome = (self._context.run(self._work), None)
        except BaseException as error:  # noqa: BLE001 - it is handed on, whatever it is
            self._outcome = (None, error)
        self._done = True
        self._back.release()

    def _resume(self) -> None:
        assert self._worker is not None
        self._worker.turn.release()
        self._run_on()

    def _run_on(self) -> None:
        """Wait for the thread to pause or to end."""
        self._back.acquire()
        if not self._done:
            self._loop.call_later(self._loop.disk_delay(), self._resume)
            return
        self._give_back()
        self.process.jobs.pop(self, None)
        self._loop.job_ended(self._lane)
        result, error = self._outcome
        if self.future.done() or isinstance(error, Killed):
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def _give_back(self) -> None:
        assert self._worker is not None
        self._loop.workers.append(self._worker)
        self._worker = None

    def kill(self) -> None:
        if self._worker is not None and not self._done:
            self._worker.turn.release()
            self._back.acquire()
            self._give_back()

    def stop_here(self) -> None:
        """In the thread: let the loop go on, and come back when it says so."""
        if not self.process.alive:
            raise Killed
        assert self._worker is not None
        self._back.release()
        self._worker.turn.acquire()
        if not self.process.alive:
            raise Killed


def pause() -> None:
    """Where a thread of a process may be overtaken by its loop; on the loop itself nothing."""
    job = _JOB.get()
    if job is not None:
        job.stop_here()


class _Task(asyncio.Task[Any]):
    """Sets of tasks are in the same order in every run, not in that of addresses in memory."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(base_events.BaseEventLoop):
    network: Network

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        WORLD.ready.clear()
        WORLD.remains.clear()
        self.rng = rng
        self.now = 1000.0
        self.steps = 0
        self.failures: list[str] = []
        self.disk_is_slow = 0.0  # until then
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._busy: list[Process] = []  # those with something to run
        self._lanes: dict[object, deque[Job]] = {}
        self.workers: list[_Worker] = []  # that are idle
        self.over = False
        self.check_touched: Callable[[], None] = lambda: None  # called after each step
        self.check: Callable[[], None] = lambda: None  # called after so many of them
        self.check_every = CHECK_EVERY
        self.set_exception_handler(self._failed)

    # what BaseEventLoop leaves open

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError

    def _write_to_self(self) -> None:
        pass

    def _failed(self, loop: object, context: dict[str, Any]) -> None:
        if self.over:
            return
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    # time and order

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = events.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = events.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _put(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS, WORLD)  # type: ignore[attr-defined]
        if not process.alive:
            process.remains.append(handle)
            return
        if not process.ready:
            self._busy.append(process)
        process.ready.append(handle)

    def _run_once(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self._put(handle)
        process = self._next_process()
        if process is None:
            return
        handle_to_run = process.ready.popleft()
        if not process.ready:
            self._busy.remove(process)
        if handle_to_run.cancelled():
            return
        self.steps += 1
        self.now += _CALLBACK_SECONDS
        if self.steps > _MOST_STEPS:
            raise Stuck(f"no end after {self.steps} steps")
        handle_to_run._run()  # type: ignore[attr-defined]
        self.check_touched()
        if self.steps % self.check_every == 0:
            self.check()

    def _next_process(self) -> Process | None:
        busy = self._busy
        if busy:
            process = busy[0] if len(busy) == 1 else busy[int(self.rng.random() * len(busy))]
            if process.stopped_until <= self.now:
                return process
            running = [one for one in busy if one.stopped_until <= self.now]
            if running:
                return running[int(self.rng.random() * len(running))]
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        times = [one.stopped_until for one in busy]
        if timers:
            times.append(timers[0][0])
        if not times:
            raise Stuck("nothing is under way any more")
        self.now = max(self.now, min(times))
        return None

    # processes

    def kill(self, process: Process) -> None:
        process.alive = False
        process.remains += process.ready
        process.ready.clear()
        if process in self._busy:
            self._busy.remove(process)
        jobs, process.jobs = list(process.jobs), {}
        for job in jobs:
            job.kill()
            process.remains.append(job)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = _Task(next(self._numbers), coro, loop=self, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS, WORLD)
        process.remains.append(task)
        return task

    # threads

    def take_worker(self) -> _Worker:
        return self.workers.pop() if self.workers else _Worker()

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        super().close()

    def disk_delay(self) -> float:
        rng = self.rng
        if self.now < self.disk_is_slow:
            return rng.random() * 2.0
        return rng.random() * (0.2 if rng.random() < 0.05 else 0.004)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """An executor that is named has one thread in each process; the default one has as many as there is
        work."""
        elsewhere = isinstance(executor, ProcessPoolExecutor)

        def work() -> Any:
            result = func(*args)
            if elsewhere:
                pause()  # what comes back from another process may be of yesterday
            return result

        lane = None if executor is None else (PROCESS.get(), executor)
        job = Job(self, work, lane)
        job.process.jobs[job] = None
        jobs = deque([job]) if lane is None else self._lanes.setdefault(lane, deque())
        if lane is not None:
            jobs.append(job)
        if len(jobs) == 1:
            self.call_later(self.disk_delay(), job.begin)
        return job.future

    def job_ended(self, lane: object) -> None:
        if lane is None:
            return
        jobs = self._lanes[lane]
        jobs.popleft()
        if jobs:
            jobs[0]._context.run(self.call_later, self.disk_delay(), jobs[0].begin)

    # the network

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: str, port: int, **options: Any
    ) -> Any:
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, *, sock: Any, backlog: int = 0
    ) -> Any:
        return self.network.listen(protocol_factory, sock)
