"""Opens share partitions in a cluster, where other brokers may coordinate the state and the group."""

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
    """The share partitions that are being opened; concurrent requests share one attempt."""

    def __init__(self, broker: ShareOpeningParts, sharing: Sharing) -> None:
        self._broker = broker
        self._sharing = sharing
        self._tasks: dict[SharePartitionKey, asyncio.Task[None]] = {}
        self._refused: dict[SharePartitionKey, ApiError] = {}  # errors for the next request

    async def prepare(
        self, group_id: str, wanted: Iterable[tuple[UUID, int]], patience_s: float = PATIENCE_S
    ) -> None:
        """Called before `Sharing.find`, which raises the errors. What is not read in time is available
        later."""
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
        """The error for a share partition that is not open."""
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
            # From here on the state fences leaders of older epochs.
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
        """Raises an error if the group does not exist: otherwise any client could create state."""
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
