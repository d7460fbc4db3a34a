"""Reads a topic as a member of a consumer group; what the caller has taken is committed, not more."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from penstock.admin.cluster import Cluster
from penstock.admin.reader import StopRequest
from penstock.cli.failure import CommandFailed, UnknownTopic, reason
from penstock.cli.output import note

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_POLL_SECONDS = 0.2
_BATCH = 500


def read_as_member(
    cluster: Cluster,
    topic: str,
    group: str,
    settings: dict[str, object],
    stop: StopRequest,
    *,
    follow: bool,
    limit: int | None,
) -> Generator[list[Message], None, None]:
    """Batches of records, at most `limit` in all; each is committed when the caller asks for the next one.

    Without `follow`, it ends when all partitions that this member has were read to their end.
    """
    consumer = cluster.consumer({**settings, "group.id": group, "enable.partition.eof": True})
    ended: set[int] = set()
    left = limit
    last_sign = time.monotonic()
    try:
        consumer.subscribe([topic], on_assign=lambda *_: ended.clear())
        while left != 0 and not stop.requested:
            records = _take(cluster, consumer, topic, ended, _BATCH if left is None else min(left, _BATCH))
            if records:
                yield records
                _commit(cluster, consumer, group, records)
                left = None if left is None else left - len(records)
            mine = {partition.partition for partition in consumer.assignment()}
            if mine:
                last_sign = time.monotonic()
                if not follow and mine <= ended:
                    return
            elif not follow and time.monotonic() - last_sign > cluster.timeout:
                raise CommandFailed(
                    f"group '{group}' gave this member no partition of {topic} in {cluster.timeout:g} s: "
                    f"see `penstock groups describe {group}`."
                )
    finally:
        consumer.close()


def _take(cluster: Cluster, consumer: Consumer, topic: str, ended: set[int], most: int) -> list[Message]:
    """What has come, as soon as anything has; never more than is wanted, which would be committed unread."""
    first = consumer.poll(_POLL_SECONDS)
    got = [] if first is None else [first, *(consumer.consume(most - 1, 0) if most > 1 else [])]
    records: list[Message] = []
    for message in got:
        error, partition = message.error(), message.partition()
        if error is not None:
            _on_error(cluster, error, topic, partition, ended)
        elif partition is not None:
            ended.discard(partition)
            records.append(message)
    return records


def _on_error(
    cluster: Cluster, error: KafkaError, topic: str, partition: int | None, ended: set[int]
) -> None:
    if error.code() == error._PARTITION_EOF and partition is not None:
        ended.add(partition)
    elif error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC):
        raise UnknownTopic(topic, cluster.topics())
    elif error.fatal() or not (error.retriable() or error.code() in (error._TRANSPORT, error._TIMED_OUT)):
        raise cluster.failure(error, f"cannot read {topic} as a member of the group")


def _commit(cluster: Cluster, consumer: Consumer, group: str, records: list[Message]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    next_offsets: dict[tuple[str, int], int] = {}
    for message in records:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is not None and partition is not None and offset is not None:
            next_offsets[topic, partition] = offset + 1
    places = [TopicPartition(topic, index, offset) for (topic, index), offset in next_offsets.items()]
    try:
        consumer.commit(offsets=places, asynchronous=False)
    except KafkaException as error:
        # The group has moved on, or the broker is away: whoever has the partition next reads these again.
        note(f"not committed for group '{group}': {reason(error.args[0])}")
