"""Send records with a key and a JSON value: all records of a key go to one partition, in their order.

Prints where each record was written. `get()` waits for the broker's acknowledgement.
"""

import json

from classroom import bootstrap, new_topic
from kafka import KafkaProducer

servers = bootstrap(__doc__)
topic = new_topic(servers, "keyed-customers", partitions=3)

producer = KafkaProducer(
    bootstrap_servers=servers,
    acks="all",
    key_serializer=str.encode,
    value_serializer=lambda value: json.dumps(value).encode("utf-8"),
)
for name, country in [("ann", "NO"), ("bob", "IT"), ("ann", "SE"), ("cas", "NL"), ("ann", "DK")]:
    sent = producer.send(topic, key=name, value={"name": name, "country": country}).get(timeout=10)
    print(f"{name} {country} -> partition {sent.partition}, offset {sent.offset}")
producer.close()
