"""The shells around the transaction coordinator: what is late, doubled or overtaken changes nothing."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.api import end_txn as end_txn_api
from penstock.broker.api import produce as produce_api
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.broker.net.server import Server
from penstock.broker.transactions.markers import Marker, MarkerWriter, write_marker
from penstock.broker.transactions.peer_batches import PeerBatches
from penstock.broker.transactions.verification import Refused, Verification, for_producers
from penstock.coordinator import Producer
from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OperationNotAttempted,
    OutOfOrderSequenceNumber,
    PeerUnavailable,
    TransactionAbortable,
)
from penstock.replication.delayed import Key
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import TV_0, TV_2, State
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from penstock.wire.primitives import INT32, encode_compact_string, encode_uvarint
from tests.unit.test_transactions_broker import KEY, end, init, is_open, running, state, write


def batch(producer: Producer, sequence: int, count: int = 1) -> bytearray:
    return bytearray(
        build_batch(
            [Record(0, 1, None, b"v")] * count,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )


def append(broker: Broker, producer: Producer, sequence: int, version: int = TV_2) -> None:
    data = batch(producer, sequence)
    broker.partitions[KEY].append(data, 0, len(data), 1, transaction_version=version)


def produce(broker: Broker, producer: Producer, sequence: int, count: int, version: int = 12) -> Any:
    data = batch(producer, sequence, count)
    body = (
        encode_compact_string("x")
        + struct.pack(">hi", -1, 5000)
        + encode_uvarint(2)
        + encode_compact_string("t")
        + encode_uvarint(2)
        + INT32.pack(0)
        + encode_uvarint(len(data) + 1)
        + data
        + b"\0\0\0"
    )
    context = RequestContext(ApiKey.PRODUCE, version, sequence, "c", "p:1")
    return produce_api.handle(broker, context, bytearray(body), 0, len(body))


def hold_replication(broker: Broker) -> Any:
    """The coordinator's partition has a follower that has not fetched; returns what makes it fetch."""
    partition = broker.partitions["__transaction_state", broker.transactions.partition_of("x")]
    partition.update(replace(partition.image, replicas=(1, 2), isr=(1, 2)))
    return lambda: partition.follower_fetched(2, partition.log.log_end_offset)


def sequences(broker: Broker) -> list[int]:
    log = broker.partitions[KEY].log
    return [header.base_sequence for _, _, header in log.headers(0) if not header.is_control]


