"""Subscribe to a topic and poll: each poll returns a batch of records for each partition.

Prints each batch. The group commits how far it has read, so a second run of the loop would start there.
"""

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

servers = bootstrap(__doc__)
topic = new_topic(servers, "page-views", partitions=2)

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(10):
    producer.send(topic, value=b"view %d" % number, partition=number % 2)
producer.close()  # waits for what is under way

consumer = KafkaConsumer(bootstrap_servers=servers, group_id="page-counters", auto_offset_reset="earliest")
consumer.subscribe([topic])
seen = 0
while seen < 10:
    batches = consumer.poll(timeout_ms=1000, max_records=4)
    for partition, records in batches.items():  # {TopicPartition: [ConsumerRecord, ...]}
        values = [record.value.decode() for record in records]
        print(f"{partition.topic}-{partition.partition} from offset {records[0].offset}: {values}")
        seen += len(records)
    consumer.commit()
print(f"{seen} records")
consumer.close()
