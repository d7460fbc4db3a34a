"""Fetch sessions (KIP-227): the broker remembers a reader's partitions, so that a request names only changes.

The cache has a limited number of sessions, and of partitions in all sessions. A session is evicted when it
was not used for two minutes, or in favour of one with more partitions. A reader without a session sends full
requests. Sessions have only existing partitions, because clients can send any number of made-up names.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.clock import Clock
from penstock.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from penstock.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest

if TYPE_CHECKING:
    from penstock.broker.follower_sessions import FollowerSession

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
# Kafka's min.incremental.fetch.session.eviction.ms, which cannot be configured there either.
_EVICTION_S = 120.0
# In all sessions together. Each partition takes about 400 bytes.
MAX_PARTITIONS = 100_000

SessionKey = tuple[str | UUID, int]
"""The topic (its id from version 13 on, its name before) and the partition."""


class CachedPartition:
    """What the reader has requested of a partition, and what the last response had."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def differs(self, result: FetchPartitionResult) -> bool:
        """Whether the result must be in the response, because it differs from the last one."""
        return (
            bool(result.slices)
            or result.error_code != 0
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.diverging_epoch is not None
            or result.preferred_read_replica >= 0
        )

    def must_tell(self, result: FetchPartitionResult) -> bool:
        """Like `differs`, and remembers the result as sent."""
        changed = self.differs(result)
        # After an error, the next successful result must be sent in any case.
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset
        return changed


class FetchSession:
    __slots__ = ("epoch", "follower", "id", "last_used", "partitions", "privileged", "uses_topic_ids")

    def __init__(self, id: int, uses_topic_ids: bool, privileged: bool, now: float) -> None:
        self.id = id
        self.epoch = INITIAL_EPOCH + 1
        self.uses_topic_ids = uses_topic_ids
        self.privileged = privileged  # of a follower: evicted only in favour of another follower
        self.follower: FollowerSession | None = None
        self.last_used = now
        # In the order in which they are read. One that returned records moves to the end, so that none
        # starves.
        self.partitions: OrderedDict[SessionKey, CachedPartition] = OrderedDict()

    def update(
        self, wanted: Iterable[tuple[SessionKey, FetchPartition]], forgotten: Iterable[SessionKey]
    ) -> None:
        partitions = self.partitions
        for key, partition in wanted:
            known = partitions.get(key)
            if known is None:
                partitions[key] = CachedPartition(partition)
            else:
                if known.wanted.current_leader_epoch != partition.current_leader_epoch:
                    # The follower may have dropped what it was sent in the former leader epoch.
                    known.high_watermark = -1
                known.wanted = partition
        for key in forgotten:
            partitions.pop(key, None)

    def is_behind(self, results: Mapping[SessionKey, FetchPartitionResult]) -> bool:
        """Whether there is a new high watermark that has not been sent to the reader."""
        partitions = self.partitions
        return any(
            cached.high_watermark < result.high_watermark
            for key, result in results.items()
            if (cached := partitions.get(key)) is not None
        )

    def tell(self, results: dict[SessionKey, FetchPartitionResult]) -> dict[SessionKey, FetchPartitionResult]:
        """The results that must be in the response."""
        changed = {}
        for key, result in results.items():
            cached = self.partitions.get(key)
            if cached is None or cached.must_tell(result):
                changed[key] = result
                if cached is not None and result.slices:
                    self.partitions.move_to_end(key)
        return changed


class FetchSessionCache:
    def __init__(
        self, slots: int, clock: Clock, rng: random.Random, max_partitions: int = MAX_PARTITIONS
    ) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self.partition_count = 0  # of all sessions
        self._clock = clock
        self._rng = rng
        self.sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def find(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession | None:
        """The session that an incremental request continues with; None for a full request.

        A full request closes the session that it names; a new one is made by `create`.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            closed = self.sessions.get(request.session_id)
            if closed is not None:
                self.close(closed)
            return None
        session = self.sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound()
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch()
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError()
        session.epoch = session.epoch + 1 if session.epoch < _MAX_EPOCH else 1
        session.last_used = self._clock.monotonic()
        self.sessions.move_to_end(session.id)
        return session

    def create(
        self, wanted: Iterable[tuple[SessionKey, FetchPartition]], uses_topic_ids: bool, privileged: bool
    ) -> FetchSession | None:
        """A new session for a full request, with its existing partitions; None if there is no room."""
        now = self._clock.monotonic()
        partitions = list(wanted)
        if not self._make_room(len(partitions), privileged, now):
            return None
        session = FetchSession(self._free_id(), uses_topic_ids, privileged, now)
        session.update(partitions, ())
        self.sessions[session.id] = session
        self.partition_count += len(session.partitions)
        return session

    def update(
        self,
        session: FetchSession,
        wanted: Mapping[SessionKey, FetchPartition],
        forgotten: Iterable[SessionKey],
        is_there: Callable[[SessionKey], bool],
    ) -> None:
        """Apply the changes of an incremental request.

        If it names a partition that does not exist, or too many, the session is closed and the reader sends a
        full request next. Ignoring such a partition would starve it, because the reader names it only once.
        """
        before = len(session.partitions)
        known = session.partitions
        if all(key in known or is_there(key) for key in wanted):
            session.update(wanted.items(), forgotten)
            self.partition_count += len(known) - before
            if self.partition_count <= self._max_partitions:
                return
        self.close(session)
        raise FetchSessionIdNotFound()

    def close(self, session: FetchSession) -> None:
        if self.sessions.pop(session.id, None) is not None:
            self.partition_count -= len(session.partitions)
            if session.follower is not None:
                session.follower.close()

    def _make_room(self, size: int, privileged: bool, now: float) -> bool:
        if self._slots <= 0 or size > self._max_partitions:
            return False
        while self.partition_count + size > self._max_partitions:
            oldest = next(iter(self.sessions.values()))
            if now - oldest.last_used <= _EVICTION_S:
                return False
            self.close(oldest)
        if len(self.sessions) < self._slots:
            return True
        oldest = next(iter(self.sessions.values()))
        if now - oldest.last_used > _EVICTION_S:
            self.close(oldest)
            return True
        smallest = min(self.sessions.values(), key=lambda s: (s.privileged, len(s.partitions), s.id))
        if (smallest.privileged, len(smallest.partitions)) < (privileged, size):
            self.close(smallest)
            return True
        return False

    def _free_id(self) -> int:
        while True:
            id = self._rng.randrange(1, 2**31)
            if id not in self.sessions:
                return id