@pytest.mark.promise(
    "transactions",
    "Pipelined produce requests of a transaction are appended in the order of arrival, even if the first "
    "one waits for the coordinator; with version 2 the first sequence of an epoch is 0",
)
def test_a_produce_does_not_pass_an_earlier_one_that_waits_for_the_coordinator(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            fetch = hold_replication(broker)
            answers = [
                asyncio.ensure_future(produce(broker, producer, *part)) for part in ((0, 3), (3, 2), (5, 1))
            ]
            await asyncio.sleep(0)
            assert sequences(broker) == []
            fetch()
            await asyncio.gather(*answers)
            assert sequences(broker) == [0, 3, 5]

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "Pipelined produce requests of a transaction are appended in the order of arrival, even if the first "
    "one waits for the coordinator; with version 2 the first sequence of an epoch is 0",
)
def test_those_behind_a_produce_whose_client_is_gone_are_appended(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            fetch = hold_replication(broker)
            gone = asyncio.ensure_future(produce(broker, producer, 0, 1))
            behind = asyncio.ensure_future(produce(broker, producer, 0, 1))
            await asyncio.sleep(0)
            gone.cancel()
            fetch()
            await behind
            assert sequences(broker) == [0]

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "After the verification of a batch failed, a partition that does not know the producer accepts "
    "nothing with a higher sequence, so that the client first sends that batch again (KIP-890)",
)
def test_behind_a_batch_that_could_not_be_verified_none_begins_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-890's lowest sequence: an older client sends the refused batch again, and it must come first."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            answers: list[Refused] = [{KEY: NotEnoughReplicas()}, {}, {}, {}]
            monkeypatch.setattr(broker.transactions.verifier, "_ask", lambda asked: answers.pop(0))
            for sequence, count in ((0, 4), (4, 2), (0, 4), (4, 2)):
                produce(broker, producer, sequence, count, version=11)
            assert sequences(broker) == [0, 4]

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A produce request that was verified before its transaction ended is rejected, because it would open "
    "a transaction that never ends",
)
@pytest.mark.parametrize(("abortable", "error"), [(True, TransactionAbortable), (False, InvalidTxnState)])
def test_a_produce_that_was_verified_before_the_marker_came_is_refused(
    tmp_path: Path, abortable: bool, error: type[ApiError]
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            asked = Verification("x", producer, [KEY], False, abortable)
            verified: asyncio.Future[Refused] = broker.loop.create_future()
            verifier = broker.transactions.verifier
            waiting = asyncio.ensure_future(verifier._guarded(asked, verifier._guards(asked), verified))
            await asyncio.sleep(0)
            write_marker(broker, broker.partitions[KEY], Marker(producer, False, 0, TV_0))
            verified.set_result({})
            assert {key: type(found) for key, found in (await waiting).items()} == {KEY: error}

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A produce request that was verified before its transaction ended is rejected, because it would open "
    "a transaction that never ends",
)
def test_a_marker_right_after_the_verification_leaves_no_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            answer: asyncio.Future[Refused] = broker.loop.create_future()
            monkeypatch.setattr(broker.transactions.verifier, "_ask", lambda asked: answer)
            produced = asyncio.ensure_future(produce(broker, producer, 0, 1, version=11))
            await asyncio.sleep(0)
            answer.set_result({})
            # In the same turn of the loop, after all who waited for the answer.
            partition, marker = broker.partitions[KEY], Marker(producer, False, 0, TV_0)
            broker.loop.call_soon(write_marker, broker, partition, marker)
            await produced
            assert not is_open(broker)

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A produce request that was verified before its transaction ended is rejected, because it would open "
    "a transaction that never ends",
)
def test_a_transaction_that_ends_in_one_partition_while_another_is_verified_takes_no_more_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            other = ("__transaction_state", 0)  # any that is here and not in the transaction
            answer: asyncio.Future[Refused] = broker.loop.create_future()
            verifier = broker.transactions.verifier
            monkeypatch.setattr(verifier, "_ask", lambda asked: answer)
            verifying = verifier.verify(Verification("x", producer, [KEY, other], False, True))
            assert not isinstance(verifying, Mapping)
            write_marker(broker, broker.partitions[KEY], Marker(producer, False, 0, TV_0))
            answer.set_result({})
            assert {key: type(found) for key, found in (await verifying).items()} == {
                KEY: TransactionAbortable
            }

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A produce request that was verified before its transaction ended is rejected, because it would open "
    "a transaction that never ends",
)
def test_a_guard_lasts_while_nothing_ends_and_is_not_kept_longer(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            asked = Verification("x", producer, [KEY], False, True)
            verified: asyncio.Future[Refused] = broker.loop.create_future()
            verifier = broker.transactions.verifier
            waiting = asyncio.ensure_future(verifier._guarded(asked, verifier._guards(asked), verified))
            await asyncio.sleep(0)
            producers = broker.partitions[KEY].log.producers
            assert producer in producers._guards
            write_marker(broker, broker.partitions[KEY], Marker(Producer(77, 0), False, 0, TV_0))
            verified.set_result({})
            assert await waiting == {}
            del waiting
            assert not producers._guards

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
def test_a_marker_that_comes_twice_is_written_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            partition = broker.partitions[KEY]
            for version in (TV_0, TV_2):
                marker = Marker(Producer(producer.producer_id, producer.epoch + version), True, 3, version)
                first = write_marker(broker, partition, marker)
                assert write_marker(broker, partition, marker) == first
                assert partition.log.log_end_offset == first + 1
            newer = marker._replace(coordinator_epoch=4)  # its coordinator fences those before it
            assert write_marker(broker, partition, newer) == first + 1

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
def test_with_version_2_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            write(broker, producer)
            answer = end(broker, producer)
            assert isinstance(answer, Message)
            following = Producer(answer.producer_id, answer.producer_epoch)
            write(broker, following)
            with pytest.raises(InvalidProducerEpoch):
                write_marker(broker, broker.partitions[KEY], Marker(following, True, 0, TV_2))
            assert is_open(broker)

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "Pipelined produce requests of a transaction are appended in the order of arrival, even if the first "
    "one waits for the coordinator; with version 2 the first sequence of an epoch is 0",
)
def test_with_version_2_the_first_sequence_of_an_epoch_is_0(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            with pytest.raises(OutOfOrderSequenceNumber):
                append(broker, producer, 3)
            append(broker, producer, 0)
            bumped = Producer(producer.producer_id, producer.epoch + 1)
            write_marker(broker, broker.partitions[KEY], Marker(bumped, True, 0, TV_2))
            with pytest.raises(OutOfOrderSequenceNumber):
                append(broker, bumped, 3)
            append(broker, bumped, 0)

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A client's next transaction waits while the previous one is ending; it is never fenced or aborted "
    "because of that, even if the producer id changes",
)
def test_a_transaction_does_not_begin_where_the_last_one_has_not_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            append(broker, producer, 0)
            bumped = Producer(producer.producer_id, producer.epoch + 1)
            with pytest.raises(ConcurrentTransactions):
                append(broker, bumped, 0)
            found = broker.transactions.verifier.verify(Verification("x", bumped, [KEY], True, True))
            refused = found if isinstance(found, Mapping) else await found
            assert isinstance(refused[KEY], ConcurrentTransactions)

    asyncio.run(main())


