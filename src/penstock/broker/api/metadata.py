"""Metadata (key 3), versions 0-13.

1   controller, racks, internal topics; null means all topics, empty means none (in version 0 empty is all)
2   cluster id   4  allow_auto_topic_creation   5  offline replicas   7  leader epochs
8   authorized operations (KIP-430; those of the cluster went to DescribeCluster in 11)   9  flexible
10  topic ids in the answer   12  topics by id   13  error code at the top (KIP-1102)

A topic that is created automatically has its leader in the same response, so that clients do not get
LEADER_NOT_AVAILABLE first. Responses are cached until the cluster changes.
Left out: REBOOTSTRAP_REQUIRED is never returned.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api_table import register
from penstock.broker.audit import denials
from penstock.broker.net.context import RequestContext
from penstock.broker.security.authorization.guard import TopicAccess
from penstock.broker.security.authorization.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from penstock.broker.topic_messages import failed_topic, topic_message, why_unknown
from penstock.controller import TopicSpec
from penstock.errors import (
    ApiError,
    InvalidRequest,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from penstock.metadata.acls import Operation, ResourceType
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_request, encode_response
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.parts import (
        CanCatchUp,
        CanFindEndpoints,
        HasAudit,
        HasAuthorizer,
        HasConfig,
        HasController,
        HasImage,
        HasMetadataCache,
    )

    class MetadataParts(
        CanCatchUp,
        CanFindEndpoints,
        HasAudit,
        HasAuthorizer,
        HasConfig,
        HasController,
        HasImage,
        HasMetadataCache,
        Protocol,
    ): ...


def handle(
    broker: MetadataParts, context: RequestContext, buf: bytearray, pos: int, end: int
) -> bytes | Coroutine[Any, Any, bytes]:
    cache = broker.metadata_cache
    cache_key = (context.version, bytes(memoryview(buf)[pos:end]), context.listener)
    known = cache.get(broker.image.version, cache_key)
    if known is not None:
        return known
    request = parse(cache_key[1], 0, len(cache_key[1]), context.version)
    message = handle_message(broker, context, request)
    if not isinstance(message, Message):
        return _encoded_later(context.version, message)
    answer = encode_response(ApiKey.METADATA, context.version, message)
    cache.put(broker.image.version, cache_key, answer)
    return answer


async def _encoded_later(version: int, message: Coroutine[Any, Any, Message]) -> bytes:
    return encode_response(ApiKey.METADATA, version, await message)


def handle_message(
    broker: MetadataParts, context: RequestContext, request: Message
) -> Message | Coroutine[Any, Any, Message]:
    missing = _to_create(broker, context.version, request)
    if not missing:
        return _answer(broker, context, request, {})
    denied: list[str] = []
    if broker.authorizer is not None:
        access = TopicAccess.of(broker.authorizer, context)
        if not access.may_on_cluster(Operation.CREATE):
            denied = [name for name in missing if not access.may(TopicAccess.CREATE, name)]
            for name in denied:
                denials.denied(broker, context, Operation.CREATE, ResourceType.TOPIC, name)
    return _create_first(broker, context, request, missing, denied)


def _wants_all(version: int, request: Message) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _to_create(broker: MetadataParts, version: int, request: Message) -> list[str]:
    if _wants_all(version, request):
        return []
    for topic in request.topics:
        if version < 12 and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise InvalidRequest("topics by id are asked for in version 12 and later")
    if not (request.allow_auto_topic_creation and broker.config.auto_create_topics_enable):
        return []
    names = (topic.name for topic in request.topics if topic.topic_id == ZERO_UUID)
    # Coordinators create the internal topics.
    return [
        name
        for name in dict.fromkeys(names)
        if name is not None and name not in broker.image.topics and name not in INTERNAL_TOPICS
    ]


async def _create_first(
    broker: MetadataParts, context: RequestContext, request: Message, names: list[str], denied: list[str]
) -> Message:
    codes = dict.fromkeys(denied, TopicAuthorizationFailed.code)
    specs = [TopicSpec(name) for name in names if name not in codes]
    try:
        results = await broker.controller.create_topics(specs) if specs else []
    except ApiError as error:
        return _answer(broker, context, request, dict.fromkeys(names, error.code) | codes)
    await broker.caught_up()
    codes |= {result.name: result.error.code for result in results if result.error is not None}
    # Another request has created the topic first; what matters is that it exists.
    codes = {name: code for name, code in codes.items() if code != TopicAlreadyExists.code}
    return _answer(broker, context, request, codes)


def _answer(
    broker: MetadataParts, context: RequestContext, request: Message, codes: dict[str, int]
) -> Message:
    image, version = broker.image, context.version
    endpoints = broker.endpoints(broker.shown_brokers, context.listener)
    reachable = {endpoint[0] for endpoint in endpoints}
    known = broker.shown_brokers
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics = []
    if _wants_all(version, request):
        topics = [topic_message(topic, operations, reachable, known) for topic in image.topics.values()]
    else:
        seen: set[object] = set()
        for wanted in request.topics:
            by_id = wanted.topic_id != ZERO_UUID
            label = wanted.topic_id if by_id else wanted.name
            if label in seen or label is None:
                continue
            seen.add(label)
            found = image.topics_by_id.get(label) if by_id else image.topics.get(label)
            if found is not None:
                topics.append(topic_message(found, operations, reachable, known))
            elif by_id:
                topics.append(failed_topic(None, wanted.topic_id, UnknownTopicId.code))
            else:
                code = codes.get(wanted.name) or why_unknown(wanted.name)
                topics.append(failed_topic(wanted.name, ZERO_UUID, code))
    cluster_operations = NOT_ASKED
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        cluster_operations = CLUSTER_OPERATIONS
    return Message(
        throttle_time_ms=0,
        brokers=[
            Message(node_id=node, host=host, port=port, rack=rack) for node, host, port, rack in endpoints
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
        error_code=0,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [failed_topic(topic.name, topic.topic_id, code) for topic in request.topics or ()]
    return Message(
        throttle_time_ms=0, brokers=[], cluster_id=None, controller_id=-1, topics=topics, error_code=code
    )


def parse(buf: Any, pos: int, end: int, version: int) -> Message:
    return decode_request(ApiKey.METADATA, version, buf, pos, end)


register(ApiKey.METADATA, range(14), handle, error_response, parse=parse, handle_message=handle_message)
