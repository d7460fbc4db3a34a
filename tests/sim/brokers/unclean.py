"""A compacted topic that elects leaders which are not in sync: `unclean.leader.election.enable`.

Records that were acknowledged may be lost there, and replicas cut what they had cleaned. Nothing is promised
of its records, so none is noted; what is promised are sound logs, and replicas that agree in the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.sim.brokers.client import Client, Key, Lost
from tests.sim.brokers.history import key_of

if TYPE_CHECKING:
    from tests.sim.brokers.world import World

UNCLEAN = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "1",
    "segment.bytes": "300",
    "unclean.leader.election.enable": "true",
}


class CarelessProducer(Client):
    """Without idempotence, acks=1, no retries."""

    def __init__(self, world: World, name: str, key: Key) -> None:
        super().__init__(world, name)
        self.key = key

    async def main(self) -> None:
        number = 0
        while not self.world.stopping:
            number += 1
            value = f"{self.name}:{number}".encode()
            record = Record(0, self.world.now_ms(), key_of(value), value)
            topic, index = self.key
            request = Message(
                transactional_id=None,
                acks=1,
                timeout_ms=5_000,
                topic_data=[
                    Message(name=topic, partition_data=[Message(index=index, records=build_batch([record]))])
                ],
            )
            try:
                answer = await self.call(await self.leader(self.key), ApiKey.PRODUCE, 9, request)
            except Lost:
                self.forget_leader(self.key)
                await self.backoff()
                continue
            if answer.responses[0].partition_responses[0].error_code:
                self.forget_leader(self.key)
                await self.backoff()
            self.world.history.counts["careless records"] += 1
            await asyncio.sleep(self.rng.random() * 0.05)


async def agree(world: World, key: Key, patience_s: float) -> None:
    """All replicas come to the same end and the same leader epochs."""
    end = world.loop.now + patience_s
    while True:
        logs = [
            partition.log for node in world.nodes for partition in node.partitions() if partition.key == key
        ]
        seen = {(log.log_end_offset, log.high_watermark, log.latest_epoch) for log in logs}
        if len(logs) == len(world.nodes) and len(seen) == 1:
            return
        if world.loop.now > end:
            world.history.violation(f"{key}: its replicas do not agree: {sorted(seen)}")
            return
        await asyncio.sleep(0.5)
