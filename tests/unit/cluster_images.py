"""Images of small clusters for tests of what the controller decides."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.metadata.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage


def partition(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    *,
    index: int = 0,
    epoch: int = 5,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionImage:
    """In sync are all replicas and the first leads, unless said otherwise; its partition epoch is 9."""
    first = replicas[0] if leader is None else leader
    in_sync = replicas if isr is None else isr
    return PartitionImage(index, first, epoch, replicas, in_sync, 9, (), adding, removing)


def cluster(
    *partitions: PartitionImage, live: Iterable[int] = (1, 2, 3, 4), leaving: Iterable[int] = ()
) -> ClusterImage:
    """One topic `t`; brokers have the epochs 10, 20, 30."""
    topic = TopicImage("t", UUID(int=1), partitions)
    brokers = {one: BrokerInfo(one, f"host-{one}", 9092, None, one * 10) for one in live}
    image = ClusterImage("c", 1, brokers=brokers, leaving=frozenset(leaving))
    return image.with_topics([topic])
