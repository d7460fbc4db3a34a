"""Checkpoints: which to write for a group (pure), and reading the existing ones from the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.client import EARLIEST, LATEST, READ_UNCOMMITTED, Cluster, TopicPartition
from penstock.client.groups import Committed
from penstock.client.partition_reader import PartitionReader
from penstock.connect.connectors.mirror.batches import batches_to_copy
from penstock.connect.connectors.mirror.formats import Checkpoint
from penstock.connect.connectors.mirror.offset_syncs import OffsetSyncs
from penstock.connect.errors import DataError
from penstock.wire.batches.records import iter_records

Known = dict[str, dict[TopicPartition, Checkpoint]]
"""The newest checkpoint of each partition of the target, by group."""


def new_checkpoints(
    group: str,
    committed: Mapping[TopicPartition, Committed],
    syncs: OffsetSyncs,
    rename: Callable[[str], str],
    known: Mapping[TopicPartition, Checkpoint],
) -> list[Checkpoint]:
    """The checkpoints that differ from the known ones: a group only advances, unless it was reset in the
    source.
    """
    found = []
    for (topic, partition), (offset, metadata) in committed.items():
        downstream = syncs.translate(topic, partition, offset)
        if downstream is None:
            continue
        new = Checkpoint(group, rename(topic), partition, offset, downstream, metadata)
        last = known.get((new.topic, partition))
        if (
            last is None
            or new.upstream_offset < last.upstream_offset
            or new.downstream_offset > last.downstream_offset
        ):
            found.append(new)
    return found


class TopicFollower:
    """Reads the single partition of one of MirrorMaker's topics to its end at each call."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._place = (topic, 0)
        self._reader: PartitionReader | None = None

    def read(self, take: Callable[[bytes, bytes | None], None]) -> None:
        """The current records, as keys and values, without records of other formats."""
        place = self._place
        end = self._cluster.list_offsets({place: LATEST}, READ_UNCOMMITTED)[place] or 0
        if self._reader is None:
            start = self._cluster.list_offsets({place: EARLIEST})[place] or 0
            self._reader = PartitionReader(self._cluster, {place: start}, max_wait_ms=100)
        reader = self._reader
        while reader.positions[place] < end:
            for _, fetched in reader.poll(1.0):
                position = reader.positions[place]
                if fetched.error is not None:
                    reader.seek(place, fetched.log_start_offset if fetched.log_start_offset >= 0 else 0)
                    continue
                isolation = self._cluster.settings.isolation
                batches, following = batches_to_copy(fetched, position, isolation=isolation)
                for data, _ in batches:
                    for record in iter_records(data):
                        if record.key is not None:
                            _tolerant(take, record.key, record.value)
                reader.seek(place, following)


def _tolerant(take: Callable[[bytes, bytes | None], None], key: bytes, value: bytes | None) -> None:
    try:
        take(key, value)
    except DataError:
        pass  # another program's record must not stop the replication


def read_checkpoints(cluster: Cluster, topic: str) -> Known:
    """All checkpoints of a checkpoints topic; none if the topic does not exist."""
    known: Known = {}
    if topic not in cluster.partitions([topic]):
        return known

    def take(key: bytes, value: bytes | None) -> None:
        if value is not None:
            found = Checkpoint.of(key, value)
            known.setdefault(found.group, {})[found.topic, found.partition] = found

    TopicFollower(cluster, topic).read(take)
    return known
