"""Exactly once, from topic to topic: results and consumed offsets are written in one Kafka transaction.

Killed at any time, this program leaves a transaction behind that its successor aborts, results and offsets
together. A reader with isolation.level=read_committed sees the result of each record once.
"""

from __future__ import annotations

import argparse

from confluent_kafka import Consumer, KafkaException, Message, Producer
from reading import Input, connect, options, retry

BATCH = 25


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--output", default="shouted-orders", help="the topic that results go to")
    arguments = parser.parse_args()
    consumer = connect(arguments, **{"enable.auto.commit": False, "isolation.level": "read_committed"})
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            # The same id after a restart: that is how the predecessor's transaction is found, and fenced.
            "transactional.id": f"{arguments.group}-{arguments.instance}",
            "transaction.timeout.ms": 30_000,
            "reconnect.backoff.max.ms": 500,
            "partitioner": "murmur2_random",  # as Java's producer, Spark and SQL
        }
    )
    retry(producer.init_transactions)
    source = Input(consumer, arguments.topic)
    while not (arguments.exit_at_end and source.at_end):
        batch = take(source)
        if batch:
            handle(batch, source, producer, arguments)
    consumer.close()


def take(source: Input) -> list[Message]:
    batch: list[Message] = []
    while len(batch) < BATCH:
        message = source.read(0.2 if not batch else 0)
        if message is None:
            break
        batch.append(message)
    return batch


def handle(batch: list[Message], source: Input, producer: Producer, arguments: argparse.Namespace) -> None:
    consumer = source.consumer
    producer.begin_transaction()
    try:
        for message in batch:
            producer.produce(arguments.output, key=message.key(), value=message.value().upper())
        print(f"produced {len(batch)}", flush=True)
        retry(producer.send_offsets_to_transaction, consumed(consumer), consumer.consumer_group_metadata())
        print("sent offsets", flush=True)
        retry(producer.commit_transaction)
        print("committed", flush=True)
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise  # fenced, or worse: another process has this id now
        retry(producer.abort_transaction)
        source.rewind()
        print("aborted", flush=True)


def consumed(consumer: Consumer) -> list:
    return [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]


if __name__ == "__main__":
    main()
