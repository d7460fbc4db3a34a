"""Between a fetch request and the partitions it names: lookup by name or id, and the shape of the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker.fetch_sessions import SessionKey
from penstock.broker.writer import Chunk
from penstock.errors import InconsistentTopicId, UnknownTopicId
from penstock.replication.fetching import Found
from penstock.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    TopicResult,
    encode_fetch_response,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Results = dict[SessionKey, FetchPartitionResult]


def partitions_asked(
    topics: Iterable[tuple[str | None, UUID | None, list[FetchPartition]]],
) -> Iterable[tuple[SessionKey, FetchPartition]]:
    for name, topic_id, partitions in topics:
        topic = name if topic_id is None else topic_id
        assert topic is not None
        for partition in partitions:
            yield (topic, partition.partition), partition


def forgotten(request: FetchRequest) -> Iterable[SessionKey]:
    for name, topic_id, indexes in request.forgotten:
        topic = name if topic_id is None else topic_id
        assert topic is not None
        for index in indexes:
            yield topic, index


def find(broker: Broker, key: SessionKey) -> Found:
    topic, index = key
    if not isinstance(topic, UUID):
        return broker.partitions.get((topic, index)) or broker.topics.missing((topic, index))
    image = broker.image.topics_by_id.get(topic)
    if image is None:
        return UnknownTopicId()
    partition = broker.partitions.get((image.name, index))
    if partition is None:
        return broker.topics.missing((image.name, index))
    return partition if partition.log.topic_id == topic else InconsistentTopicId()


def encode(broker: Broker, version: int, code: int, session_id: int, results: Results) -> list[Chunk]:
    topics: dict[str | UUID, list[FetchPartitionResult]] = {}
    leaders = set()
    for (topic, _), result in results.items():
        topics.setdefault(topic, []).append(result)
        if result.current_leader is not None:
            leaders.add(result.current_leader[0])
    encoded: list[TopicResult] = [
        (None, topic, found) if isinstance(topic, UUID) else (topic, None, found)
        for topic, found in topics.items()
    ]
    endpoints = broker.endpoints(leaders) if leaders else ()
    return encode_fetch_response(version, 0, code, session_id, encoded, endpoints)  # type: ignore[return-value]
