"""Writers of the simulation: idempotent ones, and transactions as Java's client (version 2) and older
ones do them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.sim.brokers.client import RETRY_PARTITION, Client, Key, Lost, error_name
from tests.sim.brokers.history import End, Transaction, deletes, key_of

if TYPE_CHECKING:
    from tests.sim.brokers.world import World

OUT_OF_ORDER, DUPLICATE, INVALID_EPOCH, CONCURRENT, FENCED, ABORTABLE = 45, 46, 47, 51, 90, 120
REQUEST_TIMED_OUT = 7
_OPERATION_NOT_ATTEMPTED = 55
_REQUEST_TIMEOUT_MS = 8_000

Batches = Sequence[tuple[bytes, Sequence[bytes]]]
"""Encoded, and the values in each."""


class Fenced(Exception):
    """The producer cannot go on with its epoch."""


class Abortable(Exception):
    """The transaction must be aborted."""


class Producer(Client):
    """What all writers have: a producer id, sequences, pipelined batches."""

    transactional_id: str | None = None
    produce_version = 9
    may_be_over = False

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[Key, int] = {}
        self._number = 0

    def new_values(self, count: int) -> list[bytes]:
        first = self._number
        self._number += count
        return [f"{self.name}:{number}".encode() for number in range(first, self._number)]

    async def init(self, *, keep: bool = False) -> None:
        """A producer id and epoch; with `keep` the next epoch of what it has."""
        request = Message(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.world.transaction_timeout_ms,
            producer_id=self.producer_id if keep else -1,
            producer_epoch=self.epoch if keep else -1,
            enable2_pc=False,
            keep_prepared_txn=False,
        )
        if self.transactional_id is None:
            while True:
                answer = await self.any(ApiKey.INIT_PRODUCER_ID, 5, request)
                if answer.error_code == 0:
                    break
                await self.backoff()
        else:
            answer = await self.ask_coordinator(
                1,
                self.transactional_id,
                ApiKey.INIT_PRODUCER_ID,
                5,
                request,
                lambda answer: answer.error_code,
            )
            if answer.error_code:
                raise Fenced(f"InitProducerId: {error_name(answer.error_code)}")
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        self.note(f"has producer id {self.producer_id}, epoch {self.epoch}")

    def record(self, timestamp: int, value: bytes) -> Record:
        return Record(0, timestamp, None, value)

    def batch(self, key: Key, values: Sequence[bytes]) -> bytes:
        now = self.world.now_ms()
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + len(values)
        return build_batch(
            [self.record(now, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=self.transactional_id is not None,
        )

    async def write(self, key: Key, batches: Batches, gap_s: float = 0.0) -> list[int]:
        """Send them one after the other without waiting, and again from the first that failed, as clients
        with idempotence do. The offsets of their first records."""
        offsets: list[int] = []
        while len(offsets) < len(batches):
            left = batches[len(offsets) :]
            node = await self.leader(key)
            try:
                connection = await self._connection(node, "produce")
            except Lost:
                self.forget_leader(key)
                await self.backoff()
                continue
            sent = []
            for number, (data, _) in enumerate(left):
                if number and gap_s:
                    await asyncio.sleep(gap_s * self.rng.random())
                request = self._produce({key: data})
                sent.append(
                    asyncio.ensure_future(
                        self.answer(connection, ApiKey.PRODUCE, self.produce_version, request)
                    )
                )
                await asyncio.sleep(0)
            answers = await asyncio.gather(*sent, return_exceptions=True)
            retried = False
            for number, answer in enumerate(answers):
                if isinstance(answer, Lost):
                    self.forget_leader(key)
                    retried = True
                    break
                if isinstance(answer, BaseException):
                    raise answer
                result = answer.responses[0].partition_responses[0]
                if result.error_code in (0, DUPLICATE):
                    offsets.append(result.base_offset if result.error_code == 0 else -1)
                    continue
                self._refused(key, result.error_code, number)
                retried = True
                break
            if retried:
                await self.backoff()
        return offsets

    async def write_together(self, batches: Mapping[Key, Batches]) -> dict[Key, list[int]]:
        """The first batch of each partition in one request to each leader, then the rest of them, and what
        was refused, by partition. The offsets of their first records."""
        by_leader: dict[int, list[Key]] = {}
        for key in batches:
            by_leader.setdefault(await self.leader(key), []).append(key)
        offsets: dict[Key, list[int]] = {key: [] for key in batches}
        refused: list[Exception] = []

        async def send(node: int, keys: Sequence[Key]) -> None:
            request = self._produce({key: batches[key][0][0] for key in keys})
            try:
                answer = await self.call(node, ApiKey.PRODUCE, self.produce_version, request, "produce")
            except Lost:
                for key in keys:
                    self.forget_leader(key)
                return
            for topic in answer.responses:
                for result in topic.partition_responses:
                    key = (topic.name, result.index)
                    if result.error_code in (0, DUPLICATE):
                        offsets[key].append(result.base_offset if result.error_code == 0 else -1)
                        continue
                    try:
                        self._refused(key, result.error_code, 0)
                    except (Fenced, Abortable) as error:
                        refused.append(error)

        await asyncio.gather(*(send(node, keys) for node, keys in by_leader.items()))
        for kind in (Fenced, Abortable):
            for error in refused:
                if isinstance(error, kind):
                    raise error
        for key, sent in batches.items():
            offsets[key] += await self.write(key, sent[len(offsets[key]) :])
        return offsets

    def _refused(self, key: Key, code: int, number: int) -> None:
        """Returns where the batch is to be sent again."""
        if code == OUT_OF_ORDER and number == 0:
            self.world.history.violation(
                f"{self.name} ({self.producer_id}, {self.epoch}): its next batch for {key} is OUT_OF_ORDER"
            )
            raise Abortable(error_name(code))
        if code == REQUEST_TIMED_OUT and self.world.schedule.faults == ():
            self.world.history.violation(f"{self.name}: produce to {key} times out, though nothing fails")
        if code in RETRY_PARTITION:
            self.forget_leader(key)
            return
        if code in (OUT_OF_ORDER, CONCURRENT):
            return
        if code in (INVALID_EPOCH, FENCED):
            raise Fenced(f"Produce: {error_name(code)}")
        if code == ABORTABLE:
            if not self.may_be_over:
                self.world.history.violation(
                    f"{self.name} ({self.producer_id}, {self.epoch}): its transaction in {key} is aborted"
                    " without a reason"
                )
            raise Abortable(error_name(code))
        self.world.history.violation(f"{self.name}: produce to {key} is answered {error_name(code)}")
        raise Abortable(error_name(code))

    def _produce(self, batches: Mapping[Key, bytes]) -> Message:
        topics: dict[str, list[Message]] = {}
        for (topic, index), data in batches.items():
            topics.setdefault(topic, []).append(Message(index=index, records=data))
        return Message(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=_REQUEST_TIMEOUT_MS,
            topic_data=[Message(name=topic, partition_data=data) for topic, data in topics.items()],
        )


class IdempotentProducer(Producer):
    """Writes to one partition, several batches under way, or to some, with the batches of all of them in one
    request."""

    most_batches = 5

    def __init__(self, world: World, name: str, *keys: Key) -> None:
        super().__init__(world, name)
        self.keys = keys

    async def main(self) -> None:
        history = self.world.history
        await self.init()
        while not self.world.stopping:
            chosen = self.rng.sample(self.keys, self.rng.randint(1, len(self.keys)))
            batches = {key: self._batches(key) for key in chosen}
            try:
                offsets = await self._write(batches)
            except (Fenced, Abortable) as error:
                history.violation(f"{self.name}: an idempotent producer dies of {error}")
                return
            for key in chosen:
                for offset, (_, values) in zip(offsets[key], batches[key], strict=True):
                    for index, value in enumerate(values):
                        history.acknowledged[key][value] = offset + index if offset >= 0 else -1
                history.counts["acknowledged batches"] += len(batches[key])
            await asyncio.sleep(self.rng.random() * 0.3)

    def _batches(self, key: Key) -> list[tuple[bytes, Sequence[bytes]]]:
        batches: list[tuple[bytes, Sequence[bytes]]] = []
        for _ in range(self.rng.randint(1, self.most_batches)):
            values = self.new_values(self.rng.randint(1, 3))
            self.world.history.sent[key] += values
            batches.append((self.batch(key, values), values))
        return batches

    async def _write(self, batches: Mapping[Key, Batches]) -> dict[Key, list[int]]:
        if len(self.keys) == 1:
            return {key: await self.write(key, sent) for key, sent in batches.items()}
        return await self.write_together(batches)


class KeyedProducer(IdempotentProducer):
    """Writes to a compacted topic, one batch at a time: compaction keeps the last batch of a producer, and
    after a crash no other is known, as with Kafka. A retry of several could be out of order."""

    most_batches = 1

    def record(self, timestamp: int, value: bytes) -> Record:
        return Record(0, timestamp, key_of(value), value)


class TransactionalProducer(Producer):
    """Version 2 as Java does it: Produce adds the partitions, EndTxn gives the next epoch."""

    produce_version = 12
    end_version = 5
    version = 2

    def __init__(self, world: World, name: str, transactional_id: str, keys: Sequence[Key]) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id
        self.keys = list(keys)
        self.begun = 0.0
        self.impatience = self.rng.choice((0, 0.05, 0.3))
        self.current: Transaction | None = None

    async def main(self) -> None:
        await self._init_until_it_works()
        while not self.world.stopping:
            await self.step()
            if self.rng.random() < 0.6:
                await asyncio.sleep(self.rng.random() * self.rng.choice((0.005, 0.3)))

    async def step(self) -> None:
        """One transaction, from its begin to its end."""
        rng = self.rng
        if self.version == 2 and rng.random() < 0.1:
            await self._abort_without_records()
            return
        transaction = self.begin()
        try:
            chosen = rng.sample(self.keys, rng.randint(1, min(3, len(self.keys))))
            await self.fill(transaction, chosen)
            await self.end(transaction, commit=rng.random() < 0.75)
        except Abortable as error:
            self.note(f"aborts: {error}")
            try:
                await self.end(transaction, commit=False)
                if self.version < 2:
                    await self._bump()
            except Fenced as reason:
                await self.fenced(transaction, reason)
        except Fenced as reason:
            await self.fenced(transaction, reason)

    async def _bump(self) -> None:
        """The next epoch. A coordinator that took over does not know a first try whose answer was lost, and
        fences the second, as Kafka's does."""
        try:
            await self.init(keep=True)
        except Fenced:
            await self._init_until_it_works()

    def begin(self) -> Transaction:
        self.begun = self.loop.now
        transaction = Transaction(self.name, self.producer_id, self.epoch, self.version)
        self.current = transaction
        self.world.history.transactions.append(transaction)
        return transaction

    async def fill(self, transaction: Transaction, keys: Sequence[Key]) -> None:
        batches: dict[Key, list[tuple[bytes, Sequence[bytes]]]] = {key: [] for key in keys}
        for key in keys:
            for _ in range(self.rng.choice((1, 1, 2, 3))):
                values = self.new_values(self.rng.choice((1, 2, 4)))
                transaction.values[key] += values
                batches[key].append((self.batch(key, values), values))
        if len(keys) > 1 and self.rng.random() < 0.5:
            await self.add(keys)
            await self.write_together(batches)
            return
        outcomes = await asyncio.gather(
            *(self.add_and_write(key, sent) for key, sent in batches.items()), return_exceptions=True
        )
        for kind in (Fenced, Abortable, BaseException):
            for outcome in outcomes:
                if isinstance(outcome, kind):
                    raise outcome

    async def add(self, keys: Sequence[Key]) -> None:
        """Before they are written to. Since version 2, Produce does it."""

    async def add_and_write(self, key: Key, batches: Batches) -> None:
        await self.add([key])
        writing = self.write(key, batches, gap_s=self.rng.choice((0.0, 0.003)))
        if self.rng.random() >= self.impatience:
            await writing
            return
        try:  # as when delivery.timeout.ms is over: the request may arrive when the transaction has ended
            await asyncio.wait_for(writing, self.rng.random() * self.rng.choice((0.005, 0.05)))
        except TimeoutError:
            raise Abortable("the time for delivery is over") from None

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        assert self.transactional_id is not None
        transaction.end = End.COMMITTING if commit else End.NEVER
        request = Message(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.ask_coordinator(
            1,
            self.transactional_id,
            ApiKey.END_TXN,
            self.end_version,
            request,
            lambda answer: answer.error_code,
        )
        code = answer.error_code
        if code:
            if code not in (INVALID_EPOCH, FENCED) and not self.may_be_over:
                self.world.history.violation(
                    f"{self.name} ({self.producer_id}, {self.epoch}): EndTxn is answered {error_name(code)}"
                )
            raise Fenced(f"EndTxn: {error_name(code)}")
        transaction.end = End.COMMITTED if commit else End.ABORTED
        self.world.history.counts[transaction.end.value] += 1
        if self.version == 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    @property
    def may_be_over(self) -> bool:
        """Whether the coordinator may have ended the transaction for its age."""
        limit = self.world.transaction_timeout_ms / 1000 - 1 - self.world.clock_jump_s
        return self.loop.now - self.begun > limit

    async def _abort_without_records(self) -> None:
        """Java does so for a transaction whose records were never sent."""
        transaction = self.begin()
        await asyncio.sleep(self.rng.random() * 0.004)
        try:
            await self.end(transaction, commit=False)
        except Fenced as reason:
            await self.fenced(transaction, reason)

    async def fenced(self, transaction: Transaction, reason: Fenced) -> None:
        self.note(f"({self.producer_id}, {self.epoch}) is fenced: {reason}")
        if not self.may_be_over:
            self.world.history.violation(
                f"{self.name} ({self.producer_id}, {self.epoch}) is fenced without a reason: {reason}"
            )
        if transaction.end is not End.COMMITTING:
            transaction.end = End.NEVER
        await self._init_until_it_works()

    async def _init_until_it_works(self) -> None:
        while True:
            try:
                await self.init()
                return
            except Fenced:
                await self.backoff()


class HastyProducer(TransactionalProducer):
    """Transactions without a pause, with batches one after the other for one partition: those of the next
    transaction come while the last one is still ending, and some wait for that while others do not."""

    async def main(self) -> None:
        await self._init_until_it_works()
        while not self.world.stopping:
            transaction = self.begin()
            key, *others = self.rng.sample(self.keys, min(2, len(self.keys)))
            try:
                await asyncio.gather(
                    self._pipeline(transaction, key, 5),
                    *(self._pipeline(transaction, one, 1) for one in others),
                )
                await self.end(transaction, commit=self.rng.random() < 0.9)
            except Abortable as error:
                self.note(f"aborts: {error}")
                try:
                    await self.end(transaction, commit=False)
                except Fenced as reason:
                    await self.fenced(transaction, reason)
            except Fenced as reason:
                await self.fenced(transaction, reason)

    async def _pipeline(self, transaction: Transaction, key: Key, count: int) -> None:
        batches = []
        for _ in range(count):
            values = self.new_values(1)
            transaction.values[key] += values
            batches.append((self.batch(key, values), values))
        await self.write(key, batches, gap_s=self.rng.choice((0.002, 0.02, 0.1)))


class OldTransactionalProducer(TransactionalProducer):
    """As clients before version 2: AddPartitionsToTxn first, and the epoch stays."""

    produce_version = 11
    end_version = 4
    version = 0

    def __init__(self, world: World, name: str, transactional_id: str, keys: Sequence[Key]) -> None:
        super().__init__(world, name, transactional_id, keys)
        self._adding = asyncio.Lock()

    async def add(self, keys: Sequence[Key]) -> None:
        assert self.transactional_id is not None
        request = Message(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Message(name=topic, partitions=[index]) for topic, index in keys],
        )

        def code(answer: Message) -> int:
            codes = [
                partition.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ]
            return next((one for one in codes if one and one != _OPERATION_NOT_ATTEMPTED), 0)

        while True:
            async with self._adding:
                answer = await self.ask_coordinator(
                    1, self.transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, code
                )
            found = code(answer)
            if found == 0:
                return
            if found in (INVALID_EPOCH, FENCED):
                raise Fenced(f"AddPartitionsToTxn: {error_name(found)}")
            if found not in RETRY_PARTITION:
                self.world.history.violation(
                    f"{self.name}: AddPartitionsToTxn is answered {error_name(found)}"
                )
                raise Abortable(error_name(found))
            await self.backoff()


