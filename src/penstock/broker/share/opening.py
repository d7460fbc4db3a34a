"""Opening share partitions in a cluster, where state and group may be coordinated by other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.broker.share.states import as_client_sees
from penstock.errors import (
    ApiError,
    CoordinatorNotAvailable,
    NotLeaderOrFollower,
    PeerUnavailable,
    error_for_code,
)
from penstock.groups.share.state import UNINITIALIZED
from penstock.groups.share.state_records import SharePartitionKey
from penstock.replication.partition import Partition
from penstock.wire.api_keys import ApiKey
from penstock.wire.message import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups, HasId, HasLoop, HasMembership, HasPeers
    from penstock.broker.share.groups import Sharing

    class ShareOpeningParts(HasGroups, HasId, HasLoop, HasMembership, HasPeers, Protocol): ...


PATIENCE_S = 10.0
_DESCRIBE_VERSION = 1


class Opening:
    """Those that are being opened, each once, whoever asks for it."""

    def __init__(self, broker: ShareOpeningParts, sharing: Sharing) -> None:
        self._broker = broker
        self._sharing = sharing
        self._tasks: dict[SharePartitionKey, asyncio.Task[None]] = {}
        self._refused: dict[SharePartitionKey, ApiError] = {}  # to be reported to the next who asks

    async def prepare(
        self, group_id: str, wanted: Iterable[tuple[UUID, int]], patience_s: float = PATIENCE_S
    ) -> None:
        """Before `Sharing.find`, which reports the errors. What is not read in time is found later."""
        if self._broker.membership is None:
            return
        waiting = []
        for topic_id, index in wanted:
            try:
                partition = self._sharing.partition(topic_id, index)
            except ApiError:
                continue
            key = SharePartitionKey(group_id, topic_id, index)
            if self._sharing.current(key, partition) is None:
                waiting.append(self._tasks.get(key) or self._begin(key, partition))
        if waiting:
            await asyncio.wait(waiting, timeout=patience_s)

    def reason(self, key: SharePartitionKey) -> ApiError:
        """Why it is not open."""
        return self._refused.pop(key, None) or CoordinatorNotAvailable("the state is being read")

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _begin(self, key: SharePartitionKey, partition: Partition) -> asyncio.Task[None]:
        task = self._tasks[key] = self._broker.loop.create_task(self._open(key, partition))
        task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    async def _open(self, key: SharePartitionKey, partition: Partition) -> None:
        sharing, stored = self._sharing, self._sharing.stored
        epoch = partition.image.leader_epoch
        self._refused.pop(key, None)
        try:
            # From here on a leader of an older epoch cannot write the state any more.
            state = await stored.read(key, epoch)
            if state is None:
                await self._check_group(key.group_id)
                await _done(stored.initialize(key, 0, UNINITIALIZED))
                state = await stored.read(key, epoch)
            if state is None:
                raise CoordinatorNotAvailable("the state was deleted at this moment")
            if state.start_offset == UNINITIALIZED:
                start = sharing.first_offset(partition, sharing.config(key.group_id).auto_offset_reset)
                await _done(stored.write(key, state.state_epoch, epoch, start, ()))
                state = replace(state, start_offset=start)
            if sharing.partition(*key[1:]) is not partition or partition.image.leader_epoch != epoch:
                raise NotLeaderOrFollower()
        except ApiError as error:
            self._refused[key] = as_client_sees(error)
            return
        sharing.opened(key, partition, state)

    async def _check_group(self, group_id: str) -> None:
        """There has to be such a group: else anybody could make state."""
        broker = self._broker
        coordinator = broker.groups.leader_of(group_id)
        if coordinator == broker.id:
            self._sharing.check_group(group_id)
            return
        request = Message(group_ids=[group_id], include_authorized_operations=False)
        try:
            answer = await broker.peers.call(
                coordinator, ApiKey.SHARE_GROUP_DESCRIBE, _DESCRIBE_VERSION, request
            )
        except PeerUnavailable as error:
            raise CoordinatorNotAvailable(str(error)) from error
        found = answer.groups[0]
        if found.error_code:
            raise error_for_code(found.error_code)(found.error_message)


async def _done(change: Message | asyncio.Future[Message]) -> None:
    if isinstance(change, asyncio.Future):
        await change
