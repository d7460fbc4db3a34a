"""A share price that rises by 10 %: keep the price at which each share opened, and compare.

Prints each share once, at the first price that is 10 % above its opening.
"""

import json
from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

PRICES = [("ACME", 100), ("BOLT", 50), ("ACME", 105), ("BOLT", 48), ("ACME", 110), ("BOLT", 54)]

servers = bootstrap(__doc__)
topic = new_topic(servers, "share-prices", partitions=2)

producer = KafkaProducer(bootstrap_servers=servers, value_serializer=lambda value: json.dumps(value).encode())
for share, price in PRICES:  # the key keeps the prices of a share in their order
    producer.send(topic, key=share.encode(), value={"price": price})
producer.close()  # waits for what is under way

opening: dict[str, float] = {}
risen: set[str] = set()
consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
for record in islice(consumer, len(PRICES)):
    share, price = record.key.decode(), json.loads(record.value)["price"]
    first = opening.setdefault(share, price)
    if share not in risen and 10 * price >= 11 * first:
        risen.add(share)
        print(f"{share} opened at {first} and is at {price}: up {price / first - 1:.0%}")
print("not risen:", *sorted(opening.keys() - risen))
consumer.close()
