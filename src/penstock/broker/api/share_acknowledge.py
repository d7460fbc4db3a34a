"""ShareAcknowledge (key 79), versions 1-2.

1  KIP-932   2  locks can be renewed, and their timeout is returned (KIP-1222)

Acknowledges records that the member has acquired in its share session: accept, release, reject, or a gap. The
response is sent when the new state is written. Epoch -1 closes the session and releases the remaining
records.
Left out: version 0, as in Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
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
from penstock.errors import ApiError, InvalidShareSessionEpoch, NotLeaderOrFollower
from penstock.groups.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.share.requests import ShareRequestsParts


async def handle(broker: ShareRequestsParts, context: RequestContext, request: Message) -> Message:
    sessions = broker.share.sessions
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    try:
        check_ids(request)
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpoch("a share session is opened by ShareFetch")
        if epoch == FINAL_EPOCH:
            session = sessions.find(group_id, member_id)
        else:
            session = sessions.go_on(group_id, member_id, epoch, context.peer)
    except ApiError as error:
        return _refused(error.code, error.message)
    await broker.share.states.ensure_topic()
    errors = await acknowledge(
        broker, group_id, member_id, acknowledgements_of(request.topics), renew=request.is_renew_ack
    )
    if epoch == FINAL_EPOCH:
        await close_session(broker, session)
    results = {}
    for key in partitions_of(request.topics):
        failure = errors.get(key)
        leader = Message(leader_id=-1, leader_epoch=-1)
        if isinstance(failure, NotLeaderOrFollower):
            leader = current_leader(broker, key)
        results[key] = _partition(key[1], failure, leader)
    return Message(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        acquisition_lock_timeout_ms=broker.share.config(group_id).record_lock_duration_ms,
        responses=by_topic(results),
        node_endpoints=endpoints(broker, context.listener, results.values()),
    )


def _partition(index: int, error: ApiError | None, leader: Message) -> Message:
    return Message(
        partition_index=index,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        current_leader=leader,
    )


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


register(ApiKey.SHARE_ACKNOWLEDGE, range(1, 3), handle, error_response)
