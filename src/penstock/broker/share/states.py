"""Access of leaders to the state of share partitions, whose coordinator is on this broker or another one.

On this broker it is a call, on another one a request (keys 83 to 87). If the coordinator is moving, the
request is retried: otherwise acknowledged records would be delivered again when their acquisition locks
expire. The changes of one share partition are written in the order in which they were made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from penstock.broker.coordinators.shard_host import ShardHost
from penstock.coordinator import Outcome
from penstock.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRequest,
    NotCoordinator,
    NotLeaderOrFollower,
    PeerUnavailable,
    error_for_code,
)
from penstock.groups.share.batches import StateBatch
from penstock.groups.share.state import ShareStateShard
from penstock.groups.share.state_records import SharePartitionKey
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request

if TYPE_CHECKING:
    from penstock.broker.parts import HasId, HasLoop, HasMembership, HasPeers

    class ShareStatesParts(HasId, HasLoop, HasMembership, HasPeers, Protocol): ...


T = TypeVar("T")

_VERSION = 0
_PURPOSE = "share state"
_PATIENCE_S = 10.0
_PAUSE_S = 0.1
_MOVING = (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress)

Step = Callable[[ShareStateShard, Any, int], Outcome]


@dataclass(frozen=True, slots=True)
class StoredState:
    """The stored state of a share partition."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class Summary(NamedTuple):
    state_epoch: int
    leader_epoch: int
    start_offset: int


class ShareStates:
    def __init__(self, broker: ShareStatesParts, host: ShardHost[ShareStateShard]) -> None:
        self._broker = broker
        self._host = host
        self._turns: dict[SharePartitionKey, _Turn] = {}

    # changes: complete when a Message is returned or the future is done; rejected with an ApiError

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
    ) -> Message | asyncio.Future[Message]:
        asked = Message(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            state_batches=[
                Message(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        return self._change(
            key,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            asked,
            lambda shard, token, now: shard.write(
                key, state_epoch, leader_epoch, start_offset, batches, token, now
            ),
        )

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Message | asyncio.Future[Message]:
        asked = Message(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
        return self._change(
            key,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            asked,
            lambda shard, token, now: shard.initialize(key, state_epoch, start_offset, token, now),
        )

    def delete(self, key: SharePartitionKey) -> Message | asyncio.Future[Message]:
        return self._change(
            key,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            Message(partition=key.partition),
            lambda shard, token, now: shard.delete([key], token),
        )

    # reads

    async def read(self, key: SharePartitionKey, leader_epoch: int = -1) -> StoredState | None:
        """The state; None if there is none. A leader epoch fences leaders of older epochs."""
        asked = Message(partition=key.partition, leader_epoch=leader_epoch)
        try:
            found = await self._patiently(
                lambda: self._ask(
                    key,
                    ApiKey.READ_SHARE_GROUP_STATE,
                    asked,
                    lambda shard, token, now: shard.read(key, leader_epoch, token),
                )
            )
        except InvalidRequest:
            return None
        batches = tuple(
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in found.state_batches
        )
        return StoredState(found.state_epoch, found.start_offset, batches)

    async def summary(self, key: SharePartitionKey) -> Summary | None:
        """The state without in-flight records."""
        asked = Message(partition=key.partition, leader_epoch=-1)
        found = await self._patiently(
            lambda: self._ask(
                key,
                ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
                asked,
                lambda shard, token, now: shard.summary(key, token),
            )
        )
        if found.state_epoch < 0:
            return None
        return Summary(found.state_epoch, found.leader_epoch, found.start_offset)

    # the coordinator, here or on another broker

    def _is_here(self, key: SharePartitionKey) -> bool:
        if self._broker.membership is None:
            return True
        try:
            return self._host.leader_of(key.coordinator_key) == self._broker.id
        except CoordinatorNotAvailable:
            return False

    def _change(
        self, key: SharePartitionKey, api: ApiKey, asked: Message, step: Step
    ) -> Message | asyncio.Future[Message]:
        if self._is_here(key) and key not in self._turns:
            return self._host.call(key.coordinator_key, step)
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        return self._broker.loop.create_task(self._change_in_turn(turn, key, api, asked, step))

    async def _change_in_turn(
        self, turn: _Turn, key: SharePartitionKey, api: ApiKey, asked: Message, step: Step
    ) -> Message:
        try:
            async with turn.lock:
                return await self._patiently(lambda: self._ask(key, api, asked, step))
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        loop = self._broker.loop
        end = loop.time() + (0.0 if self._broker.membership is None else _PATIENCE_S)
        while True:
            try:
                return await work()
            except PeerUnavailable as error:
                failure: ApiError = CoordinatorNotAvailable(str(error))
            except _MOVING as error:
                failure = error
            if loop.time() >= end:
                raise failure
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, key: SharePartitionKey, api: ApiKey, asked: Message, step: Step) -> Message:
        if self._is_here(key):
            done = self._host.call(key.coordinator_key, step)
            return await done if isinstance(done, asyncio.Future) else done
        coordinator = self._host.leader_of(key.coordinator_key)
        request = Message(group_id=key.group_id, topics=[Message(topic_id=key.topic_id, partitions=[asked])])
        frame, start = await self._broker.peers.exchange(
            coordinator, api, _VERSION, encode_request(api, _VERSION, request), purpose=_PURPOSE
        )
        answer: Message = decode_response(api, _VERSION, bytes(frame), start).results[0].partitions[0]
        if answer.error_code:
            raise error_for_code(answer.error_code)(answer.error_message)
        return answer


class _Turn:
    """Serializes the changes of one share partition; `waiting` is how many are queued."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def as_client_sees(error: ApiError) -> ApiError:
    """The error for the client, for an error of the state's coordinator, as Kafka maps them."""
    if isinstance(error, (NotCoordinator, CoordinatorLoadInProgress)):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, (FencedLeaderEpoch, FencedStateEpoch)):
        return NotLeaderOrFollower(error.message)
    if isinstance(error, InvalidRequest):
        return GroupIdNotFound(error.message)
    return error