async def ending(broker: Broker) -> tuple[Producer, asyncio.Future[Message]]:
    """A commit whose marker has a follower to wait for; and the answer to EndTxn."""
    producer = await init(broker)
    write(broker, producer)
    partition = broker.partitions[KEY]
    partition.update(replace(partition.image, replicas=(1, 2), isr=(1, 2)))
    request = Message(
        transactional_id="x", producer_id=producer.producer_id, producer_epoch=0, committed=True
    )
    answer = end_txn_api.handle(broker, RequestContext(ApiKey.END_TXN, 5, 0, "c", "p:1"), request)
    assert asyncio.iscoroutine(answer)
    return producer, asyncio.ensure_future(answer)


@pytest.mark.promise(
    "transactions",
    "EndTxn and Produce wait in the broker for the markers of the previous transaction, at most for "
    "`add.partitions.to.txn.retry.backoff.max.ms`",
)
def test_the_end_is_answered_with_its_markers_and_the_next_produce_waits_for_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **{"add_partitions_to_txn_retry_backoff_max_ms": "60000"}) as broker:
            producer, ended = await ending(broker)
            partition = broker.partitions[KEY]
            following = Producer(producer.producer_id, producer.epoch + 1)
            asked = Verification("x", following, [KEY], True, True)
            verifying = broker.transactions.verifier.verify(asked)
            assert not isinstance(verifying, Mapping)
            verified = asyncio.ensure_future(verifying)
            await asyncio.sleep(0)
            assert state(broker) == State.PREPARE_COMMIT
            assert not ended.done()
            partition.follower_fetched(2, partition.log.log_end_offset)
            assert (await ended).producer_epoch == following.epoch
            assert await verified == {}
            assert not broker.transactions._ending

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "EndTxn and Produce wait in the broker for the markers of the previous transaction, at most for "
    "`add.partitions.to.txn.retry.backoff.max.ms`",
)
def test_the_end_is_answered_also_where_its_markers_take_long(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **{"add_partitions_to_txn_retry_backoff_max_ms": "1"}) as broker:
            producer, ended = await ending(broker)
            assert (await ended).error_code == 0
            assert state(broker) == State.PREPARE_COMMIT
            following = Producer(producer.producer_id, producer.epoch + 1)
            refused = broker.transactions.verifier.verify(Verification("x", following, [KEY], True, True))
            assert not isinstance(refused, Mapping)
            assert isinstance((await refused)[KEY], ConcurrentTransactions)

    asyncio.run(main())


