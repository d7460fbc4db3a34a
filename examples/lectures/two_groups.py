"""Two groups read one topic: each gets every record, and each has its own offsets.

Billing reads all records, shipping only three: prints what each has read, and its committed offset.
"""

from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = bootstrap(__doc__)
topic = new_topic(servers, "group-orders")

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(6):
    producer.send(topic, value=b"order %d" % number)
producer.close()  # waits for what is under way

for group, count in (("billing", 6), ("shipping", 3)):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    records = list(islice(consumer, count))
    consumer.commit()
    committed = consumer.committed(TopicPartition(topic, 0))
    print(f"{group} read {records[0].value.decode()} to {records[-1].value.decode()}, goes on at {committed}")
    consumer.close()
