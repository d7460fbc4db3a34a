"""The coordinator inside a broker: what is decided is done, whatever the disks and the other replicas do."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.transactions.verification import Verification
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicSpec
from penstock.coordinator import Producer
from penstock.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidTxnState,
    NotEnoughReplicas,
    TransactionAbortable,
)
from penstock.fs import REAL_FS, FaultyFs, Fs
from penstock.replication.delayed import Key
from penstock.transactions.state import State
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message

KEY = ("t", 0)


@asynccontextmanager
async def running(directory: Path, fs: Fs = REAL_FS, **settings: str) -> AsyncIterator[Broker]:
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "transaction.state.log.num.partitions": "2",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    broker = Broker(BrokerConfig.parse(values), ManualClock(), fs)
    await broker.start()
    try:
        if "t" not in broker.image.topics:
            await broker.controller.create_topics([TopicSpec("t", 1, 1)])
            await broker.caught_up()
        await broker.transactions.ensure_topic()
        yield broker
    finally:
        await broker.stop()


def verify_or_add(
    broker: Broker, transactional_id: str, producer: Producer, *, add: bool, abortable: bool
) -> Mapping[Key, ApiError]:
    refused = broker.transactions.verifier.verify(
        Verification(transactional_id, producer, [KEY], add, abortable)
    )
    assert isinstance(refused, Mapping), "nothing is to be waited for on one broker"
    return refused


async def init(broker: Broker, transactional_id: str = "x") -> Producer:
    await broker.transactions.producer_ids.filled()
    request = Message(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answer = broker.transactions.call(
        transactional_id, lambda shard, token, now: shard.init_producer_id(request, token, now)
    )
    if isinstance(answer, asyncio.Future):
        answer = await answer
    return Producer(answer.producer_id, answer.producer_epoch)


def write(broker: Broker, producer: Producer) -> None:
    refused = verify_or_add(broker, "x", producer, add=True, abortable=True)
    assert not refused
    batch = bytearray(
        build_batch(
            [Record(0, broker.clock.now_ms(), None, b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
    )
    broker.partitions[KEY].append(batch, 0, len(batch), 1)


def end(broker: Broker, producer: Producer, commit: bool = True) -> Message | asyncio.Future[Message]:
    request = Message(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return broker.transactions.call("x", lambda shard, token, now: shard.end_txn(request, 5, token, now))


def state(broker: Broker) -> State:
    return broker.transactions.shard_for("x").transactions["x"].state


def is_open(broker: Broker) -> bool:
    log = broker.partitions[KEY].log
    return log.last_stable_offset < log.log_end_offset


@pytest.mark.promise(
    "transactions",
    "A transaction over several partitions ends on all of them, no matter how often the coordinator dies",
)
def test_markers_that_could_not_be_written_are_written_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        fs = FaultyFs()
        async with running(tmp_path, fs) as broker:
            producer = await init(broker)
            write(broker, producer)
            fs.fail("write", "/t-0/", errno.ENOSPC)
            end(broker, producer)  # decided, and answered
            assert state(broker) == State.PREPARE_COMMIT
            assert is_open(broker)
        async with running(tmp_path) as broker:
            assert state(broker) == State.COMPLETE_COMMIT
            assert not is_open(broker)
            assert broker.partitions[KEY].log.aborted_transactions(0, 99) == []

    asyncio.run(main())


@pytest.mark.promise(
    "transactions", "The decision to commit or abort a transaction counts only once it is written"
)
def test_a_decision_that_cannot_be_written_leaves_no_marker(tmp_path: Path) -> None:
    async def main() -> None:
        fs = FaultyFs()
        async with running(tmp_path, fs) as broker:
            producer = await init(broker)
            write(broker, producer)
            fs.fail("write", "__transaction_state", errno.ENOSPC)
            with pytest.raises(CoordinatorNotAvailable):
                end(broker, producer)
            assert state(broker) == State.ONGOING
            assert is_open(broker)
            end(broker, producer, commit=False)
            assert state(broker) == State.COMPLETE_ABORT
            assert not is_open(broker)

    asyncio.run(main())


def test_a_transaction_is_complete_when_its_markers_are_replicated(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            partition = broker.partitions[KEY]
            partition.update(replace(partition.image, replicas=(1, 2), isr=(1, 2)))
            end(broker, producer)
            assert state(broker) == State.PREPARE_COMMIT
            partition.follower_fetched(2, partition.log.log_end_offset)
            await asyncio.sleep(0)  # who waits is woken by the loop
            assert state(broker) == State.COMPLETE_COMMIT

    asyncio.run(main())


def test_many_producers_at_once_get_ids_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:

            async def patient(name: str) -> Producer:
                while True:
                    try:
                        return await init(broker, name)
                    except ApiError as error:
                        assert error.retriable

            found = await asyncio.gather(*(patient(f"p{number}") for number in range(200)))
            assert len({producer.producer_id for producer in found}) == 200

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "Whenever the broker returns INVALID_TXN_STATE, it logs the request, the state and the epochs",
)
def test_invalid_txn_state_is_logged_with_state_and_epochs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            with caplog.at_level(logging.WARNING, "penstock"):
                verify_or_add(broker, "x", producer, add=False, abortable=False)

    asyncio.run(main())
    (line,) = [one.getMessage() for one in caplog.records if "INVALID_TXN_STATE" in one.getMessage()]
    assert line.startswith("Produce of 'x' to t-0, producer 0 epoch 0, is answered INVALID_TXN_STATE: ")
    assert "in state Empty, of producer 0 epoch 0, transaction version" in line


def test_a_partition_outside_the_transaction_is_refused_as_the_client_understands_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)

            def refused(name: str, *, add: bool, abortable: bool) -> type[ApiError]:
                answer = verify_or_add(broker, name, producer, add=add, abortable=abortable)
                return type(answer[KEY])

            assert refused("x", add=False, abortable=False) is InvalidTxnState
            assert refused("x", add=False, abortable=True) is TransactionAbortable
            broker.transactions._give_up(broker.transactions.partition_of("x"))
            assert refused("x", add=True, abortable=True) is NotEnoughReplicas

    asyncio.run(main())


def test_verification_of_older_clients_can_be_switched_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, transaction_partition_verification_enable="false") as broker:
            producer = await init(broker)
            assert not verify_or_add(broker, "x", producer, add=False, abortable=False)
            assert state(broker) == State.EMPTY

    asyncio.run(main())
