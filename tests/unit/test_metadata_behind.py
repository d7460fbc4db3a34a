"""A broker whose metadata is behind: a topic that it has not heard of yet is not a topic that was deleted."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.broker import Broker
from penstock.fs import FaultyFs
from penstock.metadata import layout
from penstock.metadata.image import ClusterImage
from penstock.transactions.state import State
from penstock.wire.codec import Message
from tests.unit.test_shard_host import ONE_SHARD, commit, fetch
from tests.unit.test_transactions_broker import end, init, is_open, running, state, write
from tests.unit.test_zookeeper_mirror import Answer, Mirror, Server, with_mirror


def topic(server: Server, name: str, number: int) -> None:
    """As one transaction: all of its nodes are there when the first watch fires."""
    nodes = {
        f"/topics/{name}": layout.encode({"id": str(UUID(int=number)), "replicas": [[1, 2]]}),
        f"/topics/{name}:state:0": layout.encode({"leader": 1, "leader_epoch": 0, "isr": [1, 2]}),
    }
    server.nodes.update({path: (value, 0) for path, value in nodes.items() if not path.endswith(name)})
    server.put(f"/topics/{name}", nodes[f"/topics/{name}"])


def test_no_image_shows_a_change_and_lacks_a_topic_that_was_made_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a broker that was stopped for a moment leads a coordinator's partition, with offsets and
    transactions of topics that it takes for deleted. The way to ZooKeeper and back takes its time."""

    def rawlink(answer: Answer, callback: Callable[[Answer], None]) -> None:
        asyncio.get_running_loop().call_later(0.01, callback, answer)

    monkeypatch.setattr(Answer, "rawlink", rawlink)

    async def run(server: Server, mirror: Mirror) -> None:
        reader = layout.ImageReader()
        images: list[ClusterImage] = []
        await mirror.store.watch("/", lambda paths: images.append(reader.read(mirror.store.nodes, paths)))
        topic(server, "state", 1)
        await mirror.shows("/topics/state", server.nodes["/topics/state"][0])
        # Both while this broker does nothing: the topic first, then the other's new leader.
        topic(server, "new", 2)
        moved = layout.encode({"leader": 2, "leader_epoch": 1, "isr": [2]})
        server.put("/topics/state:state:0", moved)
        await mirror.shows("/topics/new", server.nodes["/topics/new"][0])
        led = [image for image in images if image.topics["state"].partitions[0].leader == 2]
        assert led
        assert ["new" in image.topics for image in led] == [True] * len(led)

    with_mirror(run, monkeypatch)


def elect_again(broker: Broker, internal: str, image: ClusterImage) -> ClusterImage:
    """The coordinator's partitions have a new leader epoch here, in an image that is otherwise `image`."""
    known = image.topics[internal]
    partitions = tuple(
        replace(one, leader_epoch=broker.partitions[internal, one.index].image.leader_epoch + 1)
        for one in known.partitions
    )
    topics = {**image.topics, internal: replace(known, partitions=partitions)}
    new = replace(image, topics=topics, topics_by_id={one.id: one for one in topics.values()})
    for one in partitions:
        broker.partitions[internal, one.index].update(one)
    broker.topics.image = new
    broker.coordinators.on_image(new)
    return new


def without(image: ClusterImage, name: str) -> ClusterImage:
    topics = {key: one for key, one in image.topics.items() if key != name}
    return replace(image, topics=topics, topics_by_id={one.id: one for one in topics.values()})


async def answered(answer: Message | asyncio.Future[Message]) -> Any:
    return await asyncio.wait_for(answer, 30) if isinstance(answer, asyncio.Future) else answer


def test_offsets_of_a_topic_that_a_new_coordinator_has_not_heard_of_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **ONE_SHARD) as broker:
            await broker.groups.ensure_topic()
            await answered(commit(broker, 5))
            whole = broker.image
            elect_again(broker, "__consumer_offsets", without(whole, "t"))
            elect_again(broker, "__consumer_offsets", whole)
            found = await answered(fetch(broker))
            assert found.topics[0].partitions[0].committed_offset == 5

    asyncio.run(main())


def test_a_transaction_does_not_end_without_the_marker_of_a_topic_that_was_not_heard_of(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        fs = FaultyFs()
        async with running(tmp_path, fs) as broker:
            producer = await init(broker)
            write(broker, producer)
            fs.fail("write", "/t-0/", errno.ENOSPC)
            await answered(end(broker, producer))
            assert state(broker) == State.PREPARE_COMMIT
            fs.heal()
            # The next coordinator is another broker, which does not have the partition itself.
            whole, partition = broker.image, broker.topics.partitions.pop(("t", 0))
            elect_again(broker, "__transaction_state", without(whole, "t"))
            broker.topics.partitions["t", 0] = partition
            elect_again(broker, "__transaction_state", whole)
            assert not is_open(broker), f"the transaction is {state(broker).label}, and t-0 has no marker"

    asyncio.run(main())
