"""Looking for a time in logs, off the loop: it reads indexes, and records that may not be in memory.

Meanwhile the leader may change and the log be truncated; what was found then is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import ApiError, KafkaStorageError, NotLeaderOrFollower
from penstock.log.partition_log import TimestampOffset
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.wire.codec import Message


class Search:
    """For the first record at least as new as `timestamp`, or, where that is None, the newest."""

    def __init__(self, partition: Partition, timestamp: int | None) -> None:
        self.partition = partition
        self.timestamp = timestamp
        self.leader_epoch = partition.image.leader_epoch
        self.truncations = partition.log.truncations
        self.found: TimestampOffset | None = None
        self.error: ApiError | None = None

    def run(self) -> None:
        log = self.partition.log
        try:
            if self.timestamp is None:
                self.found = log.max_timestamp_offset()
            else:
                self.found = log.offset_for_timestamp(self.timestamp)
        except ApiError as error:
            self.error = error
        except OSError as error:
            self.error = KafkaStorageError(str(error))

    def result(self) -> TimestampOffset | None:
        if self.error is not None:
            raise self.error
        partition = self.partition
        if (partition.image.leader_epoch, partition.log.truncations) != (self.leader_epoch, self.truncations):
            raise NotLeaderOrFollower("the leader changed while the offset was looked up")
        return self.found


def run_all(searches: Iterable[Search]) -> None:
    for search in searches:
        search.run()


def searches_for(
    partitions: Mapping[Key, Partition], topics: Iterable[Message], newest: int
) -> dict[Key, Search]:
    """Those of a ListOffsets request; `newest` is its timestamp for the newest record."""
    searches = {}
    for topic in topics:
        for item in topic.partitions:
            partition = partitions.get((topic.name, item.partition_index))
            by_time = item.timestamp >= 0 or item.timestamp == newest
            if by_time and partition is not None and partition.is_leader:
                timestamp = None if item.timestamp == newest else item.timestamp
                searches[partition.key] = Search(partition, timestamp)
    return searches
