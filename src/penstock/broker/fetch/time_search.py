"""Searches logs by timestamp, in a thread: this reads indexes, and records that may not be in memory.

If the leader changes or the log is truncated during the search, its result is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import ApiError, KafkaStorageError, NotLeaderOrFollower
from penstock.log.segmented_log import TimestampOffset
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.wire.codec import Message


class Search:
    """Searches for the first record whose timestamp is at least `timestamp`; if that is None, for the record
    with the largest timestamp."""

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
    """The searches of a ListOffsets request; `newest` is the special timestamp for the largest timestamp."""
    searches = {}
    for topic in topics:
        for item in topic.partitions:
            partition = partitions.get((topic.name, item.partition_index))
            by_time = item.timestamp >= 0 or item.timestamp == newest
            if by_time and partition is not None and partition.is_leader:
                timestamp = None if item.timestamp == newest else item.timestamp
                searches[partition.key] = Search(partition, timestamp)
    return searches
