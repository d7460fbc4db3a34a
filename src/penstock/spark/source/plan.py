"""Plans what a batch reads, without I/O: rate limits, and ranges for tasks.

The arithmetic follows Spark's Kafka source (rateLimit, KafkaOffsetRangeCalculator), so that the same options
give the same batches and about the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from penstock.spark.source.offsets import Offsets, TopicPartition, names


@dataclass(frozen=True)
class Range:
    """The offsets of a partition from `start` to before `end`; some of them may have no record."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class PartitionRestart:
    """A partition whose records are not those that the query has been reading."""

    reason: str
    offset: int
    """Where reading continues if the loss is accepted."""


def limit_rate(limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
    """`end`, moved back so that about `limit` offsets are read, in proportion to what each partition has.

    Each partition with records gets at least one, so that a busy one does not starve it.
    """
    sizes = {place: until - start[place] for place, until in end.items() if until > start.get(place, until)}
    total = sum(sizes.values())
    return {
        place: min(until, start[place] + max(limit * sizes[place] // total, 1)) if place in sizes else until
        for place, until in end.items()
    }


def limit_rate_by_priority(
    limit: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    priority: Sequence[str],
) -> Offsets:
    """Like `limit_rate`, but topics are served in order: what one leaves over, the next may use.

    Topics that are not in `priority` come last, together. If nothing is left, each partition with records
    still gets one; otherwise topics without priority might never be read.
    """
    found: Offsets = {}
    left = limit
    for rank in range(len(priority) + 1):
        group = {place: until for place, until in end.items() if rank_of(place[0], priority) == rank}
        limited = limit_rate(max(left, 0), start, group)
        left -= sum(until - start.get(place, until) for place, until in limited.items())
        found.update(limited)
    return found


def rank_of(topic: str, priority: Sequence[str]) -> int:
    """0 for the topic that is served first."""
    return priority.index(topic) if topic in priority else len(priority)


def is_too_little(least: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
    """Whether fewer than `least` offsets are available."""
    return sum(until - start.get(place, until) for place, until in end.items()) < least


def restarts(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    remade: Set[str],
    unchanged: Set[str],
) -> dict[TopicPartition, PartitionRestart]:
    """Partitions that cannot be read from `start`.

    `remade` are topics with a new id: all their records are new. `unchanged` are topics that are known to be
    the same: an end before `start` then means that brokers lost records (an unclean election), and records
    after it are new. In any other topic, an end before `start` is assumed to mean that the topic was deleted
    and recreated while the query was not running, which is by far the most frequent cause.
    """
    found: dict[TopicPartition, PartitionRestart] = {}
    for place in sorted(start.keys() & latest.keys()):
        topic, partition = place
        if topic in remade:
            reason = f"topic {topic} was deleted and created again"
            found[place] = PartitionRestart(reason, earliest.get(place, 0))
        elif latest[place] < start[place]:
            reason = f"{topic}-{partition} ends at {latest[place]}, before offset {start[place]} of the query"
            if topic in unchanged:
                found[place] = PartitionRestart(
                    f"{reason}: its brokers have lost records, or the offset was never there", latest[place]
                )
            else:
                reason += ": the topic was deleted and created again, or the offset never existed"
                found[place] = PartitionRestart(reason, earliest.get(place, 0))
    return found


def ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
) -> tuple[list[Range], list[str]]:
    """The ranges between two offsets of the checkpoint, and what is missing there.

    Partitions that are new in `end` are read from `earliest`.
    """
    losses: list[str] = []
    if gone := start.keys() - end.keys():
        losses.append(f"{names(gone)} no longer exist")
    if unknown := {place for place in end if place not in start and place not in earliest}:
        losses.append(f"{names(unknown)} were deleted before they could be read")
    found: list[Range] = []
    for place in sorted(end):
        begin = start.get(place, earliest.get(place))
        if begin is None:
            continue
        topic, partition = place
        if place not in start and begin > 0:
            losses.append(f"the new partition {topic}-{partition} starts at offset {begin} instead of 0")
        if end[place] < begin:
            losses.append(f"{topic}-{partition} went back from offset {begin} to {end[place]}")
        elif end[place] > begin:
            found.append(Range(topic, partition, begin, end[place]))
    return found, losses


def split(
    whole: Iterable[Range], min_partitions: int | None, max_records_per_partition: int | None
) -> list[Range]:
    """One range for each task: with a maximum of records in each, and a minimum number of tasks."""
    found = [one for one in whole if one.size > 0]
    if max_records_per_partition is not None:
        most = max_records_per_partition
        found = [part for one in found for part in _divide(one, -(-one.size // most))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    # Ranges that are not split do not count when the other tasks are distributed.
    total = sum(one.size for one in found)
    large = {one for one in found if _parts(one.size, total, min_partitions) > 1}
    large_total = sum(one.size for one in large)
    left = max(min_partitions - (len(found) - len(large)), 1)
    return [
        part
        for one in found
        for part in (_divide(one, _parts(one.size, large_total, left)) if one in large else [one])
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    return max((2 * size * wanted + total) // (2 * total), 1)  # rounded half up


def _divide(one: Range, parts: int) -> list[Range]:
    found: list[Range] = []
    start = one.start
    for part in range(parts):
        end = start + (one.end - start) // (parts - part)
        if end > start:
            found.append(replace(one, start=start, end=end))
        start = end
    return found
