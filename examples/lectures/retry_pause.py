"""Retry by pause and resume: while the database is away, the consumer reads nothing and stays in its group.

The record that failed is read again after a pause, and those after it wait: the order is kept. poll() goes
on, since a consumer that does not poll for max.poll.interval.ms loses its partitions.
"""

import time

from classroom import bootstrap, new_topic
from confluent_kafka import Consumer, Producer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(servers, "paused-orders")

producer = Producer({"bootstrap.servers": servers})
for number in range(4):
    producer.produce(topic, f"order {number}")
producer.flush()

failures = iter([False, True, True])  # what becomes of the first calls: the second and third fail


def store(value: str) -> None:
    if next(failures, False):
        raise ConnectionError("the database is away")
    print(f"stored {value}")


consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": "storage",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([topic])
stored = 0
retry_at = None
while stored < 4:
    message = consumer.poll(0.05)
    if retry_at is not None and time.monotonic() >= retry_at:
        consumer.resume(consumer.assignment())
        retry_at = None
    if message is None or message.error():
        continue
    try:
        store(message.value().decode())
    except ConnectionError as error:
        print(f"{message.value().decode()}: {error}, paused")
        consumer.pause(consumer.assignment())
        consumer.seek(TopicPartition(topic, message.partition(), message.offset()))
        retry_at = time.monotonic() + 0.2
    else:
        consumer.commit(message, asynchronous=False)
        stored += 1
consumer.close()
