"""One seed: brokers, clients and faults in a world of its own, and the judgement at its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import shutil
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from unittest.mock import patch
from uuid import UUID

from penstock.errors import PenstockError
from penstock.log.check import InvariantViolated
from penstock.log.partition_log import PartitionLog
from penstock.metadata.image_reader import ImageReader
from penstock.transactions.records import encode_value
from penstock.transactions.state import Transaction
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.cluster.markers import TRANSACTION_STATE, Decisions
from tests.sim.brokers.client import Client, Key
from tests.sim.brokers.consumers import (
    DELETE_RETENTION_S,
    OFFSET_OUT_OF_RANGE,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Chain,
    Committer,
    Deleter,
    FromTheStart,
    LatestReader,
    Reader,
    StartReader,
    Tail,
    TimeReader,
)
from tests.sim.brokers.disk import NoRoom, SyncFailed
from tests.sim.brokers.history import Batch, End, History
from tests.sim.brokers.loop import CHECK_EVERY, PROCESS, WORLD, SimLoop, in_process
from tests.sim.brokers.network import Network
from tests.sim.brokers.node import START_MS, Node, simulated
from tests.sim.brokers.producers import (
    HastyProducer,
    IdempotentProducer,
    ImpatientProducer,
    KeyedProducer,
    LedgerProducer,
    OldLedgerProducer,
    OldTransactionalProducer,
    TransactionalProducer,
)
from tests.sim.brokers.topic_owner import TopicOwner
from tests.sim.brokers.unclean import UNCLEAN, CarelessProducer, agree
from tests.sim.brokers.watched import Deadlines, Touched, Watch, watched
from tests.sim.brokers.zookeeper import Ensemble

BROKERS = 3
_PATIENCE_S = 240.0
_CHECKS_OF_LOGS = 4  # checks of partitions for one of a node's logs: it reads their files


@dataclass(frozen=True)
class Schedule:
    """What a seed is to run. None: as the seed says."""

    faults: tuple[str, ...] | None = None  # names of methods of Faults
    load: tuple[str, ...] | None = None  # topics and clients, see LOAD
    synced: bool | None = None  # fsync after each record
    check_every: int = CHECK_EVERY  # steps between checks also of what has not changed


LOAD = {
    "plain": 1.0,
    "tv2": 0.8,
    "tv0": 0.5,
    "out": 0.7,
    "trim": 0.5,
    "keyed": 0.4,
    "committer": 0.5,
    "new": 0.5,
    "hasty": 0.2,
    "impatient": 0.1,
    "short": 0.3,
    "ledger": 0.3,
    "unclean": 0.2,
}
"""What there may be, and how often: idempotent writers, transactions of version 2 and before it, chains that
copy them to `out`, a topic with DeleteRecords, a compacted one, offset commits, topics that come and go,
transactions without a pause, some that give up batches before they are answered, a topic with little
retention, a compacted one that is written in transactions, and one with unclean elections."""


class World:
    def __init__(
        self, seed: int, directory: str, schedule: Schedule | None = None, *, verbose: bool = False
    ) -> None:
        self.seed = seed
        self.schedule = schedule or Schedule()
        self.rng = random.Random(f"world {seed}")
        self.loop = SimLoop(self.rng)
        self.network = self.loop.network = Network(self.loop)
        self.ensemble = Ensemble(self.loop)
        self.history = History()
        self.log: deque[str] = deque(maxlen=4000)
        self.fingerprint = 0
        self._directory = directory
        self._verbose = verbose
        self.no_id = UUID(int=0)
        self.stopping = False
        self.sources_are_done = False
        self.load_s = self.rng.choice((2.0, 4.0, 8.0))
        self.clock_jump_s = self.rng.choice((0.0, 0.0, 4.0))
        self.transaction_timeout_ms = self.rng.choice((10_000, 20_000, 60_000))
        # With the longer one, a commit still waits when its coordinator hears that it was replaced.
        settings = {"offsets.commit.timeout.ms": self.rng.choice(("5000", "15000"))}
        # With fsync after each record everywhere, they may all lose power at once.
        self.is_synced = self.rng.random() < 0.25
        if self.schedule.synced is not None:
            self.is_synced = self.schedule.synced
        if self.is_synced:
            settings["log.flush.interval.messages"] = "1"
        # Two of three compact the topics of coordinators all the time. What was decided is noted when it is
        # then: its records do not stay.
        self.decided = Decisions() if seed % 3 else None
        if self.decided is not None:
            settings |= {
                "offsets.topic.segment.bytes": "1500",
                "transaction.state.log.segment.bytes": "1500",
                "log.cleaner.min.cleanable.ratio": "0.01",
            }
        self.clients: list[tuple[Client, asyncio.Task[object]]] = []
        self.chained: list[Key] = []
        self._generation = 0
        chosen = self.schedule.load
        if chosen is None:
            chosen = tuple(name for name, share in LOAD.items() if self.rng.random() < share)
        self.load = frozenset(chosen)
        if "short" in self.load:
            settings["log.retention.check.interval.ms"] = "300"
        self.node_ids = list(range(1, BROKERS + 1))
        self.nodes = [
            Node(self.loop, self.network, one, os.path.join(directory, str(one)), settings)
            for one in self.node_ids
        ]
        self.network.note = self.ensemble.note = self.history.note = self.note
        for node in self.nodes:
            node.note = self.note
            node.lost_its_power = self._lost_power
        self.topics = self._choose_topics()
        self.forgets = False  # deletions in the ledger soon
        self._checks = 0
        self.watch = Watch(Deadlines(self.loop), Touched())
        self.loop.check_touched = self._check_touched
        self.loop.check = self._check_partitions
        self.loop.check_every = self.schedule.check_every

    def _check_touched(self) -> None:
        """What the last step has changed, if its broker serves it."""
        for process, log in self.watch.touched.take():
            for node in self.nodes:
                if node.process is process and node.started and node.broker is not None:
                    partition = node.broker.partitions.get((log.topic, log.partition))
                    if partition is not None and partition.log is log:
                        with _sound(node):
                            partition.check(whole_image=False)
                            if log.failed is None:
                                log.check(whole=False)

    def _check_partitions(self) -> None:
        self._checks += 1
        self.watch.deadlines.check()
        for node in self.nodes:
            for partition in node.partitions():
                with _sound(node):
                    partition.check(whole_image=False)
        if self._checks % _CHECKS_OF_LOGS == 0:
            # In turn, not by chance: how often they are checked changes nothing else.
            self._check_logs(self.nodes[self._checks // _CHECKS_OF_LOGS % len(self.nodes)])

    def _check_logs(self, node: Node) -> None:
        """With their files; not while a thread is at work on them."""
        if node.process is None or node.process.jobs:
            return
        for partition in node.partitions():
            if partition.log.failed is None:
                with _sound(node):
                    partition.log.check()

    def cleaned(self, log: PartitionLog) -> None:
        """Compaction removes deletions after `delete.retention.ms`, whether each replica has had them or not,
        as Kafka's does: who is away for longer keeps what was deleted."""
        key = (log.topic, log.partition)
        if not self.forgets or key not in self.keys("ledger"):
            return
        nodes = self.ensemble.tree.nodes
        partition = ImageReader().read(nodes, nodes).topics[key[0]].partitions[key[1]]
        if len(partition.isr) < BROKERS or any(one.lost_power for one in self.nodes):
            missed = self.history.missed_deletions
            missed[key] = max(missed[key], log.high_watermark)

    def _lost_power(self) -> None:
        if self.forgets and not self.is_synced:
            for key in self.keys("ledger"):
                self.history.missed_deletions[key] = inf

    def now_ms(self) -> int:
        return START_MS + int(self.loop.now * 1000)

    def note(self, text: str) -> None:
        line = f"{self.loop.now - 1000:9.4f} {text}".replace(self._directory, "")
        self.log.append(line)
        self.fingerprint = hash((self.fingerprint, line))
        if self._verbose:
            print(line, flush=True)

    # the course of things

    async def run(self) -> None:
        for node in self.nodes:
            node.start()
        await self.until(lambda: all(node.is_settled for node in self.nodes), "the brokers to start")
        admin = Reader(self, "admin")
        await admin.run(lambda: self._create_topics(admin))
        await admin.run(lambda: self._are_led(admin))
        self._start_clients()
        from tests.sim.brokers.faults import Faults

        await Faults(self, self.schedule.faults).run(self.load_s)
        self.note("all is well again")
        self.stopping = True
        await self.until(lambda: all(node.is_settled for node in self.nodes), "the brokers to be back")
        await self._finish([one for one in self.clients if not isinstance(one[0], Chain)])
        self.sources_are_done = True
        await self._finish([one for one in self.clients if isinstance(one[0], Chain)])
        await admin.run(lambda: self._judge(admin))
        for node in self.nodes:
            await self._check_at_rest(node)

    async def _check_at_rest(self, node: Node) -> None:
        """Also one that was doomed, and is started again only now."""
        end = self.loop.now + _PATIENCE_S
        while not node.is_settled or node.process is None or node.process.jobs:
            assert self.loop.now < end, f"{node.name} has no moment without a thread at work"
            await asyncio.sleep(0.001 if node.is_settled else 0.1)
        self._check_logs(node)

    def noting_decisions(self, transaction: Transaction) -> bytes:
        value = encode_value(transaction)
        if self.decided is not None:
            self.decided.add(value)
        return value

    async def _finish(self, clients: list[tuple[Client, asyncio.Task[object]]]) -> None:
        await self.until(
            lambda: all(task.done() or not client.process.alive for client, task in clients),
            lambda: (
                "clients to finish: "
                + ", ".join(
                    client.name for client, task in clients if not task.done() and client.process.alive
                )
            ),
        )
        for client, task in clients:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise AssertionError(f"{client.name} failed") from task.exception()

    async def until(self, condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
        end = self.loop.now + _PATIENCE_S
        while not condition():
            if self.loop.now > end:
                text = what if isinstance(what, str) else what()
                raise AssertionError(f"waited {_PATIENCE_S:g} s in vain for {text}")
            await asyncio.sleep(0.1)

    # the load

    def _choose_topics(self) -> dict[str, int]:
        """With the number of partitions: what nobody writes to only costs time."""
        topics = {
            "plain": 1 + (self.rng.random() < 0.5),
            "txn": 3,
            "out": 2,
            "trim": 1,
            "keyed": 1,
            "short": 1,
            "ledger": 1,
            "unclean": 1,
        }
        has = {
            **dict.fromkeys(self.load, True),
            "txn": not self.load.isdisjoint(("tv0", "tv2", "hasty", "impatient")),
        }
        return {name: partitions for name, partitions in topics.items() if has.get(name)}

    def keys(self, topic: str) -> list[Key]:
        return [(topic, index) for index in range(self.topics.get(topic, 0))]

    async def _create_topics(self, admin: Reader) -> None:
        flush = self.rng.random() < 0.3
        small = self.rng.random() < 0.3
        self.forgets = "ledger" in self.topics and self.rng.random() < 0.5

        def configs(name: str) -> list[Message]:
            found = {}
            if flush and name in ("plain", "txn"):
                found["flush.messages"] = "1"
            if small or name in ("keyed", "ledger"):
                found["segment.bytes"] = "2000"
            if name == "keyed" and self.seed % 2:
                found["segment.bytes"] = "500"  # a reader is at many segments for long
            if name == "short":
                found |= {"segment.bytes": "200", "retention.bytes": "200"}
            if name == "unclean":
                found |= UNCLEAN
            if name == "ledger" and self.forgets:
                found["delete.retention.ms"] = f"{DELETE_RETENTION_S * 1000:.0f}"
            if name in ("keyed", "ledger"):
                found |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            return [Message(name=key, value=value) for key, value in found.items()]

        while True:
            request = Message(
                topics=[
                    Message(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=3,
                        assignments=[],
                        configs=configs(name),
                    )
                    for name, partitions in self.topics.items()
                ],
                timeout_ms=10_000,
                validate_only=False,
            )
            answer = await admin.any(ApiKey.CREATE_TOPICS, 5, request)
            if all(topic.error_code in (0, 36) for topic in answer.topics):
                return
            await admin.backoff()

    async def _are_led(self, admin: Reader) -> None:
        """The leaders know their partitions. Before, the second of two batches may be the first that finds
        one: an unknown producer may begin with any sequence, as with Kafka, and the first is out of order."""
        for topic in self.topics:
            for key in self.keys(topic):
                while await admin.offset(key, -1) is None:
                    await admin.backoff()

    def start_client(self, client: Client) -> None:
        self.clients.append((client, client.run(client.main)))  # type: ignore[attr-defined]

    def replace_chain(self, old: Chain) -> None:
        """The process of a client is killed, and another one goes on with what it did."""
        self.note(f"{old.name} dies")
        self.loop.kill(old.process)
        self.network.killed(old.process)
        if old.current is not None and old.current.end is End.OPEN:
            old.current.end = End.NEVER
        self._generation += 1
        assert old.transactional_id is not None
        name = f"{old.transactional_id}-{self._generation}"
        self.start_client(Chain(self, name, old.transactional_id, old.group, old.source, old.keys))

    def _start_clients(self) -> None:
        rng = self.rng
        plain = self.keys("plain")
        if len(plain) > 1 and rng.random() < 0.5:
            self.start_client(IdempotentProducer(self, "idempotent", *plain))
        else:
            for key in plain:
                self.start_client(IdempotentProducer(self, f"idempotent-{key[1]}", key))
        for kind in (TransactionalProducer, OldTransactionalProducer):
            name = f"tv{kind.version}"
            for number in range(rng.choice((1, 2)) if name in self.load else 0):
                self.start_client(kind(self, f"{name}-{number}", f"{name}-{number}", self.keys("txn")))
        for number in range(rng.choice((1, 3)) if "impatient" in self.load else 0):
            name = f"impatient-{number}"
            self.start_client(ImpatientProducer(self, name, name, self.keys("txn")))
        for number in range(rng.choice((1, 3)) if "hasty" in self.load else 0):
            self.start_client(HastyProducer(self, f"hasty-{number}", f"hasty-{number}", self.keys("txn")))
        if "out" in self.topics:
            for key in self.keys("txn"):
                name = f"chain-{key[1]}"
                self.start_client(Chain(self, name, name, "chain", key, self.keys("out")))
                self.chained.append(key)
        for key in self.keys("plain")[:1]:
            self.start_client(Tail(self, "tail-plain", key, READ_UNCOMMITTED))
        for key in self.keys("txn")[:1]:
            self.start_client(Tail(self, "tail-txn", key, READ_COMMITTED))
        if keys := [*self.keys("plain"), *self.keys("txn"), *self.keys("ledger")]:
            self.start_client(LatestReader(self, "latest", keys))
        for key in self.keys("trim"):
            self.start_client(IdempotentProducer(self, "trimmed", key))
            self.start_client(Deleter(self, "deleter", key))
        for key in self.keys("short"):
            self.start_client(IdempotentProducer(self, "short", key))
            self.start_client(StartReader(self, "start", key))
        for key in self.keys("keyed"):
            self.history.compacted.add(key)
            self.start_client(KeyedProducer(self, "keyed", key))
            self.start_client(TimeReader(self, "time", key))
            self.start_client(TimeReader(self, "time again", key))
            self.start_client(FromTheStart(self, "from the start", key))
        for key in self.keys("ledger"):
            self.history.compacted.add(key)
            self.start_client(FromTheStart(self, "ledger", key, READ_COMMITTED))
            for number in range(rng.choice((1, 2, 3))):
                ledger = rng.choice((LedgerProducer, OldLedgerProducer))
                self.start_client(ledger(self, f"ledger-{number}", f"ledger-{number}", [key]))
        for key in self.keys("unclean"):
            self.start_client(CarelessProducer(self, "careless", key))
        for number in range(rng.choice((1, 2)) if "new" in self.load else 0):
            self.start_client(TopicOwner(self, f"owner-{number}", self.keys("txn")))
        for number in range(rng.choice((1, 4)) if "committer" in self.load else 0):
            self.start_client(Committer(self, f"committer-{number}", f"group-{number}", ("plain", 0)))

    # the end

    async def _judge(self, admin: Reader) -> None:
        logs: dict[Key, list[Batch]] = {}
        committed: dict[Key, dict[int, bytes]] = {}
        for topic in self.topics:
            for key in self.keys(topic):
                await self._stable(admin, key)
                logs[key], _ = await self._read_all(admin, key, READ_UNCOMMITTED)
                _, committed[key] = await self._read_all(admin, key, READ_COMMITTED)
        decided = self.decided or Decisions()
        for key in self.keys("unclean"):
            await agree(self, key, _PATIENCE_S)
        for key in self._internal_keys():
            await self._stable(admin, key)
            logs[key], _ = await self._read_all(admin, key, READ_UNCOMMITTED)
            if key[0] == TRANSACTION_STATE and self.decided is None:
                for value in (value for batch in logs[key] for value in batch.values):
                    decided.add(value or None)
        self.history.judge(logs, committed, decided)
        for owner in [one for one, _ in self.clients if isinstance(one, TopicOwner)]:
            await owner.judge(admin, _PATIENCE_S)
        self._judge_chain(committed)

    def _internal_keys(self) -> list[Key]:
        nodes = self.ensemble.tree.nodes
        image = ImageReader().read(nodes, nodes)
        return [
            (name, partition.index)
            for name in (TRANSACTION_STATE, "__consumer_offsets")
            if name in image.topics
            for partition in image.topics[name].partitions
        ]

    async def _stable(self, admin: Reader, key: Key) -> None:
        """The last stable offset comes to the high watermark."""
        end = self.loop.now + _PATIENCE_S
        while True:
            high = await admin.offset(key, -1, READ_UNCOMMITTED)
            stable = await admin.offset(key, -1, READ_COMMITTED)
            if high is not None and high == stable:
                return
            if self.loop.now > end:
                self.history.violation(f"{key}: a transaction hangs at {stable}, the end is {high}")
                return
            await asyncio.sleep(0.5)

    async def _read_all(
        self, admin: Reader, key: Key, isolation: int
    ) -> tuple[list[Batch], dict[int, bytes]]:
        position = None
        while position is None:
            position = await admin.offset(key, -2)
        if position < self.history.earliest[key]:
            self.history.violation(f"EARLIEST of {key} is {position} after {self.history.earliest[key]}")
        # Where an answer to DeleteRecords was lost, more may be gone.
        self.history.earliest[key] = position
        end = None
        while end is None:
            end = await admin.offset(key, -1, isolation)
        batches: list[Batch] = []
        values: dict[int, bytes] = {}
        while position < end:
            found = await admin.fetch(key, position, isolation)
            if found == OFFSET_OUT_OF_RANGE:  # another leads it, which had deleted more
                earliest = await admin.offset(key, -2)
                assert earliest is None or earliest > position, f"{key} at {position}, EARLIEST is {earliest}"
                position = self.history.earliest[key] = max(position, earliest or 0)
                continue
            assert not isinstance(found, int), f"{key} at {position}: {found}"
            if found is not None:
                batches += found.batches
                values.update(found.values)
                assert found.next > position or not found.batches, f"{key} at {position}: no progress"
                position = found.next
        return batches, values

    def _judge_chain(self, committed: dict[Key, dict[int, bytes]]) -> None:
        """Each record of the input is copied exactly once."""
        copies: dict[str, int] = {}
        for key in self.keys("out"):
            for value in committed[key].values():
                name = value.decode().partition(" in ")[0]
                copies[name] = copies.get(name, 0) + 1
        for key in self.chained:
            for offset, value in committed[key].items():
                name = f"copy of {value.decode()} from {key[0]}-{key[1]} {offset}"
                count = copies.pop(name, 0)
                if count != 1:
                    self.history.violation(f"{count} times: {name}")
        for name in copies:
            self.history.violation(f"from nowhere: {name}")


@contextmanager
def _sound(node: Node) -> Iterator[None]:
    try:
        yield
    except InvariantViolated as error:
        raise AssertionError(f"{node.name}: {error}") from None


class _Lines(logging.Handler):
    """What the brokers log, into the world's log; a failure that nobody expected is a violation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        if not process.alive:
            return
        text = f"{process} {record.levelname} {record.name.removeprefix('penstock.')}: {record.getMessage()}"
        self._world.note(text)
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if not isinstance(error, (PenstockError, SyncFailed, NoRoom)):
                self._world.history.violation(f"{text}: {error!r}")
            for line in "".join(traceback.format_exception(error)).splitlines():
                self._world.log.append("          " + line)


class Result:
    def __init__(self, world: World, failures: list[str]) -> None:
        self.seed = world.seed
        self.failures = failures
        self.log = list(world.log)
        self.counts = dict(world.history.counts)
        self.virtual_s = world.loop.now - 1000
        self.steps = world.loop.steps
        self.fingerprint = world.fingerprint


def simulate(
    seed: int, schedule: Schedule | None = None, *, verbose: bool = False, kind: type[World] = World
) -> Result:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix=f"sim-{seed}-", dir=base)
    logger = logging.getLogger("penstock")
    gc.disable()
    if not gc.get_freeze_count():
        gc.freeze()  # what was there before all is not looked at again at the end of each
    failures: list[str] = []
    try:
        world = kind(seed, directory, schedule, verbose=verbose)
        lines = _Lines(world)
        logger.addHandler(lines)
        logger.propagate = False
        logger.setLevel(logging.INFO)
        with (
            simulated(world.loop, world.network, world.ensemble, seed),
            watched(world.loop, world.cleaned) as watch,
            patch("penstock.transactions.shard.encode_value", world.noting_decisions),
        ):
            world.watch = watch
            try:
                task = world.loop.create_task(world.run(), context=in_process(WORLD))
                world.loop.run_until_complete(task)
            except AssertionError as error:
                failures.append(f"{error}" + (f": {error.__cause__!r}" if error.__cause__ else ""))
            logger.removeHandler(lines)
            failures = [*dict.fromkeys(world.history.violations), *world.loop.failures, *failures]
            result = Result(world, failures)
            world.loop.over = True
            for node in world.nodes:
                node.kill()
        return result
    finally:
        world.loop.close()
        shutil.rmtree(directory, ignore_errors=True)
        gc.enable()
        # Coroutines of brokers that were killed end here, and find their loop closed.
        with patch("sys.unraisablehook", lambda unraisable: None):
            del world
            gc.collect()
