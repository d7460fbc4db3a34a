"""`PenstockBroker`: a real broker in a separate process, controlled by a test.

It owns the process, its port and its data directory, and removes them when the context manager ends or when
the test process dies, in whatever way. The other end of the control pipe is `server.py`; the record and topic
helpers are an ordinary Kafka client (`client.py`).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

from penstock.testing.control import ControlError, ControlPipe
from penstock.testing.handles import BrokerClock, Faults
from penstock.testing.ports import free_port

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.testing.client import ConsumedRecord, RecordLike

_START_ATTEMPTS = 5
_START_TIMEOUT = 60.0


class BrokerFailed(RuntimeError):
    """The broker did not start, or died unexpectedly; the message ends with its log."""


class PenstockBroker:
    """A broker for a test.

    `settings` are broker settings with Kafka's names. `data_dir` keeps the data after the test; without it
    the broker has a temporary directory. `event_loop="uvloop"` uses the event loop of production, on which
    the clock cannot be advanced.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        event_loop: str = "asyncio",
    ) -> None:
        if event_loop not in ("asyncio", "uvloop"):
            raise ValueError(f"event_loop={event_loop!r}: must be 'asyncio' or 'uvloop'")
        self.settings = {name: _setting(value) for name, value in (settings or {}).items()}
        self.event_loop = event_loop
        self.clock = BrokerClock(self._call)
        self.faults = Faults(self._call)
        self._given_data_dir = os.fspath(data_dir) if data_dir is not None else None
        self._home: str | None = None
        self._log: IO[bytes] | None = None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: ControlPipe | None = None
        self._paused = False

    # ---- where it is ----

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        if not self._port:
            raise BrokerFailed("the broker was not started")
        return self._port

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def data_dir(self) -> str:
        """The broker's `log.dirs`; a temporary directory is removed when the context manager ends."""
        if self._given_data_dir is not None:
            return self._given_data_dir
        if self._home is None:
            raise BrokerFailed("the broker was not started")
        return os.path.join(self._home, "data")

    def log_tail(self, lines: int = 40) -> str:
        """The last lines that the broker wrote to its standard error."""
        if self._home is None:
            return ""
        with open(os.path.join(self._home, "broker.log"), encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    # ---- its life ----

    def __enter__(self) -> PenstockBroker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the process and returns when it listens, on its previous port if it had one."""
        if self.running:
            raise BrokerFailed("the broker is running already")
        if self._home is None:
            self._home = tempfile.mkdtemp(prefix="penstock-")
            self._log = open(os.path.join(self._home, "broker.log"), "ab")
        os.makedirs(self.data_dir, exist_ok=True)
        # Only the first start may choose the port: afterwards clients know it.
        attempts = 1 if self._port else _START_ATTEMPTS
        for attempt in range(attempts):
            port = self._port or free_port()
            try:
                self._launch(port)
            except BrokerFailed as error:
                if "address already in use" in str(error).lower() and attempt + 1 < attempts:
                    continue
                raise
            self._port = port
            return

    def _launch(self, port: int) -> None:
        assert self._home is not None
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.testing.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        control = ControlPipe(process)
        _live_pipes.add(control)
        self._process, self._control, self._paused = process, control, False
        boot = {
            "settings": {
                "log.dirs": self.data_dir,
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                **self.settings,
            },
            "event_loop": self.event_loop,
            "advanced_ms": self.clock.advanced_ms,
            # If it is killed with the test process, nothing else would remove the directory.
            "remove_when_orphaned": self._home if self._given_data_dir is None else None,
        }
        try:
            control.call("start", timeout=_START_TIMEOUT, **boot)
        except (ControlError, TimeoutError) as error:
            self._reap(kill=True)
            raise BrokerFailed(f"the broker did not start: {error}\n{self.log_tail()}") from error

    def stop(self) -> None:
        """A clean shutdown, as by SIGTERM; `start()` brings it back with its data."""
        if self._paused:
            self.resume()
        if self.running:
            self._call("stop", timeout=_START_TIMEOUT)
        self._reap(kill=False)

    def kill(self) -> None:
        """kill -9: no shutdown, no flush; `start()` or `restart()` brings it back with its data."""
        self._running()
        self._reap(kill=True)

    def restart(self) -> None:
        """Stops the broker if it runs, and starts it on the same port with the same data."""
        if self.running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, but there are no responses until `resume()`."""
        process = self._running()
        if not self._paused:
            os.kill(process.pid, signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        """SIGCONT."""
        process = self._running()
        if self._paused:
            os.kill(process.pid, signal.SIGCONT)
            self._paused = False

    def close(self) -> None:
        """Ends the process and removes the temporary directory."""
        # The data is deleted anyway: a clean shutdown would only take time.
        if self._given_data_dir is not None and self.running:
            self.stop()
        self._reap(kill=True)
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def _reap(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        process.wait()
        self._paused = False
        if self._control is not None:
            self._control.close()
            self._control = None

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None:
            raise BrokerFailed("the broker is not running: start() or restart() it")
        if process.poll() is not None:
            raise BrokerFailed(f"the broker died with exit code {process.returncode}\n{self.log_tail()}")
        return process

    def _listening_port(self) -> int:
        self._running()
        if self._paused:
            raise BrokerFailed("the broker is paused: resume() it")
        return self.port

    def _call(self, op: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        self._listening_port()
        assert self._control is not None
        return self._control.call(op, timeout=timeout, **arguments)

    # ---- what it saw ----

    @property
    def requests(self) -> dict[str, int]:
        """How many requests of each API have arrived since the broker was started."""
        counts: dict[str, int] = self._call("requests")
        return counts

    def wait_for_requests(self, api: str, count: int = 1, timeout: float = 10.0) -> None:
        """Returns when `count` requests of `api` have arrived since the broker was started."""
        self._call("wait_for_requests", timeout=timeout, api=api, count=count)

    # ---- topics and records ----

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        from penstock.testing import client

        with client.connect(self._listening_port()) as wire:
            settings = {key: _setting(value) for key, value in (config or {}).items()}
            client.create_topic(wire, name, partitions, settings)

    def delete_topic(self, name: str) -> None:
        from penstock.testing import client

        with client.connect(self._listening_port()) as wire:
            client.delete_topic(wire, name)

    def produce(
        self, topic: str, records: Iterable[RecordLike], *, partition: int = 0, compression: str = "none"
    ) -> list[ConsumedRecord]:
        """Appends records as one batch per partition, and returns them with their offsets.

        A record is a value (`bytes`, `str` or `None`), a pair `(key, value)`, or a mapping with any of `key`,
        `value`, `headers`, `timestamp` and `partition`.
        """
        from penstock.testing import client

        with client.connect(self._listening_port()) as wire:
            return client.produce(
                wire,
                topic,
                records,
                partition=partition,
                compression=compression,
                # A record created after the clock was advanced gets the advanced time.
                now_ms=time.time_ns() // 1_000_000 + self.clock.advanced_ms,
            )

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        offset: int = 0,
        isolation: str = "read_uncommitted",
        timeout: float = 10.0,
    ) -> list[ConsumedRecord]:
        """Reads `count` records, waiting for them up to `timeout` seconds; or all existing ones.

        From all partitions, or from one, starting at `offset` or at the log start.
        """
        from penstock.testing import client

        with client.connect(self._listening_port(), timeout=timeout) as wire:
            return client.consume(
                wire, topic, count, partition=partition, offset=offset, isolation=isolation, timeout=timeout
            )


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_setting, value))
    return str(value)


# A forked child of the test process must not keep the pipe open: the broker exits when it closes.
_live_pipes: weakref.WeakSet[ControlPipe] = weakref.WeakSet()


def _close_in_forked_child() -> None:
    for pipe in list(_live_pipes):
        pipe.close()


os.register_at_fork(after_in_child=_close_in_forked_child)
