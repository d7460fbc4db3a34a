"""Readers of the simulation: tails at both isolation levels, LATEST, DeleteRecords, committed offsets,
and the chain that consumes, transforms and produces in transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.sim.brokers.client import RETRY_PARTITION, Client, Key, Lost, error_name
from tests.sim.brokers.history import Batch, Transaction, batches_of, line_of
from tests.sim.brokers.producers import (
    ABORTABLE,
    FENCED,
    INVALID_EPOCH,
    Abortable,
    Fenced,
    TransactionalProducer,
)

if TYPE_CHECKING:
    from tests.sim.brokers.world import World

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2
OFFSET_OUT_OF_RANGE = 1
DELETE_RETENTION_S = 0.5  # of a ledger, in some schedules
_COPIES_IN_A_BATCH = 16  # it has to fit into the smallest segments


class Fetched:
    """One answer to a fetch of one partition."""

    def __init__(self, found: Message, position: int, isolation: int) -> None:
        self.high_watermark: int = found.high_watermark
        self.last_stable_offset: int = found.last_stable_offset
        self.batches: list[Batch] = batches_of(bytes(found.records or b""))
        self._aborted = sorted(
            (one.first_offset, one.producer_id) for one in found.aborted_transactions or ()
        )
        self.values: dict[int, bytes] = {}
        self.next = position
        open_aborted: set[int] = set()
        for batch in self.batches:
            header = batch.header
            self.next = max(self.next, header.last_offset + 1)
            while self._aborted and self._aborted[0][0] <= header.last_offset:
                open_aborted.add(self._aborted.pop(0)[1])
            if batch.marker is not None:
                open_aborted.discard(header.producer_id)
                continue
            if isolation and header.is_transactional and header.producer_id in open_aborted:
                continue
            for offset, value in zip(batch.offsets, batch.values, strict=True):
                if offset >= position:
                    self.values[offset] = value


class Reader(Client):
    async def fetch(
        self, key: Key, position: int, isolation: int, max_wait_ms: int = 300, max_bytes: int = 1 << 16
    ) -> Fetched | int | None:
        """What is there, an error that is final, or None where it is to be tried again."""
        node = await self.leader(key)
        request = Message(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[
                Message(
                    topic=key[0],
                    partitions=[
                        Message(
                            partition=key[1],
                            current_leader_epoch=self.leader_epochs[key],
                            fetch_offset=position,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=max_bytes,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        try:
            answer = await self.call(node, ApiKey.FETCH, 12, request, "fetch")
        except Lost:
            self.forget_leader(key)
            await self.backoff()
            return None
        found = answer.responses[0].partitions[0]
        if found.error_code == 0:
            return Fetched(found, position, isolation)
        if found.error_code in RETRY_PARTITION:
            self.forget_leader(key)
            await self.backoff()
            return None
        code: int = found.error_code
        return code

    async def offset(self, key: Key, timestamp: int, isolation: int = 0) -> int | None:
        node = await self.leader(key)
        wanted = Message(
            partition_index=key[1], current_leader_epoch=self.leader_epochs[key], timestamp=timestamp
        )
        request = Message(
            replica_id=-1,
            isolation_level=isolation,
            topics=[Message(name=key[0], partitions=[wanted])],
        )
        try:
            answer = await self.call(node, ApiKey.LIST_OFFSETS, 7, request)
        except Lost:
            self.forget_leader(key)
            return None
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self.forget_leader(key)
            if found.error_code not in RETRY_PARTITION:
                self.world.history.violation(f"ListOffsets of {key}: {error_name(found.error_code)}")
            return None
        offset: int = found.offset
        return offset


class Tail(Reader):
    """Reads a partition from its start on, as it grows; what it was shown stays."""

    def __init__(self, world: World, name: str, key: Key, isolation: int) -> None:
        super().__init__(world, name)
        self.key = key
        self.isolation = isolation

    async def main(self) -> None:
        position, key, history = 0, self.key, self.world.history
        while not self.world.stopping:
            await self.leader(key)
            epoch = self.leader_epochs[key]
            found = await self.fetch(key, position, self.isolation)
            if found is None:
                continue
            if isinstance(found, int):
                start = history.earliest[key]
                if found != OFFSET_OUT_OF_RANGE or position >= start:
                    node = await self.leader(key)
                    history.violation(
                        f"{self.name}: broker {node} answers {error_name(found)} at {position}; "
                        f"the log starts at {start}"
                    )
                    return
                position = start
                continue
            for offset, value in found.values.items():
                history.read(key, self.isolation, offset, value)
            position = found.next
            history.saw_end(key, self.isolation, epoch, position)
            history.counts["fetches"] += 1
            await asyncio.sleep(self.rng.random() * 0.2)


class StartReader(Reader):
    """Asks where a log with little retention starts, and reads from there: under one leader the start never
    goes back, and what is behind it is there, without a gap."""

    def __init__(self, world: World, name: str, key: Key) -> None:
        super().__init__(world, name)
        self.key = key
        self._starts: dict[int, int] = {}  # by leader epoch

    async def main(self) -> None:
        key, history = self.key, self.world.history
        while not self.world.stopping:
            await asyncio.sleep(self.rng.random() * 0.2)
            await self.leader(key)
            epoch = self.leader_epochs[key]
            start = await self.offset(key, EARLIEST)
            if start is None:
                continue
            known = self._starts.get(epoch, 0)
            if start < known:
                history.violation(f"EARLIEST of {key} in epoch {epoch} is {start} after {known}")
            self._starts[epoch] = max(start, known)
            history.counts["starts that moved"] += start > known
            found = await self.fetch(key, start, READ_UNCOMMITTED)
            if isinstance(found, Fetched):
                self._read(found, start)
            elif found is not None and found != OFFSET_OUT_OF_RANGE:  # by now it starts further on
                history.violation(f"{self.name}: {error_name(found)} at {start}")

    def _read(self, found: Fetched, start: int) -> None:
        history = self.world.history
        for offset, value in found.values.items():
            history.read(self.key, READ_UNCOMMITTED, offset, value)
        if found.batches and found.batches[0].header.base_offset > start:
            history.violation(
                f"{self.key} starts at {start}, its first batch at {found.batches[0].header.base_offset}"
            )
        for one, other in pairwise(found.batches):
            if other.header.base_offset != one.header.last_offset + 1:
                history.violation(f"{self.key}: nothing between {one.header} and {other.header}")


class LatestReader(Reader):
    """Asks where the log ends: that never falls back, and is never before what anybody was shown."""

    def __init__(self, world: World, name: str, keys: Sequence[Key]) -> None:
        super().__init__(world, name)
        self.keys = list(keys)

    async def main(self) -> None:
        history = self.world.history
        while not self.world.stopping:
            key, isolation = self.rng.choice(self.keys), self.rng.choice((READ_UNCOMMITTED, READ_COMMITTED))
            await self.leader(key)
            epoch = self.leader_epochs[key]
            known = history.end_at(key, isolation, epoch)
            found = await self.offset(key, LATEST, isolation)
            if found is not None:
                if found < known:
                    history.violation(
                        f"LATEST of {key} (isolation {isolation}, epoch {epoch}) is {found} after {known}"
                    )
                history.saw_end(key, isolation, epoch, found)
            # Where there is no answer, a new leader is asked as soon as there is one.
            await asyncio.sleep(self.rng.random() * (0.3 if found is not None else 0.005))


class TimeReader(Reader):
    """Asks for offsets by time: brokers read old segments for that, while they may be cleaned or cut."""

    def __init__(self, world: World, name: str, key: Key) -> None:
        super().__init__(world, name)
        self.key = key

    async def main(self) -> None:
        begin = self.world.now_ms()
        while not self.world.stopping:
            await self.offset(self.key, self.rng.randint(begin, self.world.now_ms()))
            await asyncio.sleep(self.rng.random() * 0.1)


class FromTheStart(Reader):
    """Reads a compacted log from its start, again and again: the values of a record key stay in order."""

    def __init__(self, world: World, name: str, key: Key, isolation: int = READ_UNCOMMITTED) -> None:
        super().__init__(world, name)
        self.key = key
        self.isolation = isolation

    async def main(self) -> None:
        while not self.world.stopping:
            await self._read()
            await asyncio.sleep(self.rng.random() * 0.2)

    async def _read(self) -> None:
        position, last = 0, dict[tuple[bytes, bytes], int]()
        history, begun, shown = self.world.history, self.loop.now, dict[int, bytes]()
        newest = history.newest_committed(self.key) if self.isolation else {}
        await self.leader(self.key)
        epoch = self.leader_epochs[self.key]
        while not self.world.stopping:
            found = await self.fetch(self.key, position, self.isolation, 0, self.rng.choice((300, 4000)))
            if found is None:
                continue
            if isinstance(found, int):
                history.violation(f"{self.name}: {error_name(found)} at {position}")
                return
            if found.next == position:
                # Slower, or of two replicas, it may see what was deleted and no longer its deletion.
                is_quick = self.loop.now - begun < DELETE_RETENTION_S / 2 and not self.world.clock_jump_s
                if self.isolation and is_quick and self.leader_epochs.get(self.key) == epoch:
                    read = {name: offset for name, offset in newest.items() if offset < position}
                    history.judge_ledger(self.key, read, shown)
                    history.counts["ledgers"] += 1
                return
            for offset, value in found.values.items():
                name, number = line_of(value)
                if number <= last.get(name, -1):
                    history.violation(f"{self.key} at {offset}: {value!r} after {last[name]}")
                last[name] = number
            shown |= found.values
            if self.isolation:
                history.seen_compacted.update(found.values.values())
            position = found.next


class Deleter(Reader):
    """DeleteRecords: what it was told is gone stays gone."""

    def __init__(self, world: World, name: str, key: Key) -> None:
        super().__init__(world, name)
        self.key = key

    async def main(self) -> None:
        key, history = self.key, self.world.history
        while not self.world.stopping:
            await asyncio.sleep(self.rng.random() * 2)
            known = history.earliest[key]
            found = await self.offset(key, EARLIEST)
            if found is not None and found < known:
                history.violation(f"EARLIEST of {key} is {found} after {known}")
            end = await self.offset(key, LATEST)
            if end is None or end <= known:
                continue
            before = self.rng.randint(known, end)
            request = Message(
                topics=[Message(name=key[0], partitions=[Message(partition_index=key[1], offset=before)])],
                timeout_ms=5_000,
            )
            node = await self.leader(key)
            history.earliest_wanted[key] = max(history.earliest_wanted[key], before)
            try:
                answer = await self.call(node, ApiKey.DELETE_RECORDS, 2, request)
            except Lost:
                self.forget_leader(key)
                continue
            result = answer.topics[0].partitions[0]
            if result.error_code:
                self.forget_leader(key)
            else:
                history.counts["DeleteRecords"] += 1
                history.earliest[key] = max(history.earliest[key], result.low_watermark)


def _commit_code(answer: Message) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


class Committer(Client):
    """Commits growing offsets of a group: what it reads back is never older than what was acknowledged."""

    def __init__(self, world: World, name: str, group: str, key: Key) -> None:
        super().__init__(world, name)
        self.group = group
        self.key = key

    async def main(self) -> None:
        sent, acknowledged = 0, -1  # -1: nothing is committed
        history = self.world.history
        while not self.world.stopping:
            sent += 1
            request = Message(
                group_id=self.group,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    Message(
                        name=self.key[0],
                        partitions=[
                            Message(
                                partition_index=self.key[1],
                                committed_offset=sent,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            )
            answer = await self.ask_coordinator(0, self.group, ApiKey.OFFSET_COMMIT, 8, request, _commit_code)
            if _commit_code(answer) == 0:
                acknowledged = sent
                history.counts["offset commits"] += 1
            elif _commit_code(answer) not in RETRY_PARTITION:
                history.violation(f"{self.name}: OffsetCommit is answered {error_name(_commit_code(answer))}")
            if self.rng.random() < 0.3:
                found = await committed_offset(self, self.group, self.key)
                if not acknowledged <= found <= sent:
                    history.violation(f"{self.name}: {found} is committed, {acknowledged} was acknowledged")
            await asyncio.sleep(self.rng.random() * 0.5)


async def committed_offset(client: Client, group: str, key: Key) -> int:
    request = Message(
        groups=[
            Message(
                group_id=group,
                member_id=None,
                member_epoch=-1,
                topics=[Message(name=key[0], partition_indexes=[key[1]])],
            )
        ],
        require_stable=True,
    )

    def code(answer: Message) -> int:
        found = answer.groups[0]
        return int(found.error_code or (found.topics[0].partitions[0].error_code if found.topics else 0))

    while True:
        answer = await client.ask_coordinator(0, group, ApiKey.OFFSET_FETCH, 8, request, code)
        if code(answer) == 0:
            offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
            return offset
        if code(answer) not in (88,):  # UNSTABLE_OFFSET_COMMIT: a transaction is open
            client.world.history.violation(f"OffsetFetch of {group}: {error_name(code(answer))}")
        await client.backoff()


class Chain(TransactionalProducer, Reader):
    """Consumes one partition, writes a copy of each record, and commits both in one transaction."""

    def __init__(
        self, world: World, name: str, transactional_id: str, group: str, source: Key, targets: Sequence[Key]
    ) -> None:
        TransactionalProducer.__init__(self, world, name, transactional_id, targets)
        self.group = group
        self.source = source
        self._position: int | None = None

    async def main(self) -> None:
        await self._init_until_it_works()
        while not (self.world.stopping and self.world.sources_are_done):
            await self.step()
        end = await self._source_end()
        while self._position is None or self._position < end:
            await self.step()

    async def _source_end(self) -> int:
        """With what was committed and has no marker yet."""
        while True:
            found = await self.offset(self.source, LATEST, READ_UNCOMMITTED)
            if found is not None:
                return found
            await self.backoff()

    async def step(self) -> None:
        if self._position is None:
            self._position = max(0, await committed_offset(self, self.group, self.source))
        found = await self.fetch(
            self.source, self._position, READ_COMMITTED, max_bytes=self.rng.choice((1, 200, 1 << 14))
        )
        if found is None:
            return
        if isinstance(found, int):
            self.world.history.violation(f"{self.name}: {error_name(found)} at {self._position}")
            await self.backoff()
            return
        if not found.values:
            self._position = found.next
            await asyncio.sleep(0.05)
            return
        transaction = self.begin()
        transaction.offset = (self.source, self._position, found.next)
        try:
            await self._copy(transaction, found)
            await self._commit_offset(found.next)
            await self.end(transaction, commit=self.rng.random() < 0.85)
            self._position = found.next if transaction.end.value == "committed" else None
        except Abortable as error:
            self.note(f"aborts: {error}")
            self._position = None
            try:
                await self.end(transaction, commit=False)
            except Fenced as reason:
                await self.fenced(transaction, reason)
        except Fenced as reason:
            self._position = None
            await self.fenced(transaction, reason)

    async def _copy(self, transaction: Transaction, found: Fetched) -> None:
        topic, index = self.source
        where = f"in {transaction.producer_id}/{transaction.epoch}"
        values = [
            f"copy of {value.decode()} from {topic}-{index} {offset} {where}".encode()
            for offset, value in found.values.items()
        ]
        key = self.rng.choice(self.keys)
        transaction.values[key] += values
        parts = [
            values[first : first + _COPIES_IN_A_BATCH] for first in range(0, len(values), _COPIES_IN_A_BATCH)
        ]
        await self.write(key, [(self.batch(key, part), part) for part in parts])

    async def _commit_offset(self, offset: int) -> None:
        topic, index = self.source
        request = Message(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                Message(
                    name=topic,
                    partitions=[
                        Message(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )
        answer = await self.ask_coordinator(
            0, self.group, ApiKey.TXN_OFFSET_COMMIT, 5, request, _commit_code, "offsets"
        )
        code = _commit_code(answer)
        if code in (INVALID_EPOCH, FENCED):
            raise Fenced(f"TxnOffsetCommit: {error_name(code)}")
        is_over = code == ABORTABLE and self.may_be_over
        if code and not is_over and code not in RETRY_PARTITION:
            self.world.history.violation(f"{self.name}: TxnOffsetCommit is answered {error_name(code)}")
        if code:
            raise Abortable(f"TxnOffsetCommit: {error_name(code)}")
