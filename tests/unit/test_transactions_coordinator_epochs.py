"""What a former time of a coordinator had begun does not count for what it decides when it is back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.transactions.markers import Marker, MarkerWriter, write_marker
from penstock.broker.transactions.verification import Refused, Verification
from penstock.coordinator import Producer
from penstock.errors import TransactionCoordinatorFenced
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import TV_0, TV_2, State
from penstock.wire.codec import Message
from tests.unit.test_transactions_broker import KEY, init, is_open, running, state
from tests.unit.test_transactions_shells import append


def add(broker: Broker, producer: Producer) -> None:
    broker.transactions.call(
        "x", lambda shard, token, now: shard.add_partitions("x", *producer, frozenset([KEY]), 0, token, now)
    )


def commit(broker: Broker, producer: Producer) -> None:
    request = Message(
        transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    broker.transactions.call("x", lambda shard, token, now: shard.end_txn(request, 4, token, now))


def elect_again(broker: Broker) -> None:
    partition = broker.partitions["__transaction_state", broker.transactions.partition_of("x")]
    image = broker.image
    known = image.topics["__transaction_state"]
    new = replace(partition.image, leader_epoch=partition.image.leader_epoch + 1)
    partitions = tuple(new if one.index == new.index else one for one in known.partitions)
    topics = {**image.topics, known.name: replace(known, partitions=partitions)}
    partition.update(new)
    broker.topics.image = replace(image, topics=topics, topics_by_id={one.id: one for one in topics.values()})
    broker.coordinators.on_image(broker.topics.image)


@pytest.mark.promise(
    "transactions",
    "A late response to a request that a coordinator sent before a failover does not end the next "
    "transaction",
)
def test_a_late_answer_of_a_former_coordinator_does_not_end_the_next_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before version 2 both transactions have one epoch. The coordinator went to another broker, which ended
    the first one, and came back while the answer to its first request was on the way (35 s at most)."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            asked: list[WriteMarkers] = []  # the partition's leader is another broker, which answers later
            monkeypatch.setattr(MarkerWriter, "write", lambda _, markers: asked.append(markers))
            producer = await init(broker)
            add(broker, producer)
            append(broker, producer, 0, version=0)
            commit(broker, producer)
            [former] = asked
            elect_again(broker)
            again = asked[-1]
            assert again.coordinator_epoch > former.coordinator_epoch
            write_marker(broker, broker.partitions[KEY], Marker(producer, True, again.coordinator_epoch, 0))
            broker.transactions._report(again, {KEY})
            assert state(broker) == State.COMPLETE_COMMIT
            elect_again(broker)
            add(broker, producer)
            append(broker, producer, 1, version=0)
            commit(broker, producer)
            assert state(broker) == State.PREPARE_COMMIT
            broker.transactions._report(former, {KEY})
            assert is_open(broker)  # no marker of the second transaction was written yet
            assert state(broker) == State.PREPARE_COMMIT

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A late marker from a former coordinator is rejected and does not abort the next transaction",
)
@pytest.mark.parametrize("version", [TV_0, TV_2])
def test_a_late_marker_of_a_former_coordinator_leaves_the_next_transaction_alone(
    tmp_path: Path, version: int
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            partition = broker.partitions[KEY]
            append(broker, producer, 0, version)
            following = Producer(producer.producer_id, producer.epoch + (version >= TV_2))
            former = Marker(following, True, 3, version)
            written = write_marker(broker, partition, former._replace(coordinator_epoch=4))
            verifier = broker.transactions.verifier
            asked = Verification("x", following, [KEY], version >= TV_2, True)
            verified: asyncio.Future[Refused] = broker.loop.create_future()
            verifying = asyncio.ensure_future(verifier._guarded(asked, verifier._guards(asked), verified))
            await asyncio.sleep(0)
            with pytest.raises(TransactionCoordinatorFenced):
                write_marker(broker, partition, former)
            if version >= TV_2:  # the last marker once more ends nothing, either: this has another epoch
                assert write_marker(broker, partition, former._replace(coordinator_epoch=4)) == written
            verified.set_result({})
            assert await verifying == {}
            assert partition.log.log_end_offset == written + 1

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A client's next transaction waits while the previous one is ending; it is never fenced or aborted "
    "because of that, even if the producer id changes",
)
def test_with_version_2_the_marker_of_the_last_transaction_does_not_abort_the_next(tmp_path: Path) -> None:
    """Its produce came while the last one was ending, and waits for that inside the broker."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            partition = broker.partitions[KEY]
            append(broker, producer, 0)
            following = Producer(producer.producer_id, producer.epoch + 1)
            verifier = broker.transactions.verifier
            asked = Verification("x", following, [KEY], True, True)
            verified: asyncio.Future[Refused] = broker.loop.create_future()
            verifying = asyncio.ensure_future(verifier._guarded(asked, verifier._guards(asked), verified))
            await asyncio.sleep(0)
            write_marker(broker, partition, Marker(following, True, 0, TV_2))
            verified.set_result({})
            assert await verifying == {}

    asyncio.run(main())
