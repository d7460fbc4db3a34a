"""A custom partitioner: the customer who sends most gets a partition alone, the others share the rest.

Prints which customers each partition has. (kafka-python calls `partition` for every record without one.)
"""

from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer
from kafka.partitioner import Partitioner
from kafka.partitioner.default import murmur2


class BananaPartitioner(Partitioner):
    def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
        partitions = sorted(cluster.partitions_for_topic(topic))
        if serialized_key == b"Banana":
            return partitions[-1]
        return partitions[(murmur2(serialized_key) & 0x7FFFFFFF) % (len(partitions) - 1)]


servers = bootstrap(__doc__)
topic = new_topic(servers, "fruit", partitions=3)

producer = KafkaProducer(bootstrap_servers=servers, partitioner=BananaPartitioner())
customers = ["Banana", "Apple", "Banana", "Cherry", "Banana", "Date", "Banana", "Elder"]
for customer in customers:
    producer.send(topic, key=customer.encode(), value=b"an order")
producer.close()  # waits for what is under way

consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
found: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
for record in islice(consumer, len(customers)):
    found[record.partition].add(record.key.decode())
for partition, names in found.items():
    print(partition, sorted(names))
consumer.close()
