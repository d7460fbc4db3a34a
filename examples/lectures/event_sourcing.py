"""Event sourcing: the log of what happened is the truth; the state is computed from it, at any point in time.

Prints the balances after the first four events, and after all of them. Nothing is ever changed in place: a
mistake is corrected by one more event.
"""

import json
from collections.abc import Iterable

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

EVENTS = [
    {"account": "ann", "event": "deposited", "amount": 100},
    {"account": "bob", "event": "deposited", "amount": 50},
    {"account": "ann", "event": "withdrawn", "amount": 30},
    {"account": "bob", "event": "deposited", "amount": 500},
    {"account": "bob", "event": "corrected", "amount": -450},
]
CHANGE = {"deposited": 1, "withdrawn": -1, "corrected": 1}

servers = bootstrap(__doc__)
topic = new_topic(servers, "account-events", configs={"retention.ms": "-1"})  # the truth is kept forever

producer = KafkaProducer(bootstrap_servers=servers, value_serializer=lambda value: json.dumps(value).encode())
for event in EVENTS:
    producer.send(topic, key=event["account"].encode(), value=event)
producer.close()  # waits for what is under way


def events_until(offset: int) -> Iterable[dict]:
    consumer = KafkaConsumer(bootstrap_servers=servers)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    while consumer.position(partition) < offset:
        yield json.loads(next(consumer).value)
    consumer.close()


def balances(events: Iterable[dict]) -> dict[str, int]:
    state: dict[str, int] = {}
    for event in events:
        change = CHANGE[event["event"]] * event["amount"]
        state[event["account"]] = state.get(event["account"], 0) + change
    return state


print("after 4 events:", balances(events_until(4)))
print("after 5 events:", balances(events_until(5)))
