"""A cluster in one thread: the brokers' own controllers and partitions over a model of ZooKeeper.

Real are: ClusterController, ElectedController, all planners, `Membership.alter_partition`, and Partition with
what it knows of its followers. Models are the store, the network, logs of (epoch, record), and the follower,
which cuts and appends. Every write of a broker to the store can be its last.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.broker.cluster.alter_partition import _change
from penstock.broker.cluster.membership import Membership
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller.cluster import ClusterController
from penstock.controller.elected_controller import ElectedController
from penstock.controller.reassignment import completions
from penstock.errors import ApiError, NotController, OffsetOutOfRange
from penstock.log.partition_log import AppendInfo
from penstock.metadata import layout
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage
from penstock.metadata.image_reader import ImageReader
from penstock.metadata.store import BadVersion, Check, NodeExists, NoNode, Op, Set, StoreUnavailable
from penstock.replication.partition import Partition
from penstock.wire.codec import Message
from penstock.wire.fetch import FetchPartition
from tests.sim.cluster_store import StepLock, Task, Tree, View

TOPIC = "t"
LAG_MS = 1000
CONFIG = BrokerConfig.parse({})
CLOCK = ManualClock()
CONFLICTS = (BadVersion, NodeExists, NoNode)

Key = tuple[str, int]


class ModelLog:
    """A partition's log: entries are (epoch, record)."""

    config = SimpleNamespace(min_insync_replicas=1)
    failed = None
    log_start_offset = 0
    recovery_point = 0

    def __init__(self, key: Key) -> None:
        self.topic, self.partition = key
        self.entries: list[tuple[int, int]] = []
        self.high_watermark = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def append_as_leader(self, buf: Any, start: int, end: int, epoch: int, **_: Any) -> AppendInfo:
        self.entries.append((epoch, buf))
        return AppendInfo(len(self.entries) - 1, len(self.entries) - 1, 0, 0)

    def update_high_watermark(self, offset: int) -> bool:
        moved = min(offset, len(self.entries)) > self.high_watermark
        self.high_watermark = max(self.high_watermark, min(offset, len(self.entries)))
        return moved

    def read(self, offset: int, max_bytes: int, bound: int, *, min_one: bool) -> list[Any]:
        return self.entries[offset:bound]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        epochs = sorted({one for one, _ in self.entries})
        if not epochs or epoch > epochs[-1]:
            return -1, -1
        later = [at for at, (one, _) in enumerate(self.entries) if one > epoch]
        end = later[0] if later else len(self.entries)
        return max((one for one in epochs if one <= epoch), default=epoch), end

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.high_watermark = min(self.high_watermark, offset)


