"""No record of a transaction is written to a partition that the coordinator does not have in it."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api import produce as produce_api
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.controller import TopicSpec
from penstock.coordinator import Producer
from penstock.wire.api_keys import ApiKey
from penstock.wire.primitives import INT32, encode_compact_string, encode_uvarint
from tests.unit.test_transactions_broker import init, running
from tests.unit.test_transactions_shells import batch, hold_replication


def produce(broker: Broker, producer: Producer, version: int, *topics: str) -> Any:
    """One request with a batch for partition 0 of each topic."""
    data = batch(producer, 0)
    body = encode_compact_string("x") + struct.pack(">hi", -1, 5000) + encode_uvarint(len(topics) + 1)
    for name in topics:
        body += encode_compact_string(name) + encode_uvarint(2) + INT32.pack(0)
        body += encode_uvarint(len(data) + 1) + data + b"\0\0"
    body += b"\0"
    context = RequestContext(ApiKey.PRODUCE, version, 1, "c", "p:1")
    return produce_api.handle(broker, context, bytearray(body), 0, len(body))


@pytest.mark.promise(
    "transactions",
    "If a broker becomes leader of a partition while other partitions of a request are being verified, "
    "it does not write to that partition unverified",
)
@pytest.mark.parametrize("version", [11, 12])
def test_a_partition_that_comes_here_while_others_are_verified_is_not_written_to_unverified(
    tmp_path: Path, version: int
) -> None:
    """The client knew the new leader of `u` before this broker did. Else the transaction hangs in `u`."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.controller.create_topics([TopicSpec("u", 1, 1)])
            await broker.caught_up()
            producer = await init(broker)
            moving = broker.partitions["u", 0]
            image = moving.image
            moving.update(replace(image, leader=2, leader_epoch=image.leader_epoch + 1))
            fetch = hold_replication(broker)
            if version < 12:  # an older client adds what it writes to; what is late is in no transaction
                broker.transactions.call(
                    "x",
                    lambda shard, token, now: shard.add_partitions(
                        "x", *producer, frozenset([("t", 0)]), 0, token, now
                    ),
                )
            waiting = asyncio.ensure_future(produce(broker, producer, version, "t", "u"))
            await asyncio.sleep(0)
            assert broker.partitions["t", 0].log.log_end_offset == 0
            moving.update(replace(image, leader_epoch=image.leader_epoch + 2))
            fetch()
            await asyncio.wait_for(waiting, 30)
            known = broker.transactions.shard_for("x").transactions["x"].partitions
            written = {key for key in (("t", 0), ("u", 0)) if broker.partitions[key].log.log_end_offset}
            assert written <= known

    asyncio.run(main())
