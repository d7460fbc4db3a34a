"""`penstock up --brokers N`: ZooKeeper, N brokers, a registry and Connect, as children of this process.

They start at the same time, are restarted when they end on their own, and stop in order: registry
and Connect, the brokers, ZooKeeper. If this process is killed, the kernel ends them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.failure import CommandFailed
from penstock.cli.options.secret_files import write_secret
from penstock.cli.up.companion import all_beside
from penstock.ensemble import ServerSpec, ZooKeeperProcess, free_port
from penstock.errors import PenstockError
from penstock.processes import with_parent

if TYPE_CHECKING:
    from penstock.cli.up.companion import Beside
    from penstock.cli.up.secure import SecureSite

log = logging.getLogger(__name__)

OWN_SETTINGS = ("node.id", "log.dirs", "listeners", "advertised.listeners", "zookeeper.connect")
"""What each broker gets from here, and --set cannot say for all of them."""

_SESSION_MS = 6000
_MOST_REPLICAS = 3
_READY_SECONDS = 120.0
_STOP_SECONDS = 40.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_LISTENING, _METRICS = b"listening on ", b"metrics at "


class ChildFailed(PenstockError):
    """A process of the cluster did not start; what it said is above."""


class BrokerProcess:
    """One broker as a child. Its port stays the same when it is started again.

    With `config_file` its settings are written there: they have secrets, which must not be in its arguments.
    """

    def __init__(
        self,
        broker_id: int,
        host: str,
        port: int,
        settings: Mapping[str, str],
        protocol: str = "PLAINTEXT",
        config_file: Path | None = None,
    ) -> None:
        self.id = broker_id
        self.host = host
        self.port = port
        self._settings = settings
        self._protocol = protocol
        self._config_file = config_file
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._listening = asyncio.Event()
        self.metrics: str | None = None
        self.last_words: deque[str] = deque(maxlen=1)

    @property
    def pid(self) -> int:
        return -1 if self._process is None else self._process.pid

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self) -> None:
        """The process runs; `ready` says when it listens."""
        self._listening.clear()
        host = f"[{self.host}]" if ":" in self.host else self.host
        values = {**self._settings, "listeners": f"{self._protocol}://{host}:{self.port}"}
        if self._config_file is not None:
            write_secret(self._config_file, "".join(f"{name}={value}\n" for name, value in values.items()))
            words = ["--config", str(self._config_file)]
        else:
            words = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "penstock.broker", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # In a session of its own a Ctrl-C does not reach it: it is stopped when the registry has ended.
            start_new_session=True,
            preexec_fn=with_parent(),
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._readers = [
            asyncio.ensure_future(self._read(self._process.stdout)),
            asyncio.ensure_future(self._read(self._process.stderr)),
        ]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the reader's buffer, which is dropped
                continue
            if not line:
                return
            if line.startswith(_METRICS):
                self.metrics = line.removeprefix(_METRICS).decode().strip()
                continue
            if line.startswith(_LISTENING):
                self.port = int(line.rpartition(b":")[2])
                self._listening.set()
                continue
            text = line.decode(errors="replace").rstrip()
            self.last_words.append(text)
            print(f"broker {self.id}: {text}", file=sys.stderr, flush=True)

    async def ready(self) -> None:
        """ChildFailed when it ends instead."""
        ended = asyncio.ensure_future(self.ended())
        listening = asyncio.ensure_future(self._listening.wait())
        try:
            done, _ = await asyncio.wait(
                (ended, listening), timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            listening.cancel()
            ended.cancel()
        if listening not in done:
            said = f": {self.last_words[-1]}" if self.last_words else ""
            raise ChildFailed(f"broker {self.id} did not start{said}")

    async def ended(self) -> int:
        """The exit code, when all that it said is notified."""
        assert self._process is not None
        code = await self._process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        return code

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self) -> None:
        """In order, with its leaders handed over; at once where that takes too long."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            log.warning("broker %d did not stop within %.0f s; killing it", self.id, _STOP_SECONDS)
            self.signal(signal.SIGKILL)
        await self.ended()