class Process:
    """One run of a broker, from its start to its kill."""

    def __init__(self, world: World, node: int) -> None:
        self.world = world
        self.id = node
        self.view = View(world.tree)
        self.controller = ClusterController(self.view, node, CLOCK, CONFIG)
        self.elected = ElectedController(
            self.controller, self.view, node, lambda topic: False, (completions,)
        )
        self.elected._lock = StepLock()  # type: ignore[assignment]
        self.partitions: dict[Key, Partition] = {}
        self.waiting: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self.fetching: set[Key] = set()
        self.tasks: list[Task] = []
        self.is_paused = self.is_dead = self.is_registered = self.has_returned = False
        self.is_leaving = self._looks = False
        self.run("start", self._start(), self._started)

    # coming

    async def _start(self) -> None:
        await self.controller._load()
        self._drop_strays()
        while True:
            try:
                await self.controller._return()
                self.has_returned = True
                self.apply()
                await self.controller._register_broker("host", 1, None)
                return
            except CONFLICTS:
                await self.view.catch_up()

    def _drop_strays(self) -> None:
        disk = self.world.disks[self.id]
        for key in list(disk):
            partition = self.controller.image.partition(*key)
            if partition is not None and self.id not in partition.replicas:
                del disk[key]

    def _started(self, outcome: object) -> None:
        self._expect(outcome)
        if outcome is None:
            self.is_registered = True
        else:  # the session ended meanwhile: as the process would, it begins anew
            self.world.kill(self.id)

    def session_lost(self) -> None:
        """It was silent for too long, and hears so when it wakes up."""
        self.elected.session_lost()
        self.is_registered = False
        self.view.is_open = True
        self.world.tree.views.append(self.view)
        self.view.behind = dict.fromkeys([*self.view.nodes, *self.world.tree.nodes])
        self.view.hear()
        self.run("register", self._register(), self._started)

    async def _register(self) -> None:
        while True:
            try:
                await self.controller._register_broker("host", 1, None)
                return
            except CONFLICTS:
                await self.view.catch_up()

    # working

    def run(self, name: str, work: Any, on_end: Callable[[Any], None] | None = None) -> None:
        self.tasks.append(Task(name, work, on_end or self._expect))

    def step(self, task: Task) -> None:
        task.step()
        if task.is_done and task in self.tasks:
            self.tasks.remove(task)

    def _expect(self, outcome: object) -> None:
        if isinstance(outcome, Exception) and not isinstance(
            outcome, (*CONFLICTS, StoreUnavailable, ApiError)
        ):
            raise outcome

    def look(self) -> None:
        """Become the controller, or do its work."""
        if not self._looks and self.is_registered:
            self._looks = True
            self.run("look", self.elected._look(), self._looked)

    def _looked(self, outcome: object) -> None:
        self._looks = False
        self._expect(outcome)
        if isinstance(outcome, CONFLICTS) and self.view.is_open:
            self.view.hear()

    def apply(self) -> None:
        """The partitions become what the image says."""
        image = self.controller.image
        if not self.has_returned:
            return  # before that it may lead what it has lost
        for topic in image.topics.values():
            for one in topic.partitions:
                self._apply_one((topic.name, one.index), one)

    def _apply_one(self, key: Key, image: PartitionImage) -> None:
        disk = self.world.disks[self.id]
        partition = self.partitions.get(key)
        if self.id not in image.replicas:
            self.partitions.pop(key, None)
            self.waiting.pop(key, None)
            disk.pop(key, None)
            return
        if partition is None:
            log = disk.setdefault(key, ModelLog(key))
            self.partitions[key] = Partition(image, log, self.id, self._progressed, self._now)  # type: ignore[arg-type]
        elif partition.image is not image:
            if partition.image.leader_epoch != image.leader_epoch:
                self.waiting.pop(key, None)  # they are told that it leads no more
            partition.update(image)
        self._progressed(key)

    def _now(self) -> int:
        return self.world.now

    def _progressed(self, key: Key) -> None:
        partition = self.partitions.get(key)
        if partition is None or not partition.is_leader:
            return
        left = []
        for offset, record in self.waiting.get(key, ()):
            if partition.is_replicated(offset):
                self.world.acknowledged(key, offset, record)
            else:
                left.append((offset, record))
        if key in self.waiting:
            self.waiting[key] = left

    def produce(self, key: Key) -> None:
        partition = self.partitions.get(key)
        if partition is not None and partition.is_leader:
            record = self.world.next_record()
            info = partition.append(record, 0, 1, -1)  # type: ignore[arg-type]
            self.waiting[key].append((info.last_offset, record))
            self._progressed(key)

    # following

    def fetch(self, key: Key) -> None:
        partition = self.partitions.get(key)
        if partition is None or partition.is_leader or key in self.fetching:
            return
        leader, epoch = partition.image.leader, partition.image.leader_epoch
        if leader not in self.controller.image.brokers:
            return
        log: ModelLog = partition.log  # type: ignore[assignment]
        wanted = FetchPartition(key[1], epoch, log.log_end_offset, log.latest_epoch, 0, 1 << 20)
        broker_epoch = self.controller.broker_epoch
        self.fetching.add(key)

        def serve(process: Process) -> Any:
            found = process.partitions.get(key)
            if found is None:
                return None
            try:
                result = found.fetch(wanted, 1 << 20, True, 0, self.id, broker_epoch)
            except OffsetOutOfRange as error:
                return (error, found.log.log_end_offset)
            except ApiError as error:
                return (error, 0)
            records = list(result.slices)
            if found.may_join(self.id):
                process.check_isr(key)
            return (result, records)

        def answered(answer: Any) -> None:
            self.fetching.discard(key)
            if answer is None or self.partitions.get(key) is not partition:
                return
            if (partition.image.leader, partition.image.leader_epoch) == (leader, epoch):
                self._take(partition, log, *answer)

        self.world.send(self, leader, serve, answered)

    def _take(self, partition: Partition, log: ModelLog, result: Any, extra: Any) -> None:
        if isinstance(result, OffsetOutOfRange):
            if extra < log.log_end_offset:
                log.truncate_to(extra)
        elif isinstance(result, ApiError):
            return
        elif result.diverging_epoch is not None:
            epoch, end = result.diverging_epoch
            own_epoch, own_end = log.end_offset_for_epoch(epoch)
            offset = min(end, own_end) if own_epoch >= 0 else end
            if 0 <= own_epoch < epoch:
                offset = own_end
            log.truncate_to(min(offset, log.log_end_offset))
        else:
            log.entries.extend(extra)
            partition.follow(result.high_watermark, 0)

    # in sync

    def check_isr(self, key: Key) -> None:
        """Ask the controller for other in-sync replicas, where they should be others."""
        partition = self.partitions.get(key)
        image = self.controller.image
        if partition is None or not partition.is_leader or image.controller_id < 0:
            return
        isr = partition.wanted_isr(LAG_MS, image.brokers.keys() - image.leaving)
        if isr is None:
            return
        partition.ask_for_isr(isr)
        asked = partition.image.partition_epoch
        me: Any = SimpleNamespace(id=self.id, epoch=self.controller.broker_epoch)
        topic = Message(topic_id=image.topics[key[0]].id, partitions=[_change(me, partition)])
        request = Message(broker_id=me.id, broker_epoch=me.epoch, topics=[topic])

        def serve(process: Process) -> Any:
            member: Any = SimpleNamespace(controller=process.controller, elected=process.elected)
            return Membership.alter_partition(member, request)

        def answered(answer: Any) -> None:
            if answer is None or isinstance(answer, Exception):
                partition.isr_unanswered()
            elif answer.topics[0].partitions[0].error_code and asked == partition.image.partition_epoch:
                partition.isr_refused()

        self.world.send(self, image.controller_id, serve, answered)


