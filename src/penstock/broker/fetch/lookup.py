"""Looks up the partitions of a fetch request by topic name or id, and encodes the response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.broker.audit.denials import denied
from penstock.broker.fetch.sessions import SessionKey
from penstock.broker.net.context import RequestContext
from penstock.broker.net.writer import Chunk
from penstock.broker.security.authorization.guard import TopicAccess
from penstock.errors import (
    ApiError,
    InconsistentTopicId,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.replication.delayed import Key
from penstock.replication.fetching import Found
from penstock.replication.partition import CONSUMER, Partition
from penstock.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    TopicResult,
    encode_fetch_response,
)

if TYPE_CHECKING:
    from penstock.broker.parts import CanFindEndpoints, HasAudit, HasAuthorizer, HasImage, HasTopics
    from penstock.broker.topics import Topics

    class FetchLookupParts(CanFindEndpoints, HasAudit, HasAuthorizer, HasImage, HasTopics, Protocol): ...


Results = dict[SessionKey, FetchPartitionResult]
Find = Callable[[SessionKey], Found]
# Returned and never raised, so one instance is enough.
_UNKNOWN_ID = UnknownTopicId()
_UNKNOWN = UnknownTopicOrPartition()
_ELSEWHERE = NotLeaderOrFollower()
_DENIED = TopicAuthorizationFailed()
_REPLACED = NotLeaderOrFollower()


def partitions_asked(
    topics: Iterable[tuple[str | None, UUID | None, list[FetchPartition]]],
) -> dict[SessionKey, FetchPartition]:
    """The requested partitions. If a partition is named more than once, the last one counts."""
    asked: dict[SessionKey, FetchPartition] = {}
    for name, topic_id, partitions in topics:
        topic = name if topic_id is None else topic_id
        assert topic is not None
        for partition in partitions:
            asked[topic, partition[0]] = partition
    return asked


def forgotten(request: FetchRequest) -> Iterable[SessionKey]:
    for name, topic_id, indexes in request.forgotten:
        topic = name if topic_id is None else topic_id
        assert topic is not None
        for index in indexes:
            yield topic, index


def find(broker: FetchLookupParts, key: SessionKey) -> Found:
    topic, index = key
    topics = broker.topics
    if isinstance(topic, str):
        return topics.partitions.get(key) or _missing(topics, key)  # type: ignore[arg-type]
    image = topics.image.topics_by_id.get(topic)
    if image is None:
        return _UNKNOWN_ID
    partition = topics.partitions.get((image.name, index))
    if partition is None:
        return _missing(topics, (image.name, index))
    return partition if partition.log.topic_id == topic else InconsistentTopicId()


def _missing(topics: Topics, key: Key) -> ApiError:
    if topics.unavailable:
        return topics.missing(key)
    return _ELSEWHERE if topics.image.partition(*key) is not None else _UNKNOWN


def _find_for_follower(
    broker: FetchLookupParts, replica_id: int, replica_epoch: int, key: SessionKey
) -> Found:
    """A fetch with an older broker epoch is late: the follower has restarted since, and may have lost what it
    reports to have. Kafka refuses it with the same error."""
    registered = broker.image.brokers.get(replica_id)
    if registered is not None and 0 <= replica_epoch < registered.epoch:
        return _REPLACED
    return find(broker, key)


def lookup(
    broker: FetchLookupParts, context: RequestContext, replica_id: int = CONSUMER, replica_epoch: int = -1
) -> Find:
    """The lookup function for this client: with an authorizer it finds only partitions that the client may
    read."""
    if replica_id >= 0:
        found: Find = partial(_find_for_follower, broker, replica_id, replica_epoch)
    else:
        found = partial(find, broker)
    if broker.authorizer is None:
        return found
    access = TopicAccess.of(broker.authorizer, context)
    if replica_id >= 0:
        if access.may_on_cluster(Operation.CLUSTER_ACTION):
            return found
        denied(broker, context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return lambda key: _DENIED

    def allowed(key: SessionKey) -> Found:
        topic = key[0]
        if not isinstance(topic, str):
            image = broker.image.topics_by_id.get(topic)
            if image is None:
                return _UNKNOWN_ID
            topic = image.name
        if access.may(TopicAccess.READ, topic):
            return find(broker, key)
        denied(broker, context, Operation.READ, ResourceType.TOPIC, topic)
        return _DENIED

    return allowed


def is_there(find: Find, key: SessionKey) -> bool:
    return isinstance(find(key), Partition)


def encode(
    broker: FetchLookupParts,
    version: int,
    listener: str,
    code: int,
    session_id: int,
    results: Results,
    *,
    to_follower: bool = False,
) -> list[Chunk]:
    topics: dict[str | UUID, list[FetchPartitionResult]] = {}
    leaders = set()
    for (topic, index), result in results.items():
        topics.setdefault(topic, []).append(result)
        # Denied topics are not looked up: the time of the lookup would show whether they exist.
        if result.slices or (result.error_code and result.error_code != _DENIED.code):
            _count(find(broker, (topic, index)), result, to_follower=to_follower)
        if result.current_leader is not None:
            leaders.add(result.current_leader[0])
    encoded: list[TopicResult] = [
        (None, topic, found) if isinstance(topic, UUID) else (topic, None, found)
        for topic, found in topics.items()
    ]
    endpoints = broker.endpoints(leaders, listener) if leaders else ()
    return encode_fetch_response(version, 0, code, session_id, encoded, endpoints)  # type: ignore[return-value]


def _count(found: Found, result: FetchPartitionResult, *, to_follower: bool) -> None:
    if not isinstance(found, Partition):
        return
    size = sum(map(len, result.slices))  # type: ignore[arg-type]
    if result.error_code:
        found.traffic.failed_fetches += 1
    elif to_follower:
        found.traffic.replication_bytes_out += size
    else:
        found.traffic.bytes_out += size
