"""Retry by a topic: a record that fails goes to a retry topic, and the records after it do not wait.

Each try is counted in a header; after three of them the record goes to a dead-letter topic. The order is
not kept.
"""

from classroom import bootstrap, new_topic
from confluent_kafka import Consumer, Producer

servers = bootstrap(__doc__)
orders, retries, dead = (new_topic(servers, name) for name in ("tried-orders", "retry-orders", "dead-orders"))

producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
for value in ("1 tea", "none", "3 milk"):
    producer.produce(orders, value)
producer.flush()


def handle(value: str) -> None:
    pieces, product = value.split()  # "none" has no pieces: ValueError
    print(f"handled {pieces} of {product}")


consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": "handlers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([orders, retries])
finished = 0
while finished < 3:
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    value = message.value().decode()
    tries = int(dict(message.headers() or []).get("tries", b"0")) + 1
    try:
        handle(value)
        finished += 1
    except ValueError:
        target = retries if tries < 3 else dead
        print(f"try {tries} of {value!r} failed: to {target}")
        producer.produce(target, message.value(), message.key(), headers={"tries": str(tries)})
        producer.flush()  # first the record is safe, then the offset is committed
        finished += target == dead
    consumer.commit(message, asynchronous=False)
consumer.close()
