"""A fetch for which index entries and headers of batches must be read from the disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api import fetch
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.log import files, residency
from penstock.log.partition_log import PartitionLog
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch, read_header
from penstock.wire.codec import Message, encode_request
from tests.unit.test_produce_wait import topic
from tests.unit.test_transactions_broker import running

VERSION = 11
COUNT = 40


def ask(broker: Broker, offset: int, max_bytes: int = 1 << 20) -> Any:
    partition = Message(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )  # fmt: skip
    request = Message(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[Message(topic="f", partitions=[partition])], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    body = bytearray(encode_request(ApiKey.FETCH, VERSION, request))
    context = RequestContext(ApiKey.FETCH, VERSION, 1, "client", "peer", 1)
    return fetch.handle(broker, context, body, 0, len(body))


def base_offsets(chunks: list[Any]) -> list[int]:
    """Of the batches in an answer."""
    data = b"".join(chunk.read() for chunk in chunks if not isinstance(chunk, bytes))
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        found.append(header.base_offset)
        position += header.size
    return found


@pytest.mark.promise(
    "log", "A fetch uses index entries and batch headers only after a thread has read them from disk"
)
def test_what_is_not_in_memory_is_read_by_a_thread_before_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = True
    threads: list[int] = []
    warm_up = PartitionLog.warm_up

    def in_thread(log: PartitionLog, offset: int, max_bytes: int) -> None:
        nonlocal cold
        threads.append(threading.get_ident())
        warm_up(log, offset, max_bytes)
        cold = False

    monkeypatch.setattr(files, "_JUST_WRITTEN", 0)
    monkeypatch.setattr(residency, "is_resident", lambda *_: not cold)
    monkeypatch.setattr(PartitionLog, "warm_up", in_thread)

    async def main() -> None:
        nonlocal cold
        async with running(tmp_path) as broker:
            [partition] = await topic(broker, 1)
            for _ in range(COUNT):
                data = bytearray(build_batch([Record(0, 1, None, bytes(1000))]))
                partition.append(data, 0, len(data), 1)
            partition.follower_fetched(2, partition.log.log_end_offset)
            answer = ask(broker, 17, max_bytes=3500)
            assert isinstance(answer, asyncio.Future), "the loop has looked for it itself"
            assert base_offsets(await asyncio.wait_for(answer, 30)) == [17, 18, 19]
            assert len(threads) == 1 and threads[0] != threading.get_ident()
            # In memory, and where the last one ended: without a thread.
            assert base_offsets(ask(broker, 5, max_bytes=3500)) == [5, 6, 7]
            assert len(threads) == 1
            # Cold again: only what the limit of bytes cuts must be looked for.
            cold = True
            assert base_offsets(await asyncio.wait_for(ask(broker, 20, max_bytes=3500), 30)) == [20, 21, 22]
            assert len(threads) == 2

    asyncio.run(main())
