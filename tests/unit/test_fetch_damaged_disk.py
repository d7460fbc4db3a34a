"""A partition whose file cannot be read costs the readers of the others nothing."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.errors import KafkaStorageError, UnknownServerError
from penstock.fs import FaultyFs
from penstock.replication.fetching import FetchParams, read
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.fetch import FetchPartition, FetchPartitionResult
from tests.unit.test_produce_wait import topic
from tests.unit.test_transactions_broker import running


def fetch(broker: Broker, replica_id: int) -> dict[int, FetchPartitionResult]:
    """Both partitions from their start, as a follower has all that it copies in one request."""
    results: dict[int, FetchPartitionResult] = {}
    wanted = [
        (index, broker.partitions["f", index], FetchPartition(index, -1, 0, -1, -1, 1 << 20))
        for index in range(2)
    ]
    read(FetchParams(replica_id, 0, 1 << 20, 1), wanted, results)
    return results


@pytest.mark.promise(
    "log",
    "A file that cannot be read causes KAFKA_STORAGE_ERROR for its partition; the fetch returns the "
    "other partitions",
)
def test_a_follower_gets_the_other_partitions_of_a_leader_with_a_damaged_file(tmp_path: Path) -> None:
    async def main() -> None:
        fs = FaultyFs()
        async with running(tmp_path, fs) as broker:
            for partition in await topic(broker, 2):
                data = bytearray(build_batch([Record(0, 1, None, b"v")]))
                partition.append(data, 0, len(data), 1)
            fs.fail("pread", "/f-0/", errno.EIO, times=-1)
            results = fetch(broker, replica_id=2)
            assert results[1].slices
            assert results[0].error_code in (KafkaStorageError.code, UnknownServerError.code)
            fs.heal()

    asyncio.run(main())
