"""A ShareFetch acquires nothing for a session that was closed while it waited, wherever it waited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.share.fetching import fetch
from penstock.controller import TopicSpec
from penstock.groups.share.sessions import ShareSession
from penstock.groups.share.state_records import SharePartitionKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.unit.test_transactions_broker import running

REQUEST = Message(
    group_id="g", member_id="m", share_session_epoch=1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
    max_records=500, batch_size=500, share_acquire_mode=0,
)  # fmt: skip


async def session_with_a_record(broker: Broker) -> ShareSession:
    await broker.share.states.ensure_topic()
    topic_id = broker.image.topics["t"].id
    written = broker.share.stored.initialize(SharePartitionKey("g", topic_id, 0), 0, 0)
    if isinstance(written, asyncio.Future):
        await written
    batch = bytearray(build_batch([Record(0, 1, None, b"a")]))
    broker.partitions["t", 0].append(batch, 0, len(batch), -1)
    session = broker.share.sessions.open("g", "m", "peer")
    session.update([(topic_id, 0)], [])
    return session


@pytest.mark.promise(
    "share groups",
    "A record lock expires after its duration, or later if it is renewed; a member that closes, dies or "
    "is silent releases its records",
)
@pytest.mark.parametrize("closes", [False, True])
def test_nothing_is_acquired_for_a_session_that_was_closed_while_its_state_was_read(
    closes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            session = await session_with_a_record(broker)
            prepare = broker.share.opening.prepare

            async def interrupted(*args: Any) -> None:
                await prepare(*args)
                if closes:
                    broker.share.disconnected("peer")

            monkeypatch.setattr(broker.share.opening, "prepare", interrupted)
            results = await fetch(broker, REQUEST, session, {})
            acquired = [one.acquired_records for one in results.values()]
            assert bool(acquired) is not closes, acquired

    asyncio.run(main())


@pytest.mark.promise(
    "share groups",
    "ShareFetch acquires the same batches as in Kafka: `batch_size`, and `max_records` for all "
    "partitions together",
)
@pytest.mark.parametrize("size", [50, 10, 7])
def test_max_records_holds_over_all_partitions(size: int, tmp_path: Path) -> None:
    """50 records in each of two partitions: a fetch gets those of one, the next one those of the other."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.controller.create_topics([TopicSpec("two", 2, 1)])
            await broker.caught_up()
            await broker.share.states.ensure_topic()
            topic_id = broker.image.topics["two"].id
            for index in range(2):
                written = broker.share.stored.initialize(SharePartitionKey("g", topic_id, index), 0, 0)
                assert not isinstance(written, asyncio.Future)
                for first in range(0, 50, size):
                    records = [Record(0, 1, None, b"v")] * min(size, 50 - first)
                    batch = bytearray(build_batch(records))
                    broker.partitions["two", index].append(batch, 0, len(batch), -1)
            session = broker.share.sessions.open("g", "m", "peer")
            session.update([(topic_id, 0), (topic_id, 1)], [])
            request = Message(**{**vars(REQUEST), "max_records": 50, "batch_size": 50})
            seen = set()
            for _ in range(2):
                found = await fetch(broker, request, session, {})
                ((key, one),) = found.items()
                seen.add(key)
                assert sum(part.last_offset - part.first_offset + 1 for part in one.acquired_records) == 50
            assert len(seen) == 2
            assert await fetch(broker, request, session, {}) == {}

    asyncio.run(main())
