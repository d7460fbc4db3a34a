"""A consumer joins a group and takes over some of the partitions; when it leaves, the others take them back.

Prints how many of the four partitions each member has.
"""

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer

servers = bootstrap(__doc__)
topic = new_topic(servers, "parcels", partitions=4)


def member(name: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic, bootstrap_servers=servers, group_id="carriers", client_id=name, heartbeat_interval_ms=300
    )


def settle(*expected: tuple[KafkaConsumer, int]) -> None:
    """Members learn of a rebalance from the answers to their heartbeats, and join again while they poll."""
    while any(len(consumer.assignment()) != count for consumer, count in expected):
        for consumer, _ in expected:
            consumer.poll(timeout_ms=50)
    print(", ".join(f"{consumer.config['client_id']} has {count}" for consumer, count in expected))


first = member("first")
settle((first, 4))
second = member("second")
settle((first, 2), (second, 2))
second.close()  # says goodbye, so that nobody has to wait for its session to time out
settle((first, 4))
first.close()
