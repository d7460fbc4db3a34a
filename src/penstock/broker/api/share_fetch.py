"""ShareFetch (key 78), versions 1-2.

1  KIP-932   2  exactly max_records on demand (KIP-1206), locks can be renewed (KIP-1222)

Acquires records for a member of a share group, within its share session: epoch 0 opens one, -1 closes it.
Acknowledgements in the request are carried out first. Waits up to max_wait_ms for min_bytes, woken by appends
and by records that others release. A request that renews locks fetches nothing.
Left out: version 0, as in Kafka 4.1; batch_size, a hint: neighbours are told in one batch of any size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.registry import register
from penstock.broker.share import Opened
from penstock.broker.share_requests import (
    Errors,
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
from penstock.groups.share.settings import ShareGroupConfig
from penstock.replication.delayed import DelayedOperation, Key
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_NOBODY = Message(leader_id=-1, leader_epoch=-1)
_EXACT = 1

Results = dict[TopicIdPartition, Message]


async def handle(broker: Broker, context: RequestContext, request: Message) -> Message:
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
        results = await _fetch(broker, request, session, told=acknowledged)
    for key, failure in acknowledged.items():
        results[key] = _acknowledged(broker, key, results.get(key) or _partition(key[1]), failure)
    return Message(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        acquisition_lock_timeout_ms=broker.share.config(group_id).record_lock_duration_ms,
        responses=by_topic(results),
        node_endpoints=endpoints(broker, results.values()),
    )


def _session(broker: Broker, context: RequestContext, request: Message) -> ShareSession:
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


async def _fetch(broker: Broker, request: Message, session: ShareSession, told: Errors) -> Results:
    """What there is to tell of the session's partitions; of a new session, of all of them."""
    config = broker.share.config(request.group_id)
    wanted = session.in_turn()
    tell_all = request.share_session_epoch == INITIAL_EPOCH
    min_bytes = min(request.min_bytes, broker.config.fetch_max_bytes)
    opened, failed = _open(broker, request.group_id, wanted)
    # Acknowledgements that failed are told at once.
    urgent = bool(failed) or any(error is not None for error in told.values())
    if not urgent and opened and request.max_wait_ms > 0 and request.max_records > 0:
        if _readable(broker, opened.values(), config, request.max_bytes) < max(min_bytes, 1):
            await _Wait(broker, list(opened.values()), config, request.max_bytes, min_bytes).over(
                request.max_wait_ms
            )
            if session is not _current(broker, session):
                return {}
            opened, failed = _open(broker, request.group_id, wanted)
    results = _acquire(broker, request, config, opened)
    results.update(failed)
    if not tell_all:
        results = {key: one for key, one in results.items() if one.acquired_records or one.error_code}
    return results


def _current(broker: Broker, session: ShareSession) -> ShareSession | None:
    """None where the session was closed while its request waited: then nothing may be acquired for it."""
    try:
        return broker.share.sessions.find(session.group_id, session.member_id)
    except ApiError:
        return None


def _open(
    broker: Broker, group_id: str, wanted: Iterable[TopicIdPartition]
) -> tuple[dict[TopicIdPartition, Opened], Results]:
    opened: dict[TopicIdPartition, Opened] = {}
    failed: Results = {}
    for key in wanted:
        try:
            opened[key] = broker.share.find(group_id, *key)
        except ApiError as error:
            leader = current_leader(broker, key) if isinstance(error, NotLeaderOrFollower) else _NOBODY
            failed[key] = _partition(key[1], error, current_leader=leader)
    return opened, failed


def _acquire(
    broker: Broker, request: Message, config: ShareGroupConfig, opened: dict[TopicIdPartition, Opened]
) -> Results:
    bytes_left = min(request.max_bytes, broker.config.fetch_max_bytes)
    records_left = request.max_records
    results: Results = {}
    for key, one in opened.items():
        results[key] = _partition(key[1])
        if records_left <= 0 or bytes_left <= 0:
            continue
        try:
            found = broker.share.acquire(
                one,
                request.member_id,
                config,
                bytes_left,
                records_left,
                exact=request.share_acquire_mode == _EXACT,
            )
        except ApiError as error:
            results[key] = _partition(key[1], error)
            continue
        acquired = [
            Message(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in found.acquired
        ]
        results[key] = _partition(key[1], records=found.records, acquired_records=acquired)
        bytes_left -= len(found.records)
        records_left -= sum(last - first + 1 for first, last, _ in found.acquired)
    return results


def _readable(broker: Broker, opened: Iterable[Opened], config: ShareGroupConfig, max_bytes: int) -> int:
    return sum(broker.share.readable_bytes(one, config, max_bytes) for one in opened)


class _Wait(DelayedOperation):
    """Until there are `min_bytes` to acquire in all of the partitions together."""

    __slots__ = ("_broker", "_config", "_done", "_max_bytes", "_min_bytes", "_opened")

    def __init__(
        self, broker: Broker, opened: list[Opened], config: ShareGroupConfig, max_bytes: int, min_bytes: int
    ) -> None:
        self._broker = broker
        self._opened = opened
        self._config = config
        self._max_bytes = max_bytes
        self._min_bytes = max(min_bytes, 1)
        self._done: asyncio.Future[None] = broker.loop.create_future()

    async def over(self, max_wait_ms: int) -> None:
        self._broker.delayed.watch(self, {one.partition.key for one in self._opened}, max_wait_ms)
        try:
            await self._done
        finally:
            self._broker.delayed.remove(self)

    def is_satisfied(self, key: Key) -> bool:
        return _readable(self._broker, self._opened, self._config, self._max_bytes) >= self._min_bytes

    def complete(self, expired: bool) -> None:
        if not self._done.done():
            self._done.set_result(None)


def _partition(index: int, error: ApiError | None = None, **more: object) -> Message:
    fields: dict[str, object] = {
        "partition_index": index,
        "error_code": 0 if error is None else error.code,
        "error_message": None if error is None else error.message,
        "acknowledge_error_code": 0,
        "acknowledge_error_message": None,
        "current_leader": _NOBODY,
        "records": b"",
        "acquired_records": [],
    }
    return Message(**{**fields, **more})


def _acknowledged(
    broker: Broker, key: TopicIdPartition, partition: Message, failure: ApiError | None
) -> Message:
    """The same, with how the acknowledgements went."""
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
