"""Dead letters of records that cannot be read: told without their content, so that the queue goes on."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from crc32c import crc32c

from penstock.broker.share.dead_letters import send
from penstock.broker.share.reading import UNREADABLE
from penstock.groups.share.partition import DeadLetter
from penstock.wire.batches.compression import GZIP
from penstock.wire.batches.records import HEADER_SIZE, Record, build_batch, iter_records
from tests.unit.test_transactions_broker import running


def unreadable(count: int) -> bytearray:
    """A batch whose checksum is right and whose compressed bytes are not."""
    batch = bytearray(build_batch([Record(0, 1, None, b"good" * 50)] * count, codec=GZIP))
    batch[HEADER_SIZE:] = b"\xde" * (len(batch) - HEADER_SIZE)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def test_a_record_that_cannot_be_read_has_a_letter_without_its_content(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            source = broker.partitions[("t", 0)]
            for batch in (unreadable(2), bytearray(build_batch([Record(0, 1, b"k", b"v")]))):
                source.append(batch, 0, len(batch), -1, origin="coordinator")
            await send(broker, "dead", "g", source, DeadLetter(1, 2, 1, "rejected"))
            log = broker.partitions[("dead", 0)].log
            letters = [
                record
                for segment, position, header in log.headers(0)
                for record in iter_records(segment.batch(position, header))
            ]
            told = [dict(letter.headers) for letter in letters]
            assert [(letter.key, letter.value) for letter in letters] == [(None, None), (b"k", b"v")]
            assert [story["penstock.share.offset"] for story in told] == [b"1", b"2"]
            assert [UNREADABLE in story for story in told] == [True, False]

    asyncio.run(main())
