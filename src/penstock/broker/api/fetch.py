"""Fetch (key 1), versions 4-18.

4   record batches, isolation level, last stable offset, aborted transactions   5  log start offset
7   sessions (KIP-227)   9  current leader epoch (KIP-320)   10  zstd   11  rack (KIP-392)
12  flexible, last fetched epoch and diverging epoch (KIP-595)   13  topic ids (KIP-516)
15  replica state (KIP-903)   16  addresses of leaders (KIP-951)   17  directory id   18  high watermark

A fetch waits up to max_wait_ms for min_bytes; appends wake it. The first partition that has records returns
at least one batch, however large (KIP-74). Records are sent from the file to the socket with sendfile.
With a rack-aware replica.selector.class, a consumer that names its rack is sent to a follower in that rack.
Followers serve consumers of version 11 and later up to their high watermark.
leader.replication.throttled.rate limits the followers that are behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.fetch.lookup import Find, Results, encode, forgotten, is_there, lookup, partitions_asked
from penstock.broker.fetch.sessions import FINAL_EPOCH, FetchSession, SessionKey
from penstock.broker.follower_sessions import FollowerSession
from penstock.broker.net.context import RequestContext
from penstock.broker.net.writer import Chunk
from penstock.broker.security.quotas.metering import Metered, metered
from penstock.broker.security.quotas.throttle import who, withholds_records
from penstock.errors import (
    ApiError,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from penstock.log.partition_log import PartitionLog
from penstock.replication.delayed import Key
from penstock.replication.fetching import FetchParams, FetchWait, Found, read
from penstock.replication.partition import CONSUMER, Partition
from penstock.replication.selector import RACK_AWARE
from penstock.wire.api_keys import ApiKey
from penstock.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response,
    parse_fetch,
)

if TYPE_CHECKING:
    from penstock.broker.follower_sessions import FollowerSessionsParts
    from penstock.broker.parts import CanUseThreads, HasFetchSessions, HasQuotas

    class FetchParts(FollowerSessionsParts, CanUseThreads, HasFetchSessions, HasQuotas, Protocol): ...


_SESSION_ERRORS = (FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code)

Wanted = list[tuple[SessionKey, Found, FetchPartition]]
Respond = Callable[[Results], list[Chunk]]


def handle(
    broker: FetchParts, context: RequestContext, buf: bytearray, pos: int, end: int
) -> list[Chunk] | asyncio.Future[list[Chunk]]:
    version = context.version
    request = parse_fetch(buf, pos, end, version)
    by_id = version >= 13
    find = lookup(broker, context, request.replica_id, request.replica_epoch)
    asked = partitions_asked(request.topics)
    session: FetchSession | None = None
    if version >= 7:
        try:
            session = broker.sessions.find(request, by_id)
            if session is not None:
                if session.follower is not None and session.follower.replica_id != request.replica_id:
                    raise FetchSessionIdNotFound(f"session {session.id} is another reader's")
                broker.sessions.update(session, asked, forgotten(request), partial(is_there, find))
        except ApiError as error:
            return encode(broker, version, context.listener, error.code, 0, {})
    params = _params(broker, context, request)
    if session is not None and session.follower is not None:
        if not session.partitions:
            broker.sessions.close(session)
        return session.follower.fetch(find, version, params, request.max_wait_ms, asked, forgotten(request))
    if session is None:
        wanted = [(key, find(key), partition) for key, partition in asked.items()]
    else:
        if not session.partitions:
            broker.sessions.close(session)
        wanted = [(key, find(key), cached.wanted) for key, cached in session.partitions.items()]

    is_follower = request.replica_id >= 0

    def encoded(session_id: int, results: Results) -> list[Chunk]:
        return encode(broker, version, context.listener, 0, session_id, results, to_follower=is_follower)

    def respond(results: Results) -> list[Chunk]:
        if session is not None:
            return encoded(session.id if session.partitions else 0, session.tell(results))
        if version < 7 or request.session_epoch == FINAL_EPOCH or not asked:
            return encoded(0, results)
        if not all(isinstance(found, Partition) for _, found, _ in wanted):
            return encoded(0, results)
        created = broker.sessions.create(asked.items(), by_id, is_follower)
        if created is None:
            return encoded(0, results)
        created.tell(results)
        if is_follower:
            created.follower = FollowerSession(broker, created, request.replica_id, request.replica_epoch)
        return encoded(created.id, results)

    results: Results = {}
    if request.rack_id and request.replica_id == CONSUMER and _by_rack(broker):
        wanted = _send_to_followers(broker, request.rack_id, wanted, results)
        if results:
            read(params._replace(is_patient=True), wanted, results)
            return respond(results)
    outcome = read(params, wanted, results)
    if outcome.cold:
        warm = _when_warm(broker, context, params, wanted, outcome.cold, request.max_wait_ms, respond, find)
        if hasattr(context, "spent_s"):
            return broker.loop.create_task(Metered(context, warm, broker.clock.monotonic))
        return broker.loop.create_task(warm)
    if params.replica_id >= 0 and broker.membership is not None:
        for _, found, _ in wanted:
            if isinstance(found, Partition):
                broker.membership.isr.follower_fetched(found, params.replica_id)
    if outcome.urgent or outcome.size >= params.min_bytes or request.max_wait_ms <= 0 or not wanted:
        return respond(results)
    if params.is_withheld:
        return respond(results)  # the connection is muted afterwards: that is the wait
    if params.tell_high_watermark and session is not None and session.is_behind(results):
        return respond(results)
    patient = params._replace(is_patient=True)
    return _wait(broker, context, patient, wanted, results, request.max_wait_ms, respond, find)


async def _when_warm(
    broker: FetchParts,
    context: RequestContext,
    params: FetchParams,
    wanted: Wanted,
    cold: Sequence[tuple[PartitionLog, int, int]],
    max_wait_ms: int,
    respond: Respond,
    find: Find,
) -> list[Chunk]:
    """Reads in a thread what the fetch needs from disk, then fetches even if the page cache has evicted it
    again by then: so a fetch makes progress under any memory pressure."""

    def warm_up() -> None:
        for log, offset, max_bytes in cold:
            log.warm_up(offset, max_bytes)

    await broker.in_thread(warm_up)
    params = params._replace(is_patient=True)
    wanted = [(key, find(key), request) for key, _, request in wanted]
    results: Results = {}
    outcome = read(params, wanted, results)
    if outcome.urgent or outcome.size >= params.min_bytes or max_wait_ms <= 0:
        return respond(results)
    return await _wait(broker, context, params, wanted, results, max_wait_ms, respond, find)


def _params(broker: FetchParts, context: RequestContext, request: FetchRequest) -> FetchParams:
    max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    is_withheld = False
    if broker.quotas.is_active:
        if request.replica_id >= 0:
            context.is_from_follower = True
        elif (most := broker.quotas.most_fetched(who(context))) is not None:
            max_bytes = min(max_bytes, most)
            is_withheld = withholds_records(broker.quotas, context)
    return FetchParams(
        request.replica_id,
        request.isolation_level,
        max_bytes,
        min(request.min_bytes, broker.config.fetch_max_bytes),
        request.replica_epoch,
        at_follower=context.version >= 11
        and request.replica_id == CONSUMER
        and broker.membership is not None,
        tell_high_watermark=request.replica_id >= 0 and _by_rack(broker),
        throttle=None
        if request.replica_id < 0 or broker.membership is None
        else broker.membership.leader_throttle,
        is_patient=request.replica_id >= 0,
        is_withheld=is_withheld,
    )


def _by_rack(broker: FetchParts) -> bool:
    """Whether consumers are sent to followers in their rack. A single broker has no followers."""
    if broker.membership is None:
        return False
    selector: str | None = broker.config.replica_selector_class
    return selector is not None and selector.endswith(RACK_AWARE)


def _send_to_followers(broker: FetchParts, rack: str, wanted: Wanted, results: Results) -> Wanted:
    """Adds a redirect for each partition that a follower in this rack can serve; returns the partitions to
    read here."""
    racks = {one.id: one.rack for one in broker.image.brokers.values()}
    here: Wanted = []
    for key, found, request in wanted:
        if isinstance(found, Partition):
            try:
                result = found.preferred_replica(request, rack, racks)
            except ApiError:
                result = None  # the read returns the error
            if result is not None:
                results[key] = result
                continue
        here.append((key, found, request))
    return here


def _wait(
    broker: FetchParts,
    context: RequestContext,
    params: FetchParams,
    wanted: Wanted,
    results: Results,
    max_wait_ms: int,
    respond: Respond,
    find: Find,
) -> asyncio.Future[list[Chunk]]:
    answer: asyncio.Future[list[Chunk]] = broker.loop.create_future()
    found: dict[Key, tuple[Partition, FetchPartition]] = {}
    sizes: dict[Key, int] = {}
    throttle = params.throttle
    for key, partition, request in wanted:
        if isinstance(partition, Partition):
            if throttle is not None and throttle.holds_back(partition, params.replica_id):
                continue  # appends to it need not wake this fetch
            found[partition.key] = (partition, request)
            sizes[partition.key] = sum(map(len, results[key].slices))  # type: ignore[arg-type]

    def complete() -> None:
        if answer.done():
            return
        # Topics and permissions may have changed in the meantime.
        again = [(key, find(key), request) for key, _, request in wanted]
        results.clear()
        try:
            read(params, again, results)
            found = respond(results)
        except Exception as error:  # noqa: BLE001 - the border: the dispatcher logs it and responds
            answer.set_exception(error)
        else:
            answer.set_result(found)

    if hasattr(context, "spent_s"):
        complete = metered(context, complete, broker.clock.monotonic)
    wait = FetchWait(params, found, sizes, complete)
    broker.delayed.watch(wait, found, max_wait_ms)
    answer.add_done_callback(lambda _: broker.delayed.remove(wait))
    return answer


def error_response(context: RequestContext, request: FetchRequest, code: int) -> list[Chunk]:
    """The error of each partition; at the top if it is about the session, or if no partition is named."""
    topics = [
        (name, topic_id, [FetchPartitionResult(partition.partition, code) for partition in partitions])
        for name, topic_id, partitions in request.topics
    ]
    if context.version >= 7 and (code in _SESSION_ERRORS or not topics):
        return encode_fetch_response(context.version, 0, code, 0, [])  # type: ignore[return-value]
    return encode_fetch_response(context.version, 0, 0, 0, topics)  # type: ignore[return-value]


register(ApiKey.FETCH, range(4, 19), handle, error_response, parse=parse_fetch, concurrent=True)
