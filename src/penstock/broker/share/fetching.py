"""ShareFetch: waits until enough records are available, and acquires them from the session's partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from penstock.broker.share.opened import Opened
from penstock.broker.share.requests import Errors, current_leader
from penstock.errors import ApiError, CoordinatorNotAvailable, NotLeaderOrFollower
from penstock.groups.share.sessions import INITIAL_EPOCH, ShareSession, TopicIdPartition
from penstock.groups.share.settings import ShareGroupConfig
from penstock.replication.delayed import DelayedOperation, Key
from penstock.wire.message import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasConfig, HasDelayed, HasLoop, HasQuotas
    from penstock.broker.share.requests import ShareRequestsParts

    class ShareFetchingParts(ShareRequestsParts, HasConfig, HasDelayed, HasLoop, HasQuotas, Protocol): ...


_NOBODY = Message(leader_id=-1, leader_epoch=-1)
_EXACT = 1
_PAUSE_MS = 100
_PREPARE_MS = 500

Results = dict[TopicIdPartition, Message]


async def fetch(
    broker: ShareFetchingParts,
    request: Message,
    session: ShareSession,
    acknowledged: Errors,
    *,
    is_withheld: bool = False,
) -> Results:
    """The results of the session's partitions that have records or errors; in a new session, of all
    partitions. Nothing is acquired for a member that has exceeded its quota."""
    config = broker.share.config(request.group_id)
    wanted = session.in_turn()
    tell_all = request.share_session_epoch == INITIAL_EPOCH
    min_bytes = min(request.min_bytes, broker.config.fetch_max_bytes)
    # The wait is limited, so that a slow coordinator does not delay the records of other partitions.
    await broker.share.opening.prepare(request.group_id, wanted, min(request.max_wait_ms, _PREPARE_MS) / 1000)
    opened, failed = _open(broker, request.group_id, wanted)
    # Acknowledgements that failed are reported at once.
    urgent = is_withheld or bool(failed) or any(error is not None for error in acknowledged.values())
    if not urgent and opened and request.max_wait_ms > 0 and request.max_records > 0:
        if _readable(broker, opened.values(), config, request.max_bytes) < max(min_bytes, 1):
            await _Wait(broker, list(opened.values()), config, request.max_bytes, min_bytes).over(
                request.max_wait_ms
            )
            opened, failed = _open(broker, request.group_id, wanted)
    elif not urgent and not opened and wanted:
        await asyncio.sleep(min(request.max_wait_ms, _PAUSE_MS) / 1000)
    # Checked after the last await: records that are acquired for a closed session would not be released.
    if session is not _current(broker, session):
        return {}
    results = (
        {key: partition_result(key[1]) for key in opened}
        if is_withheld
        else _acquire(broker, request, config, opened)
    )
    results.update(failed)
    if not tell_all:
        results = {key: one for key, one in results.items() if one.acquired_records or one.error_code}
    return results


def _current(broker: ShareFetchingParts, session: ShareSession) -> ShareSession | None:
    """The session; None if it was closed while the request waited: then nothing may be acquired for it."""
    try:
        return broker.share.sessions.find(session.group_id, session.member_id)
    except ApiError:
        return None


def _open(
    broker: ShareFetchingParts, group_id: str, wanted: Iterable[TopicIdPartition]
) -> tuple[dict[TopicIdPartition, Opened], Results]:
    opened: dict[TopicIdPartition, Opened] = {}
    failed: Results = {}
    for key in wanted:
        try:
            opened[key] = broker.share.find(group_id, *key)
        except CoordinatorNotAvailable:
            continue  # its state is being read: the member gets the result after that
        except ApiError as error:
            leader = current_leader(broker, key) if isinstance(error, NotLeaderOrFollower) else _NOBODY
            failed[key] = partition_result(key[1], error, current_leader=leader)
    return opened, failed


def _acquire(
    broker: ShareFetchingParts,
    request: Message,
    config: ShareGroupConfig,
    opened: dict[TopicIdPartition, Opened],
) -> Results:
    bytes_left = min(request.max_bytes, broker.config.fetch_max_bytes)
    records_left = request.max_records
    results: Results = {}
    for key, one in opened.items():
        results[key] = partition_result(key[1])
        if records_left <= 0 or bytes_left <= 0:
            continue
        try:
            found = broker.share.acquire(
                one,
                request.member_id,
                config,
                bytes_left,
                records_left,
                batch_size=request.batch_size,
                exact=request.share_acquire_mode == _EXACT,
            )
        except ApiError as error:
            results[key] = partition_result(key[1], error)
            continue
        acquired = [
            Message(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in found.acquired
        ]
        results[key] = partition_result(key[1], records=found.records, acquired_records=acquired)
        bytes_left -= len(found.records)
        records_left -= sum(last - first + 1 for first, last, _ in found.acquired)
    return results


def _readable(
    broker: ShareFetchingParts, opened: Iterable[Opened], config: ShareGroupConfig, max_bytes: int
) -> int:
    return sum(broker.share.readable_bytes(one, config, max_bytes) for one in opened)


class _Wait(DelayedOperation):
    """Waits until `min_bytes` can be acquired in all partitions together."""

    __slots__ = ("_broker", "_config", "_done", "_max_bytes", "_min_bytes", "_opened")

    def __init__(
        self,
        broker: ShareFetchingParts,
        opened: list[Opened],
        config: ShareGroupConfig,
        max_bytes: int,
        min_bytes: int,
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


def partition_result(index: int, error: ApiError | None = None, **more: object) -> Message:
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
