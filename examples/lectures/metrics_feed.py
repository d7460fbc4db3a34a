"""A metrics feed: machines publish measurements, one consumer keeps the newest of each for a dashboard.

A second consumer, which knows nothing of the first, raises an alarm on the average. Prints both.
"""

import json
from collections import defaultdict

from classroom import bootstrap, new_topic
from confluent_kafka import Consumer, Producer

servers = bootstrap(__doc__)
topic = new_topic(servers, "metrics", partitions=3)

producer = Producer({"bootstrap.servers": servers})
for machine, loads in {"web-1": (10, 20, 30), "web-2": (90, 95, 91)}.items():
    for load in loads:
        producer.produce(topic, json.dumps({"cpu": load}), key=machine)
producer.flush()


def measurements(group: str, count: int):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while count:
        for message in consumer.consume(num_messages=count, timeout=0.2):
            if not message.error():
                count -= 1
                yield message.key().decode(), json.loads(message.value())["cpu"]
    consumer.close()


newest: dict[str, int] = {}
for machine, load in measurements("dashboard", 6):
    newest[machine] = load
print("dashboard:", dict(sorted(newest.items())))

history = defaultdict(list)
for machine, load in measurements("alarms", 6):
    history[machine].append(load)
for machine, loads in sorted(history.items()):
    if sum(loads) / len(loads) > 80:
        print(f"alarm: {machine} is at {sum(loads) / len(loads):.0f} %")
