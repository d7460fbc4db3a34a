"""Topics: the list, page by page; one topic with its partitions and settings; and changing them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.admin.cluster import EARLIEST, LATEST, Cluster, TopicDescription, admin_types
from penstock.admin.configs import Setting, alter_configs, describe_configs
from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.partitions.state import read_sizes
from penstock.admin.wire_client import WireCluster
from penstock.config import TOPIC_CONFIGS
from penstock.console.reads.samples import Sampler
from penstock.errors import PenstockError

_FROM_SAMPLES = ("records", "size", "rate")
_OF_SERVERS = re.compile(r"_.*|connect-(configs|offsets|status)|mm2-(configs|offsets|status)\..*\.internal")


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    partitions: int
    replication: int
    health: str
    records: int | None
    size: int | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    rows: list[TopicRow]
    total: int


@dataclass(frozen=True, slots=True)
class PartitionRow:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest: int | None
    latest: int | None
    size: int | None


@dataclass(frozen=True, slots=True)
class DocumentedSetting:
    setting: Setting
    doc: str


HEALTHS = ("ok", "under-replicated", "offline")


def health_of(info: TopicDescription) -> str:
    """`offline` before `under-replicated` before `ok`."""
    if any(each.leader < 0 for each in info.partitions):
        return "offline"
    return "under-replicated" if any(len(p.isr) < len(p.replicas) for p in info.partitions) else "ok"


def is_of_servers(topic: str) -> bool:
    """Whether a topic holds the state of servers, by its name.

    Such records contain passwords of connectors and the key of workers, and whoever writes such a record
    controls the servers.
    """
    return _OF_SERVERS.fullmatch(topic) is not None


def _has_health(info: TopicDescription, wanted: str) -> bool:
    """A topic may be both offline and under-replicated."""
    if wanted == "under-replicated":
        return any(len(each.isr) < len(each.replicas) for each in info.partitions)
    return not wanted or health_of(info) == wanted


def list_topics(
    cluster: Cluster,
    sampler: Sampler,
    *,
    text: str = "",
    internal: bool = False,
    health: str = "",
    sort: str = "name",
    descending: bool = False,
    first: int = 0,
    count: int = 50,
) -> TopicPage:
    """Topics whose name contains `text`. Offsets and sizes are requested for the rows of the page only.

    Sorting by records, size or rate uses the last sample, which may be seconds old.
    """
    found = [
        info
        for info in cluster.topics().values()
        if text.lower() in info.name.lower()
        and (internal or not info.name.startswith("__"))
        and _has_health(info, health)
    ]
    found.sort(key=lambda info: info.name)
    found.sort(key=lambda info: _sort_key(info, sort, sampler), reverse=descending)
    shown = found[first : first + count] if count else found
    counts = record_counts(cluster, shown)
    sizes = topic_sizes(cluster, shown)
    rows = [
        TopicRow(
            info.name,
            len(info.partitions),
            info.replication_factor,
            health_of(info),
            counts.get(info.name),
            sizes.get(info.name),
            sampler.rate(info.name),
        )
        for info in shown
    ]
    return TopicPage(rows, len(found))


def _sort_key(info: TopicDescription, sort: str, sampler: Sampler) -> Any:
    if sort == "partitions":
        return len(info.partitions)
    if sort == "replication":
        return info.replication_factor
    if sort in _FROM_SAMPLES and sampler.last is not None:
        if sort == "rate":
            return sampler.rate(info.name) or 0.0
        held = sampler.last.sizes if sort == "size" else sampler.last.records
        return held.get(info.name, 0)
    return info.name


def record_counts(cluster: Cluster, topics: Sequence[TopicDescription]) -> dict[str, int]:
    """End offset minus start offset for each topic, over the partitions with a leader."""
    led = [(info.name, p.index) for info in topics for p in info.partitions if p.leader >= 0]
    earliest, latest = cluster.offsets_of(led, EARLIEST), cluster.offsets_of(led, LATEST)
    found: dict[str, int] = {}
    for key in led:
        held = latest[key].offset - earliest[key].offset
        found[key[0]] = found.get(key[0], 0) + held
    return found


def topic_sizes(cluster: Cluster, topics: Sequence[TopicDescription]) -> dict[str, int]:
    """Bytes of the leaders' logs; empty where the cluster does not report sizes."""
    leaders = {(info.name, p.index): p.leader for info in topics for p in info.partitions}
    if not leaders:
        return {}
    found: dict[str, int] = {}
    for (key, broker), size in _sizes(cluster, list(leaders)).items():
        if leaders.get(key) == broker:
            found[key[0]] = found.get(key[0], 0) + size
    return found


