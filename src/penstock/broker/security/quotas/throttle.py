"""Applies quotas to requests: records their cost, sets the throttle time in the response, and mutes the
connection.

As in Kafka the response is sent at once with its throttle time, and the connection is muted for that time
(KIP-219). Meanwhile, fetches on other connections that share the quota get responses without records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.broker.security.quotas.quotas import FETCH, PRODUCE, REQUEST, Who
from penstock.metadata.acls import Operation
from penstock.wire import schema
from penstock.wire.api_keys import ApiKey, is_flexible

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext
    from penstock.broker.net.dispatch import Answer
    from penstock.broker.parts import HasQuotas
    from penstock.broker.security.authorization.authorizer import Authorizer
    from penstock.broker.security.quotas.quotas import ClientQuotas

T = TypeVar("T")

_EXEMPT = frozenset(
    (
        ApiKey.ALTER_PARTITION, ApiKey.WRITE_TXN_MARKERS, ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    )
)  # fmt: skip
"""The requests between brokers, like fetches of followers: quotas must not slow down replication."""
_FETCHES = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
_TXN_OF_BROKERS = 4
QUOTA_EXCEEDED = "The throttling quota has been exceeded."

_pack = struct.Struct(">i").pack


def who(context: RequestContext) -> Who:
    return context.principal.name, context.client_id or ""


def is_exempt(context: RequestContext) -> bool:
    key = context.api_key
    return key in _EXEMPT or (key == ApiKey.ADD_PARTITIONS_TO_TXN and context.version >= _TXN_OF_BROKERS)


def throttle_ms(
    quotas: ClientQuotas,
    authorizer: Authorizer | None,
    context: RequestContext,
    received: int,
    answer: Answer,
) -> int:
    """The throttle time of the client, after recording this request and its response."""
    if (context.is_from_follower or is_exempt(context)) and _may_be_broker(authorizer, context):
        return 0
    client = who(context)
    throttle = max(context.throttle_ms, quotas.record(REQUEST, client, context.spent_s * 100))
    if context.api_key == ApiKey.PRODUCE:
        return max(throttle, quotas.record(PRODUCE, client, received))
    if context.api_key in _FETCHES and not context.throttle_ms:
        return max(throttle, quotas.record(FETCH, client, _size(answer)))
    return throttle


def _may_be_broker(authorizer: Authorizer | None, context: RequestContext) -> bool:
    """Whether the sender may be a broker. Any client can send these requests, and denied ones count for
    quotas."""
    host = context.peer.rpartition(":")[0]
    return authorizer is None or authorizer.allows_on_cluster(
        str(context.principal), host, Operation.CLUSTER_ACTION
    )


def withholds_records(quotas: ClientQuotas, context: RequestContext) -> bool:
    """Whether a fetch gets no records, because its client is throttled. The response has the remaining
    time."""
    wait = quotas.fetch_wait(who(context)) if quotas.is_active else 0
    if wait:
        context.throttle_ms = wait
    return wait > 0


def _size(answer: Answer) -> int:
    if answer is None:
        return 0
    return len(answer) if isinstance(answer, bytes) else sum(map(len, answer))


def throttle_place(key: int, version: int) -> int | None:
    """Where in the body of an answer the throttle time is: 0 for the beginning, -1 for the end; None where
    this version has none, or it is somewhere else."""
    if key == ApiKey.PRODUCE:
        return -1 if version >= 1 else None
    fields = schema.load(schema.message_name(key), version, "response").fields
    return 0 if fields and fields[0].name == "throttle_time_ms" else None


def with_throttle(
    answer: Answer, key: int, version: int, place: int | None, header: int, throttle: int
) -> Answer:
    """The same answer with its throttle time. `header` is the bytes before the body."""
    if answer is None or place is None:
        return answer
    if isinstance(answer, bytes):
        if place == 0:
            return answer[:header] + _pack(throttle) + answer[header + 4 :]
        tail = b"\0" if is_flexible(key, version) else b""
        if answer.endswith(_pack(0) + tail):  # else tagged fields follow, with the leaders of partitions
            return answer[: len(answer) - 4 - len(tail)] + _pack(throttle) + tail
        return answer
    first = answer[1]
    if place == 0 and isinstance(first, bytes | bytearray):
        return [answer[0], _pack(throttle) + bytes(first[4:]), *answer[2:]]
    return answer


def admitted(
    broker: HasQuotas, context: RequestContext, items: Sequence[T], cost: Callable[[T], int], *, strict: bool
) -> tuple[list[T], list[T]]:
    """The topic changes that controller_mutation_rate allows, and those that it rejects."""
    if not broker.quotas.is_active:
        return list(items), []
    allowed: list[T] = []
    refused: list[T] = []
    client: Any = who(context)
    for item in items:
        is_allowed, throttle = broker.quotas.mutate(client, cost(item), strict=strict)
        # Not there where the first quota was set between the request and its handling.
        context.throttle_ms = max(getattr(context, "throttle_ms", 0), throttle)
        (allowed if is_allowed else refused).append(item)
    return allowed, refused
