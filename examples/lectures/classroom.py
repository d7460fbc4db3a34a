"""What the lectures share: the address of a broker, and a topic that is new at each run."""

from __future__ import annotations

import argparse
import time

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError


def bootstrap(doc: str | None) -> str:
    """The option --bootstrap; by default the broker that `penstock up` starts."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="localhost:9092", help="a broker (%(default)s)")
    return str(parser.parse_args().bootstrap)


def new_topic(servers: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    """An empty topic of this name; what an earlier run left in it is deleted."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.delete_topics([name])
    except UnknownTopicOrPartitionError:
        pass
    while True:
        try:
            admin.create_topics([NewTopic(name, partitions, replication_factor=-1, topic_configs=configs)])
            break
        except TopicAlreadyExistsError:
            time.sleep(0.1)  # a cluster deletes in the background
    admin.close()
    return name
