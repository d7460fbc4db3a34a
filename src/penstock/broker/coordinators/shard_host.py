"""Where coordinators run: shards loaded from their partitions, records appended, replies sent, timers armed.

The machines in `groups` and `transactions` decide; this does. A shard is loaded by replaying its partition
(`shard_replay`) when this broker becomes its leader, and given up when it no longer is. What it decides is
appended at once, and answered when it is replicated (`shard_answers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.broker.coordinators.shard_answers import Answers, fail, send
from penstock.broker.coordinators.shard_replay import read_batches, replay, replaying
from penstock.clock import SteadyClock
from penstock.coordinator import Outcome, Producer, Reply, Shard, StateRecord, partition_for
from penstock.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownServerError,
)
from penstock.replication.partition import Partition
from penstock.wire.batches.records import HEADER_SIZE, Record, build_batch
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
"""So much is replayed at once when shards come here, of all of them together; the rest little by little."""

_WRITE_TIMEOUT_MS = 30_000
_ANNOUNCE_WITHIN_S = 0.01
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0

log = logging.getLogger(__name__)


class InternalTopic:
    """The topic behind a coordinator: made when the first client asks for it."""

    def __init__(self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.configs = configs


class _Hosted(Generic[S]):
    """One shard on this broker. `shard` is None while it is being loaded. It holds for one partition and one
    leader epoch: in the next, the log may be another one."""

    __slots__ = (
        "announcing", "answers", "deadline", "deferred", "epoch", "loading", "partition", "shard", "timer",
    )  # fmt: skip

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard: S | None = None
        self.loading: asyncio.Task[None] | None = None
        self.answers: Answers
        self.timer: asyncio.TimerHandle | None = None
        self.deadline = 0  # for which the timer was armed
        self.announcing: asyncio.TimerHandle | None = None  # what was appended and nobody waits for
        self.deferred: list[Callable[[S], Outcome]] = []  # steps for all shards, until it is loaded

    def leads(self, partition: Partition | None) -> bool:
        """Whether this is the partition that the shard was loaded from, led here as it was then."""
        return (
            partition is self.partition and partition.is_leader and partition.image.leader_epoch == self.epoch
        )


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
        """`make_shard(partition, leader_epoch)`; `perform` does what an Outcome's actions ask for; an answer
        waits at most `write_timeout_ms()` for the replicas; `on_loaded` is called with each shard that came
        here."""
        self._home = broker
        self._steady = SteadyClock(broker.clock)
        self.topic = topic
        self._make_shard = make_shard
        self._perform = perform
        self._write_timeout_ms = write_timeout_ms
        self._on_loaded = on_loaded
        self._hosted: dict[int, _Hosted[S]] = {}
        self._on_loop_bytes = 0
        self._loading = asyncio.Lock()
        self._loads: dict[int, _Retry] = {}  # that failed, or that wait for their logs
        self._creating: asyncio.Future[None] | None = None

    # finding

    async def ensure_topic(self) -> None:
        """Make the internal topic if it does not exist; many may ask at once."""
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
        """The broker that coordinates `key`; raises CoordinatorNotAvailable where there is none."""
        index = self.partition_of(key)
        leader = self._home.image.topics[self.topic.name].partitions[index].leader
        if leader < 0:
            raise CoordinatorNotAvailable(f"{self.topic.name}-{index} has no leader")
        return leader

    def shard_for(self, key: str) -> S:
        return self._loaded(self.partition_of(key))[1]

    def _loaded(self, index: int) -> tuple[_Hosted[S], S]:
        hosted = self._hosted.get(index)
        if hosted is None or not self._leads(hosted):
            raise NotCoordinator(f"{self.topic.name}-{index} is led by another broker")
        if hosted.shard is None:
            raise CoordinatorLoadInProgress(f"{self.topic.name}-{index} is being read")
        return hosted, hosted.shard

    def _leads(self, hosted: _Hosted[S]) -> bool:
        return hosted.leads(self._home.partitions.get(hosted.partition.key))

    def shards(self) -> Iterator[S]:
        """Every shard here; raises while one of them is being read, as a list would lack its entries."""
        for index, hosted in sorted(self._hosted.items()):
            if self._leads(hosted):
                yield self._loaded(index)[1]

    def loaded_shards(self) -> list[S]:
        """Those here that have been read: of the others nothing is known yet."""
        hosted = [each for _, each in sorted(self._hosted.items()) if self._leads(each)]
        return [each.shard for each in hosted if each.shard is not None]

    # running

    def call(self, key: str, step: Callable[[S, Any, int], Outcome]) -> Message | asyncio.Future[Message]:
        """Run `step(shard, token, now_ms)` for the shard of `key`. Its answer, or a future of it."""
        hosted, shard = self._loaded(self.partition_of(key))
        token: asyncio.Future[Message] = self._home.loop.create_future()
        self._apply(hosted, shard, step(shard, token, self._steady.now_ms()))
        return token.result() if token.done() else token

    def decide(self, key: str, step: Callable[[S, int], Outcome]) -> None:
        """Run `step(shard, now_ms)` for the shard of `key`, of which nobody waits for an answer."""
        hosted, shard = self._loaded(self.partition_of(key))
        self._apply(hosted, shard, step(shard, self._steady.now_ms()))

    async def read(self, key: str, look: Callable[[S], T]) -> T:
        """What `look` finds in the shard of `key`, or the ApiError that it raises, as soon as all that it saw
        is replicated."""
        found, seen = self._look(*self._loaded(self.partition_of(key)), look)
        await seen
        return found[0]

    async def read_all(self, look: Callable[[S], T]) -> list[T]:
        """The same of every shard here, at this moment. One that is led elsewhere before that is left out, as
        Kafka does in lists; raises while one is being read, as a list would lack its entries."""
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
        self, hosted: _Hosted[S], shard: S, look: Callable[[S], T]
    ) -> tuple[list[T], asyncio.Future[Message]]:
        """What it finds, and when that may be told."""
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
        """Run `step` for every shard here; for one that is being loaded, when it is."""
        for hosted in list(self._hosted.values()):
            if hosted.shard is None:
                hosted.deferred.append(step)
            elif self._leads(hosted):
                self._run_step(hosted, hosted.shard, step)

    def run(self, shard: S, step: Callable[[S], Outcome]) -> bool:
        """Run `step` for this shard. False where it is no longer here."""
        for hosted in self._hosted.values():
            if hosted.shard is shard and self._leads(hosted):
                self._run_step(hosted, shard, step)
                return True
        return False

    def _run_step(self, hosted: _Hosted[S], shard: S, step: Callable[[S], Outcome]) -> None:
        try:
            self._apply(hosted, shard, step(shard))
        except Exception:  # the border: the other shards are to do it too
            log.exception("%s-%d: a task for all shards failed", *hosted.partition.key)

    def _apply(self, hosted: _Hosted[S], shard: S, outcome: Outcome) -> None:
        """Write what was decided; answer and act on it when it is replicated, not before.

        Without records, it still rests on those that the shard has seen: the whole log.
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
            fail(outcome, _as_coordinators_say(error))
        else:
            if hosted.announcing is not None and (outcome.replies or outcome.actions):
                # It rests on what was not announced: somebody waits for that now.
                hosted.announcing.cancel()
                hosted.announcing = None
                if not outcome.records:
                    hosted.partition.announce()
            answers.put(outcome, offset, self._write_timeout_ms())
        finally:
            answers.busy = was_busy
        answers.settle()
        self._arm(hosted)

    def _append(self, hosted: _Hosted[S], shard: S, outcome: Outcome) -> int:
        now = self._home.clock.now_ms()
        limit = hosted.partition.log.config.max_message_bytes
        parts = outcome.parts(limit - HEADER_SIZE)
        batches = [_batch(part, outcome.producer, now) for part in parts]
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
                # The log has it, so it counts: a shard that continues without it would decide otherwise.
                index = hosted.partition.key[1]
                self._load_failed(index, hosted.epoch, error)
                raise CoordinatorNotAvailable(f"{self.topic.name}-{index} is being read again") from error
        return last_offset

    def _announce_later(self, hosted: _Hosted[S]) -> None:
        """The followers get what was appended with what they are sent next, in a moment at the latest."""
        self._home.delayed.note(hosted.partition.key)
        if hosted.announcing is None:

            def announce() -> None:
                hosted.announcing = None
                hosted.partition.announce()

            hosted.announcing = self._home.loop.call_later(_ANNOUNCE_WITHIN_S, announce)

    def _follow_up(self, hosted: _Hosted[S], outcome: Outcome) -> None:
        send(outcome.replies)
        for action in outcome.actions:
            if self._perform is not None and hosted.shard is not None:
                try:
                    self._perform(hosted.shard, action)
                except Exception:  # the border: the other actions are of other groups and transactions
                    log.exception("%s: an action failed", self.topic.name)

    def on_replicated(self, index: int) -> None:
        """The high watermark of this partition has moved."""
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

    def _arm(self, hosted: _Hosted[S]) -> None:
        if not self._is_here(hosted):
            return
        assert hosted.shard is not None
        deadline = hosted.shard.next_deadline()
        if deadline is None:
            return
        now = self._steady.now_ms()
        if hosted.timer is not None:
            if hosted.deadline <= deadline and now < deadline:
                return  # it looks again then: most deadlines move on before they come
            hosted.timer.cancel()
        delay = max(0, deadline - now) / 1000
        hosted.timer = self._home.loop.call_later(delay, self._tick, hosted)
        hosted.deadline = deadline

    def _tick(self, hosted: _Hosted[S]) -> None:
        hosted.timer = None
        shard = hosted.shard
        if shard is None or not self._leads(hosted):
            return  # the image that says so gives it up
        try:
            now = self._steady.now_ms()
            deadline = shard.next_deadline()
            if deadline is None or deadline > now:
                self._arm(hosted)
            else:
                self._apply(hosted, shard, shard.on_time(now))
        except Exception:  # the border: a bug in one shard must not stop its clock for ever
            log.exception("%s-%d: a timer failed", *hosted.partition.key)
            if self._is_here(hosted):
                hosted.timer = self._home.loop.call_later(1, self._tick, hosted)
                hosted.deadline = self._steady.now_ms() + 1000

    # gaining and losing shards

    def on_image(self, image: ClusterImage) -> None:
        """Load the shards that this broker now leads, give up those that it no longer does."""
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
                self._load_later(index, epoch)  # its log could not be made; that is tried again, too
            else:
                self._load(index, partition, epoch)
        except Exception as error:  # noqa: BLE001 - the border: other partitions can be used all the same
            self._load_failed(index, epoch, error)

    def _load_failed(self, index: int, epoch: int, error: Exception) -> None:
        log.error("%s-%d cannot be read", self.topic.name, index, exc_info=error)
        if index in self._hosted:
            self._give_up(index)
        self._load_later(index, epoch)

    def _load_later(self, index: int, epoch: int) -> None:
        retry = self._loads.setdefault(index, _Retry())
        retry.cancel()
        retry.timer = self._home.loop.call_later(retry.next_pause_s(), self._load_again, index, epoch)

    def _load_again(self, index: int, epoch: int) -> None:
        partition = self._home.partitions.get((self.topic.name, index))
        if index in self._hosted:
            return
        if partition is None or (partition.is_leader and partition.image.leader_epoch == epoch):
            self._try_load(index, epoch)

    def _is_here(self, hosted: _Hosted[S]) -> bool:
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
        hosted: _Hosted[S] = _Hosted(partition, epoch)
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

    async def _load_in_turns(self, hosted: _Hosted[S], shard: S) -> None:
        """A thread reads the disk, and the loop replays a little in each turn: a thread that computes would
        take the interpreter from it again and again. One shard after the other."""
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

    def _load_ended(self, hosted: _Hosted[S], task: asyncio.Task[None]) -> None:
        if self._is_here(hosted) and not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self._load_failed(hosted.partition.key[1], hosted.epoch, error)

    def _loaded_up_to(self, hosted: _Hosted[S], shard: S, offset: int) -> None:
        # What was appended meanwhile (markers) is replayed here, where nothing can come in between.
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


class _Retry:
    """The next attempt to load a shard: each waits twice as long as the one before, up to a limit."""

    __slots__ = ("_pause_s", "timer")

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self.timer: asyncio.TimerHandle | None = None

    def next_pause_s(self) -> float:
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _batch(records: list[StateRecord], producer: Producer | None, now_ms: int) -> bytearray:
    return bytearray(
        build_batch(
            [Record(0, now_ms, record.key, record.value) for record in records],
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            transactional=producer is not None,
        )
    )


def _as_coordinators_say(error: ApiError) -> ApiError:
    """What clients of a coordinator hear when a write to its partition fails, as Kafka's do."""
    if isinstance(error, NotLeaderOrFollower):
        return NotCoordinator(error.message)
    if isinstance(error, MessageTooLarge):
        return UnknownServerError(f"the change is too large to be written: {error.message}")
    return CoordinatorNotAvailable(f"the change could not be written: {error}")
