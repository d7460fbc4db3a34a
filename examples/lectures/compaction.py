"""Log compaction: of each key the last value stays, and every record keeps its offset.

Writes k1 to k6 as the figure of the lectures has them, waits for the cleaner, and prints what is left. The
active segment is never compacted, so a last record, `end`, starts a new one.
"""

import time

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(
    servers,
    "compacted",
    configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"},
)

producer = KafkaProducer(bootstrap_servers=servers)
print("written:")
for number, key in enumerate(["k1", "k2", "k1", "k1", "k3", "k2", "k4", "k5", "k5", "k2", "k6"], 1):
    sent = producer.send(topic, key=key.encode(), value=b"v%d" % number).get(timeout=10)
    print(f"  offset {sent.offset}: {key}=v{number}")
time.sleep(0.2)  # longer than segment.ms
producer.send(topic, key=b"end", value=b"").get(timeout=10)

producer.close()
consumer = KafkaConsumer(bootstrap_servers=servers)
consumer.assign([TopicPartition(topic, 0)])


def read_all() -> list[str]:
    consumer.seek_to_beginning()
    found = []
    for record in consumer:
        if record.key == b"end":
            return found
        found.append(f"offset {record.offset}: {record.key.decode()}={record.value.decode()}")


while len(left := read_all()) > 6:
    time.sleep(0.1)  # log.cleaner.backoff.ms: how often the broker looks for something to clean
print("left:", *left, sep="\n  ")
consumer.close()
