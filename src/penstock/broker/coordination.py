"""Where coordinators run: shards loaded from their partitions, records appended, replies sent, timers armed.

The machines in `groups` and `transactions` decide; this does. A shard is loaded by replaying its partition
when this broker becomes its leader, and given up when it no longer is. Nothing is answered before the records
that the answer rests on are replicated.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.coordinator import Outcome, Producer, Reply, Shard, StateRecord, partition_for
from penstock.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    PenstockError,
    WireError,
)
from penstock.log.partition_log import PartitionLog
from penstock.replication.partition import Partition
from penstock.wire.message import Message
from penstock.wire.records import BatchHeader, Record, build_batch, iter_records, parse_control

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.metadata.image import ClusterImage

S = TypeVar("S", bound=Shard)

_LOAD_ON_LOOP_BYTES = 1 << 20
"""A partition up to this size is replayed at once; a larger one in a thread."""

_UNREADABLE = (PenstockError, struct.error, ValueError, LookupError)
"""What bytes that no coordinator wrote can lead to when they are replayed."""

log = logging.getLogger(__name__)


class InternalTopic:
    """The topic behind a coordinator: made when the first client asks for it."""

    def __init__(self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.configs = configs


class _Hosted(Generic[S]):
    """One shard on this broker. `shard` is None while it is being loaded."""

    __slots__ = ("deferred", "epoch", "partition", "shard", "timer", "waiting")

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard: S | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.waiting: deque[tuple[int, Outcome]] = deque()  # by last offset, not yet replicated
        self.deferred: list[Callable[[S], Outcome]] = []  # steps for all shards, until it is loaded


class ShardHost(Generic[S]):
    def __init__(
        self,
        broker: Broker,
        topic: InternalTopic,
        make_shard: Callable[[int, int], S],
        perform: Callable[[S, Any], None] | None = None,
    ) -> None:
        """`make_shard(partition, leader_epoch)`; `perform` does what an Outcome's actions ask for."""
        self._broker = broker
        self.topic = topic
        self._make_shard = make_shard
        self._perform = perform
        self._hosted: dict[int, _Hosted[S]] = {}
        self._creating: asyncio.Future[None] | None = None

    # finding

    async def ensure_topic(self) -> None:
        """Make the internal topic if it is not there; many may ask at once."""
        if self.topic.name in self._broker.image.topics:
            return
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create_topic())
        try:
            await asyncio.shield(self._creating)
        finally:
            self._creating = None

    async def _create_topic(self) -> None:
        topic = self.topic
        await self._broker.create_internal_topic(
            topic.name, topic.partitions, topic.replication_factor, topic.configs
        )

    def partition_of(self, key: str) -> int:
        image = self._broker.image.topics.get(self.topic.name)
        if image is None:
            raise CoordinatorNotAvailable(f"{self.topic.name} is not there yet; ask FindCoordinator first")
        return partition_for(key, len(image.partitions))

    def leader_of(self, key: str) -> int:
        """The broker that coordinates `key`; raises CoordinatorNotAvailable where there is none."""
        index = self.partition_of(key)
        leader = self._broker.image.topics[self.topic.name].partitions[index].leader
        if leader < 0:
            raise CoordinatorNotAvailable(f"{self.topic.name}-{index} has no leader")
        return leader

    def shard_for(self, key: str) -> S:
        return self._loaded(self.partition_of(key))[1]

    def _loaded(self, index: int) -> tuple[_Hosted[S], S]:
        hosted = self._hosted.get(index)
        if hosted is None:
            raise NotCoordinator(f"{self.topic.name}-{index} is led by another broker")
        if hosted.shard is None:
            raise CoordinatorLoadInProgress(f"{self.topic.name}-{index} is being read")
        return hosted, hosted.shard

    def shards(self) -> Iterator[S]:
        """Every shard here; raises while one of them is being read, as a list would lack its entries."""
        for index in sorted(self._hosted):
            yield self._loaded(index)[1]

    # running

    def call(self, key: str, step: Callable[[S, Any, int], Outcome]) -> Message | asyncio.Future[Message]:
        """Run `step(shard, token, now_ms)` for the shard of `key`. Its answer, or a future of it."""
        hosted, shard = self._loaded(self.partition_of(key))
        token: asyncio.Future[Message] = self._broker.loop.create_future()
        self._apply(hosted, shard, step(shard, token, self._broker.clock.now_ms()))
        return token.result() if token.done() else token

    def _apply(self, hosted: _Hosted[S], shard: S, outcome: Outcome) -> None:
        """Write what was decided; answer and act on it when it is replicated, not before."""
        if not outcome.records:
            self._follow_up(shard, outcome)
        else:
            try:
                last = self._append(hosted, shard, outcome.records, outcome.producer)
            except ApiError as error:
                log.error("%s-%d: %s", *hosted.partition.key, error)
                failure = CoordinatorNotAvailable(f"the change could not be written: {error}")
                self._send([Reply(reply.token, failure) for reply in outcome.replies])
            else:
                if hosted.partition.is_replicated(last):
                    self._follow_up(shard, outcome)
                else:
                    hosted.waiting.append((last, outcome))
        self._arm(hosted)

    def _follow_up(self, shard: S, outcome: Outcome) -> None:
        self._send(outcome.replies)
        for action in outcome.actions:
            if self._perform is not None:
                try:
                    self._perform(shard, action)
                except Exception:  # the border: the other actions are of other groups and transactions
                    log.exception("%s: an action failed", self.topic.name)

    def _append(
        self, hosted: _Hosted[S], shard: S, records: list[StateRecord], producer: Producer | None
    ) -> int:
        now = self._broker.clock.now_ms()
        batch = bytearray(
            build_batch(
                [Record(0, now, record.key, record.value) for record in records],
                producer_id=-1 if producer is None else producer.producer_id,
                producer_epoch=-1 if producer is None else producer.epoch,
                transactional=producer is not None,
            )
        )
        info = hosted.partition.append(batch, 0, len(batch), -1, origin="coordinator")
        for record in records:
            shard.replay(record, timestamp=now, producer=producer)
        return info.last_offset

    def run_all(self, step: Callable[[S], Outcome]) -> None:
        """Run `step` for every shard here; for one that is being loaded, when it is."""
        for hosted in self._hosted.values():
            if hosted.shard is None:
                hosted.deferred.append(step)
            else:
                self._run_step(hosted, hosted.shard, step)

    def _run_step(self, hosted: _Hosted[S], shard: S, step: Callable[[S], Outcome]) -> None:
        try:
            self._apply(hosted, shard, step(shard))
        except Exception:  # the border: the other shards are to do it too
            log.exception("%s-%d: a step for all shards failed", *hosted.partition.key)

    @staticmethod
    def _send(replies: list[Reply]) -> None:
        for token, response in replies:
            if token.done():
                continue  # the client has gone
            if isinstance(response, ApiError):
                token.set_exception(response)
            else:
                token.set_result(response)

    def on_replicated(self, index: int) -> None:
        """The high watermark of this partition has moved."""
        hosted = self._hosted.get(index)
        if hosted is None or hosted.shard is None:
            return
        while hosted.waiting and hosted.partition.is_replicated(hosted.waiting[0][0]):
            self._follow_up(hosted.shard, hosted.waiting.popleft()[1])

    def on_marker(self, index: int, producer: Producer, committed: bool) -> None:
        """A transaction marker was appended to this partition."""
        hosted = self._hosted.get(index)
        if hosted is not None and hosted.shard is not None:
            hosted.shard.replay_marker(producer, committed)
            self._arm(hosted)

    # time

    def _arm(self, hosted: _Hosted[S]) -> None:
        assert hosted.shard is not None
        deadline = hosted.shard.next_deadline()
        if hosted.timer is not None:
            hosted.timer.cancel()
            hosted.timer = None
        if deadline is not None:
            delay = max(0, deadline - self._broker.clock.now_ms()) / 1000
            hosted.timer = self._broker.loop.call_later(delay, self._tick, hosted)

    def _tick(self, hosted: _Hosted[S]) -> None:
        hosted.timer = None
        shard = hosted.shard
        if shard is None:
            return
        try:
            self._apply(hosted, shard, shard.on_time(self._broker.clock.now_ms()))
        except Exception:  # the border: a bug in one shard must not stop its clock for ever
            log.exception("%s-%d: a timer failed", *hosted.partition.key)
            hosted.timer = self._broker.loop.call_later(1, self._tick, hosted)

    # gaining and losing shards

    def on_image(self, image: ClusterImage) -> None:
        """Load the shards that this broker now leads, give up those that it no longer does."""
        topic = image.topics.get(self.topic.name)
        led = {} if topic is None else {p.index: p for p in topic.partitions if p.leader == self._broker.id}
        for index, hosted in list(self._hosted.items()):
            if index not in led or led[index].leader_epoch != hosted.epoch:
                self._give_up(index)
        for index, state in led.items():
            partition = self._broker.partitions.get((self.topic.name, index))
            if index not in self._hosted and partition is not None:
                try:
                    self._load(index, partition, state.leader_epoch)
                except Exception:  # the border: the groups of other partitions can be used all the same
                    log.exception("%s-%d cannot be read", *partition.key)
                    self._hosted.pop(index, None)

    def _give_up(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        if hosted.timer is not None:
            hosted.timer.cancel()
        error = NotCoordinator(f"{self.topic.name}-{index} is no longer led here")
        for _, outcome in hosted.waiting:
            self._send([Reply(reply.token, error) for reply in outcome.replies])
        if hosted.shard is not None:
            self._send(hosted.shard.resign(error))

    def _load(self, index: int, partition: Partition, epoch: int) -> None:
        hosted: _Hosted[S] = _Hosted(partition, epoch)
        self._hosted[index] = hosted
        shard = self._make_shard(index, epoch)
        partition_log = partition.log
        if partition_log.size <= _LOAD_ON_LOOP_BYTES:
            self._loaded_up_to(hosted, shard, _replay(shard, partition_log, partition_log.log_start_offset))
            return

        def done(future: asyncio.Future[int]) -> None:
            if self._hosted.get(index) is not hosted:
                return  # it was given up meanwhile
            try:
                self._loaded_up_to(hosted, shard, future.result())
            except Exception:  # the border: of a task that nobody waits for
                log.exception("%s-%d cannot be read", *partition.key)
                self._hosted.pop(index, None)

        work = self._broker.loop.run_in_executor(
            None, _replay, shard, partition_log, partition_log.log_start_offset
        )
        work.add_done_callback(done)

    def _loaded_up_to(self, hosted: _Hosted[S], shard: S, offset: int) -> None:
        # What was appended meanwhile (markers) is replayed here, where nothing can come in between.
        _replay(shard, hosted.partition.log, offset)
        hosted.shard = shard
        self._apply(hosted, shard, shard.on_time(self._broker.clock.now_ms()))
        deferred, hosted.deferred = hosted.deferred, []
        for step in deferred:
            self._run_step(hosted, shard, step)

    def close(self) -> None:
        for index in list(self._hosted):
            self._give_up(index)


def _replay(shard: Shard, partition_log: PartitionLog, start: int) -> int:
    """Replay the log from `start`. Returns the offset after the last record that was replayed."""
    end = partition_log.log_end_offset
    for segment, position, header in partition_log.headers(start):
        if header.base_offset >= end:
            break
        if header.base_offset < start or header.count == 0:
            continue
        batch = segment.batch(position, header)  # a disk that cannot be read stops it: nothing is left out
        try:
            _replay_batch(shard, batch, header, segment.file.path)
        except _UNREADABLE as error:
            log.error("%s: batch %d is passed over: %r", segment.file.path, header.base_offset, error)
    return end


def _replay_batch(shard: Shard, batch: bytes, header: BatchHeader, path: str) -> None:
    producer = None
    if header.is_transactional:
        producer = Producer(header.producer_id, header.producer_epoch)
    if header.is_control:
        kind, _ = parse_control(next(iter_records(batch)))
        if producer is not None:
            shard.replay_marker(producer, kind == "commit")
        return
    for record in iter_records(batch):
        try:
            if record.key is None:
                raise WireError("it has no key")
            shard.replay(StateRecord(record.key, record.value), timestamp=record.timestamp, producer=producer)
        except _UNREADABLE as error:
            # One bad record must not take all groups of the partition with it.
            log.error("%s: record %d is passed over: %r", path, record.offset, error)
