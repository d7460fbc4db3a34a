"""Offsets as Spark's Kafka source writes them, in options and checkpoints: `{"orders":{"0":23,"1":-2}}`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.spark.errors import BadOffsets, BadOption

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]

LATEST, EARLIEST = -1, -2
"""What stands for an offset in an option; a checkpoint has only real ones."""

_LARGEST_OFFSET = 2**63 - 1


def parse_offsets(option: str, text: str) -> Offsets:
    """The offsets of an option such as `startingOffsets`; -1 is latest, -2 is earliest."""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    return _parse_map(option, text, example, lambda number: number >= EARLIEST)


def parse_timestamps(option: str, text: str) -> Offsets:
    """The times (ms) of an option such as `startingOffsetsByTimestamp`."""
    example = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
    return _parse_map(option, text, example, lambda number: number >= 0)


def parse_assignment(text: str) -> frozenset[TopicPartition]:
    """The partitions of the option `assign`."""
    found: set[TopicPartition] = set()
    wrong = BadOption(f'assign: expected e.g. {{"topicA":[0,1],"topicB":[2,4]}}, got {text}')
    for topic, partitions in _parse_object(text, wrong).items():
        if not isinstance(partitions, list) or not all(_is_partition(number) for number in partitions):
            raise wrong
        found.update((topic, partition) for partition in partitions)
    if not found:
        raise BadOption(f"assign: no partitions to read in {text}")
    return frozenset(found)


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The form in the checkpoint, sorted, because Spark compares offsets as text."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return found


def from_json(stored: Any) -> Offsets:
    """The offsets that `to_json` or Spark's Kafka source wrote; BadOffsets for those of another source."""
    try:
        found = {
            (topic, _partition_of(partition)): offset
            for topic, partitions in stored.items()
            for partition, offset in partitions.items()
        }
        if all(_is_int(offset) and offset >= 0 for offset in found.values()):
            return found
    except (AttributeError, ValueError):
        pass
    raise BadOffsets(
        f"the checkpoint has offsets that are not of Kafka partitions: {json.dumps(stored)}."
        " It belongs to a query with another source: choose another checkpointLocation"
    )


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in a message: `orders-0, orders-1`; a long list is truncated."""
    listed = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")


def _parse_map(option: str, text: str, example: str, allowed: Callable[[int], bool]) -> Offsets:
    wrong = BadOption(f"{option}: expected e.g. {example}, got {text}")
    found: Offsets = {}
    for topic, partitions in _parse_object(text, wrong).items():
        if not isinstance(partitions, dict):
            raise wrong
        for partition, number in partitions.items():
            try:
                index = _partition_of(partition)
            except ValueError:
                raise wrong from None
            if not _is_int(number) or not allowed(number) or number > _LARGEST_OFFSET:
                raise wrong
            found[topic, index] = number
    if not found:
        raise wrong
    return found


def _parse_object(text: str, wrong: BadOption) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(parsed, dict):
        raise wrong
    return parsed


def _partition_of(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= 2**31:
        raise ValueError(text)
    return int(text)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
