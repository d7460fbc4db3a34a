"""Commit in the revoke listener: who loses a partition first commits what it has done.

The first member handles records without committing them. When a second one joins, the listener commits; both
go on where the first was. Prints how often each record was handled: once.
"""

from collections import Counter

from classroom import bootstrap, new_topic
from confluent_kafka import Consumer, Producer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(servers, "revoked-orders", partitions=2)


def send(first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(first, last + 1):
        producer.produce(topic, f"order {number}", partition=number % 2)
    producer.flush()


handled: Counter[str] = Counter()


class Member:
    def __init__(self, name: str) -> None:
        self.name = name
        self.done: dict[int, int] = {}  # partition: the next offset
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "careful",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 300,
            }
        )
        self.consumer.subscribe([topic], on_revoke=self.on_revoke)

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        offsets = [TopicPartition(topic, partition, offset) for partition, offset in self.done.items()]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=False)
            print(f"{self.name} committed {dict(sorted(self.done.items()))} and gave its partitions back")
        self.done.clear()

    def poll(self) -> None:
        message = self.consumer.poll(0.1)
        if message is not None and not message.error():
            handled[message.value().decode()] += 1
            self.done[message.partition()] = message.offset() + 1


send(1, 10)
first = Member("first")
while len(handled) < 10:
    first.poll()
second = Member("second")
while not second.consumer.assignment():
    first.poll()
    second.poll()
send(11, 20)
while len(handled) < 20:
    first.poll()
    second.poll()
print(f"{len(handled)} records, each handled {max(handled.values())} time")
first.consumer.close()
second.consumer.close()
