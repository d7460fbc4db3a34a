"""`penstock.retention.consumed.groups` where another broker than the leader coordinates the group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.harness import PATIENCE, Cluster, running, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"log.retention.check.interval.ms": "500"}
    with running(tmp_path_factory.mktemp("consumed"), settings=settings) as cluster:
        yield cluster


@pytest.mark.promise(
    "log",
    "With `penstock.retention.consumed.groups`, records that all these groups have consumed are deleted",
)
def test_what_groups_have_consumed_goes_on_every_leader(cluster: Cluster) -> None:
    # Three leaders and two groups: for most partitions a coordinator is elsewhere.
    cluster.create_topic("t", 3, retention_ms="-1", penstock_retention_consumed_groups="a,b")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(30):
        producer.produce("t", b"x", partition=number % 3)
    assert producer.flush(PATIENCE) == 0
    groups = [
        Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name, "log_level": 0}) for name in "ab"
    ]
    a, b = groups

    def starts() -> list[int]:
        return [a.get_watermark_offsets(TopicPartition("t", number), PATIENCE)[0] for number in range(3)]

    try:
        a.commit(offsets=[TopicPartition("t", number, 7) for number in range(3)], asynchronous=False)
        b.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
        wait_until("what both have consumed is gone", lambda: starts()[0] == 4)
        assert starts() == [4, 0, 0], "b has committed nothing of the others"
        b.commit(offsets=[TopicPartition("t", number, 9) for number in range(3)], asynchronous=False)
        wait_until("the rest is gone", lambda: starts() == [7, 7, 7])
    finally:
        for consumer in groups:
            consumer.close()
