"""A broker as a process: event loop, signals, limits, the ready file.

python -m penstock.broker --set listeners=PLAINTEXT://127.0.0.1:0 --set log.dirs=DIR --ready-file FILE
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from penstock.broker.broker import Broker
from penstock.config import BrokerConfig
from penstock.credentials.references import resolve_all
from penstock.errors import ConfigError, PenstockError
from penstock.web.log_output import set_up_logging

Announce = Callable[[dict[str, Any]], object]
Alongside = Callable[[dict[str, Any], asyncio.Event], AbstractAsyncContextManager[object]]
"""Runs alongside the broker: gets the content of the ready file, to add to it, and the event that stops
it."""

_SWITCH_INTERVAL_S = 0.0005


def run(
    config: BrokerConfig,
    ready: Announce | None = None,
    ready_file: str | None = None,
    announce: Announce | None = None,
    alongside: Alongside | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT. Returns the exit code. `announce` gets the content of the ready
    file."""
    _raise_descriptor_limit()
    set_up_logging()
    # A thread that computes (replay, searches) delays the event loop by this interval each time the loop
    # comes back from the kernel; with Python's default of 5 ms a produce would wait for it several times.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        return _new_loop_runner(_serve(config, ready_file, announce or ready or _print, alongside))
    except (PenstockError, OSError) as error:
        hint = ""
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            hint = "; allow this process more open files (ulimit -n)"
        print(f"penstock broker: {error}{hint}", file=sys.stderr)
        return 1


def _new_loop_runner(work: Any) -> int:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        code: int = runner.run(work)
        return code


async def _serve(
    config: BrokerConfig, ready_file: str | None, announce: Announce, alongside: Alongside | None
) -> int:
    broker = Broker(config)
    stopping = broker.stopping
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await broker.start()
    # What is loaded by now stays in memory: exclude it from garbage collection.
    gc.collect()
    gc.freeze()
    # A request with many items creates a few objects for each, which are freed with the response. With the
    # default threshold the collector takes a third of that time; with 20,000, one collection blocks the loop
    # for 20 ms. The middle generation has longer-lived objects, such as the state of a coordinator that is
    # being loaded: it is collected after 5 collections, because with 20 it blocks the loop for 34 ms.
    gc.set_threshold(5_000, 5, 40)
    state = {
        "bootstrap": f"{broker.host}:{broker.port}",
        "brokers": [_shown(broker)],
    }
    try:
        async with alongside(state, stopping) if alongside is not None else nullcontext():
            if not stopping.is_set():
                if ready_file is not None:
                    _write_ready(ready_file, state)
                announce(state)
            await stopping.wait()
    finally:
        await broker.stop()
    if ready_file is not None and os.path.exists(ready_file):
        os.unlink(ready_file)
    return 0


def _shown(broker: Broker) -> dict[str, Any]:
    shown = {"id": broker.id, "host": broker.host, "port": broker.port, "pid": os.getpid()}
    return shown if broker.metrics is None else {**shown, "metrics": broker.metrics.address}


def _write_ready(path: str, state: dict[str, Any]) -> None:
    """Writes the file atomically, so that a reader never sees a part of it."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.write("\n")
    os.replace(temporary, path)


def _print(state: dict[str, Any]) -> None:
    for broker in state["brokers"]:
        if "metrics" in broker:
            print(f"metrics at {broker['metrics']}", flush=True)
    print(f"listening on {state['bootstrap']}", flush=True)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock.broker", description="Run one broker.")
    parser.add_argument("--config", metavar="FILE", help="settings as in a server.properties")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="one setting")
    parser.add_argument("--ready-file", metavar="FILE", help="written when the broker listens, as JSON")
    options = parser.parse_args(arguments)
    try:
        config = BrokerConfig.parse(_settings(options.config, options.set))
    except (ConfigError, OSError) as error:
        print(f"penstock broker: {error}", file=sys.stderr)
        return 2
    return run(config, ready_file=options.ready_file)


def _settings(path: str | None, pairs: Sequence[str]) -> dict[str, str]:
    lines = []
    if path is not None:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    settings = {}
    for line in [*(line for line in lines if line and line[0] not in "#!"), *pairs]:
        name, separator, value = line.partition("=")
        if not separator:
            raise ConfigError(f"{line!r} is not a setting: write name=value")
        settings[name.strip()] = value.strip()
    return resolve_all(settings)
