"""A client of its own process that copies a topic, each batch in one transaction with its offsets, for ever.

`python -m tests.cluster.copier BOOTSTRAP TRANSACTIONAL_ID SOURCE TARGET GROUP`. An error ends it: who runs it
starts it again.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition


def main(bootstrap: str, transactional_id: str, source: str, target: str, group: str) -> None:
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
        messages = [one for one in consumer.consume(40, 0.5) if one.error() is None]
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
