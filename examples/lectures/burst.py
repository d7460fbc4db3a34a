"""A burst of messages: five from one sender within ten seconds, by the records' own timestamps.

Keeps the last five times of each sender. A slow reader gives the same answer as a fast one, because the time
is in the record. Prints each burst.
"""

import time
from collections import defaultdict, deque
from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

MANY, SECONDS = 5, 10
SENT = {"ann": (0, 20, 40, 60, 80), "bob": (30, 31, 33, 36, 39)}  # at which seconds

servers = bootstrap(__doc__)
topic = new_topic(servers, "messages")
start = int(time.time() * 1000) - 100_000

producer = KafkaProducer(bootstrap_servers=servers)
for second, sender in sorted((second, sender) for sender, seconds in SENT.items() for second in seconds):
    producer.send(topic, key=sender.encode(), value=b"hello", timestamp_ms=start + 1000 * second)
producer.close()  # waits for what is under way

times: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=MANY))
consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
for record in islice(consumer, 10):
    sender = record.key.decode()
    times[sender].append(record.timestamp)
    span = (times[sender][-1] - times[sender][0]) // 1000
    if len(times[sender]) == MANY and span <= SECONDS:
        print(f"{sender} sent {MANY} messages in {span} seconds")
consumer.close()