# Markers to other brokers


class Cluster:
    """What a MarkerWriter sees: partitions that others lead, and requests that are answered on demand."""

    def __init__(self) -> None:
        self.leader = 2
        self.requests: list[tuple[int, Message, asyncio.Future[int]]] = []
        self.reported: list[set[Key]] = []
        self.brokers = {2: SimpleNamespace(epoch=1), 3: SimpleNamespace(epoch=1)}
        stub = SimpleNamespace(
            id=1,
            loop=asyncio.get_running_loop(),
            partitions={},
            image=SimpleNamespace(partition=lambda *key: SimpleNamespace(leader=self.leader)),
            controller=SimpleNamespace(image=SimpleNamespace(brokers=self.brokers)),
            peers=SimpleNamespace(call=self.call),
        )
        self.writer = MarkerWriter(
            cast("Broker", stub), lambda markers, written: self.reported.append(written)
        )

    async def call(self, broker_id: int, api: ApiKey, version: int, request: Message, **_: Any) -> Message:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, request, answer))
        code = await answer
        return Message(
            markers=[
                Message(
                    topics=[
                        Message(
                            name=topic.name,
                            partitions=[
                                Message(partition_index=index, error_code=code)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ]
                )
                for marker in request.markers
            ]
        )

    async def ask(self, version: int, *names: str) -> None:
        for name in names or ("x",):
            self.writer.write(WriteMarkers(name, 7, 1, 0, True, frozenset([KEY]), version))
        await settle()

    async def answer(self, number: int, code: int | Exception) -> None:
        future = self.requests[number][2]
        future.set_exception(code) if isinstance(code, Exception) else future.set_result(code)
        await settle()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
@pytest.mark.parametrize("version", [TV_0, TV_2])
def test_there_are_never_two_markers_under_way_for_one(version: int) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.ask(version)
        await cluster.ask(version)
        assert len(cluster.requests) == 1
        [marker] = cluster.requests[0][1].markers
        assert marker.transaction_version == version
        await cluster.answer(0, NotLeaderOrFollower.code)
        assert cluster.reported == []
        await cluster.ask(version)
        assert len(cluster.requests) == 2
        await cluster.answer(1, 0)
        assert cluster.reported == [{KEY}]

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "Concurrent requests to the same broker are sent as one request; a slow broker gets larger requests, "
    "not more of them",
)
def test_markers_of_many_transactions_to_one_broker_go_in_one_request() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.ask(TV_2, "a", "b", "c")
        assert [len(request.markers) for _, request, _ in cluster.requests] == [3]
        await cluster.answer(0, 0)
        assert cluster.reported == [{KEY}] * 3

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
@pytest.mark.parametrize(("version", "next_broker"), [(TV_0, 2), (TV_2, 3)])
def test_before_version_2_no_other_broker_gets_a_marker_that_may_still_arrive(
    version: int, next_broker: int
) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.ask(version)
        cluster.leader = 3
        await cluster.answer(0, PeerUnavailable(2, "cut", sent=True))
        await cluster.ask(version)
        assert [broker_id for broker_id, _, _ in cluster.requests] == [2, next_broker]
        await cluster.answer(1, NotLeaderOrFollower.code)  # an answer: what was sent before is past
        await cluster.ask(version)
        assert cluster.requests[2][0] == 3

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
@pytest.mark.parametrize("gone", ["never sent", "left"])
def test_a_marker_goes_to_the_new_leader_when_the_old_one_can_no_longer_get_it(gone: str) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.ask(TV_0)
        cluster.leader = 3
        await cluster.answer(0, PeerUnavailable(2, "cut", sent=gone != "never sent"))
        if gone == "left":
            del cluster.brokers[2]
        await cluster.ask(TV_0)
        assert cluster.requests[1][0] == 3

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
def test_a_broker_that_was_started_again_is_asked_before_another_gets_its_marker() -> None:
    """The image is late: the request may have reached the process that is registered only now."""

    async def main() -> None:
        cluster = Cluster()
        await cluster.ask(TV_0)
        cluster.leader = 3
        cluster.brokers[2] = SimpleNamespace(epoch=2)
        await cluster.answer(0, PeerUnavailable(2, "cut", sent=True))
        await cluster.ask(TV_0)
        assert cluster.requests[1][0] == 2
        await cluster.answer(1, NotLeaderOrFollower.code)
        await cluster.ask(TV_0)
        assert cluster.requests[2][0] == 3

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late or duplicate marker ends no transaction: at most one is in flight, responses on a replaced "
    "connection are ignored, and epochs are checked locally and on other brokers",
)
def test_requests_of_a_connection_that_was_replaced_are_late() -> None:
    server = Server.__new__(Server)
    server._newest = {}

    def late(client: str, connection: int) -> bool:
        return server.is_replaced(RequestContext(27, 2, 0, client, "p:1", connection))

    assert not late("broker-1-markers", 4)
    assert not late("broker-2-markers", 3)
    assert not late("broker-1-markers", 6)
    assert late("broker-1-markers", 4)
    assert not late("broker-1-markers", 6)


