"""Share groups on this broker: share sessions, the share partitions that it leads, and their state.

The state machines in `groups/share` decide. This module reads the log, writes the state, expires acquisition
locks, and sends records to the dead-letter topic. A change that could not be written has no effect. In a
cluster another broker may coordinate the state: `opening` reads it, and then `find` returns it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.broker.coordinators.shard_host import ShardHost
from penstock.broker.share import dead_letters
from penstock.broker.share import reading as share_reading
from penstock.broker.share.opened import Opened
from penstock.broker.share.opening import Opening
from penstock.broker.share.reading import Acquisition
from penstock.broker.share.state_host import share_state_host
from penstock.broker.share.states import ShareStates, StoredState, as_client_sees
from penstock.clock import SteadyClock
from penstock.config import group_setting
from penstock.config.group import BY_DURATION, duration_ms
from penstock.errors import (
    ApiError,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRequest,
    NotCoordinator,
    UnknownTopicId,
)
from penstock.groups.share.acknowledgements import Acknowledgement
from penstock.groups.share.partition import Plan, SharePartition
from penstock.groups.share.sessions import ShareSession, ShareSessions
from penstock.groups.share.settings import ShareGroupConfig, ShareSettings
from penstock.groups.share.state import UNINITIALIZED, ShareState, ShareStateShard
from penstock.groups.share.state_records import UNCHANGED, SharePartitionKey
from penstock.replication.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from penstock.wire.message import Message

if TYPE_CHECKING:
    from penstock.broker.parts import (
        CanCatchUp,
        CanCreateInternalTopics,
        CanUseThreads,
        HasAuthorizer,
        HasClock,
        HasConfig,
        HasController,
        HasDelayed,
        HasGroups,
        HasId,
        HasImage,
        HasLoop,
        HasMembership,
        HasPartitions,
        HasPeers,
        HasTopics,
    )

    class ShareGroupsParts(
        CanCatchUp,
        CanCreateInternalTopics,
        CanUseThreads,
        HasAuthorizer,
        HasClock,
        HasConfig,
        HasController,
        HasDelayed,
        HasGroups,
        HasId,
        HasImage,
        HasLoop,
        HasMembership,
        HasPartitions,
        HasPeers,
        HasTopics,
        Protocol,
    ): ...


log = logging.getLogger(__name__)

_RETRY_S = 1.0


class Sharing:
    def __init__(self, broker: ShareGroupsParts) -> None:
        self._broker = broker
        self._steady = SteadyClock(broker.clock)
        self._settings = ShareSettings.of(broker.config)
        self.states: ShardHost[ShareStateShard] = share_state_host(broker, self._settings)
        self.stored = ShareStates(broker, self.states)
        self.sessions = ShareSessions(self._settings.max_share_sessions)
        self._opened: dict[SharePartitionKey, Opened] = {}
        self.opening = Opening(broker, self)
        self._tasks: set[asyncio.Task[None]] = set()

    def config(self, group_id: str) -> ShareGroupConfig:
        broker = self._broker
        altered = broker.image.group_configs.get(group_id, {})

        def setting(name: str) -> object:
            return group_setting(broker.config, altered, name)

        return ShareGroupConfig(
            heartbeat_interval_ms=setting("share.heartbeat.interval.ms"),  # type: ignore[arg-type]
            session_timeout_ms=setting("share.session.timeout.ms"),  # type: ignore[arg-type]
            record_lock_duration_ms=setting("share.record.lock.duration.ms"),  # type: ignore[arg-type]
            auto_offset_reset=str(setting("share.auto.offset.reset")),
            isolation_level=str(setting("share.isolation.level")),
            dead_letter_topic=str(setting("penstock.share.dead.letter.topic")),
        )

    # share partitions

    def find(self, group_id: str, topic_id: UUID, index: int) -> Opened:
        """The share partition, loaded from its state if necessary. Raises the error for the client."""
        partition = self.partition(topic_id, index)
        key = SharePartitionKey(group_id, topic_id, index)
        opened = self.current(key, partition)
        if opened is not None:
            return opened
        if self._broker.membership is not None:
            raise self.opening.reason(key)
        return self._open(key, partition)

    def current(self, key: SharePartitionKey, partition: Partition) -> Opened | None:
        """The share partition in memory, if it is still valid: the partition may have moved away and back."""
        opened = self._opened.get(key)
        if opened is not None and not opened.is_led(partition):
            self._drop(opened)
            return None
        return opened

    def partition(self, topic_id: UUID, index: int) -> Partition:
        topic = self._broker.image.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"topic id {topic_id} does not exist")
        partition = self._broker.partitions.get((topic.name, index))
        if partition is None:
            raise self._broker.topics.missing((topic.name, index))
        if partition.log.topic_id != topic_id:
            raise UnknownTopicId(f"topic id {topic_id} does not exist")
        partition.check_leader()
        return partition

    def _open(self, key: SharePartitionKey, partition: Partition) -> Opened:
        state = self._shard(key).states.get(key)
        if state is None or state.start_offset == UNINITIALIZED:
            state = self._initialize(key, partition, state)
        return self.opened(key, partition, state)

    def opened(self, key: SharePartitionKey, partition: Partition, state: ShareState | StoredState) -> Opened:
        """Called when the state has been read: the share partition can now be fetched."""
        end = partition.log.log_end_offset
        # If the log was truncated to before the group's start offset, the group starts at the end of the log.
        batches = state.batches if state.start_offset <= end else ()
        share = SharePartition(
            min(state.start_offset, end),
            (batch for batch in batches if batch.last < end),
            delivery_count_limit=self._settings.delivery_count_limit,
            max_record_locks=self._settings.partition_max_record_locks,
        )
        share.log_starts_at(partition.log.log_start_offset)
        opened = self._opened[key] = Opened(key, partition, share, state.state_epoch)
        self._start_dead_letters(opened)
        return opened

    def _initialize(
        self, key: SharePartitionKey, partition: Partition, known: ShareState | None
    ) -> ShareState:
        self.check_group(key.group_id)
        start = self.first_offset(partition, self.config(key.group_id).auto_offset_reset)
        epoch = 0 if known is None else known.state_epoch
        result = self.stored.initialize(key, epoch, start)
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: done.exception())
        return self._shard(key).states[key]

    def _shard(self, key: SharePartitionKey) -> ShareStateShard:
        try:
            return self.states.shard_for(key.coordinator_key)
        except ApiError as error:
            raise as_client_sees(error) from error

    def check_group(self, group_id: str) -> None:
        """Raises an error if the group does not exist (checked if this broker coordinates it): otherwise any
        client could create state."""
        groups = self._broker.groups
        if groups.topic.name not in self._broker.image.topics:
            raise GroupIdNotFound(f"Share group {group_id} not found.")
        try:
            shard = groups.shard_for(group_id)
        except NotCoordinator:
            return
        shard.share.find(group_id)

    def first_offset(self, partition: Partition, reset: str) -> int:
        if reset == "earliest":
            return partition.log.log_start_offset
        partition.check_end_is_known()  # or the group would get records that its members have already seen
        if reset.startswith(BY_DURATION):
            ago = duration_ms(reset.removeprefix(BY_DURATION)) or 0
            found = partition.log.offset_for_timestamp(self._broker.clock.now_ms() - ago)
            if found is not None:
                return min(found.offset, partition.log.high_watermark)
        return partition.log.high_watermark

    def _drop(self, opened: Opened) -> None:
        """Remove the share partition from memory, and its acquisition locks. The stored state stays."""
        if self._opened.get(opened.key) is opened:
            del self._opened[opened.key]
        if opened.timer is not None:
            opened.timer.cancel()
            opened.timer = None
        self._broker.delayed.wake(opened.partition.key)

    # fetching

    def isolation(self, config: ShareGroupConfig) -> int:
        return READ_COMMITTED if config.isolation_level == "read_committed" else READ_UNCOMMITTED

    def acquire(
        self,
        opened: Opened,
        member_id: str,
        config: ShareGroupConfig,
        max_bytes: int,
        max_records: int,
        *,
        batch_size: int,
        exact: bool,
    ) -> Acquisition:
        deadline = self._steady.now_ms() + config.record_lock_duration_ms
        opened.share.dead_letters = bool(self._letters_to(opened, config))
        found = share_reading.acquire(
            opened.share,
            opened.partition,
            member_id,
            self.isolation(config),
            max_bytes,
            max_records,
            deadline,
            batch_size=batch_size,
            exact=exact,
        )
        if found.written:
            self._note(opened, found)
        if found.acquired:
            self._arm(opened, deadline)
        return found

    def _note(self, opened: Opened, found: Acquisition) -> None:
        """Write the delivery counts without waiting for the write: the stored counts are a lower bound, as in
        Kafka, which writes them only when records are acknowledged or released."""
        key = opened.key
        try:
            result = self.stored.write(key, opened.state_epoch, opened.leader_epoch, UNCHANGED, found.written)
        except ApiError as error:
            self._not_noted(opened, error)
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: self._not_noted(opened, done.exception()))

    def _not_noted(self, opened: Opened, error: BaseException | None) -> None:
        if error is None:
            return
        log.info("%s: could not write delivery counts: %s", opened.key.coordinator_key, error)
        if isinstance(error, ApiError):
            self._failed(opened, error)

    def readable_bytes(self, opened: Opened, config: ShareGroupConfig, max_bytes: int) -> int:
        if self._opened.get(opened.key) is not opened:
            return max_bytes  # end the wait, so that the member gets the error
        try:
            opened.partition.check_leader()
            return share_reading.readable_bytes(
                opened.share, opened.partition, self.isolation(config), max_bytes
            )
        except ApiError:
            return max_bytes

    # acknowledging and releasing

    def acknowledge(
        self, opened: Opened, member_id: str, batches: Iterable[Acknowledgement], config: ShareGroupConfig
    ) -> asyncio.Future[Message] | None:
        """Applies acknowledgements. Returns None if that is done, otherwise a future that is done when they
        are written, or that has the error."""
        opened.share.log_starts_at(opened.partition.log.log_start_offset)
        opened.share.dead_letters = bool(self._letters_to(opened, config))
        until = self._steady.now_ms() + config.record_lock_duration_ms
        return self._write(opened, opened.share.acknowledge(member_id, batches, until))

    def end_session(self, session: ShareSession, *, in_order: bool) -> list[asyncio.Future[Message]]:
        """Close the session and release the member's records. `in_order`: the member closed it itself."""
        self.sessions.close(session.group_id, session.member_id)
        return self._release(session.group_id, session.member_id, undelivered=in_order)

    def member_gone(self, group_id: str, member_id: str) -> None:
        """The group has removed the member."""
        self.sessions.close(group_id, member_id)
        self._release(group_id, member_id, undelivered=False)

    def disconnected(self, connection: str) -> None:
        for session in self.sessions.of_connection(connection):
            self.end_session(session, in_order=False)

    def _release(self, group_id: str, member_id: str, *, undelivered: bool) -> list[asyncio.Future[Message]]:
        pending = []
        for opened in [one for one in self._opened.values() if one.key.group_id == group_id]:
            try:
                result = self._write(opened, opened.share.release(member_id, undelivered=undelivered))
            except ApiError as error:
                log.info(
                    "%s: could not release records; they stay locked until their locks expire: %s",
                    opened.key.coordinator_key,
                    error,
                )
                continue
            if result is not None:
                pending.append(result)
            elif not opened.share.has_acquired():
                self._close_idle(opened)
        return pending

    def _close_idle(self, opened: Opened) -> None:
        """Remove a share partition from memory if no session names it and no records are acquired."""
        key = opened.key
        if any(
            (key.topic_id, key.partition) in one.partitions for one in self.sessions.of_group(key.group_id)
        ):
            return
        self._drop(opened)

    def _write(self, opened: Opened, plan: Plan) -> asyncio.Future[Message] | None:
        share, key = opened.share, opened.key
        if not plan:
            return None
        batches = share.written(plan)
        try:
            result = self.stored.write(
                key, opened.state_epoch, opened.leader_epoch, plan.start_offset, batches
            )
        except ApiError as error:
            share.cancel(plan)
            raise self._failed(opened, error) from error
        if isinstance(result, Message):
            self._committed(opened, plan)
            return None
        answer: asyncio.Future[Message] = self._broker.loop.create_future()

        def done(written: asyncio.Future[Message]) -> None:
            failure = written.exception()
            if failure is None:
                self._committed(opened, plan)
                if not answer.done():
                    answer.set_result(written.result())
                return
            share.cancel(plan)
            if isinstance(failure, ApiError):
                failure = self._failed(opened, failure)
            if not answer.done():
                answer.set_exception(failure)
                answer.exception()  # marks it as retrieved, in case no request waits for it

        result.add_done_callback(done)
        return answer

    def _failed(self, opened: Opened, error: ApiError) -> ApiError:
        if isinstance(error, (FencedLeaderEpoch, FencedStateEpoch, InvalidRequest)):
            self._drop(opened)  # fenced: another leader, or a new state epoch
        return as_client_sees(error)

    def _committed(self, opened: Opened, plan: Plan) -> None:
        opened.share.commit(plan)
        # Records may be available again, or there is room for more in-flight records.
        self._broker.delayed.wake(opened.partition.key)
        self._start_dead_letters(opened)

    # locks

    def _arm(self, opened: Opened, deadline: int) -> None:
        if opened.timer is not None:
            if opened.armed_for <= deadline:
                return
            opened.timer.cancel()
        opened.armed_for = deadline
        delay = max(deadline - self._steady.now_ms(), 0) / 1000
        opened.timer = self._broker.loop.call_later(delay, self._timed_out, opened)

    def _timed_out(self, opened: Opened) -> None:
        opened.timer = None
        if self._opened.get(opened.key) is not opened:
            return
        now = self._steady.now_ms()
        opened.share.dead_letters = bool(self._letters_to(opened, self.config(opened.key.group_id)))
        retry = 0
        try:
            self._write(opened, opened.share.on_time(now))
        except ApiError as error:
            log.info("%s: could not release acquisition locks yet: %s", opened.key.coordinator_key, error)
            retry = int(_RETRY_S * 1000)
        deadline = opened.share.next_deadline()
        if deadline is not None and self._opened.get(opened.key) is opened:
            self._arm(opened, max(deadline, now + max(retry, 1)))

    # dead letters

    def _letters_to(self, opened: Opened, config: ShareGroupConfig) -> str:
        """The dead-letter topic for these records. A topic is not its own dead-letter topic: its records
        would be delivered and rejected forever."""
        topic = config.dead_letter_topic
        return "" if topic == opened.partition.key[0] else topic

    def _start_dead_letters(self, opened: Opened) -> None:
        if not opened.sending_letters and opened.share.dying():
            opened.sending_letters = True
            task = self._broker.loop.create_task(self._send_dead_letters(opened))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_dead_letters(self, opened: Opened) -> None:
        key = opened.key
        try:
            while self._opened.get(key) is opened and (letters := opened.share.dying()):
                try:
                    for letter in letters:
                        topic = self._letters_to(opened, self.config(key.group_id))
                        if topic:
                            await dead_letters.send(
                                self._broker, topic, key.group_id, opened.partition, letter
                            )
                        written = self._write(opened, opened.share.dead_lettered(letter))
                        if written is not None:
                            await written
                except ApiError as error:
                    log.warning("%s: dead letters are pending: %s", key.coordinator_key, error)
                    await asyncio.sleep(_RETRY_S)
        except OSError as error:
            log.error("%s: dead letters stay pending until the next start: %s", key.coordinator_key, error)
        finally:
            opened.sending_letters = False

    # administration

    async def state(self, key: SharePartitionKey) -> StoredState | None:
        """The state that the coordinator has stored. Raises the error for the client."""
        try:
            return await self.stored.read(key)
        except ApiError as error:
            raise as_client_sees(error) from error

    def in_flight(self, key: SharePartitionKey) -> SharePartition | None:
        """The share partition, if it is in memory."""
        opened = self._opened.get(key)
        return None if opened is None else opened.share

    def forget(self, key: SharePartitionKey) -> None:
        """Remove it from memory, because its state is about to be reset or deleted."""
        opened = self._opened.get(key)
        if opened is not None:
            self._drop(opened)

    def on_image(self) -> None:
        """Remove share partitions that other brokers lead now; waiting members get the error."""
        for opened in list(self._opened.values()):
            if not opened.is_led(self._broker.partitions.get(opened.partition.key)):
                self._drop(opened)

    def close(self) -> None:
        for opened in list(self._opened.values()):
            self._drop(opened)
        self.opening.close()
        for task in self._tasks:
            task.cancel()
