"""Logs whose topics are missing in the metadata store.

A data directory from Apache Kafka has logs, but the metadata store is empty: its topics are added to the
store with their ids. If the store already has topics, logs of deleted topics are deleted; a log of a topic
that was never in the store stays on disk, for an operator to decide.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.log.manager import LogManager
from penstock.log.partition_log import PartitionLog
from penstock.metadata import layout
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage
from penstock.metadata.store import Op, Set

log = logging.getLogger(__name__)


def adoption(logs: Iterable[PartitionLog], broker_id: int, producer_ids_version: int) -> list[Op]:
    """The operations that add these logs to the store. Leader epochs and producer ids start above those in
    the logs."""
    by_topic: dict[str, dict[int, PartitionLog]] = {}
    for one in logs:
        by_topic.setdefault(one.topic, {})[one.partition] = one
    ops: list[Op] = []
    next_producer_id = 0
    for name, found in sorted(by_topic.items()):
        epoch = max(one.latest_epoch for one in found.values()) + 1
        partitions = tuple(
            PartitionImage(index, broker_id, epoch, (broker_id,), (broker_id,))
            for index in range(max(found) + 1)
        )
        topic_id = found[min(found)].topic_id
        ops.extend(layout.create_topic(TopicImage(name, topic_id, partitions), {}))
        for one in found.values():
            next_producer_id = max([next_producer_id, *(id + 1 for id in one.producers.producers)])
    ops.append(Set(layout.PRODUCER_IDS, layout.encode({"next": next_producer_id}), producer_ids_version))
    log.info("imported %d topics from the data directory into the metadata store", len(by_topic))
    return ops


def is_new(image: ClusterImage) -> bool:
    """Whether the store has never had a topic."""
    return not image.topics and not image.deleted_epochs


def drop_strays(logs: LogManager, image: ClusterImage, broker_id: int) -> None:
    """Stop using logs of partitions that the image does not have, or that it assigns to other brokers."""
    for key, one in list(logs.logs.items()):
        topic = image.topics.get(one.topic)
        if topic is not None and topic.id == one.topic_id and one.partition < len(topic.partitions):
            if broker_id in topic.partitions[one.partition].replicas:
                continue
            log.info("%s-%d was reassigned to other brokers; deleting its log", *key)
            logs.delete(*key)
            continue
        if topic is not None or one.topic in image.deleted_epochs:
            log.info("%s-%d was deleted; deleting its log", *key)
            logs.delete(*key)
        else:
            log.warning(
                "%s: the metadata store has no such topic; leaving its directory unchanged", one.directory
            )
            one.close()
            del logs.logs[key]
