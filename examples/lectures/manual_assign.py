"""Assign partitions by hand: no group, no rebalance; this consumer reads exactly what it says.

Prints the records of partition 1 only.
"""

from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(servers, "shelves", partitions=3)

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(9):
    producer.send(topic, value=b"box %d" % number, partition=number % 3)
producer.close()  # waits for what is under way

consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
print("partitions:", sorted(consumer.partitions_for_topic(topic)))
consumer.assign([TopicPartition(topic, 1)])
for record in islice(consumer, 3):
    print(f"partition {record.partition}, offset {record.offset}: {record.value.decode()}")
consumer.close()
