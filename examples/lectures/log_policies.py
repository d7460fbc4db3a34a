"""The four policies of a log: keep everything, delete by time, delete by size, keep the last of each key.

A fifth, by number of records, is Penstock's own. Each topic gets 20 records with four keys, in segments of
two records; prints how many are left when the broker has done its work. Whole segments go.
"""

import time

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

POLICIES = {
    "everything": {"retention.ms": "-1"},
    "time": {"retention.ms": "1000"},
    "size": {"retention.ms": "-1", "retention.bytes": "1000"},
    "keys": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "records": {"retention.ms": "-1", "penstock.retention.records": "5"},
}
servers = bootstrap(__doc__)
producer = KafkaProducer(bootstrap_servers=servers)
topics = {}
for policy, configs in POLICIES.items():
    topics[policy] = new_topic(servers, f"policy-{policy}", configs={"segment.bytes": "400", **configs})
    for number in range(20):
        producer.send(topics[policy], key=b"key %d" % (number % 4), value=b"." * 100).get(timeout=10)

producer.close()
consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")


def records_left(topic: str) -> int:
    """A record may be gone from the middle, so they are counted, not computed from offsets."""
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    consumer.seek_to_beginning(partition)
    count = 0
    while consumer.position(partition) < end:
        count += sum(map(len, consumer.poll(timeout_ms=200).values()))
    return count


for policy, most in (("time", 0), ("size", 10), ("keys", 8), ("records", 7), ("everything", 20)):
    while (left := records_left(topics[policy])) > most:
        time.sleep(0.2)  # log.retention.check.interval.ms, log.cleaner.backoff.ms: how often the broker looks
    print(f"{policy}: {left} of 20 left")
consumer.close()
