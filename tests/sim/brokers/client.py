"""A Kafka client of the simulation: real requests over the simulated network, metadata, coordinators,
retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.cluster.peers import PeerConnection
from penstock.errors import PeerUnavailable, error_for_code
from penstock.wire.api_keys import ApiKey, response_header_version
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.primitives import skip_tags
from tests.sim.brokers.loop import Process, in_process
from tests.sim.brokers.node import FIRST_PORT, HOST

if TYPE_CHECKING:
    from tests.sim.brokers.world import World

Key = tuple[str, int]

TIMEOUT_S = 12.0
_BACKOFF_S = 0.1


class Lost(Exception):
    """No answer: the request may or may not have been handled."""


def error_name(code: int) -> str:
    return error_for_code(code).kafka_name if code else "NONE"


class Client:
    """One process with connections to the brokers."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.loop = world.loop
        self.rng = world.rng
        self.name = name
        self.process = Process(name)
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        self._leaders: dict[Key, int] = {}
        self.leader_epochs: dict[Key, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def run(self, work: Callable[[], object]) -> asyncio.Task[object]:
        return self.loop.create_task(work(), context=in_process(self.process))

    def note(self, text: str) -> None:
        self.world.note(f"{self.name}: {text}")

    async def backoff(self) -> None:
        await asyncio.sleep(_BACKOFF_S * (0.5 + self.rng.random()))

    # requests

    async def call(
        self,
        node: int,
        api: ApiKey,
        version: int,
        request: Message,
        purpose: str = "",
        timeout: float = TIMEOUT_S,
    ) -> Message:
        connection = await self._connection(node, purpose)
        return await self.answer(connection, api, version, request, timeout)

    async def answer(
        self,
        connection: PeerConnection,
        api: ApiKey,
        version: int,
        request: Message,
        timeout: float = TIMEOUT_S,
    ) -> Message:
        try:
            frame = await connection.send(api, version, encode_request(api, version, request), timeout)
        except PeerUnavailable as error:
            raise Lost(str(error)) from None
        start = 4
        if response_header_version(api, version) >= 1:
            start = skip_tags(frame, start, len(frame))
        return decode_response(api, version, bytes(frame), start)

    async def _connection(self, node: int, purpose: str) -> PeerConnection:
        key = (node, purpose)
        known = self._connections.get(key)
        if known is not None and known.is_open:
            return known
        try:
            _, made = await asyncio.wait_for(
                self.loop.create_connection(
                    lambda: PeerConnection(node, self.name, self.loop), HOST, FIRST_PORT + node
                ),
                5.0,
            )
        except (OSError, TimeoutError) as error:
            raise Lost(f"broker {node}: {error}") from None
        other = self._connections.get(key)
        if other is not None and other.is_open:
            made.close()
            return other
        self._connections[key] = made
        return made  # type: ignore[no-any-return]

    async def any(self, api: ApiKey, version: int, request: Message) -> Message:
        """The answer of whoever can be asked."""
        while True:
            node = self.rng.choice(self.world.node_ids)
            try:
                return await self.call(node, api, version, request)
            except Lost:
                await self.backoff()

    # metadata

    async def leader(self, key: Key) -> int:
        while key not in self._leaders:
            await self._refresh(key[0])
            if key not in self._leaders:
                await self.backoff()
        return self._leaders[key]

    def forget_leader(self, key: Key) -> None:
        self._leaders.pop(key, None)

    async def _refresh(self, topic: str) -> None:
        request = Message(
            topics=[Message(topic_id=self.world.no_id, name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        answer = await self.any(ApiKey.METADATA, 12, request)
        for found in answer.topics:
            for partition in found.partitions:
                key, epoch = (topic, partition.partition_index), partition.leader_epoch
                # What is older than what is known was answered by a broker that lags (KIP-320).
                if partition.leader_id >= 0 and epoch >= self.leader_epochs.get(key, -1):
                    self._leaders[key] = partition.leader_id
                    self.leader_epochs[key] = epoch

    async def coordinator(self, kind: int, name: str) -> int:
        """Of a group (0) or a transactional id (1)."""
        while (kind, name) not in self._coordinators:
            answer = await self.any(
                ApiKey.FIND_COORDINATOR, 4, Message(key_type=kind, coordinator_keys=[name])
            )
            found = answer.coordinators[0]
            if found.error_code == 0:
                self._coordinators[kind, name] = found.node_id
            else:
                await self.backoff()
        return self._coordinators[kind, name]

    def forget_coordinator(self, kind: int, name: str) -> None:
        self._coordinators.pop((kind, name), None)

    async def ask_coordinator(
        self,
        kind: int,
        name: str,
        api: ApiKey,
        version: int,
        request: Message,
        code: Callable[[Message], int],
        purpose: str = "",
    ) -> Message:
        """Asks until the answer is no error that is over some time."""
        while True:
            node = await self.coordinator(kind, name)
            try:
                answer = await self.call(node, api, version, request, purpose)
            except Lost:
                self.forget_coordinator(kind, name)
                await self.backoff()
                continue
            if code(answer) in RETRY_COORDINATOR:
                if code(answer) != CONCURRENT_TRANSACTIONS:
                    self.forget_coordinator(kind, name)
                await self.backoff()
                continue
            return answer


CONCURRENT_TRANSACTIONS = 51
RETRY_COORDINATOR = (14, 15, 16, CONCURRENT_TRANSACTIONS, 7)
RETRY_PARTITION = (3, 5, 6, 7, 9, 13, 19, 20, 56, 74, 75, 76, 78, 100)
