"""Seek to an offset: a consumer may read again, or skip, as it likes; reading does not delete.

Prints records from offset 7, from the beginning, from the last one, and from a moment in time.
"""

import time

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(servers, "readings")
start = int(time.time() * 1000)

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(10):
    producer.send(topic, value=b"reading %d" % number, timestamp_ms=start + number)
producer.close()  # waits for what is under way

consumer = KafkaConsumer(bootstrap_servers=servers)
partition = TopicPartition(topic, 0)
consumer.assign([partition])

consumer.seek(partition, 7)
print("offset 7:", next(consumer).value.decode())
consumer.seek_to_beginning(partition)
print("beginning:", next(consumer).value.decode())
consumer.seek(partition, consumer.end_offsets([partition])[partition] - 1)
print("last:", next(consumer).value.decode())
consumer.seek(partition, consumer.offsets_for_times({partition: start + 5})[partition].offset)
print("5 ms after the start:", next(consumer).value.decode())
consumer.close()
