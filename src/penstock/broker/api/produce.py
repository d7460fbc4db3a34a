"""Produce (key 0), versions 0-13.

0-2  advertised, because librdkafka compresses only if they are; their record formats (magic 0 and 1)
     are not supported, so each partition gets UNSUPPORTED_FOR_MESSAGE_FORMAT, as in Kafka 4
3    transactional id, record batches (magic 2); from here on exactly one batch for each partition
5    log start offset in the response   7  zstd   8  message and record errors (KIP-467)
9    flexible   10  current leader and its address (KIP-951)   11, 12  transactions (KIP-890)
13   topic ids (KIP-516)

A request that names a partition twice is rejected with INVALID_REQUEST, so that a request cannot multiply its
work. How much is decompressed to check compressed batches is limited too (`log.validate.Allowance`).
A duplicate of one of a producer's last five batches gets the successful response of the original. With acks=0
there is no response; as in Kafka, an error closes the connection so that the client notices.
A transactional batch needs a transactional id, and its partition must be in the transaction; from version 12
on the broker adds the partition (KIP-890, `broker.transactions`). Batches of a producer are appended in the
order in which they arrive, even if the first has to wait for the transaction coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from penstock.broker.api_table import register
from penstock.broker.audit import denials
from penstock.broker.net.context import RequestContext
from penstock.broker.net.dispatch import CloseConnection
from penstock.broker.produce.delayed import Appended, wait
from penstock.broker.produce.leader_append import is_of_a_broker
from penstock.broker.security.authorization.guard import TopicAccess
from penstock.broker.transactions.verification import (
    Refused,
    Verification,
    for_producers,
    is_transactional,
    needed_verification,
    transaction_version,
)
from penstock.errors import (
    ApiError,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnsupportedForMessageFormat,
)
from penstock.log.validate import Allowance
from penstock.metadata.acls import Operation, ResourceType
from penstock.metadata.image import AUDIT_TOPIC, CLIENT_METRICS_TOPIC
from penstock.transactions.state import TV_2
from penstock.wire.api_keys import ApiKey
from penstock.wire.produce import (
    PartitionResult,
    ProduceRequest,
    TopicResult,
    encode_produce_response,
    parse_produce,
)

if TYPE_CHECKING:
    from penstock.broker.parts import HasAudit, HasTopics
    from penstock.broker.produce.delayed import ProduceDelayedParts
    from penstock.broker.produce.leader_append import LeaderAppendParts
    from penstock.broker.transactions.verification import VerificationParts

    class ProduceParts(
        LeaderAppendParts, ProduceDelayedParts, VerificationParts, HasAudit, HasTopics, Protocol
    ): ...


def handle(
    broker: ProduceParts, context: RequestContext, buf: bytearray, pos: int, end: int
) -> bytes | asyncio.Future[bytes] | Coroutine[Any, Any, bytes | None] | None:
    version = context.version
    request = parse_produce(buf, pos, end, version)
    acks = request.acks
    if acks not in (1, -1, 0):
        return error_response(context, request, InvalidRequiredAcks.code)
    allowance: Allowance | None = None
    if len(request.topics) != 1 or len(request.topics[0][2]) != 1:
        _refuse_repeated(request)
        allowance = Allowance()
    access = None
    if broker.authorizer is not None:
        access = TopicAccess.of(broker.authorizer, context)
        if request.transactional_id is not None and not access.may_write_as(request.transactional_id):
            denials.denied(
                broker, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
            )
            raise TransactionalIdAuthorizationFailed()
    refused: Refused | None = None
    if request.transactional_id is not None:
        asked = needed_verification(broker, _writable(broker, request, access), buf, version)
        if isinstance(asked, Verification):
            order, verifier = broker.transactions.append_order, broker.transactions.verifier
            ahead = order.ahead(asked.producer, asked.partitions)
            found = None if ahead else verifier.verify(asked)
            if found is None or not isinstance(found, Mapping):
                # The answer has to wait for another broker, or for replicas. The buffer belongs to the
                # connection, so copy.
                copy = bytearray(memoryview(buf)[pos:end])
                appending = _verified(broker, context, copy, allowance, asked, ahead, found, access)
                return _answered(order.run(asked.producer, asked.partitions, appending))
            refused = found
        else:
            refused = asked
    return _append(broker, context, request, buf, allowance, refused, access)


async def _verified(
    broker: ProduceParts,
    context: RequestContext,
    buf: bytearray,
    allowance: Allowance | None,
    asked: Verification,
    ahead: list[asyncio.Task[Any]],
    verification: Coroutine[Any, Any, Refused] | None,
    access: TopicAccess | None,
) -> bytes | asyncio.Future[bytes] | None:
    """Appends when earlier batches are appended and the partitions are verified to be in the transaction."""
    if ahead:
        await asyncio.wait(ahead)
    if verification is None:  # topics may have been deleted meanwhile: verify only the remaining partitions
        asked = asked.limited_to(broker.partitions)
        found = broker.transactions.verifier.verify(asked)
    else:
        found = verification
    refused = found if isinstance(found, Mapping) else await found
    request = parse_produce(buf, 0, len(buf), context.version)
    now = needed_verification(broker, _writable(broker, request, access), buf, context.version)
    if isinstance(now, Verification) and (came := set(now.partitions).difference(asked.partitions)):
        # This broker became the leader of these partitions only during the wait: the client retries their
        # batches.
        refused = {**refused, **dict.fromkeys(came, NotLeaderOrFollower("this broker did not lead it"))}
    return _append(broker, context, request, buf, allowance, refused, access)


async def _answered(appending: asyncio.Task[bytes | asyncio.Future[bytes] | None]) -> bytes | None:
    answer = await appending
    return await answer if isinstance(answer, asyncio.Future) else answer


def _append(
    broker: ProduceParts,
    context: RequestContext,
    request: ProduceRequest,
    buf: bytearray,
    allowance: Allowance | None,
    refused: Refused | None,
    access: TopicAccess | None,
) -> bytes | asyncio.Future[bytes] | None:
    version, acks = context.version, request.acks
    topics: list[TopicResult] = []
    unfinished: Appended = []
    leaders: set[int] = set()
    known = broker.topics.partitions
    of_transactions = transaction_version(version)
    for name, topic_id, partitions in request.topics:
        if topic_id is not None:
            topic = broker.image.topics_by_id.get(topic_id)
            name = None if topic is None else topic.name
        of_broker = name in (AUDIT_TOPIC, CLIENT_METRICS_TOPIC) and is_of_a_broker(broker, context)
        denied = False
        if access is not None and name is not None and not of_broker:
            denied = not access.may(TopicAccess.WRITE, name)
            if denied:
                denials.denied(broker, context, Operation.WRITE, ResourceType.TOPIC, name)
        results: list[PartitionResult] = []
        for index, start, stop in partitions:
            # Denied topics are not looked up: the time of the lookup would show whether they exist.
            partition = None if denied else known.get((name, index))  # type: ignore[arg-type]
            try:
                if denied:
                    raise TopicAuthorizationFailed()
                if partition is None or stop <= start or version < 3:
                    raise _refusal(broker, version, name, index)
                if topic_id is not None and partition.log.topic_id != topic_id:
                    raise UnknownTopicId()  # the topic was recreated, and the new image is just being applied
                if refused is not None:
                    if partition.key in refused:
                        raise refused[partition.key]
                elif is_transactional(buf, start, stop):
                    raise TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id")
                info = partition.append(
                    buf, start, stop, acks, origin="broker" if of_broker else "client",
                    allowance=allowance, transaction_version=of_transactions,
                )  # fmt: skip
            except ApiError as error:
                if partition is not None:
                    partition.traffic.failed_produces += 1
                if refused is not None:
                    error = for_producers(error, knows_concurrent=of_transactions >= TV_2)
                if acks == 0:
                    raise CloseConnection(f"{error} for {name}-{index} of a produce with acks=0") from None
                result = PartitionResult(
                    index, error.code, error_message=error.message, record_errors=error.record_errors
                )
                if partition is not None and error.code == NotLeaderOrFollower.code:
                    result.current_leader = (partition.image.leader, partition.image.leader_epoch)
                    leaders.add(partition.image.leader)
            else:
                result = PartitionResult(
                    index, 0, info.base_offset, info.log_append_time, info.log_start_offset
                )
                if info.flush_required or (acks == -1 and not partition.is_replicated(info.last_offset)):
                    unfinished.append((partition, info, result))
            results.append(result)
        topics.append((name, topic_id, results))
    if unfinished and acks != 0:
        return wait(broker, context, request, topics, unfinished)
    if acks == 0:
        return None
    endpoints = broker.endpoints(leaders, context.listener) if leaders else ()
    return encode_produce_response(version, topics, 0, endpoints)


def _writable(broker: ProduceParts, request: ProduceRequest, access: TopicAccess | None) -> ProduceRequest:
    """The request without denied topics: verifying those with the coordinator would show that they exist."""
    if access is None:
        return request
    by_id = broker.image.topics_by_id
    topics = []
    for name, topic_id, partitions in request.topics:
        topic = None if topic_id is None else by_id.get(topic_id)
        found = name if topic is None else topic.name
        if found is None or access.may(TopicAccess.WRITE, found):
            topics.append((name, topic_id, partitions))
    return ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, topics)


def _refuse_repeated(request: ProduceRequest) -> None:
    named: set[tuple[str | UUID | None, int]] = set()
    for name, topic_id, partitions in request.topics:
        topic = name if topic_id is None else topic_id
        for index, _, _ in partitions:
            if (topic, index) in named:
                raise InvalidRequest("a partition is named twice in one produce request")
            named.add((topic, index))


def _refusal(broker: ProduceParts, version: int, name: str | None, index: int) -> ApiError:
    if version < 3:
        return UnsupportedForMessageFormat()
    if name is None:
        return UnknownTopicId()
    if (name, index) not in broker.partitions:
        return broker.topics.missing((name, index))
    return InvalidRecord("a produce request carries exactly one batch for each partition")


def error_response(context: RequestContext, request: ProduceRequest, code: int) -> bytes | None:
    if request.acks == 0:
        raise CloseConnection(f"error {code} for a produce with acks=0")
    topics = [
        (name, topic_id, [PartitionResult(index, code) for index, _, _ in partitions])
        for name, topic_id, partitions in request.topics
    ]
    return encode_produce_response(context.version, topics)


register(ApiKey.PRODUCE, range(14), handle, error_response, parse=parse_produce, concurrent=True)
