"""Replica fetchers: fetch the partitions that this broker follows from their leaders, and truncate their
logs.

There is one task for each leader, with a fetch session (KIP-227), so that a thousand idle partitions cost one
small request. A follower truncates its log to the offset where the leader epochs diverge (KIP-101, KIP-279),
never to its high watermark. Logs are changed only through `Following`, which checks at each change that the
partition still follows that leader at that epoch: the image may have changed at any await.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.errors import (
    ApiError,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    PeerUnavailable,
    WireError,
    error_for_code,
)
from penstock.metadata.partition_names import some_of
from penstock.replication.follower.ahead import next_wanted
from penstock.replication.follower.following import Following
from penstock.replication.follower.truncations import Truncations
from penstock.replication.partition import Partition
from penstock.wire import replica_fetch
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.replica_fetch import ReplicaPartition, ReplicaResult

if TYPE_CHECKING:
    from penstock.replication.follower.parts import FollowersParts

log = logging.getLogger(__name__)

_SESSION_ERRORS = (FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code)
_LIST_OFFSETS_VERSION = 7
_EARLIEST, _LATEST = -2, -1
# A new leader usually learns that it is the leader within moments, so the first retry comes soon.
_FIRST_PAUSE_MS = 10
_SAVE_PATIENCE_S = 0.1
_TOLD_AFTER = 4
"""After this many errors in a row the error is logged."""

Id = tuple[UUID, int]


class _Refused(Exception):
    """The leader returned an error for its log start or end offset. It is kept apart from errors of this
    broker: a failed disk of the leader says nothing about the disk here."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Followed:
    """One partition that is fetched. `due` is when it may be fetched again after an error. `log_start_offset`
    is what is reported to the leader: where the log would start after a crash."""

    __slots__ = ("due", "errors", "following", "id", "log_start_offset", "partition", "reason")

    def __init__(self, partition: Partition, topic_id: UUID) -> None:
        self.partition = partition
        self.id: Id = (topic_id, partition.key[1])
        self.following = Following(partition)
        self.log_start_offset = partition.log.segments[0].base_offset
        self.due = 0.0
        self.errors = 0  # in a row
        self.reason = 0  # the last error code

    def wanted(self, max_bytes: int) -> ReplicaPartition:
        one = self.partition.log
        self.log_start_offset = min(self.log_start_offset, one.log_start_offset)  # it may have been truncated
        return ReplicaPartition(
            self.id[1],
            self.following.leader_epoch,
            one.log_end_offset,
            one.latest_epoch,
            self.log_start_offset,
            max_bytes,
        )

    def answers(self, asked: ReplicaPartition) -> bool:
        """Whether the request is still what this partition needs: same leader epoch, and an unchanged log."""
        log = self.partition.log
        return (
            self.following.is_held
            and asked.current_leader_epoch == self.following.leader_epoch
            and asked.fetch_offset == log.log_end_offset
            and asked.last_fetched_epoch == log.latest_epoch
        )


