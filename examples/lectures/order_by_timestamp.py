"""Order across partitions: a topic keeps the order within each partition only; timestamps order the rest.

Prints what three partitions have, merged by the records' timestamps.
"""

import heapq
import time

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(servers, "measurements", partitions=3)
start = int(time.time() * 1000)

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(12):  # one after the other, but each to another partition
    partition = (5 * number + number // 4) % 3
    producer.send(topic, value=b"%d" % number, partition=partition, timestamp_ms=start + number)
producer.close()  # waits for what is under way

consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
by_partition = {TopicPartition(topic, number): [] for number in range(3)}
consumer.assign(by_partition)
while sum(map(len, by_partition.values())) < 12:
    for partition, records in consumer.poll(timeout_ms=500).items():
        by_partition[partition] += records
for partition, records in by_partition.items():
    print(f"partition {partition.partition}:", *(record.value.decode() for record in records))
merged = heapq.merge(*by_partition.values(), key=lambda record: record.timestamp)
print("merged:", *(record.value.decode() for record in merged))
consumer.close()
