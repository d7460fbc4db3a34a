"""How a leader asks for its in-sync replicas: what is sent, and what a refusal ends and a lost answer not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.cluster import alter_partition as module
from penstock.broker.cluster.alter_partition import InSyncReplicas
from penstock.errors import InvalidUpdateVersion, PeerUnavailable
from penstock.replication.partition import Partition
from penstock.wire.codec import Message
from tests.unit.cluster_images import cluster
from tests.unit.test_progress import leader
from tests.unit.test_replication_partition import wanted

Answer = Callable[[Message], Message]


class World:
    """A broker that leads t-0, and a controller elsewhere that answers as the test says."""

    def __init__(self, partition: Partition, answers: list[Answer | Exception]) -> None:
        self.sent: list[Message] = []
        self.answers = answers
        self.partition = partition
        image = replace(cluster(partition.image), controller_id=2)
        broker: Any = SimpleNamespace(
            id=1,
            epoch=10,
            loop=asyncio.get_running_loop(),
            config=SimpleNamespace(replica_lag_time_max_ms=1000),
            controller=SimpleNamespace(image=image),
            partitions={("t", 0): partition},
            peers=SimpleNamespace(call=self._call),
            membership=None,
        )
        self.isr = InSyncReplicas(broker)

    async def _call(self, broker: int, api: object, version: int, request: Message, **_: object) -> Message:
        self.sent.append(request)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    @property
    def asked(self) -> list[list[int]]:
        return [
            [one.broker_id for one in request.topics[0].partitions[0].new_isr_with_epochs]
            for request in self.sent
        ]

    async def done(self) -> None:
        while self.isr._task is not None:
            await asyncio.sleep(0)


def answer(code: int) -> Answer:
    def make(request: Message) -> Message:
        topic = request.topics[0]
        return Message(
            error_code=0,
            topics=[
                Message(
                    topic_id=topic.topic_id,
                    partitions=[Message(partition_index=0, error_code=code)],
                )
            ],
        )

    return make


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0)


def test_what_is_asked_for_goes_with_the_epochs_that_the_followers_fetched_with(tmp_path: Path) -> None:
    async def run() -> None:
        one = leader(tmp_path)
        one.fetch(wanted(3), 1 << 20, True, 0, 2, 20)
        world = World(one, [answer(0)])
        world.isr.follower_fetched(one, 2)
        await world.done()
        sent = world.sent[0].topics[0].partitions[0]
        assert [(each.broker_id, each.broker_epoch) for each in sent.new_isr_with_epochs] == [
            (1, 10),
            (2, 20),
        ]
        assert (sent.leader_epoch, sent.partition_epoch) == (5, 9)
        assert one.pending_isr == (1, 2)  # until the image says so

    asyncio.run(run())


def test_after_a_lost_answer_it_asks_for_what_it_wants_by_then_and_counts_both(tmp_path: Path) -> None:
    async def run() -> None:
        one = leader(tmp_path)
        one.fetch(wanted(3), 1 << 20, True, 0, 2, 20)
        world = World(one, [PeerUnavailable(2, "away"), answer(0)])
        world.isr.follower_fetched(one, 2)
        # Meanwhile the follower has died: nothing is wanted any more, and that is what is asked for.
        world.isr._broker.controller.image = replace(world.isr._broker.controller.image, brokers={})
        await world.done()
        assert world.asked == [[1, 2], [1]]
        assert set(one.pending_isr or ()) == {1, 2}

    asyncio.run(run())


def test_what_an_image_has_answered_before_it_was_sent_is_not_sent(tmp_path: Path) -> None:
    async def run() -> None:
        one = leader(tmp_path)
        one.fetch(wanted(3), 1 << 20, True, 0, 2, 20)
        world = World(one, [])
        world.isr.follower_fetched(one, 2)
        one.update(replace(one.image, isr=(1, 2), partition_epoch=10))
        await world.done()
        assert world.sent == [] and one.pending_isr is None

    asyncio.run(run())


def test_a_refusal_ends_only_what_it_is_about(tmp_path: Path) -> None:
    async def run() -> None:
        one = leader(tmp_path)
        one.fetch(wanted(3), 1 << 20, True, 0, 2, 20)

        def late(request: Message) -> Message:
            # Before it is answered another image comes in, and another follower is asked for.
            one.update(replace(one.image, isr=(1, 2), partition_epoch=10))
            one.fetch(wanted(3), 1 << 20, True, 0, 3, 30)
            world.isr.follower_fetched(one, 3)
            return answer(InvalidUpdateVersion.code)(request)

        world = World(one, [late, answer(0)])
        world.isr.follower_fetched(one, 2)
        await world.done()
        assert world.asked == [[1, 2], [1, 2, 3]]
        assert one.pending_isr == (1, 2, 3)

    asyncio.run(run())


@pytest.mark.unchecked_partitions
def test_a_leader_that_has_heard_half_of_its_end_asks_for_nothing(tmp_path: Path) -> None:
    one = leader(tmp_path)
    one.fetch(wanted(3), 1 << 20, True, 0, 2, 20)
    one.update(replace(one.image, replicas=(2, 3)))  # the node of the topic came in first
    assert one.wanted_isr(1000, {1, 2, 3}) is None
