"""The fetch session of a follower: a fetch reads only the partitions that have changed.

A follower has all partitions that it copies from this broker in one session, and fetches after each append. A
partition rests while the follower is in sync, at the end of the log, and knows the log start offset; any
other change makes it due again. A fetch also confirms that the follower is at the end of the resting
partitions: that is recorded when they stop resting. From time to time all partitions are read: then the
follower gets high watermarks that have advanced since the last records (immediately if it serves consumers),
and log start offsets that retention has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.broker.fetch.lookup import Find, Results, encode, find
from penstock.broker.fetch.sessions import FetchSession, SessionKey
from penstock.broker.net.writer import Chunk
from penstock.errors import ApiError
from penstock.replication.delayed import Key, Watcher
from penstock.replication.fetching import FetchParams, ReadOutcome, read
from penstock.replication.partition import Partition
from penstock.wire.fetch import FetchPartition

if TYPE_CHECKING:
    from penstock.broker.fetch.lookup import FetchLookupParts
    from penstock.broker.parts import HasClock, HasConfig, HasDelayed, HasLoop, HasMembership

    class FollowerSessionsParts(
        FetchLookupParts, HasClock, HasConfig, HasDelayed, HasLoop, HasMembership, Protocol
    ): ...


_LOOK_AT_ALL_S = 0.5
"""How often all partitions are read: the default of replica.fetch.wait.max.ms."""


class _Waiting(NamedTuple):
    """A fetch that waits for its response."""

    answer: asyncio.Future[list[Chunk]]
    find: Find
    params: FetchParams
    version: int
    deadline: float


class FollowerSession(Watcher):
    __slots__ = (
        "_broker", "_due", "_fetched_ms", "_looked_at_all", "_names", "_replica_epoch", "_resting",
        "_scheduled", "_session", "_tells_all", "_tells_high_watermarks", "_timer",
        "_waiting", "_woken", "replica_id",
    )  # fmt: skip

    def __init__(
        self, broker: FollowerSessionsParts, session: FetchSession, replica_id: int, replica_epoch: int
    ) -> None:
        self._broker = broker
        self._session = session
        self.replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._fetched_ms = broker.clock.now_ms()
        self._looked_at_all = broker.loop.time()
        self._tells_all = True  # the next response has everything that was not sent yet
        self._tells_high_watermarks = False  # every response has new high watermarks
        self._due: dict[SessionKey, None] = {}  # in the order of reading; one with records moves to the end
        self._resting: dict[SessionKey, Partition] = {}
        self._names: dict[Key, SessionKey] = {}  # of the watched partitions
        self._waiting: _Waiting | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken: set[SessionKey] = set()
        self._scheduled = False
        self._add(session.partitions)

    # -- the partitions of the session

    def _add(self, keys: Iterable[SessionKey]) -> None:
        for key in keys:
            self._due[key] = None
            if self._resting.pop(key, None) is not None:
                continue
            found = find(self._broker, key)
            if isinstance(found, Partition) and self._names.get(found.key) != key:
                self._names[found.key] = key
                self._broker.delayed.add_watcher(found.key, self)

    def forget(self, keys: Iterable[SessionKey]) -> None:
        gone = set(keys)
        for key in gone:
            self._due.pop(key, None)
            self._rested(key)
        if gone:
            for name in [name for name, key in self._names.items() if key in gone]:
                del self._names[name]
                self._broker.delayed.remove_watcher(name, self)

    def close(self) -> None:
        """The session was closed or evicted."""
        self._complete()
        self.forget(list(self._names.values()))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rested(self, key: SessionKey) -> None:
        partition = self._resting.pop(key, None)
        if partition is not None:
            partition.follower_rested(self.replica_id, self._fetched_ms)

    def changed(self, key: Key) -> None:
        name = self._names.get(key)
        if name is None or self._goes_on_resting(name):
            return
        self._rested(name)
        self._due[name] = None
        self._woken.add(name)
        if self._waiting is not None:
            self._check_soon()

    def grew(self, key: Key) -> None:
        name = self._names.get(key)
        if name is not None:
            self._rested(name)
            self._due[name] = None

    def _goes_on_resting(self, key: SessionKey) -> bool:
        """Whether the partition can keep resting: nothing has changed except its high watermark."""
        partition = self._resting.get(key)
        if partition is None or self._tells_all:
            return False
        cached = self._session.partitions[key]
        return (
            partition.is_all(cached.wanted, self.replica_id)
            and partition.is_at_end(self.replica_id, cached.wanted.fetch_offset)
            and partition.log.log_start_offset == cached.log_start_offset
        )

    def lost(self, key: Key) -> None:
        name = self._names.get(key)
        if name is not None:
            self._resting.pop(name, None)  # a new leader epoch tracks its followers from the beginning
            self._due[name] = None
            self._complete()

    # -- fetching

    def fetch(
        self,
        find: Find,
        version: int,
        params: FetchParams,
        max_wait_ms: int,
        named: Iterable[SessionKey],
        forgotten: Iterable[SessionKey],
    ) -> list[Chunk] | asyncio.Future[list[Chunk]]:
        """Handles a fetch of this session, which adds the partitions `named` and removes those in
        `forgotten`."""
        broker = self._broker
        self._complete()  # one at a time, in order
        self._add(named)
        self.forget(forgotten)
        now = broker.loop.time()
        if params.replica_epoch != self._replica_epoch or now - self._looked_at_all >= _LOOK_AT_ALL_S:
            self._replica_epoch = params.replica_epoch
            self._look_at_all()
        self._tells_high_watermarks = params.tell_high_watermark
        self._tells_all |= params.tell_high_watermark
        self._fetched_ms = broker.clock.now_ms()
        self._woken.clear()  # these partitions are due and read below
        results: Results = {}
        outcome, wanted = self._read(find, params, results)
        if broker.membership is not None:
            for found in wanted:
                if isinstance(found, Partition) and self.replica_id not in found.image.isr:
                    broker.membership.isr.follower_fetched(found, self.replica_id)
        if (
            outcome.urgent
            or outcome.size >= params.min_bytes
            or max_wait_ms <= 0
            or not self._session.partitions
        ):
            return self._respond(version, results)
        if params.tell_high_watermark and self._session.is_behind(results):
            return self._respond(version, results)
        self._rest(results)
        answer: asyncio.Future[list[Chunk]] = broker.loop.create_future()
        deadline = now + max_wait_ms / 1000
        self._waiting = _Waiting(answer, find, params, version, deadline)
        if self._timer is None or self._timer.when() > deadline:
            self._arm(deadline)
        if not self._due.keys().isdisjoint(self._woken):
            # This fetch advanced a high watermark, which caused another append after the partition was read.
            self._check_soon()
        return answer

    def _look_at_all(self) -> None:
        self._looked_at_all = self._broker.loop.time()
        self._tells_all = True
        self._due.update(dict.fromkeys(self._session.partitions))

    def _read(
        self, find: Find, params: FetchParams, results: Results
    ) -> tuple[ReadOutcome, list[Partition | ApiError]]:
        """Reads the due partitions. If the follower is at the end of one, that is recorded, and it is not
        read."""
        partitions = self._session.partitions
        replica_id, tells_all = self.replica_id, self._tells_all
        looked_at: list[Partition | ApiError] = []
        wanted: list[tuple[SessionKey, Partition | ApiError, FetchPartition]] = []
        for key in list(self._due):
            found, cached = find(key), partitions[key]
            asked = cached.wanted
            looked_at.append(found)
            if (
                not tells_all
                and isinstance(found, Partition)
                and found.is_all(asked, replica_id)
                and found.log.log_start_offset == cached.log_start_offset
            ):
                found.follower_fetched(
                    replica_id, asked.fetch_offset, asked.log_start_offset, params.replica_epoch
                )
                if found.is_at_end(replica_id, asked.fetch_offset):
                    self._due.pop(key, None)
                    self._resting[key] = found
            else:
                wanted.append((key, found, asked))
        return read(params, wanted, results), looked_at

    def _rest(self, results: Results) -> None:
        """Let partitions rest that have no news for the follower: they are not read until they change."""
        due, partitions = self._due, self._session.partitions
        for key, result in results.items():
            cached = partitions[key]
            if result.slices:
                del due[key]
                due[key] = None
            elif not cached.differs(result):
                found = find(self._broker, key)
                if isinstance(found, Partition) and found.is_at_end(
                    self.replica_id, cached.wanted.fetch_offset
                ):
                    del due[key]
                    self._resting[key] = found

    def _respond(self, version: int, results: Results) -> list[Chunk]:
        session = self._session
        changed = session.tell(results)
        self._tells_all = self._tells_high_watermarks
        self._rest(results)
        listener = self._broker.config.inter_broker_listener or ""
        session_id = session.id if session.partitions else 0
        return encode(self._broker, version, listener, 0, session_id, changed, to_follower=True)

    # -- waiting

    def _check_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._broker.loop.call_soon(self._check_woken)

    def _check_woken(self) -> None:
        self._scheduled = False
        woken, self._woken = self._woken, set()
        waiting = self._waiting
        if waiting is not None and any(self._is_over(waiting.params, key) for key in woken):
            # Handle the requests that are already in the sockets first, so that their appends are in this
            # response and need not wait for the next fetch.
            self._broker.loop.call_soon(self._complete_this, waiting)

    def _complete_this(self, waiting: _Waiting) -> None:
        if self._waiting is waiting:
            self._complete()

    def _is_over(self, params: FetchParams, key: SessionKey) -> bool:
        cached = self._session.partitions.get(key)
        found = find(self._broker, key)
        if cached is None or not isinstance(found, Partition):
            return True
        try:
            found.check_fetch(cached.wanted, self.replica_id)
        except ApiError:
            return True
        if params.tell_high_watermark and found.log.high_watermark > cached.high_watermark:
            return True
        if found.log.log_end_offset <= cached.wanted.fetch_offset:
            return False
        return params.min_bytes <= 1 or self._readable(params) >= params.min_bytes

    def _readable(self, params: FetchParams) -> int:
        size = 0
        for key in self._due:
            wanted, found = self._session.partitions[key].wanted, find(self._broker, key)
            if isinstance(found, Partition):
                slices = found.slices(wanted, wanted.max_bytes, True, params.isolation_level, self.replica_id)
                size += sum(map(len, slices))
        return size

    def _arm(self, deadline: float) -> None:
        """One timer serves many fetches: most complete long before it fires, and it is then armed for the
        next."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._broker.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """When a fetch times out, all partitions are read."""
        self._timer = None
        if self._waiting is None:
            return
        if self._broker.loop.time() < self._waiting.deadline:
            self._arm(self._waiting.deadline)
            return
        self._look_at_all()
        self._complete()

    def _complete(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.answer.done():  # done: the follower has disconnected
            return
        self._fetched_ms = self._broker.clock.now_ms()
        results: Results = {}
        try:
            self._read(waiting.find, waiting.params, results)
            chunks = self._respond(waiting.version, results)
        except Exception as error:  # noqa: BLE001 - the border: the dispatcher logs it and responds
            waiting.answer.set_exception(error)
        else:
            waiting.answer.set_result(chunks)