class LocalCluster:
    """All the processes, as they are kept running until `stopping` is set."""

    def __init__(
        self,
        brokers: int,
        data: Path,
        host: str,
        port: int,
        settings: Mapping[str, str],
        secure: SecureSite | None = None,
    ) -> None:
        spec = ServerSpec(data / "zookeeper", free_port())
        self._secure = secure
        protocol = "PLAINTEXT"
        own: dict[str, str] = {}
        login: dict[str, str] = {}
        if secure is not None:
            tls, own = secure.zookeeper(spec.host)
            spec = replace(spec, tls=tls)
            protocol, login = secure.protocol, secure.login()
            own |= secure.broker_settings()
        self.zookeeper = ZooKeeperProcess(spec, ends_with_parent=True)
        self._login: Mapping[str, str] = login
        common = {
            **own,
            "default.replication.factor": str(min(_MOST_REPLICAS, brokers)),
            "zookeeper.session.timeout.ms": str(_SESSION_MS),
            "zookeeper.connection.timeout.ms": str(round(_READY_SECONDS * 1000)),
            **settings,
            "zookeeper.connect": self.zookeeper.address,
        }
        self.brokers = [
            BrokerProcess(
                number,
                host,
                port and port + number - 1,
                {**common, "node.id": str(number), "log.dirs": str(data / f"broker-{number}")},
                protocol,
                None if secure is None else secure.directory / f"broker-{number}.properties",
            )
            for number in range(1, brokers + 1)
        ]
        self.stopping = asyncio.Event()

    async def run(
        self,
        ready_file: Path | None,
        announce: Callable[[dict[str, Any]], object],
        companions: Sequence[Beside],
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        async with AsyncExitStack() as stack:
            stack.callback(self.zookeeper.stop)
            self.zookeeper.start(wait=False)  # here: it ends with the thread that starts it
            stack.push_async_callback(self._stop_brokers)
            await asyncio.gather(*(broker.start() for broker in self.brokers))
            state: dict[str, Any] = {}
            if not await self._unless_stopped(self._all_ready()):
                return
            state.update(self._state())
            if self._secure is not None:
                await loop.run_in_executor(None, self._secure.provision, state["bootstrap"])
            await stack.enter_async_context(all_beside(companions, state, self.stopping))
            if self.stopping.is_set():
                return
            if self._secure is not None:
                state |= self._secure.write_clients(state)

            def tell() -> None:
                state.update(self._state())
                if ready_file is not None:
                    _write(ready_file, state)

            tell()
            if ready_file is not None:
                stack.callback(ready_file.unlink, missing_ok=True)
            announce(state)
            keepers = [loop.create_task(self._keep(broker, tell)) for broker in self.brokers]
            keepers.append(loop.create_task(self._keep_zookeeper()))
            await self.stopping.wait()
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    def _state(self) -> dict[str, Any]:
        return {
            "bootstrap": ",".join(broker.address for broker in self.brokers),
            "brokers": [
                {
                    "id": broker.id,
                    "host": broker.host,
                    "port": broker.port,
                    "pid": broker.pid,
                    **({} if broker.metrics is None else {"metrics": broker.metrics}),
                }
                for broker in self.brokers
            ],
            "zookeeper": self.zookeeper.address,
        }

    async def _unless_stopped(self, work: Any) -> bool:
        """Whether it was done before a signal came."""
        doing = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self.stopping.wait())
        await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if doing.done():
            doing.result()
            return True
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        return False

    async def _all_ready(self) -> None:
        serving = asyncio.get_running_loop().run_in_executor(None, self.zookeeper.wait_until_serving)
        waiting = [asyncio.ensure_future(broker.ready()) for broker in self.brokers]
        try:
            await asyncio.gather(serving, *waiting)
            await asyncio.gather(*map(self._knows_all, self.brokers))
        finally:
            for one in waiting:
                one.cancel()

    async def _knows_all(self, broker: BrokerProcess) -> None:
        """A topic with a replica on each can be made at any of them."""
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, _brokers_known, broker, self._login) < len(self.brokers):
            await asyncio.sleep(0.02)

    async def _keep(self, broker: BrokerProcess, tell: Callable[[], None]) -> None:
        pause = _FIRST_PAUSE
        while True:
            code = await broker.ended()
            log.warning("broker %d ended with exit code %d, restarting in %g s", broker.id, code, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            await broker.start()
            try:
                await broker.ready()
            except ChildFailed as error:
                log.warning("%s", error)
                continue
            log.info("broker %d is listening again", broker.id)
            pause = _FIRST_PAUSE
            tell()

    async def _keep_zookeeper(self) -> None:
        pause = _FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            while self.zookeeper.is_running:
                await asyncio.sleep(0.2)
            log.warning("ZooKeeper ended, restarting in %g s", pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self.zookeeper.start(wait=False)
            try:
                await loop.run_in_executor(None, self.zookeeper.wait_until_serving)
                pause = _FIRST_PAUSE
            except PenstockError as error:
                log.warning("%s", error)

    async def _stop_brokers(self) -> None:
        await asyncio.gather(*(broker.stop() for broker in self.brokers))


def _brokers_known(broker: BrokerProcess, login: Mapping[str, str]) -> int:
    from penstock.client import ClientSettings
    from penstock.client.connection import Connection
    from penstock.client.security import Security
    from penstock.wire.api_keys import ApiKey
    from penstock.wire.codec import Message

    timeout_ms = int(_READY_SECONDS * 1000)
    address = (broker.host, broker.port)
    settings = ClientSettings(
        (address,),
        request_timeout_ms=timeout_ms,
        connect_timeout_ms=timeout_ms,
        security=Security.from_kafka(login),
    )
    connection = Connection(*address, settings)
    try:
        return len(connection.request(ApiKey.METADATA, Message(topics=[]), at_most=12).brokers)
    finally:
        connection.close()


def run_cluster(
    brokers: int,
    data: str,
    host: str,
    port: int,
    settings: Mapping[str, str],
    ready_file: str | None,
    announce: Callable[[dict[str, Any]], object],
    companions: Sequence[Beside],
    secure: SecureSite | None,
) -> None:
    """Until a signal stops it; what prevents it is one line."""
    from penstock.config import BrokerConfig
    from penstock.web.log_output import set_up_logging

    set_up_logging()
    try:
        BrokerConfig.parse(dict(settings))  # a mistake is reported once, not by each of them

        async def run() -> None:
            cluster = LocalCluster(brokers, Path(data).absolute(), host, port, settings, secure)
            await cluster.run(Path(ready_file) if ready_file else None, announce, companions)

        asyncio.run(run())
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CommandFailed(f"cannot start: {where}{error.strerror or error}") from error
    finally:
        for companion in companions:
            companion.abandon()


def _write(path: Path, state: dict[str, Any]) -> None:
    """In one step: who waits for the file finds it whole."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(state) + "\n", encoding="utf-8")
    os.replace(beside, path)