class LeaderFetcher:
    """Fetches all partitions that this broker follows and one other broker leads."""

    def __init__(self, broker: FollowersParts, leader: int, truncations: Truncations) -> None:
        self._broker = broker
        self.leader = leader
        self._truncations = truncations
        self.followed: dict[Id, Followed] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._asked: dict[Id, ReplicaPartition] = {}  # the partitions in the leader's fetch session
        self._dirty: set[Id] = set()
        self._changed = asyncio.Event()
        self._failing = False
        self._told: dict[int, list[str]] = {}  # errors of this response to log, with their partitions
        self._ahead: asyncio.Task[tuple[bytearray, int]] | None = None  # the fetch ahead (`ahead.py`)
        assert broker.membership is not None
        self._throttle = broker.membership.follower_throttle
        self._moved: set[Followed] = set()  # whose log start offset is not checkpointed yet
        self._saving: asyncio.Task[None] | None = None
        self._flushes: list[asyncio.Task[None]] = []
        self._task = broker.loop.create_task(self._run())

    def add(self, one: Followed) -> None:
        self.followed[one.id] = one
        self._dirty.add(one.id)
        self._changed.set()
        self._save_start(one)

    def remove(self, key: Id) -> None:
        one = self.followed.pop(key, None)
        if one is not None:
            one.following.end()
        self._dirty.add(key)

    async def stop(self) -> None:
        self._task.cancel()
        if self._ahead is not None:
            self._ahead.cancel()
        if self._saving is not None:
            self._saving.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # the loop

    async def _run(self) -> None:
        config = self._broker.config
        while True:
            if not self.followed:
                self._forget_session()
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._fetch()
                self._failing = False
            except (PeerUnavailable, WireError) as error:
                if not self._failing:
                    log.info("cannot fetch: %s", error)
                    self._failing = True
                self._forget_session()
                await asyncio.sleep(config.replica_fetch_backoff_ms / 1000)
            except Exception:  # the border: one bad response must not end replication
                log.exception("could not fetch from leader %d", self.leader)
                self._forget_session()
                await asyncio.sleep(config.replica_fetch_backoff_ms / 1000)

    def _forget_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._asked.clear()
        self._dirty = set(self.followed)
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    async def _fetch(self) -> None:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            frame, start = await ahead
        else:
            body = await self._next_request()
            if body is None:
                return
            frame, start = await self._exchange(body)
        answer = replica_fetch.decode_answer(frame, start)
        if answer.error_code:
            if answer.error_code not in _SESSION_ERRORS:
                raise PeerUnavailable(self.leader, error_for_code(answer.error_code).kafka_name)
            self._forget_session()
            return
        self._session_id = answer.session_id
        self._session_epoch = 0 if answer.session_id == 0 else self._session_epoch % 0x7FFFFFFF + 1
        # The request of each result, taken now: fetching ahead overwrites `_asked`.
        asked = [self._asked.get((result.topic_id, result.partition)) for result in answer.results]
        if answer.session_id == 0:
            self._asked.clear()
            self._dirty = set(self.followed)
        else:
            self._ask_ahead(answer.results, frame)
            if self._ahead is not None:
                await asyncio.sleep(0)  # lets the task send the request now
        for result, wanted in zip(answer.results, asked, strict=True):
            one = self.followed.get((result.topic_id, result.partition))
            if one is None or wanted is None:
                continue  # no longer followed, or backing off after an error
            self._dirty.add(one.id)
            # Skipped if the leader epoch has changed, or if the previous response could not be appended.
            if one.answers(wanted):
                await self._take(one, result, frame)
        self._tell()
        if self._saving is not None:
            # Report a new log start offset with the next fetch, because a DeleteRecords request may wait for
            # it. The timeout keeps this from delaying replication.
            await asyncio.wait([self._saving], timeout=_SAVE_PATIENCE_S)

    def _tell(self) -> None:
        """One line for each kind of error: a leader that starts has hundreds of partitions."""
        told, self._told = self._told, {}
        for code, names in told.items():
            log.info(
                "leader %d responded to Fetch with %s: %s",
                self.leader,
                error_for_code(code).kafka_name,
                some_of(names),
            )

    async def _next_request(self) -> bytes | None:
        """The body of the next fetch request. If all partitions back off after errors, waits for the first
        and returns None."""
        broker, config = self._broker, self._broker.config
        if self._flushes:
            # A fetch from an offset tells the leader that all records before it are here. With flush.messages
            # that is only true once they are on disk.
            flushes, self._flushes = self._flushes, []
            await asyncio.wait(flushes)
        topics, forgotten, postponed = self._request()
        wait_ms = config.replica_fetch_wait_max_ms
        if postponed:
            # While some partitions back off, the fetch of the others must not wait longer than they do.
            first = min(self.followed[key].due for key in postponed) - broker.loop.time()
            wait_ms = min(wait_ms, max(1, round(first * 1000)))
        self._dirty |= postponed
        if not self._asked:
            # The leader's session still has the removed partitions, so the next request starts a new session.
            self._session_epoch = 0
            await asyncio.sleep(wait_ms / 1000)
            return None
        return self._encode(wait_ms, topics, forgotten)

    def _encode(
        self, wait_ms: int, topics: dict[UUID, list[ReplicaPartition]], forgotten: dict[UUID, list[int]]
    ) -> bytes:
        broker, config = self._broker, self._broker.config
        return replica_fetch.encode_request(
            broker.id,
            broker.epoch,
            max_wait_ms=wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=topics,
            forgotten=forgotten,
        )

    def _exchange(self, body: bytes) -> Coroutine[Any, Any, tuple[bytearray, int]]:
        return self._broker.peers.exchange(
            self.leader, ApiKey.FETCH, replica_fetch.VERSION, body, purpose="replication"
        )

    def _ask_ahead(self, results: list[ReplicaResult], frame: bytearray) -> None:
        """If all partitions of this response are far behind, request the next data while this is appended."""
        wanted: dict[Id, ReplicaPartition] = {}
        for result in results:
            key = (result.topic_id, result.partition)
            asked = self._asked.get(key)
            following = None
            if asked is not None and key in self.followed:
                following = next_wanted(asked, result, frame)
            if following is None:
                return
            wanted[key] = following
        if not wanted:
            return
        topics: dict[UUID, list[ReplicaPartition]] = {}
        for (topic_id, _), partition in wanted.items():
            topics.setdefault(topic_id, []).append(partition)
        self._asked.update(wanted)
        body = self._encode(self._broker.config.replica_fetch_wait_max_ms, topics, {})
        self._ahead = self._broker.loop.create_task(self._exchange(body))

    def _request(self) -> tuple[dict[UUID, list[ReplicaPartition]], dict[UUID, list[int]], set[Id]]:
        """The partitions to fetch, to remove from the session, and that back off. In a session, only changes
        are sent."""
        now = self._broker.loop.time()
        max_bytes = self._broker.config.replica_fetch_max_bytes
        topics: dict[UUID, list[ReplicaPartition]] = {}
        forgotten: dict[UUID, list[int]] = {}
        postponed: set[Id] = set()
        dirty, self._dirty = self._dirty, set()
        throttle = self._throttle
        for key in dirty:
            one = self.followed.get(key)
            if one is not None:
                self._hold_back(one, now)
            if one is not None and one.due <= now and not throttle.holds_back(one.partition, self._broker.id):
                wanted = one.wanted(max_bytes)
                if self._asked.get(key) != wanted:
                    self._asked[key] = wanted
                    topics.setdefault(key[0], []).append(wanted)
                continue
            if one is not None:
                postponed.add(key)
            if self._asked.pop(key, None) is not None and self._session_id:
                forgotten.setdefault(key[0], []).append(key[1])
        return topics, forgotten, postponed

    def _hold_back(self, one: Followed, now: float) -> None:
        """Postpone a partition whose log was truncated and is not settled: nothing may be appended to it yet.
        Also one with records that flush.messages requires to be on disk: they may not be reported to the
        leader before that, and after a failed sync never."""
        own = one.partition.log
        pause_ms = 0
        if own.flush_required:
            if own.failed is None:
                self._flushes.append(self._broker.flush(one.partition))
            pause_ms = _FIRST_PAUSE_MS if own.failed is None else self._broker.config.replica_fetch_backoff_ms
        elif not own.is_settled:
            pause_ms = _FIRST_PAUSE_MS
        if pause_ms:
            one.due = max(one.due, now + pause_ms / 1000)

    # one response

    async def _take(self, one: Followed, result: ReplicaResult, frame: bytearray) -> None:
        partition = one.partition
        try:
            if result.error_code:
                await self._failed(one, result.error_code)
            elif result.diverging_epoch is not None:
                await self._truncate(one, one.following.common_end(*result.diverging_epoch))
            else:
                self._append(one, result, frame)
        except (ApiError, OSError) as error:
            if not one.following.is_held:
                return  # the leader has changed during the request, so this fetcher may not touch the log
            if isinstance(error, OSError | KafkaStorageError):
                partition.broken_ms = self._broker.clock.now_ms()
            code = error.code if isinstance(error, ApiError) else KafkaStorageError.code
            if one.reason != code:  # log it once: the error may last for hours
                log.error("%s-%d cannot follow leader %d: %s", *partition.key, self.leader, error)
            self._postpone(one, code)

    def _append(self, one: Followed, result: ReplicaResult, frame: bytearray) -> None:
        partition = one.partition
        if result.end > result.start:
            info = one.following.append(frame, result.start, result.end)
            self._throttle.count(partition, result.end - result.start)
            if info.flush_required:
                self._flushes.append(self._broker.flush(partition))
        one.following.advance(result.high_watermark, result.log_start_offset)
        self._save_start(one)
        one.reason = one.errors = 0

    def _save_start(self, one: Followed) -> None:
        """Checkpoint the log start offset before it is reported: the leader completes DeleteRecords by what
        followers report, and the records must not come back after a crash. If the log starts with its first
        segment, nothing needs to be written."""
        own = one.partition.log
        one.log_start_offset = max(one.log_start_offset, own.segments[0].base_offset)
        if own.log_start_offset > one.log_start_offset:
            self._moved.add(one)
            if self._saving is None:
                self._saving = self._broker.loop.create_task(self._save_starts())

    async def _save_starts(self) -> None:
        broker = self._broker
        try:
            while self._moved:
                moved, self._moved = self._moved, set()
                starts = {one: one.partition.log.log_start_offset for one in moved}
                try:
                    await broker.with_logs(broker.logs.checkpoint_log_starts)
                except OSError as error:
                    log.error("could not write the log start offset checkpoint: %s", error)
                    self._moved |= moved
                    await asyncio.sleep(broker.config.replica_fetch_backoff_ms / 1000)
                    continue
                for one, start in starts.items():
                    one.log_start_offset = max(one.log_start_offset, start)
                    self._dirty.add(one.id)
        finally:
            self._saving = None

    async def _truncate(self, one: Followed, offset: int) -> None:
        end = one.partition.log.log_end_offset
        if offset >= end:  # at most a leader epoch without records is in the way
            await one.following.truncate_to(offset)
        else:
            log.warning(
                "truncating %s-%d from offset %d to %d to follow leader %d",
                *one.partition.key,
                end,
                offset,
                self.leader,
            )
            await self._cut(one, one.following.truncate_to(offset))

    async def _cut(self, one: Followed, truncation: Coroutine[Any, Any, None]) -> None:
        """Truncate, then settle the log even if this is cancelled, for example because this broker becomes
        the leader: the log accepts no appends before it is settled."""
        try:
            await truncation
        finally:
            settled = self._truncations.settle(one.partition.log)
        await settled

    async def _failed(self, one: Followed, code: int) -> None:
        if code == OffsetOutOfRange.code:
            try:
                await self._out_of_range(one)
                return
            except _Refused as refused:
                code = refused.code
        if one.errors == _TOLD_AFTER or (one.errors > _TOLD_AFTER and one.reason != code):
            topic, index = one.partition.key
            self._told.setdefault(code, []).append(f"{topic}-{index}")
        self._postpone(one, code)

    def _postpone(self, one: Followed, code: int) -> None:
        """Back off: twice as long after each error, up to replica.fetch.backoff.ms."""
        one.reason = code
        longest: int = self._broker.config.replica_fetch_backoff_ms
        pause_ms = min(longest, _FIRST_PAUSE_MS << min(one.errors, 16))
        one.errors += 1
        one.due = self._broker.loop.time() + pause_ms / 1000

    async def _out_of_range(self, one: Followed) -> None:
        """This log ends before the leader's log start offset (retention has deleted the records between), or
        after the leader's log end offset."""
        following, own = one.following, one.partition.log
        end = await self._leader_offset(one, _LATEST)
        if following.is_held and end < own.log_end_offset:
            await self._truncate(one, end)
            return
        start = await self._leader_offset(one, _EARLIEST)
        if following.is_held and start > own.log_end_offset:
            log.warning(
                "%s-%d: truncating fully and starting at offset %d, the log start offset of its leader",
                *one.partition.key,
                start,
            )
            await self._cut(one, following.start_at(start))

    async def _leader_offset(self, one: Followed, timestamp: int) -> int:
        topic, index = one.partition.key
        request = Message(
            replica_id=self._broker.id,
            isolation_level=0,
            topics=[
                Message(
                    name=topic,
                    partitions=[
                        Message(
                            partition_index=index,
                            current_leader_epoch=one.following.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        answer = await self._broker.peers.call(
            self.leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, request
        )
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise _Refused(found.error_code)
        offset: int = found.offset
        return offset
