"""A client of its own process that copies a topic, each batch in one transaction with its offsets, for ever.

`python -m tests.cluster.copier BOOTSTRAP TRANSACTIONAL_ID SOURCE TARGET GROUP BATCH`. An error ends it: who
runs it starts it again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

if TYPE_CHECKING:
    from tests.cluster.harness import Cluster

_STUCK = 15.0


class Copier:
    """Such a process, started again whenever it has ended."""

    def __init__(
        self, cluster: Cluster, name: str, source: str, target: str, group: str, batch: int = 40
    ) -> None:
        words = [cluster.bootstrap, name, source, target, group, str(batch)]
        self._command = [sys.executable, "-m", "tests.cluster.copier", *words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def bounce(self) -> None:
        self.kill()
        self.start()

    def keep_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def __enter__(self) -> Copier:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


def copied(cluster: Cluster, source: str, partitions: int, group: str) -> int:
    """Up to where the source is copied; the copiers do not count a commit whose answer they did not get."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        wanted = [TopicPartition(source, number) for number in range(partitions)]
        return sum(max(one.offset, 0) for one in consumer.committed(wanted, timeout=30))
    except KafkaException:
        return 0
    finally:
        consumer.close()


def await_copied(
    cluster: Cluster,
    copiers: list[Copier],
    source: str,
    partitions: int,
    group: str,
    wanted: int,
    patience: float,
) -> None:
    """Until so much of the source is copied; `patience` is how long nothing may happen."""
    before, since, bounced = -1, time.monotonic(), time.monotonic()
    while (now := copied(cluster, source, partitions, group)) < wanted:
        if now > before:
            before, since = now, time.monotonic()
        assert time.monotonic() - since < patience, f"nothing is copied after {before} of {wanted} records"
        for copier in copiers:
            copier.keep_running()
        if time.monotonic() - max(since, bounced) > _STUCK:
            # librdkafka 2.16 may wait for ever for a coordinator that was dead when it was told of it.
            bounced = time.monotonic()
            for copier in copiers:
                copier.bounce()
        time.sleep(0.1)


def main(bootstrap: str, transactional_id: str, source: str, target: str, group: str, batch: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "log_level": 0,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 20000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([source])
    while True:
        messages = [one for one in consumer.consume(int(batch), 0.5) if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        ends = {one.partition(): one.offset() + 1 for one in messages}
        offsets = [TopicPartition(source, index, offset) for index, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)


if __name__ == "__main__":
    main(*sys.argv[1:])
