"""ShareFetch (key 78), versions 1-2.

1  KIP-932   2  exactly max_records on demand (KIP-1206), locks can be renewed (KIP-1222)

Acquires records for a member of a share group, within its share session: epoch 0 opens one, -1 closes it.
Acknowledgements in the request are applied first. Waits up to max_wait_ms for min_bytes; appends and records
that other members release wake it. A request that renews locks fetches nothing.
`max_records` is a soft limit over all partitions, because record batches are not split. Acquired records are
returned in batches of `batch_size` records or slightly more.
Left out: version 0, as in Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.security.quotas.throttle import withholds_records
from penstock.broker.share.fetching import Results, fetch, partition_result
from penstock.broker.share.requests import (
    acknowledge,
    acknowledgements_of,
    by_topic,
    check_ids,
    close_session,
    current_leader,
    endpoints,
    partitions_of,
)
from penstock.errors import ApiError, InvalidRequest, NotLeaderOrFollower
from penstock.groups.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.share.fetching import ShareFetchingParts


async def handle(broker: ShareFetchingParts, context: RequestContext, request: Message) -> Message:
    try:
        session = _session(broker, context, request)
    except ApiError as error:
        return _refused(error.code, error.message)
    await broker.share.states.ensure_topic()
    group_id, member_id = request.group_id, request.member_id
    acknowledged = await acknowledge(
        broker, group_id, member_id, acknowledgements_of(request.topics), renew=request.is_renew_ack
    )
    results: Results = {}
    if request.share_session_epoch == FINAL_EPOCH:
        await close_session(broker, session)
    elif not request.is_renew_ack:
        is_withheld = withholds_records(broker.quotas, context)
        results = await fetch(broker, request, session, acknowledged=acknowledged, is_withheld=is_withheld)
    for key, failure in acknowledged.items():
        results[key] = _acknowledged(broker, key, results.get(key) or partition_result(key[1]), failure)
    return Message(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        acquisition_lock_timeout_ms=broker.share.config(group_id).record_lock_duration_ms,
        responses=by_topic(results),
        node_endpoints=endpoints(broker, context.listener, results.values()),
    )


def _session(broker: ShareFetchingParts, context: RequestContext, request: Message) -> ShareSession:
    check_ids(request)
    sessions = broker.share.sessions
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    if epoch == FINAL_EPOCH:
        return sessions.find(group_id, member_id)
    if epoch == INITIAL_EPOCH:
        if acknowledgements_of(request.topics):
            raise InvalidRequest("The first request of a share session cannot acknowledge anything.")
        session = sessions.open(group_id, member_id, context.peer)
    else:
        session = sessions.go_on(group_id, member_id, epoch, context.peer)
    forgotten = [
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    session.update(partitions_of(request.topics), forgotten)
    return session


def _acknowledged(
    broker: ShareFetchingParts, key: TopicIdPartition, partition: Message, failure: ApiError | None
) -> Message:
    """The response with the results of the acknowledgements."""
    if failure is None:
        return partition
    fields = dict(vars(partition), acknowledge_error_code=failure.code)
    fields["acknowledge_error_message"] = failure.message
    if isinstance(failure, NotLeaderOrFollower):
        fields["current_leader"] = current_leader(broker, key)
    return Message(**fields)


def _refused(code: int, message: str | None) -> Message:
    return Message(
        throttle_time_ms=0,
        error_code=code,
        error_message=message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _refused(code, None)


register(ApiKey.SHARE_FETCH, range(1, 3), handle, error_response, concurrent=True)
