"""Runs coordinators: loads shards from their partitions, appends their records, sends replies, arms timers.

The state machines in `groups` and `transactions` decide; this executes their decisions. A shard is loaded by
replaying its partition (`shard_replay`) when this broker becomes the leader, and unloaded when it no longer
is. The records of a decision are appended at once; its replies are sent when they are replicated
(`shard_answers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.broker.coordinators.hosted_shard import (
    HostedShard,
    InternalTopic,
    LoadRetry,
    as_coordinators_say,
    batch_of,
)
from penstock.broker.coordinators.shard_answers import Answers, fail, send
from penstock.broker.coordinators.shard_replay import read_batches, replay, replaying
from penstock.clock import SteadyClock
from penstock.coordinator import Outcome, Producer, Reply, Shard, partition_for
from penstock.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
)
from penstock.replication.partition import Partition
from penstock.wire.batches.records import HEADER_SIZE
from penstock.wire.message import Message

if TYPE_CHECKING:
    from penstock.broker.parts import (
        CanCreateInternalTopics,
        CanUseThreads,
        HasClock,
        HasDelayed,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
    )

    class ShardHostParts(
        CanCreateInternalTopics,
        CanUseThreads,
        HasClock,
        HasDelayed,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
        Protocol,
    ): ...


if TYPE_CHECKING:
    from penstock.metadata.image import ClusterImage

S = TypeVar("S", bound=Shard)
T = TypeVar("T")

_LOAD_ON_LOOP_BYTES = 1 << 13
"""How many bytes of all new shards are replayed at once when an image is applied; larger ones in steps."""

_WRITE_TIMEOUT_MS = 30_000
_ANNOUNCE_WITHIN_S = 0.01

log = logging.getLogger(__name__)


class ShardHost(Generic[S]):
    def __init__(
        self,
        broker: ShardHostParts,
        topic: InternalTopic,
        make_shard: Callable[[int, int], S],
        perform: Callable[[S, Any], None] | None = None,
        write_timeout_ms: Callable[[], int] = lambda: _WRITE_TIMEOUT_MS,
        on_loaded: Callable[[S], None] = lambda shard: None,
    ) -> None:
        """`make_shard(partition, leader_epoch)` creates a shard; `perform` performs an action of an Outcome;
        a reply waits at most `write_timeout_ms()` for replication; `on_loaded` is called with each loaded
        shard."""
        self._home = broker
        self._steady = SteadyClock(broker.clock)
        self.topic = topic
        self._make_shard = make_shard
        self._perform = perform
        self._write_timeout_ms = write_timeout_ms
        self._on_loaded = on_loaded
        self._hosted: dict[int, HostedShard[S]] = {}
        self._on_loop_bytes = 0
        self._loading = asyncio.Lock()
        self._loads: dict[int, LoadRetry] = {}  # loads that failed, or that wait for their logs
        self._creating: asyncio.Future[None] | None = None

    # finding

    async def ensure_topic(self) -> None:
        """Create the internal topic if it does not exist; may be called concurrently."""
        if self.topic.name in self._home.image.topics:
            return
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create_topic())
        try:
            await asyncio.shield(self._creating)
        finally:
            self._creating = None

    async def _create_topic(self) -> None:
        topic = self.topic
        await self._home.create_internal_topic(
            topic.name, topic.partitions, topic.replication_factor, topic.configs
        )

    def partition_of(self, key: str) -> int:
        image = self._home.image.topics.get(self.topic.name)
        if image is None:
            raise CoordinatorNotAvailable(f"{self.topic.name} does not exist yet; send FindCoordinator first")
        return partition_for(key, len(image.partitions))

    def leader_of(self, key: str) -> int:
        """The broker that coordinates `key`; raises CoordinatorNotAvailable if there is none."""
        index = self.partition_of(key)
        leader = self._home.image.topics[self.topic.name].partitions[index].leader
        if leader < 0:
            raise CoordinatorNotAvailable(f"{self.topic.name}-{index} has no leader")
        return leader

    def shard_for(self, key: str) -> S:
        return self._loaded(self.partition_of(key))[1]

    def _loaded(self, index: int) -> tuple[HostedShard[S], S]:
        hosted = self._hosted.get(index)
        if hosted is None or not self._leads(hosted):
            raise NotCoordinator(f"{self.topic.name}-{index} is led by another broker")
        if hosted.shard is None:
            raise CoordinatorLoadInProgress(f"{self.topic.name}-{index} is being read")
        return hosted, hosted.shard

    def _leads(self, hosted: HostedShard[S]) -> bool:
        return hosted.leads(self._home.partitions.get(hosted.partition.key))

    def shards(self) -> Iterator[S]:
        """All shards of this broker; raises while one of them is loading, because a list would lack its
        entries."""
        for index, hosted in sorted(self._hosted.items()):
            if self._leads(hosted):
                yield self._loaded(index)[1]

    def loaded_shards(self) -> list[S]:
        """The shards of this broker that are loaded."""
        hosted = [each for _, each in sorted(self._hosted.items()) if self._leads(each)]
        return [each.shard for each in hosted if each.shard is not None]

    # running

    def call(self, key: str, step: Callable[[S, Any, int], Outcome]) -> Message | asyncio.Future[Message]:
        """Run `step(shard, token, now_ms)` for the shard of `key`. Returns its response, or a future of
        it."""
        hosted, shard = self._loaded(self.partition_of(key))
        token: asyncio.Future[Message] = self._home.loop.create_future()
        self._apply(hosted, shard, step(shard, token, self._steady.now_ms()))
        return token.result() if token.done() else token

    def decide(self, key: str, step: Callable[[S, int], Outcome]) -> None:
        """Run `step(shard, now_ms)` for the shard of `key`, without a client that waits for a response."""
        hosted, shard = self._loaded(self.partition_of(key))
        self._apply(hosted, shard, step(shard, self._steady.now_ms()))

    async def read(self, key: str, look: Callable[[S], T]) -> T:
        """Returns what `look` finds in the shard of `key`, or raises its ApiError, as soon as everything that
        it read is replicated."""
        found, seen = self._look(*self._loaded(self.partition_of(key)), look)
        await seen
        return found[0]

    async def read_all(self, look: Callable[[S], T]) -> list[T]:
        """Like `read`, for all shards of this broker. A shard that gets another leader meanwhile is left out,
        as Kafka does in lists. Raises while a shard is loading, because a list would lack its entries."""
        shards = [self._loaded(index) for index, one in sorted(self._hosted.items()) if self._leads(one)]
        looks = [self._look(*one, look) for one in shards]
        errors = await asyncio.gather(*(seen for _, seen in looks), return_exceptions=True)
        for error in errors:
            if isinstance(error, BaseException) and not isinstance(error, NotCoordinator):
                raise error
        return [
            found[0] for (found, _), error in zip(looks, errors, strict=True) if isinstance(error, Message)
        ]

    def _look(
        self, hosted: HostedShard[S], shard: S, look: Callable[[S], T]
    ) -> tuple[list[T], asyncio.Future[Message]]:
        """What `look` finds, and a future that is done when it may be returned."""
        token: asyncio.Future[Message] = self._home.loop.create_future()
        found: list[T] = []
        reply: Message | ApiError = Message()
        try:
            found.append(look(shard))
        except ApiError as error:
            reply = error
        self._apply(hosted, shard, Outcome(replies=[Reply(token, reply)]))
        return found, token

    def run_all(self, step: Callable[[S], Outcome]) -> None:
        """Run `step` for every shard of this broker; for one that is loading, when it is loaded."""
        for hosted in list(self._hosted.values()):
            if hosted.shard is None:
                hosted.deferred.append(step)
            elif self._leads(hosted):
                self._run_step(hosted, hosted.shard, step)

    def run(self, shard: S, step: Callable[[S], Outcome]) -> bool:
        """Run `step` for this shard. False if it is no longer on this broker."""
        for hosted in self._hosted.values():
            if hosted.shard is shard and self._leads(hosted):
                self._run_step(hosted, shard, step)
                return True
        return False

    def _run_step(self, hosted: HostedShard[S], shard: S, step: Callable[[S], Outcome]) -> None:
        try:
            self._apply(hosted, shard, step(shard))
        except Exception:  # the border: the other shards must still run the step
            log.exception("%s-%d: a task for all shards failed", *hosted.partition.key)

    def _apply(self, hosted: HostedShard[S], shard: S, outcome: Outcome) -> None:
        """Append the records of a decision; send its replies and perform its actions when they are
        replicated.

        A decision without records still depends on everything that the shard has replayed: the whole log.
        """
        answers = hosted.answers
        was_busy, answers.busy = answers.busy, True  # the append itself may move the high watermark
        try:
            if outcome.records:
                offset = self._append(hosted, shard, outcome)
            else:
                offset = hosted.partition.log.log_end_offset - 1
        except ApiError as error:
            log.error("%s-%d: %s", *hosted.partition.key, error)
            fail(outcome, as_coordinators_say(error))
        else:
            if hosted.announcing is not None and (outcome.replies or outcome.actions):
                # The outcome depends on records that were not announced yet: a client waits for them now.
                hosted.announcing.cancel()
                hosted.announcing = None
                if not outcome.records:
                    hosted.partition.announce()
            answers.put(outcome, offset, self._write_timeout_ms())
        finally:
            answers.busy = was_busy
        answers.settle()
        self._arm(hosted)

    def _append(self, hosted: HostedShard[S], shard: S, outcome: Outcome) -> int:
        now = self._home.clock.now_ms()
        limit = hosted.partition.log.config.max_message_bytes
        parts = outcome.parts(limit - HEADER_SIZE)
        batches = [batch_of(part, outcome.producer, now) for part in parts]
        largest = max(map(len, batches))
        if largest > limit:
            raise MessageTooLarge(f"a batch of {largest} bytes, max.message.bytes is {limit}")
        last_offset = -1
        for part, batch in zip(parts, batches, strict=True):
            info = hosted.partition.append(
                batch, 0, len(batch), -1, origin="coordinator", announce=outcome.is_urgent
            )
            if not outcome.is_urgent:
                self._announce_later(hosted)
            last_offset = info.last_offset
            try:
                for record in part:
                    shard.replay(record, timestamp=now, producer=outcome.producer)
            except Exception as error:
                # The record is in the log, so it counts: reload the shard, because without it the shard would
                # decide differently.
                index = hosted.partition.key[1]
                self._load_failed(index, hosted.epoch, error)
                raise CoordinatorNotAvailable(f"{self.topic.name}-{index} is being read again") from error
        return last_offset

    def _announce_later(self, hosted: HostedShard[S]) -> None:
        """Let followers fetch the appended records with later ones, or after a short delay."""
        self._home.delayed.note(hosted.partition.key)
        if hosted.announcing is None:

            def announce() -> None:
                hosted.announcing = None
                hosted.partition.announce()

            hosted.announcing = self._home.loop.call_later(_ANNOUNCE_WITHIN_S, announce)

    def _follow_up(self, hosted: HostedShard[S], outcome: Outcome) -> None:
        send(outcome.replies)
        for action in outcome.actions:
            if self._perform is not None and hosted.shard is not None:
                try:
                    self._perform(hosted.shard, action)
                except Exception:  # the border: other actions belong to other groups and transactions
                    log.exception("%s: an action failed", self.topic.name)

    def on_replicated(self, index: int) -> None:
        """The high watermark of this partition has advanced."""
        hosted = self._hosted.get(index)
        if hosted is not None:
            hosted.answers.settle()

    def on_marker(self, index: int, producer: Producer, committed: bool) -> None:
        """A transaction marker was appended to this partition."""
        hosted = self._hosted.get(index)
        if hosted is not None and hosted.shard is not None:
            hosted.shard.replay_marker(producer, committed)
            self._arm(hosted)

    # time

    def _arm(self, hosted: HostedShard[S]) -> None:
        if not self._is_here(hosted):
            return
        assert hosted.shard is not None
        deadline = hosted.shard.next_deadline()
        if deadline is None:
            return
        now = self._steady.now_ms()
        if hosted.timer is not None:
            if hosted.deadline <= deadline and now < deadline:
                return  # the timer fires earlier and then checks again: most deadlines move on before that
            hosted.timer.cancel()
        delay = max(0, deadline - now) / 1000
        hosted.timer = self._home.loop.call_later(delay, self._tick, hosted)
        hosted.deadline = deadline

    def _tick(self, hosted: HostedShard[S]) -> None:
        hosted.timer = None
        shard = hosted.shard
        if shard is None or not self._leads(hosted):
            return  # the image with the new leader unloads the shard
        try:
            now = self._steady.now_ms()
            deadline = shard.next_deadline()
            if deadline is None or deadline > now:
                self._arm(hosted)
            else:
                self._apply(hosted, shard, shard.on_time(now))
        except Exception:  # the border: a bug in one shard must not stop its timer forever
            log.exception("%s-%d: a timer failed", *hosted.partition.key)
            if self._is_here(hosted):
                hosted.timer = self._home.loop.call_later(1, self._tick, hosted)
                hosted.deadline = self._steady.now_ms() + 1000

    # gaining and losing shards

    def on_image(self, image: ClusterImage) -> None:
        """Load the shards that this broker now leads, unload those that it no longer leads."""
        self._on_loop_bytes = _LOAD_ON_LOOP_BYTES
        topic = image.topics.get(self.topic.name)
        led = {} if topic is None else {p.index: p for p in topic.partitions if p.leader == self._home.id}
        for index, hosted in list(self._hosted.items()):
            if index not in led or led[index].leader_epoch != hosted.epoch or not self._leads(hosted):
                self._give_up(index)
        for index in [index for index in self._loads if index not in led]:
            self._loads.pop(index).cancel()
        for index, state in led.items():
            if index not in self._hosted:
                self._try_load(index, state.leader_epoch)

    def _try_load(self, index: int, epoch: int) -> None:
        partition = self._home.partitions.get((self.topic.name, index))
        try:
            if partition is None:
                self._load_later(index, epoch)  # its log could not be created; that is retried, too
            else:
                self._load(index, partition, epoch)
        except Exception as error:  # noqa: BLE001 - the border: other partitions must stay available
            self._load_failed(index, epoch, error)

    def _load_failed(self, index: int, epoch: int, error: Exception) -> None:
        log.error("%s-%d cannot be read", self.topic.name, index, exc_info=error)
        if index in self._hosted:
            self._give_up(index)
        self._load_later(index, epoch)

    def _load_later(self, index: int, epoch: int) -> None:
        retry = self._loads.setdefault(index, LoadRetry())
        retry.cancel()
        retry.timer = self._home.loop.call_later(retry.next_pause_s(), self._load_again, index, epoch)

    def _load_again(self, index: int, epoch: int) -> None:
        partition = self._home.partitions.get((self.topic.name, index))
        if index in self._hosted:
            return
        if partition is None or (partition.is_leader and partition.image.leader_epoch == epoch):
            self._try_load(index, epoch)

    def _is_here(self, hosted: HostedShard[S]) -> bool:
        return self._hosted.get(hosted.partition.key[1]) is hosted

    def _give_up(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        for one in (hosted.timer, hosted.announcing, hosted.loading):
            if one is not None:
                one.cancel()
        error = NotCoordinator(f"this broker no longer leads {self.topic.name}-{index}")
        hosted.answers.close(error)
        if hosted.shard is not None:
            send(hosted.shard.resign(error))

    def _load(self, index: int, partition: Partition, epoch: int) -> None:
        hosted: HostedShard[S] = HostedShard(partition, epoch)
        hosted.answers = Answers(
            partition,
            epoch,
            self._home.loop,
            self._home.delayed,
            lambda outcome: self._follow_up(hosted, outcome),
            lambda: self._give_up(index),
        )
        self._hosted[index] = hosted
        shard = self._make_shard(index, epoch)
        partition_log = partition.log
        if partition_log.size <= self._on_loop_bytes:
            self._on_loop_bytes -= partition_log.size
            self._loaded_up_to(hosted, shard, replay(shard, partition_log, partition_log.log_start_offset))
            return

        hosted.loading = self._home.loop.create_task(self._load_in_turns(hosted, shard))
        hosted.loading.add_done_callback(lambda task: self._load_ended(hosted, task))

    async def _load_in_turns(self, hosted: HostedShard[S], shard: S) -> None:
        """A thread reads the disk, and the event loop replays in small steps: replaying in the thread would
        compete with the loop for the interpreter. Shards are loaded one after the other."""
        async with self._loading:
            offset = hosted.partition.log.log_start_offset
            while True:
                batches, offset = await self._home.in_thread(read_batches, hosted.partition.log, offset)
                for _ in replaying(shard, batches):
                    await asyncio.sleep(0)
                if offset >= hosted.partition.log.log_end_offset:
                    break
            hosted.loading = None
            self._loaded_up_to(hosted, shard, offset)

    def _load_ended(self, hosted: HostedShard[S], task: asyncio.Task[None]) -> None:
        if self._is_here(hosted) and not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self._load_failed(hosted.partition.key[1], hosted.epoch, error)

    def _loaded_up_to(self, hosted: HostedShard[S], shard: S, offset: int) -> None:
        # Replay what was appended meanwhile (markers). There is no await here, so nothing can be appended.
        replay(shard, hosted.partition.log, offset)
        hosted.shard = shard
        retry = self._loads.pop(hosted.partition.key[1], None)
        if retry is not None:
            retry.cancel()
        self._apply(hosted, shard, shard.on_time(self._steady.now_ms()))
        deferred, hosted.deferred = hosted.deferred, []
        for step in deferred:
            self._run_step(hosted, shard, step)
        self._on_loaded(shard)

    def close(self) -> None:
        for retry in self._loads.values():
            retry.cancel()
        for index in list(self._hosted):
            self._give_up(index)
