"""The driver's requests to the cluster: the partitions to read, and their start and end offsets."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Mapping

from penstock.client import EARLIEST as FIRST
from penstock.client import LATEST as LAST
from penstock.client import READ_UNCOMMITTED, Cluster, TopicInfo
from penstock.spark.errors import BadOffsets, NoSuchTopic
from penstock.spark.source.offsets import EARLIEST, LATEST, Offsets, TopicPartition, names
from penstock.spark.source.options import Position, SourceOptions


class Lookup:
    """A subscription's view of a cluster. Each call requests it again, unless `metadata_ttl_ms` is set."""

    def __init__(
        self,
        cluster: Cluster,
        options: SourceOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._monotonic = monotonic
        self._sleep = sleep
        self._topics: dict[str, TopicInfo] = {}
        self._asked_at: float | None = None

    def topics(self) -> dict[str, TopicInfo]:
        """The topics of the subscription that exist now."""
        ttl = self._options.metadata_ttl_ms / 1000
        now = self._monotonic()
        if self._asked_at is None or ttl <= 0 or now - self._asked_at >= ttl:
            self._topics, self._asked_at = self._ask(), now
        return self._topics

    def _ask(self) -> dict[str, TopicInfo]:
        wanted = self._options.subscription
        if wanted.pattern is not None:
            # Matches anywhere in the name, as in Spark's source; Kafka's own topics are excluded.
            pattern = re.compile(wanted.pattern)
            return self._cluster.partitions(name for name in self._cluster.topics() if pattern.search(name))
        topics = wanted.topics or {topic for topic, _ in wanted.partitions or ()}
        return self._cluster.partitions(sorted(topics))

    def recreated_since(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Whether one of them was recreated while its offsets were requested, which are then the new topic's.

        A missing topic is requested again until it exists, possibly as a new topic.
        """
        for name, info in topics.items():
            now = self._cluster.remembered(name)
            if now is not None and now.id != info.id:
                self._asked_at = None
                return True
        return False

    def partitions(self, topics: Mapping[str, TopicInfo]) -> frozenset[TopicPartition]:
        """The partitions of these topics that belong to the subscription."""
        there = {(name, index) for name, info in topics.items() for index in range(info.partition_count)}
        assigned = self._options.subscription.partitions
        return frozenset(there if assigned is None else there & assigned)

    def all_there(self) -> frozenset[TopicPartition]:
        """The partitions to read. NoSuchTopic if a named one does not exist."""
        topics = self.topics()
        self.check_named(topics)
        found = self.partitions(topics)
        if absent := (self._options.subscription.partitions or found) - found:
            raise NoSuchTopic(f"assign names partitions that do not exist: {names(absent)}")
        return found

    def check_named(self, topics: Mapping[str, TopicInfo], accepted: Iterable[str] = ()) -> None:
        """Raises NoSuchTopic if a named topic does not exist and is not in `accepted`."""
        wanted = self._options.subscription
        named = wanted.topics or {topic for topic, _ in wanted.partitions or ()}
        if absent := sorted(named - topics.keys() - set(accepted)):
            server = self._options.kafka["bootstrap.servers"]
            near = [
                other
                for name in absent
                for other in difflib.get_close_matches(name, sorted(self._cluster.topics()), n=1)
            ]
            meant = f"did you mean {' and '.join(dict.fromkeys(near))}? Else " if near else ""
            raise NoSuchTopic(
                f"topic {', '.join(absent)} does not exist at {server}: {meant}create it before the query"
                " starts, or use subscribePattern for topics that come later"
            )

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._ends(partitions, FIRST)

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """With read_committed, the last stable offsets."""
        return self._ends(partitions, LAST)

    def written(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The log end offsets, whatever the isolation level."""
        return self._ends(partitions, LAST, READ_UNCOMMITTED)

    def _ends(
        self, partitions: Iterable[TopicPartition], which: int, isolation: int | None = None
    ) -> Offsets:
        found = self._cluster.list_offsets(dict.fromkeys(partitions, which), isolation)
        return {place: offset or 0 for place, offset in found.items()}

    def latest_not_before(
        self, partitions: Iterable[TopicPartition], start: Mapping[TopicPartition, int]
    ) -> Offsets:
        """The ends, requested again if one is before `start`: a new leader may not know it yet."""
        wanted = list(partitions)
        found = self._latest_from(wanted, start)
        for _ in range(self._options.offset_retries - 1):
            if not any(found[place] < start.get(place, 0) for place in wanted):
                break
            self._sleep(self._options.offset_retry_interval_ms / 1000)
            found = self._latest_from(wanted, start)
        return found

    def _latest_from(self, partitions: list[TopicPartition], start: Mapping[TopicPartition, int]) -> Offsets:
        """The ends. If `start` is past the last stable offset, but in the log, an earlier run with
        read_uncommitted read up to it: nothing is lost, and there is nothing to read yet.
        """
        found = self.latest(partitions)
        if before := [place for place in partitions if found[place] < start.get(place, 0)]:
            written = self.written(before)
            found |= {place: start[place] for place in before if written[place] >= start[place]}
        return found

    def resolve(
        self, position: Position, partitions: frozenset[TopicPartition], *, starting: bool
    ) -> Offsets:
        """The offsets of an option, for exactly these partitions."""
        if position.kind == "earliest":
            return self.earliest(partitions)
        if position.kind == "latest":
            return self.latest(partitions)
        if position.kind == "time":
            return self._at_times(position, dict.fromkeys(partitions, position.time_ms), starting)
        given = dict(position.per_partition or {})
        if given.keys() != partitions:
            raise BadOffsets(
                f"{position.option} must name all partitions that are read and no others"
                f" (-1 is latest, -2 is earliest): it has {names(given)}, and there are {names(partitions)}"
            )
        if position.kind == "times":
            return self._at_times(position, given, starting)
        first = self.earliest(place for place, offset in given.items() if offset == EARLIEST)
        last = self.latest(place for place, offset in given.items() if offset == LATEST)
        return {**given, **first, **last}

    def _at_times(self, position: Position, times: Mapping[TopicPartition, int], starting: bool) -> Offsets:
        found = self._cluster.list_offsets(times)
        without = [place for place, offset in found.items() if offset is None]
        if without and starting and self._options.without_match == "error":
            raise BadOffsets(
                f"{position.option}: {names(without)} have no record at {times[min(without)]} or later."
                " Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            )
        ends = self.latest(without)
        return {place: ends[place] if offset is None else offset for place, offset in found.items()}
