"""What a former time of a coordinator had begun does not count for what it decides when it is back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.transactions.markers import Marker, MarkerWriter, write_marker
from penstock.coordinator import Producer
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import State
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
    "A late answer to a coordinator's request of before a failover does not end the next transaction",
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
