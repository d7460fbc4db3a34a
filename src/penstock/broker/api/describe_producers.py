"""DescribeProducers (key 61), version 0 (KIP-664).

The producer state of a replica: idempotent and transactional producers with their last sequence and the start
offset of an open transaction. Any replica responds, as in Kafka: `find-hanging` queries the brokers for the
replicas that they host.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import NotLeaderOrFollower
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasPartitions, HasTopics

    class DescribeProducersParts(HasPartitions, HasTopics, Protocol): ...


def handle(broker: DescribeProducersParts, context: RequestContext, request: Message) -> Message:
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            partition = broker.partitions.get((topic.name, index))
            if partition is None:
                error = broker.topics.missing((topic.name, index))
                partitions.append(_failed(index, error.code, error.message))
                continue
            if not partition.log.is_settled:
                partitions.append(_failed(index, NotLeaderOrFollower.code, "it was truncated just now"))
                continue
            producers = [
                Message(
                    producer_id=producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=-1 if entry.txn_first_offset is None else entry.txn_first_offset,
                )
                for producer_id, entry in sorted(partition.log.producers.producers.items())
            ]
            partitions.append(
                Message(partition_index=index, error_code=0, error_message=None, active_producers=producers)
            )
        topics.append(Message(name=topic.name, partitions=partitions))
    return Message(throttle_time_ms=0, topics=topics)


def _failed(index: int, code: int, message: str | None = None) -> Message:
    return Message(partition_index=index, error_code=code, error_message=message, active_producers=[])


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [
        Message(name=topic.name, partitions=[_failed(index, code) for index in topic.partition_indexes])
        for topic in request.topics
    ]
    return Message(throttle_time_ms=0, topics=topics)


register(ApiKey.DESCRIBE_PRODUCERS, range(1), handle, error_response)
