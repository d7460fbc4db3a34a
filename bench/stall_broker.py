"""A broker whose loop times every callback: `python -m bench.stall_broker`, as `penstock.broker` otherwise.

It runs on asyncio's own loop, whose callbacks can be timed. SIGUSR1 writes the longest since the last time to
`stalls.json` beside the ready file. SIGUSR2 does what else only another broker makes it do: a truncation as a
follower does it, or a load of all group shards as after a failover, as the file `command` says.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from penstock.broker import main as broker_main
from penstock.broker.broker import Broker
from penstock.replication.follower.truncations import Truncations

_KEPT = 5


class Stalls:
    """The longest callbacks: by the clock, and by the processor time of the loop's thread alone."""

    def __init__(self) -> None:
        self.longest: list[tuple[float, float, str]] = []
        self.cpu = (0.0, "")
        self.collected = (0.0, "")
        self._collecting = 0.0

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            took = time.thread_time() - self._collecting
            self.collected = max(self.collected, (took * 1000, f"generation {info['generation']}"))

    def note(self, seconds: float, cpu: float, what: object) -> None:
        if cpu > self.cpu[0]:
            self.cpu = (cpu, _name(what))
        if len(self.longest) < _KEPT or seconds > self.longest[-1][0]:
            self.longest.append((seconds, cpu, _name(what)))
            self.longest.sort(reverse=True)
            del self.longest[_KEPT:]

    def take(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "ms": self.longest[0][0] * 1000 if self.longest else 0.0,
            "cpu_ms": self.cpu[0] * 1000,
        }
        found["most_cpu"] = self.cpu[1]
        found["collection"] = self.collected
        found["longest"] = [[a * 1000, b * 1000, what] for a, b, what in self.longest]
        self.longest, self.cpu, self.collected = [], (0.0, ""), (0.0, "")
        return found


def _name(callback: Any) -> str:
    """Without its arguments and results, whose text would take longer than what is measured."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_coro().__qualname__}"
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _write(path: Path, content: object) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    os.replace(temporary, path)


def _time_callbacks(stalls: Stalls) -> None:
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def timed(handle: Any) -> None:
        callback = handle._callback  # gone afterwards where a connection stops reading
        began, cpu = time.perf_counter(), time.thread_time()
        run(handle)
        took = time.perf_counter() - began
        if took > 0.0005:
            stalls.note(took, time.thread_time() - cpu, callback)

    asyncio.Handle._run = timed  # type: ignore[attr-defined]


async def _truncate(broker: Broker, topic: str) -> None:
    """What `LeaderFetcher` does when its leader's log parts from this one in the middle."""
    partition = broker.partitions[topic, 0]
    end = partition.log.log_end_offset
    partition.log.truncate_to(end - 1)
    await Truncations(broker).settle(partition.log)


async def _failover(broker: Broker) -> None:
    host = broker.groups
    for index in list(host._hosted):
        host._give_up(index)
    host.on_image(broker.image)
    while any(hosted.shard is None for hosted in host._hosted.values()):
        await asyncio.sleep(0.005)


def main() -> int:
    stalls = Stalls()
    _time_callbacks(stalls)
    gc.callbacks.append(stalls.on_collection)
    arguments = sys.argv[1:]
    directory = Path(arguments[arguments.index("--ready-file") + 1]).parent
    start = Broker.start

    async def run_command(broker: Broker) -> None:
        command, *rest = json.loads((directory / "command").read_text())
        await (_truncate(broker, *rest) if command == "truncate" else _failover(broker))
        _write(directory / "done", True)

    async def started(broker: Broker) -> None:
        await start(broker)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: _write(directory / "stalls.json", stalls.take()))
        loop.add_signal_handler(signal.SIGUSR2, lambda: loop.create_task(run_command(broker)))

    def on_asyncio(work: Any) -> int:
        with asyncio.Runner() as runner:
            return int(runner.run(work))

    Broker.start = started  # type: ignore[method-assign]
    broker_main._new_loop_runner = on_asyncio
    return broker_main.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
