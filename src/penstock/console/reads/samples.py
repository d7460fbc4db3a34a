"""Charts of a cluster, from repeated samples of end offsets, sizes and lags.

Uses only requests that every Kafka cluster supports. A sample is taken while somebody looks, and less often
if it takes long.
"""

from __future__ import annotations

import logging
import threading
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
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

_POINTS = 300
_PAUSE_SECONDS = 2.0
_COST = 20
"""The pause after an expensive sample, as a multiple of its duration."""
_CHEAP_SECONDS = 0.5
_LONGEST_PAUSE = 30.0
_WATCHED_SECONDS = 30.0
"""How long after its last request a page counts as being looked at."""


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
    for name, offsets in (committed_offsets(cluster, consumers) | _share_offsets(cluster, groups)).items():
        behind = [max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends]
        if behind:
            lags[name] = sum(behind)
            committed[name] = sum(offsets.values())
    brokers = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
    return Sample(now, metadata.controller_id, brokers, topics, ends, sizes, groups, lags, committed)


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


def pause_after(cost: float) -> float:
    """Seconds until the next sample, after one that took `cost` seconds."""
    return min(max(_PAUSE_SECONDS, _COST * (cost - _CHEAP_SECONDS)), _LONGEST_PAUSE)


class Sampler:
    """Takes samples in its own thread while pages request them."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._fresh = threading.Condition(self._lock)
        self.points: deque[Point] = deque(maxlen=_POINTS)
        self.last: Sample | None = None
        self.before: Sample | None = None
        self.failure: str | None = None

    def watch(self) -> None:
        """Keep sampling for a while, because somebody looks."""
        with self._lock:
            self._wanted_until = self._clock() + _WATCHED_SECONDS
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="console-samples", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until there is a first sample, or a failure."""
        with self._fresh:
            self._fresh.wait_for(lambda: self.last is not None or self.failure is not None, seconds)

    def rate(self, topic: str) -> float | None:
        """Records a second of a topic, between the last two samples."""
        old, new = self.before, self.last
        if old is None or new is None or topic not in new.topics:
            return None
        pairs = [((topic, p.index)) for p in new.topics[topic].partitions]
        grown = sum(max(0, new.ends[k] - old.ends[k]) for k in pairs if k in new.ends and k in old.ends)
        return grown / max(new.at - old.at, 0.001)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            begun = time.monotonic()
            try:
                sample = take_sample(self._cluster, now=self._clock())
                failure = None
            except (CommandFailed, PenstockError) as error:
                sample, failure = None, getattr(error, "message", None) or str(error)
            except Exception as error:  # if the thread died, a page would wait forever
                log.exception("a sample failed")
                sample, failure = None, str(error)
            cost = time.monotonic() - begun
            with self._fresh:
                self.failure = failure
                if sample is not None:
                    if self.last is not None:
                        self.points.append(between(self.last, sample))
                    self.before, self.last = self.last, sample
                self._fresh.notify_all()
                if self._clock() > self._wanted_until:
                    self._thread = None
                    self.before = None  # a rate over the time when nobody looked is outdated
                    return
            self._closed.wait(pause_after(cost) if self.before is not None else _PAUSE_SECONDS)
