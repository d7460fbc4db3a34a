"""The dead-letter topic of a share group: records that could not be processed, with the reason in headers.

Delivery is at least once: a record is written to the dead-letter topic before it is archived, and is written
again if the broker crashes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from penstock.broker.produce.leader_append import append_to_leader, led_partition
from penstock.broker.share.reading import records_between
from penstock.controller.requests import TopicSpec
from penstock.errors import TopicAlreadyExists
from penstock.groups.share.partition import DeadLetter
from penstock.replication.partition import Partition
from penstock.wire.batches.records import Record, build_batch

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasClock, HasController
    from penstock.broker.produce.leader_append import LeaderAppendParts

    class ShareDeadLettersParts(LeaderAppendParts, CanCatchUp, HasClock, HasController, Protocol): ...


PREFIX = "penstock.share."
_BATCH_BYTES = 512 * 1024


async def send(
    broker: ShareDeadLettersParts, topic: str, group_id: str, source: Partition, letter: DeadLetter
) -> None:
    """Writes the records to the dead-letter topic and waits until they are replicated."""
    await _ensure(broker, topic)
    index, leader = led_partition(broker, topic, source.key[1])
    now = broker.clock.now_ms()
    for batch in _batches(_letter(record, group_id, source, letter, now) for record in
                          records_between(source, letter.first, letter.last)):  # fmt: skip
        await append_to_leader(broker, topic, index, leader, batch)
        await asyncio.sleep(0)  # lets other requests run


def _letter(record: Record, group_id: str, source: Partition, letter: DeadLetter, now_ms: int) -> Record:
    story = {
        "group": group_id,
        "topic": source.key[0],
        "partition": source.key[1],
        "offset": record.offset,
        "timestamp": record.timestamp,
        "reason": letter.reason,
        "delivery.count": letter.delivery_count,
    }
    added = tuple((PREFIX + name, str(value).encode()) for name, value in story.items())
    # The timestamp is the current time: with the original one, retention might delete the record at once.
    return Record(0, now_ms, record.key, record.value, record.headers + added)


def _batches(records: Iterator[Record]) -> Iterator[bytearray]:
    waiting: list[Record] = []
    size = 0
    for record in chain(records, (None,)):
        if waiting and (record is None or size >= _BATCH_BYTES):
            yield bytearray(build_batch(waiting))
            waiting, size = [], 0
        if record is not None:
            waiting.append(record)
            size += len(record.key or b"") + len(record.value or b"") + 200


async def _ensure(broker: ShareDeadLettersParts, topic: str) -> None:
    if topic in broker.image.topics:
        return
    for result in await broker.controller.create_topics([TopicSpec(topic)]):
        if result.error is not None and not isinstance(result.error, TopicAlreadyExists):
            raise result.error
    await broker.caught_up()
