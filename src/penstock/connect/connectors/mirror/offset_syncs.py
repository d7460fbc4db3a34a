"""Offset syncs: which offset in the target corresponds to an offset in the source.

`SyncPlanner` decides after each batch which pairs to write, `OffsetSyncs` translates with the pairs that were
read; both are pure. `SyncWriter` writes them.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Sequence

from penstock.client import ClientError, ClientSettings
from penstock.client.batch_producer import BatchProducer, NewBatch
from penstock.client.cluster import TopicPartition
from penstock.connect.connectors.mirror.formats import OffsetSync
from penstock.errors import ApiError
from penstock.wire.batches.records import Record, build_batch

log = logging.getLogger(__name__)

_MOST_SYNCS = 20_000  # per partition, in memory
_LATEST_SECONDS = 1.0  # the maximum delay of the last pair of a partition


class SyncPlanner:
    """Decides which syncs to write for the batches of one source partition. Pure."""

    def __init__(self, topic: str, partition: int, lag: int) -> None:
        self._place = (topic, partition)
        self._step = lag
        self._next_upstream = -1
        self._synced: int | None = None
        """The downstream offset of the last written sync."""
        self._latest: OffsetSync | None = None

    def add(self, offsets: Sequence[int], base_offset: int) -> list[OffsetSync]:
        """A batch was written at `base_offset`: the syncs to write now, at most `offset.lag.max` records
        apart.
        """
        due = []
        gap = offsets[0] != self._next_upstream
        if self._synced is None or gap or base_offset < self._synced:
            index = 0
        else:
            index = max(0, self._synced + 1 + self._step - base_offset)
        while index < len(offsets):
            due.append(OffsetSync(*self._place, offsets[index], base_offset + index))
            self._synced = base_offset + index
            index += self._step + 1
        last = len(offsets) - 1
        self._next_upstream = offsets[last] + 1
        at_end = self._synced == base_offset + last
        self._latest = None if at_end else OffsetSync(*self._place, offsets[last], base_offset + last)
        return due

    def take_latest(self) -> OffsetSync | None:
        """The last pair, if it was not written yet: a group at the end of an idle topic needs it."""
        latest, self._latest = self._latest, None
        if latest is not None:
            self._synced = latest.downstream_offset
        return latest


class OffsetSyncs:
    """The syncs of all source partitions, for translation. Pure."""

    def __init__(self) -> None:
        self._syncs: dict[TopicPartition, tuple[list[int], list[int]]] = {}

    def add(self, sync: OffsetSync) -> None:
        place = (sync.topic, sync.partition)
        upstream, downstream = self._syncs.setdefault(place, ([], []))
        if upstream and sync.upstream_offset == upstream[-1] and sync.downstream_offset == downstream[-1]:
            return
        if upstream and (sync.upstream_offset <= upstream[-1] or sync.downstream_offset <= downstream[-1]):
            # The topic was replicated again from an earlier offset: the previous syncs are invalid.
            upstream.clear()
            downstream.clear()
        upstream.append(sync.upstream_offset)
        downstream.append(sync.downstream_offset)
        if len(upstream) > _MOST_SYNCS:
            half = len(upstream) // 2
            upstream[:half] = upstream[:half:2]
            downstream[:half] = downstream[:half:2]

    def translate(self, topic: str, partition: int, upstream_offset: int) -> int | None:
        """An offset in the target before which the group has read everything; None if it is not known.

        Never too high: records between two syncs may have been left out, so it is the offset after the
        earlier one.
        """
        known = self._syncs.get((topic, partition))
        if known is None:
            return None
        upstream, downstream = known
        at = bisect_right(upstream, upstream_offset) - 1
        if at < 0:
            return None
        return downstream[at] + (0 if upstream[at] == upstream_offset else 1)


class SyncWriter:
    """Writes syncs to the offset-syncs topic. Those that cannot be written now are written later."""

    def __init__(self, settings: ClientSettings, topic: str, lag: int) -> None:
        self._producer = BatchProducer(settings)
        self._topic = topic
        self._lag = lag
        self._planners: dict[TopicPartition, SyncPlanner] = {}
        self._waiting: list[OffsetSync] = []
        self._started = False
        self._latest_due = time.monotonic() + _LATEST_SECONDS

    def add(self, topic: str, partition: int, offsets: Sequence[int], base_offset: int) -> None:
        place = (topic, partition)
        if place not in self._planners:
            self._planners[place] = SyncPlanner(topic, partition, self._lag)
        self._waiting += self._planners[place].add(offsets, base_offset)

    def write(self, *, final: bool = False) -> None:
        now = time.monotonic()
        if now >= self._latest_due or final:
            self._latest_due = now + _LATEST_SECONDS
            latest = (planner.take_latest() for planner in self._planners.values())
            self._waiting += [sync for sync in latest if sync is not None]
        if not self._waiting:
            return
        timestamp = int(time.time() * 1000)
        records = [Record(0, timestamp, sync.key(), sync.value()) for sync in self._waiting]
        try:
            if not self._started:
                self._producer.start()
                self._started = True
            self._producer.write([NewBatch(self._topic, 0, build_batch(records))])
            self._producer.flush()
        except (ClientError, ApiError) as error:
            self._started = False
            if len(self._waiting) > _MOST_SYNCS:
                self._waiting = self._waiting[::2]
            log.warning("offset syncs could not be written to %s, repeating: %s", self._topic, error)
            return
        self._waiting.clear()

    def close(self) -> None:
        self.write(final=True)
        self._producer.close()