class LedgerProducer(TransactionalProducer):
    """Transactions in a compacted topic, whose record keys are those of all writers; one batch at a time, as
    KeyedProducer. Some records delete their key: a header has what else is the value."""

    def record(self, timestamp: int, value: bytes) -> Record:
        if deletes(value):
            return Record(0, timestamp, key_of(value), None, (("value", value),))
        return Record(0, timestamp, key_of(value), value)

    async def fill(self, transaction: Transaction, keys: Sequence[Key]) -> None:
        for key in keys:
            await self.add([key])
            for _ in range(self.rng.choice((1, 1, 2))):
                values = self.new_values(self.rng.choice((1, 2, 4)))
                transaction.values[key] += values
                (offset,) = await self.write(key, [(self.batch(key, values), values)])
                if offset >= 0:
                    transaction.offsets.update(zip(values, range(offset, offset + len(values)), strict=True))


class OldLedgerProducer(LedgerProducer, OldTransactionalProducer):
    """The same, as clients before version 2."""


class ImpatientProducer(OldTransactionalProducer):
    """Gives batches up and ends the transaction while the broker may still be verifying them."""

    def __init__(self, world: World, name: str, transactional_id: str, keys: Sequence[Key]) -> None:
        super().__init__(world, name, transactional_id, keys)
        self.impatience = 0.8