@pytest.mark.promise(
    "transactions",
    "Concurrent requests to the same broker are sent as one request; a slow broker gets larger requests, "
    "not more of them",
)
def test_requests_to_a_slow_broker_get_larger_not_more() -> None:
    async def main() -> None:
        sent: list[tuple[list[int], asyncio.Future[None]]] = []

        async def send(broker_id: int, items: list[int]) -> list[int]:
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            sent.append((items, gate))
            await gate
            return [item * 10 for item in items]

        batches: PeerBatches[int, int] = PeerBatches(asyncio.get_running_loop(), send)
        answers = []
        for number in range(8):
            answers.append(batches.ask(1, number))
            await settle()
        assert [items for items, _ in sent] == [[0], [1], [2], [3]]
        sent[2][1].set_result(None)
        await settle()
        assert sent[4][0] == [4, 5, 6, 7]
        for _, gate in sent:
            if not gate.done():
                gate.set_result(None)
        assert await asyncio.gather(*answers) == [number * 10 for number in range(8)]

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A transactional produce request gets a response even if its topic is deleted meanwhile or the "
    "coordinator sends an invalid response",
)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_answer_of_the_wrong_length_is_an_answer_of_nobody(count: int) -> None:
    """The broker has got the request all the same: markers are not sent to another one before it answers."""

    async def main() -> None:
        async def send(broker_id: int, items: list[int]) -> list[int]:
            return [0] * count

        batches: PeerBatches[int, int] = PeerBatches(asyncio.get_running_loop(), send)
        answers = [batches.ask(1, number) for number in range(2)]
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            assert isinstance(outcome, PeerUnavailable)
            assert outcome.sent
        await settle()
        assert not batches._tasks

    asyncio.run(main())


@pytest.mark.parametrize("version_2", [False, True])
def test_partitions_that_were_not_added_because_of_another_one_are_tried_again(version_2: bool) -> None:
    """The coordinator has not heard of a new topic, and adds none of the partitions of the request."""
    assert isinstance(for_producers(OperationNotAttempted(), version_2), NotEnoughReplicas)