def _sizes(cluster: Cluster, keys: Sequence[tuple[str, int]]) -> dict[tuple[tuple[str, int], int], int]:
    try:
        with WireCluster(cluster) as wire:
            return read_sizes(wire, keys)
    except PenstockError:  # managed clusters forbid DescribeLogDirs
        return {}


def partitions_of(cluster: Cluster, topic: str) -> list[PartitionRow]:
    info = cluster.topic(topic)
    led = [p.index for p in info.partitions if p.leader >= 0]
    earliest, latest = cluster.offsets(topic, led, EARLIEST), cluster.offsets(topic, led, LATEST)
    sizes = _sizes(cluster, [(topic, p.index) for p in info.partitions])
    return [
        PartitionRow(
            p.index,
            p.leader if p.leader >= 0 else None,
            p.replicas,
            p.isr,
            earliest[p.index].offset if p.index in earliest else None,
            latest[p.index].offset if p.index in latest else None,
            sizes.get(((topic, p.index), p.leader)),
        )
        for p in info.partitions
    ]


def settings_of(cluster: Cluster, topic: str) -> list[DocumentedSetting]:
    """Every setting, those of this topic first, with its documentation if Penstock has it."""
    found = describe_configs(cluster, "topic", topic)
    found.sort(key=lambda each: (each.source != "topic", each.name))
    return [
        DocumentedSetting(each, TOPIC_CONFIGS[each.name].doc if each.name in TOPIC_CONFIGS else "")
        for each in found
    ]


# Changes


def parse_settings(text: str) -> dict[str, str]:
    """Parses KEY=VALUE lines; ValueError names an invalid line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"'{line.strip()}' is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def create_topic(
    cluster: Cluster, name: str, partitions: int, replication: int, settings: Mapping[str, str]
) -> None:
    if not name:
        raise CommandFailed("a topic's name cannot be empty.")
    new = admin_types().NewTopic(
        name, num_partitions=partitions, replication_factor=replication, config=dict(settings)
    )
    (future,) = cluster.admin.create_topics([new], **_timeouts(cluster)).values()
    cluster.wait(future, f"cannot create '{name}'")


def add_partitions(cluster: Cluster, name: str, total: int) -> None:
    known = cluster.topic(name)
    if total <= len(known.partitions):
        raise CommandFailed(f"'{name}' has {len(known.partitions)} partitions: give a larger number.")
    new = admin_types().NewPartitions(name, total)
    (future,) = cluster.admin.create_partitions([new], **_timeouts(cluster)).values()
    cluster.wait(future, f"cannot add partitions to '{name}'")


def change_setting(cluster: Cluster, topic: str, name: str, value: str | None) -> None:
    """None resets it to the default."""
    alter_configs(cluster, "topic", topic, {name: value}, False)


def empty_topic(cluster: Cluster, name: str) -> None:
    """Delete all current records of the topic."""
    from confluent_kafka import TopicPartition

    info = cluster.topic(name)
    latest = cluster.offsets(name, [p.index for p in info.partitions if p.leader >= 0], LATEST)
    before = [TopicPartition(name, index, found.offset) for index, found in latest.items()]
    for future in cluster.admin.delete_records(before, **_timeouts(cluster)).values():
        cluster.wait(future, f"cannot empty '{name}'")


def delete_topic(cluster: Cluster, name: str) -> None:
    known = cluster.topics()
    if name not in known:
        raise UnknownTopic(name, known)
    (future,) = cluster.admin.delete_topics([name], **_timeouts(cluster)).values()
    cluster.wait(future, f"cannot delete '{name}'")


def _timeouts(cluster: Cluster) -> dict[str, float]:
    return {"request_timeout": cluster.timeout, "operation_timeout": cluster.timeout}
