"""A broker whose metadata is behind: a topic that it has not heard of yet is not a topic that was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.metadata import layout
from penstock.metadata.image import ClusterImage
from penstock.metadata.image_reader import ImageReader
from tests.unit.test_zookeeper_mirror import Answer, Mirror, Server, with_mirror


def topic(server: Server, name: str, number: int) -> None:
    """As one transaction: all of its nodes are there when the first watch fires."""
    nodes = {
        f"/brokers/topics/{name}": layout.encode({"id": str(UUID(int=number)), "replicas": [[1, 2]]}),
        f"/brokers/topics/{name}:state:0": layout.encode({"leader": 1, "leader_epoch": 0, "isr": [1, 2]}),
    }
    server.nodes.update({path: (value, 0) for path, value in nodes.items() if not path.endswith(name)})
    server.put(f"/brokers/topics/{name}", nodes[f"/brokers/topics/{name}"])


@pytest.mark.promise(
    "reassignment",
    "A broker's metadata shows a change only together with all topics that were created before it, "
    "unless topics are created without a pause ([limits](limits.md#a-cluster))",
)
def test_no_image_shows_a_change_and_lacks_a_topic_that_was_made_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a broker that was stopped for a moment leads a coordinator's partition, with offsets and
    transactions of topics that it takes for deleted. The way to ZooKeeper and back takes its time."""

    def rawlink(answer: Answer, callback: Callable[[Answer], None]) -> None:
        asyncio.get_running_loop().call_later(0.01, callback, answer)

    monkeypatch.setattr(Answer, "rawlink", rawlink)

    async def run(server: Server, mirror: Mirror) -> None:
        reader = ImageReader()
        images: list[ClusterImage] = []
        await mirror.store.watch("/", lambda paths: images.append(reader.read(mirror.store.nodes, paths)))
        topic(server, "state", 1)
        await mirror.shows("/brokers/topics/state", server.nodes["/brokers/topics/state"][0])
        # Both while this broker does nothing: the topic first, then the other's new leader.
        topic(server, "new", 2)
        moved = layout.encode({"leader": 2, "leader_epoch": 1, "isr": [2]})
        server.put("/brokers/topics/state:state:0", moved)
        await mirror.shows("/brokers/topics/new", server.nodes["/brokers/topics/new"][0])
        led = [image for image in images if image.topics["state"].partitions[0].leader == 2]
        assert led
        assert ["new" in image.topics for image in led] == [True] * len(led)

    with_mirror(run, monkeypatch)