class World:
    """`kill_at`: the process that makes this write (counted from 0) is killed before or after it."""

    def __init__(self, seed: int, brokers: int = 4, partitions: int = 3, factor: int = 3) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.tree = Tree()
        self.tree.on_commit = self._committed
        self.disks: dict[int, dict[Key, ModelLog]] = {node: {} for node in range(1, brokers + 1)}
        self.processes: dict[int, Process] = {}
        self.network: list[Callable[[bool], None]] = []
        self.acked: dict[Key, dict[int, int]] = defaultdict(dict)
        self.history: list[str] = []
        self.kill_at: tuple[int, str] | None = None
        self.writes = 0
        self.fragile: int | None = None  # has lost the end of its logs: nobody else may go until it is out
        self.dead_sessions: list[View] = []
        self._records = 0
        self._leaders: dict[tuple[int, int], int] = {}
        self._epochs: dict[int, int] = {}
        self._reader = ImageReader()
        self._changed: set[str] = set()
        self.keys = [(TOPIC, index) for index in range(partitions)]
        self._create_topic(brokers, partitions, factor)
        for node in self.disks:
            self.start(node)
        self.settle()

    def _create_topic(self, brokers: int, partitions: int, factor: int) -> None:
        nodes = list(self.disks)
        images = []
        for index in range(partitions):
            replicas = tuple(nodes[(index + at) % brokers] for at in range(factor))
            images.append(PartitionImage(index, replicas[0], 0, replicas, replicas))
        topic = TopicImage(TOPIC, UUID(int=1), tuple(images))
        self.tree.commit(None, list(layout.create_topic(topic, {})))

    def note(self, text: str) -> None:
        self.history.append(text)

    def next_record(self) -> int:
        self._records += 1
        return self._records

    # what is

    def image(self) -> ClusterImage:
        """As it is stored, with no lag."""
        if self._changed:
            changed, self._changed = self._changed, set()
            self._image = self._reader.read(self.tree.nodes, changed)
        return self._image

    def partition(self, key: Key) -> PartitionImage:
        found = self.image().partition(*key)
        assert found is not None
        return found

    def controller(self) -> Process | None:
        for process in self.processes.values():
            if process.elected.is_held and not process.is_paused:
                return process
        return None

    # what happens

    def start(self, node: int) -> None:
        if node not in self.processes:
            self.note(f"broker {node} starts")
            self.processes[node] = Process(self, node)

    def kill(self, node: int, *, lose: bool = False) -> None:
        """kill -9. With `lose` the end of its logs was not on disk yet."""
        process = self.processes.pop(node, None)
        if process is None:
            return
        self.note(f"broker {node} dies{', and its tails are lost' if lose else ''}")
        process.is_dead = True
        tasks, process.tasks = process.tasks, []
        for task in tasks:
            task.end()
            if task.name == "request":
                task.on_end(None)  # the connection breaks
        if lose:
            self.fragile = node
        for log in self.disks[node].values():
            # The high watermark was written some time ago.
            if lose:
                log.truncate_to(self.rng.randint(0, log.log_end_offset))
            log.high_watermark = self.rng.randint(0, log.high_watermark)
        self.dead_sessions.append(process.view)

    def expire_dead(self) -> None:
        for view in self.dead_sessions:
            self.tree.expire(view)
        self.dead_sessions.clear()

    def pause(self, node: int) -> None:
        self.processes[node].is_paused = True
        self.note(f"broker {node} is stopped")

    def resume(self, node: int) -> None:
        process = self.processes[node]
        process.is_paused = False
        self.note(f"broker {node} goes on, its session {'lives' if process.view.is_open else 'is over'}")
        if not process.view.is_open:
            if not process.is_registered:
                self.kill(node)
            else:
                process.session_lost()

    def send(
        self, sender: Process, to: int, serve: Callable[[Process], Any], answered: Callable[[Any], None]
    ) -> None:
        """A request and its answer; each may be lost, and then `answered` gets None."""

        def reply(answer: Any) -> None:
            def deliver(arrives: bool) -> None:
                if not sender.is_dead:
                    answered(answer if arrives else None)

            self.network.append(deliver)

        def deliver(arrives: bool) -> None:
            process = self.processes.get(to)
            if not arrives or process is None or process.is_paused:
                reply(None)
                return
            result = serve(process)
            if hasattr(result, "__await__"):
                process.run("request", result, reply)
            else:
                reply(result)

        self.network.append(deliver)

    def step(self, process: Process, task: Task) -> None:
        """One step of a task, which may be the last of its process."""
        if task.at == "write":
            if self.kill_at == (self.writes, "before"):
                self.kill_at = None
                self.kill(process.id)
                return
            kills = self.kill_at == (self.writes, "after")
            self.writes += 1
            process.step(task)
            if kills and not process.is_dead:
                self.kill_at = None
                self.kill(process.id)
            return
        process.step(task)

    # what must hold

    def acknowledged(self, key: Key, offset: int, record: int) -> None:
        known = self.acked[key].setdefault(offset, record)
        assert known == record, f"{key} offset {offset} was acknowledged as {known} and as {record}"
        self._check_in_sync(key, self.partition(key))

    def _committed(self, view: View | None, ops: Sequence[Op]) -> None:
        self._changed.update(op.path for op in ops)
        fenced = any(isinstance(op, Check) and op.path == layout.CONTROLLER_EPOCH for op in ops)
        changed = {op.path for op in ops if isinstance(op, Set) and op.path.startswith(f"{layout.TOPICS}/")}
        if not changed or view is None:
            return
        who = next((one for one in self.processes.values() if one.view is view), None)
        assert who is not None
        # The elected controller, or a broker that returns and does not count yet.
        assert fenced or not who.is_registered, (
            f"broker {who.id} changes {changed} without being the controller"
        )
        for key in self.keys:
            partition = self.partition(key)
            self._check_partition(key, partition)
            self._check_in_sync(key, partition)

    def _check_partition(self, key: Key, partition: PartitionImage) -> None:
        index, epoch = key[1], partition.leader_epoch
        assert epoch >= self._epochs.get(index, 0), f"{key}: the leader epoch went back to {epoch}"
        self._epochs[index] = epoch
        assert self._leaders.setdefault((index, epoch), partition.leader) == partition.leader, (
            f"{key}: two leaders in epoch {epoch}"
        )
        assert partition.isr, f"{key} has nobody in sync"
        assert set(partition.isr) <= set(partition.replicas), f"{key}: {partition}"
        assert partition.leader < 0 or partition.leader in partition.isr, f"{key}: {partition}"
        assert len(set(partition.replicas)) == len(partition.replicas)

    def _check_in_sync(self, key: Key, partition: PartitionImage) -> None:
        """Whoever is in sync has all that was acknowledged: any of them may be elected next."""
        if self.fragile is not None and self.fragile not in partition.isr:
            self._is_fragile()
        for replica in partition.isr:
            if replica == self.fragile:
                continue
            log = self.disks[replica].get(key)
            entries = [] if log is None else log.entries
            for offset, record in self.acked[key].items():
                assert offset < len(entries) and entries[offset][1] == record, (
                    f"{key}: broker {replica} is in sync, and has no {record} at {offset}: {partition}"
                )

    def _is_fragile(self) -> None:
        isrs = [self.partition(key).isr for key in self.keys]
        if all(self.fragile not in isr for isr in isrs):
            self.fragile = None

    # to a rest

    def settle(self, rounds: int = 60, *, restart: bool = True) -> None:
        """Everything is delivered and all are there, until nothing changes any more.

        Without `restart` the dead stay dead.
        """
        for node in self.disks:
            if node in self.processes and self.processes[node].is_paused:
                self.resume(node)
        self._deliver_all()
        for node in self.image().leaving:
            self.kill(node)
        self.expire_dead()
        still = 0
        for _ in range(rounds):
            before = dict(self.tree.nodes), self._progress()
            for node in self.disks if restart else ():
                self.start(node)
            self.now += 10
            for process in list(self.processes.values()):
                self._round(process)
            self.expire_dead()
            self._deliver_all()
            changed = before != (dict(self.tree.nodes), self._progress()) or not self._is_quiet()
            still = 0 if changed else still + 1
            if still == 3:
                return
        raise AssertionError(f"no rest after {rounds} rounds: {self.image().topics}")

    def _round(self, process: Process) -> None:
        process.view.hear()
        process.apply()
        process.look()
        for key in self.keys:
            process.fetch(key)
            process.check_isr(key)

    def _deliver_all(self) -> None:
        for _ in range(1000):
            work = False
            for process in list(self.processes.values()):
                for task in list(process.tasks):
                    if not process.is_dead:
                        self.step(process, task)
                        work = True
            messages, self.network = self.network, []
            for deliver in messages:
                deliver(True)
                work = True
            for process in list(self.processes.values()):
                process.view.hear()
            if not work:
                return
        raise AssertionError("the work never ends")

    def _progress(self) -> object:
        return [
            (node, key, log.log_end_offset, log.high_watermark)
            for node, logs in self.disks.items()
            for key, log in logs.items()
        ]

    def _is_quiet(self) -> bool:
        return all(process.is_registered and not process.tasks for process in self.processes.values())

    def check_whole(self) -> None:
        """After a rest: everything is led, in sync and arrived, and nothing acknowledged is lost."""
        for key in self.keys:
            partition = self.partition(key)
            assert partition.leader in self.processes, f"{key} has no leader: {partition}"
            assert set(partition.isr) == set(partition.replicas), f"{key}: {partition}"
            assert not partition.adding and not partition.removing, f"{key} still moves: {partition}"
            self._check_in_sync(key, partition)
            logs = [self.disks[replica][key].entries for replica in partition.replicas]
            assert all(log == logs[0] for log in logs), f"{key}: the replicas differ"
            for node, disk in self.disks.items():
                assert key not in disk or node in partition.replicas, f"{key} is left behind on {node}"


__all__ = ["CLOCK", "Key", "NotController", "Process", "World"]
