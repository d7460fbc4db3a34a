"""Charts of a cluster, from repeated samples of end offsets, sizes and lags.

Uses only requests that every Kafka cluster supports. A sample is taken while somebody looks, and less often
if it takes long.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.admin.cluster import LATEST, Cluster, TopicDescription
from penstock.admin.failure import CommandFailed
from penstock.admin.groups.model import ListedGroup
from penstock.admin.groups.model import TopicPartitionKey as Place
from penstock.admin.groups.share import share_start_offsets
from penstock.admin.groups.state import committed_offsets, list_groups
from penstock.admin.partitions.state import read_sizes
from penstock.admin.wire_client import WireCluster
from penstock.console.reads.repeated import Repeated
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

_POINTS = 300
_RECENT = 16
"""Samples that are kept for rates over more than two of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a cluster at one moment."""

    at: float
    controller: int
    brokers: dict[int, str]
    topics: dict[str, TopicDescription]
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each topic, over all replicas; empty if the cluster does not report them."""
    groups: dict[str, ListedGroup] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    """The sum of each group's committed offsets: its growth is the group's consumption."""
    places: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """The committed offsets of each group and topic, by partition."""

    @property
    def records(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for (topic, _), end in self.ends.items():
            found[topic] = found.get(topic, 0) + end
        return found

    @property
    def offline(self) -> list[tuple[str, int]]:
        return [
            (info.name, p.index) for info in self.topics.values() for p in info.partitions if p.leader < 0
        ]

    @property
    def under_replicated(self) -> list[tuple[str, int]]:
        return [
            (info.name, p.index)
            for info in self.topics.values()
            for p in info.partitions
            if len(p.isr) < len(p.replicas)
        ]


@dataclass(frozen=True, slots=True)
class Point:
    """Rates between two samples, per second."""

    at: float
    records_in: float
    records_out: float
    bytes_in: float
    lags: dict[str, int]


def take_sample(cluster: Cluster, *, now: float) -> Sample:
    """All data for the charts. Raises CommandFailed if the cluster does not respond."""
    with WireCluster(cluster) as wire:
        metadata = wire.metadata()
        sizes: dict[str, int] = {}
        try:
            for (key, _), size in read_sizes(wire).items():
                sizes[key[0]] = sizes.get(key[0], 0) + size
        except PenstockError as error:  # managed clusters forbid it
            log.debug("no sizes: %s", error)
    topics = cluster.topics()
    led = [(name, p.index) for name, info in topics.items() for p in info.partitions if p.leader >= 0]
    ends = {key: found.offset for key, found in cluster.offsets_of(led, LATEST).items()}
    groups = {each.group: each for each in list_groups(cluster)}
    consumers = [name for name, each in groups.items() if each.type in ("classic", "consumer", "unknown")]
    lags: dict[str, int] = {}
    committed: dict[str, int] = {}
    places: dict[tuple[str, str], dict[int, int]] = {}
    for name, offsets in (committed_offsets(cluster, consumers) | _share_offsets(cluster, groups)).items():
        behind = [max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends]
        if behind:
            lags[name] = sum(behind)
            committed[name] = sum(offsets.values())
            for (topic, partition), offset in offsets.items():
                places.setdefault((name, topic), {})[partition] = offset
    brokers = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
    return Sample(now, metadata.controller_id, brokers, topics, ends, sizes, groups, lags, committed, places)


def _share_offsets(cluster: Cluster, groups: Mapping[str, ListedGroup]) -> dict[str, dict[Place, int]]:
    """The start offsets of share groups, in place of committed offsets: the first record that is not done."""
    names = [name for name, each in groups.items() if each.type == "share"]
    try:
        return share_start_offsets(cluster, names) if names else {}
    except CommandFailed as error:  # deleted in the meantime, or a cluster that forbids it
        log.debug("no offsets of share groups: %s", error.message)
        return {}


def between(old: Sample, new: Sample) -> Point:
    """Rates between two samples. Topics and groups created, deleted or emptied in between count as 0."""
    seconds = max(new.at - old.at, 0.001)

    def grown(before: Mapping[str, int], after: Mapping[str, int]) -> float:
        return sum(max(0, count - before[name]) for name, count in after.items() if name in before) / seconds

    mine = {key: end for key, end in new.ends.items() if not key[0].startswith("__")}
    records = sum(max(0, end - old.ends[key]) for key, end in mine.items() if key in old.ends) / seconds
    return Point(new.at, records, grown(old.committed, new.committed), grown(old.sizes, new.sizes), new.lags)


class Sampler(Repeated[Sample]):
    """Samples of a cluster."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._cluster = cluster
        self.points: deque[Point] = deque(maxlen=_POINTS)
        self._recent: deque[Sample] = deque(maxlen=_RECENT)

    def take(self, now: float) -> Sample:
        return take_sample(self._cluster, now=now)

    def keep(self, old: Sample, new: Sample) -> None:
        self.points.append(between(old, new))
        if self.before is None:
            self._recent.clear()  # nobody looked meanwhile
        self._recent.append(old)

    def rate(self, topic: str, *, seconds: float = 0.0) -> float | None:
        """Records a second of a topic over so many seconds, or between the last two samples."""
        old, new = self._since(seconds)
        if old is None or new is None or topic not in new.topics:
            return None
        pairs = [((topic, p.index)) for p in new.topics[topic].partitions]
        grown = sum(max(0, new.ends[k] - old.ends[k]) for k in pairs if k in new.ends and k in old.ends)
        return grown / max(new.at - old.at, 0.001)

    def consumed(self, group: str, topic: str, *, seconds: float = 0.0) -> float | None:
        """Records a second by which a group's committed offsets of a topic have grown."""
        old, new = self._since(seconds)
        key = (group, topic)
        if old is None or new is None or key not in new.places or key not in old.places:
            return None
        then = old.places[key]
        grown = sum(max(0, offset - then[part]) for part, offset in new.places[key].items() if part in then)
        return grown / max(new.at - old.at, 0.001)

    def _since(self, seconds: float) -> tuple[Sample | None, Sample | None]:
        new = self.last
        if self.before is None or new is None:
            return None, new
        recent = [each for each in list(self._recent) if each.at >= new.at - seconds and each.at < new.at]
        return (recent[0] if recent else self.before), new
