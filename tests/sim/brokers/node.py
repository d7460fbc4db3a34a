"""A broker of the simulation: the real one, in a process that can be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from penstock.broker.broker import Broker
from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.errors import KafkaStorageError, PenstockError
from penstock.log.files import OpenFiles
from penstock.metadata.zookeeper import SessionState, ZooKeeperStore
from penstock.replication.partition import Partition
from tests.sim.brokers.disk import NoRoom, SimFs
from tests.sim.brokers.loop import Process, SimLoop, in_process
from tests.sim.brokers.network import Network, SimServer, SimWriter
from tests.sim.brokers.zookeeper import Ensemble, SimKazoo

HOST = "127.0.0.1"
FIRST_PORT = 9090
START_MS = 1_700_000_000_000
_OPEN_FILES = 4

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "num.recovery.threads.per.data.dir": "1",
    "zookeeper.connect": "simulated",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "replica.socket.timeout.ms": "10000",
    "replica.fetch.backoff.ms": "200",
    "leader.imbalance.check.interval.seconds": "5",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.cleaner.backoff.ms": "300",
}


class SimClock:
    """The virtual time, and on each machine a little beside it."""

    def __init__(self, loop: SimLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return START_MS + int(self._loop.now * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.now


class _SeededRandom(random.Random):
    """A generator that nobody gave a seed gets one from the simulation."""

    source: random.Random

    def __new__(cls, seed: object = None) -> _SeededRandom:
        return super().__new__(cls, 0)

    def __init__(self, seed: object = None) -> None:
        super().__init__(self.source.getrandbits(64) if seed is None else seed)  # type: ignore[arg-type]


@contextmanager
def simulated(loop: SimLoop, network: Network, ensemble: Ensemble, seed: int) -> Iterator[None]:
    """While this is open, brokers are made of simulated parts where they meet the machine."""
    entropy = random.Random(f"entropy {seed}")
    _SeededRandom.source = random.Random(f"random {seed}")
    SimServer.network = SimWriter.network = network
    SimKazoo.ensemble = ensemble
    with ExitStack() as stack:
        for target, new in (
            ("penstock.broker.broker.Server", SimServer),
            ("penstock.broker.net.connection.Writer", SimWriter),
            ("penstock.metadata.zookeeper.KazooClient", SimKazoo),
            # Its process is not started: the loop does the work of it.
            ("penstock.broker.maintenance.maintenance._start_child", lambda: ProcessPoolExecutor(1)),
            # Most shards are small here: in some schedules each is read in many steps all the same.
            ("penstock.broker.coordinators.shard_host._LOAD_ON_LOOP_BYTES", 0 if seed % 2 else 1 << 13),
            ("penstock.broker.coordinators.shard_replay._SLICE_BYTES", 500),
            ("random.Random", _SeededRandom),
            ("os.urandom", entropy.randbytes),
            # Files of sealed segments are closed, and opened again when they are read.
            ("penstock.log.files._OPEN_FILES", OpenFiles(_OPEN_FILES)),
        ):
            stack.enter_context(patch(target, new))
        yield


class Node:
    """A machine with a broker. `broker` is the one that runs, or None."""

    def __init__(
        self, loop: SimLoop, network: Network, node_id: int, directory: str, settings: Mapping[str, str]
    ) -> None:
        self.loop = loop
        self.network = network
        self.id = node_id
        self.name = f"broker-{node_id}"
        self.note: Callable[[str], None] = lambda text: None
        self.lost_its_power: Callable[[], None] = lambda: None
        self._settings = {
            **SETTINGS,
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{HOST}:{FIRST_PORT + node_id}",
            "log.dirs": directory,
            **settings,
        }
        os.makedirs(directory, exist_ok=True)
        self.fs = SimFs(directory, loop.rng)
        self.clock = SimClock(loop)
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.started = False
        self.lost_power = False  # and is not back yet
        self.dead: list[object] = []  # kept until the simulation ends

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        assert self.process is None
        self.process = process = Process(self.name)
        self.started = False
        clock: Clock = self.clock
        self.fs = SimFs(self.fs.root, self.loop.rng, self.fs)
        self.broker = broker = Broker(BrokerConfig.parse(self._settings), clock, self.fs)
        self.note(f"{self.name} starts")
        self.loop.create_task(self._run(process, broker), context=in_process(process))

    async def _run(self, process: Process, broker: Broker) -> None:
        while True:
            try:
                await broker.start()
                break
            except (KafkaStorageError, NoRoom) as error:
                if self.fs.is_full:
                    self.note(f"{self.name} could not start, its disk is full: {error}")
                    await asyncio.sleep(1)
                    broker.__init__(broker.config, self.clock, self.fs)  # type: ignore[misc]
                    continue
                # It waits for ZooKeeper.
                self.loop.failures.append(f"{self.name} gave up its start: {error!r}")
                raise
            except PenstockError as error:
                # As an init system would: start it again, while ZooKeeper is away for example.
                self.note(f"{self.name} could not start: {error}")
                await asyncio.sleep(1)
                broker.__init__(broker.config, self.clock, self.fs)  # type: ignore[misc]
            except Exception as error:
                self.loop.failures.append(f"{self.name} cannot start: {error!r}")
                raise
        self.started = True
        self.lost_power = False
        self.note(f"{self.name} has started")

    def kill(self, *, power: bool = False) -> None:
        process, broker = self.process, self.broker
        if process is None or broker is None:
            return
        self.loop.kill(process)
        self.network.killed(process)
        zookeeper = self.zookeeper
        if zookeeper is not None:
            zookeeper.killed()
        broker._locks.release()
        self.fs.killed()
        lost = self.fs.lose_power() if power else 0
        if power:
            self.lost_power = True
            self.lost_its_power()
        self.note(f"{self.name} is killed" + (f", {lost} bytes were not on disk" if power else ""))
        self.dead += [process, broker]
        self.process = self.broker = None
        self.started = False

    def stop(self) -> None:
        """A controlled shutdown; the process ends with it."""
        process, broker = self.process, self.broker
        assert process is not None and broker is not None

        async def run() -> None:
            await broker.stop()
            self.note(f"{self.name} has stopped")
            self.loop.call_soon(self._ended, process)

        self.note(f"{self.name} is to stop")
        self.started = False
        self.loop.create_task(run(), context=in_process(process))

    def _ended(self, process: Process) -> None:
        if self.process is process:
            self.kill()

    @property
    def store(self) -> ZooKeeperStore | None:
        membership = getattr(self.broker, "membership", None)
        return None if membership is None else membership.store

    @property
    def zookeeper(self) -> SimKazoo | None:
        """Its connection to ZooKeeper."""
        store = self.store
        return None if store is None else store._client

    def partitions(self) -> list[Partition]:
        return list(self.broker.partitions.values()) if self.broker is not None and self.started else []

    @property
    def is_settled(self) -> bool:
        store = self.store
        return self.started and store is not None and store.state is SessionState.CONNECTED
